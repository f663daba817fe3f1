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
#include "staged.h"

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
      const auto values = [&](int r) { return reinterpret_cast<const f32x4*>(x[r] + Format::at(group, p)); };
      if constexpr (ROWS == 1) {
        const f32x4 v[2] = {values(0)[0], values(0)[1]};
        UNROLL for (int o = 0; o < OUT; o++) {
          float weights[8];
          Format::part(raw[o], group, p, weights);
          UNROLL for (int i = 0; i < 8; i++) sum[0][o] = fma_(weights[i], v[i / 4].v[i % 4], sum[0][o]);
        }
      } else {
        float weights[OUT][8];
        UNROLL for (int o = 0; o < OUT; o++) Format::part(raw[o], group, p, weights[o]);
        UNROLL for (int r = 0; r < ROWS; r++)
          UNROLL for (int i = 0; i < 2; i++) {
            const f32x4 v = values(r)[i];
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

DEV u32 least(u32 a, u32 b) { return a < b ? a : b; }
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
// two of them; LDS 18 KiB; x aligned to 16. The shared expert is in the experts' format, or in Q8_0 where shared_q8_0 says
// so.
// Rounding against its oracle, backend/cpu/moe.rs; ordered.
enum : u32 { GATE_UP_STAGE = 4096 };
union GateUpLds {
  Staged<GATE_UP_STAGE> one[1];
  Staged<GATE_UP_STAGE / 2> two[2];
  Staged<GATE_UP_STAGE / 4> four[4];
  Staged<GATE_UP_STAGE / 8> eight[8];
};
template<int N> DEV auto& gate_up_rows(GateUpLds& lds) {
  if constexpr (N == 1) return lds.one;
  else if constexpr (N == 2) return lds.two;
  else if constexpr (N == 4) return lds.four;
  else return lds.eight;
}

template<class Format, int ROWS>
DEV void gate_up_group(const MoeGateUpArgs& a, GateUpLds& lds, const MoeGroup& group, bool shared, u32 part) {
  const u32 inner = shared ? a.shared_inner : a.inner, first = part * 16 + wave() * 2;
  const u32 groups = first < inner ? a.inputs / Format::GROUP : 0;
  const MoeExpert expert = load_uniform(a.experts + group.expert);
  WeightRow w[4];
  UNROLL for (u32 o = 0; o < 2; o++) {
    w[2 * o] = weight_row<Format>(expert.gate, expert.gate_scales, a.inputs, first + o, inner, 0);
    w[2 * o + 1] = weight_row<Format>(expert.up, expert.up_scales, a.inputs, first + o, inner, expert.up_offset);
  }
  EarlyGroups<Format, 4> early;
  load_early(early, w, lane(), WAVE, groups);
  const u32 chosen_rows = static_cast<u32>(__builtin_popcount(group.rows));
  with_rows<ROWS>(chosen_rows, [&](auto count) INLINED {
    enum { N = decltype(count)::ROWS };
    u32 rows[N];
    const float* x[N];
    Chosen chosen = Chosen::of(group.rows);
    UNROLL for (int r = 0; r < N; r++) {
      rows[r] = next_row(chosen);
      x[r] = a.x + static_cast<u64>(rows[r]) * a.inputs;
    }
    auto& staged = gate_up_rows<N>(lds);
    if constexpr (ROWS > 1) stage_first(staged, x, a.inputs);  // of one row it is done
    float sum[N][4];
    staged_dots(sum, early, w, x, a.inputs, lane(), WAVE, groups, staged);
    UNROLL for (u32 r = 0; r < N; r++) {
      UNROLL for (u32 o = 0; o < 4; o++) sum[r][o] = wave_sum(sum[r][o]);
      const u32 pair = rows[r] * a.top_k + (group.slots >> 4 * rows[r] & 15);
      float* out = shared ? a.shared_hidden + static_cast<u64>(rows[r]) * inner : a.hidden + static_cast<u64>(pair) * inner;
      UNROLL for (u32 o = 0; o < 2; o++)
        if (lane() == 0 && r < chosen_rows && first + o < inner) out[first + o] = silu(sum[r][2 * o]) * sum[r][2 * o + 1];
    }
  });
}

template<class Format, int ROWS> DEV void moe_gate_up(const MoeGateUpArgs& a, GateUpLds& lds) {
  const u32 parts = (a.inner + 15) / 16, routed = a.rows * a.top_k * parts;
  const bool shared = bidx() >= routed;
  const u32 part = shared ? bidx() - routed : bidx() % parts;
  // The router's choice is the launch before this one, the activations are older.
  if constexpr (ROWS == 1) stage_first(lds.one, {a.x}, a.inputs);
  previous_launch();
  MoeGroup group = {a.shared, (1u << a.rows) - 1, 0, 0};
  if (!shared) group = load_uniform(a.groups + bidx() / parts);
  if (group.rows == 0) return;
  if constexpr (!__is_same(Format, Q8_0Format))
    if (shared && a.shared_q8_0) return gate_up_group<Q8_0Format, ROWS>(a, lds, group, shared, part);
  gate_up_group<Format, ROWS>(a, lds, group, shared, part);
}

// y[r][n] = sum_s weights[r][s] * (down_e[n] . hidden[r, s]) + sigmoid(scale[r]) * (down_shared[n] . shared_hidden[r])
// s in the order of slots, the shared expert last; with `add`, y[r][n] comes first.
// grid ceil(outputs / 8): a workgroup 8 outputs. One row, block 384: a wave takes all of them for an expert, so that few
// loads wait for another; LDS 45 KiB. More rows, block 256: a wave takes all of them for a group; LDS 4.3 KiB. hidden
// aligned to 16. The shared expert's format is as above.
// Rounding against its oracle, backend/cpu/moe.rs and mixture.rs mix; ordered.
enum : u32 { DOWN_OUTPUTS = 8, MAX_ROWS = 8, MAX_TOP = 16, DOWN_WAVES = 12, DOWN_STAGE = 768 };
template<u32 ROWS> struct DownLds {
  float routed[MAX_ROWS * MAX_TOP][DOWN_OUTPUTS];
  float shared[MAX_ROWS][DOWN_OUTPUTS];
};
template<> struct DownLds<1> {
  float routed[MAX_TOP][DOWN_OUTPUTS];
  float shared[1][DOWN_OUTPUTS];
  Staged<DOWN_STAGE> x[DOWN_WAVES][1];  // a wave's own
  Staged<DOWN_STAGE> shared_x[1];
};

// `out[i][o]` for the rows of a group and COUNT outputs from `first` on: i = place(row).
template<class Format, int ROWS, int COUNT, class F>
DEV void down_group(const MoeDownArgs& a, u32 index, u32 group_rows, u32 first, const float* hidden, u32 inner,
                    float (*out)[DOWN_OUTPUTS], F place) {
  const MoeExpert expert = load_uniform(a.experts + index);
  const u32 chosen_rows = static_cast<u32>(__builtin_popcount(group_rows));
  with_rows<ROWS>(chosen_rows, [&](auto count) INLINED {
    // As many outputs at a time as leave registers for the sums of all rows.
    constexpr int N = decltype(count)::ROWS, MOST = N == 1 && sizeof(typename Format::Raw) <= 40 ? 4 : 2;
    constexpr int TOGETHER = MOST < COUNT ? MOST : COUNT;
    u32 places[N];
    const float* x[N];
    Chosen chosen = Chosen::of(group_rows);
    UNROLL for (int r = 0; r < N; r++) {
      places[r] = place(next_row(chosen));
      x[r] = hidden + places[r] * inner;
    }
    for (u32 begin = first; begin < first + COUNT; begin += TOGETHER) {
      WeightRow w[TOGETHER];
      UNROLL for (u32 o = 0; o < TOGETHER; o++)
        w[o] = weight_row<Format>(expert.down, expert.down_scales, inner, bidx() * DOWN_OUTPUTS + begin + o, a.outputs, 0);
      float sum[N][TOGETHER];
      dots<Format, N, TOGETHER>(sum, w, x, inner);
      UNROLL for (u32 r = 0; r < N; r++)
        UNROLL for (u32 o = 0; o < TOGETHER; o++)
          if (lane() == 0 && r < chosen_rows) out[places[r]][begin + o] = sum[r][o];
    }
  });
}

// OUT outputs of an expert, from `first` of the workgroup's on, over the groups of elements `from` to from + DOWN_STAGE: a
// lane's own, those that it would take of the whole row.
template<class Format, u32 OUT> struct DownPart {
  enum : u32 { GROUP = Format::GROUP, SPAN = WAVE * GROUP, TURNS = (u32{DOWN_STAGE} + SPAN - 1) / SPAN };
  WeightRow w[OUT];
  typename Format::Raw raw[OUT];
  u32 group, end;
};
template<class Format, u32 OUT>
DEV void down_begin(DownPart<Format, OUT>& part, const MoeDownArgs& a, const MoeExpert& expert, u32 inner, u32 first,
                    u32 from) {
  UNROLL for (u32 o = 0; o < OUT; o++)
    part.w[o] = weight_row<Format>(expert.down, expert.down_scales, inner, bidx() * DOWN_OUTPUTS + first + o, a.outputs, 0);
  // Eight outputs from a multiple of eight on share the scales of their blocks of 128.
  if constexpr (Format::SCALED == 1) UNROLL for (u32 o = 1; o < OUT; o++) part.w[o].scales = part.w[0].scales;
  const u32 group = from / Format::GROUP;
  part.group = group + ((lane() - group) & (WAVE - 1));
  part.end = least(inner, from + DOWN_STAGE) / Format::GROUP;
  if (part.group < part.end) load_group<Format>(part.raw, part.w, part.group);
}
// sums[o] += w[o] . x
template<class Format, u32 OUT>
DEV void down_add(float* sums, DownPart<Format, OUT>& part, const Staged<DOWN_STAGE> (&x)[1], u32 from) {
  float sum[1][OUT];
  UNROLL for (u32 o = 0; o < OUT; o++) sum[0][o] = sums[o];
  UNROLL for (u32 turn = 0; turn < DownPart<Format, OUT>::TURNS; turn++) {
    const u32 group = part.group + WAVE * turn;
    if (group >= part.end) break;
    if (turn != 0) load_group<Format>(part.raw, part.w, group);
    add_group<Format>(sum, part.raw, group, x, from);
  }
  UNROLL for (u32 o = 0; o < OUT; o++) sums[o] = sum[0][o];
}
// Elements that are staged from `from` on.
DEV u32 down_count(u32 from, u32 inner) { return from < inner ? least(inner - from, DOWN_STAGE) : 0; }

// The experts of the only row: a wave all outputs of one. The shared one is among them, or in Q8_0 behind them: a wave one
// of its outputs.
template<class Format> DEV void down_one_row(const MoeDownArgs& a, DownLds<1>& lds) {
  // As many outputs at a time as leave registers for six waves, which is what LDS leaves, and some.
  constexpr u32 SIZE = sizeof(typename Format::Raw);
  constexpr u32 TOGETHER = SIZE <= 16 || u32{Format::SCALED} == 2 ? 8 : SIZE <= 40 ? 4 : 2;
  Staged<DOWN_STAGE>(&x)[1] = lds.x[wave()];
  const bool behind = a.shared_q8_0 && a.shared_inner != 0;
  const u32 all = a.top_k + (a.shared_inner != 0 && !behind ? 1 : 0);
  const u32 longest = behind || a.inner > a.shared_inner ? a.inner : a.shared_inner;
  const u32 own = wave() < DOWN_OUTPUTS ? wave() : 0;
  DownPart<Q8_0Format, 1> apart;
  MoeExpert shared_expert;
  if (behind) {
    shared_expert = load_uniform(a.experts + a.shared);
    down_begin(apart, a, shared_expert, a.shared_inner, own, 0);
  }
  for (u32 begin = 0; begin < all; begin += DOWN_WAVES) {
    const u32 i = begin + wave();
    const bool shared = i >= a.top_k;
    MoeGroup group = {a.shared, 1, 0, 0};
    if (!shared) group = load_uniform(a.groups + i);
    const MoeExpert expert = load_uniform(a.experts + group.expert);
    const u32 inner = i >= all ? 0 : shared ? a.shared_inner : a.inner, slot = group.slots & 15;
    const float* const hidden = shared ? a.shared_hidden : a.hidden + static_cast<u64>(slot) * a.inner;
    float sum[DOWN_OUTPUTS] = {};
    for (u32 from = 0; from < longest; from += DOWN_STAGE) {
      DownPart<Format, TOGETHER> part;
      down_begin(part, a, expert, inner, 0, from);
      if (begin + from == 0) previous_launch();
      else barrier();
      stage_row<WAVE>(x[0], hidden + from, down_count(from, inner), lane());
      barrier();
      UNROLL for (u32 first = 0; first < DOWN_OUTPUTS; first += TOGETHER) {
        if (first != 0) down_begin(part, a, expert, inner, first, from);
        down_add(sum + first, part, x, from);
      }
    }
    UNROLL for (u32 o = 0; o < DOWN_OUTPUTS; o++) sum[o] = wave_sum(sum[o]);
    if (lane() == 0 && i < all)
      UNROLL for (u32 o = 0; o < DOWN_OUTPUTS; o++) (shared ? lds.shared[0] : lds.routed[slot])[o] = sum[o];
  }
  if (!behind) return;
  float sum = 0.f;
  for (u32 from = 0; from < a.shared_inner; from += DOWN_STAGE) {
    if (from != 0) barrier();
    stage_row<WAVE * DOWN_WAVES>(lds.shared_x[0], a.shared_hidden + from, down_count(from, a.shared_inner), tid());
    barrier();
    if (from != 0) down_begin(apart, a, shared_expert, a.shared_inner, own, from);
    down_add(&sum, apart, lds.shared_x, from);
  }
  sum = wave_sum(sum);
  if (lane() == 0 && wave() == own) lds.shared[0][own] = sum;
}

// More rows: a wave all outputs of a group, and one of the shared expert's.
template<class Format, u32 ROWS> DEV void down_rows(const MoeDownArgs& a, DownLds<ROWS>& lds) {
  const u32 pairs = a.rows * a.top_k;
  for (u32 i = wave(); i < pairs; i += 8) {
    const MoeGroup group = load_uniform(a.groups + i);
    if (group.rows == 0) break;
    down_group<Format, ROWS, DOWN_OUTPUTS>(a, group.expert, group.rows, 0, a.hidden, a.inner, lds.routed, [&](u32 row) {
      return row * a.top_k + (group.slots >> 4 * row & 15);
    });
  }
  if (a.shared_inner == 0) return;
  const auto shared = [&](auto format) INLINED {
    down_group<decltype(format), ROWS, 1>(a, a.shared, (1u << a.rows) - 1, wave(), a.shared_hidden, a.shared_inner,
                                          lds.shared, [](u32 row) { return row; });
  };
  if constexpr (!__is_same(Format, Q8_0Format))
    if (a.shared_q8_0) return shared(Q8_0Format{});
  shared(Format{});
}

template<class Format, u32 ROWS> DEV void moe_down(const MoeDownArgs& a, DownLds<ROWS>& lds) {
  if constexpr (ROWS == 1) {
    down_one_row<Format>(a, lds);
  } else {
    previous_launch();
    down_rows<Format, ROWS>(a, lds);
  }
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
  KERNEL_AHEAD_TIMES(256, ROWS == 1 ? 4 : 0, moe_gate_up_##format##_r##ROWS, MoeGateUpArgs) {           \
    LDS(GateUpLds, lds);                                                                                \
    moe_gate_up<Format, ROWS>(a, lds);                                                                  \
  }                                                                                                     \
  KERNEL_AHEAD_TIMES(ROWS == 1 ? WAVE * DOWN_WAVES : 256, ROWS == 1 ? 2 : 0,                            \
                     moe_down_##format##_r##ROWS, MoeDownArgs) {                                        \
    LDS(DownLds<ROWS>, lds);                                                                            \
    moe_down<Format, ROWS>(a, lds);                                                                     \
  }
#define MOE_FEW_FORMAT(format, Format) MOE_FEW(format, Format, 1) MOE_FEW(format, Format, 8)
