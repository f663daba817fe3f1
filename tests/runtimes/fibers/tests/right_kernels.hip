// Kernels of the fiber runtime's own tests that are right: every schedule, layout and sanitizer must pass them.
#include "dialect/tile.h"

// bins[v & 255] += 1 for each of count values; *sum += count, in float. bins [256]; grid ceil(count / 1024), block 256.
struct HistogramArgs { u32* bins; const u32* values; float* sum; u32 count; u32 unused; };
KERNEL(256, right_histogram, HistogramArgs) {
  LDS_ARR(u32, own, 256);
  own[tid()] = 0;
  barrier();
  float seen = 0.f;
  for (u32 i = bidx() * 1024 + tid(); i < bidx() * 1024 + 1024; i += 256)
    if (i < a.count) {
      lds_atomic_add(&own[a.values[i] & 255], 1u);
      seen += 1.f;
    }
  barrier();
  if (own[tid()]) atomic_add(&a.bins[tid()], own[tid()]);
  seen = wave_sum(seen);
  if (lane() == 0) atomic_add(a.sum, seen);
}

// Reverses each row of n floats through LDS of 4 n bytes, sized at launch. grid rows, block 256.
struct ReverseArgs { float* out; const float* in; u32 n; u32 unused; };
KERNEL(256, right_reverse, ReverseArgs) {
  LDS_DYN(float, row);
  const u64 at = static_cast<u64>(bidx()) * a.n;
  for (u32 i = tid(); i < a.n; i += 256) row[i] = a.in[at + i];
  barrier();
  for (u32 i = tid(); i < a.n; i += 256) a.out[at + i] = row[a.n - 1 - i];
}

// out (16x16) = A B, with A [16][16] by rows and B [16][16] by columns, in f16. block 32.
struct TileArgs { float* out; const f16* rows; const f16* columns; };
KERNEL(32, right_tile, TileArgs) {
  const auto row_of_16 = [](u32 row) { return 32 * row; };
  Acc sum;
  tile_zero(sum);
  tile_multiply(sum, tile_load(operand_rows(a.rows, row_of_16), 0), tile_load(operand_rows(a.columns, row_of_16), 0));
  tile_each(sum, [&](u32 row, u32 column, float& element) { a.out[16 * row + column] = element; });
}

// The last workgroup to arrive adds up what all of them stored. partial [grid], done [1] = 0; block 64.
struct LastArgs { u32* partial; u32* done; u32* total; u32 workgroups; u32 unused; };
KERNEL(64, right_last_workgroup, LastArgs) {
  LDS(u32, before);
  if (tid() == 0) {
    a.partial[bidx()] = bidx() + 1;
    fence_device();
    before = atomic_add(a.done, 1u);
    fence_device();
  }
  barrier();
  if (before == a.workgroups - 1 && tid() == 0) {
    u32 total = 0;
    for (u32 i = 0; i < a.workgroups; i++) total += a.partial[i];
    *a.total = total;
  }
}
