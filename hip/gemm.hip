// Products with many rows (gemm.h): their activations, and formats without codes.
#include "gemm.h"

// out[r][k] = f16(x[r][k] / factors[r]), zeros from `inputs` to `stride`
// factors[r] = 2^e that brings the row's largest magnitude into [2^14, 2^15), or nearer to it if e would be below -126:
// no activation is too large for F16, and what is lost below is 2^-39 of the largest.
// x [rows, inputs], out [rows, stride]; grid (rows), block 256; LDS 32 bytes; pointers aligned to 16.
// Exact (round to nearest even), but for the sign of a zero: AMD multiplies and rounds by one fused operation that adds
// +0. Oracle: half::f16::from_f32.
KERNEL(256, gemm_rows, GemmRowsArgs) {
  LDS_ARR(float, red, 8);
  const f32x4* x = reinterpret_cast<const f32x4*>(a.x + static_cast<u64>(bidx()) * a.inputs);
  float most = 0.f;
  for (u32 i = tid(); i < a.inputs / 4; i += 256) {
    const f32x4 v = x[i];
    UNROLL for (u32 j = 0; j < 4; j++) most = fmax_(most, as_f(as_i(v.v[j]) & 0x7fffffff));
  }
  most = wave_max(most);
  if (lane() == 0) red[wave()] = most;
  barrier();
  UNROLL for (u32 i = 0; i < 8; i++) most = fmax_(most, red[i]);
  const u32 found = static_cast<u32>(as_i(most)) >> 23, exponent = found < 15 ? 15 : found;
  const float inverse = as_f(static_cast<i32>((268 - exponent) << 23));
  if (tid() == 0) a.factors[bidx()] = as_f(static_cast<i32>((exponent - 14) << 23));
  f16x8* out = reinterpret_cast<f16x8*>(a.out + static_cast<u64>(bidx()) * a.stride);
  for (u32 i = tid(); i < a.stride / 8; i += 256) {
    f16x8 rounded;
    f32x4 v[2] = {};
    if (8 * i < a.inputs) {
      v[0] = x[2 * i];
      v[1] = x[2 * i + 1];
    }
    UNROLL for (u32 j = 0; j < 8; j++) rounded.v[j] = to_f16(v[j / 4].v[j % 4] * inverse);
    out[i] = rounded;
  }
}

GEMM(f32, F32Format)
GEMM(f16, F16Format)
GEMM(bf16, Bf16Format)
GEMM(fp8, Fp8Format)
