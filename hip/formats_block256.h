// Formats with blocks of 256 elements: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS (src/weights/format/offset256.rs and
// signed256.rs).
//
// Owns: their decode. Always true: a group is 32 elements; in all but IQ4_XS two runs of 16 whose starts are 32 apart,
// because that is what 16 consecutive bytes hold. Several lanes read a block's head, and in Q2_K, Q3_K, Q5_K and Q6_K
// bits of theirs from the same 16 bytes, all in one instruction.
// Alignment of blocks: Q4_K and Q5_K 16 (rows aligned to 16), IQ4_XS 8, Q2_K 4, Q3_K and Q6_K 2.
// d * scale * code is exact in F32, so that fma rounds once, as the CPU does; and a product that is zero is +0 there.
// Not here: what a format is (formats.h).
#pragma once
#include "formats_block32.h"

template<class Format, int BYTES> struct Interleaved : Decoder<Format> {
  enum { GROUP = 32, INTERLEAVED = 1, SCALED = 0 };
  DEV_MEMBER u64 row_bytes(u32 inputs) { return static_cast<u64>(inputs / 256) * BYTES; }
  DEV_MEMBER u32 at(u32 group, u32 p) { return 64 * (group / 2) + 16 * (group % 2) + 32 * (p / 2) + 8 * (p % 2); }
};
// Four codes of part p: the part's run is bits `shift` and on of each byte, its place in 16 bytes is p % 2.
DEV u32 codes_of(const u32x4& q, u32 p, u32 w, u32 shift, u32 mask) { return packed(q.v[p % 2 * 2 + w] >> shift & mask); }

// Scales and minima of the two runs of a group, in bytes 0 and 1 each.
struct Pairs { u32 scales, minima; };
DEV Pairs unpack_pairs(const u32x4& head, u32 quarter) {
  const u32 shift = 16 * (quarter & 1);
  const u32 a = head.v[1] >> shift, b = head.v[2] >> shift, c = head.v[3] >> shift;
  // All ones in the upper half of a block. As a condition it would become a branch around each use.
  const u32 upper = packed(0u - (quarter >> 1));
  return Pairs{packed((((c & 0x0f0fu) | (a >> 2 & 0x3030u)) & upper) | (a & 0x3f3fu & ~upper)),
               packed((((c >> 4 & 0x0f0fu) | (b >> 2 & 0x3030u)) & upper) | (b & 0x3f3fu & ~upper))};
}

// d, dmin, 12 bytes of scales, 128 of codes
struct Q4KFormat : Interleaved<Q4KFormat, 144> {
  struct Raw { u32x4 head, q; };
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float*, u32 group) {
    const u32x4* block = reinterpret_cast<const u32x4*>(row) + group / 8 * 9;
    return Raw{block[0], block[1 + group % 8]};
  }
  DEV_MEMBER void part(const Raw& raw, u32 group, u32 p, float* out) {
    const Pairs pairs = unpack_pairs(raw.head, group % 8 / 2);
    const float d = half_number(raw.head.v[0]) * static_cast<float>(byte_of(pairs.scales, p / 2));
    const float m = half_number(raw.head.v[0] >> 16 ^ 0x8000u) * static_cast<float>(byte_of(pairs.minima, p / 2));
    UNROLL for (u32 i = 0; i < 8; i++)
      out[i] = fma_(d, byte_number(codes_of(raw.q, p, i / 4, p / 2 * 4, 0x0f0f0f0fu), i % 4), m);
  }
};

// d, dmin, 12 bytes of scales, 32 of fifth bits, 128 of codes
struct Q5KFormat : Interleaved<Q5KFormat, 176> {
  struct Raw { u32x4 head, high, q; };
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float*, u32 group) {
    const u32x4* block = reinterpret_cast<const u32x4*>(row) + group / 8 * 11;
    return Raw{block[0], block[1 + group % 2], block[3 + group % 8]};
  }
  DEV_MEMBER void part(const Raw& raw, u32 group, u32 p, float* out) {
    const u32 quarter = group % 8 / 2;
    const Pairs pairs = unpack_pairs(raw.head, quarter);
    const float d = half_number(raw.head.v[0]) * static_cast<float>(byte_of(pairs.scales, p / 2));
    const float m = half_number(raw.head.v[0] >> 16 ^ 0x8000u) * static_cast<float>(byte_of(pairs.minima, p / 2));
    UNROLL for (u32 i = 0; i < 8; i++) {
      const u32 fifth = codes_of(raw.high, p, i / 4, 2 * quarter + p / 2, 0x01010101u) << 4;
      const u32 codes = packed(codes_of(raw.q, p, i / 4, p / 2 * 4, 0x0f0f0f0fu) | fifth);
      out[i] = fma_(d, byte_number(codes, i % 4), m);
    }
  }
};

// 128 bytes of bits 0 to 3, 64 of bits 4 and 5, 16 scales, d. Runs 2j and 2j + 1 of a half: j is the half of the byte.
struct Q6KFormat : Interleaved<Q6KFormat, 210> {
  struct Raw { u32x4 low[2], high; u32 scales[2], d; };
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float*, u32 group) {
    const u32 g = group % 8, half = g / 4, place = g % 2;
    const u8* block = row + group / 8 * 210;
    const u8* low = block + 64 * half + 16 * place;
    const u8* scales = block + 192 + 8 * half + 4 * (g / 2 % 2);
    return Raw{{load_by_halves(low), load_by_halves(low + 32)}, load_by_halves(block + 128 + 32 * half + 16 * place),
               {load_half(scales), load_half(scales + 2)}, load_half(block + 208)};
  }
  DEV_MEMBER void part(const Raw& raw, u32 group, u32 p, float* out) {
    const u32 upper = group / 2 % 2, run = p / 2;
    const float scale = signed_byte(raw.scales[run] >> (8 * (group % 2)), 0), d = half_number(raw.d);
    UNROLL for (u32 i = 0; i < 8; i++) {
      const u32 high = codes_of(raw.high, p, i / 4, 4 * upper + 2 * run, 0x03030303u) << 4;
      const u32 codes = packed(codes_of(raw.low[run], p, i / 4, 4 * upper, 0x0f0f0f0fu) | high);
      out[i] = d * fma_(scale, byte_number(codes, i % 4), -32.f * scale);
    }
  }
};

// 16 bytes of scales and minima, 64 of codes, d, dmin
struct Q2KFormat : Interleaved<Q2KFormat, 84> {
  struct Raw { u32x4 q; u32 scales, factors; };
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float*, u32 group) {
    const u32 g = group % 8;
    const u8* block = row + group / 8 * 84;
    // Two runs are sub-blocks s and s + 2: both lie in one word.
    return Raw{load_by_words(block + 16 + 32 * (g / 4) + 16 * (g % 2)), reinterpret_cast<const u32*>(block)[g / 2],
               *reinterpret_cast<const u32*>(block + 80)};
  }
  DEV_MEMBER void part(const Raw& raw, u32 group, u32 p, float* out) {
    const u32 run = p / 2, both = raw.scales >> (8 * (group % 2) + 16 * run);
    const float d = half_number(raw.factors) * static_cast<float>(both & 15u);
    const float m = half_number(raw.factors >> 16 ^ 0x8000u) * static_cast<float>(both >> 4 & 15u);
    const u32 shift = 4 * (group / 2 % 2) + 2 * run;
    UNROLL for (u32 i = 0; i < 8; i++)
      out[i] = fma_(d, byte_number(codes_of(raw.q, p, i / 4, shift, 0x03030303u), i % 4), m);
  }
};

// 32 bytes of bit 2, 64 of bits 0 and 1, 12 of scales, d
struct Q3KFormat : Interleaved<Q3KFormat, 110> {
  struct Raw { u32x4 high, low; u32 scales[6], d; };
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float*, u32 group) {
    const u32 g = group % 8;
    const u8* block = row + group / 8 * 110;
    Raw raw{load_by_halves(block + 16 * (g % 2)), load_by_halves(block + 32 + 32 * (g / 4) + 16 * (g % 2)), {},
            load_half(block + 108)};
    UNROLL for (u32 i = 0; i < 6; i++) raw.scales[i] = load_half(block + 96 + 2 * i);
    return raw;
  }
  // scale[s] of sub-block s = 8 * half + 4 * pair + 2 * run + place
  DEV_MEMBER float scale(const Raw& raw, u32 g, u32 run) {
    const u32 half = g / 4, pair = g / 2 % 2, place = g % 2;
    const u32 low = (pair == 0 ? raw.scales[run] : raw.scales[2 + run]) >> (8 * place + 4 * half) & 15u;
    const u32 high = raw.scales[4 + run] >> (8 * place + 4 * half + 2 * pair) & 3u;
    return static_cast<float>(static_cast<i32>(low | high << 4) - 32);
  }
  DEV_MEMBER void part(const Raw& raw, u32 group, u32 p, float* out) {
    const u32 g = group % 8, run = p / 2, j = 2 * (g / 2 % 2) + run;
    const float s = scale(raw, g, run), d = half_number(raw.d);
    UNROLL for (u32 i = 0; i < 8; i++) {
      const u32 high = codes_of(raw.high, p, i / 4, 4 * (g / 4) + j, 0x01010101u) << 2;
      const u32 codes = packed(codes_of(raw.low, p, i / 4, 2 * j, 0x03030303u) | high);
      out[i] = d * fma_(s, byte_number(codes, i % 4), -4.f * s);
    }
  }
};

// d, upper bits of scales, their lower bits, 8 sub-blocks of 16 bytes
struct Iq4XsFormat : Consecutive<Iq4XsFormat, 32> {
  struct Raw { u32x4 q; u32 head[2]; };
  DEV_MEMBER u64 row_bytes(u32 inputs) { return inputs / 256 * 136ull; }
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float*, u32 group) {
    const u8* block = row + group / 8 * 136;
    const u32* head = reinterpret_cast<const u32*>(block);
    return Raw{load_by_words(block + 8 + 16 * (group % 8)), {head[0], head[1]}};
  }
  DEV_MEMBER void part(const Raw& raw, u32 group, u32 p, float* out) {
    const u32 s = group % 8;
    const u32 level = (raw.head[1] >> (4 * s) & 15u) | (raw.head[0] >> (16 + 2 * s) & 3u) << 4;
    const float d = half_number(raw.head[0]), scale = static_cast<float>(static_cast<i32>(level) - 32);
    UNROLL for (u32 i = 0; i < 8; i++)
      out[i] = d * fma_(scale, signed_byte(codebook(nibbles(raw.q, p, i / 4)), i % 4), 0.f);
  }
};
