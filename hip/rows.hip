// Rows of F32 that move or are added as they are.
#include "abi.h"

// wide[r][s][h] += shared[r][h] for every stream s                           (spec 4.2: the MTP head's input)
// grid rows * streams, block 256; LDS 0; hidden a multiple of 4; pointers aligned to 16.
// Exact. Oracle: backend/cpu/hyper.rs fuse (its last loop).
KERNEL(256, stream_add, StreamAddArgs) {
  f32x4* wide = reinterpret_cast<f32x4*>(a.wide + static_cast<u64>(bidx()) * a.hidden);
  const f32x4* shared = reinterpret_cast<const f32x4*>(a.shared + static_cast<u64>(bidx() / a.streams) * a.hidden);
  for (u32 i = tid(); i < a.hidden / 4; i += 256) {
    f32x4 v = wide[i];
    const f32x4 add = shared[i];
    UNROLL for (int j = 0; j < 4; j++) v.v[j] += add.v[j];
    wide[i] = v;
  }
}

// out[i][c] = input[rows[i]][c]; without `rows`, of row i itself. Columns of `out` behind `width` stay.
// grid count * ceil(width / 1024), block 256; LDS 0; pointers aligned to 16; `out` apart from `input`.
// Exact. Oracle: a copy.
KERNEL(256, copy_rows_f32, CopyRowsArgs) {
  const u32 parts = (a.width + 1023) / 1024, row = bidx() / parts, part = bidx() % parts * 256 + tid();
  if (part >= a.width / 4) return;
  const u32 source = a.rows == nullptr ? row : load_uniform(a.rows + row);
  const f32x4* from = reinterpret_cast<const f32x4*>(a.input + static_cast<u64>(source) * a.input_stride);
  reinterpret_cast<f32x4*>(a.out + static_cast<u64>(row) * a.out_stride)[part] = from[part];
}
