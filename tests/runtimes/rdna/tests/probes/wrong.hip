// Each kernel is wrong in one way that running its machine code must show.
#include "abi.h"

struct WrongArgs { float* y; u32 j; u32 unused; };

// Stores one element past the end.
KERNEL(64, wrong_global, WrongArgs) { a.y[tid() + a.j] = 1.f; }
// Stores past the end of its dynamic LDS.
KERNEL(64, wrong_lds_end, WrongArgs) {
  LDS_DYN(float, b);
  b[tid() + a.j] = 1.f; barrier(); a.y[tid()] = b[tid()];
}
// One element of LDS is never written.
KERNEL(64, wrong_uninitialised, WrongArgs) {
  LDS_ARR(float, b, 64);
  if (tid() != a.j) b[tid()] = 1.f;
  barrier();
  a.y[tid()] = b[63 - tid()] * 2.f;
}
// The waves exchange through LDS without waiting for each other.
KERNEL(64, wrong_race, WrongArgs) {
  LDS_ARR(float, b, 64);
  b[tid()] = (float)tid();
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
  a.y[tid()] = b[63 - tid()];
}
// One wave never arrives.
KERNEL(64, wrong_barrier, WrongArgs) {
  if (wave() == 0) barrier();
  a.y[tid()] = 1.f;
}
// Half of a wave arrives.
KERNEL(64, wrong_half_barrier, WrongArgs) {
  if (lane() < a.j) { a.y[tid()] = 1.f; barrier(); }
  a.y[tid()] += 1.f;
}
// Never ends.
KERNEL(32, wrong_endless, WrongArgs) {
  volatile float* y = a.y;
  while (y[0] == 0.f) {}
}
// Element (row, column) of a tile from the other generation's lane.
KERNEL(32, wrong_lane_row, WrongArgs) {
  f16 x[16], b[16]; float c[8];
  const u32 r = lane() & 15, h = lane() >> 4;
  for (int i = 0; i < 16; i++) {
    const u32 k = TILE_LAYOUT == 11 ? i : (8 * h + i) & 15;
    x[i] = to_f16((float)(r + 1)); b[i] = to_f16(k == r ? 1.f : 0.f);
  }
  for (int i = 0; i < 8; i++) c[i] = 0.f;
  wmma_f16(c, x, b);
  for (u32 j = 0; j < 8; j++) {
    const u32 right = TILE_LAYOUT == 11 ? 2 * j + h : 8 * h + j;
    const u32 other = TILE_LAYOUT == 11 ? 8 * h + j : 2 * j + h;
    a.y[(a.j ? other : right) * 16 + r] = c[j];
  }
}
// A misaligned word.
KERNEL(32, wrong_alignment, WrongArgs) { *(float*)((char*)a.y + 4 * tid() + a.j) = 1.f; }
