// Token embeddings (spec 2.1).
#include "abi.h"
#include "formats.h"

// wide[r][s][i] = table[ids[r]][i] for every stream s
// table [vocabulary, hidden], ids [rows]; grid (rows), block 256; LDS 0; wide aligned to 16, table as its format says.
// Exact. Oracle: the format's decode in src/weights/format.
template<class Format> DEV void embed(const EmbedArgs& a) {
  const u32 id = load_uniform(a.ids + bidx());
  const u8* row = static_cast<const u8*>(a.table) + Format::row_bytes(a.hidden) * id;
  const float* scales = nullptr;
  if constexpr (Format::SCALED != 0) scales = Format::scale_row(a.scales, a.hidden, id, 0);
  float* wide = a.wide + static_cast<u64>(bidx()) * a.streams * a.hidden;
  for (u32 group = tid(); group < a.hidden / Format::GROUP; group += 256) {
    const auto raw = Format::load(row, scales, group);
    UNROLL for (u32 p = 0; p < Format::GROUP / 8; p++) {
      float v[8];
      Format::part(raw, group, p, v);
      for (u32 s = 0; s < a.streams; s++) {
        f32x4* out = reinterpret_cast<f32x4*>(wide + (static_cast<u64>(s) * a.hidden + Format::at(group, p)));
        UNROLL for (u32 i = 0; i < 2; i++) out[i] = f32x4{{v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]}};
      }
    }
  }
}

#define EMBED(format, Format) \
  KERNEL(256, embed_##format, EmbedArgs) { embed<Format>(a); }
EMBED(f32, F32Format)
EMBED(f16, F16Format)
EMBED(bf16, Bf16Format)
EMBED(fp8, Fp8Format)
EMBED(q8_0, Q8_0Format)
EMBED(q4_0, Q4_0Format)
EMBED(q4_1, Q4_1Format)
EMBED(q5_0, Q5_0Format)
EMBED(q5_1, Q5_1Format)
EMBED(iq4_nl, Iq4NlFormat)
EMBED(q2_k, Q2KFormat)
EMBED(q3_k, Q3KFormat)
EMBED(q4_k, Q4KFormat)
EMBED(q5_k, Q5KFormat)
EMBED(q6_k, Q6KFormat)
EMBED(iq4_xs, Iq4XsFormat)
