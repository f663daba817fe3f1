// What gathered attention reads (spec 2.4): a sequence's keys and values out of its stored state, in F16.
#include "abi.h"
#include "kv.h"

// F16 nearest to x, ties to even. What is finite stays finite: beyond F16 it becomes the largest F16 of its sign, so
// that one outlier cannot turn a row of attention into NaNs. Infinities and NaNs stay what they are: a broken step is
// seen here as it is with an F32 state.
DEV f16 finite_f16(float x) {
  const bool over = magnitude(x) - 0x477fe001u < F32_INFINITY - 0x477fe001u;  // above 65504 and finite
  return to_f16(over ? (x < 0.f ? -65504.f : 65504.f) : x);
}

// 16 bytes that are aligned to 2, if not to 4 behind at least 2 bytes of the same plane: the aligned words around them now, what
// they lack once all loads are under way.
struct Codes { u32x4 words; const u8* end; };
DEV Codes load_codes(const u8* p) { return Codes{load_by_words(p - (reinterpret_cast<u64>(p) & 2)), p + 14}; }
DEV void complete(Codes& codes) {
  if ((reinterpret_cast<u64>(codes.end) & 2) == 0) {
    u32x4& words = codes.words;
    const u32 last = *reinterpret_cast<const u16*>(codes.end);
    UNROLL for (int i = 0; i < 3; i++) words.v[i] = words.v[i] >> 16 | words.v[i + 1] << 16;
    words.v[3] = words.v[3] >> 16 | last << 16;
  }
}
DEV u32 byte_of(const Codes& codes, int i) { return codes.words.v[i / 4] >> (8 * (i % 4)) & 255u; }

// COLUMNS consecutive elements of a row as they are stored, and each as a number.
struct F32Columns {
  enum { COLUMNS = 8 };
  f32x4 part[2];
  DEV_MEMBER F32Columns load(const u8* row, u32, u32, u32 column) {
    const f32x4* from = reinterpret_cast<const f32x4*>(reinterpret_cast<const float*>(row) + column);
    return F32Columns{{from[0], from[1]}};
  }
  DEV_MEMBER void finish(F32Columns&) {}
  DEV_MEMBER float number(const F32Columns& s, int i) { return s.part[i / 4].v[i % 4]; }
};
template<class Format> struct CodeColumns {
  enum { COLUMNS = 16 };
  Codes codes;
  float scale;
  DEV_MEMBER CodeColumns load(const u8* row, u32 kv_heads, u32 dim, u32 column) {
    const u32 place = Format::scale_at(column / dim, dim, column % dim);
    return CodeColumns{load_codes(row + column), f16_number(scales_of(row, kv_heads, dim)[place])};
  }
  DEV_MEMBER void finish(CodeColumns& s) { complete(s.codes); }
  DEV_MEMBER float number(const CodeColumns& s, int i) { return Format::number(byte_of(s.codes, i)) * s.scale; }
};

// k_out[t][c] = f16(key of token t);  v_out[t / 4][c][t % 4] = f16(value of token t);  c over kv_heads * dim;
// zeros from `tokens` to the end of its block of four
// grid 2 * ceil(blocks * (width / COLUMNS) / 64), block 64, COLUMNS 8 of an f32 state and 16 of the others: a thread
// that many columns of a block of four tokens, the first half of the grid keys, the second values; LDS 0.
// Outputs aligned to 16; dim a multiple of 32 (released 256, ember 64).
// Every access has 16 bytes but scales; rows that are no number of words are put together from aligned ones.
// Exact: the state's number, then finite_f16. Oracle: state/kv.rs Rows::read, half::f16::from_f32.
template<class Columns, class KvFormat> DEV void qsa_pack(const QsaPackArgs& a) {
  const u32 width = a.kv_heads * a.dim, parts = width / Columns::COLUMNS;
  const u32 blocks = (a.tokens + 3) / 4 - a.first / 4, half = (blocks * parts + 63) / 64;
  const bool keys = bidx() < half;
  const u32 task = (keys ? bidx() : bidx() - half) * 64 + tid();
  if (task >= blocks * parts) return;
  const u32 block = a.first / 4 + task / parts, column = task % parts * Columns::COLUMNS;
  const KvPlanes planes = load_uniform(a.planes + a.sequence);
  const u8* plane = global(keys ? planes.keys : planes.values);
  const u64 row_bytes = KvFormat::row_bytes(a.kv_heads, a.dim);
  Columns stored[4];
  UNROLL for (u32 i = 0; i < 4; i++) {
    // A token past the end reads the last one.
    const u32 token = 4 * block + i < a.tokens ? 4 * block + i : a.tokens - 1;
    stored[i] = Columns::load(plane + row_bytes * token, a.kv_heads, a.dim, column);
  }
  UNROLL for (u32 i = 0; i < 4; i++) Columns::finish(stored[i]);
  const auto number = [&](u32 i, int c) {
    return 4 * block + i < a.tokens ? finite_f16(Columns::number(stored[i], c)) : to_f16(0.f);
  };
  if (keys) {
    UNROLL for (u32 i = 0; i < 4; i++) {
      f16x8* out = reinterpret_cast<f16x8*>(a.k_out + (4ull * block + i) * width + column);
      UNROLL for (int part = 0; part < Columns::COLUMNS / 8; part++) {
        f16x8 v;
        UNROLL for (int c = 0; c < 8; c++) v.v[c] = number(i, 8 * part + c);
        out[part] = v;
      }
    }
  } else {
    f16x8* out = reinterpret_cast<f16x8*>(a.v_out + (static_cast<u64>(block) * width + column) * 4);
    UNROLL for (int pair = 0; pair < Columns::COLUMNS / 2; pair++) {
      f16x8 v;
      UNROLL for (int c = 0; c < 8; c++) v.v[c] = number(c % 4, 2 * pair + c / 4);
      out[pair] = v;
    }
  }
}

KERNEL(64, qsa_pack_f32, QsaPackArgs) { qsa_pack<F32Columns, KvF32>(a); }
KERNEL(64, qsa_pack_fp8, QsaPackArgs) { qsa_pack<CodeColumns<KvFp8>, KvFp8>(a); }
KERNEL(64, qsa_pack_q8, QsaPackArgs) { qsa_pack<CodeColumns<KvQ8>, KvQ8>(a); }
