// Rotary embedding from tables, with the norm that precedes it (spec 2.0, 2.4).
#include "abi.h"
#include "head.h"

// n = in[r][h] * rsqrt(mean(in[r][h]^2) + eps) * weight                         (without weight: n = in[r][h])
// out[r][h][i]        = n[i] * cos[r][i] - n[i + half] * sin[r][i]              i < half
// out[r][h][i + half] = n[i + half] * cos[r][i] + n[i] * sin[r][i]
// out[r][h][i]        = n[i]                                                    i >= 2 * half
// grid ceil(count / 8), block 256: a wave a head; `count` counts the heads of all rows. LDS 0. In place is allowed when
// strides are dense.
// Rounding. Oracle: backend/cpu/norm.rs rms, backend/cpu/rope.rs rotate.
KERNEL(256, head_norm_rope, HeadNormRopeArgs) {
  const u32 index = bidx() * 8 + wave();
  if (index >= a.count) return;
  const u32 row = index / a.heads, head = index % a.heads;
  Head h = load_head(a.input + static_cast<u64>(row) * a.row_stride + static_cast<u64>(head) * a.head_stride, a.dim);
  if (a.weight != nullptr) norm_head(h, a.weight, a.dim, a.eps);
  const u64 table = static_cast<u64>(row) * a.half;
  rotate_head(h, a.cos + table, a.sin + table, a.half);
  store_head(a.out + static_cast<u64>(index) * a.dim, h, a.dim);
}
