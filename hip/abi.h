// Argument structs: what the host hands to a kernel, one struct a kernel, passed by value as its only argument.
//
// Owns: names, types and order of every kernel argument. src/backend/hip/abi.rs is generated from this file
// (hip/bindings.sh); a test compares its sizes with the metadata of the code objects.
// Always true: plain data; pointers are device addresses; sizes are in elements unless the name says bytes.
// Not here: what a kernel computes (the contract block above it).
#pragma once
#if defined(HIPFIRE_BINDINGS)
  #include "dialect/types.h"
  #define PTR(T) u64
#else
  #include "dialect/gpu.h"
  #define PTR(T) T*
#endif

#include "abi/dense.h"
#include "abi/qsa.h"
#include "abi/ple.h"
#include "abi/sample.h"
#include "abi/gdn.h"
#include "abi/moe.h"
#include "abi/hidden.h"
