// The arena's canary: proves that freshly mapped memory keeps what is stored in it (VMM.md row 2).
#include "abi.h"

DEV u64 canary_word(u64 seed, u64 i) {
  u64 x = seed + i * 0x9e3779b97f4a7c15ull;
  x ^= x >> 31; x *= 0xbf58476d1ce4e5b9ull; x ^= x >> 29;
  return x;
}

// phase 0: words[i] = word(seed, i).  phase 1: mismatches += number of i with words[i] != word(seed, i).
// words [count]; grid ceil(count / 256), block 256; LDS 0; words aligned to 8.
// Exact. Oracle: backend/hip/check/canary.rs.
KERNEL(256, canary, CanaryArgs) {
  const u32 i = bidx() * 256 + tid();
  if (i >= a.count) return;
  if (a.phase == 0) a.words[i] = canary_word(a.seed, i);
  else if (a.words[i] != canary_word(a.seed, i)) atomic_add(a.mismatches, 1u);
}
