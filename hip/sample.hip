// From rows of logits to ids (spec 2.7, 6.3). Every choice is a row of device data: one graph serves every request.
#include "abi.h"
#include "sample.h"

// Per group of 256 ids g of row r: maxima[r][g] = greatest key of logits, sums[r][g] = sum exp(logit - that number).
// With params: adjusted[r] = logits[r] after
//   each id of the history:  l < 0 ? l * repetition : l / repetition; with a count > 0 - (presence + frequency * count)
//   each id with a bias:     l + bias
//   each id that the mask forbids: minus infinity (a NaN stays, so that damage is seen)
// and adjusted_maxima[r][g] = greatest key of adjusted.
// grid rows * ceil(vocabulary / 2048), block 256: a wave a group; LDS 8 KiB; rows of logits aligned to 16.
// adjusted and both maxima exact, sums ordered. Oracle: engine/sampler.rs adjust, engine/logits.rs LogSoftmax::of.
enum { CHUNK = 2048 };
struct AdjustLds { float logits[CHUNK]; };

KERNEL(256, sample_adjust, SampleAdjustArgs) {
  LDS(AdjustLds, lds);
  const u32 chunks = (a.vocabulary + CHUNK - 1) / CHUNK, row = bidx() / chunks, start = bidx() % chunks * CHUNK;
  const u32 groups = (a.vocabulary + GROUP - 1) / GROUP, group = start / GROUP + wave();
  const Logits logits{a.logits + static_cast<u64>(row) * a.vocabulary, a.vocabulary, groups};
  const bool present = group < groups;
  const GroupNumbers numbers = load_numbers(logits, group);
  const GroupKeys keys = keys_of(numbers, a.vocabulary, group);
  u32 most = 0;
  UNROLL for (u32 i = 0; i < 8; i++) most = keys.key[i / 4][i % 4] > most ? keys.key[i / 4][i % 4] : most;
  most = wave_max_u32(most);
  const float high = number_of(most);
  float sum = 0.f;
  UNROLL for (u32 i = 0; i < 8; i++) {
    const u32 key = keys.key[i / 4][i % 4];
    if (key != 0 && most != KEY_MINUS_INFINITY) sum += key == most ? 1.f : exp_(number_of(key) - high);
  }
  sum = wave_sum(sum);
  const u64 place = static_cast<u64>(row) * groups + group;
  if (present && lane() == 0) {
    a.maxima[place] = most;
    a.sums[place] = sum;
  }
  if (a.params == nullptr) return;

  // A group in LDS as in memory; ids behind the last are there too and nobody reads them.
  f32x4* own = reinterpret_cast<f32x4*>(lds.logits + wave() * GROUP);
  UNROLL for (u32 half = 0; half < 2; half++) own[half * WAVE + lane()] = numbers.part[half];
  barrier();
  const SampleParams params = load_uniform(a.params + row);
  const SampleCount* history = global(params.history);
  for (u32 i = tid(); i < params.history_count; i += 256) {
    const SampleCount entry = history[i];
    if (entry.id - start >= CHUNK) continue;
    float l = lds.logits[entry.id - start];
    l = l < 0.f ? l * params.repetition_penalty : l / params.repetition_penalty;
    if (entry.count > 0) l = l - (params.presence_penalty + params.frequency_penalty * static_cast<float>(entry.count));
    lds.logits[entry.id - start] = l;
  }
  barrier();
  const SampleBias* bias = global(params.bias);
  for (u32 i = tid(); i < params.bias_count; i += 256)
    if (bias[i].id - start < CHUNK) lds.logits[bias[i].id - start] += bias[i].bias;
  barrier();
  const u32* mask = global(params.mask);
  most = 0;
  UNROLL for (u32 half = 0; half < 2; half++) {
    const u32 id = id_of(group, half, 0);
    if (id >= a.vocabulary) continue;
    f32x4 v = own[half * WAVE + lane()];
    const u32 allowed = mask == nullptr ? 15u : mask[id / 32] >> id % 32;
    UNROLL for (u32 j = 0; j < 4; j++) {
      if ((allowed >> j & 1) == 0 && v.v[j] == v.v[j]) v.v[j] = -__builtin_inff();
      const u32 key = key_of(v.v[j]);
      most = key > most ? key : most;
    }
    *reinterpret_cast<f32x4*>(a.adjusted + static_cast<u64>(row) * a.vocabulary + id) = v;
  }
  most = wave_max_u32(most);
  if (present && lane() == 0) a.adjusted_maxima[place] = most;
}

// Philox4x32-10 (Salmon et al., SC 2011): key = seed, counter = (step, 0, 0); the first two words of the block.
DEV u64 random_of(u64 seed, u64 step) {
  u32 c0 = static_cast<u32>(step), c1 = static_cast<u32>(step >> 32), c2 = 0, c3 = 0;
  u32 k0 = static_cast<u32>(seed), k1 = static_cast<u32>(seed >> 32);
  for (u32 round = 0; round < 10; round++) {
    const u64 a = 0xd2511f53ull * c0, b = 0xcd9e8d57ull * c2;
    c0 = static_cast<u32>(b >> 32) ^ c1 ^ k0;
    c2 = static_cast<u32>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<u32>(b);
    c3 = static_cast<u32>(a);
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return static_cast<u64>(c1) << 32 | c0;
}
// floor(a * b / 2^64)
DEV u64 multiply_high(u64 a, u64 b) {
  const u64 al = a & 0xffffffffu, ah = a >> 32, bl = b & 0xffffffffu, bh = b >> 32;
  const u64 middle = ah * bl + (al * bl >> 32), other = al * bh + (middle & 0xffffffffu);
  return ah * bh + (middle >> 32) + (other >> 32);
}

// The lowest id with the greatest key.
DEV u32 greatest(SearchLds& lds, const Logits& logits, u32 most) {
  return pick(lds, logits, most, [](u32) { return 1ull; }, [](u64) { return 0ull; });
}
// Whether there is anything to choose: if not, the result is written.
DEV bool choosable(SearchLds& lds, const Logits& logits, u32 most, SampleResult* result) {
  if (most > KEY_MINUS_INFINITY && most <= KEY_INFINITY) return true;
  const bool nan = most > KEY_INFINITY;
  const u32 id = nan ? greatest(lds, logits, most) : 0;
  if (tid() == 0) *result = SampleResult{id, nan ? 1u : 2u};
  return false;
}

// results[r] = the lowest id among those with the greatest logit.
// grid (rows), block 1024; LDS 21 KiB; behind sample_adjust, with or without params. It reads the groups that hold it.
// Exact. Oracle: engine/sampler.rs pick at temperature 0.
KERNEL(1024, sample_argmax, SampleDrawArgs) {
  LDS(SearchLds, lds);
  const u32 groups = (a.vocabulary + GROUP - 1) / GROUP;
  const Logits logits{a.logits + static_cast<u64>(bidx()) * a.vocabulary, a.vocabulary, groups};
  const u32 most = load_maxima(lds, a.maxima + static_cast<u64>(bidx()) * groups, groups);
  if (!choosable(lds, logits, most, a.results + bidx())) return;
  const u32 id = greatest(lds, logits, most);
  if (tid() == 0) a.results[bidx()] = SampleResult{id, 0};
}

// results[r] = the id that a number of the row's own falls on, after temperature, top-k, top-p and min-p, as
// engine/sampler.rs pick has it: filters keep a prefix of the ids in rank order, whose weights add up in that order;
// without any filter they add up in the order of ids.
// grid (rows), block 1024; LDS 21 KiB; behind sample_adjust.
// Weights are integers, floor(2^40 * exp((l - max) / temperature)), so sums, shares and the draw are exact, whatever
// the schedule: top-p ends at ceil(mass * floor(top_p * 2^32) / 2^32), the draw at floor(random * total / 2^64); min-p
// keeps l >= max + temperature * ln(min_p). Top-k is exact. Against real weights a share is off by (|x| + 8) * 2^-24 of
// itself, x the exponent, and by 2^-40 of the greatest for each id: only where top-p, min-p or the draw ends that near
// to an id's limit can the kept set or the id differ. Ordered.
// Oracle: engine/sampler.rs pick with these weights; the random number is random_of, not the host's.
struct Weight {
  u32 most;
  float high, temperature;
  DEV_MEMBER u64 of(const Weight& w, u32 key) {
    if (key == w.most) return 1ull << 40;
    if (w.most == KEY_INFINITY) return 0;
    const float share = exp2_((number_of(key) - w.high) / w.temperature * 1.44269504088896340736f);
    return static_cast<u64>(share * 1099511627776.f);
  }
};

KERNEL(1024, sample_draw, SampleDrawArgs) {
  LDS(SearchLds, lds);
  const u32 groups = (a.vocabulary + GROUP - 1) / GROUP;
  const Logits logits{a.logits + static_cast<u64>(bidx()) * a.vocabulary, a.vocabulary, groups};
  const u32 most = load_maxima(lds, a.maxima + static_cast<u64>(bidx()) * groups, groups);
  if (!choosable(lds, logits, most, a.results + bidx())) return;
  const SampleParams params = load_uniform(a.params + bidx());
  const Weight weight{most, number_of(most), params.temperature};
  const auto weigh = [&](u32 key) { return Weight::of(weight, key); };
  const auto one = [](u32) { return 1ull; };
  const u64 random = random_of(params.seed, params.step);
  const bool cut = params.top_k != 0 && params.top_k < a.vocabulary;
  u32 id;
  if (params.temperature == 0.f) {
    id = greatest(lds, logits, most);
  } else if (!cut && params.top_p >= 1.f && params.min_p <= 0.f) {
    id = pick(lds, logits, 0, weigh, [&](u64 total) { return multiply_high(random, total); });
  } else {
    // Kept: every key from `floor` up, of `floor` itself `ties` (all, if it is 0). Groups below are not read.
    u32 floor = 0;
    u64 ties = 0;
    if (cut) {
      const Place last = descend(lds, logits, floor_of(lds, groups, params.top_k), params.top_k - 1, one);
      floor = last.key;
      ties = params.top_k - last.before;
    }
    const auto mass_of = [&](u32 from, u64 count) {
      // With ties, those of `from` count `count` times.
      const u64 above = total_of(lds, logits, count == 0 ? from : from + 1, weigh);
      return count == 0 ? above : above + count * weigh(from);
    };
    u64 mass = mass_of(floor, ties);
    if (params.top_p < 1.f) {
      const u64 share = static_cast<u64>(params.top_p * 4294967296.f), low = (mass & 0xffffffffu) * share;
      const u64 enough = (mass >> 32) * share + (low >> 32) + ((low & 0xffffffffu) != 0 ? 1 : 0);
      const u64 target = enough == 0 ? 0 : enough - 1;
      const Place last = descend(lds, logits, floor, target, weigh);
      const u64 each = weigh(last.key);
      floor = last.key;
      ties = (target - last.before) / each + 1;
      mass = last.before + ties * each;
    }
    if (params.min_p > 0.f) {
      const u32 key = key_of(weight.high + params.temperature * log_(params.min_p)), least = key < most ? key : most;
      if (least > floor) {
        floor = least;
        mass = mass_of(floor, 0);
      }
    }
    const u64 target = multiply_high(random, mass);
    const Place chosen = descend(lds, logits, floor, target, weigh);
    const u64 tie = (target - chosen.before) / weigh(chosen.key);
    const auto equal = [&](u32 key) { return key == chosen.key ? 1ull : 0ull; };
    id = pick(lds, logits, chosen.key, equal, [&](u64) { return tie; });
  }
  if (tid() == 0) a.results[bidx()] = SampleResult{id, 0};
}

// chosen[r] = ln p of results[r].id, top_ids[r], top[r] = the top_count most likely ids and their ln p, best first;
// p = softmax of the logits as they are.
// grid (rows), block 1024; LDS 21 KiB; behind sample_adjust and the choice. With top_count 0 it reads one logit.
// Ids exact, ln p ordered. Oracle: engine/logits.rs LogSoftmax.
enum { MAX_TOP = 20 };
struct LogprobLds {
  SearchLds search;
  float red[WAVES];
  u32 count;               // of ids above the last key
  u32 keys[MAX_TOP];
  u32 ids[MAX_TOP];
};

KERNEL(1024, sample_logprobs, SampleLogprobsArgs) {
  LDS(LogprobLds, lds);
  SearchLds& search = lds.search;
  const u32 groups = (a.vocabulary + GROUP - 1) / GROUP;
  const Logits logits{a.logits + static_cast<u64>(bidx()) * a.vocabulary, a.vocabulary, groups};
  const u32 most = load_maxima(search, a.maxima + static_cast<u64>(bidx()) * groups, groups);
  const float high = number_of(most);
  float part = 0.f;
  if (tid() < groups) {
    const u32 own = search.maxima[tid()];
    part = a.sums[static_cast<u64>(bidx()) * groups + tid()] * (own == most ? 1.f : exp_(number_of(own) - high));
  }
  const float log_sum = log_(block_sum<1024>(part, lds.red));
  const auto log_probability = [&](u32 key) { return (key == most ? 0.f : number_of(key) - high) - log_sum; };
  if (tid() == 0) a.chosen[bidx()] = log_probability(key_of(logits.row[a.results[bidx()].id]));
  const u32 asked = load_uniform(a.params + bidx()).top_count;
  const u32 wanted = asked < a.vocabulary ? asked : a.vocabulary;
  if (wanted == 0) return;

  const Place last = descend(search, logits, floor_of(search, groups, wanted), wanted - 1, [](u32) { return 1ull; });
  const u32 above = static_cast<u32>(last.before);
  // Ids above the last key in any order, for now; ids with that key behind them, in their own order.
  if (tid() == 0) lds.count = 0;
  search.bins[tid()] = 0;
  barrier();
  each_group(search, logits, last.key, [&](const GroupKeys& keys, u32 group) {
    u64 equal = 0;
    UNROLL for (u32 half = 0; half < 2; half++)
      UNROLL for (u32 j = 0; j < 4; j++) {
        const u32 key = keys.key[half][j];
        if (key == last.key) equal++;
        if (key <= last.key) continue;
        const u32 slot = lds_atomic_add(&lds.count, 1u);
        lds.keys[slot] = key;
        lds.ids[slot] = id_of(group, half, j);
      }
    equal = wave_sum_u64(equal);
    if (lane() == 0) search.bins[group] = equal;
  });
  barrier();
  u64 total;
  const u64 own = search.bins[tid()], before = block_through(search, own, total) - own;
  search.bins[tid()] = before;
  barrier();
  each_group(search, logits, last.key, [&](const GroupKeys& keys, u32 group) {
    u64 place = above + search.bins[group];
    UNROLL for (u32 half = 0; half < 2; half++) {
      u64 mine = 0;
      UNROLL for (u32 j = 0; j < 4; j++) mine += keys.key[half][j] == last.key ? 1 : 0;
      const u64 up_to = wave_through(mine);
      u64 slot = place + up_to - mine;
      UNROLL for (u32 j = 0; j < 4; j++) {
        if (keys.key[half][j] != last.key) continue;
        if (slot < wanted) {
          lds.keys[slot] = last.key;
          lds.ids[slot] = id_of(group, half, j);
        }
        slot++;
      }
      place += shfl_u64(up_to, WAVE - 1);
    }
  });
  barrier();
  if (tid() >= wanted) return;
  const u32 key = lds.keys[tid()], id = lds.ids[tid()];
  u32 rank = 0;
  for (u32 i = 0; i < wanted; i++) rank += lds.keys[i] > key || (lds.keys[i] == key && lds.ids[i] < id) ? 1 : 0;
  a.top_ids[static_cast<u64>(bidx()) * MAX_TOP + rank] = id;
  a.top[static_cast<u64>(bidx()) * MAX_TOP + rank] = log_probability(key);
}
