// Host back end: the work-items of a workgroup are fibers on one OS thread (tests/runtimes/fibers).
//
// Owns: each primitive of the dialect as host code or as a call into the fiber runtime.
// Always true: strict on purpose: what is undefined on a GPU is reported, not made to work. A fiber runs until a
// barrier or a cross-lane operation; the runtime knows each of these by its return address, so everything of the
// dialect is inlined into the kernel and calls of the runtime are `convergent` (never duplicated by a lane's branch).
// Not here: the scheduler, LDS, checks and matrix products (tests/runtimes/fibers/runtime/). No libc header is needed.
#pragma once
#define DEV         static inline __attribute__((always_inline))
#define CPU_RUNTIME extern "C" __attribute__((visibility("hidden")))
// Neither duplicated nor merged: a call's return address says where in the source a work-item is.
#define CPU_CONVERGENT CPU_RUNTIME __attribute__((convergent, nomerge))
#define CPU_EXPORT  extern "C" __attribute__((visibility("default")))
// KERNEL(threads, name, Args) { … }: name__host(&args) runs one work-item; two words tell the runtime its shape.
#define KERNEL(T, name, Args)                                                               \
  static inline __attribute__((always_inline)) void name(const Args a);                     \
  CPU_EXPORT const u32 name##__threads;                                                     \
  CPU_EXPORT const u32 name##__kernarg_bytes;                                               \
  const u32 name##__threads = T;                                                            \
  const u32 name##__kernarg_bytes = sizeof(Args);                                           \
  CPU_EXPORT void name##__host(const void* args) { name(*static_cast<const Args*>(args)); } \
  static inline __attribute__((always_inline)) void name(const Args a)
#define KERNEL_TWICE(T, name, Args) KERNEL(T, name, Args)
#define KERNEL_AHEAD(T, name, Args) KERNEL(T, name, Args)
#define KERNEL_AHEAD_TIMES(T, N, name, Args) KERNEL(T, name, Args)
#define KERNEL_BIG_LDS(name, T)
#define RESTRICT    __restrict__
#ifndef TILE_LAYOUT
#define TILE_LAYOUT 12
#endif

typedef _Float16 f16;
DEV float to_f32(f16 x)   { return static_cast<float>(x); }
DEV f16   to_f16(float x) { return static_cast<f16>(x); }

// ---- the fiber runtime ---------------------------------------------------
// Element types of a matrix product: 16x16x16, sums in float, or in i32 for i8.
enum CpuMatrix : u32 { CPU_F16, CPU_BF16, CPU_I8, CPU_FP8_E4M3, CPU_FP8_E5M2 };
CPU_RUNTIME __attribute__((const)) u32 cpu_thread();
CPU_RUNTIME __attribute__((const)) u32 cpu_block(u32 axis);
CPU_CONVERGENT void cpu_barrier();
CPU_CONVERGENT u32  cpu_shuffle(u32 value, u32 source_lane);
CPU_CONVERGENT u32  cpu_ballot(u32 predicate);
CPU_CONVERGENT void cpu_wmma(CpuMatrix type, u32 layout, void* c, const void* a, const void* b);
CPU_RUNTIME void  cpu_fence();
CPU_RUNTIME void* cpu_lds(const void* variable, u64 bytes, u64 alignment);
CPU_RUNTIME void* cpu_lds_dynamic();
// An atomic reads what it changes; the compiler's checks see only the write.
CPU_RUNTIME void  cpu_atomic(const void* address, u64 bytes);

DEV u32 tid()  { return cpu_thread(); }
DEV u32 lane() { return cpu_thread() & 31u; }
DEV u32 wave() { return cpu_thread() >> 5; }
DEV u32 bidx() { return cpu_block(0); }
DEV u32 bidy() { return cpu_block(1); }
DEV u32 bidz() { return cpu_block(2); }
DEV void barrier()        { cpu_barrier(); }
DEV void barrier_global() { cpu_barrier(); }
DEV void keep_order()     {}
DEV void fence_device()   { cpu_fence(); }
DEV void previous_launch() {}

// LDS is known by the variable that stands for it: one array a function, however often it is inlined, as on a GPU.
#define CPU_LDS(T, name)              \
  static const char name##__lds = 0; \
  T& name = *static_cast<T*>(cpu_lds(&name##__lds, sizeof(T), alignof(T)))
#define LDS(T, name)        CPU_LDS(T, name)
#define LDS_ARR(T, name, n) using name##__array = T[n]; CPU_LDS(name##__array, name)
#define LDS_BIG(T, name)    CPU_LDS(T, name)
#define LDS_DYN(T, name)    T* const name = static_cast<T*>(cpu_lds_dynamic())

// ---- address spaces: one for all ------------------------------------------
template<class T> DEV T* global(T* p) { return p; }
DEV u32 uniform(u32 v) { return v; }
template<class T> DEV T load_uniform(const T* p) { return *p; }

// ---- cross-lane ----------------------------------------------------------
DEV int   as_i(float x) { return __builtin_bit_cast(int, x); }
DEV float as_f(int x)   { return __builtin_bit_cast(float, x); }
DEV int   shfl(int v, u32 src)   { return static_cast<int>(cpu_shuffle(static_cast<u32>(v), src & 31u)); }
DEV float shfl(float v, u32 src) { return as_f(shfl(as_i(v), src)); }
template<int M> DEV int   shfl_xor(int v)   { return shfl(v, lane() ^ M); }
template<int M> DEV float shfl_xor(float v) { return shfl(v, lane() ^ M); }
DEV u32   wave_ballot(bool p) { return cpu_ballot(p); }

// ---- maths: correctly rounded or libm's, where a GPU approximates --------
DEV float fmax_(float a, float b) { return __builtin_fmaxf(a, b); }
DEV float fmin_(float a, float b) { return __builtin_fminf(a, b); }
DEV float fma_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEV float exp2_(float x)  { return __builtin_exp2f(x); }
DEV float log2_(float x)  { return __builtin_log2f(x); }
DEV float rsqrt_(float x) { return 1.f / __builtin_sqrtf(x); }
DEV float rcp_(float x)   { return 1.f / x; }
DEV float sqrt_(float x)  { return __builtin_sqrtf(x); }
DEV float exp_(float x)   { return exp2_(x * 1.44269504088896340736f); }
DEV float log_(float x)   { return log2_(x) * 0.69314718055994530942f; }

// ---- atomics -------------------------------------------------------------
DEV u32  atomic_add(u32* p, u32 v) { cpu_atomic(p, 4); return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEV u64  atomic_add(u64* p, u64 v) { cpu_atomic(p, 8); return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEV u32  atomic_max(u32* p, u32 v) { cpu_atomic(p, 4); return __atomic_fetch_max(p, v, __ATOMIC_RELAXED); }
DEV void atomic_add(float* p, float v) {
  cpu_atomic(p, 4);
  u32* const bits = reinterpret_cast<u32*>(p);
  u32 old = __atomic_load_n(bits, __ATOMIC_RELAXED), sum;
  do sum = static_cast<u32>(as_i(as_f(static_cast<int>(old)) + v));
  while (!__atomic_compare_exchange_n(bits, &old, sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
DEV u32  lds_atomic_add(u32* p, u32 v) { return atomic_add(p, v); }
DEV u64  lds_atomic_add(u64* p, u64 v) { return atomic_add(p, v); }

// ---- matrix: c += a b, fragments as the layout has them (HARDWARE.md) -----
DEV void wmma_f16(float* c, const f16* a, const f16* b) { cpu_wmma(CPU_F16, TILE_LAYOUT, c, a, b); }
DEV void wmma_bf16(float* c, const u16* a, const u16* b) { cpu_wmma(CPU_BF16, TILE_LAYOUT, c, a, b); }
DEV void wmma_i8(i32* c, const i8* a, const i8* b) { cpu_wmma(CPU_I8, TILE_LAYOUT, c, a, b); }
DEV void wmma_fp8(float* c, const u8* a, const u8* b) { cpu_wmma(CPU_FP8_E4M3, TILE_LAYOUT, c, a, b); }
DEV void wmma_bf8(float* c, const u8* a, const u8* b) { cpu_wmma(CPU_FP8_E5M2, TILE_LAYOUT, c, a, b); }
