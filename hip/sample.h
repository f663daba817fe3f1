// A row of logits as sampling sees it: keys, groups, and searches in rank order and in the order of ids.
//
// Owns: the order of logits (greatest first, the lowest id among equals) and how a workgroup of 1024 finds a place in
// it. Always true: measures are integers, so every sum is exact and no result depends on who adds first; a group whose
// greatest key is below what is searched is not read.
// Not here: what is measured and why (sample.hip).
#pragma once
#include "dialect/gpu.h"

enum : u32 {
  GROUP = 256,             // consecutive ids, those that a wave reads at once: eight a lane
  MAX_GROUPS = 1024,       // a thread a group
  WAVES = 32,
  BINS = 2048,             // of a digit of a key
  KEY_NAN = 0xffffffffu,
  KEY_INFINITY = 0xff800000u,
  KEY_MINUS_INFINITY = 0x007fffffu
};

// Order of numbers as order of integers: -0 and 0 are one, a NaN is above all.
DEV u32 key_of(float x) {
  const u32 bits = static_cast<u32>(as_i(x + 0.f));
  return x != x ? static_cast<u32>(KEY_NAN) : bits >> 31 ? ~bits : bits | 0x80000000u;
}
DEV float number_of(u32 key) { return as_f(static_cast<i32>(key >> 31 ? key & 0x7fffffffu : ~key)); }

DEV u64 shfl_u64(u64 v, u32 from) {
  return static_cast<u64>(shfl_u32(static_cast<u32>(v >> 32), from)) << 32 | shfl_u32(static_cast<u32>(v), from);
}
template<int M> DEV u64 shfl_xor_u64(u64 v) {
  return static_cast<u64>(shfl_xor_u32<M>(static_cast<u32>(v >> 32))) << 32 | shfl_xor_u32<M>(static_cast<u32>(v));
}
DEV u64 wave_sum_u64(u64 v) {
  v += shfl_xor_u64<16>(v); v += shfl_xor_u64<8>(v); v += shfl_xor_u64<4>(v);
  v += shfl_xor_u64<2>(v);  v += shfl_xor_u64<1>(v);
  return v;
}
// Sum over this lane and those before it.
DEV u64 wave_through(u64 v) {
  UNROLL for (u32 step = 1; step < WAVE; step *= 2) {
    const u64 before = shfl_u64(v, lane() - step);
    if (lane() >= step) v += before;
  }
  return v;
}

struct SearchLds {
  u32 maxima[MAX_GROUPS];  // greatest key of each group, 0 behind the last
  u64 bins[BINS];
  u64 waves[WAVES];
  u64 before;              // measure above what was found
  u32 found;
};

// Sum over the threads up to this one, and over all of them. Begins and ends with a barrier.
DEV u64 block_through(SearchLds& lds, u64 v, u64& total) {
  const u64 through = wave_through(v);
  barrier();
  if (lane() == WAVE - 1) lds.waves[wave()] = through;
  barrier();
  const u64 waves = wave_through(lds.waves[lane()]);
  barrier();
  total = shfl_u64(waves, WAVE - 1);
  const u64 earlier = shfl_u64(waves, wave() - 1);
  return wave() == 0 ? through : earlier + through;
}
DEV u64 block_total(SearchLds& lds, u64 v) {
  v = wave_sum_u64(v);
  barrier();
  if (lane() == 0) lds.waves[wave()] = v;
  barrier();
  v = wave_sum_u64(lds.waves[lane()]);
  barrier();
  return v;
}

struct Logits {
  const float* row;
  u32 vocabulary;          // a multiple of 4
  u32 groups;
};

// This lane's eight logits of a group: four in the order of their ids, and the four 128 further. Where there is no id
// any more, others stand in.
struct GroupNumbers { f32x4 part[2]; };
DEV u32 id_of(u32 group, u32 half, u32 j) { return group * GROUP + half * (GROUP / 2) + lane() * 4 + j; }
DEV GroupNumbers load_numbers(const Logits& logits, u32 group) {
  GroupNumbers numbers;
  UNROLL for (u32 half = 0; half < 2; half++) {
    const u32 id = id_of(group, half, 0);
    numbers.part[half] = *reinterpret_cast<const f32x4*>(logits.row + (id < logits.vocabulary ? id : 0));
  }
  return numbers;
}
// Their keys; 0 where there is no id any more.
struct GroupKeys { u32 key[2][4]; };
DEV GroupKeys keys_of(const GroupNumbers& numbers, u32 vocabulary, u32 group) {
  GroupKeys keys;
  UNROLL for (u32 half = 0; half < 2; half++) {
    const u32 present = id_of(group, half, 0) < vocabulary ? ~0u : 0u;
    UNROLL for (u32 j = 0; j < 4; j++) keys.key[half][j] = key_of(numbers.part[half].v[j]) & present;
  }
  return keys;
}
DEV GroupKeys load_group(const Logits& logits, u32 group) {
  return keys_of(load_numbers(logits, group), logits.vocabulary, group);
}
// f(keys, group) in the wave that a group belongs to, for every group with a key of at least `floor`.
template<class F> DEV void each_group(const SearchLds& lds, const Logits& logits, u32 floor, F f) {
  for (u32 group = wave(); group < logits.groups; group += WAVES)
    if (uniform(lds.maxima[group]) >= floor) f(load_group(logits, group), group);
}

// Puts the groups' greatest keys into LDS and returns the greatest of all.
DEV u32 load_maxima(SearchLds& lds, const u32* maxima, u32 groups) {
  const u32 own = tid() < groups ? maxima[tid()] : 0;
  lds.maxima[tid()] = own;
  const u32 most = wave_max_u32(own);
  if (lane() == 0) lds.waves[wave()] = most;
  barrier();
  const u32 all = wave_max_u32(static_cast<u32>(lds.waves[lane()]));
  barrier();
  return all;
}

// A key that at least `count` of the row's ids reach: the count-th greatest of the groups' greatest, or the least key.
DEV u32 floor_of(SearchLds& lds, u32 groups, u32 count) {
  if (count > groups) return 0;
  const u32 own = lds.maxima[tid()];
  u32 floor = 0;
  for (u32 bit = 1u << 31; bit > 0; bit >>= 1) {
    const u32 reach = static_cast<u32>(__builtin_popcount(wave_ballot(own >= (floor | bit))));
    if (lane() == 0) lds.waves[wave()] = reach;
    barrier();
    if (static_cast<u32>(wave_sum(static_cast<i32>(lds.waves[lane()]))) >= count) floor |= bit;
    barrier();
  }
  return floor;
}

// sum of measure(key) over all ids whose key is at least `floor`.
template<class M> DEV u64 total_of(SearchLds& lds, const Logits& logits, u32 floor, M measure) {
  u64 sum = 0;
  each_group(lds, logits, floor, [&](const GroupKeys& keys, u32) {
    UNROLL for (u32 half = 0; half < 2; half++)
      UNROLL for (u32 j = 0; j < 4; j++)
        if (keys.key[half][j] >= floor && keys.key[half][j] != 0) sum += measure(keys.key[half][j]);
  });
  return block_total(lds, sum);
}

// In rank order, the first id up to which measures add to more than `target`: its key, and the measure of all keys
// above it. Only ids with a key of at least `floor` count; their measures add to more than `target`.
// Three digits of the key from the top, each by a histogram of measures.
struct Place { u32 key; u64 before; };
template<class M> DEV Place descend(SearchLds& lds, const Logits& logits, u32 floor, u64 target, M measure) {
  const u32 t = tid();
  Place place{0, 0};
  for (u32 digit = 0; digit < 3; digit++) {
    const u32 shift = digit == 0 ? 21 : digit == 1 ? 10 : 0, mask = digit == 2 ? 1023 : 2047;
    const u32 known = digit == 0 ? 0 : ~0u << (digit == 1 ? 21 : 10);  // bits above this digit
    lds.bins[t] = 0;
    lds.bins[t + BINS / 2] = 0;
    barrier();
    each_group(lds, logits, floor, [&](const GroupKeys& keys, u32) {
      UNROLL for (u32 half = 0; half < 2; half++)
        UNROLL for (u32 j = 0; j < 4; j++) {
          const u32 key = keys.key[half][j];
          if (key == 0 || key < floor || (key & known) != place.key) continue;
          const u64 m = measure(key);
          if (m != 0) lds_atomic_add(&lds.bins[key >> shift & mask], m);
        }
    });
    barrier();
    const u32 upper = BINS - 1 - 2 * t;
    const u64 first = lds.bins[upper], own = first + lds.bins[upper - 1];
    u64 total;
    const u64 before = place.before + block_through(lds, own, total) - own;
    if (before <= target && before + own > target) {
      const bool in_first = before + first > target;
      lds.found = in_first ? upper : upper - 1;
      lds.before = in_first ? before : before + first;
    }
    barrier();
    place.key |= lds.found << shift;
    place.before = lds.before;
    barrier();
  }
  return place;
}

// The id up to which measures, in the order of ids, add to more than target(total). Ids below `floor` do not count.
template<class M, class T> DEV u32 pick(SearchLds& lds, const Logits& logits, u32 floor, M measure, T target) {
  const auto lane_sum = [&](const GroupKeys& keys, u32 half) {
    u64 sum = 0;
    UNROLL for (u32 j = 0; j < 4; j++)
      if (keys.key[half][j] >= floor && keys.key[half][j] != 0) sum += measure(keys.key[half][j]);
    return sum;
  };
  lds.bins[tid()] = 0;
  barrier();
  each_group(lds, logits, floor, [&](const GroupKeys& keys, u32 group) {
    const u64 sum = wave_sum_u64(lane_sum(keys, 0) + lane_sum(keys, 1));
    if (lane() == 0) lds.bins[group] = sum;
  });
  barrier();
  u64 total;
  const u64 own = lds.bins[tid()], through = block_through(lds, own, total), wanted = target(total);
  if (through > wanted && through - own <= wanted) {
    lds.found = tid();
    lds.before = through - own;
  }
  barrier();
  const u32 group = uniform(lds.found);
  u64 before = lds.before;
  barrier();
  if (wave() == 0) {
    const GroupKeys keys = load_group(logits, group);
    UNROLL for (u32 half = 0; half < 2; half++) {
      const u64 mine = lane_sum(keys, half), up_to = wave_through(mine);
      u64 sum = before + up_to - mine;
      UNROLL for (u32 j = 0; j < 4; j++) {
        const u32 key = keys.key[half][j];
        const u64 m = key >= floor && key != 0 ? measure(key) : 0;
        if (sum <= wanted && sum + m > wanted) lds.found = id_of(group, half, j);
        sum += m;
      }
      before += shfl_u64(up_to, WAVE - 1);
    }
  }
  barrier();
  const u32 id = lds.found;
  barrier();
  return id;
}
