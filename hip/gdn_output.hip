// Gated DeltaNet behind its recurrence (spec 2.3, 3.2): gated output norm; the rows that stay pending.
#include "gdn.h"

// out[r][h] = o[r][h] * rsqrt(mean(o[r][h]^2) + eps) * weight * gate(z[r][h]), gate: sigmoid or SiLU
// With `planes`, also what a segment of at most `rewind` rows leaves beside its state: keys, values, decay, strength of
// row r as pending row r. Here, not in gdn_step, whose workgroups still read the rows that were pending before.
// grid ceil(rows * value_heads / 8), block 256: a wave a row and value head; LDS 0; dk, dv multiples of 4, at most 256;
// key_heads at most value_heads; aligned to 16.
// The norm ordered, the state exact. Oracle: backend/cpu/gdn.rs mix and apply.
enum { HEAD_PARTS = 2 };

DEV void copy_head(float* to, const float* from, u32 width) {
  UNROLL for (u32 p = 0; p < HEAD_PARTS; p++) {
    const u32 column = 4 * (lane() + WAVE * p);
    if (column < width) *reinterpret_cast<f32x4*>(to + column) = *reinterpret_cast<const f32x4*>(from + column);
  }
}

DEV void keep_pending(const GdnOutputArgs& a, u32 row, u32 head) {
  const u32 sequence = load_uniform(a.sequence + row);
  const GdnSegment segment = gdn_segment(a.segments, sequence);
  if (segment.rows > a.rewind) return;
  const u32 keys = a.key_heads * a.key_dim, values = a.value_heads * a.value_dim;
  const u64 slot = row - segment.first;
  const float* mixed = a.mixed + static_cast<u64>(row) * (2 * keys + values);
  const GdnPlanes* planes = a.planes + sequence;
  if (head < a.key_heads)
    copy_head(gdn_plane(&planes->keys) + slot * keys + head * a.key_dim, mixed + keys + head * a.key_dim, a.key_dim);
  copy_head(gdn_plane(&planes->values) + slot * values + head * a.value_dim, mixed + 2 * keys + head * a.value_dim,
            a.value_dim);
  if (lane() == 0) {
    const u64 from = static_cast<u64>(row) * a.value_heads + head, to = slot * a.value_heads + head;
    gdn_plane(&planes->decay)[to] = a.decay[from];
    gdn_plane(&planes->strength)[to] = a.strength[from];
  }
}

KERNEL(256, gdn_output, GdnOutputArgs) {
  const u32 index = bidx() * 8 + wave();
  if (index >= a.rows * a.value_heads) return;
  if (a.planes != nullptr) keep_pending(a, index / a.value_heads, index % a.value_heads);
  const u64 at = static_cast<u64>(index) * a.value_dim;
  f32x4 o[HEAD_PARTS];
  float squares = 0.f;
  UNROLL for (u32 p = 0; p < HEAD_PARTS; p++) {
    const u32 column = 4 * (lane() + WAVE * p);
    if (column >= a.value_dim) continue;
    o[p] = *reinterpret_cast<const f32x4*>(a.o + at + column);
    UNROLL for (int i = 0; i < 4; i++) squares = fma_(o[p].v[i], o[p].v[i], squares);
  }
  const float scale = rsqrt_(wave_sum(squares) / static_cast<float>(a.value_dim) + a.eps);
  UNROLL for (u32 p = 0; p < HEAD_PARTS; p++) {
    const u32 column = 4 * (lane() + WAVE * p);
    if (column >= a.value_dim) continue;
    const f32x4 z = *reinterpret_cast<const f32x4*>(a.z + at + column);
    const f32x4 weight = *reinterpret_cast<const f32x4*>(a.weight + column);
    UNROLL for (int i = 0; i < 4; i++) {
      const float gate = sigmoid(z.v[i]) * (a.silu ? z.v[i] : 1.f);
      o[p].v[i] = o[p].v[i] * scale * weight.v[i] * gate;
    }
    *reinterpret_cast<f32x4*>(a.out + at + column) = o[p];
  }
}
