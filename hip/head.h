// A head in a wave: its norm and its rotation (spec 2.0).
//
// Owns: where the elements of a head lie, the order of its sum of squares. Always true: the whole wave takes part, a head
// has at most 256 elements, and no LDS is used.
// Not here: which heads there are (rope.hip, qsa_prepare.hip), how they are stored (kv.h).
#pragma once
#include "dialect/gpu.h"

enum { HEAD_REGISTERS = 8 };

// Lane l holds elements l, l + 32, …
struct Head { float x[HEAD_REGISTERS]; };

DEV Head load_head(const float* RESTRICT from, u32 dim) {
  Head h;
  UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++) h.x[j] = lane() + WAVE * j < dim ? from[lane() + WAVE * j] : 0.f;
  return h;
}

// x * rsqrt(mean(x^2) + eps) * weight
DEV void norm_head(Head& h, const float* RESTRICT weight, u32 dim, float eps) {
  float squares = 0.f;
  UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++) squares = fma_(h.x[j], h.x[j], squares);
  const float scale = rsqrt_(wave_sum(squares) / static_cast<float>(dim) + eps);
  UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++)
    if (lane() + WAVE * j < dim) h.x[j] = h.x[j] * scale * weight[lane() + WAVE * j];
}

// Half-split rotation of the first 2 * half elements; cos and sin are [half].
DEV void rotate_head(Head& h, const float* RESTRICT cos, const float* RESTRICT sin, u32 half) {
  const Head before = h;
  UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++) {
    if (WAVE * j >= 2 * half) break;
    const u32 i = lane() + WAVE * j;
    const bool first = i < half, rotates = i < 2 * half;
    const u32 pair = first ? i : i - half, partner = first ? i + half : i - half;
    float other = 0.f;
    UNROLL for (u32 k = 0; k < HEAD_REGISTERS; k++) {
      if (WAVE * k >= 2 * half) break;
      const float there = shfl(before.x[k], partner % WAVE);
      if (partner / WAVE == k) other = there;
    }
    if (rotates) {
      const float c = cos[pair], s = sin[pair];
      h.x[j] = first ? before.x[j] * c - other * s : before.x[j] * c + other * s;
    }
  }
}

DEV void store_head(float* RESTRICT to, const Head& h, u32 dim) {
  UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++)
    if (lane() + WAVE * j < dim) to[lane() + WAVE * j] = h.x[j];
}
