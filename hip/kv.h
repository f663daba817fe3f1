// The stored states of keys and values: how a row becomes bytes and numbers again.
//
// Owns: the three modes, bit for bit as src/state/kv/codec.rs defines them. Always true: a row of a plane is
// [kv_heads, dim]: F32, or the codes of all heads and then their F16 scales; a lane of a wave that stores holds elements
// lane, lane + 32, … of a head.
// E4M3 is converted by bit arithmetic on every target: gfx11 has no instruction for it, and gfx12's would save a handful
// of VALU slots in kernels that wait for memory; one code path keeps the state's bits equal everywhere.
// Not here: what is stored (qsa_prepare.hip), who reads it (qsa_attend.hip, qsa_gather.hip).
#pragma once
#include "head.h"

DEV u32 magnitude(float x) { return static_cast<u32>(as_i(x)) & 0x7fffffffu; }

enum : u32 { F32_INFINITY = 0x7f800000u, F16_MAX = 0x7bffu, F16_NAN = 0x7e00u };

// e4m3.rs encode_e4m3
DEV u32 encode_e4m3(float x) {
  const u32 bits = static_cast<u32>(as_i(x)), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
  u32 code;
  if (size > F32_INFINITY) code = 0x7fu;
  else if (size >= 0x43e00000u) code = 0x7eu;                                                    // 448 and beyond
  else if (size < 0x3c800000u) code = static_cast<u32>(as_i(as_f(static_cast<i32>(size)) + 16384.f)) - 0x46800000u;
  else code = ((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - (120u << 3);
  return sign | code;
}
// e4m3.rs e4m3_number: not for NaN, which stands only beside a scale of NaN.
DEV float e4m3_number(u32 byte) {
  return as_f(static_cast<i32>((static_cast<u32>(static_cast<i32>(byte << 24) >> 4) & 0x87f00000u))) *
         as_f((120 + 127) << 23);
}
DEV u32 f16_bits(float x) { return __builtin_bit_cast(u16, to_f16(x)); }
DEV float f16_number(u32 bits) { return to_f32(__builtin_bit_cast(f16, static_cast<u16>(bits))); }

struct KvF32 {
  DEV_MEMBER u64 row_bytes(u32 kv_heads, u32 dim) { return 4ull * kv_heads * dim; }
  DEV_MEMBER void store(u8* row, u32, u32 head, u32 dim, const float (&x)[HEAD_REGISTERS]) {
    float* out = reinterpret_cast<float*>(row) + static_cast<u64>(head) * dim;
    UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++) {
      const u32 i = lane() + WAVE * j;
      if (i < dim) out[i] = x[j];
    }
  }
};

// Where the scales of a row of codes lie.
DEV const u16* scales_of(const u8* row, u32 kv_heads, u32 dim) {
  return reinterpret_cast<const u16*>(row + static_cast<u64>(kv_heads) * dim);
}

// A scale a head.
struct KvFp8 {
  enum : u32 { SPAN = 0 };  // elements that share a scale; 0: a head's
  DEV_MEMBER u64 row_bytes(u32 kv_heads, u32 dim) { return static_cast<u64>(kv_heads) * (dim + 2); }
  DEV_MEMBER u32 scale_at(u32 head, u32, u32) { return head; }
  DEV_MEMBER float number(u32 code) { return e4m3_number(code); }
  DEV_MEMBER void store(u8* row, u32 kv_heads, u32 head, u32 dim, const float (&x)[HEAD_REGISTERS]) {
    u32 most = 0;
    UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++)
      if (lane() + WAVE * j < dim) most = max_u32(most, magnitude(x[j]));
    most = wave_max_u32(most);
    u32 scale = 0;
    if (most >= F32_INFINITY) scale = F16_NAN;
    else if (most != 0) {
      // The smallest f16 that is not below most / 448.
      const float wanted = as_f(static_cast<i32>(most)) / 448.f;
      scale = f16_bits(wanted);
      if (scale > F16_MAX) scale = F16_MAX;
      if (f16_number(scale) < wanted && scale < F16_MAX) scale++;
    }
    const float divisor = f16_number(scale);
    u8* codes = row + static_cast<u64>(head) * dim;
    UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++) {
      const u32 i = lane() + WAVE * j;
      if (i < dim) codes[i] = static_cast<u8>(scale == 0 ? 0u : encode_e4m3(x[j] / divisor));
    }
    if (lane() == 0) const_cast<u16*>(scales_of(row, kv_heads, dim))[head] = static_cast<u16>(scale);
  }
};

// Q8_0 along the row: signed bytes, a scale for 32 of them. dim is a multiple of 32.
struct KvQ8 {
  enum : u32 { SPAN = 32 };
  DEV_MEMBER u64 row_bytes(u32 kv_heads, u32 dim) { return static_cast<u64>(kv_heads) * (dim / SPAN) * (SPAN + 2); }
  DEV_MEMBER u32 scale_at(u32 head, u32 dim, u32 i) { return (head * dim + i) / SPAN; }
  DEV_MEMBER float number(u32 code) { return static_cast<float>(static_cast<i8>(code)); }
  DEV_MEMBER void store(u8* row, u32 kv_heads, u32 head, u32 dim, const float (&x)[HEAD_REGISTERS]) {
    u8* codes = row + static_cast<u64>(head) * dim;
    UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++) {
      if (WAVE * j >= dim) break;
      const u32 most = wave_max_u32(magnitude(x[j]));
      u32 scale = F16_NAN;
      if (most < F32_INFINITY) {
        scale = f16_bits(as_f(static_cast<i32>(most)) / 127.f);
        if (scale > F16_MAX) scale = F16_MAX;
      }
      const float q = fmin_(fmax_(x[j] / f16_number(scale), -127.f), 127.f);
      // Halves away from zero; a scale of zero is a block of zeros, and beside a NaN a code means nothing.
      i32 code = 0;
      if (scale != 0 && scale != F16_NAN) {
        code = static_cast<i32>(q);
        const float rest = q - static_cast<float>(code);
        code += (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0);
      }
      codes[WAVE * j + lane()] = static_cast<u8>(code);
      if (lane() == 0)
        const_cast<u16*>(scales_of(row, kv_heads, dim))[scale_at(head, dim, WAVE * j)] = static_cast<u16>(scale);
    }
  }
};

// Index keys: F32 beside an f32 state, BF16 beside the others.
struct IndexF32 {
  typedef float Element;
  DEV_MEMBER float number(float x) { return x; }
  DEV_MEMBER float stored(float x) { return x; }
};
struct IndexBf16 {
  typedef bf16 Element;
  DEV_MEMBER float number(bf16 x) { return to_f32(x); }
  DEV_MEMBER bf16 stored(float x) { return to_bf16(x); }
};
