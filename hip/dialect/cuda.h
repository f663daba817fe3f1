// NVPTX back end: clang -x cuda freestanding (-nocudainc -nocudalib), the same kernels on a lent NVIDIA GPU.
//
// Owns: each primitive as inline PTX or a compiler intrinsic. Always true: no CUDA header is needed.
#pragma once
#define __global__  __attribute__((global))
#define __device__  __attribute__((device))
#define __host__    __attribute__((host))
#define __shared__  __attribute__((shared))
#define __constant__ __attribute__((constant))
#define DEV         __device__ inline __attribute__((always_inline))
// The runtime reads this word of a module and lets its launches begin while the one before them ends (previous_launch).
extern "C" __device__ __attribute__((used)) const u32 launches_overlap = 1;
#define GPU_ENTRY(T, name, Args, ...) \
  extern "C" __global__ __attribute__((launch_bounds(T, ##__VA_ARGS__))) void name(const Args a)
// Waits at its entry, so that only a kernel that says so begins ahead of the launch before it.
#define GPU_KERNEL(T, name, Args, ...)                                            \
  DEV void name##_body(const Args& a);                                            \
  GPU_ENTRY(T, name, Args, ##__VA_ARGS__) { previous_launch(); name##_body(a); }  \
  DEV void name##_body(const Args& a)
#define KERNEL(T, name, Args)       GPU_KERNEL(T, name, Args)
#define KERNEL_TWICE(T, name, Args) GPU_KERNEL(T, name, Args, 2)
#define KERNEL_AHEAD(T, name, Args) GPU_ENTRY(T, name, Args)
#define KERNEL_AHEAD_TIMES(T, N, name, Args) GPU_ENTRY(T, name, Args, N)
// Over 48 KiB of shared memory must be dynamic here: the runtime reads this word and passes the size at launch.
#define KERNEL_BIG_LDS(name, T) extern "C" __device__ const u32 name##__lds_bytes = sizeof(T);
#define RESTRICT      __restrict__
#define TILE_LAYOUT   80

struct f16  { u16 u; };
DEV float to_f32(f16 x)  { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.u)); return f; }
DEV f16   to_f16(float x)  { f16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.u) : "f"(x)); return h; }
DEV u32   f16_pair(float low, float high) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }

#define GPU_SREG(name, reg) DEV u32 name() { u32 r; asm("mov.u32 %0, %%" reg ";" : "=r"(r)); return r; }
GPU_SREG(tid, "tid.x") GPU_SREG(bidx, "ctaid.x") GPU_SREG(bidy, "ctaid.y") GPU_SREG(bidz, "ctaid.z")
GPU_SREG(lane, "laneid")
DEV u32 wave() { return tid() >> 5; }
DEV void barrier()        { __nvvm_bar_sync(0); }
DEV void barrier_global() { barrier(); }
DEV void keep_order()     {}
DEV void fence_device()   { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// A launch may begin while the one before it ends. Behind this call all is there that earlier launches have written; before
// it, what the launch before the previous one has written, and what no launch writes: weights. Every workgroup calls it
// before it ends, or the next launch would not wait for the previous one.
DEV void previous_launch() { asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory"); }

#define LDS(T, name)        __shared__ T name
#define LDS_ARR(T, name, n) __shared__ T name[n]
extern __shared__ __attribute__((aligned(16))) u8 gpu_dyn_lds[];
#define LDS_BIG(T, name)    T& name = *(T*)gpu_dyn_lds
#define LDS_DYN(T, name)    T* name = (T*)gpu_dyn_lds

// ---- address spaces: one for all ------------------------------------------
template<class T> DEV T* global(T* p) { return p; }
DEV u32 uniform(u32 v) { return v; }
template<class T> DEV T load_uniform(const T* p) { return *p; }

DEV int   as_i(float x) { int i; asm("mov.b32 %0, %1;" : "=r"(i) : "f"(x)); return i; }
DEV float as_f(int x)   { float f; asm("mov.b32 %0, %1;" : "=f"(f) : "r"(x)); return f; }
template<int M> DEV int   shfl_xor(int v)   { int r; asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "n"(M)); return r; }
template<int M> DEV float shfl_xor(float v) { return as_f(shfl_xor<M>(as_i(v))); }
DEV int   shfl(int v, u32 src)   { int r; asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(src)); return r; }
DEV float shfl(float v, u32 src) { return as_f(shfl(as_i(v), src)); }
DEV u32   wave_max_u32(u32 v) { u32 r; asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v)); return r; }
DEV u32   wave_ballot(bool p) { u32 r; asm volatile("{ .reg .pred q; setp.ne.u32 q, %1, 0; vote.sync.ballot.b32 %0, q, 0xffffffff; }" : "=r"(r) : "r"((u32)p)); return r; }

DEV float fmax_(float a, float b) { float r; asm("max.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
DEV float fmin_(float a, float b) { float r; asm("min.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
DEV float fma_(float a, float b, float c) { float r; asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c)); return r; }
#define GPU_F1(name, op) DEV float name(float x) { float r; asm(op " %0, %1;" : "=f"(r) : "f"(x)); return r; }
GPU_F1(exp2_, "ex2.approx.ftz.f32") GPU_F1(log2_, "lg2.approx.ftz.f32") GPU_F1(rsqrt_, "rsqrt.approx.ftz.f32")
GPU_F1(rcp_, "rcp.approx.ftz.f32") GPU_F1(sqrt_, "sqrt.rn.f32")
DEV float exp_(float x)   { return exp2_(x * 1.44269504088896340736f); }
DEV float log_(float x)   { return log2_(x) * 0.69314718055994530942f; }

// Conversions of integers run at half the rate of sums: the byte becomes the lowest bits of 2^23 instead.
DEV float byte_number(u32 word, u32 i, float offset = 0.f) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(word), "r"(0x4b000000u), "r"(0x7540u | i));
  return as_f((int)r) + (offset - 8388608.f);
}
DEV float signed_byte(u32 word, u32 i) { return byte_number(word ^ 0x80808080u, i, -128.f); }

DEV u32  atomic_add(u32* p, u32 v) { u32 r; asm volatile("atom.relaxed.gpu.add.u32 %0, [%1], %2;" : "=r"(r) : "l"(p), "r"(v) : "memory"); return r; }
DEV u64  atomic_add(u64* p, u64 v) { u64 r; asm volatile("atom.relaxed.gpu.add.u64 %0, [%1], %2;" : "=l"(r) : "l"(p), "l"(v) : "memory"); return r; }
DEV u32  atomic_max(u32* p, u32 v) { u32 r; asm volatile("atom.relaxed.gpu.max.u32 %0, [%1], %2;" : "=r"(r) : "l"(p), "r"(v) : "memory"); return r; }
DEV void atomic_add(float* p, float v) { asm volatile("red.relaxed.gpu.add.f32 [%0], %1;" :: "l"(p), "f"(v) : "memory"); }
DEV u32  lds_atomic_add(u32* p, u32 v) { u32 r; asm volatile("atom.relaxed.cta.add.u32 %0, [%1], %2;" : "=r"(r) : "l"(p), "r"(v) : "memory"); return r; }
DEV u64  lds_atomic_add(u64* p, u64 v) { u64 r; asm volatile("atom.relaxed.cta.add.u64 %0, [%1], %2;" : "=l"(r) : "l"(p), "l"(v) : "memory"); return r; }

// tile.h uses what follows instead of the loads and conversions that every target has.
#define MATRIX_LOADS
// Four 8x8 matrices of 16-bit elements out of LDS; lane l gives the address of row l % 8 of matrix l / 8.
DEV u32 lds_address(const void* p) { return (u32)(u64)(__attribute__((address_space(3))) const void*)p; }
DEV void load_matrices(u32 (&r)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

DEV u32 gpu_pack(f16 a, f16 b) { u32 r; asm("mov.b32 %0, {%1, %2};" : "=r"(r) : "h"(a.u), "h"(b.u)); return r; }
// 16x16x16 as two m16n8k16. a[4j+0..1]: row g+8j, k 2t..; a[4j+2..3]: k 2t+8..; b alike by column
DEV void wmma_f16(float* c, const f16* a, const f16* b) {
  u32 A0 = gpu_pack(a[0], a[1]), A2 = gpu_pack(a[2], a[3]), A1 = gpu_pack(a[4], a[5]), A3 = gpu_pack(a[6], a[7]);
  #pragma unroll
  for (int n = 0; n < 2; n++) {
    u32 B0 = gpu_pack(b[4 * n], b[4 * n + 1]), B1 = gpu_pack(b[4 * n + 2], b[4 * n + 3]);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[4 * n]), "+f"(c[4 * n + 1]), "+f"(c[4 * n + 2]), "+f"(c[4 * n + 3])
      : "r"(A0), "r"(A1), "r"(A2), "r"(A3), "r"(B0), "r"(B1));
  }
}
