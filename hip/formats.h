// Storage formats of weights: one decode function each.
//
// Owns: where an element of a row lies and what its bits mean. The layouts are those of src/weights/format/.
// Always true: a group is what one lane decodes at a time from 16-byte loads; a row is a whole number of groups and
// starts on a 16-byte boundary.
// Not here: products (linear.hip), activations.
#pragma once
#include "dialect/gpu.h"

struct Bf16Format {
  enum { GROUP = 8 };
  DEV_MEMBER u64 row_bytes(u32 inputs) { return 2ull * inputs; }
  DEV_MEMBER void decode(const u8* RESTRICT row, u32 group, float* out) {
    const bf16x8 v = reinterpret_cast<const bf16x8*>(row)[group];
    UNROLL for (int i = 0; i < GROUP; i++) out[i] = to_f32(v.v[i]);
  }
};
