// Experts' products for many rows (spec 2.5): grouped matrix products over the tiles of moe_lists, one body for all
// formats (moe_gemm*.hip instantiate it).
//
// Owns: how tiles go through LDS, SwiGLU between the products. Always true: activations are F16 rows padded with zeros to
// whole steps, so that neither operand needs a mask along the inputs (a weight that is read twice there meets a zero);
// what leaves in F16 is a sixteenth of itself, and at most F16's greatest number.
// Not here: where a lane's elements of a matrix tile lie (dialect/tile.h), decode (formats.h), lists (moe_route.hip).
#pragma once
#include "abi.h"
#include "activation.h"
#include "stage.h"

// A workgroup multiplies TILE_ENTRIES entries by two times 128 rows of weights: gate and up, or twice as many outputs of
// down. A wave owns 16 rows of each and all entries, so that waves stay equally busy with however few entries.
enum : u32 { TILE_ENTRIES = 64, SPAN = 128, COLUMNS = TILE_ENTRIES / 16 };

union alignas(16) MoeGemmLds {
  struct { alignas(16) f16 w[STAGES][2 * SPAN][PITCH]; alignas(16) f16 x[STAGES][TILE_ENTRIES][PITCH]; } step;
  alignas(16) f16 out[TILE_ENTRIES][SPAN + 8];
};
// Of the tile's entries: the row they read, the row they write, the factor of what they read.
struct MoeTileLds { u32 from[TILE_ENTRIES], to[TILE_ENTRIES]; float factor[TILE_ENTRIES]; };

DEV u32 padded(u32 width) { return (width + DEPTH - 1) / DEPTH * DEPTH; }
DEV f16 sixteenth(float x) { return to_f16(fmax_(fmin_(x, 65504.f), -65504.f)); }

// Tile `index`: from the table, or of `count` entries of one expert.
DEV MoeTile tile_at(const MoeTile* tiles, u32 index, u32 count, u32 expert) {
  if (tiles != nullptr) return load_uniform(tiles + index);
  const u32 first = index * TILE_ENTRIES;
  return MoeTile{expert, first, least(count - first, TILE_ENTRIES), 0};
}

// sums[h][c] = w[h] x: rows of half h (16 of this wave) by entries 16c … of the tile. weights(half, row) -> WeightRow
// for row 0 … 127 of a half. Weights are decoded to F16 on the way from registers to LDS.
template<class Format, class F>
DEV void moe_gemm(Acc (&sums)[2][COLUMNS], MoeGemmLds& lds, const MoeTileLds& tile, const f16* activations, u32 inputs,
                  u32 columns, F weights) {
  enum : u32 {
    GROUP = Format::GROUP,
    WINDOW = DEPTH / GROUP,              // groups of a row in a step
    BLOCK_ROWS = 256 / WINDOW,           // rows that the workgroup loads at once
    W_LOADS = 2 * SPAN / BLOCK_ROWS,     // groups a thread
    X_LOADS = TILE_ENTRIES / 32,         // of 16 bytes a thread
    PARTS = GROUP / 8,                   // of eight weights in a group
    TOGETHER = W_LOADS * PARTS / QUARTERS,  // of them in a quarter of a step
  };
  const u32 stride = padded(inputs), groups = inputs / GROUP;
  const u8* x = reinterpret_cast<const u8*>(activations);
  u32 x_at[X_LOADS];
  UNROLL for (u32 i = 0; i < X_LOADS; i++) x_at[i] = 2 * (tile.from[tid() / 8 + 32 * i] * stride + tid() % 8 * 8);
  const u32 own = store_row(tid(), WINDOW, Format::INTERLEAVED != 0), place = tid() % WINDOW;
  WeightRow rows[W_LOADS];
  UNROLL for (u32 i = 0; i < W_LOADS; i++) rows[i] = weights(BLOCK_ROWS * i / SPAN, own + BLOCK_ROWS * i % SPAN);

  u32x4 next_x[X_LOADS];
  typename Format::Raw next_w[W_LOADS];
  // Of the groups in registers: a step's parts are stored before the next step's group is loaded.
  u32 group[W_LOADS];
  const auto load = [&](u32 k, u32 first, u32 end) INLINED {
    UNROLL for (u32 i = 0; i < W_LOADS; i++) {
      if ((i + 1) * PARTS <= first * TOGETHER || (i + 1) * PARTS > end * TOGETHER) continue;
      group[i] = least(k / GROUP + place, groups - 1);
      next_w[i] = Format::load(rows[i].bytes, rows[i].scales, group[i]);
    }
    UNROLL for (u32 i = 0; i < X_LOADS; i++)
      if (i >= first && i < end) copy(next_x[i], *reinterpret_cast<const u32x4*>(x + x_at[i] + 2 * k));
  };
  const auto store = [&](u32 stage, u32 first, u32 end) INLINED {
    UNROLL for (u32 i = 0; i < X_LOADS; i++)
      if (i >= first && i < end) copy(sixteen_bytes(lds.step.x[stage][tid() / 8 + 32 * i][tid() % 8 * 8]), next_x[i]);
    UNROLL for (u32 i = 0; i < W_LOADS * PARTS; i++)
      if (i >= first * TOGETHER && i < end * TOGETHER)
        stage_part<Format>(lds.step.w[stage][own + BLOCK_ROWS * (i / PARTS)], next_w[i / PARTS], group[i / PARTS], place,
                           i % PARTS);
  };
  UNROLL for (u32 h = 0; h < 2; h++) UNROLL for (u32 c = 0; c < COLUMNS; c++) tile_zero(sums[h][c]);
  const LdsRows w_rows = lds_rows(&lds.step.w[0][0][0], [&](u32 r) { return 2 * PITCH * (16 * wave() + r); });
  const LdsRows x_rows = lds_rows(&lds.step.x[0][0][0], [&](u32 r) { return 2 * PITCH * r; });
  steps(stride, load, store, [&](u32 stage, u32 quarter) INLINED {
    const u32 w_from = 16 * quarter + PITCH * (2 * SPAN * stage), x_from = 16 * quarter + PITCH * (TILE_ENTRIES * stage);
    Operand w[2];
    UNROLL for (u32 h = 0; h < 2; h++) w[h] = tile_load(w_rows, w_from + PITCH * (SPAN * h));
    UNROLL for (u32 c = 0; c < COLUMNS; c++) {
      if (c >= columns) break;
      const Operand entries = tile_load(x_rows, x_from + 16 * PITCH * c);
      UNROLL for (u32 h = 0; h < 2; h++) tile_multiply(sums[h][c], w[h], entries);
    }
  });
  barrier();
}

// Rows of `lds.out` to rows of memory, 16 bytes a lane. to(entry) -> row
template<class F>
DEV void store_tile(f16* out, u32 stride, u32 first, u32 width, u32 count, const MoeGemmLds& lds, F to) {
  for (u32 i = tid(); i < count * (SPAN / 8); i += 256) {
    const u32 entry = i / (SPAN / 8), column = i % (SPAN / 8) * 8;
    if (first + column < width)
      *reinterpret_cast<u32x4*>(out + static_cast<u64>(to(entry)) * stride + first + column) =
          *reinterpret_cast<const u32x4*>(&lds.out[entry][column]);
  }
}

// hidden[i][n] = 1/16 * silu(gate_e[n] . x[r]) * (up_e[n] . x[r])   for the entries i of tiles, e = the tile's expert,
// r = entries[i] / top_k; zeros for n from `inner` to the stride
// x as gemm_rows leaves it; grid tiles * ceil(inner / 128), block 256; LDS 46 KiB; pointers aligned to 16.
// Rounding: operands rounded to F16 (2^-11 of themselves; of x at least 2^-39 of its row's largest, of w 2^-25), sums in
// F32 over k ascending, the result rounded to F16. An entry has the same bits in every batch on one target.
// Oracle: backend/cpu/moe.rs.
template<class Format> DEV void moe_gemm_gate_up(const MoeGemmGateUpArgs& a, MoeGemmLds& lds, MoeTileLds& entries) {
  const u32 parts = (a.inner + SPAN - 1) / SPAN, first = bidx() % parts * SPAN;
  const MoeTile tile = tile_at(a.tiles, bidx() / parts, a.count, a.expert);
  if (tile.count == 0) return;
  if (tid() < TILE_ENTRIES) {
    const u32 entry = tile.first + least(tid(), tile.count - 1);
    const u32 row = a.entries != nullptr ? a.entries[entry] / a.top_k : entry;
    entries.from[tid()] = row;
    entries.factor[tid()] = a.factors[row];
  }
  barrier();
  const MoeExpert expert = load_uniform(a.experts + tile.expert);
  const u32 columns = (tile.count + 15) / 16;
  Acc sums[2][COLUMNS];
  moe_gemm<Format>(sums, lds, entries, a.x, a.inputs, columns, [&](u32 half, u32 row) {
    return half == 0 ? weight_row<Format>(expert.gate, expert.gate_scales, a.inputs, first + row, a.inner, 0)
                     : weight_row<Format>(expert.up, expert.up_scales, a.inputs, first + row, a.inner, expert.up_offset);
  });
  UNROLL for (u32 c = 0; c < COLUMNS; c++)
    UNROLL for (u32 i = 0; i < ACC_ELEMENTS; i++) {
      const u32 entry = 16 * c + acc_column(i), output = 16 * wave() + acc_row(i);
      const float factor = entries.factor[entry];
      const float gate = sums[0][c].c[i] * factor, up = sums[1][c].c[i] * factor;
      lds.out[entry][output] = sixteenth(first + output < a.inner ? silu(gate) * up * 0.0625f : 0.f);
    }
  barrier();
  store_tile(a.hidden, padded(a.inner), first, padded(a.inner), tile.count, lds, [&](u32 entry) { return tile.first + entry; });
}

// parts[entries[i]][n] = down_e[n] . hidden[i]   for the entries i of tiles, e = the tile's expert
// grid tiles * ceil(outputs / 256), block 256; LDS 46 KiB; pointers aligned to 16.
// Rounding, as above. Oracle: backend/cpu/moe.rs.
template<class Format> DEV void moe_gemm_down(const MoeGemmDownArgs& a, MoeGemmLds& lds, MoeTileLds& entries) {
  const u32 parts = (a.outputs + 2 * SPAN - 1) / (2 * SPAN), first = bidx() % parts * (2 * SPAN);
  const MoeTile tile = tile_at(a.tiles, bidx() / parts, a.count, a.expert);
  if (tile.count == 0) return;
  if (tid() < TILE_ENTRIES) {
    const u32 entry = tile.first + least(tid(), tile.count - 1);
    entries.from[tid()] = entry;
    entries.to[tid()] = a.entries != nullptr ? a.entries[entry] : entry;
  }
  barrier();
  const MoeExpert expert = load_uniform(a.experts + tile.expert);
  Acc sums[2][COLUMNS];
  moe_gemm<Format>(sums, lds, entries, a.hidden, a.inner, (tile.count + 15) / 16, [&](u32 half, u32 row) {
    return weight_row<Format>(expert.down, expert.down_scales, a.inner, first + SPAN * half + row, a.outputs, 0);
  });
  UNROLL for (u32 h = 0; h < 2; h++) {
    UNROLL for (u32 c = 0; c < COLUMNS; c++)
      tile_each(sums[h][c], [&](u32 row, u32 column, float& sum) { lds.out[16 * c + column][16 * wave() + row] = sixteenth(sum); });
    barrier();
    store_tile(a.parts, a.outputs, first + SPAN * h, a.outputs, tile.count, lds, [&](u32 entry) { return entries.to[entry]; });
    barrier();
  }
}

#define MOE_GEMM_KERNEL(name, format, Format, Args)             \
  KERNEL_BIG_LDS(name##_##format, MoeGemmLds)                   \
  KERNEL(256, name##_##format, Args) {                          \
    LDS_BIG(MoeGemmLds, lds);                                   \
    LDS(MoeTileLds, entries);                                   \
    name<Format>(a, lds, entries);                              \
  }
#define MOE_GEMM(format, Format)                                              \
  MOE_GEMM_KERNEL(moe_gemm_gate_up, format, Format, MoeGemmGateUpArgs)        \
  MOE_GEMM_KERNEL(moe_gemm_down, format, Format, MoeGemmDownArgs)
