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

// ---- qsa_pack.hip ----------------------------------------------------------------------------------------------
struct QsaPackArgs {
  PTR(f16)         k_out;            // [tokens up to a multiple of 4, kv_heads * dim]
  PTR(f16)         v_out;            // [tokens / 4, kv_heads * dim, 4], up to a whole block
  PTR(const KvPlanes) planes;        // [sequences]
  u32              sequence;         // whose keys and values
  u32              first;            // first token to pack, a multiple of 4
  u32              tokens;           // one past the last
  u32              kv_heads;
  u32              dim;              // a multiple of 32
  u32              unused;
};

// ---- qsa_gather.hip --------------------------------------------------------------------------------------------
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

// ---- sample.hip ------------------------------------------------------------------------------------------------
struct SampleCount {
  u32              id;
  u32              count;            // how often it was generated; 0: it is in the prompt alone
};
struct SampleBias {
  u32              id;
  float            bias;
};
// How one row's id is chosen: engine/sampler.rs SamplingParams, with what the row's answer has so far.
struct SampleParams {
  PTR(const SampleCount) history;    // [history_count], every id once
  PTR(const SampleBias) bias;        // [bias_count], every id once
  PTR(const u32)   mask;             // [vocabulary / 32], rounded up: bit id % 32 of word id / 32 allows it; null: all
  u64              seed;
  u64              step;             // counts the row's draws
  u32              history_count;
  u32              bias_count;
  float            temperature;      // 0: the greatest logit, whatever the filters
  u32              top_k;            // 0: all
  float            top_p;            // 1: all
  float            min_p;            // 0: all
  float            repetition_penalty;  // 1: off
  float            presence_penalty;
  float            frequency_penalty;
  u32              top_count;        // most likely ids wanted with their log-probabilities, at most 20
};
struct SampleResult {
  u32              id;               // the chosen one; of a row with a NaN the first such id
  u32              status;           // 0: chosen, 1: a logit is not a number, 2: every logit is minus infinity
};
// Groups of 256 consecutive ids; a key orders numbers as an integer (sample.h).
struct SampleAdjustArgs {
  PTR(float)       adjusted;         // [rows, vocabulary]
  PTR(u32)         adjusted_maxima;  // [rows, groups], greatest key
  PTR(u32)         maxima;           // [rows, groups], greatest key of the logits as they are
  PTR(float)       sums;             // [rows, groups], sum of exp(logit - greatest of the group)
  PTR(const float) logits;           // [rows, vocabulary]
  PTR(const SampleParams) params;    // [rows]; null: maxima and sums only
  u32              vocabulary;       // a multiple of 4, at most 262,144
  u32              unused;
};
struct SampleDrawArgs {
  PTR(SampleResult) results;         // [rows]
  PTR(const float) logits;           // [rows, vocabulary], adjusted
  PTR(const u32)   maxima;           // [rows, groups] of them
  PTR(const SampleParams) params;    // [rows]; not read by sample_argmax
  u32              vocabulary;
  u32              unused;
};
struct SampleLogprobsArgs {
  PTR(float)       chosen;           // [rows]
  PTR(u32)         top_ids;          // [rows, 20], the first min(top_count, vocabulary) are written
  PTR(float)       top;              // [rows, 20], alike
  PTR(const SampleResult) results;   // [rows]
  PTR(const float) logits;           // [rows, vocabulary], as they are
  PTR(const u32)   maxima;           // [rows, groups] of them
  PTR(const float) sums;             // [rows, groups]
  PTR(const SampleParams) params;    // [rows]
  u32              vocabulary;
  u32              unused;
};

// ---- gdn_*.hip: state and rows ---------------------------------------------------------------------------------
// One sequence's parts of one layer, as src/state/recurrent.rs lays them out; addresses never move.
struct GdnPlanes {
  PTR(float)       state;            // [value_heads, key_dim, value_dim], before the pending rows
  PTR(float)       window;           // [3 + rewind, channels]
  PTR(float)       keys;             // [rewind, key_heads * key_dim]
  PTR(float)       values;           // [rewind, value_heads * value_dim]
  PTR(float)       decay;            // [rewind, value_heads]
  PTR(float)       strength;         // [rewind, value_heads]
};
// One sequence's rows of a step.
struct GdnSegment {
  u32              first;            // its first row of the step
  u32              rows;
  u32              pending;          // rows of earlier steps that are kept but not folded in
  u32              unused;
};

// ---- gdn_conv.hip ----------------------------------------------------------------------------------------------
struct GdnConvArgs {
  PTR(float)       mixed;            // [rows, channels]: queries, keys, values
  PTR(float)       strength;         // [rows, value_heads], beta
  PTR(float)       decay;            // [rows, value_heads], g
  PTR(const GdnPlanes) planes;       // [sequences]
  PTR(const GdnSegment) segments;    // [sequences]
  PTR(const float) qkv;              // [rows, channels], projections
  PTR(const float) b;                // [rows, value_heads], projections
  PTR(const float) a;                // [rows, value_heads], projections
  PTR(const float) taps;             // [4, channels], the newest column's last
  PTR(const float) dt_bias;          // [value_heads]
  PTR(const float) rate;             // [value_heads], -exp(A_log)
  u32              tiles;            // of the longest segment
  u32              tile;             // rows of a tile
  u32              key_heads;
  u32              value_heads;
  u32              key_dim;          // a multiple of 4, at most 256
  u32              value_dim;        // a multiple of 4, at most 256
  u32              rewind;           // rows of a step that can stay pending, at most `tile`
  float            query_scale;      // 1 / sqrt(key_dim)
};
struct GdnSlideArgs {
  PTR(const GdnPlanes) planes;       // [sequences]
  PTR(const GdnSegment) segments;    // [sequences]
  PTR(const float) qkv;              // [rows, channels]
  u32              channels;         // a multiple of 4
  u32              tile;             // as gdn_conv's
};

// ---- gdn_step.hip ----------------------------------------------------------------------------------------------
struct GdnStepArgs {
  PTR(float)       out;              // [rows, value_heads, value_dim]
  PTR(const GdnPlanes) planes;       // [sequences]
  PTR(const GdnSegment) segments;    // [sequences]
  PTR(const float) mixed;            // [rows, channels]
  PTR(const float) decay;            // [rows, value_heads]
  PTR(const float) strength;         // [rows, value_heads]
  u32              key_heads;
  u32              value_heads;
  u32              key_dim;
  u32              value_dim;        // a multiple of 4
  u32              rewind;
  u32              limit;            // segments of more rows are gdn_scan's
  u32              tiled;            // value head h uses key head h % key_heads; 0: h / (value_heads / key_heads)
  u32              unused;
};

// ---- gdn_output.hip --------------------------------------------------------------------------------------------
struct GdnOutputArgs {
  PTR(float)       out;              // [rows, value_heads, value_dim]
  PTR(const float) o;                // [rows, value_heads, value_dim]
  PTR(const float) z;                // [rows, value_heads, value_dim], projections
  PTR(const float) weight;           // [value_dim]
  PTR(const GdnPlanes) planes;       // [sequences]; null: no rows can stay pending
  PTR(const GdnSegment) segments;    // [sequences]
  PTR(const u32)   sequence;         // [rows]
  PTR(const float) mixed;            // [rows, channels]
  PTR(const float) decay;            // [rows, value_heads]
  PTR(const float) strength;         // [rows, value_heads]
  u32              rows;
  u32              key_heads;
  u32              value_heads;
  u32              key_dim;          // a multiple of 4, at most 256
  u32              value_dim;        // a multiple of 4, at most 256
  u32              rewind;
  float            eps;
  u32              silu;             // gate: 1 SiLU, 0 sigmoid
};

// ---- moe_*.hip: tables -----------------------------------------------------------------------------------------
// Where one expert's matrices lie, in device memory or in pinned host memory that the device reads.
struct MoeExpert {
  PTR(const void)  gate;             // [inner, hidden] in the kernel's format, rows aligned to 16
  PTR(const void)  up;               // [inner, hidden]
  PTR(const void)  down;             // [hidden, inner]
};
// An expert and the rows of a step of at most eight that chose it.
struct MoeGroup {
  u32              expert;
  u32              rows;             // bit r: row r chose it; 0: this entry and all behind it are unused
  u32              slots;            // bits 4r .. 4r + 4: its place in row r's list
  u32              unused;
};
// Consecutive entries of one expert in the lists.
struct MoeTile {
  u32              expert;
  u32              first;
  u32              count;            // 0: this tile and all behind it are unused
  u32              unused;
};

// ---- moe_route.hip ---------------------------------------------------------------------------------------------
struct MoeRouteArgs {
  PTR(u32)         ids;              // [rows, top_k], greatest probability first
  PTR(float)       weights;          // [rows, top_k]
  PTR(MoeGroup)    groups;           // [rows * top_k]; null: not wanted; rows at most 8 where they are
  PTR(const float) logits;           // row r at r * stride
  u32              stride;
  u32              rows;
  u32              experts;          // at most 512
  u32              top_k;            // at most 16 and the experts
  u32              normalise;        // 1: weights sum to 1
  u32              unused;
};
struct MoeListsArgs {
  PTR(u32)         entries;          // [pairs]: pairs (row * top_k + slot) by expert, ascending within an expert
  PTR(u32)         starts;           // [experts + 1]: an expert's first entry
  PTR(MoeTile)     tiles;            // [max_tiles]
  PTR(const u32)   ids;              // [pairs]
  u32              pairs;
  u32              experts;          // at most 512
  u32              tile_rows;
  u32              max_tiles;        // at least min(pairs, pairs / tile_rows + experts)
};

// ---- moe_few.hip -----------------------------------------------------------------------------------------------
struct MoeGateUpArgs {
  PTR(float)       hidden;           // [rows * top_k, inner], pairs (row * top_k + slot)
  PTR(float)       shared_hidden;    // [rows, shared_inner]
  PTR(const float) x;                // [rows, inputs]
  PTR(const MoeExpert) experts;      // [experts], then the shared expert if there is one
  PTR(const MoeGroup) groups;        // [rows * top_k]
  u32              rows;             // at most the kernel's
  u32              top_k;            // 0: the shared expert only
  u32              inputs;           // a multiple of the format's group, and of 8
  u32              inner;
  u32              shared;           // index of the shared expert
  u32              shared_inner;     // 0: no shared expert
};
struct MoeDownArgs {
  PTR(float)       y;                // [rows, outputs]
  PTR(const float) hidden;           // [rows * top_k, inner]
  PTR(const float) shared_hidden;    // [rows, shared_inner]
  PTR(const float) weights;          // [rows, top_k]
  PTR(const float) scale;            // the shared expert's product of row r at r * scale_stride, before the sigmoid
  PTR(const MoeExpert) experts;      // [experts], then the shared expert if there is one
  PTR(const MoeGroup) groups;        // [rows * top_k]
  u32              rows;             // at most the kernel's
  u32              top_k;            // at most 16; 0: the shared expert only
  u32              outputs;
  u32              inner;            // a multiple of the format's group, and of 8
  u32              shared;           // index of the shared expert
  u32              shared_inner;     // 0: no shared expert; else as `inner`
  u32              scale_stride;
  u32              add;              // 1: y keeps what it had, as the first term
};
