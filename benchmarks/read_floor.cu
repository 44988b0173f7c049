// Kernels that only read (the floor of any GEMV), and what is needed to read from a cold, clean L2.
// Built by gemv_floor.py as a plain C library; every launcher takes a stream and returns the CUDA
// error.
#include <cuda_runtime.h>

#include <cstdint>

namespace {

__global__ void fill_kernel(uint4* to, size_t n, unsigned value) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
       i += (size_t)gridDim.x * blockDim.x)
    to[i] = make_uint4(value, value, value, value);
}

__global__ void sweep_kernel(const uint4* from, size_t n, unsigned* sink) {
  unsigned seen = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
       i += (size_t)gridDim.x * blockDim.x) {
    const uint4 v = from[i];
    seen ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (seen == 0x12345) *sink = seen;
}

__global__ void spin_kernel(long long ns) {
  long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < ns);
}

__global__ void empty_kernel() {}

// Every block reads one contiguous range, U independent 16-byte loads per thread in flight.
template <int U>
__global__ void __launch_bounds__(512)
    read_kernel(const uint4* __restrict__ from, size_t n, unsigned* sink) {
  const size_t share = (n + gridDim.x - 1) / gridDim.x, begin = share * blockIdx.x;
  const size_t end = begin + share < n ? begin + share : n;
  unsigned seen = 0;
  for (size_t i = begin + threadIdx.x; i < end; i += (size_t)blockDim.x * U) {
    uint4 v[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const size_t j = i + (size_t)u * blockDim.x;
      v[u] = make_uint4(0, 0, 0, 0);
      if (j < end)
        asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[u].x), "=r"(v[u].y), "=r"(v[u].z), "=r"(v[u].w)
                     : "l"(from + j));
    }
#pragma unroll
    for (int u = 0; u < U; u++) seen ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (seen == 0x12345) *sink = seen;
}

// Bulk copies into shared memory that nobody looks at: tiles dealt to the blocks in turn, `slots`
// in flight each.
__global__ void __launch_bounds__(32)
    bulk_kernel(const uint8_t* from, size_t bytes, int tile, int slots) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ __align__(8) uint64_t barrier[16];
  if (threadIdx.x) return;
  const uint32_t ring = (uint32_t)__cvta_generic_to_shared(shared),
                 full = (uint32_t)__cvta_generic_to_shared(barrier);
  for (int i = 0; i < slots; i++)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * i));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  const size_t tiles = (bytes + tile - 1) / tile;
  size_t sent = blockIdx.x;
  auto fetch = [&](int slot) {
    const size_t start = sent * tile;
    const int size = bytes - start < (size_t)tile ? (int)(bytes - start) : tile;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full + 8 * slot),
                 "r"(size)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(ring + slot * tile),
        "l"(from + start), "r"(size), "r"(full + 8 * slot)
        : "memory");
    sent += gridDim.x;
  };
  for (int i = 0; i < slots && sent < tiles; i++) fetch(i);
  int slot = 0, phase = 0;
  for (size_t done = blockIdx.x; done < tiles; done += gridDim.x) {
    asm volatile(
        "{ .reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(full + 8 * slot),
        "r"(phase)
        : "memory");
    if (sent < tiles) fetch(slot);
    if (++slot == slots) slot = 0, phase ^= 1;
  }
#endif
}

}  // namespace

// Leaves L2 holding clean lines of the second half of `buffer` (2 * bytes long), then waits `ns` on
// the device.
extern "C" int flush(void* buffer, size_t bytes, unsigned value, void* sink, long long ns,
                     void* stream) {
  const cudaStream_t s = (cudaStream_t)stream;
  fill_kernel<<<1024, 256, 0, s>>>((uint4*)buffer, bytes / 16, value);
  sweep_kernel<<<1024, 256, 0, s>>>((const uint4*)((uint8_t*)buffer + bytes), bytes / 16,
                                    (unsigned*)sink);
  spin_kernel<<<1, 1, 0, s>>>(ns);
  return cudaGetLastError();
}

extern "C" int empty(void* stream) {
  empty_kernel<<<1, 1, 0, (cudaStream_t)stream>>>();
  return cudaGetLastError();
}

extern "C" int read_plain(const void* from, size_t bytes, int unroll, int blocks, void* sink,
                          void* stream) {
  const cudaStream_t s = (cudaStream_t)stream;
  const uint4* p = (const uint4*)from;
  if (unroll == 8)
    read_kernel<8><<<blocks, 512, 0, s>>>(p, bytes / 16, (unsigned*)sink);
  else if (unroll == 4)
    read_kernel<4><<<blocks, 512, 0, s>>>(p, bytes / 16, (unsigned*)sink);
  else
    read_kernel<2><<<blocks, 512, 0, s>>>(p, bytes / 16, (unsigned*)sink);
  return cudaGetLastError();
}

extern "C" int read_bulk(const void* from, size_t bytes, int tile, int slots, int blocks,
                         void* stream) {
  cudaFuncSetAttribute(bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
  bulk_kernel<<<blocks, 32, tile * slots, (cudaStream_t)stream>>>((const uint8_t*)from, bytes, tile,
                                                                  slots);
  return cudaGetLastError();
}
