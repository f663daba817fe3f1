// Which complete blocks a row reads (spec 2.4.1): the best by score, the lowest block first among equals.
#include "abi.h"

// blocks[r] = the min(budget, n) complete blocks with the greatest scores[r - first], ascending; counts[r] their number,
// n = (positions[r] + 1) / ratio. With n <= budget all are taken and no score is read.
// grid (count), block 256: a workgroup a row; LDS 62 KiB.
// Radix selection over the ordered bits of the score, eight at a time from the top; scores are kept in LDS up to
// LDS_SCORES blocks and read from memory beyond. Counters have 32 bits: ReLU makes exact zeros common.
// Exact, whatever the schedule. Oracle: backend/cpu/select.rs select.
enum { LDS_SCORES = 15360, WAVES = 8 };
struct SelectLds {
  u32 keys[LDS_SCORES];
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

KERNEL_BIG_LDS(qsa_select, SelectLds)
KERNEL(256, qsa_select, QsaSelectArgs) {
  LDS_BIG(SelectLds, lds);
  const u32 row = a.first + bidx(), n = (a.positions[row] + 1) / a.ratio, t = tid();
  u32* blocks = a.blocks + static_cast<u64>(row) * a.budget;
  if (t == 0) a.counts[row] = n < a.budget ? n : a.budget;
  if (n <= a.budget) {
    for (u32 i = t; i < n; i += 256) blocks[i] = i;
    return;
  }
  const float* scores = a.scores + static_cast<u64>(bidx()) * a.max_blocks;
  const bool in_lds = n <= LDS_SCORES;
  if (in_lds)
    for (u32 i = t; i < n; i += 256) lds.keys[i] = ordered_bits(scores[i]);
  if (t == 0) { lds.prefix = 0; lds.remaining = a.budget; }
  const auto key_at = [&](u32 i) { return in_lds ? lds.keys[i] : ordered_bits(scores[i]); };

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
    if (wins) blocks[my_above + (my_equal < ties ? my_equal : ties)] = from + lane();
    above_before += static_cast<u32>(__builtin_popcount(above));
    equal_before += static_cast<u32>(__builtin_popcount(equal));
  }
}
