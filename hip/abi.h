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
  PTR(const float) scales;           // of fp8, [ceil(vocabulary / 128), ceil(hidden / 128)]; else null
  PTR(const u32)   ids;              // [rows], each below the vocabulary
  u32              streams;
  u32              hidden;           // a multiple of 8 and of the format's block
};

// ---- linear*.hip -----------------------------------------------------------------------------------------------
struct GemvArgs {
  PTR(float)       y;                // [rows, outputs]
  PTR(const float) x;                // [rows, inputs]
  PTR(const void)  w;                // [outputs, inputs] in the kernel's format
  PTR(const float) scales;           // of fp8, [ceil((outputs + row_offset) / 128), ceil(inputs / 128)]; else null
  u32              rows;             // 1 to 8
  u32              outputs;
  u32              inputs;           // a multiple of the format's group
  u32              y_stride;         // elements from one row of y to the next
  u32              row_offset;       // rows of the first block of scales before row 0 of w, a multiple of 4
  u32              split;            // log2 of the waves that share an output, 0 to 3
};

// ---- gemm*.hip -------------------------------------------------------------------------------------------------
struct GemmRowsArgs {
  PTR(f16)         out;              // [rows, stride], zeros from `inputs` on
  PTR(float)       factors;          // [rows], powers of two
  PTR(const float) x;                // [rows, inputs]
  u32              inputs;           // a multiple of 8
  u32              stride;           // inputs rounded up to a multiple of 64
};
struct GemmArgs {
  PTR(float)       y;                // [rows, outputs]
  PTR(const f16)   x;                // [rows, stride], as gemm_rows leaves them
  PTR(const float) factors;          // [rows]
  PTR(const void)  w;                // [outputs, inputs] in the kernel's format
  PTR(const float) scales;           // as in GemvArgs
  u32              rows;
  u32              outputs;
  u32              inputs;           // a multiple of the format's group
  u32              y_stride;
  u32              row_offset;
  u32              unused;
};

// ---- qsa_*.hip: state --------------------------------------------------------------------------------------------
// One sequence's planes of one layer, as src/state/kv.rs lays them out; addresses never move.
struct KvPlanes {
  PTR(u8)          keys;
  PTR(u8)          values;
  PTR(u8)          raw;              // raw index keys, a row a token
  PTR(u8)          blocks;           // block keys, a row `ratio` tokens
};

// ---- qsa_prepare.hip -------------------------------------------------------------------------------------------
struct QsaPrepareArgs {
  PTR(float)       queries;          // [rows, heads, dim], normed and rotated
  PTR(float)       index_queries;    // [rows, index_heads, index_dim], normed and rotated
  PTR(const KvPlanes) planes;        // [sequences]
  PTR(const u32)   sequence;         // [rows]
  PTR(const u32)   positions;        // [rows]; consecutive rows of a sequence have consecutive positions
  PTR(const float) query_gate;       // [rows, heads, 2, dim], projections: query, then gate
  PTR(const float) keys;             // [rows, kv_heads, dim], projections
  PTR(const float) values;           // [rows, kv_heads, dim], projections
  PTR(const float) index_query;      // [rows, index_heads, index_dim], projections
  PTR(const float) index_key;        // [rows, index_dim], projections
  PTR(const float) query_norm;       // [dim]
  PTR(const float) key_norm;         // [dim]
  PTR(const float) index_query_norm; // [index_dim]
  PTR(const float) index_key_norm;   // [index_dim]
  PTR(const float) cos;              // [rows, half] at each row's position
  PTR(const float) sin;
  PTR(const float) block_cos;        // [rows, half] at position + 1 - ratio, for rows that close a block
  PTR(const float) block_sin;
  u32              rows;
  u32              heads;
  u32              kv_heads;
  u32              dim;              // at most 256
  u32              index_heads;
  u32              index_dim;        // at most 256
  u32              half;             // rotating pairs, at most dim / 2 and index_dim / 2
  u32              ratio;            // tokens of a block
  float            eps;
  u32              unused;
};

// ---- qsa_score.hip ---------------------------------------------------------------------------------------------
struct QsaScoreArgs {
  PTR(float)       scores;           // [rows, max_blocks]; written where the block is complete at the row
  PTR(const float) queries;          // [rows, index_heads, index_dim]
  PTR(const KvPlanes) planes;        // [sequences]
  PTR(const u32)   sequence;         // [rows]
  PTR(const u32)   positions;        // [rows]
  u32              first;            // rows first .. first + count are scored, into rows 0 .. count of scores
  u32              count;
  u32              max_blocks;       // a row of scores
  u32              heads;            // at most 4
  u32              dim;              // a multiple of 16
  u32              ratio;
};

// ---- qsa_select.hip --------------------------------------------------------------------------------------------
struct QsaSelectArgs {
  PTR(u32)         blocks;           // [rows, budget], ascending
  PTR(u32)         counts;           // [rows]
  PTR(const float) scores;           // [count, max_blocks]
  PTR(const u32)   positions;        // [rows]
  u32              first;            // rows first .. first + count, from rows 0 .. count of scores
  u32              count;
  u32              max_blocks;
  u32              budget;           // at most 512 blocks
  u32              ratio;
  u32              unused;
};

// ---- qsa_attend.hip --------------------------------------------------------------------------------------------
struct QsaAttendArgs {
  PTR(float)       partial;          // [rows, kv_heads, splits, group, dim]
  PTR(float)       partial_sums;     // [rows, kv_heads, splits, group, 2]: greatest score, sum of weights
  PTR(const float) queries;          // [rows, heads, dim]
  PTR(const KvPlanes) planes;        // [sequences]
  PTR(const u32)   sequence;         // [rows]
  PTR(const u32)   positions;        // [rows]
  PTR(const u32)   blocks;           // [rows, max_blocks]; null: every visible block
  PTR(const u32)   counts;           // [rows]
  u32              heads;
  u32              kv_heads;         // at most 16 query heads each
  u32              max_blocks;       // a row of `blocks`
  u32              splits;           // workgroups a row and KV head
  u32              split_entries;    // entries of a split, a multiple of 64
  u32              ratio;
  u32              dim;              // at most 256
  float            scale;            // 1 / sqrt(dim)
};
struct QsaMergeArgs {
  PTR(float)       out;              // [rows, heads, dim], gated
  PTR(const float) partial;          // as above
  PTR(const float) partial_sums;
  PTR(const float) query_gate;       // [rows, heads, 2, dim]
  PTR(const u32)   positions;        // [rows]
  PTR(const u32)   counts;           // [rows]; null: every visible block
  u32              heads;
  u32              kv_heads;
  u32              splits;
  u32              split_entries;
  u32              ratio;
  u32              dim;              // at most 256
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
