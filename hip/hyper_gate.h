// Hyper-connections' gated read (spec 2.2): one body for all formats of its matrix (hyper_gate*.hip instantiate it).
//
// Owns: the low-rank product with its sigmoid, the mean over streams, the injection weights.
// Always true: ordered: a row's bits depend on its own input and on `up`.
// Not here: the product with `down` (gemv.h, gemm.h), the write (residual.hip).
#pragma once
#include "abi.h"
#include "activation.h"
#include "formats.h"

enum : u32 { GATE_ROWS = 8, MAX_RANK = 512, MAX_STREAMS = 4 };
// Four words are left out after each 32, so that lanes a whole group apart read from different banks.
struct LowRank { alignas(16) float v[GATE_ROWS][MAX_RANK / 32 * 36]; };
DEV u32 low_slot(u32 element) { return element + element / 32 * 4; }

// x[r][h] = 1/S * sum_s sigmoid(up[s*H + h] . silu(low[r] / S)) * normed[r][s][h]
// inject[r][s] = 2 * sigmoid(raw[r][s] / S), if there is `raw`
// up [S * H, rank]; grid ceil(hidden / 8), block 256; LDS 18 KiB; rows <= ROWS; up as its format says (formats*.h).
// A wave owns a column of all streams, so a row of `up` is read once for all activation rows; the rows of all streams are
// loaded before any is used.
// Rounding; ordered. Oracle: backend/cpu/hyper.rs read (its part after `down`).
template<class Format, u32 ROWS> DEV void hyper_gate(const HyperGateArgs& a, LowRank& low) {
  const float streams = static_cast<float>(a.streams);
  for (u32 i = tid(); i < a.rows * a.rank; i += 256) low.v[i / a.rank][low_slot(i % a.rank)] = silu(a.low[i] / streams);
  if (bidx() == 0 && a.raw != nullptr && tid() < a.rows * a.streams)
    a.inject[tid()] = 2.f * sigmoid(a.raw[tid()] / streams);
  barrier();
  const u32 outputs = a.streams * a.hidden;
  const u32 column = bidx() * 8 + wave();
  if (column >= a.hidden) return;
  WeightRow up[MAX_STREAMS];
  UNROLL for (u32 s = 0; s < MAX_STREAMS; s++)
    up[s] = weight_row<Format>(a.up, a.scales, a.rank, s * a.hidden + column, outputs, 0);
  float sum[ROWS][MAX_STREAMS];
  UNROLL for (u32 r = 0; r < ROWS; r++) UNROLL for (u32 s = 0; s < MAX_STREAMS; s++) sum[r][s] = 0.f;
  for (u32 group = lane(); group < a.rank / Format::GROUP; group += WAVE) {
    typename Format::Raw raw[MAX_STREAMS];
    UNROLL for (u32 s = 0; s < MAX_STREAMS; s++) raw[s] = Format::load(up[s].bytes, up[s].scales, group);
    UNROLL for (u32 p = 0; p < Format::GROUP / 8; p++) {
      float weights[MAX_STREAMS][8];
      UNROLL for (u32 s = 0; s < MAX_STREAMS; s++) Format::part(raw[s], group, p, weights[s]);
      const u32 at = low_slot(Format::at(group, p));
      UNROLL for (u32 r = 0; r < ROWS; r++) {
        const f32x4* values = reinterpret_cast<const f32x4*>(&low.v[r < a.rows ? r : 0][at]);
        UNROLL for (u32 i = 0; i < 2; i++) {
          const f32x4 v = values[i];
          UNROLL for (u32 s = 0; s < MAX_STREAMS; s++)
            UNROLL for (u32 j = 0; j < 4; j++) sum[r][s] = fma_(weights[s][4 * i + j], v.v[j], sum[r][s]);
        }
      }
    }
  }
  UNROLL for (u32 r = 0; r < ROWS; r++) {
    if (r >= a.rows) break;
    const float* normed = a.normed + static_cast<u64>(r) * outputs + column;
    float mixed = 0.f;
    UNROLL for (u32 s = 0; s < MAX_STREAMS; s++) {
      if (s >= a.streams) break;
      mixed = fma_(sigmoid(wave_sum(sum[r][s])), normed[s * a.hidden], mixed);
    }
    if (lane() == 0) a.x[static_cast<u64>(r) * a.hidden + column] = mixed / streams;
  }
}

#define HYPER_GATE(format, Format, ROWS)                          \
  KERNEL(256, hyper_gate_##format##_r##ROWS, HyperGateArgs) {     \
    LDS(LowRank, low);                                            \
    hyper_gate<Format, ROWS>(a, low);                             \
  }
#define HYPER_GATE_FORMAT(format, Format) HYPER_GATE(format, Format, 1) HYPER_GATE(format, Format, 8)
