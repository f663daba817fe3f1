// Products of weight matrices with a few activation rows.
#include "abi.h"
#include "formats.h"

// y[r][n] = sum_k w[n][k] * x[r][k]
// w [outputs, inputs], x [rows, inputs], y [rows, outputs]; rows <= ROWS.
// grid ceil(outputs / (8 * OUT)), block 256; LDS 0; x and the rows of w aligned to 16.
// A wave owns OUT outputs: it reads each of their bytes once, in 16-byte loads, and each activation once for all OUT.
// Ordered: a row's sums run over groups lane, lane + 32, … and then across lanes, whatever the other rows are.
// Rounding against its oracle, backend/cpu/linear.rs linear.
template<class Format, int ROWS, int OUT>
DEV void gemv(float* RESTRICT y, const float* RESTRICT x, const u8* RESTRICT w, u32 rows, u32 outputs, u32 inputs,
              u32 y_stride) {
  const u32 first = (bidx() * 8 + wave()) * OUT;
  if (first >= outputs) return;
  const u64 row_bytes = Format::row_bytes(inputs);
  const u8* row[OUT];
  UNROLL for (int o = 0; o < OUT; o++) row[o] = w + row_bytes * (first + o < outputs ? first + o : outputs - 1);
  float sum[ROWS][OUT];
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int o = 0; o < OUT; o++) sum[r][o] = 0.f;
  for (u32 group = lane(); group < inputs / Format::GROUP; group += WAVE) {
    float decoded[OUT][Format::GROUP];
    UNROLL for (int o = 0; o < OUT; o++) Format::decode(row[o], group, decoded[o]);
    UNROLL for (int r = 0; r < ROWS; r++) {
      const u32 source = static_cast<u32>(r) < rows ? r : 0;
      const f32x4* values = reinterpret_cast<const f32x4*>(x + static_cast<u64>(source) * inputs + group * Format::GROUP);
      UNROLL for (int i = 0; i < Format::GROUP / 4; i++) {
        const f32x4 v = values[i];
        UNROLL for (int o = 0; o < OUT; o++)
          UNROLL for (int j = 0; j < 4; j++) sum[r][o] = fma_(decoded[o][4 * i + j], v.v[j], sum[r][o]);
      }
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int o = 0; o < OUT; o++) {
      const float total = wave_sum(sum[r][o]);
      if (lane() == 0 && static_cast<u32>(r) < rows && first + o < outputs)
        y[static_cast<u64>(r) * y_stride + first + o] = total;
    }
}

#define GEMV(format, Format, ROWS, OUT)                                                                          \
  KERNEL(256, gemv_##format##_r##ROWS, GemvArgs) {                                                               \
    gemv<Format, ROWS, OUT>(a.y, a.x, static_cast<const u8*>(a.w), a.rows, a.outputs, a.inputs, a.y_stride);      \
  }
#define GEMV_ROWS(format, Format) \
  GEMV(format, Format, 1, 4) GEMV(format, Format, 2, 4) GEMV(format, Format, 4, 4) GEMV(format, Format, 8, 2)

GEMV_ROWS(bf16, Bf16Format)
