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

// ---- canary.hip ------------------------------------------------------------------------------------------------
struct CanaryArgs {
  PTR(u64)         words;            // [count]
  u64              seed;
  PTR(u32)         mismatches;       // [1], added to
  u32              count;
  u32              phase;            // 0 writes, 1 reads back and compares
};

// ---- norm.hip --------------------------------------------------------------------------------------------------
struct GroupedNormArgs {
  PTR(float)       out;              // [rows, groups, width]
  PTR(const float) input;            // [rows, groups, width]
  PTR(const float) weight;           // [groups, width], used as it is
  u32              groups;
  u32              width;            // a multiple of 4
  float            eps;
  u32              unused;
};

// ---- residual.hip ----------------------------------------------------------------------------------------------
struct HyperWriteArgs {
  PTR(float)       wide;             // [rows, streams, hidden], updated
  PTR(const float) inject;           // [rows, streams]
  PTR(const float) y;                // [rows, hidden]
  PTR(float)       normed;           // [rows, streams, hidden], the next read's norm; null: not wanted
  PTR(const float) weight;           // [streams, hidden] of that norm
  u32              streams;
  u32              hidden;           // a multiple of 4
  float            eps;
  u32              unused;
};
struct HyperGateArgs {
  PTR(float)       x;                // [rows, hidden]
  PTR(float)       inject;           // [rows, streams]
  PTR(const float) normed;           // [rows, streams, hidden]
  PTR(const float) low;              // [rows, rank], products with `down`
  PTR(const float) raw;              // [rows, streams], products with the injection matrix; null: a final mixer
  PTR(const void)  up;               // [streams * hidden, rank] in the kernel's format
  u32              rows;             // 1 to 8
  u32              streams;          // 1 to 4
  u32              hidden;           // a multiple of 4
  u32              rank;             // a multiple of 8, at most 512
};

// ---- rope.hip --------------------------------------------------------------------------------------------------
struct HeadNormRopeArgs {
  PTR(float)       out;              // [rows, heads, dim]
  PTR(const float) input;            // element (row, head, i) at row * row_stride + head * head_stride + i
  PTR(const float) weight;           // [dim], used as it is; null: no norm
  PTR(const float) cos;              // [rows, half]
  PTR(const float) sin;              // [rows, half]
  u32              heads;            // of a row
  u32              count;            // rows * heads
  u32              dim;              // a multiple of 4, at most 256
  u32              half;             // rotating pairs, at most dim / 2
  u32              row_stride;
  u32              head_stride;
  float            eps;
  u32              unused;
};

// ---- embed.hip -------------------------------------------------------------------------------------------------
struct EmbedArgs {
  PTR(float)       wide;             // [rows, streams, hidden]
  PTR(const void)  table;            // [vocabulary, hidden] in the kernel's format
  PTR(const u32)   ids;              // [rows], each below the vocabulary
  u32              streams;
  u32              hidden;           // a multiple of 8
};

// ---- linear.hip ------------------------------------------------------------------------------------------------
struct GemvArgs {
  PTR(float)       y;                // [rows, outputs]
  PTR(const float) x;                // [rows, inputs]
  PTR(const void)  w;                // [outputs, inputs] in the kernel's format
  u32              rows;             // 1 to 8
  u32              outputs;
  u32              inputs;           // a multiple of the format's group
  u32              y_stride;         // elements from one row of y to the next
};

// ---- qsa_gather.hip --------------------------------------------------------------------------------------------
struct GatherPackArgs {
  PTR(f16)         k_out;            // [tokens, kv_heads * dim]
  PTR(f16)         v_out;            // [tokens / 4, kv_heads * dim, 4]
  PTR(const float) k;                // [tokens, kv_heads * dim]
  PTR(const float) v;                // [tokens, kv_heads * dim]
  u32              first;            // first token to pack, a multiple of 4
  u32              tokens;           // one past the last
  u32              width;            // kv_heads * dim
  u32              unused;
};
struct GatherAttendArgs {
  PTR(float)       out;              // [rows, heads, dim], gated
  PTR(const float) q;                // [rows, heads, dim], normed and rotated
  PTR(const float) gate;             // element (row, head, i) at row * gate_row_stride + head * gate_head_stride + i
  PTR(const f16)   k;                // [tokens, kv_heads * dim]
  PTR(const f16)   v;                // [tokens / 4, kv_heads * dim, 4]
  PTR(const u32)   blocks;           // [rows, max_blocks], the selected complete blocks
  PTR(const u32)   counts;           // [rows], how many they are
  PTR(const u32)   positions;        // [rows], the row's own position: tokens up to it are visible
  u32              heads;            // query heads
  u32              kv_heads;         // at most 16 query heads each
  u32              max_blocks;
  u32              gate_row_stride;
  u32              gate_head_stride;
  float            scale;            // 1 / sqrt(dim)
};
