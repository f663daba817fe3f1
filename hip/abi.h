// Argument structs: what the host hands to a kernel, one struct a kernel, passed by value as its only argument.
//
// Owns: names, types and order of every kernel argument. src/backend/hip/abi.rs is generated from this file
// (hip/bindings.sh); a test compares its sizes with the metadata of the code objects.
// Always true: plain data; pointers are device addresses; sizes are in elements unless the name says bytes.
// Not here: what a kernel computes (the contract block above it).
#pragma once
#if defined(HIPFIRE_BINDINGS)
  #include "dialect/types.h"
  typedef u16 bf16;
  typedef u16 f16;
#else
  #include "dialect/gpu.h"
#endif

// ---- canary.hip ------------------------------------------------------------------------------------------------
struct CanaryArgs {
  u64* words;       // [count]
  u64  seed;
  u32* mismatches;  // [1], added to
  u32  count;
  u32  phase;       // 0 writes, 1 reads back and compares
};

// ---- norm.hip --------------------------------------------------------------------------------------------------
struct GroupedNormArgs {
  float*       out;     // [rows, groups, width]
  const float* in;      // [rows, groups, width]
  const float* weight;  // [groups, width], used as it is
  u32          groups;
  u32          width;   // a multiple of 4
  float        eps;
  u32          unused;
};
