"""Kernels of our own: of known length, or reading a known number of bytes, or flushing a cache.

Calibration and self-test run them in the worker before the submission is there; the judge uses the
same code to clean the L2 and to measure what this GPU can read.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.devices import driver

SOURCE = r"""
extern "C" __global__ void spin(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
}

extern "C" __global__ void stamp(unsigned long long* ns) {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  *ns = now;
}

// Reads `count` 16-byte words, eight in flight per thread, and writes only if the sum says so.
#define READ(NAME, LOAD)                                                              \
  extern "C" __global__ void __launch_bounds__(512)                                   \
  NAME(const uint4* words, long long count, unsigned* sink) {                         \
    long long share = (count + gridDim.x - 1) / gridDim.x;                            \
    long long begin = share * blockIdx.x;                                             \
    long long end = begin + share < count ? begin + share : count;                    \
    unsigned sum = 0;                                                                 \
    for (long long i = begin + threadIdx.x; i < end; i += 8LL * blockDim.x) {         \
      uint4 w[8];                                                                     \
      _Pragma("unroll") for (int u = 0; u < 8; ++u) {                                 \
        long long j = i + (long long)u * blockDim.x;                                  \
        w[u] = make_uint4(0, 0, 0, 0);                                                \
        if (j < end)                                                                  \
          asm volatile(LOAD ".v4.u32 {%0,%1,%2,%3}, [%4];"                            \
                       : "=r"(w[u].x), "=r"(w[u].y), "=r"(w[u].z), "=r"(w[u].w)       \
                       : "l"(words + j));                                             \
      }                                                                               \
      _Pragma("unroll") for (int u = 0; u < 8; ++u)                                   \
        sum ^= w[u].x ^ w[u].y ^ w[u].z ^ w[u].w;                                     \
    }                                                                                 \
    if (sum == 0x9e3779b9u) *sink = sum;                                              \
  }
READ(read_all, "ld.global.nc.L1::no_allocate.L2::256B")  // as fast as this GPU reads
READ(load_all, "ld.global")                              // as a compiler loads

extern "C" __global__ void fill(uint4* words, long long count, long long value) {
  unsigned v = (unsigned)value;
  long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    words[i] = make_uint4(v, v, v, v);
}
"""
#: Blocks per multiprocessor that read fastest on an H200 (docs/measurements/).
READ_BLOCKS_PER_SM = 4
READ_THREADS = 512


def events(count: int) -> list[torch.cuda.Event]:
    """Events that can be timed."""
    return [torch.cuda.Event(enable_timing=True) for _ in range(count)]  # type: ignore[no-untyped-call]


def compiled(device: int) -> bytes:
    """SOURCE as a cubin for this device."""
    return driver.compile_cubin(SOURCE, device)


class Bodies:
    """The kernels of SOURCE on the current device."""

    def __init__(self, device: int, cubin: bytes | None = None) -> None:
        """Compile for this device, which takes half a second, unless that was done before."""
        cubin = cubin or compiled(device)
        self._spin = driver.Kernel(cubin, "spin")
        self._read = driver.Kernel(cubin, "read_all")
        self._load = driver.Kernel(cubin, "load_all")
        self._fill = driver.Kernel(cubin, "fill")
        self._sms = torch.cuda.get_device_properties(device).multi_processor_count
        self._sink = torch.zeros(4, dtype=torch.int32, device=f"cuda:{device}")

    def spin(self, cycles: int) -> None:
        """Keep one thread busy for so many SM clock cycles."""
        self._spin(1, 1, (cycles,))

    def read(self, memory: torch.Tensor, blocks: int | None = None) -> None:
        """Read a flat uint8 tensor once, whole 16-byte words."""
        grid = READ_BLOCKS_PER_SM * self._sms if blocks is None else blocks
        words = memory.numel() // 16
        self._read(grid, READ_THREADS, (memory.data_ptr(), words, self._sink.data_ptr()))

    def load(self, memory: torch.Tensor) -> None:
        """The same with loads that ask for nothing special; 16-byte words."""
        grid = READ_BLOCKS_PER_SM * self._sms
        words = memory.numel() // 16
        self._load(grid, READ_THREADS, (memory.data_ptr(), words, self._sink.data_ptr()))

    def fill(self, memory: torch.Tensor, value: int) -> None:
        """Write a flat uint8 tensor once, whole 16-byte words."""
        self._fill(8 * self._sms, READ_THREADS, (memory.data_ptr(), memory.numel() // 16, value))


def parse(body: str, bodies: Bodies) -> Callable[[tuple[torch.Tensor, ...]], None]:
    """What may be ordered before the import: `null`, `spin:CYCLES`, `read:BYTES`, `load:BYTES`."""
    kind, _, amount = body.partition(":")
    if kind == "null":
        return lambda data: None
    if kind == "spin":
        return lambda data: bodies.spin(int(amount))
    if kind == "read":
        return lambda data: bodies.read(data[0][: int(amount)])
    if kind == "load":
        return lambda data: bodies.load(data[0][: int(amount)])
    raise ValueError(f"no body {body!r}")
