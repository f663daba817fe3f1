// The gated delta rule of a few rows (spec 2.3, 3.2): pending rows folded in, new rows applied, row by row.
#include "gdn.h"

// Per value head, with S [dk, dv] and for each pending row, then each new row:
//   S *= e^g; d = (v - S^T k) * beta; S += k d^T; and for a new row o[r][head] = S^T q
// A segment of at most `rewind` rows keeps them pending: the state written back is the one before them, and it is
// written only if there were pending rows. A segment of more rows, up to `limit`, writes the state after them; one of
// more than `limit` rows has its pending rows folded in, the new ones are gdn_scan's. rewind <= limit.
// grid sequences * value_heads * ceil(dv / 32), block 64: a workgroup 32 columns of a head, a wave 16 of them, a lane
// 4 columns and an eighth of their rows, all in registers: the state is read once, in full lines, and written once.
// LDS 11 KiB at dk 128; dk a multiple of 4 and at most DK (exactly DK where FULL), dv a multiple of 4; aligned to 16.
// Ordered: a column's sums run over a lane's rows and then across lanes, whatever else is in the step.
// Oracle: backend/cpu/delta.rs recur and fold, gdn.rs apply.
enum { COLUMNS = 32, SHARES = 8 };

// A share's keys start 4 floats further on than they need: eight shares are read at once, from other banks.
template<int DK> struct alignas(16) StepLds {
  enum { ROWS = DK / SHARES, STRIDE = ROWS + 4, SLOTS = DK > 128 ? 2 : 8 };
  float k[SLOTS][SHARES][STRIDE], q[SLOTS][SHARES][STRIDE];
  float v[SLOTS][COLUMNS];
  float shrink[SLOTS], beta[SLOTS];
};

// Where a row's vectors lie: pending row `at` of the state, or row `at` of the step.
struct StepRow { bool old; u64 at; };
DEV StepRow step_row(const GdnSegment& segment, u32 row) {
  const bool old = row < segment.pending;
  return StepRow{old, old ? row : segment.first + row - segment.pending};
}

template<int DK, bool FULL> DEV void gdn_step(const GdnStepArgs& a, StepLds<DK>& lds) {
  enum { ROWS = StepLds<DK>::ROWS, SLOTS = StepLds<DK>::SLOTS, PARTS = SLOTS * DK / 4 / 64 };
  const u32 dk = FULL ? DK : a.key_dim, dv = a.value_dim;
  const u32 parts = (dv + COLUMNS - 1) / COLUMNS;
  const u32 part = bidx() % parts, head = bidx() / parts % a.value_heads, sequence = bidx() / parts / a.value_heads;
  const u32 key_head = gdn_key_head(head, a.key_heads, a.value_heads, a.tiled);
  const u32 keys = a.key_heads * dk, values = a.value_heads * dv, channels = 2 * keys + values;
  const GdnSegment segment = gdn_segment(a.segments, sequence);
  const u32 fresh = segment.rows <= a.limit ? segment.rows : 0, total = segment.pending + fresh;
  const u32 write_at = fresh <= a.rewind ? segment.pending : total;
  if (total == 0) return previous_launch();
  const GdnPlanes* planes = a.planes + sequence;
  const float* old_keys = gdn_plane(&planes->keys);
  const float* old_values = gdn_plane(&planes->values);
  const float* old_decay = gdn_plane(&planes->decay);
  const float* old_strength = gdn_plane(&planes->strength);

  const u32 share = lane() >> 2, first = share * ROWS;
  const u32 local = 16 * wave() + 4 * (lane() & 3), column = part * COLUMNS + local;
  const bool present = column < dv;
  float* state = gdn_plane(&planes->state) + (static_cast<u64>(head) * dk + first) * dv + column;
  // dk is a multiple of 4: one mask for four rows, or the masks of a generic size spill.
  f32x4 s[ROWS];
  UNROLL for (u32 i = 0; i < ROWS; i++) {
    const bool inside = present && (FULL || first + i / 4 * 4 < dk);
    if (inside) s[i] = *reinterpret_cast<const f32x4*>(state + i * dv);
    else UNROLL for (int c = 0; c < 4; c++) s[i].v[c] = 0.f;
  }
  previous_launch();  // the convolution; the state is older

  const auto write = [&] {
    UNROLL for (u32 i = 0; i < ROWS; i++)
      if (present && (FULL || first + i / 4 * 4 < dk)) *reinterpret_cast<f32x4*>(state + i * dv) = s[i];
  };
  for (u32 begin = 0; begin < total; begin += SLOTS) {
    const u32 count = total - begin < SLOTS ? total - begin : SLOTS;
    if (begin > 0) barrier();
    // Slots past the last row repeat it: every load is issued, and all of them before the first is waited for.
    f32x4 new_k[PARTS], new_q[PARTS];
    UNROLL for (u32 p = 0; p < PARTS; p++) {
      const u32 item = tid() + 64 * p, slot = item / (DK / 4), i = item % (DK / 4) * 4;
      const StepRow row = step_row(segment, begin + (slot < count ? slot : count - 1));
      const float* mixed = a.mixed + row.at * channels + key_head * dk;
      const float* k = row.old ? old_keys + row.at * keys + key_head * dk : mixed + keys;
      const u32 from = FULL || i < dk ? i : dk - 4;
      new_k[p] = *reinterpret_cast<const f32x4*>(k + from);
      new_q[p] = *reinterpret_cast<const f32x4*>((row.old ? k : mixed) + from);
    }
    if (tid() < SLOTS * (COLUMNS / 4u)) {
      const u32 slot = tid() / (COLUMNS / 4), c = tid() % (COLUMNS / 4) * 4, place = part * COLUMNS + c;
      const StepRow row = step_row(segment, begin + (slot < count ? slot : count - 1));
      const float* v = row.old ? old_values + row.at * values : a.mixed + row.at * channels + 2 * keys;
      *reinterpret_cast<f32x4*>(&lds.v[slot][c]) =
          *reinterpret_cast<const f32x4*>(v + head * dv + (place < dv ? place : dv - 4));
    }
    if (tid() < SLOTS) {
      const StepRow row = step_row(segment, begin + (tid() < count ? tid() : count - 1));
      const u64 at = row.at * a.value_heads + head;
      lds.shrink[tid()] = exp_((row.old ? old_decay : a.decay)[at]);
      lds.beta[tid()] = (row.old ? old_strength : a.strength)[at];
    }
    UNROLL for (u32 p = 0; p < PARTS; p++) {
      const u32 item = tid() + 64 * p, slot = item / (DK / 4), i = item % (DK / 4) * 4;
      const bool inside = FULL || i < dk;
      UNROLL for (int c = 0; c < 4; c++) {
        lds.k[slot][i / ROWS][i % ROWS + c] = inside ? new_k[p].v[c] : 0.f;
        lds.q[slot][i / ROWS][i % ROWS + c] = inside ? new_q[p].v[c] : 0.f;
      }
    }
    barrier();
    for (u32 slot = 0; slot < count; slot++) {
      if (begin + slot == write_at && write_at > 0) write();
      const float shrink = lds.shrink[slot], beta = lds.beta[slot];
      const f32x4 v = *reinterpret_cast<const f32x4*>(&lds.v[slot][local]);
      f32x4 k[ROWS / 4], delta = {};
      UNROLL for (u32 i = 0; i < ROWS; i++) {
        if (i % 4 == 0) k[i / 4] = *reinterpret_cast<const f32x4*>(&lds.k[slot][share][i]);
        UNROLL for (int c = 0; c < 4; c++) delta.v[c] = fma_(k[i / 4].v[i % 4], s[i].v[c], delta.v[c]);
      }
      UNROLL for (int c = 0; c < 4; c++) {
        float read = delta.v[c];
        read += shfl_xor<4>(read);
        read += shfl_xor<8>(read);
        read += shfl_xor<16>(read);
        delta.v[c] = fma_(-shrink, read, v.v[c]) * beta;
      }
      UNROLL for (u32 i = 0; i < ROWS; i++)
        UNROLL for (int c = 0; c < 4; c++) s[i].v[c] = fma_(k[i / 4].v[i % 4], delta.v[c], s[i].v[c] * shrink);
      if (begin + slot < segment.pending) continue;
      f32x4 out = {};
      UNROLL for (u32 i = 0; i < ROWS; i += 4) {
        const f32x4 q = *reinterpret_cast<const f32x4*>(&lds.q[slot][share][i]);
        UNROLL for (int j = 0; j < 4; j++)
          UNROLL for (int c = 0; c < 4; c++) out.v[c] = fma_(q.v[j], s[i + j].v[c], out.v[c]);
      }
      UNROLL for (int c = 0; c < 4; c++) {
        out.v[c] += shfl_xor<4>(out.v[c]);
        out.v[c] += shfl_xor<8>(out.v[c]);
        out.v[c] += shfl_xor<16>(out.v[c]);
      }
      const u64 row = segment.first + begin + slot - segment.pending;
      if (share == 0 && present) *reinterpret_cast<f32x4*>(a.out + (row * a.value_heads + head) * dv + column) = out;
    }
  }
  if (write_at == total) write();
}

#define GDN_STEP(name, DK, FULL)                   \
  KERNEL_AHEAD(64, gdn_step_##name, GdnStepArgs) { \
    LDS(StepLds<DK>, lds);                         \
    gdn_step<DK, FULL>(a, lds);                    \
  }
GDN_STEP(64, 64, true)
GDN_STEP(128, 128, true)
GDN_STEP(any, 256, false)
