// Hyper-connections (spec 2.2): the write into the residual streams and the gated read out of them.
#include "abi.h"
#include "activation.h"
#include "formats.h"

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

// x[r][h] = 1/S * sum_s sigmoid(up[s*H + h] . silu(low[r] / S)) * normed[r][s][h]
// inject[r][s] = 2 * sigmoid(raw[r][s] / S), if there is `raw`
// up [S * H, rank]; grid ceil(hidden / 32), block 256; LDS 16 KiB; rows <= ROWS.
// A wave owns four columns of all streams, so a row of `up` is read once for all activation rows.
// Rounding. Oracle: backend/cpu/hyper.rs read (its part after `down`).
enum { MAX_RANK = 512 };
struct LowRank { float v[8][MAX_RANK]; };

template<class Format, int ROWS> DEV void hyper_gate(const HyperGateArgs& a, LowRank& low) {
  const float streams = static_cast<float>(a.streams);
  for (u32 i = tid(); i < a.rows * a.rank; i += 256) low.v[i / a.rank][i % a.rank] = silu(a.low[i] / streams);
  if (bidx() == 0 && a.raw != nullptr && tid() < a.rows * a.streams)
    a.inject[tid()] = 2.f * sigmoid(a.raw[tid()] / streams);
  barrier();
  const u64 row_bytes = Format::row_bytes(a.rank);
  const u8* up = static_cast<const u8*>(a.up);
  for (u32 c = 0; c < 4; c++) {
    const u32 column = (bidx() * 8 + wave()) * 4 + c;
    if (column >= a.hidden) return;
    float mixed[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++) mixed[r] = 0.f;
    for (u32 s = 0; s < a.streams; s++) {
      const u64 output = static_cast<u64>(s) * a.hidden + column;
      float sum[ROWS];
      UNROLL for (int r = 0; r < ROWS; r++) sum[r] = 0.f;
      for (u32 group = lane(); group < a.rank / Format::GROUP; group += WAVE) {
        float w[Format::GROUP];
        Format::decode(up + row_bytes * output, group, w);
        UNROLL for (int r = 0; r < ROWS; r++)
          UNROLL for (int i = 0; i < Format::GROUP; i++)
            sum[r] = fma_(w[i], low.v[static_cast<u32>(r) < a.rows ? r : 0][group * Format::GROUP + i], sum[r]);
      }
      UNROLL for (int r = 0; r < ROWS; r++) {
        const float gate = sigmoid(wave_sum(sum[r]));
        const u64 row = static_cast<u32>(r) < a.rows ? r : 0;
        mixed[r] = fma_(gate, a.normed[row * a.streams * a.hidden + output], mixed[r]);
      }
    }
    UNROLL for (int r = 0; r < ROWS; r++)
      if (lane() == 0 && static_cast<u32>(r) < a.rows) a.x[static_cast<u64>(r) * a.hidden + column] = mixed[r] / streams;
  }
}

#define HYPER_GATE(format, Format, ROWS)                          \
  KERNEL(256, hyper_gate_##format##_r##ROWS, HyperGateArgs) {     \
    LDS(LowRank, low);                                            \
    hyper_gate<Format, ROWS>(a, low);                             \
  }
HYPER_GATE(bf16, Bf16Format, 1)
HYPER_GATE(bf16, Bf16Format, 8)
