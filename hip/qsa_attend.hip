// QSA attention of few rows (spec 2.4): each selected row of the state is read once for all heads that share it.
#include "abi.h"
#include "kv.h"

// How a wave reads one head of two state rows, in 16-byte accesses where the format allows; afterwards each lane holds
// PART elements of both, element i at place index(i).
enum { PART = 8 };
struct ReadF32 {
  typedef KvF32 Kv;
  struct Raw { f32x4 v[2][2]; };
  DEV_MEMBER u32 index(u32 i) { return 128 * (i / 4) + 4 * lane() + i % 4; }
  DEV_MEMBER Raw load(const u8* first, const u8* second, u32, u32 head, u32 dim) {
    Raw raw;
    UNROLL for (u32 e = 0; e < 2; e++)
      UNROLL for (u32 p = 0; p < 2; p++) {
        const float* at = reinterpret_cast<const float*>(e == 0 ? first : second) + static_cast<u64>(head) * dim;
        raw.v[e][p] = index(4 * p) < dim ? *reinterpret_cast<const f32x4*>(at + index(4 * p)) : f32x4{};
      }
    return raw;
  }
  DEV_MEMBER void decode(const Raw& raw, u32 entry, float (&out)[PART]) {
    UNROLL for (u32 i = 0; i < PART; i++) out[i] = raw.v[entry][i / 4].v[i % 4];
  }
};
// Half of the wave reads the first row, half the second, 16 codes a lane; then the halves swap eight of them.
template<class Format> struct ReadCodes {
  typedef Format Kv;
  struct Raw { u32 codes[2][2], scale[2]; };
  DEV_MEMBER u32 index(u32 i) { return 16 * (lane() & 15) + 8 * (lane() >> 4) + i; }
  DEV_MEMBER Raw load(const u8* first, const u8* second, u32 kv_heads, u32 head, u32 dim) {
    const bool upper = lane() >> 4;
    const u32 at = 16 * (lane() & 15);
    const u8* row = upper ? second : first;
    const u8* codes = row + static_cast<u64>(head) * dim + at;
    // Rows are a few scales longer than their codes; mostly that is a number of words.
    u32x4 mine = {};
    if (at < dim) mine = Format::row_bytes(kv_heads, dim) % 4 == 0 ? load_by_words(codes) : load_by_halves(codes);
    // The first lane of a span brings its scale for the others.
    u32 scale = 0;
    if (at < dim && (Format::SPAN != 0 ? at % Format::SPAN : at) == 0)
      scale = scales_of(row, kv_heads, dim)[Format::scale_at(head, dim, at)];
    scale |= shfl_xor_u32<1>(scale);
    if constexpr (Format::SPAN == 0) {
      scale |= shfl_xor_u32<2>(scale); scale |= shfl_xor_u32<4>(scale); scale |= shfl_xor_u32<8>(scale);
    }
    const u32 other_scale = shfl_xor_u32<16>(scale);
    Raw raw;
    raw.scale[0] = upper ? other_scale : scale;
    raw.scale[1] = upper ? scale : other_scale;
    UNROLL for (u32 i = 0; i < 2; i++) {
      const u32 sent = upper ? mine.v[i] : mine.v[2 + i];
      const u32 other = shfl_xor_u32<16>(sent);
      raw.codes[0][i] = upper ? other : mine.v[i];
      raw.codes[1][i] = upper ? mine.v[2 + i] : other;
    }
    return raw;
  }
  DEV_MEMBER void decode(const Raw& raw, u32 entry, float (&out)[PART]) {
    const float scale = f16_number(raw.scale[entry]);
    UNROLL for (u32 i = 0; i < PART; i++) out[i] = Format::number(raw.codes[entry][i / 4] >> 8 * (i % 4) & 255) * scale;
  }
};
typedef ReadCodes<KvFp8> ReadFp8;
typedef ReadCodes<KvQ8> ReadQ8;

// Over the entries [first, last) of a row's list (its selected blocks' tokens, then the open block's) that a split owns:
//   partial[r][g][split][h] = sum_j exp(s_j - m) v_j,  partial_sums = (m, sum_j exp(s_j - m)),  s_j = scale * q_h . k_j
// grid (rows * kv_heads * splits), block 256: 64 entries at a time, a wave eight of them; LDS 57 KiB.
// Splits behind the end of the list write nothing; qsa_merge knows which those are. dim is a multiple of 4, queries are
// aligned to 16.
// Ordered: which split, wave and turn an entry has depends on its place in the list alone.
// Rounding. Oracle: backend/cpu/attend.rs attend.
enum { WAVES = 8, TILE = 64, OWN = TILE / WAVES, PAIRS = OWN / 2, AHEAD = 2, MAX_DIM = 256 };
#define NEGATIVE (-1e30f)

// Four words are left out after each 32, so that lanes 16 elements apart read from different banks.
enum : u32 { DIM_SLOTS = MAX_DIM / 32 * 36 };
DEV u32 slot(u32 i) { return i + i / 32 * 4; }

template<int GROUP> struct AttendLds {
  float q[GROUP][DIM_SLOTS];
  float score[TILE][(GROUP + 7) / 8 * 8 + 4];  // rows of 16 bytes, neighbours in different banks
  float m[2][GROUP], l[GROUP], shrink[GROUP];  // m: before this tile and after it, in turn
  float o[WAVES][4][DIM_SLOTS];
};

// The visible list of a row: its number of entries, and the token of an entry.
struct EntryList {
  const u32* blocks;
  u32 selected, complete, tail, ratio;
  DEV_MEMBER EntryList of(const u32* blocks, const u32* counts, u32 max_blocks, u32 row, u32 position, u32 ratio) {
    const u32 complete = (position + 1) / ratio;
    return EntryList{blocks == nullptr ? nullptr : blocks + static_cast<u64>(row) * max_blocks,
                     counts == nullptr ? complete : counts[row], complete, (position + 1) % ratio, ratio};
  }
};
DEV u32 entries(const EntryList& list) { return list.selected * list.ratio + list.tail; }
DEV u32 token_of(const EntryList& list, u32 entry) {
  const u32 i = entry / list.ratio;
  const u32 block = i >= list.selected ? list.complete : list.blocks == nullptr ? i : list.blocks[i];
  return block * list.ratio + entry % list.ratio;
}

template<class Read, int GROUP> DEV void qsa_attend(const QsaAttendArgs& a, AttendLds<GROUP>& lds) {
  const u32 split = bidx() % a.splits, kv = bidx() / a.splits % a.kv_heads, row = bidx() / a.splits / a.kv_heads;
  const u32 group = a.heads / a.kv_heads, t = tid();
  const EntryList list = EntryList::of(a.blocks, a.counts, a.max_blocks, row, a.positions[row], a.ratio);
  const u32 total = entries(list), first = split * a.split_entries;
  if (first >= total) return;
  const u32 last = first + a.split_entries < total ? first + a.split_entries : total;
  const KvPlanes planes = a.planes[a.sequence[row]];
  const u8* keys = global(planes.keys);
  const u8* values = global(planes.values);
  const u64 row_bytes = Read::Kv::row_bytes(a.kv_heads, a.dim);

  const float* q = a.queries + (static_cast<u64>(row) * a.heads + kv * group) * a.dim;
  for (u32 i = 4 * t; i < GROUP * MAX_DIM; i += 4 * 256) {
    const u32 head = i / MAX_DIM, at = i % MAX_DIM;
    f32x4 part = {};
    if (head < group && at < a.dim) part = *reinterpret_cast<const f32x4*>(q + static_cast<u64>(head) * a.dim + at);
    UNROLL for (u32 j = 0; j < 4; j++) lds.q[head][slot(at) + j] = part.v[j] * a.scale;
  }
  if (t < GROUP) { lds.m[0][t] = NEGATIVE; lds.l[t] = 0.f; }
  float o[GROUP][PART];
  UNROLL for (u32 h = 0; h < GROUP; h++) UNROLL for (u32 i = 0; i < PART; i++) o[h][i] = 0.f;
  barrier();

  u32 turn = 0;
  for (u32 tile = first; tile < last; tile += TILE, turn ^= 1) {
    // Entries past the end read the last one; their scores are masked.
    const u32 own = tile + wave() * OWN;
    const auto load = [&](const u8* plane, u32 pair) {
      const auto row_at = [&](u32 entry) { return plane + row_bytes * token_of(list, entry < last ? entry : last - 1); };
      return Read::load(row_at(own + 2 * pair), row_at(own + 2 * pair + 1), a.kv_heads, kv, a.dim);
    };
    UNROLL for (u32 pair = 0; pair < PAIRS; pair += AHEAD) {
      typename Read::Raw raw[AHEAD];
      UNROLL for (u32 p = 0; p < AHEAD; p++) raw[p] = load(keys, pair + p);
      UNROLL for (u32 h = 0; h < GROUP; h++) {
        float query[PART];
        UNROLL for (u32 i = 0; i < PART; i++) query[i] = lds.q[h][slot(Read::index(i))];
        UNROLL for (u32 e = 0; e < 2 * AHEAD; e++) {
          float key[PART], dot = 0.f;
          Read::decode(raw[e / 2], e % 2, key);
          UNROLL for (u32 i = 0; i < PART; i++) dot = fma_(query[i], key[i], dot);
          dot = wave_sum(dot);
          const u32 entry = own + 2 * pair + e;
          if (lane() == 0) lds.score[entry - tile][h] = entry < last ? dot : NEGATIVE;
        }
      }
    }
    barrier();
    // Sixteen threads a head find the tile's greatest score, then turn scores into weights.
    const u32 head = t / 16;
    if (head < GROUP) {
      float high = lds.m[turn][head];
      UNROLL for (u32 i = 0; i < TILE / 16; i++) high = fmax_(high, lds.score[t % 16 + 16 * i][head]);
      high = fmax_(high, shfl_xor<8>(high)); high = fmax_(high, shfl_xor<4>(high));
      high = fmax_(high, shfl_xor<2>(high)); high = fmax_(high, shfl_xor<1>(high));
      float sum = 0.f;
      UNROLL for (u32 i = 0; i < TILE / 16; i++) {
        float& score = lds.score[t % 16 + 16 * i][head];
        score = score <= NEGATIVE ? 0.f : exp_(score - high);
        sum += score;
      }
      sum += shfl_xor<8>(sum); sum += shfl_xor<4>(sum); sum += shfl_xor<2>(sum); sum += shfl_xor<1>(sum);
      if (t % 16 == 0) {
        lds.shrink[head] = exp_(lds.m[turn][head] - high);
        lds.l[head] = lds.l[head] * lds.shrink[head] + sum;
        lds.m[turn ^ 1][head] = high;
      }
    }
    barrier();
    if (tile > first)
      UNROLL for (u32 h = 0; h < GROUP; h++) UNROLL for (u32 i = 0; i < PART; i++) o[h][i] *= lds.shrink[h];
    UNROLL for (u32 pair = 0; pair < PAIRS; pair += AHEAD) {
      typename Read::Raw raw[AHEAD];
      UNROLL for (u32 p = 0; p < AHEAD; p++) raw[p] = load(values, pair + p);
      UNROLL for (u32 e = 0; e < 2 * AHEAD; e++) {
        float value[PART];
        Read::decode(raw[e / 2], e % 2, value);
        UNROLL for (u32 h = 0; h < GROUP; h++) {
          const float weight = lds.score[own - tile + 2 * pair + e][h];
          UNROLL for (u32 i = 0; i < PART; i++) o[h][i] = fma_(weight, value[i], o[h][i]);
        }
      }
    }
    barrier();
  }

  // The waves' sums, four heads at a time, in the order of the waves.
  const u64 base = (static_cast<u64>(row) * a.kv_heads + kv) * a.splits + split;
  UNROLL for (u32 four = 0; four < (GROUP + 3) / 4; four++) {
    UNROLL for (u32 h = 0; h < 4; h++) {
      if (4 * four + h >= GROUP) break;
      UNROLL for (u32 i = 0; i < PART; i++) lds.o[wave()][h][slot(Read::index(i))] = o[4 * four + h][i];
    }
    barrier();
    for (u32 h = 0; h < 4 && 4 * four + h < group; h++) {
      float sum = 0.f;
      UNROLL for (u32 w = 0; w < WAVES; w++) sum += lds.o[w][h][slot(t)];
      if (t < a.dim) a.partial[(base * group + 4 * four + h) * a.dim + t] = sum;
    }
    barrier();
  }
  if (t < group) {
    a.partial_sums[(base * group + t) * 2] = lds.m[turn][t];
    a.partial_sums[(base * group + t) * 2 + 1] = lds.l[t];
  }
}

#define QSA_ATTEND(mode, Read, GROUP)                                 \
  KERNEL_BIG_LDS(qsa_attend_##mode##_g##GROUP, AttendLds<GROUP>)      \
  KERNEL(256, qsa_attend_##mode##_g##GROUP, QsaAttendArgs) {          \
    LDS_BIG(AttendLds<GROUP>, lds);                                   \
    qsa_attend<Read, GROUP>(a, lds);                                  \
  }
QSA_ATTEND(f32, ReadF32, 4)
QSA_ATTEND(f32, ReadF32, 12)
QSA_ATTEND(fp8, ReadFp8, 4)
QSA_ATTEND(fp8, ReadFp8, 12)
QSA_ATTEND(q8, ReadQ8, 4)
QSA_ATTEND(q8, ReadQ8, 12)

// out[r][h] = sigmoid(gate[r][h]) * sum_split exp(m_split - m) partial_split / sum_split exp(m_split - m) l_split
// grid (rows * heads), block 256: a thread an element; LDS 0. Splits in their order: ordered.
KERNEL(256, qsa_merge, QsaMergeArgs) {
  const u32 row = bidx() / a.heads, head = bidx() % a.heads, group = a.heads / a.kv_heads, t = tid();
  if (t >= a.dim) return;
  const EntryList list = EntryList::of(nullptr, a.counts, 0, row, a.positions[row], a.ratio);
  const u32 used = (entries(list) + a.split_entries - 1) / a.split_entries;
  const u64 first = (static_cast<u64>(row) * a.kv_heads + head / group) * a.splits;
  const auto place = [&](u32 split) { return (first + split) * group + head % group; };
  float high = NEGATIVE, total = 0.f, sum = 0.f;
  for (u32 s = 0; s < used; s++) high = fmax_(high, a.partial_sums[place(s) * 2]);
  for (u32 s = 0; s < used; s++) {
    const float weight = exp_(a.partial_sums[place(s) * 2] - high);
    total = fma_(weight, a.partial_sums[place(s) * 2 + 1], total);
    sum = fma_(weight, a.partial[place(s) * a.dim + t], sum);
  }
  const float gate = a.query_gate[(static_cast<u64>(bidx()) * 2 + 1) * a.dim + t];
  a.out[static_cast<u64>(bidx()) * a.dim + t] = sum / total / (1.f + exp_(-gate));
}
