"""What went wrong inside the worker, as a verdict and one line a person can act on."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

#: This package's files, and the import system's, which load a submission.
_OURS = (str(Path(__file__).parent), "<frozen importlib")
MESSAGE_CHARS = 600
DETAIL_CHARS = 6000


@dataclass(frozen=True, slots=True)
class Paths:
    """The submission's file in the scratch folder, the name its author knows it by, and modules
    that lie beside it there.
    """

    file: str
    display: str
    beside: tuple[str, ...] = ()

    def restore(self, text: str) -> str:
        return text.replace(self.file, self.display) if self.file else text


class NoKernel(Exception):
    """The file defines no custom_kernel."""


class Refused(Exception):
    """The submission returned something that cannot be its output."""

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.message = message


#: What torch and Triton say where no GPU can be used.
NO_GPU_TEXTS = (
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "0 active drivers",
)
#: The device cannot run it, whatever the code is worth (torch 2.10 to 2.13, CUDA 12 and 13).
UNSUPPORTED_TEXTS = (
    *NO_GPU_TEXTS,
    "CUBLAS_STATUS_NOT_SUPPORTED",
    "CUBLAS_STATUS_ARCH_MISMATCH",
    "no kernel image is available",
    "device kernel image is invalid",
    "is only supported on CUDA devices with compute capability",
    "Invalid scaling configuration",
    "CUDA does not support swizzle",
    "CPU does not support swizzle",
    "CUDA driver version is insufficient",
    "cudaErrorNoKernelImageForDevice",
)
#: Packages that only a machine with a GPU has a use for; elsewhere nobody need install them.
GPU_PACKAGES = frozenset({"triton", "cutlass", "cuda", "cupy", "pycuda", "tilelang"})
#: Module -> what pip calls it, where that is another name.
_PACKAGES = {"cutlass": "nvidia-cutlass-dsl", "cuda": "cuda-bindings"}
#: How submissions say themselves that they need a GPU.
_NEEDS_GPU = re.compile(r"\b(needs?|requires?)\b.{0,40}\b(CUDA|GPU|compute capability)\b", re.I)
COMPILE_TEXTS = (
    "Error building extension",
    "Error compiling objects for extension",
    "Ninja is required",
    "CompilationError",
    "NVRTC",
    "nvcc fatal",
    "ptxas fatal",
    "CUDA_HOME environment variable is not set",
)
MEMORY_TEXTS = ("CUDA out of memory", "out of memory", "can't allocate memory", "bad_alloc")


def explain(error: BaseException, stage: str, paths: Paths) -> dict[str, str]:
    """The `verdict`, `message` and `detail` of a fault message.

    `stage` is the order that was being carried out: "import" or "call" are the submission's doing.
    """
    kind = type(error).__name__
    try:
        text = str(error)
        detail = "" if isinstance(error, Refused | NoKernel) else _traceback(error)
    except BaseException:  # noqa: BLE001 - the exception's own __str__ is the submission's code
        text, detail = "(its message could not be read)", ""
    verdict = _verdict(error, kind, text, stage)
    message = _message(error, kind, text, paths)
    if verdict == "unsupported" and _says(NO_GPU_TEXTS, error, kind, text):
        message = f"it needs a GPU, and this machine has none that can be used: {message}"
    return {
        "verdict": verdict,
        "message": _clean(paths.restore(message), MESSAGE_CHARS),
        "detail": _clean(paths.restore(detail), DETAIL_CHARS),
    }


def _verdict(error: BaseException, kind: str, text: str, stage: str) -> str:
    if isinstance(error, Refused):
        return error.verdict
    if isinstance(error, NoKernel):
        return "import_error"
    if isinstance(error, SystemExit | KeyboardInterrupt | GeneratorExit):
        return "crashed"
    if _says(UNSUPPORTED_TEXTS, error, kind, text) or _lacks_gpu(error, text):
        return "unsupported"
    if isinstance(error, MemoryError) or _says(MEMORY_TEXTS, error, kind, text):
        return "out_of_memory"
    if isinstance(error, SyntaxError) or _says(COMPILE_TEXTS, error, kind, text):
        return "compile_error"
    if stage == "import":
        return "import_error"
    return "runtime_error"


def _says(known: Iterable[str], error: BaseException, kind: str, text: str) -> bool:
    """Whether one of these texts is in the error or in what it came of."""
    chain = f"{kind}: {text}" + "".join(
        f"\n{type(e).__name__}: {e}" for e in (error.__cause__, error.__context__) if e
    )
    return any(words in chain for words in known)


def _lacks_gpu(error: BaseException, text: str) -> bool:
    """Whether it cannot run because this machine has no GPU, by its own word or its imports."""
    if torch.cuda.is_available():
        return False
    missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    return missing.partition(".")[0] in GPU_PACKAGES or bool(_NEEDS_GPU.search(text))


def _message(error: BaseException, kind: str, text: str, paths: Paths) -> str:
    if isinstance(error, Refused):
        return error.message
    if isinstance(error, NoKernel):
        return "defines no custom_kernel(data): name the entry point `def custom_kernel(data):`"
    if isinstance(error, SystemExit):
        return f"called sys.exit({error.code!r}) instead of returning"
    if isinstance(error, ModuleNotFoundError) and _lacks_gpu(error, text):
        module = (error.name or "").partition(".")[0]
        remedy = f"pip install {_PACKAGES.get(module, module)}"
        where = _place(error, paths)
        return f"needs {error.name}, which is not installed here ({remedy}){where}"
    if isinstance(error, SyntaxError):
        return f"{kind}: {error.msg} ({paths.display}:{error.lineno})"
    return f"{kind}: {_last_words(text)}{_place(error, paths)}{_alone(error, kind, paths)}"


def _alone(error: BaseException, kind: str, paths: Paths) -> str:
    """What those who miss a file, a module or the network have to know."""
    name = error.filename if isinstance(error, FileNotFoundError) else None
    relative = isinstance(name, str) and Path(name).suffix and not Path(name).is_absolute()
    module = error.name if isinstance(error, ModuleNotFoundError) else None
    if relative or (module and module.partition(".")[0] in paths.beside):
        return "; a submission is one file, and sees no other of its folder"
    if module:
        return "; it is not installed here"
    if kind in ("gaierror", "URLError", "ConnectionError", "ConnectTimeout", "MaxRetryError"):
        return "; a submission has no network"
    return ""


def _last_words(text: str) -> str:
    """The first line says what, the last one often why (compilers); keep both."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    if len(lines) == 1 or "error:" in lines[0].lower():
        # CUDA's is told in its first line; what follows is the same general advice every time.
        return _shorten(lines[0], MESSAGE_CHARS)
    reason = next((line for line in lines if "error:" in line.lower()), lines[-1])
    return f"{_shorten(lines[0], 250)} ... {_shorten(reason, 300)}"


def _place(error: BaseException, paths: Paths) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == paths.file]
    return f" ({paths.display}:{lines[-1]})" if lines else ""


def _traceback(error: BaseException) -> str:
    """Python's own, without the frames that lead from us to the submission."""
    whole = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [whole]
    while waiting:
        one = waiting.pop()
        if one is not None:
            kept = [frame for frame in one.stack if not frame.filename.startswith(_OURS)]
            one.stack = traceback.StackSummary.from_list(kept)
            waiting += [one.__cause__, one.__context__]
    return "".join(whole.format())


def _shorten(text: str, limit: int) -> str:
    """Keep head and tail: the reason is as often at the end as at the beginning."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}[... {len(text) - 2 * half} characters ...]{text[-half:]}"


def _clean(text: str, limit: int) -> str:
    """Encodable as UTF-8 whatever the submission raised, and no longer than `limit` or so."""
    return _shorten(text.encode("utf-8", "backslashreplace").decode("utf-8"), limit)
