// Formats with blocks of 32 elements: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL (src/weights/format/block32.rs).
//
// Owns: their decode. Always true: a group is a block; a matrix's codes are aligned to 16, its heads to 8.
// A value is d * word (+ m): both products are exact in F32, so that fma rounds once, as the CPU does.
// 4-bit codes: byte j holds element j in its low half and element j + 16 in its high half.
// Not here: what a format is (formats.h).
#pragma once
#include "formats.h"

// Keeps four codes in a word: v_cvt_f32_ubyte takes one out for nothing, where the compiler, who sees that half of each
// byte is zero, would rather extract every code on its own (1.25 instead of 2 instructions a code).
DEV u32 packed(u32 codes) {
#if defined(__AMDGCN__)
  asm("" : "+v"(codes));
#endif
  return codes;
}
// Bits 0 to 3 of the codes of a part, four to a word.
DEV u32 nibbles(const u32x4& q, u32 p, u32 w) {
  return packed((p < 2 ? q.v[2 * p + w] : q.v[2 * p - 4 + w] >> 4) & 0x0f0f0f0fu);
}
// Bit 4 of four codes, from the lowest bits of `bits`.
DEV u32 fifth_bits(u32 bits) { return (bits & 1u) << 4 | (bits & 2u) << 11 | (bits & 4u) << 18 | (bits & 8u) << 25; }

// The words of four codes of IQ4_NL and IQ4_XS, a byte each, two's complement.
DEV u32 codebook(u32 codes) {
  enum : u32 { W0 = 0xbfad9881u, W1 = 0xf6eaddcfu, W2 = 0x26190d01u, W3 = 0x71594535u };
#if defined(__AMDGCN__)
  const u32 at = codes & 0x07070707u, upper = (codes >> 3 & 0x01010101u) * 255u;
  return (__builtin_amdgcn_perm(W3, W2, at) & upper) | (__builtin_amdgcn_perm(W1, W0, at) & ~upper);
#else
  const u64 low = static_cast<u64>(W1) << 32 | W0, high = static_cast<u64>(W3) << 32 | W2;
  u32 out = 0;
  UNROLL for (u32 i = 0; i < 4; i++) {
    const u32 code = byte_of(codes, i);
    out |= static_cast<u32>((code < 8 ? low : high) >> (8 * (code & 7)) & 255) << (8 * i);
  }
  return out;
#endif
}

// A matrix of `Codes` a group, and beside it a `Head` for each block of 32.
template<class Format, class Codes, class Head, u32 SIZE = 32> struct Parted : Consecutive<Format, SIZE> {
  enum { SCALED = 2 };
  struct Raw { Codes q; Head head; };
  DEV_MEMBER u64 row_bytes(u32 inputs) { return inputs / SIZE * static_cast<u64>(sizeof(Codes)); }
  DEV_MEMBER const float* scale_row(const float* heads, u32 inputs, u32 output, u32) {
    return reinterpret_cast<const float*>(reinterpret_cast<const Head*>(heads) + static_cast<u64>(output) * (inputs / 32));
  }
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float* RESTRICT heads, u32 group) {
    return Raw{reinterpret_cast<const Codes*>(row)[group], reinterpret_cast<const Head*>(heads)[group * SIZE / 32]};
  }
};
struct FifthBits { u16 d, low, high; };  // 6 bytes
struct OffsetFifthBits { u32 factors, high; };

// d, 32 signed bytes; a group is half a block, so that lanes read next to each other.
struct Q8_0Format : Parted<Q8_0Format, u32x4, u16, 16> {
  DEV_MEMBER void part(const Raw& raw, u32, u32 p, float* out) {
    const float d = half_number(raw.head);
    UNROLL for (u32 i = 0; i < 8; i++) out[i] = d * signed_byte(raw.q.v[2 * p + i / 4], i % 4);
  }
};

// d, 16 bytes of codes
struct Q4_0Format : Parted<Q4_0Format, u32x4, u16> {
  DEV_MEMBER void part(const Raw& raw, u32, u32 p, float* out) {
    const float d = half_number(raw.head);
    UNROLL for (u32 i = 0; i < 8; i++)
      out[i] = d * byte_number(nibbles(raw.q, p, i / 4), i % 4, -8.f);
  }
};
struct Iq4NlFormat : Parted<Iq4NlFormat, u32x4, u16> {
  DEV_MEMBER void part(const Raw& raw, u32, u32 p, float* out) {
    const float d = half_number(raw.head);
    UNROLL for (u32 i = 0; i < 8; i++) out[i] = d * signed_byte(codebook(nibbles(raw.q, p, i / 4)), i % 4);
  }
};

// d, m, 16 bytes of codes
struct Q4_1Format : Parted<Q4_1Format, u32x4, u32> {
  DEV_MEMBER void part(const Raw& raw, u32, u32 p, float* out) {
    const float d = half_number(raw.head), m = half_number(raw.head >> 16);
    UNROLL for (u32 i = 0; i < 8; i++)
      out[i] = fma_(d, byte_number(nibbles(raw.q, p, i / 4), i % 4), m);
  }
};

// d, fifth bits, 16 bytes of codes
struct Q5_0Format : Parted<Q5_0Format, u32x4, FifthBits> {
  // In words: an array of six-byte heads stays in scratch (clang 22).
  struct Raw { u32x4 q; u32 d, high; };
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float* RESTRICT heads, u32 group) {
    const FifthBits& head = reinterpret_cast<const FifthBits*>(heads)[group];
    return Raw{reinterpret_cast<const u32x4*>(row)[group], head.d, head.low | static_cast<u32>(head.high) << 16};
  }
  DEV_MEMBER void part(const Raw& raw, u32, u32 p, float* out) {
    const float d = half_number(raw.d);
    UNROLL for (u32 i = 0; i < 8; i++) {
      const u32 codes = packed(nibbles(raw.q, p, i / 4) | fifth_bits(raw.high >> (8 * p + i / 4 * 4)));
      out[i] = d * byte_number(codes, i % 4, -16.f);
    }
  }
};

// d, m, fifth bits, 16 bytes of codes
struct Q5_1Format : Parted<Q5_1Format, u32x4, OffsetFifthBits> {
  DEV_MEMBER void part(const Raw& raw, u32, u32 p, float* out) {
    const float d = half_number(raw.head.factors), m = half_number(raw.head.factors >> 16);
    UNROLL for (u32 i = 0; i < 8; i++) {
      const u32 codes = packed(nibbles(raw.q, p, i / 4) | fifth_bits(raw.head.high >> (8 * p + i / 4 * 4)));
      out[i] = fma_(d, byte_number(codes, i % 4), m);
    }
  }
};
