// Hyper-connections (spec 2.2): the write into the residual streams. The gated read out of them is hyper_gate.h.
#include "abi.h"
#include "activation.h"

// wide[r][s][h] += inject[r][s] * y[r][h]; with `normed`, also the norm that the next read starts with:
// normed[r][s][h] = wide[r][s][h] * rsqrt(mean_h(wide[r][s]^2) + eps) * weight[s][h]
// grid (rows * streams), block 256; LDS 32 bytes; hidden a multiple of 4; pointers aligned to 16.
// The write is exact (the product is rounded before the sum), the norm rounding.
// Oracle: backend/cpu/hyper.rs write, backend/cpu/norm.rs grouped_into.
KERNEL(256, hyper_write, HyperWriteArgs) {
  LDS_ARR(float, red, 8);
  const u32 row = bidx() / a.streams, stream = bidx() % a.streams;
  f32x4* wide = reinterpret_cast<f32x4*>(a.wide + static_cast<u64>(bidx()) * a.hidden);
  const f32x4* y = reinterpret_cast<const f32x4*>(a.y + static_cast<u64>(row) * a.hidden);
  const float factor = a.inject[bidx()];
  float squares = 0.f;
  for (u32 i = tid(); i < a.hidden / 4; i += 256) {
    f32x4 v = wide[i];
    const f32x4 add = y[i];
    UNROLL for (int j = 0; j < 4; j++) {
      v.v[j] = v.v[j] + factor * add.v[j];
      squares = fma_(v.v[j], v.v[j], squares);
    }
    wide[i] = v;
  }
  if (a.normed == nullptr) return;
  const float scale = rsqrt_(block_sum<256>(squares, red) / static_cast<float>(a.hidden) + a.eps);
  const f32x4* weight = reinterpret_cast<const f32x4*>(a.weight + static_cast<u64>(stream) * a.hidden);
  f32x4* normed = reinterpret_cast<f32x4*>(a.normed + static_cast<u64>(bidx()) * a.hidden);
  // Each thread reads back only what it wrote itself.
  for (u32 i = tid(); i < a.hidden / 4; i += 256) {
    f32x4 v = wide[i];
    const f32x4 w = weight[i];
    UNROLL for (int j = 0; j < 4; j++) v.v[j] = v.v[j] * scale * w.v[j];
    normed[i] = v;
  }
}

// The read of many rows, around its product with `up`:
//   low[r] = silu(low[r] / S),  inject[r][s] = 2 * sigmoid(raw[r][s] / S), if there is `raw`
// grid (rows), block 256; LDS 0.
// Ordered. Oracle: backend/cpu/hyper.rs read (its part between `down` and `up`).
KERNEL(256, hyper_low, HyperLowArgs) {
  const float streams = static_cast<float>(a.streams);
  float* low = a.low + static_cast<u64>(bidx()) * a.rank;
  for (u32 i = tid(); i < a.rank; i += 256) low[i] = silu(low[i] / streams);
  const u64 at = static_cast<u64>(bidx()) * a.streams + tid();
  if (a.raw != nullptr && tid() < a.streams) a.inject[at] = 2.f * sigmoid(a.raw[at] / streams);
}

// x[r][h] = 1/S * sum_s sigmoid(gate[r][s][h]) * normed[r][s][h]
// grid rows * ceil(hidden / 1024), block 256: a thread four columns of a row; LDS 0; pointers aligned to 16.
// Ordered: streams in their order. Oracle: backend/cpu/hyper.rs read (its part behind `up`).
KERNEL(256, hyper_mix, HyperMixArgs) {
  const u32 parts = (a.hidden + 1023) / 1024;
  const u32 column = (bidx() % parts * 256 + tid()) * 4;
  if (column >= a.hidden) return;
  const u64 row = bidx() / parts;
  f32x4 sum = {{0.f, 0.f, 0.f, 0.f}};
  for (u32 s = 0; s < a.streams; s++) {
    const u64 at = (row * a.streams + s) * a.hidden + column;
    const f32x4 gate = *reinterpret_cast<const f32x4*>(a.gate + at);
    const f32x4 normed = *reinterpret_cast<const f32x4*>(a.normed + at);
    UNROLL for (int i = 0; i < 4; i++) sum.v[i] = fma_(sigmoid(gate.v[i]), normed.v[i], sum.v[i]);
  }
  UNROLL for (int i = 0; i < 4; i++) sum.v[i] /= static_cast<float>(a.streams);
  *reinterpret_cast<f32x4*>(a.x + row * a.hidden + column) = sum;
}
