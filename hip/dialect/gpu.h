// One kernel dialect, three back ends. Kernels include this, tile.h and abi.h, and nothing else.
//
// Owns: the types, and what is written once over a back end's primitives (reductions in a fixed order).
// Always true: a primitive means the same on every back end; where bits may differ (exp2_, rcp_, rsqrt_), only by
// the last places of a hardware approximation. Sums that promise an order use these reductions or explicit fma_.
// Not here: how a target does it (amd.h for AMDGPU, cuda.h for NVPTX, host.h for fibers), matrix tiles (tile.h).
#pragma once
#include "types.h"

#if defined(__AMDGCN__)
  #include "amd.h"
  #define DEV_MEMBER static DEV
#elif defined(__NVPTX__) || defined(__CUDA_ARCH__)
  #include "cuda.h"
  #define DEV_MEMBER static DEV
#else
  #include "host.h"
  #define DEV_MEMBER DEV  // already static there
#endif

#define WAVE 32
// Register arrays: without it a loop over them may leave one in scratch.
#define UNROLL _Pragma("unroll")
// Behind a lambda's parameters: what it captures by reference stays in registers.
#define INLINED __attribute__((always_inline))

// Byte i of a word as a number, plus an integer of few bits; the byte as two's complement.
#if !defined(__NVPTX__) && !defined(__CUDA_ARCH__)  // cuda.h has other instructions for it
DEV float byte_number(u32 word, u32 i, float offset = 0.f) {
  const float number = static_cast<float>(word >> (8 * i) & 255u);
  return offset == 0.f ? number : number + offset;
}
DEV float signed_byte(u32 word, u32 i) { return static_cast<float>(static_cast<i32>(word << (24 - 8 * i)) >> 24); }
#endif

// BF16 is storage only: its arithmetic is software on both targets (HARDWARE.md), conversion is two shifts.
struct bf16 { u16 bits; };
DEV float to_f32(bf16 x) { return as_f(static_cast<i32>(static_cast<u32>(x.bits) << 16)); }
// Round to nearest even; a NaN stays a NaN.
DEV bf16 to_bf16(float x) {
  const u32 u = static_cast<u32>(as_i(x));
  const u32 rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  return bf16{static_cast<u16>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16 | 64u) : rounded)};
}

// 16-byte accesses: the widest a lane can make.
struct alignas(16) f32x4 { float v[4]; };
struct alignas(16) f16x8 { f16 v[8]; };
struct alignas(16) bf16x8 { bf16 v[8]; };
struct alignas(16) u32x4 { u32 v[4]; };
// One of them from memory to registers or back, in one access: by words for the AMD back end, where an array that is only
// ever copied as a whole stays in scratch, or in LDS (clang 22); by vectors for NVIDIA's, which leaves words apart.
#if defined(__NVPTX__) || defined(__CUDA_ARCH__)
typedef u32 Words4 __attribute__((ext_vector_type(4)));
DEV void copy(u32x4& to, const u32x4& from) { reinterpret_cast<Words4&>(to) = reinterpret_cast<const Words4&>(from); }
#else
DEV void copy(u32x4& to, const u32x4& from) { UNROLL for (u32 i = 0; i < 4; i++) to.v[i] = from.v[i]; }
#endif

// Rows of up to WIDTH floats, `stride` apart, of which every lane of a workgroup of THREADS reads the same one at a time: scalar
// loads bring them on AMD, LDS keeps them elsewhere. The whole workgroup calls uniform_rows; `from` is aligned to 16
// and `width` a multiple of 4.
struct UniformRows { const float* first; u32 stride; };
#if defined(__NVPTX__) || defined(__CUDA_ARCH__)
template<u32 ROWS, u32 WIDTH> struct UniformLds { f32x4 v[ROWS][WIDTH / 4]; };
template<u32 THREADS, u32 ROWS, u32 WIDTH>
DEV UniformRows uniform_rows(UniformLds<ROWS, WIDTH>& lds, const float* from, u32 rows, u32 stride, u32 width) {
  enum : u32 { VECTORS = WIDTH / 4 };
  barrier();
  for (u32 i = tid(); i < rows * VECTORS; i += THREADS) {
    const u32 row = i / VECTORS, at = i % VECTORS;
    if (4 * at < width) lds.v[row][at] = reinterpret_cast<const f32x4*>(from + static_cast<u64>(row) * stride)[at];
  }
  barrier();
  return UniformRows{lds.v[0][0].v, WIDTH};
}
#else
template<u32 ROWS, u32 WIDTH> struct UniformLds {};
template<u32 THREADS, u32 ROWS, u32 WIDTH>
DEV UniformRows uniform_rows(UniformLds<ROWS, WIDTH>&, const float* from, u32, u32 stride, u32) {
  return UniformRows{from, stride};
}
#endif

// 16 bytes that are aligned to 4 only: one access on AMD, four elsewhere.
DEV u32x4 load_by_words(const u8* p) {
  u32x4 out;
#if defined(__AMDGCN__)
  struct alignas(4) Words { u32 v[4]; };
  const Words words = *reinterpret_cast<const Words*>(p);
  UNROLL for (int i = 0; i < 4; i++) out.v[i] = words.v[i];
#else
  UNROLL for (int i = 0; i < 4; i++) out.v[i] = reinterpret_cast<const u32*>(p)[i];
#endif
  return out;
}
// 16 bytes that are aligned to 2 only.
DEV u32x4 load_by_halves(const u8* p) {
  u32x4 out;
  UNROLL for (int i = 0; i < 4; i++) {
    const u16* half = reinterpret_cast<const u16*>(p) + 2 * i;
    out.v[i] = half[0] | static_cast<u32>(half[1]) << 16;
  }
  return out;
}

// Butterfly sum: every lane gets the same bits, in the order 16, 8, 4, 2, 1.
template<class T> DEV T wave_sum(T v) {
  v += shfl_xor<16>(v); v += shfl_xor<8>(v); v += shfl_xor<4>(v);
  v += shfl_xor<2>(v);  v += shfl_xor<1>(v);
  return v;
}
DEV float wave_max(float v) {
  v = fmax_(v, shfl_xor<16>(v)); v = fmax_(v, shfl_xor<8>(v)); v = fmax_(v, shfl_xor<4>(v));
  v = fmax_(v, shfl_xor<2>(v));  v = fmax_(v, shfl_xor<1>(v));
  return v;
}
DEV u32 max_u32(u32 a, u32 b) { return a > b ? a : b; }
DEV u32 shfl_u32(u32 v, u32 from) { return static_cast<u32>(shfl(static_cast<i32>(v), from)); }
template<int M> DEV u32 shfl_xor_u32(u32 v) { return static_cast<u32>(shfl_xor<M>(static_cast<i32>(v))); }
#if !defined(__NVPTX__) && !defined(__CUDA_ARCH__)  // cuda.h has an instruction
DEV u32 wave_max_u32(u32 v) {
  v = max_u32(v, shfl_xor_u32<16>(v)); v = max_u32(v, shfl_xor_u32<8>(v)); v = max_u32(v, shfl_xor_u32<4>(v));
  v = max_u32(v, shfl_xor_u32<2>(v));  v = max_u32(v, shfl_xor_u32<1>(v));
  return v;
}
#endif
// Sum over a workgroup of THREADS; `red` is LDS, one float a wave. Every thread gets the same bits. The caller
// puts a barrier before `red` is used again.
template<int THREADS> DEV float block_sum(float v, float* red) {
  v = wave_sum(v);
  if (THREADS == WAVE) return v;
  if (lane() == 0) red[wave()] = v;
  barrier();
  float s = 0.f;
  UNROLL for (int i = 0; i < THREADS / WAVE; i++) s += red[i];
  return s;
}
