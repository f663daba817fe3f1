// Every matrix instruction on arbitrary registers, and what a profile should count.
#include "abi.h"
struct TileArgs { u32* out; const u32* a; const u32* b; const u32* c; };
template<int N> struct W { u32 w[N]; };
template<class V, int N> DEV V read(const u32* p) {
  W<N> r;
  UNROLL for (int k = 0; k < N; k++) r.w[k] = p[k * 32 + tid()];
  return __builtin_bit_cast(V, r);
}
template<int N, class V> DEV void write(u32* p, V v) {
  const W<N> r = __builtin_bit_cast(W<N>, v);
  UNROLL for (int k = 0; k < N; k++) p[k * 32 + tid()] = r.w[k];
}
typedef float f8 __attribute__((ext_vector_type(8)));
typedef int   i8v __attribute__((ext_vector_type(8)));
typedef int   i4v __attribute__((ext_vector_type(4)));
typedef int   i2v __attribute__((ext_vector_type(2)));
typedef short s16v __attribute__((ext_vector_type(16)));
typedef short s8v __attribute__((ext_vector_type(8)));
#if TILE_LAYOUT == 11
KERNEL(32, tile_f32_f16, TileArgs) { write<8>(a.out, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(read<h16v, 8>(a.a), read<h16v, 8>(a.b), read<f8, 8>(a.c))); }
KERNEL(32, tile_f32_bf16, TileArgs) { write<8>(a.out, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(read<s16v, 8>(a.a), read<s16v, 8>(a.b), read<f8, 8>(a.c))); }
KERNEL(32, tile_f16_f16, TileArgs) { write<8>(a.out, __builtin_amdgcn_wmma_f16_16x16x16_f16_w32(read<h16v, 8>(a.a), read<h16v, 8>(a.b), read<h16v, 8>(a.c), false)); }
KERNEL(32, tile_i32_iu8, TileArgs) { write<8>(a.out, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, read<i4v, 4>(a.a), false, read<i4v, 4>(a.b), read<i8v, 8>(a.c), false)); }
#else
KERNEL(32, tile_f32_f16, TileArgs) { write<8>(a.out, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(read<h8v, 4>(a.a), read<h8v, 4>(a.b), read<f8, 8>(a.c))); }
KERNEL(32, tile_f32_bf16, TileArgs) { write<8>(a.out, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(read<s8v, 4>(a.a), read<s8v, 4>(a.b), read<f8, 8>(a.c))); }
KERNEL(32, tile_f16_f16, TileArgs) { write<4>(a.out, __builtin_amdgcn_wmma_f16_16x16x16_f16_w32_gfx12(read<h8v, 4>(a.a), read<h8v, 4>(a.b), read<h8v, 4>(a.c))); }
KERNEL(32, tile_i32_iu8, TileArgs) { write<8>(a.out, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, read<i2v, 2>(a.a), false, read<i2v, 2>(a.b), read<i8v, 8>(a.c), false)); }
KERNEL(32, tile_f32_fp8, TileArgs) { write<8>(a.out, __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(read<i2v, 2>(a.a), read<i2v, 2>(a.b), read<f8, 8>(a.c))); }
#endif

// Every lane of a wave hits the same LDS bank: 31 extra cycles an access.
KERNEL(32, conflicts, TileArgs) {
  LDS_ARR(u32, b, 32 * 32);
  b[tid() * 32] = tid();
  barrier();
  a.out[tid()] = b[(31 - tid()) * 32];
}
