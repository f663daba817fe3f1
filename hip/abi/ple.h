// Argument structs: n-gram embedding, row movers. See abi.h.
#pragma once

// ---- ple.hip ---------------------------------------------------------------------------------------------------
// One sequence's part of a step, with its window of one PLE layer (src/state/recurrent.rs).
struct PleSegment {
  PTR(float)       window;           // [history + revocable, streams * hidden]
  u32              first;            // its first row in the step
  u32              rows;             // 0: the sequence takes no part
  u32              pending;          // columns behind the history that are kept
  u32              unused;
};
struct PleGateArgs {
  PTR(float)       gated;            // [rows, streams, hidden]
  PTR(float)       normed;           // [rows, streams, hidden]
  PTR(const float) key;              // [rows, streams, hidden], products with the key projection
  PTR(const float) value;            // [rows, hidden], products with the value projection
  PTR(const float) wide;             // [rows, streams, hidden], before the injection
  PTR(const float) norm_key;         // [streams, hidden]
  PTR(const float) norm_query;       // [streams, hidden]
  PTR(const float) norm_conv;        // [streams, hidden]
  u32              streams;
  u32              hidden;           // a multiple of 4
  float            eps;
  u32              unused;
};
struct PleConvArgs {
  PTR(float)       wide;             // [rows, width], updated
  PTR(const float) gated;            // [rows, width]
  PTR(const float) normed;           // [rows, width]
  PTR(const float) weights;          // [taps, width], the oldest tap first
  PTR(const PleSegment) segments;    // [sequences]
  PTR(const u32)   sequence;         // [rows]
  u32              width;            // streams * hidden, a multiple of 4
  u32              taps;             // at most 4
  u32              dilation;
  u32              unused;
};
struct PleSlideArgs {
  PTR(const float) normed;           // [rows, width]
  PTR(const PleSegment) segments;    // [sequences]
  u32              width;            // a multiple of 4
  u32              history;          // columns of history: (taps - 1) * dilation
  u32              revocable;        // columns of a window behind its history
  u32              unused;
};

// ---- rows.hip --------------------------------------------------------------------------------------------------
struct StreamAddArgs {
  PTR(float)       wide;             // [rows, streams, hidden], updated
  PTR(const float) shared;           // [rows, hidden]
  u32              streams;
  u32              hidden;           // a multiple of 4
};
struct CopyRowsArgs {
  PTR(float)       out;              // row i at i * out_stride
  PTR(const float) input;            // row j at j * input_stride
  PTR(const u32)   rows;             // [count], which row of the input becomes row i; null: row i
  u32              width;            // a multiple of 4, as are the strides
  u32              out_stride;
  u32              input_stride;
  u32              unused;
};
