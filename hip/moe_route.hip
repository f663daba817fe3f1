// Which experts a row goes to (spec 2.5), and the lists of rows that each expert's products start from.
//
// Owns: the router's softmax and choice, groups for few rows, lists and tiles for many.
// Always true: every result is exact, the CPU's bits whatever the schedule: no order depends on an atomic.
// Not here: the router's product (linear.hip), the experts' products (moe_few.hip, moe_gemm.hip).
#include "abi.h"

enum { MAX_EXPERTS = 512, PER_LANE = MAX_EXPERTS / WAVE, ROUTE_ROWS = 8, MAX_TOP = 16 };

DEV u32 bits_of(float x) { return static_cast<u32>(as_i(x)); }

// e^x for x <= 0 with the bits of backend/cpu/activation.rs, where the constants are explained.
DEV float exp_exact(float x) {
  x = -105.f > x ? -105.f : x;
  const float round = 12582912.f;
  const float rounded = fma_(x, 1.44269504088896340736f, round);
  const float n = rounded - round;
  float r = fma_(n, -0.69314575f, x);
  r = fma_(n, -1.4286068e-6f, r);
  float p = fma_(1.989103e-4f, r, 1.3933686e-3f);
  p = fma_(p, r, 8.333311e-3f);
  p = fma_(p, r, 4.1666465e-2f);
  p = fma_(p, r, 0.16666667f);
  p = fma_(p, r, 0.5f);
  p = fma_(r * r, p, r) + 1.f;
  const i32 power = as_i(rounded) - as_i(round), half = power >> 1;
  return p * as_f((half + 127) << 23) * as_f((power - half + 127) << 23);
}

struct RouteLds {
  float e[ROUTE_ROWS][MAX_EXPERTS];
  u32 ids[ROUTE_ROWS * MAX_TOP];
  u32 before[ROUTE_ROWS];    // groups that start at a wave's pairs
};

// The groups of all rows, in the order of their first pairs: a thread a pair.
DEV void route_groups(const MoeRouteArgs& a, RouteLds& lds) {
  const u32 pair = tid(), pairs = a.rows * a.top_k;
  MoeGroup group = {pair < pairs ? lds.ids[pair] : 0, 0, 0, 0};
  bool first = pair < pairs;
  for (u32 row = 0, other = 0; row < a.rows; row++)
    for (u32 slot = 0; slot < a.top_k; slot++, other++) {
      if (lds.ids[other] != group.expert) continue;
      group.rows |= 1u << row;
      group.slots |= slot << 4 * row;
      first = first && other >= pair;
    }
  const u32 starters = wave_ballot(first);
  if (lane() == 0) lds.before[wave()] = static_cast<u32>(__builtin_popcount(starters));
  barrier();
  u32 place = static_cast<u32>(__builtin_popcount(starters & ((1u << lane()) - 1))), total = 0;
  for (u32 w = 0; w < ROUTE_ROWS; w++) {
    if (w < wave()) place += lds.before[w];
    total += lds.before[w];
  }
  if (first) a.groups[place] = group;
  if (pair >= total && pair < pairs) a.groups[pair] = MoeGroup{0, 0, 0, 0};
}

// p = softmax(logits[r]); ids[r] the top_k greatest p, the lowest expert first among equals; weights[r] their p, divided
// by their sum if `normalise`. Rows of logits that are not numbers go to experts 0, 1, … with weights that are not.
// grid ceil(rows / 8), block 256: a wave a row; with `groups` the grid is 1. LDS 16.6 KiB.
// Exact: exponential, sums and divisions in the CPU's order. Oracle: backend/cpu/mixture.rs route.
KERNEL(256, moe_route, MoeRouteArgs) {
  LDS(RouteLds, lds);
  const u32 row = bidx() * ROUTE_ROWS + wave();
  const bool present = row < a.rows;
  const float* logits = a.logits + static_cast<u64>(present ? row : 0) * a.stride;
  // Experts lane, lane + 32, …; absent ones count as minus infinity.
  float x[PER_LANE], high = as_f(static_cast<i32>(0xff800000));
  UNROLL for (u32 j = 0; j < PER_LANE; j++) {
    const u32 expert = WAVE * j + lane();
    x[j] = expert < a.experts ? logits[expert] : as_f(static_cast<i32>(0xff800000));
    high = x[j] > high ? x[j] : high;
  }
  high = wave_max(high);
  UNROLL for (u32 j = 0; j < PER_LANE; j++) {
    x[j] = exp_exact(x[j] - high);
    lds.e[wave()][WAVE * j + lane()] = WAVE * j + lane() < a.experts ? x[j] : 0.f;
  }
  barrier();
  // Eight lanes add up every eighth element each; the butterfly pairs them as the CPU's vectors do.
  float sum = 0.f;
  // Absent experts are zeros, and no sum of theirs is negative: adding them changes nothing.
  for (u32 i = lane() % 8; i < a.experts; i += 64) {
    float part[8];
    UNROLL for (u32 j = 0; j < 8; j++) part[j] = lds.e[wave()][i + 8 * j];
    UNROLL for (u32 j = 0; j < 8; j++) sum += part[j];
  }
  sum += shfl_xor<1>(sum); sum += shfl_xor<2>(sum); sum += shfl_xor<4>(sum);
  const float inverse = 1.f / sum;
  const bool number = sum == sum;

  // Probabilities are not negative: their bits, and one more, order them; 0 is taken or absent.
  u32 key[PER_LANE];
  UNROLL for (u32 j = 0; j < PER_LANE; j++)
    key[j] = WAVE * j + lane() >= a.experts ? 0 : number ? bits_of(x[j] * inverse) + 1 : 1;
  float total = 0.f, own_p = 0.f;
  u32 own_id = 0;
  for (u32 chosen = 0; chosen < a.top_k; chosen++) {
    u32 best = 0, place = 0;  // the place counts from the end
    UNROLL for (u32 j = 0; j < PER_LANE; j++) best = max_u32(best, key[j]);
    const u32 greatest = wave_max_u32(best);
    UNROLL for (u32 j = 0; j < PER_LANE; j++)
      place = max_u32(place, key[j] == greatest ? MAX_EXPERTS - 1 - (WAVE * j + lane()) : 0);
    const u32 id = MAX_EXPERTS - 1 - wave_max_u32(place);
    UNROLL for (u32 j = 0; j < PER_LANE; j++)
      if (WAVE * j + lane() == id) key[j] = 0;
    const float p = number ? as_f(static_cast<i32>(greatest - 1)) : sum;
    total += p;
    if (lane() == chosen) { own_p = p; own_id = id; }
  }
  if (present && lane() < a.top_k) {
    const u64 at = static_cast<u64>(row) * a.top_k + lane();
    a.ids[at] = own_id;
    a.weights[at] = a.normalise ? own_p / total : own_p;
    lds.ids[wave() * a.top_k + lane()] = own_id;
  }
  if (a.groups == nullptr) return;
  barrier();
  route_groups(a, lds);
}

// entries: all pairs, those of expert 0 first, ascending within an expert; starts[e] = how many pairs have an expert
// below e; tiles: each expert's entries cut into pieces of tile_rows, experts ascending, then unused tiles.
// grid 1, block 512; LDS 33 KiB. A wave counts and then places a run of pairs of its own, so that the order of pairs is
// the order of waves, of turns and of lanes.
// Exact, whatever the schedule. Oracle: backend/cpu/moe.rs group.
enum { LIST_WAVES = 16 };
struct ListsLds {
  u32 place[LIST_WAVES][MAX_EXPERTS];  // a wave's pairs of an expert, then where its next one goes
  u32 entries[LIST_WAVES], tiles[LIST_WAVES];
};

// Lanes of this wave before this one, summed; the whole wave's sum in the last lane's `through`.
DEV u32 wave_scan(u32 own, u32& through) {
  through = own;
  UNROLL for (u32 step = 1; step < WAVE; step *= 2) {
    const u32 before = static_cast<u32>(shfl(static_cast<i32>(through), lane() - step));
    if (lane() >= step) through += before;
  }
  return through - own;
}

KERNEL(512, moe_lists, MoeListsArgs) {
  LDS(ListsLds, lds);
  const u32 run = (a.pairs + LIST_WAVES * WAVE - 1) / (LIST_WAVES * WAVE) * WAVE, from = wave() * run;
  const u32 end = from + run < a.pairs ? from + run : a.pairs;
  u32(&place)[MAX_EXPERTS] = lds.place[wave()];
  for (u32 e = lane(); e < MAX_EXPERTS; e += WAVE) place[e] = 0;
  barrier();
  for (u32 pair = from + lane(); pair < end; pair += WAVE) lds_atomic_add(&place[a.ids[pair]], 1u);
  barrier();

  // A thread an expert: its entries in every wave, its tiles, and what all experts before it have.
  const u32 expert = tid();
  u32 count = 0;
  UNROLL for (u32 w = 0; w < LIST_WAVES; w++) count += lds.place[w][expert];
  const u32 needed = (count + a.tile_rows - 1) / a.tile_rows;
  u32 entries_through, tiles_through;
  u32 start = wave_scan(count, entries_through), tile = wave_scan(needed, tiles_through);
  if (lane() == WAVE - 1) { lds.entries[wave()] = entries_through; lds.tiles[wave()] = tiles_through; }
  barrier();
  u32 all_tiles = 0;
  for (u32 w = 0; w < LIST_WAVES; w++) {
    if (w < wave()) { start += lds.entries[w]; tile += lds.tiles[w]; }
    all_tiles += lds.tiles[w];
  }
  if (expert < a.experts) a.starts[expert] = start;
  if (expert == 0) a.starts[a.experts] = a.pairs;
  for (u32 i = 0; i < needed; i++) {
    const u32 rest = count - i * a.tile_rows;
    a.tiles[tile + i] = MoeTile{expert, start + i * a.tile_rows, rest < a.tile_rows ? rest : a.tile_rows, 0};
  }
  for (u32 i = all_tiles + tid(); i < a.max_tiles; i += 512) a.tiles[i] = MoeTile{0, 0, 0, 0};
  u32 next = start;
  UNROLL for (u32 w = 0; w < LIST_WAVES; w++) {
    const u32 own = lds.place[w][expert];
    lds.place[w][expert] = next;
    next += own;
  }
  barrier();

  for (u32 turn = from; turn < end; turn += WAVE) {
    const u32 pair = turn + lane();
    const u32 id = pair < end ? a.ids[pair] : MAX_EXPERTS;
    // Lanes with the same expert: those that agree in every bit.
    u32 same = ~0u;
    for (u32 bit = 1; bit <= MAX_EXPERTS; bit *= 2) {
      const u32 set = wave_ballot((id & bit) != 0);
      same &= id & bit ? set : ~set;
    }
    const u32 leader = static_cast<u32>(__builtin_ctz(same));
    u32 base = 0;
    if (lane() == leader && pair < end) base = lds_atomic_add(&place[id], static_cast<u32>(__builtin_popcount(same)));
    base = static_cast<u32>(shfl(static_cast<i32>(base), leader));
    if (pair < end) a.entries[base + static_cast<u32>(__builtin_popcount(same & ((1u << lane()) - 1)))] = pair;
  }
}
