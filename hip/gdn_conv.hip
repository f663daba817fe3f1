// Gated DeltaNet between its projections and its recurrence (spec 2.3): convolution, unit norms, gates, the window.
#include "gdn.h"

enum { HISTORY = 3, HEAD_PARTS = 2 };  // taps minus one; a head of up to 256 channels in 16-byte parts of a wave

// Per row r of a segment, a wave a head of queries, keys or values and TILE rows:
//   u[c] = silu(sum_t taps[t][c] * x[r - 3 + t][c]), x: the window's history, then the step's qkv
//   mixed[r] = u * rsqrt(sum u^2 + 1e-6) for a head of queries (times query_scale) or keys; u for values
// and one wave for the gates: strength = sigmoid(b), decay = rate * softplus(a + dt_bias).
// A segment of at most `tile` rows has its window slid here (state/recurrent.rs slide), by the waves that read it: a
// wave owns its channels. Longer ones are left to gdn_slide.
// grid sequences * tiles * ceil((2 * key_heads + value_heads + 1) / 8), block 256; LDS 0; four taps; heads of a
// multiple of 4, at most 256; pointers aligned to 16. Tiles past a segment's end return at once.
// Convolution's sums and the window exact, the rest ordered. Oracle: backend/cpu/gdn.rs convolve, mix.
struct History { f32x4 x[HISTORY]; };

DEV f32x4 convolve(History& h, const f32x4& now, const f32x4* taps) {
  f32x4 sum;
  UNROLL for (int i = 0; i < 4; i++) {
    float s = 0.f;
    UNROLL for (int t = 0; t < HISTORY; t++) s = fma_(taps[t].v[i], h.x[t].v[i], s);
    sum.v[i] = fma_(taps[HISTORY].v[i], now.v[i], s);
  }
  h.x[0] = h.x[1];
  h.x[1] = h.x[2];
  h.x[2] = now;
  return sum;
}

DEV void gates(const GdnConvArgs& a, u32 first, u32 end) {
  for (u32 i = first * a.value_heads + lane(); i < end * a.value_heads; i += WAVE) {
    const u32 head = i % a.value_heads;
    a.strength[i] = sigmoid(a.b[i]);
    a.decay[i] = a.rate[head] * gdn_softplus(a.a[i] + a.dt_bias[head]);
  }
}

KERNEL(256, gdn_conv, GdnConvArgs) {
  const u32 tasks = 2 * a.key_heads + a.value_heads + 1, groups = (tasks + 7) / 8;
  const u32 task = bidx() % groups * 8 + wave(), tile = bidx() / groups % a.tiles, sequence = bidx() / groups / a.tiles;
  const GdnSegment segment = gdn_segment(a.segments, sequence);
  const u32 begin = tile * a.tile;
  if (begin >= segment.rows || task >= tasks) return;
  const u32 end = begin + a.tile < segment.rows ? begin + a.tile : segment.rows;
  if (task == tasks - 1) return gates(a, segment.first + begin, segment.first + end);

  const u32 keys = a.key_heads * a.key_dim, channels = 2 * keys + a.value_heads * a.value_dim;
  const bool normed = task < 2 * a.key_heads;
  const u32 width = normed ? a.key_dim : a.value_dim;
  const u32 base = normed ? task * a.key_dim : 2 * keys + (task - 2 * a.key_heads) * a.value_dim;
  const float factor = task < a.key_heads ? a.query_scale : 1.f;
  const bool slides = segment.rows <= a.tile, keeps = segment.rows <= a.rewind;
  float* window = gdn_plane(&a.planes[sequence].window);
  const float* qkv = a.qkv + static_cast<u64>(segment.first) * channels;

  f32x4 taps[HEAD_PARTS][HISTORY + 1];
  History history[HEAD_PARTS];
  UNROLL for (u32 p = 0; p < HEAD_PARTS; p++) {
    const u32 column = 4 * (lane() + WAVE * p);
    if (column >= width) continue;
    UNROLL for (u32 t = 0; t <= HISTORY; t++)
      taps[p][t] = *reinterpret_cast<const f32x4*>(a.taps + t * channels + base + column);
    UNROLL for (u32 t = 0; t < HISTORY; t++) {
      const u32 at = begin + t;  // column of history followed by the step's rows
      const float* from = at < HISTORY ? window + static_cast<u64>(segment.pending + at) * channels
                                       : qkv + static_cast<u64>(at - HISTORY) * channels;
      history[p].x[t] = *reinterpret_cast<const f32x4*>(from + base + column);
    }
    if (slides && keeps)
      UNROLL for (u32 t = 0; t < HISTORY; t++)
        *reinterpret_cast<f32x4*>(window + static_cast<u64>(t) * channels + base + column) = history[p].x[t];
  }
  for (u32 row = begin; row < end; row++) {
    f32x4 u[HEAD_PARTS];
    float squares = 0.f;
    UNROLL for (u32 p = 0; p < HEAD_PARTS; p++) {
      const u32 column = 4 * (lane() + WAVE * p);
      if (column >= width) continue;
      const f32x4 now = *reinterpret_cast<const f32x4*>(qkv + static_cast<u64>(row) * channels + base + column);
      if (slides && keeps)
        *reinterpret_cast<f32x4*>(window + static_cast<u64>(HISTORY + row) * channels + base + column) = now;
      u[p] = convolve(history[p], now, taps[p]);
      UNROLL for (int i = 0; i < 4; i++) {
        u[p].v[i] *= sigmoid(u[p].v[i]);
        squares = fma_(u[p].v[i], u[p].v[i], squares);
      }
    }
    const float scale = normed ? factor * rsqrt_(wave_sum(squares) + 1e-6f) : 1.f;
    UNROLL for (u32 p = 0; p < HEAD_PARTS; p++) {
      const u32 column = 4 * (lane() + WAVE * p);
      if (column >= width) continue;
      UNROLL for (int i = 0; i < 4; i++) u[p].v[i] *= scale;
      *reinterpret_cast<f32x4*>(a.mixed + static_cast<u64>(segment.first + row) * channels + base + column) = u[p];
    }
  }
  if (slides && !keeps)
    UNROLL for (u32 p = 0; p < HEAD_PARTS; p++) {
      const u32 column = 4 * (lane() + WAVE * p);
      if (column >= width) continue;
      UNROLL for (u32 t = 0; t < HISTORY; t++)
        *reinterpret_cast<f32x4*>(window + static_cast<u64>(t) * channels + base + column) = history[p].x[t];
    }
}

// The window of segments of more than `tile` rows: the last columns of history and the step's rows become history.
// `rewind` is at most `tile`: none of these rows stays pending.
// grid sequences * ceil(channels / 1024), block 256: a thread four channels; LDS 0; channels a multiple of 4.
// Exact. Oracle: state/recurrent.rs slide.
KERNEL(256, gdn_slide, GdnSlideArgs) {
  const u32 parts = (a.channels + 1023) / 1024;
  const u32 sequence = bidx() / parts, channel = bidx() % parts * 1024 + 4 * tid();
  const GdnSegment segment = gdn_segment(a.segments, sequence);
  if (segment.rows <= a.tile || channel >= a.channels) return;
  float* window = gdn_plane(&a.planes[sequence].window);
  // Column `t` of the new history counts from the old one's start.
  const auto column = [&](u32 t) {
    const u32 at = segment.rows + t;
    const float* from = at < HISTORY ? window + static_cast<u64>(segment.pending + at) * a.channels
                                     : a.qkv + static_cast<u64>(segment.first + at - HISTORY) * a.channels;
    return *reinterpret_cast<const f32x4*>(from + channel);
  };
  const f32x4 x0 = column(0), x1 = column(1), x2 = column(2);
  f32x4* to = reinterpret_cast<f32x4*>(window + channel);
  to[0] = x0;
  to[a.channels / 4] = x1;
  to[a.channels / 2] = x2;
}
