// Kernels that are each wrong in one way, for the checker named above each. Planted: not to be fixed.
#include "dialect/tile.h"

struct WrongArgs { float* out; const float* in; u32 n; i32 index; };

// checked: only 40 of 64 threads reach the first barrier.
KERNEL(64, wrong_divergent_barrier, WrongArgs) {
  if (tid() < 40) barrier();  // LINE divergent_barrier
  a.out[tid()] = 1.f;
  barrier();
}

// checked: lanes 7 to 31 do not shuffle.
KERNEL(64, wrong_divergent_shuffle, WrongArgs) {
  float v = a.in[tid()];
  if (lane() < 7) v = shfl(v, 3);  // LINE divergent_shuffle
  a.out[tid()] = v;
}

// checked: both halves of a wave sum, each on its own side of a branch.
KERNEL(64, wrong_shuffle_in_two_branches, WrongArgs) {
  float v = a.in[tid()];
  if (lane() < 16) v = wave_sum(v);  // LINE shuffle_in_two_branches
  else v = wave_sum(v * 2.f);
  a.out[tid()] = v;
}

// checked: one past a static LDS array.
KERNEL(64, wrong_lds_overrun, WrongArgs) {
  LDS_ARR(float, row, 64);
  row[tid() + 1] = 1.f;  // LINE lds_overrun
  barrier();
  a.out[tid()] = row[tid()];
}

// checked: one past the dynamic LDS of 256 bytes.
KERNEL(64, wrong_dynamic_lds_overrun, WrongArgs) {
  LDS_DYN(float, row);
  row[tid() + 1] = 1.f;  // LINE dynamic_lds_overrun
  barrier();
  a.out[tid()] = row[tid()];
}

// checked: 64 KiB is all there is.
KERNEL(64, wrong_too_much_lds, WrongArgs) {
  LDS_ARR(float, most, 16380);
  LDS_ARR(float, more, 8);  // LINE too_much_lds
  most[tid()] = 1.f;
  more[tid() & 7] = 1.f;
  a.out[tid()] = most[tid()];
}

// checked: thread 5 does not write its element.
KERNEL(64, wrong_uninitialised_lds, WrongArgs) {
  LDS_ARR(float, row, 64);
  if (tid() != 5) row[tid()] = 1.f;
  barrier();
  a.out[tid()] = row[63 - tid()];  // LINE uninitialised_lds
}

// checked: a counter in LDS that nobody set to zero.
KERNEL(64, wrong_uninitialised_atomic, WrongArgs) {
  LDS(u32, counter);
  lds_atomic_add(&counter, 1u);  // LINE uninitialised_atomic
  barrier();
  if (tid() == 0) a.out[0] = static_cast<float>(counter);
}

// checked: one past the allocation.
KERNEL(64, wrong_global_write, WrongArgs) {
  a.out[tid() + 1] = 1.f;  // LINE global_write
}

// checked: the same, far from any allocation.
KERNEL(64, wrong_wild_read, WrongArgs) {
  a.out[tid()] = *reinterpret_cast<const float*>(0x10000ull + tid() * 4);  // LINE wild_read
}

// checked: private memory without end.
DEV u32 deepen(u32 x) {
  volatile u32 frame[1 << 16];
  UNROLL for (u32 i = 0; i < 1 << 16; i += 1024) frame[i] = x;
  return frame[x & 1024];
}
KERNEL(64, wrong_stack_overflow, WrongArgs) {
  a.out[tid()] = static_cast<float>(deepen(tid()));
}

// checked: waits for a store of a work-item that never gets its turn.
KERNEL(64, wrong_endless_wait, WrongArgs) {
  volatile float* const out = a.out;
  if (tid() == 0) while (out[1] == 0.f) {}  // LINE endless_wait
  else out[tid()] = 1.f;
}

// checked: by zero.
KERNEL(64, wrong_division, WrongArgs) {
  a.out[tid()] = static_cast<float>(tid() / a.n);  // LINE division
}

// TSan: no barrier between store and load.
KERNEL(64, wrong_missing_barrier, WrongArgs) {
  LDS_ARR(float, row, 64);
  row[tid()] = a.in[tid()];  // LINE missing_barrier
  a.out[tid()] = row[tid() ^ 1];
}

// TSan: every workgroup stores to the same place.
KERNEL(64, wrong_workgroup_race, WrongArgs) {
  a.out[tid()] = static_cast<float>(bidx());  // LINE workgroup_race
}

// checked, in the gfx11 layout: lanes 16 to 31 must hold what lanes 0 to 15 hold.
KERNEL(32, wrong_lane_row, WrongArgs) {
  Operand rows, columns;
  Acc sum;
  tile_zero(sum);
  for (u32 i = 0; i < OPERAND_ELEMENTS; i++) {
    rows.h[i] = to_f16(static_cast<float>(lane()));
    columns.h[i] = to_f16(1.f);
  }
  tile_multiply(sum, rows, columns);  // LINE lane_row
  tile_each(sum, [&](u32 row, u32 column, float& element) { a.out[16 * row + column] = element; });
}

// UBSan: 16 bytes from an address that is a multiple of 4.
KERNEL(32, wrong_alignment, WrongArgs) {
  const f32x4* vector = reinterpret_cast<const f32x4*>(a.in + a.index);
  a.out[tid()] = vector[0].v[tid() & 3];  // LINE alignment
}

// UBSan: signed arithmetic beyond 2^31.
KERNEL(32, wrong_overflow, WrongArgs) {
  a.out[tid()] = static_cast<float>(0x7fffffff - 16 + static_cast<i32>(tid()) * a.index);  // LINE overflow
}

// UBSan: beyond an array, but inside the struct that holds it.
KERNEL(32, wrong_index_in_struct, WrongArgs) {
  struct Two { float first[8], second[8]; };
  LDS(Two, two);
  two.first[tid() & 7] = 1.f;
  two.second[tid() & 7] = 2.f;
  barrier();
  a.out[tid()] = two.first[a.index];  // LINE index_in_struct
}

// ASan: beyond a private array.
KERNEL(32, wrong_private_array, WrongArgs) {
  float own[8];
  for (int i = 0; i < 8; i++) own[i] = a.in[i];
  float* const at = own + a.index;
  a.out[tid()] = at[0];  // LINE private_array
}
