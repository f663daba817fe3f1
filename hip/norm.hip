// Root-mean-square norms.
#include "abi.h"

// out[r][g][i] = in[r][g][i] * rsqrt(mean_i(in[r][g]^2) + eps) * weight[g][i]     (spec 2.2: one statistic a group)
// in, out [rows, groups, width]; width a multiple of 4; grid (rows * groups), block 256; LDS 32 bytes;
// pointers aligned to 16.
// Rounding. Oracle: backend/cpu/norm.rs grouped_into.
KERNEL(256, grouped_norm, GroupedNormArgs) {
  LDS_ARR(float, red, 8);
  const u64 at = static_cast<u64>(bidx()) * a.width;
  const f32x4* RESTRICT in = reinterpret_cast<const f32x4*>(a.input + at);
  const f32x4* RESTRICT weight = reinterpret_cast<const f32x4*>(a.weight + static_cast<u64>(bidx() % a.groups) * a.width);
  f32x4* RESTRICT out = reinterpret_cast<f32x4*>(a.out + at);
  float squares = 0.f;
  for (u32 i = tid(); i < a.width / 4; i += 256) {
    const f32x4 x = in[i];
    UNROLL for (int j = 0; j < 4; j++) squares = fma_(x.v[j], x.v[j], squares);
  }
  const float scale = rsqrt_(block_sum<256>(squares, red) / static_cast<float>(a.width) + a.eps);
  for (u32 i = tid(); i < a.width / 4; i += 256) {
    const f32x4 x = in[i], w = weight[i];
    f32x4 y;
    UNROLL for (int j = 0; j < 4; j++) y.v[j] = x.v[j] * scale * w.v[j];
    out[i] = y;
  }
}
