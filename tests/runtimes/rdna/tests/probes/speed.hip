// Loops of one kind of work each, for examples/speed.rs.
#include "abi.h"
struct SpeedArgs { float* y; const float* x; u32 n; float s; };
KERNEL(256, arithmetic, SpeedArgs) {
  float v[8];
  UNROLL for (int k = 0; k < 8; k++) v[k] = a.x[tid() + 256 * k];
  for (u32 i = 0; i < a.n; i++) UNROLL for (int k = 0; k < 8; k++) v[k] = fma_(v[k], a.s, v[(k + 1) & 7]) * 0.5f;
  float s = 0.f;
  UNROLL for (int k = 0; k < 8; k++) s += v[k];
  a.y[bidx() * 256 + tid()] = s;
}
KERNEL(256, halves, SpeedArgs) {
  typedef f16 h2 __attribute__((ext_vector_type(2)));
  h2 v[4];
  UNROLL for (int k = 0; k < 4; k++) { v[k][0] = to_f16(a.x[tid() + k]); v[k][1] = to_f16(a.x[tid() + 9 * k]); }
  for (u32 i = 0; i < a.n; i++) UNROLL for (int k = 0; k < 4; k++) v[k] = __builtin_elementwise_fma(v[k], v[(k + 1) & 3], v[k]) + v[(k + 2) & 3];
  a.y[bidx() * 256 + tid()] = to_f32(v[0][0] + v[1][1] + v[2][0] + v[3][1]);
}
KERNEL(256, exponential, SpeedArgs) {
  float v = a.x[tid()];
  for (u32 i = 0; i < a.n; i++) v = exp2_(v) * a.s - log2_(v + 3.f);
  a.y[bidx() * 256 + tid()] = v;
}
KERNEL(256, matrix, SpeedArgs) {
  f16 p[16], q[16]; float c[8], d[8];
  for (int i = 0; i < 16; i++) { p[i] = to_f16(a.x[tid() + i]); q[i] = to_f16(a.x[tid() + 64 * i]); }
  for (int i = 0; i < 8; i++) c[i] = d[i] = 0.f;
  for (u32 i = 0; i < a.n; i++) { wmma_f16(c, p, q); wmma_f16(d, q, p); }
  float s = 0.f;
  for (int i = 0; i < 8; i++) s += c[i] + d[i];
  a.y[bidx() * 256 + tid()] = s;
}
KERNEL(256, local_memory, SpeedArgs) {
  LDS_ARR(f32x4, b, 256 * 2);
  b[tid()] = ((const f32x4*)a.x)[tid()]; b[tid() + 256] = b[tid()];
  barrier();
  f32x4 s = b[tid()];
  for (u32 i = 0; i < a.n; i++) {
    const f32x4 t = b[(tid() * 5 + i) & 511];
    UNROLL for (int k = 0; k < 4; k++) s.v[k] += t.v[k];
    b[tid()] = s;
  }
  a.y[bidx() * 256 + tid()] = s.v[0] + s.v[1] + s.v[2] + s.v[3];
}
KERNEL(256, global_memory, SpeedArgs) {
  f32x4 s = {};
  for (u32 i = 0; i < a.n; i++) {
    const f32x4 t = ((const f32x4*)a.x)[(tid() + 256 * i) & 0x3fff];
    UNROLL for (int k = 0; k < 4; k++) s.v[k] += t.v[k];
  }
  a.y[bidx() * 256 + tid()] = s.v[0] + s.v[1] + s.v[2] + s.v[3];
}
KERNEL(256, scalars, SpeedArgs) {
  u32 s = a.n;
  for (u32 i = 0; i < a.n; i++) { s = s * 1664525u + 1013904223u; s ^= s >> 7; if (s & 64) s += i; }
  a.y[bidx() * 256 + tid()] = (float)s;
}
