// Hyper-connections' gated read (spec 2.2): one body for all formats of its matrix (hyper_gate*.hip instantiate it).
//
// Owns: the low-rank product with its sigmoid, the mean over streams, the injection weights.
// Always true: ordered: a row's bits depend on its own input and on `up`.
// Not here: the product with `down` (gemv.h, gemm.h), the write (residual.hip).
#pragma once
#include "abi.h"
#include "activation.h"
#include "formats.h"
#include "staged.h"

enum : u32 { MAX_RANK = 512, MAX_STREAMS = 4 };
template<u32 ROWS> struct LowRank { Staged<MAX_RANK> rows[ROWS]; };

// x[r][h] = 1/S * sum_s sigmoid(up[s*H + h] . silu(low[r] / S)) * normed[r][s][h]
// inject[r][s] = 2 * sigmoid(raw[r][s] / S), if there is `raw`
// up [S * H, rank]; grid ceil(hidden / 8), block 256; LDS 2.3 KiB a row; rows <= ROWS; up as its format says (formats*.h).
// A wave owns a column of all streams, so a row of `up` is read once for all activation rows; the rows of all streams are
// loaded before any is used, and before anything that the launch before writes.
// Rounding; ordered. Oracle: backend/cpu/hyper.rs read (its part after `down`).
template<class Format, u32 ROWS> DEV void hyper_gate(const HyperGateArgs& a, LowRank<ROWS>& low) {
  const float streams = static_cast<float>(a.streams);
  const u32 outputs = a.streams * a.hidden, groups = a.rank / Format::GROUP;
  const u32 column = bidx() * 8 + wave(), present = column < a.hidden ? column : a.hidden - 1;
  WeightRow up[MAX_STREAMS];
  UNROLL for (u32 s = 0; s < MAX_STREAMS; s++)
    up[s] = weight_row<Format>(a.up, a.scales, a.rank, s * a.hidden + present, outputs, 0);
  typename Format::Raw raw[MAX_STREAMS];
  if (lane() < groups) load_group<Format>(raw, up, lane());
  // What the streams' gates multiply, a lane's own stream, so that it is there when they are.
  const u32 own = lane() < a.streams ? lane() : 0;
  float normed[ROWS];
  UNROLL for (u32 r = 0; r < ROWS; r++)
    normed[r] = a.normed[static_cast<u64>(r < a.rows ? r : 0) * outputs + own * a.hidden + present];
  // The product with `down` is the launch before this one, the norm is older.
  previous_launch();
  for (u32 i = tid(); i < a.rows * a.rank; i += 256)
    low.rows[i / a.rank].v[staged_slot(i % a.rank)] = silu(a.low[i] / streams);
  if (bidx() == 0 && a.raw != nullptr && tid() < a.rows * a.streams)
    a.inject[tid()] = 2.f * sigmoid(a.raw[tid()] / streams);
  barrier();
  if (column >= a.hidden) return;
  float sum[ROWS][MAX_STREAMS];
  UNROLL for (u32 r = 0; r < ROWS; r++) UNROLL for (u32 s = 0; s < MAX_STREAMS; s++) sum[r][s] = 0.f;
  const auto add = [&](u32 group) INLINED {
    UNROLL for (u32 p = 0; p < Format::GROUP / 8; p++) {
      float weights[MAX_STREAMS][8];
      UNROLL for (u32 s = 0; s < MAX_STREAMS; s++) Format::part(raw[s], group, p, weights[s]);
      const u32 at = staged_slot(Format::at(group, p));
      UNROLL for (u32 r = 0; r < ROWS; r++) {
        const f32x4* values = reinterpret_cast<const f32x4*>(&low.rows[r < a.rows ? r : 0].v[at]);
        UNROLL for (u32 i = 0; i < 2; i++) {
          const f32x4 v = values[i];
          UNROLL for (u32 s = 0; s < MAX_STREAMS; s++)
            UNROLL for (u32 j = 0; j < 4; j++) sum[r][s] = fma_(weights[s][4 * i + j], v.v[j], sum[r][s]);
        }
      }
    }
  };
  if (lane() < groups) add(lane());
  for (u32 group = lane() + WAVE; group < groups; group += WAVE) {
    load_group<Format>(raw, up, group);
    add(group);
  }
  UNROLL for (u32 r = 0; r < ROWS; r++) {
    if (r >= a.rows) break;
    float mixed = 0.f;
    UNROLL for (u32 s = 0; s < MAX_STREAMS; s++) {
      const float gate = sigmoid(wave_sum(sum[r][s])), times = shfl(normed[r], s);
      if (s < a.streams) mixed = fma_(gate, times, mixed);
    }
    if (lane() == 0) a.x[static_cast<u64>(r) * a.hidden + column] = mixed / streams;
  }
}

#define HYPER_GATE(format, Format, ROWS)                            \
  KERNEL_AHEAD(256, hyper_gate_##format##_r##ROWS, HyperGateArgs) { \
    LDS(LowRank<ROWS>, low);                                        \
    hyper_gate<Format, ROWS>(a, low);                               \
  }
#define HYPER_GATE_FORMAT(format, Format) HYPER_GATE(format, Format, 1) HYPER_GATE(format, Format, 8)
