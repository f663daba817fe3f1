// Argument structs: mixture of experts. See abi.h.
#pragma once

// ---- moe_*.hip: tables -----------------------------------------------------------------------------------------
// Where one expert's matrices lie, in device memory or in pinned host memory that the device reads.
struct MoeExpert {
  PTR(const void)  gate;             // [inner, hidden] in the kernel's format
  PTR(const void)  up;               // [inner, hidden]
  PTR(const void)  down;             // [hidden, inner]
  PTR(const float) gate_scales;      // of fp8, [ceil(inner / 128), ceil(hidden / 128)]; else null
  PTR(const float) up_scales;        // the same, of a matrix that starts `up_offset` rows before `up`
  PTR(const float) down_scales;      // of fp8, [ceil(hidden / 128), ceil(inner / 128)]
  u32              up_offset;        // even
  u32              unused;
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
  u32              shared_q8_0;      // 1: the shared expert is in Q8_0 and top_k is not 0, 0: in the experts' format
  u32              unused;
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
  u32              shared_q8_0;      // as above
  u32              unused;
};

// ---- moe_gemm*.hip ---------------------------------------------------------------------------------------------
// Tiles of at most 64 entries. With `tiles` null: the `count` rows are entries of one `expert`, as the shared one's are.
struct MoeGemmGateUpArgs {
  PTR(f16)         hidden;           // [entries, inner rounded up to a multiple of 64], a sixteenth; zeros from `inner` on
  PTR(const f16)   x;                // [rows, inputs rounded up to a multiple of 64], zeros from `inputs` on
  PTR(const float) factors;          // [rows]: x stands for itself times its row's factor
  PTR(const MoeExpert) experts;
  PTR(const u32)   entries;          // pairs (row * top_k + slot) in the order of `tiles`; null with them
  PTR(const MoeTile) tiles;
  u32              count;
  u32              expert;
  u32              top_k;
  u32              inputs;           // a multiple of 8 and of the format's group
  u32              inner;            // a multiple of 8
  u32              unused;
};
struct MoeGemmDownArgs {
  PTR(f16)         parts;            // [pairs, outputs], a sixteenth
  PTR(const f16)   hidden;           // as above
  PTR(const MoeExpert) experts;
  PTR(const u32)   entries;          // as above
  PTR(const MoeTile) tiles;
  u32              count;
  u32              expert;
  u32              outputs;          // a multiple of 8
  u32              inner;            // a multiple of 8 and of the format's group
};
struct MoeCombineArgs {
  PTR(float)       y;                // [rows, width]
  PTR(const f16)   parts;            // [rows, top_k, width], a sixteenth
  PTR(const f16)   shared;           // [rows, width], a sixteenth; null: no shared expert
  PTR(const float) weights;          // [rows, top_k]
  PTR(const float) scale;            // the shared expert's product of row r at r * scale_stride, before the sigmoid
  u32              rows;
  u32              top_k;
  u32              width;            // a multiple of 8
  u32              scale_stride;
};
