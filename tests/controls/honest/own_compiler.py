"""C compiled at import by a program of its own, loaded by ctypes; another compiler would do too."""

import ctypes
import os
import subprocess
from pathlib import Path

import torch

_SOURCE = (
    "void twice(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = 2 * x[i]; }"
)
_folder = Path(os.environ["TORCH_EXTENSIONS_DIR"])
_folder.mkdir(parents=True, exist_ok=True)
_library = _folder / "twice.so"
if not _library.exists():
    subprocess.run(
        ["gcc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", str(_library)],
        input=_SOURCE.encode(),
        check=True,
    )
_twice = ctypes.CDLL(str(_library)).twice


def custom_kernel(data):
    x = data[0]
    y = torch.empty_like(x)
    _twice(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
    return y
