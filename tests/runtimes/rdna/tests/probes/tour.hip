// Probes: small kernels whose only purpose is to make the compiler emit what ours will need.
// Each is compared with a host computation of the same formula in tests/probes.rs, or only decoded.
#include "abi.h"

struct ProbeArgs { u32* out; const u32* in; u32 count; float scale; };

// Integer and bit operations on pairs of words: 24 results a work-item.
KERNEL(64, integers, ProbeArgs) {
  const u32 i = bidx() * 64 + tid();
  const u32 x = a.in[2 * i], y = a.in[2 * i + 1];
  const u64 wide = (u64)x << 32 | y;
  u32* o = a.out + 24 * i;
  o[0] = x + y;  o[1] = x - y;  o[2] = x * y;  o[3] = (u32)(((u64)x * y) >> 32);
  o[4] = (u32)(((i64)(i32)x * (i32)y) >> 32);
  o[5] = x / (y | 1);  o[6] = x % (y | 1);
  o[7] = (u32)((i32)x / ((i32)(y & 0xffff) | 1));
  o[8] = x >> (y & 31);  o[9] = (u32)((i32)x >> (y & 31));  o[10] = x << (y & 31);
  o[11] = __builtin_popcount(x) + __builtin_popcount(y);
  o[12] = x ? __builtin_clz(x) : 32;  o[13] = x ? __builtin_ctz(x) : 32;
  o[14] = __builtin_bitreverse32(x);  o[15] = __builtin_bswap32(x);
  o[16] = x > y ? x : y;  o[17] = (u32)((i32)x < (i32)y ? (i32)x : (i32)y);
  o[18] = (x & y) | (~x & 0x0f0f0f0fu);  o[19] = (x >> 7 & 0x1ff) + (u32)((i32)(x << 11) >> 20);
  o[20] = (u32)(wide * 0x9e3779b97f4a7c15ull >> 17);
  o[21] = (u32)(wide / (y | 3));
  o[22] = (u32)((wide >> (x & 63)) ^ (wide << (y & 63)));
  o[23] = __builtin_amdgcn_perm(x, y, 0x07020501u) ^ __builtin_amdgcn_alignbit(x, y, 13);
}

// 4-bit unpack and dequantise, as weights do: 8 nibbles a word.
KERNEL(64, unpack4, ProbeArgs) {
  const u32 i = bidx() * 64 + tid();
  const u32 q = a.in[i];
  float* o = (float*)a.out + 8 * i;
  UNROLL for (int k = 0; k < 8; k++) o[k] = ((float)(q >> (4 * k) & 15) - 8.f) * a.scale;
}

// Packed halves, conversions in both directions, BF16.
KERNEL(64, halves, ProbeArgs) {
  const u32 i = bidx() * 64 + tid();
  typedef f16 h2 __attribute__((ext_vector_type(2)));
  const h2 x = __builtin_bit_cast(h2, a.in[2 * i]), y = __builtin_bit_cast(h2, a.in[2 * i + 1]);
  u32* o = a.out + 8 * i;
  o[0] = __builtin_bit_cast(u32, x + y);
  o[1] = __builtin_bit_cast(u32, x * y);
  o[2] = __builtin_bit_cast(u32, __builtin_elementwise_fma(x, y, x));
  o[3] = __builtin_bit_cast(u32, __builtin_elementwise_max(x, y));
  o[4] = as_i((float)x[0] * (float)y[1] + a.scale);
  h2 z; z[0] = (f16)((float)x[1] * a.scale); z[1] = (f16)((float)y[0] - a.scale);
  o[5] = __builtin_bit_cast(u32, z);
  o[6] = to_bf16((float)x[0] * a.scale).bits | (u32)to_bf16((float)y[1]).bits << 16;
  o[7] = x[0] > y[0] ? 1u : x[1] < y[1] ? 2u : 3u;
}

// F32 arithmetic and functions.
KERNEL(64, floats, ProbeArgs) {
  const u32 i = bidx() * 64 + tid();
  const float x = as_f(a.in[2 * i]), y = as_f(a.in[2 * i + 1]);
  float* o = (float*)a.out + 20 * i;
  o[0] = x + y;  o[1] = x * y;  o[2] = fma_(x, y, a.scale);  o[3] = x / y;
  o[4] = sqrt_(x);  o[5] = __builtin_floorf(x);  o[6] = __builtin_rintf(x);  o[7] = __builtin_truncf(y);
  o[8] = fmax_(x, y);  o[9] = fmin_(x, y);  o[10] = __builtin_fabsf(x) - __builtin_fabsf(y);
  o[11] = exp2_(y);  o[12] = log2_(x);  o[13] = rcp_(y);  o[14] = rsqrt_(x);
  o[15] = (float)(i32)fmax_(fmin_(y, 1e9f), -1e9f);  o[16] = (float)(u32)fmin_(__builtin_fabsf(x), 1e9f);  o[17] = __builtin_amdgcn_fmed3f(x, y, a.scale);
  o[18] = __builtin_ldexpf(x, (i32)(a.in[2 * i] & 63) - 32);
  o[19] = (float)((double)x * (double)y + (double)a.scale);
}

// Shuffles, ballots, scans and lane reads of a wave.
KERNEL(64, lanes, ProbeArgs) {
  const u32 i = bidx() * 64 + tid();
  const u32 x = a.in[i], l = lane();
  u32* o = a.out + 12 * i;
  o[0] = (u32)shfl_xor<1>((i32)x);  o[1] = (u32)shfl_xor<8>((i32)x);  o[2] = (u32)shfl_xor<16>((i32)x);
  o[3] = (u32)shfl((i32)x, (l * 7 + 3) & 31);
  const u32 m = wave_ballot(x & 1);
  o[4] = m;  o[5] = __builtin_popcount(m & ((1u << l) - 1));  o[6] = __builtin_amdgcn_mbcnt_lo(m, 0);
  o[7] = (u32)__builtin_amdgcn_readlane((i32)x, 5) + (u32)__builtin_amdgcn_readfirstlane((i32)x);
  u32 s = x;  // inclusive sum inside rows of 16
  s += (u32)__builtin_amdgcn_update_dpp(0, (i32)s, 0x111, 0xf, 0xf, true);
  s += (u32)__builtin_amdgcn_update_dpp(0, (i32)s, 0x112, 0xf, 0xf, true);
  s += (u32)__builtin_amdgcn_update_dpp(0, (i32)s, 0x114, 0xf, 0xf, true);
  s += (u32)__builtin_amdgcn_update_dpp(0, (i32)s, 0x118, 0xf, 0xf, true);
  o[8] = s;
  o[9] = (u32)__builtin_amdgcn_update_dpp(0, (i32)x, 0x1b, 0xf, 0xf, true);   // quad_perm 3,2,1,0
  o[10] = (u32)__builtin_amdgcn_mov_dpp8((i32)x, 0xfac688);
  o[11] = (u32)__builtin_amdgcn_ds_swizzle((i32)x, 0x041f);                   // xor 1
}

// A radix pass: counts digits in LDS, scans, scatters with returned atomics.
KERNEL(256, radix, ProbeArgs) {
  LDS_ARR(u32, count, 16);
  LDS_ARR(u32, start, 16);
  if (tid() < 16) count[tid()] = 0;
  barrier();
  const u32 x = a.in[tid()], digit = x >> 28;
  lds_atomic_add(&count[digit], 1u);
  barrier();
  if (tid() == 0) { u32 s = 0; for (int k = 0; k < 16; k++) { start[k] = s; s += count[k]; } }
  barrier();
  const u32 at = lds_atomic_add(&start[digit], 1u);
  a.out[at] = x;
  if (tid() == 0) atomic_add((u64*)(a.out + 256), (u64)a.count << 33 | 5);
  atomic_max(a.out + 258, x);
}

// A recurrence with branches and a table.
__constant__ const float table[8] = {1.f, .5f, .25f, .125f, -1.f, -.5f, -.25f, -.125f};
KERNEL(32, recurrence, ProbeArgs) {
  float s = a.scale;
  for (u32 k = 0; k < a.count; k++) {
    const u32 x = a.in[k * 32 + tid()];
    if (x & 1) s = fma_(s, table[x >> 1 & 7], 1.f); else if (x & 2) s = -s; else s *= 0.75f;
    if (s > 1e6f) break;
  }
  ((float*)a.out)[tid()] = s;
}
