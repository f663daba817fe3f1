// Argument structs: rows that a sequence keeps for its MTP head. See abi.h.
#pragma once

// ---- hidden.hip ------------------------------------------------------------------------------------------------
struct HiddenArgs {
  PTR(float)       wide;             // [rows, width]
  PTR(const u64)   rings;            // [sequences], address of each one's [slots, width]
  PTR(const GdnSegment) segments;    // [sequences]
  PTR(const u32)   sequence;         // [rows]
  PTR(const u32)   positions;        // [rows]
  u32              width;            // a multiple of 4
  u32              slots;
};
