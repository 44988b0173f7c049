// The GEMV as contest entries for Blackwell are commonly written: cuda_fp4.h and cuda_fp8.h
// converts, half2 products inside a scale block, a block of threads per row.  Without FP4 hardware
// the FP4 convert is a routine of integer instructions, and that is what this file is here to
// measure: the price of compiling such an entry for another GPU.
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ __half2 fp4_pair(uint8_t byte) {
  return __half2(__nv_cvt_fp4x2_to_halfraw2(byte, __NV_E2M1));
}

__device__ __forceinline__ float scale(uint8_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

__global__ void __launch_bounds__(kThreads)
    header_kernel(const uint8_t* a, const uint8_t* b, const uint8_t* sfa, const uint8_t* sfb,
                  __half* c, int m, int k) {
  const int row = blockIdx.x, batch = blockIdx.y;
  const uint8_t* x = a + ((size_t)batch * m + row) * (k / 2);
  const uint8_t* y = b + (size_t)batch * 128 * (k / 2);
  const uint8_t* s = sfa + ((size_t)batch * m + row) * (k / 16);
  const uint8_t* t = sfb + (size_t)batch * 128 * (k / 16);
  float sum = 0;
  for (int i = threadIdx.x; i < k / 16; i += kThreads) {
    const uint2 p = *reinterpret_cast<const uint2*>(x + 8 * i),
                q = *reinterpret_cast<const uint2*>(y + 8 * i);
    const uint32_t pw[2] = {p.x, p.y}, qw[2] = {q.x, q.y};
    __half2 block = __float2half2_rn(0.f);
#pragma unroll
    for (int j = 0; j < 8; j++)
      block = __hfma2(fp4_pair(pw[j / 4] >> (8 * (j % 4))), fp4_pair(qw[j / 4] >> (8 * (j % 4))),
                      block);
    sum += (__low2float(block) + __high2float(block)) * scale(s[i]) * scale(t[i]);
  }
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  __shared__ float warp[kThreads / 32];
  if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0)
    c[(size_t)batch * m + row] = __float2half_rn(warp[0] + warp[1] + warp[2] + warp[3]);
}

}  // namespace

extern "C" int gemv_header(void* a, void* b, void* sfa, void* sfb, void* c, int m, int k, int l,
                           void* stream) {
  header_kernel<<<dim3(m, l), kThreads, 0, (cudaStream_t)stream>>>(
      (const uint8_t*)a, (const uint8_t*)b, (const uint8_t*)sfa, (const uint8_t*)sfb, (__half*)c, m,
      k);
  return cudaGetLastError();
}
