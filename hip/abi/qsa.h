// Argument structs: attention over selected blocks and its state. See abi.h.
#pragma once

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
  PTR(u32)         candidates;       // [count, parts, budget]
  PTR(const float) scores;           // [count, max_blocks]
  PTR(const u32)   positions;        // [rows]
  u32              first;            // rows first .. first + count, from rows 0 .. count of scores
  u32              count;
  u32              max_blocks;
  u32              budget;           // at most 512 blocks
  u32              ratio;
  u32              parts;            // ceil(max_blocks / 4096), or 0 to select without candidates
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
