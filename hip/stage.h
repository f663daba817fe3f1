// Operands of matrix tiles on their way through LDS: what gemm.h and moe_gemm.h share.
//
// Owns: the steps along the inputs and in which order they load, store and multiply; the pitch of a row in LDS, which
// thread stores which weights.
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

// Decodes part p of `group`, rounds it to F16 and stores it where group `place` of a row lies in LDS.
template<class Format> DEV void stage_part(f16* row, const typename Format::Raw& raw, u32 group, u32 place, u32 p) {
  float v[8];
  u32x4 rounded;
  Format::part(raw, group, p, v);
  UNROLL for (u32 j = 0; j < 4; j++) rounded.v[j] = pack_f16(v[2 * j], v[2 * j + 1]);
  copy(sixteen_bytes(row[Format::at(place, p)]), rounded);
}

// Steps whose operands lie in LDS at once: two where they are multiplied by instructions that the wave does not wait for
// (mma.sync), so that it decodes the next step's meanwhile; one where they hold up the wave (WMMA).
enum : u32 { STAGES = TILE_LAYOUT == 80 ? 2 : 1, QUARTERS = DEPTH / 16 };

// A workgroup's steps over `stride` inputs. load(k, first, end): quarters of the operands of the step at input k to
// registers; store(stage, first, end): from there to LDS; multiply(stage, quarter).
template<class Load, class Store, class Multiply>
DEV void steps(u32 stride, Load load, Store store, Multiply multiply) {
  load(0, 0, QUARTERS);
  if constexpr (STAGES == 1) {
    for (u32 k = 0; k < stride; k += DEPTH) {
      barrier();
      store(0, 0, QUARTERS);
      barrier();
      if (k + DEPTH < stride) load(k + DEPTH, 0, QUARTERS);
      UNROLL for (u32 q = 0; q < QUARTERS; q++) {
        multiply(0, q);
        // Operands of two of the quarters at a time.
        if (q == 1) keep_order();
      }
    }
  } else {
    store(0, 0, QUARTERS);
    const u32 last = stride - DEPTH;
    load(least(DEPTH, last), 0, QUARTERS);
    barrier();
    u32 stage = 0;
    for (u32 k = 0; k < last; k += DEPTH) {
      const u32 next = least(k + 2 * DEPTH, last);
      UNROLL for (u32 q = 0; q < QUARTERS; q++) {
        multiply(stage, q);
        store(stage ^ 1, q, q + 1);
        load(next, q, q + 1);
      }
      barrier();
      stage ^= 1;
    }
    UNROLL for (u32 q = 0; q < QUARTERS; q++) multiply(stage, q);
  }
}
