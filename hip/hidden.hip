// The ring of hidden rows that a sequence keeps for its MTP head (spec 4; state/head.rs).
#include "abi.h"

// Row r's place in its sequence's ring, four columns a thread.
struct RingPlace { f32x4* ring; f32x4* wide; };
DEV RingPlace ring_place(const HiddenArgs& a, u32 row, u32 column) {
  float* ring = global(reinterpret_cast<float*>(a.rings[a.sequence[row]]));
  const u64 slot = a.positions[row] % a.slots;
  return RingPlace{reinterpret_cast<f32x4*>(ring + slot * a.width + column),
                   reinterpret_cast<f32x4*>(a.wide + static_cast<u64>(row) * a.width + column)};
}

// ring[positions[r] % slots] = wide[r]      for the last `slots` rows of each segment
// grid rows * ceil(width / 1024), block 256; LDS 0; pointers aligned to 16.
// Exact. Oracle: backend/cpu/hyper.rs keep.
KERNEL(256, hidden_keep, HiddenArgs) {
  const u32 parts = (a.width + 1023) / 1024, row = bidx() / parts, column = (bidx() % parts * 256 + tid()) * 4;
  const GdnSegment segment = a.segments[a.sequence[row]];
  if (column >= a.width || row + a.slots < segment.first + segment.rows) return;
  const RingPlace place = ring_place(a, row, column);
  *place.ring = *place.wide;
}

// wide[r] = ring[positions[r] % slots]
// grid, block, alignment as above. Exact. Oracle: backend/cpu/hyper.rs load.
KERNEL(256, hidden_load, HiddenArgs) {
  const u32 parts = (a.width + 1023) / 1024, row = bidx() / parts, column = (bidx() % parts * 256 + tid()) * 4;
  if (column >= a.width) return;
  const RingPlace place = ring_place(a, row, column);
  *place.wide = *place.ring;
}
