// WMMA on the host: D(16x16) = A(16x16) B(16x16) + C, from the fragments of a wave's 32 lanes.
//
// Owns: which lane holds which element in each layout (HARDWARE.md), and each element type's value. A new type is an
// entry in `ELEMENTS`, a case in `value` and one in `multiply_in`.
// Always true: sums are taken in the order k = 0 … 15, one rounding a product and one a sum (hardware keeps more
// bits inside); i8 is exact. Under gfx11 lanes 16 to 31 must repeat lanes 0 to 15. Not here: tiles (tile.h).
#include <string.h>
#include "runtime.h"

typedef _Float16 f16;
enum Type : u32 { F16, BF16, I8, FP8_E4M3, FP8_E5M2, TYPES };  // CpuMatrix of host.h
struct Element { const char* name; u32 bytes; };
static constexpr Element ELEMENTS[TYPES] = {{"f16", 2}, {"bf16", 2}, {"i8", 1}, {"fp8", 1}, {"bf8", 1}};

static float from_bits(u32 bits) { return __builtin_bit_cast(float, bits); }

// E4M3 has no infinity, and only all ones is NaN; E5M2 is the upper byte of an f16.
static float e4m3(u8 bits) {
  const u32 sign = static_cast<u32>(bits & 0x80) << 24, magnitude = bits & 0x7f;
  if (magnitude == 0x7f) return __builtin_nanf("");
  if (magnitude < 8) return (sign ? -1.f : 1.f) * static_cast<float>(magnitude) * 0x1p-9f;
  return from_bits(sign | ((magnitude << 20) + (120u << 23)));
}

// Types and layouts are template arguments: looked up for each element, a product in the gfx11 layout took 4.2 µs
// instead of 1.5 (2-core VM, 2026-11-30).
template <Type TYPE> static inline float value(const void* fragment, u32 i) {
  if constexpr (ELEMENTS[TYPE].bytes == 2) {
    u16 word;
    memcpy(&word, static_cast<const u8*>(fragment) + 2 * i, 2);
    return TYPE == F16 ? static_cast<float>(__builtin_bit_cast(f16, word)) : from_bits(static_cast<u32>(word) << 16);
  } else {
    const u8 byte = static_cast<const u8*>(fragment)[i];
    if (TYPE == FP8_E4M3) return e4m3(byte);
    if (TYPE == FP8_E5M2) return static_cast<float>(__builtin_bit_cast(f16, static_cast<u16>(byte << 8)));
    return static_cast<float>(static_cast<i8>(byte));
  }
}

// Row of A (column of B) and k of a fragment's element i; row and column of D's element i.
struct Place { u32 row, column; };
template <u32 LAYOUT> static inline Place operand_place(u32 element_bytes, u32 lane, u32 i) {
  if (LAYOUT == 11) return {lane % 16, i};
  if (LAYOUT == 12) return {lane % 16, 8 * (lane / 16) + i};
  // mma.sync m16n8k16, twice for B's 16 columns: two-byte elements go in pairs 8 apart, bytes in fours.
  const u32 k = element_bytes == 2 ? 2 * (lane % 4) + 8 * (i / 2 % 2) + i % 2 : 4 * (lane % 4) + i % 4;
  return {lane / 4 + 8 * (i / 4), k};
}
template <u32 LAYOUT> static inline Place result_place(u32 lane, u32 i) {
  if (LAYOUT == 11) return {2 * i + lane / 16, lane % 16};
  if (LAYOUT == 12) return {8 * (lane / 16) + i, lane % 16};
  return {lane / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (lane % 4) + i % 2};
}

// Sum is float, or i32 for i8 (built with -fwrapv: it wraps as the hardware does).
template <Type TYPE, u32 LAYOUT, class Sum> static void multiply(Wave& wave) {
  constexpr u32 COUNT = LAYOUT == 11 ? 16 : 8, HOLDERS = LAYOUT == 11 ? 16 : LANES;
  Sum a[16][16], b[16][16], d[16][16];  // [row][k], [k][column], [row][column]
  for (u32 lane = 0; lane < HOLDERS; lane++) {
    const MatrixOperands& own = wave.operands[lane];
    for (u32 i = 0; i < COUNT; i++) {
      const Place at = operand_place<LAYOUT>(ELEMENTS[TYPE].bytes, lane, i);
      a[at.row][at.column] = static_cast<Sum>(value<TYPE>(own.a, i));
      b[at.column][at.row] = static_cast<Sum>(value<TYPE>(own.b, i));
    }
  }
  for (u32 lane = 0; lane < LANES; lane++)
    for (u32 i = 0; i < 8; i++) {
      const Place in_d = result_place<LAYOUT>(lane, i);
      memcpy(&d[in_d.row][in_d.column], static_cast<const Sum*>(wave.operands[lane].c) + i, sizeof(Sum));
    }
  for (u32 row = 0; row < 16; row++)
    for (u32 k = 0; k < 16; k++)
      for (u32 column = 0; column < 16; column++) d[row][column] += a[row][k] * b[k][column];
  for (u32 lane = 0; lane < LANES; lane++)
    for (u32 i = 0; i < 8; i++) {
      const Place in_d = result_place<LAYOUT>(lane, i);
      memcpy(static_cast<Sum*>(wave.operands[lane].c) + i, &d[in_d.row][in_d.column], sizeof(Sum));
    }
}

template <u32 LAYOUT> static void multiply_in(Wave& wave, Type type) {
  switch (type) {
    case F16: return multiply<F16, LAYOUT, float>(wave);
    case BF16: return multiply<BF16, LAYOUT, float>(wave);
    case FP8_E4M3: return multiply<FP8_E4M3, LAYOUT, float>(wave);
    case FP8_E5M2: return multiply<FP8_E5M2, LAYOUT, float>(wave);
    default: return multiply<I8, LAYOUT, i32>(wave);
  }
}

// Not memcmp: TSan would take that for the kernel's.
static bool differ(const void* one, const void* two, u32 bytes) {
  u32 difference = 0;
  for (u32 i = 0; i < bytes; i++)
    difference |= static_cast<u32>(static_cast<const u8*>(one)[i] ^ static_cast<const u8*>(two)[i]);
  return difference != 0;
}

static void check_repeated(const Wave& wave, Type type, const void* site) {
  const u32 bytes = 16 * ELEMENTS[type].bytes;
  for (u32 lane = 0; lane < 16; lane++) {
    const MatrixOperands &low = wave.operands[lane], &high = wave.operands[lane + 16];
    const char* const which = differ(low.a, high.a, bytes) ? "A" : differ(low.b, high.b, bytes) ? "B" : nullptr;
    if (which)
      fail("wrong lane row: gfx11 WMMA wants lanes 16 to 31 to repeat lanes 0 to 15, but lanes %u and %u hold "
           "different %s at %s", lane, lane + 16, which, position(site).text);
  }
}

extern "C" RUNTIME_LOCAL void cpu_wmma(u32 type_number, u32 layout, void* c, const void* a, const void* b) {
  Group& group = *current_group;
  const void* const site = __builtin_return_address(0);
  const Type type = static_cast<Type>(type_number);
  const u64 operand_bytes = ELEMENTS[type].bytes * (layout == 11 ? 16 : 8);
  check_read(reinterpret_cast<u64>(a), operand_bytes, site);
  check_read(reinterpret_cast<u64>(b), operand_bytes, site);
  check_read(reinterpret_cast<u64>(c), 32, site);
  Wave& wave = group.wave[current_fiber->thread / LANES];
  wave.operands[current_fiber->thread % LANES] = {c, a, b};
  if (!arrive(group, site)) return;
  if (wave.members != ~0u) fail("WMMA in a wave that misses lanes at %s", position(site).text);
  if (layout == 11 && (type == FP8_E4M3 || type == FP8_E5M2)) fail("gfx11 has no fp8 WMMA, at %s", position(site).text);
  if (layout == 11) check_repeated(wave, type, site);
  if (layout == 11) multiply_in<11>(wave, type);
  else if (layout == 12) multiply_in<12>(wave, type);
  else multiply_in<80>(wave, type);
  leave(group);
}
