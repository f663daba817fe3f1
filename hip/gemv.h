// Products of weight matrices with a few activation rows: one body for all formats (linear*.hip instantiate it).
#pragma once
#include "abi.h"
#include "formats.h"

// y[r][n] = sum_k w[n][k] * x[r][k]   for each of several matrices that read the same x
// w [outputs, inputs], x [rows, inputs], y [rows, outputs]; rows <= ROWS.
// grid the sum over parts of ceil(outputs / (4 * (8 >> split))), block 256; LDS 1 KiB; x aligned to 16, w as its format
// says (formats*.h).
// 2^split waves own four outputs: each of their bytes is read once, in 16-byte loads where the format lets them be, and
// each activation once for all four. Few outputs of many inputs take a large split, so that the device is full.
// Ordered: a row's sums run over groups lane, lane + 32 * 2^split, …, then across lanes, then across waves, whatever the
// other rows are; `split` must be chosen by the shape of w alone.
// Rounding against its oracle, backend/cpu/linear.rs linear.
enum { OUT = 4 };
struct GemvSums { float v[8][WAVE]; };

DEV GemvPart part_of(const GemvArgs& a) {
  GemvPart part = a.parts[0];
  UNROLL for (u32 i = 1; i < GEMV_PARTS; i++)
    if (i < a.count && bidx() >= a.parts[i].first) part = a.parts[i];
  return part;
}

template<class Format, int ROWS> DEV void gemv(const GemvArgs& a, GemvSums& sums) {
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
  UNROLL for (u32 r = 0; r < ROWS; r++) UNROLL for (u32 o = 0; o < OUT; o++) sum[r][o] = 0.f;
  for (u32 group = part_of_row * WAVE + lane(); group < groups; group += WAVE << m.split) {
    typename Format::Raw raw[OUT];
    UNROLL for (u32 o = 0; o < OUT; o++) raw[o] = Format::load(w[o].bytes, w[o].scales, group);
    UNROLL for (u32 p = 0; p < Format::GROUP / 8; p++) {
      float weights[OUT][8];
      UNROLL for (u32 o = 0; o < OUT; o++) Format::part(raw[o], group, p, weights[o]);
      UNROLL for (u32 r = 0; r < ROWS; r++) {
        const u32 source = r < a.rows ? r : 0;
        const f32x4* values =
            reinterpret_cast<const f32x4*>(a.x + (static_cast<u64>(source) * a.inputs + Format::at(group, p)));
        UNROLL for (u32 i = 0; i < 2; i++) {
          const f32x4 v = values[i];
          UNROLL for (u32 o = 0; o < OUT; o++)
            UNROLL for (u32 j = 0; j < 4; j++) sum[r][o] = fma_(weights[o][4 * i + j], v.v[j], sum[r][o]);
        }
      }
    }
  }
  // Lane r * OUT + o keeps the sum of row r and output o.
  float mine = 0.f;
  UNROLL for (u32 r = 0; r < ROWS; r++)
    UNROLL for (u32 o = 0; o < OUT; o++) {
      const float total = wave_sum(sum[r][o]);
      if (lane() == r * OUT + o) mine = total;
    }
  sums.v[wave()][lane()] = mine;
  barrier();
  const u32 r = lane() / OUT, output = first + lane() % OUT;
  if (part_of_row != 0 || r >= ROWS || r >= a.rows || output >= m.outputs) return;
  for (u32 i = 1; i < waves; i++) mine += sums.v[wave() + i][lane()];
  m.y[static_cast<u64>(r) * m.outputs + output] = mine;
}

#define GEMV(format, Format, ROWS)                      \
  KERNEL(256, gemv_##format##_r##ROWS, GemvArgs) {      \
    LDS(GemvSums, sums);                                \
    gemv<Format, ROWS>(a, sums);                        \
  }
#define GEMV_ROWS(format, Format) \
  GEMV(format, Format, 1) GEMV(format, Format, 2) GEMV(format, Format, 4) GEMV(format, Format, 8)
