// Matrix products by the primitives themselves, one kernel an element type: which lane holds what is written out here
// once more, from HARDWARE.md and NVIDIA's tables, so that the runtime's own table is tested against it.
#include "dialect/tile.h"

// out (16x16, the sums' 32 bits) = A B. a [row][k], b [column][k]. block 32.
struct MatrixArgs { u32* out; const void* a; const void* b; };

template<class T> DEV u32 k_of(u32 i) {
#if TILE_LAYOUT == 11
  return i;
#elif TILE_LAYOUT == 12
  return 8 * (lane() >> 4) + i;
#else
  return sizeof(T) == 2 ? 2 * (lane() & 3) + 8 * (i / 2 % 2) + i % 2 : 4 * (lane() & 3) + i % 4;
#endif
}

template<class T, class Sum, class Multiply> DEV void multiply(const MatrixArgs& args, Multiply wmma) {
  T a[OPERAND_ELEMENTS], b[OPERAND_ELEMENTS];
  Sum c[ACC_ELEMENTS] = {};
  for (u32 i = 0; i < OPERAND_ELEMENTS; i++) {
    const u32 at = 16 * operand_row(i / 4) + k_of<T>(i);
    a[i] = static_cast<const T*>(args.a)[at];
    b[i] = static_cast<const T*>(args.b)[at];
  }
  wmma(c, a, b);
  for (u32 i = 0; i < ACC_ELEMENTS; i++) args.out[16 * acc_row(i) + acc_column(i)] = __builtin_bit_cast(u32, c[i]);
}

#define MATRIX(type, T, Sum)                                                           \
  KERNEL(32, matrix_##type, MatrixArgs) {                                              \
    multiply<T, Sum>(a, [](Sum* c, const T* x, const T* y) { wmma_##type(c, x, y); }); \
  }
MATRIX(f16, f16, float)
MATRIX(bf16, u16, float)
MATRIX(i8, i8, i32)
MATRIX(fp8, u8, float)
MATRIX(bf8, u8, float)
