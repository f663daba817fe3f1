// Products of weight matrices with a few activation rows: one body for all formats (linear*.hip instantiate it).
#pragma once
#include "abi.h"
#include "formats.h"
#include "staged.h"

// y[r][n] = sum_k w[n][k] * x[r][k]   for each of several matrices that read the same x
// w [outputs, inputs], x [rows, inputs], y [rows, outputs]; rows <= ROWS.
// grid the sum over parts of ceil(outputs / (4 * (8 >> split))), block 256; LDS 19 KiB, of more rows 37; x aligned to 16, w
// as its format says (formats*.h).
// 2^split waves own four outputs: each of their bytes is read once, in 16-byte loads where the format lets them be, and
// each activation once a workgroup. Few outputs of many inputs take a large split, so that the device is full.
// Ordered: a row's sums run over groups lane, lane + 32 * 2^split, …, then across lanes, then across waves, whatever the
// other rows are; `split` must be chosen by the shape of w alone.
// Rounding against its oracle, backend/cpu/linear.rs linear.
enum { OUT = 4 };
// Waves that own different outputs share rows of activations in LDS: 18 KiB of one row, 36 of more.
template<u32 ROWS> struct GemvLds {
  enum : u32 { COUNT = ROWS == 1 ? 4096 : 8192 / ROWS };
  float sums[8][WAVE];
  Staged<COUNT> x[ROWS];
};

DEV GemvPart part_of(const GemvArgs& a) {
  GemvPart part = a.parts[0];
  UNROLL for (u32 i = 1; i < GEMV_PARTS; i++)
    if (i < a.count && bidx() >= a.parts[i].first) part = a.parts[i];
  return part;
}

template<class Format, u32 ROWS> DEV void gemv(const GemvArgs& a, GemvLds<ROWS>& lds) {
  static_assert(ROWS * OUT <= WAVE, "a lane keeps one sum");
  const GemvPart m = part_of(a);
  const u32 waves = 1u << m.split, part_of_row = wave() & (waves - 1);
  const u32 first = (((bidx() - m.first) * 8 + wave()) >> m.split) * OUT;
  const u32 groups = first < m.outputs ? a.inputs / Format::GROUP : 0;
  WeightRow w[OUT];
  UNROLL for (u32 o = 0; o < OUT; o++)
    w[o] = weight_row<Format>(m.w, m.scales, a.inputs, first + o, m.outputs, m.row_offset);
  // Four outputs from a multiple of four on share the scales of their blocks of 128.
  if constexpr (Format::SCALED == 1) UNROLL for (u32 o = 1; o < OUT; o++) w[o].scales = w[0].scales;
  float sum[ROWS][OUT];
  const u32 group = part_of_row * WAVE + lane(), step = WAVE << m.split;
  EarlyGroups<Format, OUT> early;
  load_early(early, w, group, step, groups);
  previous_launch();
  const float* x[ROWS];
  UNROLL for (u32 r = 0; r < ROWS; r++) x[r] = a.x + static_cast<u64>(r < a.rows ? r : 0) * a.inputs;
  stage_first(lds.x, x, a.inputs);
  staged_dots(sum, early, w, x, a.inputs, group, step, groups, lds.x);
  // Lane r * OUT + o keeps the sum of row r and output o.
  float mine = 0.f;
  UNROLL for (u32 r = 0; r < ROWS; r++)
    UNROLL for (u32 o = 0; o < OUT; o++) {
      const float total = wave_sum(sum[r][o]);
      if (lane() == r * OUT + o) mine = total;
    }
  lds.sums[wave()][lane()] = mine;
  barrier();
  const u32 r = lane() / OUT, output = first + lane() % OUT;
  if (part_of_row != 0 || r >= ROWS || r >= a.rows || output >= m.outputs) return;
  for (u32 i = 1; i < waves; i++) mine += lds.sums[wave() + i][lane()];
  m.y[static_cast<u64>(r) * m.outputs + output] = mine;
}

#define GEMV(format, Format, ROWS)                       \
  KERNEL_AHEAD(256, gemv_##format##_r##ROWS, GemvArgs) { \
    LDS(GemvLds<ROWS>, lds);                             \
    gemv<Format, ROWS>(a, lds);                          \
  }
#define GEMV_ROWS(format, Format) \
  GEMV(format, Format, 1) GEMV(format, Format, 2) GEMV(format, Format, 4) GEMV(format, Format, 8)
