// Operands of matrix tiles on their way through LDS: what gemm.h and moe_gemm.h share.
//
// Owns: the step along the inputs, the pitch of a row in LDS, which thread stores which weights.
// Always true: eight neighbouring lanes' 16-byte accesses meet all banks once.
// Not here: which rows and columns a workgroup multiplies.
#pragma once
#include "dialect/tile.h"
#include "formats.h"

enum : u32 { DEPTH = 64, PITCH = DEPTH + 8 };  // inputs of a step; 144 bytes from row to row

DEV u32 least(u32 a, u32 b) { return a < b ? a : b; }
DEV u32x4& sixteen_bytes(f16& first) { return reinterpret_cast<u32x4&>(first); }

// The row of weights that thread t stores where a step holds `window` groups of each.
DEV u32 store_row(u32 t, u32 window, bool interleaved) {
  // Two lanes a row and groups of two runs: rows 0, 1, 4, 5 and then 2, 3, 6, 7 store without meeting in a bank.
  const u32 row = t / window;
  return interleaved ? (row & ~6u) | (row & 2u) << 1 | (row & 4u) >> 1 : row;
}

// Decodes `group`, rounds it to F16 and stores it as group `place` of a row in LDS.
template<class Format> DEV void stage(f16* row, const typename Format::Raw& raw, u32 group, u32 place) {
  UNROLL for (u32 p = 0; p < Format::GROUP / 8; p++) {
    float v[8];
    u32x4 rounded;
    Format::part(raw, group, p, v);
    UNROLL for (u32 j = 0; j < 4; j++) rounded.v[j] = pack_f16(v[2 * j], v[2 * j + 1]);
    copy(sixteen_bytes(row[Format::at(place, p)]), rounded);
  }
}
