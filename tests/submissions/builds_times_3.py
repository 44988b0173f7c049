"""Wrong: C++ under a name that another submission uses too, times 3."""

import ctypes

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
extern "C" void scale(const float* x, float* y, long n) {
  for (long i = 0; i < n; i++) y[i] = x[i] * 3;
}
"""
path = load_inline("k", cpp_sources=SOURCE, no_implicit_headers=True, is_python_module=False)
scale = ctypes.CDLL(path).scale


def custom_kernel(data):
    (x,) = data
    y = torch.empty_like(x)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    scale(*pointers, ctypes.c_long(x.numel()))
    return y
