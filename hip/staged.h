// A few rows of activations in LDS, for products that waves of a workgroup share them in: lanes read them a group of weights
// apart, which out of memory would cost a line for every lane.
//
// Owns: where an element lies, a lane's products of groups of weights with staged rows.
// Always true: eight neighbouring lanes' 16-byte reads meet all banks once, whether their groups are 8, 16 or 32 elements;
// sums have the same order for any number of rows.
// Not here: which weights, sums across lanes (gemv.h, moe_few.h, hyper_gate.h).
#pragma once
#include "formats.h"

// Four words are left out after each 32.
DEV u32 staged_slot(u32 element) { return element + element / 32 * 4; }
template<u32 COUNT> struct alignas(16) Staged { float v[COUNT / 32 * 36]; };

// Copies x[0 .. count), count a multiple of 4, by THREADS threads of which this is number `thread`.
template<u32 THREADS, u32 COUNT> DEV void stage_row(Staged<COUNT>& lds, const float* x, u32 count, u32 thread) {
  for (u32 i = 4 * thread; i < count; i += 4 * THREADS)
    *reinterpret_cast<f32x4*>(&lds.v[staged_slot(i)]) = *reinterpret_cast<const f32x4*>(x + i);
}

template<class Format, u32 OUT>
DEV void load_group(typename Format::Raw (&raw)[OUT], const WeightRow (&w)[OUT], u32 group) {
  UNROLL for (u32 o = 0; o < OUT; o++) raw[o] = Format::load(w[o].bytes, w[o].scales, group);
}
// sum[r][o] += w[o] . x[r] over a group of OUT rows of weights; `lds` holds x[r] from element `first` on.
template<class Format, u32 ROWS, u32 OUT, u32 COUNT>
DEV void add_group(float (&sum)[ROWS][OUT], const typename Format::Raw (&raw)[OUT], u32 group,
                   const Staged<COUNT> (&lds)[ROWS], u32 first) {
  UNROLL for (u32 p = 0; p < Format::GROUP / 8; p++) {
    const u32 at = staged_slot(Format::at(group, p) - first);
    const auto values = [&](u32 r) { return reinterpret_cast<const f32x4*>(&lds[r].v[at]); };
    if constexpr (ROWS == 1) {
      const f32x4 v[2] = {values(0)[0], values(0)[1]};
      UNROLL for (u32 o = 0; o < OUT; o++) {
        float weights[8];
        Format::part(raw[o], group, p, weights);
        UNROLL for (u32 i = 0; i < 8; i++) sum[0][o] = fma_(weights[i], v[i / 4].v[i % 4], sum[0][o]);
      }
    } else {
      float weights[OUT][8];
      UNROLL for (u32 o = 0; o < OUT; o++) Format::part(raw[o], group, p, weights[o]);
      UNROLL for (u32 r = 0; r < ROWS; r++)
        UNROLL for (u32 i = 0; i < 2; i++) {
          const f32x4 v = values(r)[i];
          UNROLL for (u32 o = 0; o < OUT; o++)
            UNROLL for (u32 j = 0; j < 4; j++) sum[r][o] = fma_(weights[o][4 * i + j], v.v[j], sum[r][o]);
        }
    }
    // One part at a time.
    keep_order();
  }
}

// The weights of a lane's first groups, loaded before there is anything to multiply them by.
template<class Format, u32 OUT> struct EarlyGroups {
  enum : u32 { TURNS = u32{Format::GROUP} < 32 ? 2 : 1 };
  typename Format::Raw raw[TURNS][OUT];
};
template<class Format, u32 OUT>
DEV void load_early(EarlyGroups<Format, OUT>& early, const WeightRow (&w)[OUT], u32 group, u32 step, u32 groups) {
  UNROLL for (u32 turn = 0; turn < early.TURNS; turn++)
    if (group + turn * step < groups) load_group<Format>(early.raw[turn], w, group + turn * step);
}

// sum[r][o] = w[o] . x[r] over groups `group`, group + step, … below `groups`, a lane's own, of which `early` has the
// first; by a workgroup of 256 whose waves read the same rows, of which stage_first has staged what fits: every thread
// calls both.
template<u32 ROWS, u32 COUNT>
DEV void stage_rows(Staged<COUNT> (&lds)[ROWS], const float* const (&x)[ROWS], u32 first, u32 count) {
  UNROLL for (u32 r = 0; r < ROWS; r++) stage_row<256>(lds[r], x[r] + first, count, tid());
}
template<u32 ROWS, u32 COUNT> DEV void stage_first(Staged<COUNT> (&lds)[ROWS], const float* const (&x)[ROWS], u32 inputs) {
  stage_rows(lds, x, 0, inputs < COUNT ? inputs : COUNT);
}
template<class Format, u32 ROWS, u32 OUT, u32 COUNT>
DEV void staged_dots(float (&sum)[ROWS][OUT], const EarlyGroups<Format, OUT>& early, const WeightRow (&w)[OUT],
                     const float* const (&x)[ROWS], u32 inputs, u32 group, u32 step, u32 groups, Staged<COUNT> (&lds)[ROWS]) {
  static_assert(COUNT % 256 == 0, "a group's elements are staged together");
  UNROLL for (u32 r = 0; r < ROWS; r++) UNROLL for (u32 o = 0; o < OUT; o++) sum[r][o] = 0.f;
  u32 first = 0, count = inputs < COUNT ? inputs : COUNT, staged = count / Format::GROUP;
  barrier();
  // Not turns of the loop: weights that are loaded in one turn for the next take half as many registers again.
  UNROLL for (u32 turn = 0; turn < early.TURNS; turn++)
    if (group < groups && group < staged) {
      add_group<Format>(sum, early.raw[turn], group, lds, 0);
      group += step;
    }
  while (true) {
    for (; group < groups && group < staged; group += step) {
      typename Format::Raw raw[OUT];
      load_group<Format>(raw, w, group);
      add_group<Format>(sum, raw, group, lds, first);
    }
    first += COUNT;
    if (first >= inputs) return;
    count = inputs - first < COUNT ? inputs - first : COUNT;
    staged = (first + count) / Format::GROUP;
    barrier();
    stage_rows(lds, x, first, count);
    barrier();
  }
}
