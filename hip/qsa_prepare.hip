// What a QSA layer does between its projections and its attention (spec 2.4): norms, rotations, and the new rows of the
// state: keys, values, raw index keys, and the key of a block that a row closes.
#include "abi.h"
#include "kv.h"

// Per row r at position p of sequence s, a wave a head:
//   queries[r][h]       = rope(norm(query_gate[r][h][0]), p)
//   index_queries[r][h] = rope(norm(index_query[r][h]), p)
//   state of s, token p = encode(rope(norm(keys[r][h]), p)), encode(values[r][h]), encode(index_key[r])
//   state of s, block p / ratio, if p + 1 is a multiple of ratio:
//     encode(rope(norm(mean of the block's raw index keys as they are stored), p + 1 - ratio))
// grid ceil(rows * (heads + 2 * kv_heads + index_heads + 1) / 8), block 256; LDS 0.
// A block's tokens that are rows of this launch are taken from them, older ones from the state: no row waits for another.
// Queries, keys and block keys rounding; values and raw index keys exact.
// Oracle: backend/cpu/qsa.rs project.
template<class Kv, class Index> DEV void qsa_prepare(const QsaPrepareArgs& a) {
  const u32 tasks = a.heads + 2 * a.kv_heads + a.index_heads + 1, index = bidx() * 8 + wave();
  const u32 row = index / tasks;
  u32 task = index % tasks;
  if (row >= a.rows) return;
  const u32 position = a.positions[row], sequence = a.sequence[row];
  const float* cos = a.cos + static_cast<u64>(row) * a.half;
  const float* sin = a.sin + static_cast<u64>(row) * a.half;

  if (task < a.heads) {
    const u64 head = static_cast<u64>(row) * a.heads + task;
    Head h = load_head(a.query_gate + head * 2 * a.dim, a.dim);
    norm_head(h, a.query_norm, a.dim, a.eps);
    rotate_head(h, cos, sin, a.half);
    store_head(a.queries + head * a.dim, h, a.dim);
    return;
  }
  task -= a.heads;
  if (task < a.index_heads) {
    const u64 head = static_cast<u64>(row) * a.index_heads + task;
    Head h = load_head(a.index_query + head * a.index_dim, a.index_dim);
    norm_head(h, a.index_query_norm, a.index_dim, a.eps);
    rotate_head(h, cos, sin, a.half);
    store_head(a.index_queries + head * a.index_dim, h, a.index_dim);
    return;
  }
  task -= a.index_heads;
  KvPlanes planes = a.planes[sequence];
  planes = KvPlanes{global(planes.keys), global(planes.values), global(planes.raw), global(planes.blocks)};
  const u64 state_row = Kv::row_bytes(a.kv_heads, a.dim) * position;
  if (task < a.kv_heads) {
    Head h = load_head(a.keys + (static_cast<u64>(row) * a.kv_heads + task) * a.dim, a.dim);
    norm_head(h, a.key_norm, a.dim, a.eps);
    rotate_head(h, cos, sin, a.half);
    Kv::store(planes.keys + state_row, a.kv_heads, task, a.dim, h.x);
    return;
  }
  task -= a.kv_heads;
  if (task < a.kv_heads) {
    const Head h = load_head(a.values + (static_cast<u64>(row) * a.kv_heads + task) * a.dim, a.dim);
    Kv::store(planes.values + state_row, a.kv_heads, task, a.dim, h.x);
    return;
  }
  typedef typename Index::Element Element;
  const Head raw = load_head(a.index_key + static_cast<u64>(row) * a.index_dim, a.index_dim);
  Element* own = reinterpret_cast<Element*>(planes.raw) + static_cast<u64>(position) * a.index_dim;
  UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++)
    if (lane() + WAVE * j < a.index_dim) own[lane() + WAVE * j] = Index::stored(raw.x[j]);
  if ((position + 1) % a.ratio != 0) return;
  Head mean = {};
  for (u32 back = a.ratio; back-- > 0;) {
    const bool here = row >= back && a.sequence[row - back] == sequence && a.positions[row - back] + back == position;
    const float* fresh = a.index_key + static_cast<u64>(here ? row - back : row) * a.index_dim;
    const Element* old = own - static_cast<u64>(back) * a.index_dim;
    UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++) {
      const u32 i = lane() + WAVE * j;
      if (i < a.index_dim) mean.x[j] += here ? Index::number(Index::stored(fresh[i])) : Index::number(old[i]);
    }
  }
  UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++) mean.x[j] /= static_cast<float>(a.ratio);
  norm_head(mean, a.index_key_norm, a.index_dim, a.eps);
  rotate_head(mean, a.block_cos + static_cast<u64>(row) * a.half, a.block_sin + static_cast<u64>(row) * a.half, a.half);
  Element* block = reinterpret_cast<Element*>(planes.blocks) + static_cast<u64>(position / a.ratio) * a.index_dim;
  UNROLL for (u32 j = 0; j < HEAD_REGISTERS; j++)
    if (lane() + WAVE * j < a.index_dim) block[lane() + WAVE * j] = Index::stored(mean.x[j]);
}

KERNEL(256, qsa_prepare_f32, QsaPrepareArgs) { qsa_prepare<KvF32, IndexF32>(a); }
KERNEL(256, qsa_prepare_fp8, QsaPrepareArgs) { qsa_prepare<KvFp8, IndexBf16>(a); }
KERNEL(256, qsa_prepare_q8, QsaPrepareArgs) { qsa_prepare<KvQ8, IndexBf16>(a); }
