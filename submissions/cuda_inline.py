#!HARNESS author kernel-harness
"""CUDA C++, built once at import, one launch per call: bulk copies feed integer dot products.

The problem moves 0.56 bytes per element and does two operations with it, so DRAM is the limit and
everything here serves one aim: never let the memory wait, and be done soon after the last byte
has come.

* A is one contiguous stream.  One thread per block keeps three or four tiles of it in flight with
  `cp.async.bulk`; more than that was slower.
* Each warp owns 1024 columns.  It decodes its part of the vector once and keeps it in registers.
* FP4 doubled is an integer ({0, 1, 2, 3, 4, 6, 8, 12} with a sign), so a 16-element dot product
  is exact in int8: PRMT is the decoder (a nibble is a byte selector) and DP4A the arithmetic.
  Blackwell has a convert instead.
* Scales are applied per block of 16 in float32, where no product of two e4m3 numbers overflows.

The ring is built for the three ranked values of K; every other shape, and a GPU older than Hopper,
takes the second, plain kernel.
"""

import ctypes

import torch
from torch.utils.cpp_extension import load_inline

from task import input_t, output_t

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM101_ALL) || \
    defined(__CUDA_ARCH_FEAT_SM103_ALL) || defined(__CUDA_ARCH_FEAT_SM110_ALL) || \
    defined(__CUDA_ARCH_FEAT_SM120_ALL) || defined(__CUDA_ARCH_FEAT_SM121_ALL)
#define NATIVE_FP4 1
#else
#define NATIVE_FP4 0
#endif

#define DEVICE __device__ __forceinline__

// Nothing but gemv() leaves this file: a second build of it in one process, as in a test, would
// otherwise share the static variable of launch_ring() and miss its own set-up.
namespace {

struct Problem {
  const uint8_t *a, *b;      // [l][m][k/2], [l][128][k/2]
  const uint8_t *sfa, *sfb;  // [l][m][k/16], [l][128][k/16]
  __half* c;                 // [l][m]
  int m, k, l;
};

// ---- Decoding

// Two e4m3 scales.  e4m3 is float16 with four exponent bits fewer: shifted into place it reads 2^8
// too small.
DEVICE float2 decode_scales(uint16_t codes) {
#if __CUDA_ARCH__ >= 890
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes));
  return __half22float2(*reinterpret_cast<__half2*>(&pair));
#else
  float out[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const uint16_t code = (codes >> (8 * i)) & 0xff;
    const __half_raw bits = {static_cast<unsigned short>((code & 0x80) << 8 | (code & 0x7f) << 7)};
    out[i] =
        (code & 0x7f) == 0x7f ? __int_as_float(0x7fffffff) : __half2float(__half(bits)) * 256.f;
  }
  return make_float2(out[0], out[1]);
#endif
}

#if NATIVE_FP4

DEVICE void decode8(uint32_t word, __half2 (&out)[4]) {
  uint32_t h[4];
  asm("{ .reg .b8 p, q, r, s; mov.b32 {p, q, r, s}, %4;\n"
      "cvt.rn.f16x2.e2m1x2 %0, p; cvt.rn.f16x2.e2m1x2 %1, q;\n"
      "cvt.rn.f16x2.e2m1x2 %2, r; cvt.rn.f16x2.e2m1x2 %3, s; }"
      : "=r"(h[0]), "=r"(h[1]), "=r"(h[2]), "=r"(h[3])
      : "r"(word));
#pragma unroll
  for (int i = 0; i < 4; i++) out[i] = *reinterpret_cast<__half2*>(&h[i]);
}

// 32 elements of the vector, two scale blocks, ready for dot().
struct Vector {
  __half2 b[16];
  float2 scale;

  DEVICE void load(uint4 codes, uint16_t scales) {
    const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int i = 0; i < 4; i++) decode8(word[i], reinterpret_cast<__half2(&)[4]>(b[4 * i]));
    scale = decode_scales(scales);
  }

  // Eight products of at most 36 in steps of 1/4 are exact in float16; the two lanes are added in
  // float32.
  DEVICE float dot(uint4 codes, uint16_t scales) const {
    const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
    float block[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      __half2 sum = __half2half2(__half(__half_raw{0}));
#pragma unroll
      for (int j = 0; j < 2; j++) {
        __half2 a[4];
        decode8(word[2 * i + j], a);
#pragma unroll
        for (int n = 0; n < 4; n++) sum = __hfma2(a[n], b[8 * i + 4 * j + n], sum);
      }
      const float2 lanes = __half22float2(sum);
      block[i] = lanes.x + lanes.y;
    }
    const float2 s = decode_scales(scales);
    return fmaf(block[1], s.y * scale.y, block[0] * (s.x * scale.x));
  }
};

#else

// The compiler may not see through this: PRMT takes one immediate, so the other half of the table
// must live in a register, and a constant that is known to be one is moved there again before every
// single use.
DEVICE uint32_t opaque(uint32_t x) {
  uint32_t y;
  asm volatile("shfl.sync.idx.b32 %0, %1, 0, 31, -1;" : "=r"(y) : "r"(x));
  return y;
}

// Doubled magnitudes 0 1 2 3 | 4 6 8 12 for four codes.  Selector bit 3, FP4's sign, replicates the
// byte's own top bit, which is 0 here: negative codes give 0, so lookup(x) holds the positive ones
// and lookup(x ^ 8) the others.
DEVICE uint32_t lookup(uint32_t low_half, uint32_t codes) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, 0x0C080604, %2;" : "=r"(bytes) : "r"(low_half), "r"(codes));
  return bytes;
}

struct Vector {
  uint32_t b[8];
  float2 scale;  // a quarter of the scale, since both operands are doubled
  uint32_t table;
  int magic;  // the float 1.5 * 2^23: integers below 2^22 added to its bits are added to its value

  DEVICE void load(uint4 codes, uint16_t scales) {
    table = opaque(0x03020100);
    magic = opaque(0x4B400000);
    const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const uint32_t x = word[i / 2] >> (16 * (i % 2));
      b[i] = __vsub4(lookup(table, x), lookup(table, x ^ 0x8888));
    }
    const float2 s = decode_scales(scales);
    scale = make_float2(s.x * 0.25f, s.y * 0.25f);
  }

  DEVICE float dot(uint4 codes, uint16_t scales) const {
    const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
    float block[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int positive = magic, negative = magic;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const uint32_t x = word[2 * i + j], y = x ^ 0x88888888;
        const int low = 4 * i + 2 * j;
        positive = __dp4a((int)lookup(table, x), (int)b[low], positive);
        positive = __dp4a((int)lookup(table, x >> 16), (int)b[low + 1], positive);
        negative = __dp4a((int)lookup(table, y), (int)b[low], negative);
        negative = __dp4a((int)lookup(table, y >> 16), (int)b[low + 1], negative);
      }
      block[i] = __int_as_float(positive) - __int_as_float(negative);  // exact
    }
    const float2 s = decode_scales(scales);
    return fmaf(block[1], s.y * scale.y, block[0] * (s.x * scale.x));
  }
};

#endif

// Sum R values per lane over the warp; lanes [i * 32 / R, (i + 1) * 32 / R) return the sum of value
// i.
template <int R>
DEVICE float warp_sums(float (&value)[R], int lane) {
  int distance = 16;
#pragma unroll
  for (int n = R / 2; n >= 1; n >>= 1, distance >>= 1) {
#pragma unroll
    for (int i = 0; i < n; i++) {
      const bool upper = lane & distance;
      const float keep = upper ? value[i + n] : value[i], send = upper ? value[i] : value[i + n];
      value[i] = keep + __shfl_xor_sync(~0u, send, distance);
    }
  }
#pragma unroll
  for (; distance >= 1; distance >>= 1) value[0] += __shfl_xor_sync(~0u, value[0], distance);
  return value[0];
}

// ---- The ring: K = 1024 * W, compute capability 9.0 and later

DEVICE uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

#if __CUDA_ARCH__ >= 900
DEVICE void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
DEVICE void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
DEVICE void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
DEVICE void barrier_wait(uint32_t barrier, int phase) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
// The bytes are used once: they may leave L2 first.
DEVICE void copy_in(uint32_t to, const void* from, int bytes, uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
DEVICE uint4 load_shared_16(uint32_t p) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(p));
  return v;
}
DEVICE uint16_t load_shared_2(uint32_t p) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(p));
  return v;
}
#endif

// A block: W warps along K times G groups of R rows, and one warp that copies.  A tile is G * R
// whole rows of A and of its scales, contiguous in memory both; N tiles fit in the ring. blockIdx.y
// is the batch.
template <int W, int G, int R, int N>
struct Ring {
  static constexpr int kRow = 512 * W, kScaleRow = 64 * W, kRows = G * R;
  static constexpr int kTileA = kRows * kRow, kTileS = kRows * kScaleRow, kTile = kTileA + kTileS;
  static constexpr int kConsumers = 32 * W * G, kThreads = kConsumers + 32;
  static constexpr int kPitch = W | 1;  // odd, so that partial sums spread over the banks
  static int shared_bytes(int tiles) { return N * kTile + tiles * kRows * kPitch * 4; }
};

template <int W, int G, int R, int N, int BLOCKS>
__global__ void __launch_bounds__(Ring<W, G, R, N>::kThreads, BLOCKS) gemv_ring(Problem p) {
#if __CUDA_ARCH__ >= 900
  using T = Ring<W, G, R, N>;
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ __align__(8) uint64_t full_barrier[N], empty_barrier[N];
  float* partial = reinterpret_cast<float*>(shared + N * T::kTile);  // [tile][row][warp]
  const uint32_t ring = shared_address(shared);
  const uint32_t full = shared_address(full_barrier), empty = shared_address(empty_barrier);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, batch = blockIdx.y;
  // Tiles are dealt to the blocks in turn, so the whole device sweeps through memory together.
  const int all = p.m / T::kRows,
            tiles = (all - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;

  if (warp == W * G) {
    const uint8_t* a = p.a + (size_t)batch * p.m * T::kRow + (size_t)blockIdx.x * T::kTileA;
    const uint8_t* s = p.sfa + (size_t)batch * p.m * T::kScaleRow + (size_t)blockIdx.x * T::kTileS;
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    auto fetch = [&](int slot) {
      barrier_expect(full + 8 * slot, T::kTile);
      copy_in(ring + slot * T::kTile, a, T::kTileA, full + 8 * slot, policy);
      copy_in(ring + slot * T::kTile + T::kTileA, s, T::kTileS, full + 8 * slot, policy);
      a += (size_t)gridDim.x * T::kTileA;
      s += (size_t)gridDim.x * T::kTileS;
    };
    int tile = 0;
    if (lane == 0) {
      for (int i = 0; i < N; i++) {
        barrier_init(full + 8 * i, 1);
        barrier_init(empty + 8 * i, W * G);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      for (; tile < N && tile < tiles; tile++) fetch(tile);  // before anybody waits for anything
    }
    __syncwarp();
    asm volatile("bar.arrive 1, %0;" ::"n"(T::kThreads) : "memory");
    if (lane == 0) {
      for (int slot = 0, phase = 0; tile < tiles; tile++) {
        barrier_wait(empty + 8 * slot, phase);
        fetch(slot);
        if (++slot == N) slot = 0, phase ^= 1;
      }
    }
    return;
  }

  const int column = warp % W, group = warp / W;
  Vector b;
  b.load(*reinterpret_cast<const uint4*>(p.b + (size_t)batch * 128 * T::kRow + column * 512 +
                                         lane * 16),
         *reinterpret_cast<const uint16_t*>(p.sfb + (size_t)batch * 128 * T::kScaleRow +
                                            column * 64 + lane * 2));
  asm volatile("bar.sync 1, %0;" ::"n"(T::kThreads) : "memory");  // the barriers are initialised

  const uint32_t codes = ring + group * R * T::kRow + column * 512 + lane * 16;
  const uint32_t scales = ring + T::kTileA + group * R * T::kScaleRow + column * 64 + lane * 2;
  float* out = partial + (group * R + lane / (32 / R)) * T::kPitch + column;
  int slot = 0, phase = 0;
#pragma unroll 1
  for (int tile = 0; tile < tiles; tile++) {
    barrier_wait(full + 8 * slot, phase);
    uint4 x[R];
    uint16_t s[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
      x[r] = load_shared_16(codes + slot * T::kTile + r * T::kRow);
      s[r] = load_shared_2(scales + slot * T::kTile + r * T::kScaleRow);
    }
    __syncwarp();
    if (lane == 0)
      barrier_arrive(empty + 8 * slot);  // in registers now: the slot can be filled again
    float sum[R];
#pragma unroll
    for (int r = 0; r < R; r++) sum[r] = b.dot(x[r], s[r]);
    const float total = warp_sums<R>(sum, lane);
    if (lane % (32 / R) == 0) *out = total;
    out += T::kRows * T::kPitch;
    if (++slot == N) slot = 0, phase ^= 1;
  }

  asm volatile("bar.sync 2, %0;" ::"n"(T::kConsumers) : "memory");
  for (int i = threadIdx.x; i < tiles * T::kRows; i += T::kConsumers) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < W; w++) sum += partial[i * T::kPitch + w];
    const int row = (blockIdx.x + i / T::kRows * gridDim.x) * T::kRows + i % T::kRows;
    p.c[(size_t)batch * p.m + row] = __float2half_rn(sum);
  }
#endif
}

// ---- Everything else: a warp walks along R rows, the vector comes from L1

template <int R>
__global__ void __launch_bounds__(128) gemv_rows(Problem p) {
  const int lane = threadIdx.x % 32, batch = blockIdx.y,
            row = (blockIdx.x * 4 + threadIdx.x / 32) * R;
  const size_t width = p.k / 2, scale_width = p.k / 16;
  const uint8_t* a = p.a + ((size_t)batch * p.m + row) * width;
  const uint8_t* sfa = p.sfa + ((size_t)batch * p.m + row) * scale_width;
  const uint8_t* b = p.b + (size_t)batch * 128 * width;
  const uint8_t* sfb = p.sfb + (size_t)batch * 128 * scale_width;
  float sum[R] = {};
#pragma unroll 1
  for (int i = 0; i < p.k / 32;
       i += 32) {  // every lane takes every step: the shuffle in load() needs all of them
    const int piece = i + lane;
    const bool inside = piece < p.k / 32;
    Vector v;
    v.load(inside ? *reinterpret_cast<const uint4*>(b + piece * 16) : make_uint4(0, 0, 0, 0),
           inside ? *reinterpret_cast<const uint16_t*>(sfb + piece * 2) : (uint16_t)0);
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (inside) {
        sum[r] += v.dot(*reinterpret_cast<const uint4*>(a + r * width + piece * 16),
                        *reinterpret_cast<const uint16_t*>(sfa + r * scale_width + piece * 2));
      }
    }
  }
  const float total = warp_sums<R>(sum, lane);
  if (lane % (32 / R) == 0)
    p.c[(size_t)batch * p.m + row + lane / (32 / R)] = __float2half_rn(total);
}

// ---- Host

template <int W, int G, int R, int N, int BLOCKS>
cudaError_t launch_ring(const Problem& p, int processors, cudaStream_t stream) {
  using T = Ring<W, G, R, N>;
  const int all = p.m / T::kRows,
            share = processors * BLOCKS / p.l > 0 ? processors * BLOCKS / p.l : 1;
  int tiles = (all + share - 1) / share;
  const int most = (32 << 10) / (T::kRows * T::kPitch * 4);  // partial sums of a block: 32 KiB
  tiles = tiles < most ? tiles : most;
  const int blocks = (all + tiles - 1) / tiles, bytes = T::shared_bytes(tiles);
  auto kernel = gemv_ring<W, G, R, N, BLOCKS>;
  static const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::shared_bytes(most));
  if (error != cudaSuccess) return error;
  kernel<<<dim3(blocks, p.l), T::kThreads, bytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

extern "C" int gemv(void* a, void* b, void* sfa, void* sfb, void* c, int m, int k, int l,
                    int processors, int capability, void* stream) {
  const Problem p = {(uint8_t*)a, (uint8_t*)b, (uint8_t*)sfa, (uint8_t*)sfb, (__half*)c, m, k, l};
  const cudaStream_t s = (cudaStream_t)stream;
  if (capability >= 90) {
    if (k == 16384) return launch_ring<16, 1, 2, 3, 1>(p, processors, s);
    if (k == 7168) return launch_ring<7, 2, 2, 4, 1>(p, processors, s);
    if (k == 2048) return launch_ring<2, 4, 2, 3, 2>(p, processors, s);
  }
  gemv_rows<4><<<dim3(m / 16, l), 128, 0, s>>>(p);
  return cudaGetLastError();
}
"""


def _build():
    """The compiled `gemv`, this GPU's processor count and its compute capability."""
    if not torch.cuda.is_available():
        raise RuntimeError("cuda_inline needs a CUDA device (compute capability 8.0 or later)")
    major, minor = torch.cuda.get_device_capability()
    # The arch-specific target ("a") unlocks the FP4 converts; without it they are emulated.
    target = f"{major}{minor}a" if major >= 9 else f"{major}{minor}"
    path = load_inline(
        f"nvfp4_gemv_ring_{target}",  # processes with other GPUs may share a folder of extensions
        cpp_sources="",
        cuda_sources=SOURCE,
        # A plain C function called through ctypes: torch/extension.h would take a minute.
        no_implicit_headers=True,
        is_python_module=False,
        extra_cuda_cflags=["-O3", f"-gencode=arch=compute_{target},code=sm_{target}"],
    )
    gemv = ctypes.CDLL(path).gemv
    gemv.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int] * 5 + [ctypes.c_void_p]
    gemv.restype = ctypes.c_int
    return (
        gemv,
        torch.cuda.get_device_properties().multi_processor_count,
        10 * major + minor,
    )


_gemv, _processors, _capability = _build()


def custom_kernel(data: input_t) -> output_t:
    """c[m, 0, l] = sum over k of a * sfa * b * sfb, written in place on the current stream."""
    a, b, sfa, sfb, _, _, c = data
    m, half_k, batches = a.shape
    error = _gemv(
        a.data_ptr(),
        b.data_ptr(),
        sfa.data_ptr(),
        sfb.data_ptr(),
        c.data_ptr(),
        m,
        2 * half_k,
        batches,
        _processors,
        _capability,
        torch.cuda.current_stream().cuda_stream,
    )
    if error:
        raise RuntimeError(f"the launch failed with CUDA error {error}")
    return c
