// What the Gated DeltaNet kernels share (spec 2.3): where a value head's queries and keys lie, gates.
//
// Owns: the map from value heads to key heads, how rows of a step are found, the decay's softplus.
// Always true: segments and planes are indexed by the step's sequence; segments tell how many rows are pending, so that
// a replayed launch takes back what the sequence took back. The order of launches is gdn_conv, gdn_slide (if a segment
// has more rows than a tile), gdn_step, gdn_scan_* (if a segment has more rows than gdn_step's limit), gdn_output.
// Not here: the recurrence (gdn_step.hip), its chunked form (gdn_scan.hip).
#pragma once
#include "abi.h"
#include "activation.h"

DEV GdnSegment gdn_segment(const GdnSegment* segments, u32 sequence) { return load_uniform(segments + sequence); }
DEV float* gdn_plane(PTR(float) const* plane) { return global(load_uniform(plane)); }

// HeadMap of config.rs: grouped (Hugging Face) or tiled (GGUF).
DEV u32 gdn_key_head(u32 head, u32 key_heads, u32 value_heads, u32 tiled) {
  return tiled ? head % key_heads : head / (value_heads / key_heads);
}

// ln(1 + e^x), x above 20. Below e^x = 1/2 by the series of 2 atanh(y / (2 + y)), whose relative error stays small;
// its first omitted term is 1e-9 of the result.
DEV float gdn_softplus(float x) {
  const float y = exp_(fmin_(x, 20.f)), s = y * rcp_(2.f + y), t = s * s;
  float series = fma_(t, 1.f / 11.f, 1.f / 9.f);
  series = fma_(t, series, 1.f / 7.f);
  series = fma_(t, series, 1.f / 5.f);
  series = fma_(t, series, 1.f / 3.f);
  series = 2.f * fma_(s * t, series, s);
  return x > 20.f ? x : y < 0.5f ? series : log_(1.f + y);
}
