// Token embeddings (spec 2.1).
#include "abi.h"
#include "formats.h"

// wide[r][s][i] = table[ids[r]][i] for every stream s
// table [vocabulary, hidden], ids [rows]; grid (rows), block 256; LDS 0; pointers aligned to 16.
// Exact. Oracle: the format's decode in src/weights/format.
template<class Format> DEV void embed(const EmbedArgs& a) {
  const u8* row = static_cast<const u8*>(a.table) + Format::row_bytes(a.hidden) * a.ids[bidx()];
  float* wide = a.wide + static_cast<u64>(bidx()) * a.streams * a.hidden;
  for (u32 group = tid(); group < a.hidden / Format::GROUP; group += 256) {
    float v[Format::GROUP];
    Format::decode(row, group, v);
    for (u32 s = 0; s < a.streams; s++) {
      f32x4* out = reinterpret_cast<f32x4*>(wide + static_cast<u64>(s) * a.hidden + group * Format::GROUP);
      UNROLL for (int i = 0; i < Format::GROUP / 4; i++) out[i] = f32x4{{v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]}};
    }
  }
}

KERNEL(256, embed_bf16, EmbedArgs) { embed<Bf16Format>(a); }
