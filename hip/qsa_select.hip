// Which complete blocks a row reads (spec 2.4.1): the best by score, the lowest block first among equals.
#include "abi.h"

// grid and block 256; a workgroup reads the keys of one list, which stay in LDS where they fit.
// Radix selection over the ordered bits of the score, eight at a time from the top. Counters have 32 bits: ReLU makes
// exact zeros common. Exact, whatever the schedule. Oracle: backend/cpu/select.rs select.
enum { PART_BLOCKS = 4096, LIST_KEYS = 8192, WAVES = 8, AHEAD = 8 };  // AHEAD: scores that a thread waits for at once
template<u32 KEYS_> struct SelectLds {
  enum : u32 { KEYS = KEYS_ };
  u32 keys[KEYS];
  u32 histogram[256];
  u32 above[WAVES];        // of a wave: sum of its bins, then winners above the threshold
  u32 equal[WAVES];
  u32 prefix;              // bits of the threshold that are known
  u32 remaining;           // winners still to find among keys with that prefix
};

// Order of floats as order of integers, as f32::total_cmp has it.
DEV u32 ordered_bits(float x) {
  const u32 bits = static_cast<u32>(as_i(x));
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// emit(w, i) for the min(budget, n) greatest of score(0) .. score(n - 1), the lowest i first among equals; w counts them
// by ascending i.
template<class Lds, class Score, class Emit> DEV void select_greatest(Lds& lds, u32 n, u32 budget, Score score, Emit emit) {
  const u32 t = tid();
  if (n <= budget) {
    for (u32 i = t; i < n; i += 256) emit(i, i);
    return;
  }
  const bool in_lds = n <= Lds::KEYS;
  if (in_lds)
    for (u32 from = t; from < n; from += 256 * AHEAD) {
      float read[AHEAD];
      UNROLL for (u32 j = 0; j < AHEAD; j++) read[j] = score(from + 256 * j < n ? from + 256 * j : n - 1);
      UNROLL for (u32 j = 0; j < AHEAD; j++)
        if (from + 256 * j < n) lds.keys[from + 256 * j] = ordered_bits(read[j]);
    }
  if (t == 0) { lds.prefix = 0; lds.remaining = budget; }
  const auto key_at = [&](u32 i) { return in_lds ? lds.keys[i] : ordered_bits(score(i)); };

  for (u32 shift = 32; shift > 0;) {
    shift -= 8;
    lds.histogram[t] = 0;
    barrier();
    const u32 prefix = lds.prefix, remaining = lds.remaining;
    for (u32 i = t; i < n; i += 256) {
      const u32 key = key_at(i);
      // The bits above this digit: none in the first pass.
      if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8)) lds_atomic_add(&lds.histogram[key >> shift & 255], 1u);
    }
    barrier();
    // Thread t holds bin 255 - t: `through` counts all keys in its bin and above.
    const u32 own = lds.histogram[255 - t];
    u32 through = own;
    UNROLL for (u32 step = 1; step < WAVE; step *= 2) {
      const u32 before = shfl_u32(through, lane() - step);
      if (lane() >= step) through += before;
    }
    if (lane() == WAVE - 1) lds.above[wave()] = through;
    barrier();
    for (u32 w = 0; w < wave(); w++) through += lds.above[w];
    if (through >= remaining && through - own < remaining) {
      lds.prefix = prefix | (255 - t) << shift;
      lds.remaining = remaining - (through - own);
    }
    barrier();
  }

  // Winners in the order of their blocks: a wave owns a run of blocks.
  const u32 threshold = lds.prefix, ties = lds.remaining;
  const u32 run = (n + WAVES * WAVE - 1) / (WAVES * WAVE) * WAVE, start = wave() * run, end = start + run;
  const auto ballots = [&](u32 from, u32& above, u32& equal) {
    const u32 i = from + lane();
    const u32 key = i < n ? key_at(i) : 0;
    above = wave_ballot(i < n && key > threshold);
    equal = wave_ballot(i < n && key == threshold);
  };
  u32 above_before = 0, equal_before = 0;
  for (u32 from = start; from < end; from += WAVE) {
    u32 above, equal;
    ballots(from, above, equal);
    above_before += static_cast<u32>(__builtin_popcount(above));
    equal_before += static_cast<u32>(__builtin_popcount(equal));
  }
  if (lane() == 0) { lds.above[wave()] = above_before; lds.equal[wave()] = equal_before; }
  barrier();
  above_before = equal_before = 0;
  for (u32 w = 0; w < wave(); w++) { above_before += lds.above[w]; equal_before += lds.equal[w]; }
  const u32 lower = (1u << lane()) - 1;
  for (u32 from = start; from < end; from += WAVE) {
    u32 above, equal;
    ballots(from, above, equal);
    const u32 my_above = above_before + static_cast<u32>(__builtin_popcount(above & lower));
    const u32 my_equal = equal_before + static_cast<u32>(__builtin_popcount(equal & lower));
    const bool wins = above >> lane() & 1 || (equal >> lane() & 1 && my_equal < ties);
    if (wins) emit(my_above + (my_equal < ties ? my_equal : ties), from + lane());
    above_before += static_cast<u32>(__builtin_popcount(above));
    equal_before += static_cast<u32>(__builtin_popcount(equal));
  }
}

// Blocks that row `row` of the launch may read, and its scores.
struct SelectRow { u32 complete; const float* scores; };
DEV SelectRow select_row(const QsaSelectArgs& a, u32 row) {
  SelectRow r;
  r.complete = (a.positions[a.first + row] + 1) / a.ratio;
  r.scores = a.scores + static_cast<u64>(row) * a.max_blocks;
  return r;
}

// candidates[r][p] = the best min(budget, blocks) of the complete blocks of part p of PART_BLOCKS, ascending. They contain
// the row's best. Nothing for rows with one part, and no gaps: all parts but a row's last are full.
// grid (count * parts); LDS 18 KiB.
KERNEL(256, qsa_narrow, QsaSelectArgs) {
  LDS(SelectLds<PART_BLOCKS>, lds);
  const u32 row = bidx() / a.parts, part = bidx() % a.parts, first = part * PART_BLOCKS;
  const SelectRow r = select_row(a, row);
  if (r.complete <= PART_BLOCKS || first >= r.complete) return;
  const u32 n = r.complete - first < PART_BLOCKS ? r.complete - first : PART_BLOCKS;
  u32* candidates = a.candidates + (static_cast<u64>(row) * a.parts + part) * a.budget;
  select_greatest(lds, n, a.budget, [&](u32 i) { return r.scores[first + i]; },
                  [&](u32 place, u32 i) { candidates[place] = first + i; });
}

// blocks[r] = the min(budget, n) complete blocks with the greatest scores[r - first], ascending; counts[r] their number,
// n = (positions[r] + 1) / ratio. With n <= budget all are taken and no score is read; with more than PART_BLOCKS and
// parts != 0, candidates are read, which qsa_narrow must have found.
// grid (count); LDS 34 KiB.
KERNEL(256, qsa_select, QsaSelectArgs) {
  LDS(SelectLds<LIST_KEYS>, lds);
  const u32 row = bidx();
  const SelectRow r = select_row(a, row);
  u32* blocks = a.blocks + static_cast<u64>(a.first + row) * a.budget;
  if (tid() == 0) a.counts[a.first + row] = r.complete < a.budget ? r.complete : a.budget;
  if (r.complete <= PART_BLOCKS || a.parts == 0) {
    select_greatest(lds, r.complete, a.budget, [&](u32 i) { return r.scores[i]; },
                    [&](u32 place, u32 i) { blocks[place] = i; });
    return;
  }
  const u32* candidates = a.candidates + static_cast<u64>(row) * a.parts * a.budget;
  const u32 full = r.complete / PART_BLOCKS, rest = r.complete % PART_BLOCKS;
  const u32 n = full * a.budget + (rest < a.budget ? rest : a.budget);
  select_greatest(lds, n, a.budget, [&](u32 i) { return r.scores[candidates[i]]; },
                  [&](u32 place, u32 i) { blocks[place] = candidates[i]; });
}
