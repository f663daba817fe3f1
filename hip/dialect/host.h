// CPU back end: the threads of a workgroup are fibers on one OS thread; a fiber runs until a
// barrier or a cross-lane operation. Strict on purpose: what is undefined on a GPU is an error.
#pragma once
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#include <math.h>
#include <utility>
#define DEV         static inline
// KERNEL(threads, name, Args) { … }: name__host(&args) runs one work-item; two words tell the runtime its shape.
#define KERNEL(T, name, Args)                                                                       \
  static void name(const Args& a);                                                                  \
  extern "C" __attribute__((visibility("default"))) const u32 name##__threads = T;                  \
  extern "C" __attribute__((visibility("default"))) const u32 name##__kernarg_bytes = sizeof(Args); \
  extern "C" __attribute__((visibility("default"))) void name##__host(const void* args) {           \
    name(*static_cast<const Args*>(args));                                                          \
  }                                                                                                 \
  static void name(const Args& a)
#define KERNEL_OCC(T, WAVES, name, Args) KERNEL(T, name, Args)
#define KERNEL_BIG_LDS(name, T)
#define RESTRICT    __restrict__
#ifndef TILE_LAYOUT
#define TILE_LAYOUT 12
#endif

typedef _Float16 f16;
DEV float to_f32(f16 x)  { return (float)x; }
DEV f16   to_f16(float x) { return (f16)x; }

extern "C" {
struct CpuFiber { void* sp; u32 tid; u8 lane, wave, state, pad; u32 site, lds_cur; void* tsan; void* fake; void* stack; };
struct CpuGroup { u32 b[3]; };
extern thread_local CpuFiber* cpu_cur __attribute__((tls_model("initial-exec")));
extern thread_local CpuGroup* cpu_grp __attribute__((tls_model("initial-exec")));
void  cpu_barrier(u32 line);
// all lanes of a wave give 4 bytes; returns the 32 values given
const u32* cpu_exchange(u32 site, u32 v);
void  cpu_wmma(u32 site, int layout, float* c, const f16* a, const f16* b);
void* cpu_lds(size_t bytes, size_t align);     // per workgroup, poisoned with NaN
void* cpu_lds_dyn();
}
DEV u32 tid()  { return cpu_cur->tid; }
DEV u32 lane() { return cpu_cur->lane; }
DEV u32 wave() { return cpu_cur->wave; }
DEV u32 bidx() { return cpu_grp->b[0]; }
DEV u32 bidy() { return cpu_grp->b[1]; }
DEV u32 bidz() { return cpu_grp->b[2]; }
DEV void barrier(u32 line = __builtin_LINE())        { cpu_barrier(line); }
DEV void barrier_global(u32 line = __builtin_LINE()) { cpu_barrier(line); }
DEV void keep_order() {}
DEV void fence_device() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

#define LDS(T, name)         T& name = *(T*)cpu_lds(sizeof(T), alignof(T) < 16 ? 16 : alignof(T))
#define LDS_ARR(T, name, n)  T (&name)[n] = *(T(*)[n])cpu_lds(sizeof(T) * (n), 16)
#define LDS_BIG(T, name)     LDS(T, name)
#define LDS_DYN(T, name)     T* name = (T*)cpu_lds_dyn()

DEV int   as_i(float x) { int i; memcpy(&i, &x, 4); return i; }
DEV float as_f(int x)   { float f; memcpy(&f, &x, 4); return f; }
template<int M> DEV int   shfl_xor(int v, u32 line = __builtin_LINE())   { return (int)cpu_exchange(line << 8 | M, (u32)v)[lane() ^ M]; }
template<int M> DEV float shfl_xor(float v, u32 line = __builtin_LINE()) { return as_f((int)cpu_exchange(line << 8 | M, (u32)as_i(v))[lane() ^ M]); }
DEV int   shfl(int v, u32 src, u32 line = __builtin_LINE())   { return (int)cpu_exchange(line << 8 | 32, (u32)v)[src & 31]; }
DEV float shfl(float v, u32 src, u32 line = __builtin_LINE()) { return as_f((int)cpu_exchange(line << 8 | 32, (u32)as_i(v))[src & 31]); }
DEV u32   wave_ballot(bool p, u32 line = __builtin_LINE()) {
  const u32* s = cpu_exchange(line << 8 | 33, p); u32 r = 0;
  for (int i = 0; i < 32; i++) r |= (s[i] & 1) << i;
  return r;
}
DEV float fmax_(float a, float b) { return fmaxf(a, b); }
DEV float fmin_(float a, float b) { return fminf(a, b); }
DEV float fma_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEV float exp2_(float x)  { return exp2f(x); }
DEV float log2_(float x)  { return log2f(x); }
DEV float rsqrt_(float x) { return 1.f / sqrtf(x); }
DEV float rcp_(float x)   { return 1.f / x; }
DEV float sqrt_(float x)  { return sqrtf(x); }
DEV float exp_(float x)   { return exp2_(x * 1.44269504088896340736f); }
DEV float log_(float x)   { return log2_(x) * 0.69314718055994530942f; }
DEV u32  atomic_add(u32* p, u32 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEV u64  atomic_add(u64* p, u64 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEV u32  atomic_max(u32* p, u32 v) {
  u32 o = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (o < v && !__atomic_compare_exchange_n(p, &o, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  return o;
}
DEV void atomic_add(float* p, float v) {
  u32* q = (u32*)p; u32 o = __atomic_load_n(q, __ATOMIC_RELAXED), n;
  do n = (u32)as_i(as_f((int)o) + v);
  while (!__atomic_compare_exchange_n(q, &o, n, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
DEV u32  lds_atomic_add(u32* p, u32 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEV void wmma_f16(float* c, const f16* a, const f16* b, u32 line = __builtin_LINE()) { cpu_wmma(line << 8 | 40, TILE_LAYOUT, c, a, b); }
