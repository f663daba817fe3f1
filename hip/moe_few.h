// Experts' products for at most eight rows (spec 2.5), decode and verification: one body for all formats (moe_few*.hip
// instantiate it).
//
// Owns: gate, up and SwiGLU in one launch, down and the sum over a row's experts in a second; the shared expert in both.
// Always true: ordered: a row's bits depend on its own input, experts and weights; an expert that several rows chose is
// read once, through MoeGroup (moe_route.hip).
// Not here: many rows (moe_gemm.h).
#pragma once
#include "abi.h"
#include "activation.h"
#include "formats.h"

// Rows of a group, by their bits; `row(i)` beyond the last is the first again.
struct Chosen {
  u32 first, rest;
  DEV_MEMBER Chosen of(u32 rows) { return Chosen{static_cast<u32>(__builtin_ctz(rows)), rows}; }
};
DEV u32 next_row(Chosen& chosen) {
  const u32 row = chosen.rest != 0 ? static_cast<u32>(__builtin_ctz(chosen.rest)) : chosen.first;
  chosen.rest &= chosen.rest - 1;
  return row;
}

// sum[r][o] = w[o] . x[r], complete in every lane: groups lane, lane + 32, … and then across lanes.
template<class Format, int ROWS, int OUT>
DEV void dots(float (&sum)[ROWS][OUT], const WeightRow (&w)[OUT], const float* const (&x)[ROWS], u32 inputs) {
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int o = 0; o < OUT; o++) sum[r][o] = 0.f;
  for (u32 group = lane(); group < inputs / Format::GROUP; group += WAVE) {
    typename Format::Raw raw[OUT];
    UNROLL for (int o = 0; o < OUT; o++) raw[o] = Format::load(w[o].bytes, w[o].scales, group);
    UNROLL for (u32 p = 0; p < Format::GROUP / 8; p++) {
      float weights[OUT][8];
      UNROLL for (int o = 0; o < OUT; o++) Format::part(raw[o], group, p, weights[o]);
      UNROLL for (int r = 0; r < ROWS; r++) {
        const f32x4* values = reinterpret_cast<const f32x4*>(x[r] + Format::at(group, p));
        UNROLL for (int i = 0; i < 2; i++) {
          const f32x4 v = values[i];
          UNROLL for (int o = 0; o < OUT; o++)
            UNROLL for (int j = 0; j < 4; j++) sum[r][o] = fma_(weights[o][4 * i + j], v.v[j], sum[r][o]);
        }
      }
      // Many rows' activations of all parts at once would take more registers than their sums (169 for q5_0).
      if constexpr (ROWS > 2) keep_order();
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int o = 0; o < OUT; o++) sum[r][o] = wave_sum(sum[r][o]);
}

// Calls f with the least template of rows that holds `rows`: one, two, four or all.
template<int N> struct Count { enum { ROWS = N }; };
template<int ROWS, class F> DEV void with_rows(u32 rows, F f) {
  if constexpr (ROWS > 4) {
    if (rows > 4) return f(Count<ROWS>{});
    if (rows > 2) return f(Count<4>{});
  }
  if constexpr (ROWS > 1) {
    if (rows > 1) return f(Count<2>{});
  }
  f(Count<1>{});
}

// hidden[r, s][n] = silu(gate_e[n] . x[r]) * (up_e[n] . x[r]),  e = the expert of slot s; the same for the shared expert
// grid rows * top_k * ceil(inner / 16) + ceil(shared_inner / 16), block 256: a workgroup a group and 16 outputs, a wave
// two of them; LDS 0; x aligned to 16.
// Rounding against its oracle, backend/cpu/moe.rs; ordered.
template<class Format, int ROWS> DEV void moe_gate_up(const MoeGateUpArgs& a) {
  const u32 parts = (a.inner + 15) / 16, routed = a.rows * a.top_k * parts;
  const bool shared = bidx() >= routed;
  MoeGroup group = {a.shared, (1u << a.rows) - 1, 0, 0};
  if (!shared) group = load_uniform(a.groups + bidx() / parts);
  if (group.rows == 0) return;
  const u32 inner = shared ? a.shared_inner : a.inner, first = (shared ? bidx() - routed : bidx() % parts) * 16 + wave() * 2;
  if (first >= inner) return;
  const MoeExpert expert = load_uniform(a.experts + group.expert);
  WeightRow w[4];
  UNROLL for (u32 o = 0; o < 2; o++) {
    w[2 * o] = weight_row<Format>(expert.gate, expert.gate_scales, a.inputs, first + o, inner, 0);
    w[2 * o + 1] = weight_row<Format>(expert.up, expert.up_scales, a.inputs, first + o, inner, expert.up_offset);
  }
  const u32 chosen_rows = static_cast<u32>(__builtin_popcount(group.rows));
  with_rows<ROWS>(chosen_rows, [&](auto count) {
    enum { N = decltype(count)::ROWS };
    u32 rows[N];
    const float* x[N];
    Chosen chosen = Chosen::of(group.rows);
    UNROLL for (int r = 0; r < N; r++) {
      rows[r] = next_row(chosen);
      x[r] = a.x + static_cast<u64>(rows[r]) * a.inputs;
    }
    float sum[N][4];
    dots<Format, N, 4>(sum, w, x, a.inputs);
    UNROLL for (u32 r = 0; r < N; r++) {
      const u32 pair = rows[r] * a.top_k + (group.slots >> 4 * rows[r] & 15);
      float* out = shared ? a.shared_hidden + static_cast<u64>(rows[r]) * inner : a.hidden + static_cast<u64>(pair) * inner;
      UNROLL for (u32 o = 0; o < 2; o++)
        if (lane() == 0 && r < chosen_rows && first + o < inner) out[first + o] = silu(sum[r][2 * o]) * sum[r][2 * o + 1];
    }
  });
}

// y[r][n] = sum_s weights[r][s] * (down_e[n] . hidden[r, s]) + sigmoid(scale[r]) * (down_shared[n] . shared_hidden[r])
// s in the order of slots, the shared expert last; with `add`, y[r][n] comes first.
// grid ceil(outputs / 8), block 256: a workgroup 8 outputs. One row: a wave takes all of them for an expert, so that few
// loads wait for another. More rows: four waves take two outputs each for the even groups, four for the odd ones. LDS
// 4.3 KiB; hidden aligned to 16.
// Rounding against its oracle, backend/cpu/moe.rs and mixture.rs mix; ordered.
enum { DOWN_OUTPUTS = 8, MAX_ROWS = 8, MAX_TOP = 16 };
struct DownLds {
  float routed[MAX_ROWS * MAX_TOP][DOWN_OUTPUTS];
  float shared[MAX_ROWS][DOWN_OUTPUTS];
};

// `out[i][o]` for the rows of a group: i = place(row).
template<class Format, int ROWS, class F>
DEV void down_group(const MoeDownArgs& a, u32 index, u32 group_rows, const float* hidden, u32 inner,
                    float (*out)[DOWN_OUTPUTS], F place) {
  const MoeExpert expert = load_uniform(a.experts + index);
  const u32 column = wave() % 4 * 2, first = bidx() * DOWN_OUTPUTS + column;
  with_rows<ROWS>(static_cast<u32>(__builtin_popcount(group_rows)), [&](auto count) {
    enum { N = decltype(count)::ROWS };
    u32 places[N];
    const float* x[N];
    Chosen chosen = Chosen::of(group_rows);
    UNROLL for (int r = 0; r < N; r++) {
      places[r] = place(next_row(chosen));
      x[r] = hidden + static_cast<u64>(places[r]) * inner;
    }
    WeightRow w[2];
    UNROLL for (u32 o = 0; o < 2; o++)
      w[o] = weight_row<Format>(expert.down, expert.down_scales, inner, first + o, a.outputs, 0);
    float sum[N][2];
    dots<Format, N, 2>(sum, w, x, inner);
    UNROLL for (u32 r = 0; r < N; r++)
      UNROLL for (u32 o = 0; o < 2; o++)
        if (lane() == 0 && r < static_cast<u32>(__builtin_popcount(group_rows))) out[places[r]][column + o] = sum[r][o];
  });
}

// The experts of the only row, and the shared one behind them.
template<class Format> DEV void down_one_row(const MoeDownArgs& a, DownLds& lds) {
  // As many outputs at a time as leave registers for twelve waves.
  enum : u32 { SIZE = sizeof(typename Format::Raw), TOGETHER = SIZE <= 24 ? 8 : SIZE <= 40 ? 4 : 2 };
  const u32 all = a.top_k + (a.shared_inner != 0 ? 1 : 0);
  for (u32 i = wave(); i < all; i += 8) {
    MoeGroup group = {a.shared, 1, 0, 0};
    if (i < a.top_k) group = load_uniform(a.groups + i);
    const MoeExpert expert = load_uniform(a.experts + group.expert);
    const bool shared = i == a.top_k;
    const u32 inner = shared ? a.shared_inner : a.inner, slot = group.slots & 15;
    const float* const x[1] = {shared ? a.shared_hidden : a.hidden + static_cast<u64>(slot) * inner};
    for (u32 first = 0; first < DOWN_OUTPUTS; first += TOGETHER) {
      WeightRow w[TOGETHER];
      UNROLL for (u32 o = 0; o < TOGETHER; o++)
        w[o] = weight_row<Format>(expert.down, expert.down_scales, inner, bidx() * DOWN_OUTPUTS + first + o, a.outputs, 0);
      float sum[1][TOGETHER];
      dots<Format, 1, TOGETHER>(sum, w, x, inner);
      UNROLL for (u32 o = 0; o < TOGETHER; o++)
        if (lane() == 0) (shared ? lds.shared[0] : lds.routed[slot])[first + o] = sum[0][o];
    }
  }
}

template<class Format, int ROWS> DEV void down_rows(const MoeDownArgs& a, DownLds& lds) {
  const u32 half = wave() / 4, pairs = a.rows * a.top_k;
  for (u32 i = half; i < pairs; i += 2) {
    const MoeGroup group = load_uniform(a.groups + i);
    if (group.rows == 0) break;
    down_group<Format, ROWS>(a, group.expert, group.rows, a.hidden, a.inner, lds.routed,
                             [&](u32 row) { return row * a.top_k + (group.slots >> 4 * row & 15); });
  }
  if (a.shared_inner != 0 && half == 1) {
    down_group<Format, ROWS>(a, a.shared, (1u << a.rows) - 1, a.shared_hidden, a.shared_inner, lds.shared,
                             [](u32 row) { return row; });
  }
}

template<class Format, int ROWS> DEV void moe_down(const MoeDownArgs& a, DownLds& lds) {
  if constexpr (ROWS == 1) down_one_row<Format>(a, lds);
  else down_rows<Format, ROWS>(a, lds);
  barrier();
  const u32 row = tid() / DOWN_OUTPUTS, column = tid() % DOWN_OUTPUTS, output = bidx() * DOWN_OUTPUTS + column;
  if (row >= a.rows || output >= a.outputs) return;
  float* y = a.y + static_cast<u64>(row) * a.outputs + output;
  float sum = a.add != 0 ? *y : 0.f;
  for (u32 pair = row * a.top_k; pair < (row + 1) * a.top_k; pair++) sum = fma_(a.weights[pair], lds.routed[pair][column], sum);
  if (a.shared_inner != 0) sum = fma_(sigmoid(a.scale[static_cast<u64>(row) * a.scale_stride]), lds.shared[row][column], sum);
  *y = sum;
}

#define MOE_FEW(format, Format, ROWS)                                                                   \
  KERNEL(256, moe_gate_up_##format##_r##ROWS, MoeGateUpArgs) { moe_gate_up<Format, ROWS>(a); }          \
  KERNEL(256, moe_down_##format##_r##ROWS, MoeDownArgs) {                                               \
    LDS(DownLds, lds);                                                                                  \
    moe_down<Format, ROWS>(a, lds);                                                                     \
  }
#define MOE_FEW_FORMAT(format, Format) MOE_FEW(format, Format, 1) MOE_FEW(format, Format, 8)
