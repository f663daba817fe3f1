// Products of weight matrices with many activation rows: one body for all formats (gemm*.hip instantiate it).
//
// Owns: how tiles go through LDS. Always true: x comes from gemm_rows: F16, rows padded with zeros to whole steps, so that
// neither operand needs a mask along the inputs (a weight that is read twice there meets a zero).
// Not here: where a lane's elements of a matrix tile lie (dialect/tile.h), decode (formats.h).
#pragma once
#include "abi.h"
#include "stage.h"

// ROWS x OUTPUTS of y a workgroup, RIGHT x DOWN waves of 16 * TALL x 16 * BROAD each.
template<u32 DOWN_, u32 RIGHT_, u32 TALL_, u32 BROAD_> struct Shape {
  enum : u32 { DOWN = DOWN_, RIGHT = RIGHT_, TALL = TALL_, BROAD = BROAD_, THREADS = WAVE * DOWN * RIGHT,
               ROWS = 16 * TALL * DOWN, OUTPUTS = 16 * BROAD * RIGHT };
};
typedef Shape<2, 4, 4, 2> Shape128;
typedef Shape<2, 2, 2, 2> Shape64;

template<class Shape> struct GemmLds {
  alignas(16) f16 x[STAGES][Shape::ROWS][PITCH];
  alignas(16) f16 w[STAGES][Shape::OUTPUTS][PITCH];
};

// y[r][n] = sum_k w[n][k] * x[r][k]
// w [outputs, inputs], x [rows, stride] with factors [rows] as gemm_rows leaves them, y [rows, outputs]
// grid ceil(rows / ROWS) * ceil(outputs / OUTPUTS), tiles of one range of outputs next to each other; block THREADS;
// LDS 36 KiB (128 x 128) or 18 KiB (64 x 64); x aligned to 16, w as its format says; |w| at most 65504.
// A step of 64 inputs: the next step's loads are issued, then the tiles in LDS are multiplied; weights are decoded to F16
// on the way from registers to LDS.
// Rounding: each operand rounded to F16 (2^-11 of itself; of x at least 2^-39 of its row's largest, of w 2^-25), sums in
// F32 over k ascending. The same row has the same bits in every batch and shape on one target.
// Oracle: backend/cpu/linear.rs linear.
template<class Format, class Shape> DEV void gemm(const GemmArgs& a, GemmLds<Shape>& lds) {
  enum : u32 {
    THREADS = Shape::THREADS,
    GROUP = Format::GROUP,
    WINDOW = DEPTH / GROUP,                          // groups of a row in a step
    X_LOADS = Shape::ROWS * (DEPTH / 8) / THREADS,   // of 16 bytes a thread
    W_LOADS = Shape::OUTPUTS * WINDOW / THREADS,     // groups a thread
    PARTS = GROUP / 8,                               // of eight weights in a group
  };
  static_assert(X_LOADS == u32{QUARTERS} && W_LOADS * PARTS == u32{QUARTERS}, "a load and a part a quarter of a step");
  const u32 row_tiles = (a.rows + Shape::ROWS - 1) / Shape::ROWS;
  const u32 row0 = bidx() % row_tiles * Shape::ROWS, output0 = bidx() / row_tiles * Shape::OUTPUTS;
  const u32 stride = (a.inputs + DEPTH - 1) / DEPTH * DEPTH, groups = a.inputs / GROUP;
  const u64 row_bytes = Format::row_bytes(a.inputs);

  const u8* x = reinterpret_cast<const u8*>(a.x);
  u32 x_at[X_LOADS];
  UNROLL for (u32 i = 0; i < X_LOADS; i++)
    x_at[i] = 2 * (least(row0 + tid() / 8 + THREADS / 8 * i, a.rows - 1) * stride + tid() % 8 * 8);
  const u8* row[W_LOADS];
  const float* scales[W_LOADS];
  const u32 own = store_row(tid(), WINDOW, Format::INTERLEAVED != 0), place = tid() % WINDOW;
  UNROLL for (u32 i = 0; i < W_LOADS; i++) {
    const u32 output = least(output0 + own + THREADS / WINDOW * i, a.outputs - 1);
    row[i] = static_cast<const u8*>(a.w) + row_bytes * output;
    scales[i] = nullptr;
    if constexpr (Format::SCALED != 0) scales[i] = Format::scale_row(a.scales, a.inputs, output, a.row_offset);
  }
  u32x4 next_x[X_LOADS];
  typename Format::Raw next_w[W_LOADS];
  // Of the groups in registers: a step's parts of eight weights are stored before the next step's group is loaded.
  u32 group[W_LOADS];
  const auto load = [&](u32 k, u32 first, u32 end) INLINED {
    UNROLL for (u32 i = 0; i < W_LOADS; i++) {
      if ((i + 1) * PARTS <= first || (i + 1) * PARTS > end) continue;
      group[i] = least(k / GROUP + place, groups - 1);
      next_w[i] = Format::load(row[i], scales[i], group[i]);
    }
    UNROLL for (u32 i = 0; i < X_LOADS; i++)
      if (i >= first && i < end) copy(next_x[i], *reinterpret_cast<const u32x4*>(x + x_at[i] + 2 * k));
  };
  const auto store = [&](u32 stage, u32 first, u32 end) INLINED {
    UNROLL for (u32 i = 0; i < QUARTERS; i++)
      if (i >= first && i < end) copy(sixteen_bytes(lds.x[stage][tid() / 8 + THREADS / 8 * i][tid() % 8 * 8]), next_x[i]);
    UNROLL for (u32 i = 0; i < QUARTERS; i++)
      if (i >= first && i < end)
        stage_part<Format>(lds.w[stage][own + THREADS / WINDOW * (i / PARTS)], next_w[i / PARTS], group[i / PARTS], place,
                           i % PARTS);
  };

  Acc sums[Shape::TALL][Shape::BROAD];
  UNROLL for (u32 i = 0; i < Shape::TALL; i++)
    UNROLL for (u32 j = 0; j < Shape::BROAD; j++) tile_zero(sums[i][j]);
  const u32 down = wave() / Shape::RIGHT * (16 * Shape::TALL), right = wave() % Shape::RIGHT * (16 * Shape::BROAD);
  const LdsRows x_rows = lds_rows(&lds.x[0][0][0], [&](u32 r) { return 2 * PITCH * (down + r); });
  const LdsRows w_rows = lds_rows(&lds.w[0][0][0], [&](u32 r) { return 2 * PITCH * (right + r); });
  steps(stride, load, store, [&](u32 stage, u32 quarter) INLINED {
    const u32 x_from = 16 * quarter + PITCH * (Shape::ROWS * stage), w_from = 16 * quarter + PITCH * (Shape::OUTPUTS * stage);
    Operand w[Shape::BROAD];
    UNROLL for (u32 j = 0; j < Shape::BROAD; j++) w[j] = tile_load(w_rows, w_from + 16 * PITCH * j);
    UNROLL for (u32 i = 0; i < Shape::TALL; i++) {
      const Operand rows = tile_load(x_rows, x_from + 16 * PITCH * i);
      UNROLL for (u32 j = 0; j < Shape::BROAD; j++) tile_multiply(sums[i][j], rows, w[j]);
    }
  });
  UNROLL for (u32 i = 0; i < Shape::TALL; i++) {
    const u32 down_i = row0 + down + 16 * i;
    float factors[ACC_ELEMENTS];
    UNROLL for (u32 e = 0; e < ACC_ELEMENTS; e++) factors[e] = a.factors[least(down_i + acc_row(e), a.rows - 1)];
    UNROLL for (u32 j = 0; j < Shape::BROAD; j++)
      UNROLL for (u32 e = 0; e < ACC_ELEMENTS; e++) {
        const u32 to = down_i + acc_row(e), output = output0 + right + 16 * j + acc_column(e);
        if (to < a.rows && output < a.outputs)
          a.y[static_cast<u64>(to) * a.y_stride + output] = sums[i][j].c[e] * factors[e];
      }
  }
}

#define GEMM_SHAPE(format, Format, SIZE)                                        \
  KERNEL_BIG_LDS(gemm_##format##_##SIZE, GemmLds<Shape##SIZE>)                  \
  KERNEL_TWICE(Shape##SIZE::THREADS, gemm_##format##_##SIZE, GemmArgs) {        \
    LDS_BIG(GemmLds<Shape##SIZE>, lds);                                         \
    gemm<Format, Shape##SIZE>(a, lds);                                          \
  }
#define GEMM(format, Format) GEMM_SHAPE(format, Format, 64) GEMM_SHAPE(format, Format, 128)
