// Rotary embedding from tables, with the norm that precedes it (spec 2.0, 2.4).
#include "abi.h"

// n = in[r][h] * rsqrt(mean(in[r][h]^2) + eps) * weight                         (without weight: n = in[r][h])
// out[r][h][i]        = n[i] * cos[r][i] - n[i + half] * sin[r][i]              i < half
// out[r][h][i + half] = n[i + half] * cos[r][i] + n[i] * sin[r][i]
// out[r][h][i]        = n[i]                                                    i >= 2 * half
// grid ceil(rows * heads / 8), block 256: a wave a head; `heads` counts all heads of all rows through `count`.
// LDS 8 KiB; dim <= 256. In place is allowed when strides are dense.
// Rounding. Oracle: backend/cpu/norm.rs rms, backend/cpu/rope.rs rotate.
struct HeadRows { float v[8][256]; };
KERNEL(256, head_norm_rope, HeadNormRopeArgs) {
  LDS(HeadRows, heads);
  const u32 index = bidx() * 8 + wave();
  const bool present = index < a.count;
  const u32 row = present ? index / a.heads : 0, head = present ? index % a.heads : 0;
  const float* in = a.input + static_cast<u64>(row) * a.row_stride + static_cast<u64>(head) * a.head_stride;
  float* n = heads.v[wave()];
  float squares = 0.f;
  for (u32 i = lane(); i < a.dim; i += WAVE) {
    const float v = in[i];
    n[i] = v;
    squares = fma_(v, v, squares);
  }
  squares = wave_sum(squares);
  const float scale = rsqrt_(squares / static_cast<float>(a.dim) + a.eps);
  if (a.weight != nullptr)
    for (u32 i = lane(); i < a.dim; i += WAVE) n[i] = n[i] * scale * a.weight[i];
  barrier();
  if (!present) return;
  float* out = a.out + static_cast<u64>(index) * a.dim;
  for (u32 i = lane(); i < a.dim; i += WAVE) {
    const u32 pair = i < a.half ? i : i - a.half;
    float v = n[i];
    if (i < 2 * a.half) {
      const float c = a.cos[static_cast<u64>(row) * a.half + pair], s = a.sin[static_cast<u64>(row) * a.half + pair];
      v = i < a.half ? v * c - n[i + a.half] * s : v * c + n[pair] * s;
    }
    out[i] = v;
  }
}
