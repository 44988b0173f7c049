#!HARNESS author your-name
"""A place to start in CUDA C++: one warp for a row, right for every shape, far from fast.

harness run submissions/NAME.py --mode test     checks it
harness run submissions/NAME.py                 checks it, times it, ranks it
"""

import ctypes

import torch
from torch.utils.cpp_extension import load_inline

from task import input_t, output_t

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

constexpr int kWarps = 4;  // rows of a thread block

// Twice the value of an e2m1 code (bit 3 is the sign): 0 1 2 3 4 6 8 12.
__device__ int twice(unsigned code) {
  const int magnitude = 0xC8643210u >> (4 * (code & 7)) & 15;
  return code & 8 ? -magnitude : magnitude;
}

// Four times the dot product of eight elements: small integers, so exact.
__device__ int dot8(unsigned a, unsigned b) {
  int sum = 0;
  for (int i = 0; i < 32; i += 4) sum += twice(a >> i) * twice(b >> i);
  return sum;
}

// A block of 16 elements is 8 bytes and has one scale.
__global__ void gemv(const uint2* a, const uint2* b, const __nv_fp8_e4m3* sfa,
                     const __nv_fp8_e4m3* sfb, __half* c, int m, int blocks) {
  const int row = blockIdx.x * kWarps + threadIdx.y, batch = blockIdx.y;
  a += (size_t(batch) * m + row) * blocks;
  sfa += (size_t(batch) * m + row) * blocks;
  b += size_t(batch) * 128 * blocks;  // b has 128 rows; only the first counts
  sfb += size_t(batch) * 128 * blocks;

  float sum = 0;
  for (int i = threadIdx.x; i < blocks; i += 32) {
    const uint2 x = a[i], y = b[i];
    const float dot = 0.25f * (dot8(x.x, y.x) + dot8(x.y, y.y));
    // In float: the product of two scales can be larger than float16 holds.
    sum += dot * (float(sfa[i]) * float(sfb[i]));
  }
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
  if (threadIdx.x == 0) c[size_t(batch) * m + row] = __float2half(sum);
}

extern "C" int launch(void* a, void* b, void* sfa, void* sfb, void* c, int m, int k, int l,
                      void* stream) {
  const dim3 grid(m / kWarps, l), threads(32, kWarps);
  gemv<<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<uint2*>(a), static_cast<uint2*>(b), static_cast<__nv_fp8_e4m3*>(sfa),
      static_cast<__nv_fp8_e4m3*>(sfb), static_cast<__half*>(c), m, k / 16);
  return cudaGetLastError();
}
"""


def build():
    """Compile for the GPU that is here; the harness keeps the result for this exact file."""
    major, minor = torch.cuda.get_device_capability()
    # From Hopper on, the target with an "a" has all of the instructions.
    arch = f"{major}{minor}" + ("a" if major >= 9 else "")
    path = load_inline(
        "NAME",
        cpp_sources="",
        cuda_sources=SOURCE,
        # A C function called through ctypes: torch's own headers would take most of a minute.
        no_implicit_headers=True,
        is_python_module=False,
        extra_cuda_cflags=["-O3", f"-gencode=arch=compute_{arch},code=sm_{arch}"],
    )
    launch = ctypes.CDLL(path).launch
    launch.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int] * 3 + [ctypes.c_void_p]
    return launch


launch = build()


def custom_kernel(data: input_t) -> output_t:
    # Shapes, dtypes and strides are described in task/types.py.
    a, b, sfa, sfb, _, _, c = data
    m, half_k, batches = a.shape
    pointers = [tensor.data_ptr() for tensor in (a, b, sfa, sfb, c)]
    # The current stream: work on another one would start before its inputs are there.
    stream = torch.cuda.current_stream().cuda_stream
    error = launch(*pointers, m, 2 * half_k, batches, stream)
    if error:
        raise RuntimeError(f"the launch failed with CUDA error {error}")
    return c
