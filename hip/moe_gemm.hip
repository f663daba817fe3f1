// Experts' products for many rows (moe_gemm.h): formats without codes, and the sum over a row's experts.
#include "moe_gemm.h"

// y[r][n] = sum_s weights[r][s] * 16 parts[r][s][n] + sigmoid(scale[r]) * 16 shared[r][n], s ascending, shared last
// grid ceil(rows * width / 2048), block 256: eight columns a lane; LDS 0; pointers aligned to 16.
// Ordered. Rounding against its oracle, backend/cpu/moe.rs and mixture.rs mix.
KERNEL(256, moe_combine, MoeCombineArgs) {
  const u32 eighths = a.width / 8, i = bidx() * 256 + tid();
  const u32 row = i / eighths, column = i % eighths;
  if (row >= a.rows) return;
  float sum[8];
  UNROLL for (u32 j = 0; j < 8; j++) sum[j] = 0.f;
  const auto add = [&](const f16* parts, u64 from, float weight) {
    const f16x8 part = reinterpret_cast<const f16x8*>(parts)[from * eighths + column];
    UNROLL for (u32 j = 0; j < 8; j++) sum[j] = fma_(weight, 16.f * to_f32(part.v[j]), sum[j]);
  };
  for (u32 slot = 0; slot < a.top_k; slot++) {
    const u64 pair = static_cast<u64>(row) * a.top_k + slot;
    add(a.parts, pair, a.weights[pair]);
  }
  if (a.shared != nullptr) add(a.shared, row, rcp_(1.f + exp_(-a.scale[static_cast<u64>(row) * a.scale_stride])));
  f32x4* y = reinterpret_cast<f32x4*>(a.y) + 2 * (static_cast<u64>(row) * eighths + column);
  UNROLL for (u32 half = 0; half < 2; half++) {
    f32x4 v;
    UNROLL for (u32 j = 0; j < 4; j++) v.v[j] = sum[4 * half + j];
    y[half] = v;
  }
}

MOE_GEMM(f32, F32Format)
MOE_GEMM(f16, F16Format)
MOE_GEMM(bf16, Bf16Format)
MOE_GEMM(fp8, Fp8Format)
