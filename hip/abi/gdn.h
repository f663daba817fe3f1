// Argument structs: Gated DeltaNet. See abi.h.
#pragma once

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
  u32              chunk;            // its first chunk in gdn_scan's workspace
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

// ---- gdn_scan.hip ----------------------------------------------------------------------------------------------
struct GdnScanArgs {
  PTR(float)       out;              // [rows, value_heads, value_dim]
  PTR(const GdnPlanes) planes;       // [sequences]
  PTR(const GdnSegment) segments;    // [sequences]
  PTR(const float) mixed;            // [rows, channels]
  PTR(const float) decay;            // [rows, value_heads]
  PTR(const float) strength;         // [rows, value_heads]
  PTR(f16)         keys;             // workspace [chunks, key_heads, 3, 64 * key_dim]: K, Q, K transposed
  PTR(f16)         pairs;            // workspace [chunks, value_heads, 2, 64, 64]: inverse, products of Q and K
  PTR(float)       growth;           // workspace [chunks, value_heads, 2, 64]: decay from the start, to the end
  u32              chunks;           // of the longest segment
  u32              key_heads;
  u32              value_heads;
  u32              key_dim;          // 64 or 128
  u32              value_dim;        // the same
  u32              limit;            // segments of at most this many rows are gdn_step's
  u32              tiled;
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
