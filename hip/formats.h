// Storage formats of weights: one decode each. The layouts are those of src/weights/format/, but that blocks of 32 are
// parted on their way to the device: codes in one plane, so that a lane loads them in aligned 16 bytes, and what a block
// begins with (its head: scale, offset, fifth bits) in another (backend/hip/matrix.rs planes).
//
// Owns: where an element of a row lies and what its bits mean, for F32, F16, BF16 and E4M3 (formats_block32.h and
// formats_block256.h: the others).
// Always true: decoded values have the bits of the CPU's decode. A group is what one lane loads at a time; it is
// decoded in parts of eight consecutive elements, part p of a group from element at(group, p) of the row on. A row is a
// whole number of groups.
// Not here: products (gemv.h, gemm.h), activations.
#pragma once
#include "dialect/gpu.h"

// What every format has:
//   GROUP, INTERLEAVED (whether a group is not consecutive)
//   SCALED: what lies beside the bytes: 0 nothing, 1 a float for 128 x 128 elements, 2 the heads of blocks
//   row_bytes(inputs)
//   scale_row(scales, inputs, output, offset)   where a row's begin of what lies beside; `offset` is GemvPart's
//   Raw load(row, scales, group)          a group's bytes in registers, not yet looked at
//   part(raw, group, p, out)              eight elements
//   at(group, p)                          where they belong
//   decode(row, group, out)               a whole group, part after part, of a format without scales beside it
template<class Format> struct Decoder {
  DEV_MEMBER void decode(const u8* RESTRICT row, u32 group, float* out) {
    static_assert(Format::SCALED == 0, "a group alone does not know its scale");
    const auto raw = Format::load(row, nullptr, group);
    UNROLL for (u32 p = 0; p < Format::GROUP / 8; p++) Format::part(raw, group, p, out + 8 * p);
  }
};
template<class Format, int SIZE> struct Consecutive : Decoder<Format> {
  enum { GROUP = SIZE, INTERLEAVED = 0, SCALED = 0 };
  DEV_MEMBER u32 at(u32 group, u32 p) { return group * SIZE + 8 * p; }
  DEV_MEMBER const float* scale_row(const float*, u32, u32, u32) { return nullptr; }
};
enum { SCALE_BLOCK = 128 };

DEV u32 byte_of(u32 word, u32 i) { return word >> (8 * i) & 255u; }
DEV float half_number(u32 bits) { return to_f32(__builtin_bit_cast(f16, static_cast<u16>(bits))); }
DEV u32 load_half(const u8* p) { return *reinterpret_cast<const u16*>(p); }

// Rows aligned to 16.
struct F32Format : Consecutive<F32Format, 8> {
  struct Raw { f32x4 v[2]; };
  DEV_MEMBER u64 row_bytes(u32 inputs) { return 4ull * inputs; }
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float*, u32 group) {
    const f32x4* source = reinterpret_cast<const f32x4*>(row) + 2 * group;
    return Raw{{source[0], source[1]}};
  }
  DEV_MEMBER void part(const Raw& raw, u32, u32, float* out) {
    UNROLL for (u32 i = 0; i < 8; i++) out[i] = raw.v[i / 4].v[i % 4];
  }
};

// Rows aligned to 16.
struct F16Format : Consecutive<F16Format, 8> {
  typedef f16x8 Raw;
  DEV_MEMBER u64 row_bytes(u32 inputs) { return 2ull * inputs; }
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float*, u32 group) {
    return reinterpret_cast<const f16x8*>(row)[group];
  }
  DEV_MEMBER void part(const Raw& raw, u32, u32, float* out) {
    UNROLL for (u32 i = 0; i < 8; i++) out[i] = to_f32(raw.v[i]);
  }
};

// Rows aligned to 16.
struct Bf16Format : Consecutive<Bf16Format, 8> {
  typedef u32x4 Raw;
  DEV_MEMBER u64 row_bytes(u32 inputs) { return 2ull * inputs; }
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float*, u32 group) {
    return reinterpret_cast<const u32x4*>(row)[group];
  }
  DEV_MEMBER void part(const Raw& raw, u32, u32, float* out) {
    UNROLL for (u32 i = 0; i < 8; i++)
      out[i] = as_f(static_cast<i32>(i % 2 == 0 ? raw.v[i / 2] << 16 : raw.v[i / 2] & 0xffff0000u));
  }
};

// E4M3 with a scale for 128 x 128 elements; rows aligned to 16. A byte becomes an F16 of a 256th of its value, two at a
// time: sign, exponent and mantissa in their F16 places, subnormals included (gfx11 has no conversion of its own, and
// one path keeps the bits equal). NaN, 0x7f and 0xff, would decode to 480: the loader refuses it.
struct Fp8Format : Consecutive<Fp8Format, 16> {
  enum { SCALED = 1 };
  struct Raw { u32x4 v; float scale; };
  DEV_MEMBER u64 row_bytes(u32 inputs) { return inputs; }
  // The first block of scales may begin before row 0.
  DEV_MEMBER const float* scale_row(const float* scales, u32 inputs, u32 output, u32 offset) {
    return scales + static_cast<u64>((output + offset) / SCALE_BLOCK) * ((inputs + SCALE_BLOCK - 1) / SCALE_BLOCK);
  }
  DEV_MEMBER Raw load(const u8* RESTRICT row, const float* RESTRICT scales, u32 group) {
    return Raw{reinterpret_cast<const u32x4*>(row)[group], scales[16 * group / SCALE_BLOCK]};
  }
  DEV_MEMBER void part(const Raw& raw, u32, u32 p, float* out) {
    UNROLL for (u32 w = 0; w < 2; w++) {
      const u32 word = raw.v.v[2 * p + w];
      // Bytes 1 and 3 in the upper halves of two F16, then bytes 0 and 2.
      const u32 odd = word & 0xff00ff00u, even = (word & 0x00ff00ffu) << 8;
      const u32 high = (odd & 0x80008000u) | (odd & 0x7f007f00u) >> 1;
      const u32 low = (even & 0x80008000u) | (even & 0x7f007f00u) >> 1;
      // The first product is exact: the second alone rounds, as the CPU's does.
      const float numbers[4] = {half_number(low), half_number(high), half_number(low >> 16), half_number(high >> 16)};
      UNROLL for (u32 i = 0; i < 4; i++) out[4 * w + i] = numbers[i] * 256.f * raw.scale;
    }
  }
};

#include "formats_block32.h"
#include "formats_block256.h"

// A row of a matrix, and what lies beside it. A row behind the last is the last again.
struct WeightRow { const u8* bytes; const float* scales; };
template<class Format>
DEV WeightRow weight_row(const void* matrix, const float* scales, u32 inputs, u32 output, u32 outputs, u32 offset) {
  const u32 row = output < outputs ? output : outputs - 1;
  WeightRow out = {global(static_cast<const u8*>(matrix)) + Format::row_bytes(inputs) * row, nullptr};
  if constexpr (Format::SCALED != 0) out.scales = Format::scale_row(global(scales), inputs, row, offset);
  return out;
}
