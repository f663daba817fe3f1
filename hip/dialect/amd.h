// AMDGPU back end: stands in for hip_runtime.h. No ROCm needed at build time.
//
// Owns: each primitive of the dialect as builtins of clang's AMDGPU target, for gfx11 and gfx12 in wave32.
// Always true: nothing lowers to a library call or touches a hidden kernel argument (sizes are passed, blockDim and
// gridDim are not read), so the kernarg size is the argument struct's.
#pragma once
#define __global__  __attribute__((global))
#define __device__  __attribute__((device))
#define __host__    __attribute__((host))
#define __shared__  __attribute__((shared))
#define __constant__ __attribute__((constant))
#define DEV         __device__ inline __attribute__((always_inline))
// KERNEL(threads, name, Args) { body that reads `a` }: the exact workgroup size lets the compiler use all VGPRs.
#define KERNEL(T, name, Args) \
  extern "C" __global__ __attribute__((launch_bounds(T), amdgpu_flat_work_group_size(T, T))) void name(const Args a)
// The same, for a kernel of which two workgroups are to share a compute unit: here they do.
#define KERNEL_TWICE(T, name, Args) KERNEL(T, name, Args)
// The same, for a kernel that calls previous_launch() itself, before it reads what the launch before it writes; or one of
// which N workgroups are to share a compute unit besides.
#define KERNEL_AHEAD(T, name, Args) KERNEL(T, name, Args)
#define KERNEL_AHEAD_TIMES(T, N, name, Args) KERNEL(T, name, Args)
// KERNEL_BIG_LDS(name, T) before a kernel whose LDS_BIG is a T; only CUDA needs the size ahead of the launch.
#define KERNEL_BIG_LDS(name, T)
#define RESTRICT    __restrict__

typedef _Float16 f16;
DEV float to_f32(f16 x)  { return (float)x; }
DEV f16   to_f16(float x)  { return (f16)x; }

DEV u32 tid()  { return __builtin_amdgcn_workitem_id_x(); }
DEV u32 bidx() { return __builtin_amdgcn_workgroup_id_x(); }
DEV u32 bidy() { return __builtin_amdgcn_workgroup_id_y(); }
DEV u32 bidz() { return __builtin_amdgcn_workgroup_id_z(); }
DEV u32 lane() { return __builtin_amdgcn_mbcnt_lo(~0u, 0); }
DEV u32 wave() { return __builtin_amdgcn_readfirstlane(__builtin_amdgcn_workitem_id_x() >> 5); }

// Orders LDS only ("local"): a plain workgroup fence would also drain VMEM and
// invalidate L0. Use barrier_global() when threads hand data over through memory.
DEV void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}
DEV void barrier_global() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// The compiler moves nothing across: keeps loads that were written late from being hoisted into more live registers.
DEV void keep_order() { __builtin_amdgcn_sched_barrier(0); }
DEV void fence_device() { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent"); }
// Launches of a stream follow each other: what the one before has written is there.
DEV void previous_launch() {}

// Static LDS: small, an array, up to 64 KiB. Dynamic LDS, sized at launch.
#define LDS(T, name)     __shared__ T name
#define LDS_ARR(T, name, n) __shared__ T name[n]
#define LDS_BIG(T, name) __shared__ T name
#define LDS_DYN(T, name) extern __shared__ T name[]

// ---- address spaces ------------------------------------------------------
// A pointer that came out of memory is generic to the compiler; this says that it is global memory.
// (By way of an integer: a plain pair of casts is folded away before the address space is inferred.)
template<class T> DEV T* global(T* p) { return (T*)(__attribute__((address_space(1))) T*)(u64)p; }
// A value that is the same in every lane, where the compiler cannot see it: kept in a scalar register.
DEV u32 uniform(u32 v) { return __builtin_amdgcn_readfirstlane(v); }
// A value that the whole wave reads from memory which nothing writes during the launch: a scalar load.
#if __clang_major__ >= 20
template<class T> DEV T load_uniform(const T* p) { return *(const __attribute__((address_space(4))) T*)(u64)p; }
#else  // copies no class out of an address space
template<class T> DEV T load_uniform(const T* p) {
  struct Words { u32 v[sizeof(T) / 4]; } words;
  const auto from = (const __attribute__((address_space(4))) u32*)__builtin_assume_aligned(p, alignof(T));
  _Pragma("unroll") for (u32 i = 0; i < sizeof(T) / 4; i++) words.v[i] = from[i];
  return __builtin_bit_cast(T, words);
}
#endif

// ---- cross-lane ----------------------------------------------------------
DEV int   as_i(float x) { return __builtin_bit_cast(int, x); }
DEV float as_f(int x)   { return __builtin_bit_cast(float, x); }
// clang 19 sinks a shuffle into a branch that uses its result, where half the lanes are off: the result stays where it is
// computed. 22 does not need this, and folds the shuffle into its user.
#if __clang_major__ >= 22
DEV int here(int v) { return v; }
DEV u32 here_uniform(u32 v) { return v; }
#else
DEV int here(int v) { asm volatile("" : "+v"(v)); return v; }
DEV u32 here_uniform(u32 v) { asm volatile("" : "+s"(v)); return v; }
#endif
template<int M> DEV int shfl_xor(int v) {
  if constexpr (M == 16)   // swap the two rows of 16
    return here(__builtin_amdgcn_permlanex16(v, v, 0x76543210, 0xfedcba98, false, false));
  else                     // DPP row_xmask
    return here(__builtin_amdgcn_update_dpp(0, v, 0x160 | M, 0xf, 0xf, true));
}
template<int M> DEV float shfl_xor(float v) { return as_f(shfl_xor<M>(as_i(v))); }
DEV int   shfl(int v, u32 src)   { return here(__builtin_amdgcn_ds_bpermute((int)(src << 2), v)); }
DEV float shfl(float v, u32 src) { return as_f(shfl(as_i(v), src)); }
DEV u32   wave_ballot(bool p) { return here_uniform(__builtin_amdgcn_ballot_w32(p)); }

// ---- maths: each lowers to instructions, none to a library call ----------
DEV float fmax_(float a, float b) { return __builtin_fmaxf(a, b); }
DEV float fmin_(float a, float b) { return __builtin_fminf(a, b); }
DEV float fma_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEV float exp2_(float x)  { return __builtin_amdgcn_exp2f(x); }  // v_exp_f32
DEV float log2_(float x)  { return __builtin_amdgcn_logf(x); }   // v_log_f32
DEV float rsqrt_(float x) { return __builtin_amdgcn_rsqf(x); }   // v_rsq_f32
DEV float rcp_(float x)   { return __builtin_amdgcn_rcpf(x); }   // v_rcp_f32
DEV float sqrt_(float x)  { return __builtin_sqrtf(x); }
DEV float exp_(float x)   { return exp2_(x * 1.44269504088896340736f); }
DEV float log_(float x)   { return log2_(x) * 0.69314718055994530942f; }

// ---- atomics -------------------------------------------------------------
DEV u32  atomic_add(u32* p, u32 v)  { return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
DEV u64  atomic_add(u64* p, u64 v)  { return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
DEV u32  atomic_max(u32* p, u32 v)  { return __hip_atomic_fetch_max(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
DEV void atomic_add(float* p, float v) {
#if __clang_major__ >= 20
  // the attribute is what makes this one global_atomic_add_f32 and not a CAS loop
  [[clang::atomic(no_remote_memory, no_fine_grained_memory, ignore_denormal_mode)]] {
    __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  }
#else
  __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}
DEV u32  lds_atomic_add(u32* p, u32 v) { return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP); }
DEV u64  lds_atomic_add(u64* p, u64 v) { return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP); }

#if defined(__GFX11__)
  #define TILE_LAYOUT 11
#elif defined(__GFX12__)
  #define TILE_LAYOUT 12
#else
  #error "no matrix layout for this gfx target"
#endif
typedef f16   h16v __attribute__((ext_vector_type(16)));
typedef f16   h8v  __attribute__((ext_vector_type(8)));
typedef float f8v  __attribute__((ext_vector_type(8)));
#if TILE_LAYOUT == 11
DEV void wmma_f16(float* c, const f16* a, const f16* b) {
  h16v A, B; f8v C;
  for (int i = 0; i < 16; i++) { A[i] = a[i]; B[i] = b[i]; }
  for (int i = 0; i < 8; i++) C[i] = c[i];
  C = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(A, B, C);
  for (int i = 0; i < 8; i++) c[i] = C[i];
}
#else
DEV void wmma_f16(float* c, const f16* a, const f16* b) {
  h8v A, B; f8v C;
  for (int i = 0; i < 8; i++) { A[i] = a[i]; B[i] = b[i]; C[i] = c[i]; }
  C = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(A, B, C);
  for (int i = 0; i < 8; i++) c[i] = C[i];
}
#endif
