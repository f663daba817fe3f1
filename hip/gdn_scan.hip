// The gated delta rule of many rows (spec 2.3): chunks of 64 rows by matrix tiles.
//
// With G the running sum of g inside a chunk and D_ij = e^(G_i - G_j) for j <= i, a chunk is
//   A = strictly_lower(beta K K^T . D), T = (I + A)^-1 beta, P = Q K^T . D          gdn_scan_prepare, every chunk at once
//   V' = T (V - e^G K S), O = e^G Q S + P V', S = e^G_last S + K^T (e^(G_last - G) V')   gdn_scan, chunk after chunk
// No element of T is above one (a row's d is made of keys that are unit vectors, by a map that lengthens nothing), so F16
// holds it; the state stays in F32 registers and is rounded to F16 only as an operand. Values and states must stay below
// F16's 65504. Rows past a segment's end have g = beta = 0 and zero vectors: they change nothing.
// Each launch covers segments of more than `limit` rows, after gdn_step folded their pending rows in.
// Rounding. Oracle: backend/cpu/chunked.rs chunked. Workgroups for chunks that a segment lacks return at once.
#include "gdn.h"
#include "dialect/tile.h"

enum { CHUNK = 64, CHUNK_TILES = CHUNK / 16, PACK_STRIDE = 128 + 2 };

// A chunk of a launch over sequences and chunks.
struct ChunkPlace { bool present; u32 sequence, row, rows; u64 chunk; };
DEV ChunkPlace chunk_place(const GdnScanArgs& a, u32 index) {
  const u32 sequence = index / a.chunks, at = index % a.chunks;
  const GdnSegment segment = gdn_segment(a.segments, sequence);
  const u32 begin = at * CHUNK;
  const bool present = segment.rows > a.limit && begin < segment.rows;
  const u32 left = present ? segment.rows - begin : 0;
  return ChunkPlace{present, sequence, segment.first + begin, left < CHUNK ? left : CHUNK, segment.chunk + at};
}

// Keys and queries of a chunk and key head in F16, row by row, and the keys transposed.
// grid sequences * chunks * key_heads, block 256; LDS 17 KiB at key_dim 128; key_dim a multiple of 8, at most 128.
// Exact (round to nearest even).
struct alignas(8) Halves { f16 v[4]; };
KERNEL(256, gdn_scan_pack, GdnScanArgs) {
  LDS_ARR(f16, lds, CHUNK * PACK_STRIDE);
  const u32 key_head = bidx() % a.key_heads, dk = a.key_dim;
  const ChunkPlace place = chunk_place(a, bidx() / a.key_heads);
  if (!place.present) return;
  const u32 keys = a.key_heads * dk, channels = 2 * keys + a.value_heads * a.value_dim;
  const float* mixed = a.mixed + static_cast<u64>(place.row) * channels + key_head * dk;
  f16* to = a.keys + (place.chunk * a.key_heads + key_head) * 3 * CHUNK * dk;
  for (u32 i = 4 * tid(); i < CHUNK * dk; i += 4 * 256) {
    const u32 row = i / dk, column = i % dk;
    f32x4 k = {}, q = {};
    if (row < place.rows) {
      q = *reinterpret_cast<const f32x4*>(mixed + static_cast<u64>(row) * channels + column);
      k = *reinterpret_cast<const f32x4*>(mixed + static_cast<u64>(row) * channels + keys + column);
    }
    Halves k16, q16;
    UNROLL for (int j = 0; j < 4; j++) {
      k16.v[j] = to_f16(k.v[j]);
      q16.v[j] = to_f16(q.v[j]);
      lds[row * PACK_STRIDE + column + j] = k16.v[j];
    }
    *reinterpret_cast<Halves*>(to + i) = k16;
    *reinterpret_cast<Halves*>(to + CHUNK * dk + i) = q16;
  }
  barrier();
  for (u32 i = 8 * tid(); i < CHUNK * dk; i += 8 * 256) {
    f16x8 column;
    UNROLL for (u32 j = 0; j < 8; j++) column.v[j] = lds[(i % CHUNK + j) * PACK_STRIDE + i / CHUNK];
    *reinterpret_cast<f16x8*>(to + 2 * CHUNK * dk + i) = column;
  }
}

// T and P of a chunk and value head, and the decays that gdn_scan applies to rows.
// grid sequences * chunks * value_heads, block 64; LDS 17 KiB. The inverse in F32: a thread a column of it.
struct alignas(16) PrepareLds { float a[CHUNK][CHUNK]; float g[CHUNK], sum[CHUNK], beta[CHUNK]; };

template<int DK> DEV void gdn_scan_prepare(const GdnScanArgs& a, PrepareLds& lds) {
  const u32 head = bidx() % a.value_heads;
  const ChunkPlace place = chunk_place(a, bidx() / a.value_heads);
  if (!place.present) return;
  const u32 key_head = gdn_key_head(head, a.key_heads, a.value_heads, a.tiled);
  const u64 pair = place.chunk * a.value_heads + head;
  {
    const u64 at = (place.row + (tid() < place.rows ? tid() : 0)) * static_cast<u64>(a.value_heads) + head;
    lds.g[tid()] = tid() < place.rows ? a.decay[at] : 0.f;
    lds.beta[tid()] = tid() < place.rows ? a.strength[at] : 0.f;
  }
  barrier();
  {
    float sum = 0.f, total = 0.f;
    for (u32 i = 0; i < CHUNK; i++) {
      total += lds.g[i];
      if (i == tid()) sum = total;
    }
    lds.sum[tid()] = sum;
    a.growth[pair * 2 * CHUNK + tid()] = exp_(sum);
    a.growth[pair * 2 * CHUNK + CHUNK + tid()] = exp_(total - sum);
  }
  barrier();
  const f16* keys = a.keys + (place.chunk * a.key_heads + key_head) * 3 * CHUNK * DK;
  f16* inverse = a.pairs + pair * 2 * CHUNK * CHUNK;
  f16* products = inverse + CHUNK * CHUNK;
  const auto rows_of = [&](const f16* base) { return operand_rows(base, [](u32 row) { return 2 * DK * row; }); };
  for (u32 t = wave(); t < CHUNK_TILES * (CHUNK_TILES + 1) / 2; t += 2) {
    const u32 down = t < 1 ? 0 : t < 3 ? 1 : t < 6 ? 2 : 3, across = t - down * (down + 1) / 2;
    const OperandRows k_down = rows_of(keys + down * 16 * DK), q_down = rows_of(keys + (CHUNK + down * 16) * DK);
    const OperandRows k_across = rows_of(keys + across * 16 * DK);
    Acc kk, qk;
    tile_zero(kk);
    tile_zero(qk);
    UNROLL for (u32 k = 0; k < DK; k += 16) {
      const Operand b = tile_load(k_across, k);
      tile_multiply(kk, tile_load(k_down, k), b);
      tile_multiply(qk, tile_load(q_down, k), b);
    }
    UNROLL for (u32 e = 0; e < ACC_ELEMENTS; e++) {
      const u32 i = 16 * down + acc_row(e), j = 16 * across + acc_column(e);
      const float decay = exp_(j <= i ? lds.sum[i] - lds.sum[j] : 0.f);
      lds.a[i][j] = j < i ? kk.c[e] * (lds.beta[i] * decay) : 0.f;
      products[i * CHUNK + j] = to_f16(j <= i ? qk.c[e] * decay : 0.f);
    }
  }
  barrier();
  float x[CHUNK];
  const float beta = lds.beta[tid()];
  UNROLL for (u32 i = 0; i < CHUNK; i++) {
    // Four chains: a single one of 63 would wait for itself.
    float sum[4] = {tid() == i ? 1.f : 0.f, 0.f, 0.f, 0.f};
    UNROLL for (u32 j = 0; j < i; j += 4) {
      const f32x4 factors = *reinterpret_cast<const f32x4*>(&lds.a[i][j]);
      UNROLL for (u32 c = 0; c < 4; c++)
        if (j + c < i) sum[c] = fma_(-factors.v[c], x[j + c], sum[c]);
    }
    x[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    inverse[i * CHUNK + tid()] = to_f16(x[i] * beta);
    if (i % 4 == 3) keep_order();
  }
}

// Element e of an accumulator in a matrix: an address that the whole wave shares plus this lane's offset, which is the
// same for every element, so that the addresses of a tile take one register.
DEV u8* acc_at(const float* base, u32 stride, u32 offset, u32 e) {
  const u64 shared = static_cast<u64>((acc_row(e) - acc_row(0)) * stride) + (acc_column(e) - acc_column(0));
  return reinterpret_cast<u8*>(const_cast<float*>(base + shared)) + offset;
}
DEV float acc_read(const float* base, u32 stride, u32 offset, u32 e) {
  return *reinterpret_cast<const float*>(acc_at(base, stride, offset, e));
}
DEV void acc_write(float* base, u32 stride, u32 offset, u32 e, float value) {
  *reinterpret_cast<float*>(acc_at(base, stride, offset, e)) = value;
}
DEV u32 acc_offset(u32 stride) { return 4 * (acc_row(0) * stride + acc_column(0)); }

// Every chunk of a segment and value head in turn: V', the output and the state.
// grid sequences * value_heads * dv / 64, block 128: a wave 16 columns, which meet no others; LDS 0; dk = dv = DIM.
// The products follow each other in registers: what one leaves is the next one's B (tile_as_b).
template<int DIM> DEV void gdn_scan(const GdnScanArgs& a) {
  enum { STATE_TILES = DIM / 16, PARTS = DIM / 64 };
  const u32 head = bidx() / PARTS % a.value_heads, sequence = bidx() / PARTS / a.value_heads;
  const u32 first = bidx() % PARTS * 64 + 16 * wave();
  const GdnSegment segment = gdn_segment(a.segments, sequence);
  if (segment.rows <= a.limit) return;
  const u32 key_head = gdn_key_head(head, a.key_heads, a.value_heads, a.tiled);
  const u32 values = 2 * a.key_heads * DIM, width = a.value_heads * DIM, channels = values + width;
  float* state = gdn_plane(&a.planes[sequence].state) + static_cast<u64>(head) * DIM * DIM + first;
  const u32 state_offset = acc_offset(DIM), out_offset = acc_offset(width);
  Acc s[STATE_TILES];
  UNROLL for (u32 d = 0; d < STATE_TILES; d++)
    UNROLL for (u32 e = 0; e < ACC_ELEMENTS; e++) s[d].c[e] = acc_read(state + 16 * d * DIM, DIM, state_offset, e);

  for (u32 begin = 0; begin < segment.rows; begin += CHUNK) {
    const u64 chunk = segment.chunk + begin / CHUNK;
    const u32 rows = segment.rows - begin < CHUNK ? segment.rows - begin : CHUNK;
    const f16* keys = a.keys + (chunk * a.key_heads + key_head) * 3 * CHUNK * DIM;
    const f16* pairs = a.pairs + (chunk * a.value_heads + head) * 2 * CHUNK * CHUNK;
    const float* growth = a.growth + (chunk * a.value_heads + head) * 2 * CHUNK + acc_row(0);
    const u8* v = reinterpret_cast<const u8*>(a.mixed + static_cast<u64>(segment.first + begin) * channels + values +
                                              head * DIM + first);
    float* out = a.out + static_cast<u64>(segment.first + begin) * width + head * DIM + first;
    const OperandRows k_rows = operand_rows(keys, [](u32 row) { return 2 * DIM * row; });
    const OperandRows pair_rows = operand_rows(pairs, [](u32 row) { return 2 * CHUNK * row; });
    const OperandRows k_columns = operand_rows(keys + 2 * CHUNK * DIM, [](u32 row) { return 2 * CHUNK * row; });
    // Row tile `tile` of a matrix whose rows have `length` elements.
    const auto tile_of = [](OperandRows of, u32 tile, u32 length, u32 k) {
      of.base += 2 * 16 * tile * length;
      return tile_load(of, k);
    };
    const auto row_of = [](u32 tile, u32 e) { return 16 * tile + acc_row(e); };
    const auto step = [](u32 tile, u32 e) { return 16 * tile + acc_row(e) - acc_row(0); };

    Acc change[CHUNK_TILES], o[CHUNK_TILES];
    UNROLL for (u32 t = 0; t < CHUNK_TILES; t++) { tile_zero(change[t]); tile_zero(o[t]); }
    UNROLL for (u32 d = 0; d < STATE_TILES; d++) {
      const Operand column = tile_as_b(s[d]);
      UNROLL for (u32 t = 0; t < CHUNK_TILES; t++) tile_multiply(change[t], tile_of(k_rows, t, DIM, 16 * d), column);
      if (OPERAND_ELEMENTS == 16) keep_order();
      UNROLL for (u32 t = 0; t < CHUNK_TILES; t++)
        tile_multiply(o[t], tile_of(k_rows, CHUNK_TILES + t, DIM, 16 * d), column);
      keep_order();
    }
    Operand wanted[CHUNK_TILES], b[CHUNK_TILES];
    UNROLL for (u32 t = 0; t < CHUNK_TILES; t++) {
      UNROLL for (u32 e = 0; e < ACC_ELEMENTS; e++) {
        const u32 row = row_of(t, e), source = row < rows ? row : rows - 1;  // T's columns past the end are zero
        const float grown = growth[step(t, e)];
        const float value = *reinterpret_cast<const float*>(v + 4 * (source * channels + acc_column(e)));
        change[t].c[e] = fma_(-grown, change[t].c[e], value);
        o[t].c[e] *= grown;
      }
      wanted[t] = tile_as_b(change[t]);
      keep_order();
    }
    UNROLL for (u32 t = 0; t < CHUNK_TILES; t++) {
      tile_zero(change[t]);
      UNROLL for (u32 k = 0; k <= t; k++) tile_multiply(change[t], tile_of(pair_rows, t, CHUNK, 16 * k), wanted[k]);
      b[t] = tile_as_b(change[t]);
      keep_order();
    }
    UNROLL for (u32 t = 0; t < CHUNK_TILES; t++) {
      UNROLL for (u32 k = 0; k <= t; k++)
        tile_multiply(o[t], tile_of(pair_rows, CHUNK_TILES + t, CHUNK, 16 * k), b[k]);
      keep_order();
    }
    // Two ways that both use all of `o`: behind a single one the compiler would move the products of `o` too, and keep
    // the registers of all their operands until then.
    const auto store = [&](u32 t, u32 e) {
      acc_write(out + static_cast<u64>(16 * t) * width, width, out_offset, e, o[t].c[e]);
    };
    if (rows == CHUNK) {
      UNROLL for (u32 t = 0; t < CHUNK_TILES; t++) UNROLL for (u32 e = 0; e < ACC_ELEMENTS; e++) store(t, e);
    } else {
      UNROLL for (u32 t = 0; t < CHUNK_TILES; t++)
        UNROLL for (u32 e = 0; e < ACC_ELEMENTS; e++)
          if (row_of(t, e) < rows) store(t, e);
    }
    const float shrink = load_uniform(growth - acc_row(0) + CHUNK - 1);
    UNROLL for (u32 t = 0; t < CHUNK_TILES; t++) {
      UNROLL for (u32 e = 0; e < ACC_ELEMENTS; e++) change[t].c[e] *= growth[CHUNK + step(t, e)];
      b[t] = tile_as_b(change[t]);
    }
    keep_order();
    UNROLL for (u32 d = 0; d < STATE_TILES; d++) {
      UNROLL for (u32 e = 0; e < ACC_ELEMENTS; e++) s[d].c[e] *= shrink;
      UNROLL for (u32 k = 0; k < CHUNK_TILES; k++) tile_multiply(s[d], tile_of(k_columns, d, CHUNK, 16 * k), b[k]);
      if (OPERAND_ELEMENTS == 16 || d % 2 == 1) keep_order();
    }
  }
  UNROLL for (u32 d = 0; d < STATE_TILES; d++)
    UNROLL for (u32 e = 0; e < ACC_ELEMENTS; e++) acc_write(state + 16 * d * DIM, DIM, state_offset, e, s[d].c[e]);
}

#define GDN_SCAN(DK)                                \
  KERNEL(64, gdn_scan_prepare_##DK, GdnScanArgs) {  \
    LDS(PrepareLds, lds);                           \
    gdn_scan_prepare<DK>(a, lds);                   \
  }                                                 \
  KERNEL(128, gdn_scan_##DK, GdnScanArgs) { gdn_scan<DK>(a); }
GDN_SCAN(64)
GDN_SCAN(128)
