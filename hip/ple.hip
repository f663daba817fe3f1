// The hashed n-gram embedding's way into the residual streams (spec 2.6), behind its two projections.
#include "abi.h"
#include "activation.h"

// key = norm(key[r][s], norm_key[s]), query = norm(wide[r][s], norm_query[s]), d = key . query / sqrt(hidden)
// gated[r][s]  = sigmoid(sign(d) * sqrt(max(|d|, 1e-6))) * value[r]          (sign of 0 is 0)
// normed[r][s] = norm(gated[r][s], norm_conv[s]),  norm(x, w) = x * rsqrt(mean(x^2) + eps) * w
// grid (rows * streams), block 256; LDS 128 bytes; hidden a multiple of 4; pointers aligned to 16.
// d comes from one pass: the two scales are taken out of the sum of key * norm_key * wide * norm_query.
// Ordered. Oracle: backend/cpu/ple.rs inject (its part before the convolution).
struct PleSums { float red[4][8]; };

KERNEL(256, ple_gate, PleGateArgs) {
  LDS(PleSums, sums);
  const u32 row = bidx() / a.streams, stream = bidx() % a.streams;
  const u64 at = static_cast<u64>(bidx()) * a.hidden, weights = static_cast<u64>(stream) * a.hidden;
  const f32x4* key = reinterpret_cast<const f32x4*>(a.key + at);
  const f32x4* wide = reinterpret_cast<const f32x4*>(a.wide + at);
  const f32x4* norm_key = reinterpret_cast<const f32x4*>(a.norm_key + weights);
  const f32x4* norm_query = reinterpret_cast<const f32x4*>(a.norm_query + weights);
  const f32x4* norm_conv = reinterpret_cast<const f32x4*>(a.norm_conv + weights);
  const f32x4* value = reinterpret_cast<const f32x4*>(a.value + static_cast<u64>(row) * a.hidden);
  float key_squares = 0.f, wide_squares = 0.f, product = 0.f;
  for (u32 i = tid(); i < a.hidden / 4; i += 256) {
    const f32x4 k = key[i], q = wide[i], wk = norm_key[i], wq = norm_query[i];
    UNROLL for (int j = 0; j < 4; j++) {
      key_squares = fma_(k.v[j], k.v[j], key_squares);
      wide_squares = fma_(q.v[j], q.v[j], wide_squares);
      product = fma_(k.v[j] * wk.v[j], q.v[j] * wq.v[j], product);
    }
  }
  const float hidden = static_cast<float>(a.hidden);
  const float key_scale = rsqrt_(block_sum<256>(key_squares, sums.red[0]) / hidden + a.eps);
  const float query_scale = rsqrt_(block_sum<256>(wide_squares, sums.red[1]) / hidden + a.eps);
  const float d = block_sum<256>(product, sums.red[2]) * key_scale * query_scale / sqrt_(hidden);
  // Written so that a NaN passes.
  const float size = d < 0.f ? -d : d, root = sqrt_(size < 1e-6f ? 1e-6f : size);
  const float gate = sigmoid(d == 0.f ? 0.f : d < 0.f ? -root : root);

  float squares = 0.f;
  for (u32 i = tid(); i < a.hidden / 4; i += 256) {
    const f32x4 v = value[i];
    UNROLL for (int j = 0; j < 4; j++) {
      const float g = gate * v.v[j];
      squares = fma_(g, g, squares);
    }
  }
  const float scale = rsqrt_(block_sum<256>(squares, sums.red[3]) / hidden + a.eps);
  f32x4* gated = reinterpret_cast<f32x4*>(a.gated + at);
  f32x4* normed = reinterpret_cast<f32x4*>(a.normed + at);
  for (u32 i = tid(); i < a.hidden / 4; i += 256) {
    const f32x4 v = value[i], w = norm_conv[i];
    f32x4 g, n;
    UNROLL for (int j = 0; j < 4; j++) {
      g.v[j] = gate * v.v[j];
      n.v[j] = g.v[j] * scale * w.v[j];
    }
    gated[i] = g;
    normed[i] = n;
  }
}

// The segment of a sequence, with its window in global memory.
DEV PleSegment segment_of(const PleSegment* segments, u32 sequence) {
  PleSegment segment = load_uniform(segments + sequence);
  segment.window = global(segment.window);
  return segment;
}

// c = silu(sum_j weights[j] * column(t - (taps - 1 - j) * dilation)),  wide[r] += c + gated[r]
// column(t) of the row's sequence: a row of `normed` where t is in this step, else a column of the window.
// grid rows * ceil(width / 1024), block 256: a thread four channels of a row; LDS 0; pointers aligned to 16.
// The sum over taps is exact (fused, the oldest first), SiLU rounding, the additions exact. Ordered.
// Oracle: backend/cpu/ple.rs inject (its convolution and addition).
enum { MAX_TAPS = 4 };
KERNEL(256, ple_conv, PleConvArgs) {
  const u32 parts = (a.width + 1023) / 1024, row = bidx() / parts, part = bidx() % parts * 256 + tid();
  if (part >= a.width / 4) return;
  const PleSegment segment = segment_of(a.segments, load_uniform(a.sequence + row));
  const u32 local = row - segment.first, history = (a.taps - 1) * a.dilation;
  const u64 at = static_cast<u64>(row) * a.width;
  f32x4 column[MAX_TAPS], weight[MAX_TAPS];
  UNROLL for (u32 tap = 0; tap < MAX_TAPS; tap++) {
    if (tap >= a.taps) break;
    const u32 place = local + tap * a.dilation;  // among the history, then the step's rows
    const float* from = place < history ? segment.window + (static_cast<u64>(segment.pending) + place) * a.width
                                        : a.normed + (static_cast<u64>(segment.first) + place - history) * a.width;
    column[tap] = reinterpret_cast<const f32x4*>(global(from))[part];
    weight[tap] = reinterpret_cast<const f32x4*>(a.weights + static_cast<u64>(tap) * a.width)[part];
  }
  f32x4* wide = reinterpret_cast<f32x4*>(a.wide + at);
  const f32x4 gated = reinterpret_cast<const f32x4*>(a.gated + at)[part];
  f32x4 sum = {}, out = wide[part];
  UNROLL for (u32 tap = 0; tap < MAX_TAPS; tap++) {
    if (tap >= a.taps) break;
    UNROLL for (int j = 0; j < 4; j++) sum.v[j] = fma_(weight[tap].v[j], column[tap].v[j], sum.v[j]);
  }
  UNROLL for (int j = 0; j < 4; j++) out.v[j] = out.v[j] + (sum.v[j] * sigmoid(sum.v[j]) + gated.v[j]);
  wide[part] = out;
}

// With x = the history behind the pending columns, then the sequence's rows of `normed`:
//   rows <= revocable:  window = x, all history + rows columns of it
//   rows >  revocable:  window = the last `history` columns of x; what lies behind them stays
// grid sequences * ceil(width / 1024), block 256: a thread four channels of a sequence, column by column, so that what
// it moves it has read; behind ple_conv, which reads the window as it was. LDS 0; pointers aligned to 16.
// Exact. Oracle: state/recurrent.rs slide.
KERNEL(256, ple_slide, PleSlideArgs) {
  const u32 parts = (a.width + 1023) / 1024, part = bidx() % parts * 256 + tid();
  if (part >= a.width / 4) return;
  const PleSegment segment = segment_of(a.segments, bidx() / parts);
  if (segment.rows == 0) return;
  const u64 stride = a.width / 4;
  const bool whole = segment.rows <= a.revocable;
  const u32 skip = whole ? 0 : segment.rows, columns = a.history + (whole ? segment.rows : 0);
  f32x4* window = reinterpret_cast<f32x4*>(segment.window) + part;
  const f32x4* fresh = reinterpret_cast<const f32x4*>(a.normed + static_cast<u64>(segment.first) * a.width) + part;
  for (u32 column = 0; column < columns; column++) {
    const u32 from = column + skip;
    const bool old = from < a.history;
    window[stride * column] = old ? window[stride * (segment.pending + from)] : fresh[stride * (from - a.history)];
  }
}
