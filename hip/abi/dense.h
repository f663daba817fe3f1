// Argument structs: embedding, norms, hyper-connections, rotation, products. See abi.h.
#pragma once

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
  PTR(const float) scales;           // of fp8, [ceil(streams * hidden / 128), ceil(rank / 128)]; else null
  u32              rows;             // 1 to 8
  u32              streams;          // 1 to 4
  u32              hidden;
  u32              rank;             // a multiple of the format's group, at most 512
};

struct HyperLowArgs {
  PTR(float)       low;              // [rows, rank], products with `down`; updated
  PTR(float)       inject;           // [rows, streams]
  PTR(const float) raw;              // [rows, streams], products with the injection matrix; null: a final mixer
  u32              rows;
  u32              streams;
  u32              rank;
  u32              unused;
};
struct HyperMixArgs {
  PTR(float)       x;                // [rows, hidden]
  PTR(const float) normed;           // [rows, streams, hidden]
  PTR(const float) gate;             // [rows, streams, hidden], products with `up`
  u32              streams;          // 1 to 4
  u32              hidden;           // a multiple of 4
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
enum { GEMV_PARTS = 5 };
struct GemvPart {
  PTR(float)       y;                // [rows, outputs]
  PTR(const void)  w;                // [outputs, inputs] in the kernel's format
  PTR(const float) scales;           // what the format keeps beside the bytes (formats.h), or null; of fp8
                                     // [ceil((outputs + row_offset) / 128), ceil(inputs / 128)]
  u32              outputs;
  u32              row_offset;       // of fp8: rows of the first block of scales before row 0 of w, a multiple of 4
  u32              split;            // log2 of the waves that share an output, 0 to 3
  u32              first;            // the part's first workgroup; ascending, 0 for the first part
};
struct GemvArgs {
  PTR(const float) x;                // [rows, inputs]
  u32              rows;             // 1 to 8
  u32              inputs;           // a multiple of the format's group
  u32              count;            // of parts
  u32              unused;
  GemvPart         parts[GEMV_PARTS];
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
