// QSA attention for prefill (spec 2.4): each row gathers its own selected blocks and multiplies by matrix tiles.
#include "abi.h"
#include "dialect/tile.h"

// out[r][h] = sigmoid(gate[r][h]) * sum_j softmax_j(scale * q[r][h] . k_j) v_j
// j over the tokens of blocks[r][0 .. counts[r]] and the tail 4 * floor(n / 4) .. n, n = positions[r] + 1.
// grid (rows * kv_heads), block 128: a workgroup a row and KV head, with its up to 16 query heads; LDS 18 KiB at
// dim 256; q, k aligned to 16, v to 8.
// A wave takes 32 entries (eight blocks) at a time, each wave every fourth: S^T = K Q^T, online softmax in registers,
// O^T += V^T P^T, where P^T is S^T's own registers (tile_as_b). The waves' partial results meet in LDS at the end.
// Ordered: which wave takes which entry depends on the entry's place in the row's list alone.
// Rounding: q, k, v, p in F16, sums in F32. Oracle: backend/cpu/attend.rs attend.
enum { WAVES = 4, THREADS = WAVES * WAVE, TILES = 2, ENTRIES = 16 * TILES, HEADS = 16, SLICE = 64, STEPS = TILE_LAYOUT == 12 ? 4 : 2 };
#define NEGATIVE (-1e30f)

template<int DIM> struct GatherLds {
  union {
    f16   q[HEADS][DIM + 8];
    float o[WAVES][SLICE][HEADS + 1];
  };
  float m[WAVES][HEADS], l[WAVES][HEADS];
};

template<int DIM> DEV void gather_attend(const GatherAttendArgs& a, GatherLds<DIM>& lds) {
  const u32 row = bidx() / a.kv_heads, kv = bidx() % a.kv_heads, group = a.heads / a.kv_heads;
  const u32 width = a.kv_heads * DIM;
  const float* q = a.q + (static_cast<u64>(row) * a.heads + kv * group) * DIM;
  for (u32 i = tid(); i < HEADS * DIM; i += THREADS)
    lds.q[i / DIM][i % DIM] = to_f16(i / DIM < group ? q[i] * a.scale : 0.f);

  const u32 visible = a.positions[row] + 1, complete = visible / 4;
  const u32 selected = a.counts[row], listed = selected + (visible % 4 != 0 ? 1 : 0);
  const u32* blocks = a.blocks + static_cast<u64>(row) * a.max_blocks;
  const auto block_at = [&](u32 i) { return i < selected ? blocks[i] : complete; };

  Acc o[DIM / 16];
  UNROLL for (u32 d = 0; d < DIM / 16; d++) tile_zero(o[d]);
  Columns m, l;
  UNROLL for (u32 s = 0; s < ACC_COLUMNS; s++) { m.v[s] = NEGATIVE; l.v[s] = 0.f; }
  barrier();

  const LdsRows queries = lds_rows(&lds.q[0][0], [&](u32 head) { return head * static_cast<u32>(sizeof(lds.q[0])); });
  for (u32 first = wave() * (ENTRIES / 4); first < listed; first += WAVES * (ENTRIES / 4)) {
    // Entries past the list read its last block and are masked.
    const auto listed_block = [&](u32 i) { return block_at(first + i < listed ? first + i : listed - 1); };
    OperandRows keys[TILES];
    UNROLL for (u32 t = 0; t < TILES; t++)
      keys[t] = operand_rows(a.k, [&](u32 entry) {
        const u32 token = 4 * listed_block(4 * t + entry / 4) + entry % 4;
        return 2 * (token * width + kv * DIM);
      });
    Acc s[TILES];
    UNROLL for (u32 t = 0; t < TILES; t++) tile_zero(s[t]);
    UNROLL for (u32 k = 0; k < DIM; k += 16) {
      const Operand query = tile_load(queries, k);
      UNROLL for (u32 t = 0; t < TILES; t++) tile_multiply(s[t], tile_load(keys[t], k), query);
      if (k % (16 * STEPS) == 16 * (STEPS - 1)) keep_order();
    }
    // Only the list's end has entries to mask: past the list, or past the row's own position.
    if (first + ENTRIES / 4 >= listed) {
      UNROLL for (u32 t = 0; t < TILES; t++)
        tile_each(s[t], [&](u32 entry, u32, float& e) {
          const u32 i = first + 4 * t + entry / 4;
          if (i >= listed || (i >= selected && 4 * complete + entry % 4 >= visible)) e = NEGATIVE;
        });
    }
    Columns high = m;
    UNROLL for (u32 t = 0; t < TILES; t++)
      UNROLL for (u32 i = 0; i < ACC_ELEMENTS; i++) high.v[acc_slot(i)] = fmax_(high.v[acc_slot(i)], s[t].c[i]);
    columns_max(high);
    bool grew = false;
    UNROLL for (u32 c = 0; c < ACC_COLUMNS; c++) grew = grew || high.v[c] > m.v[c];
    if (wave_ballot(grew) != 0) {
      Columns shrink;
      UNROLL for (u32 c = 0; c < ACC_COLUMNS; c++) {
        shrink.v[c] = exp_(m.v[c] - high.v[c]);
        l.v[c] *= shrink.v[c];
        m.v[c] = high.v[c];
      }
      UNROLL for (u32 d = 0; d < DIM / 16; d++)
        UNROLL for (u32 i = 0; i < ACC_ELEMENTS; i++) o[d].c[i] *= shrink.v[acc_slot(i)];
    }
    Operand p[TILES];
    UNROLL for (u32 t = 0; t < TILES; t++) {
      UNROLL for (u32 i = 0; i < ACC_ELEMENTS; i++) {
        const float e = s[t].c[i] <= NEGATIVE ? 0.f : exp_(s[t].c[i] - m.v[acc_slot(i)]);
        s[t].c[i] = to_f32(to_f16(e));
        l.v[acc_slot(i)] += s[t].c[i];
      }
      p[t] = tile_as_b(s[t]);
    }
    BlockRows values[TILES];
    UNROLL for (u32 t = 0; t < TILES; t++)
      values[t] = block_rows(a.v, [&](u32 block) { return 8 * (listed_block(4 * t + block) * width + kv * DIM); });
    UNROLL for (u32 d = 0; d < DIM / 16; d++) {
      UNROLL for (u32 t = 0; t < TILES; t++) tile_multiply(o[d], tile_load_blocks(values[t], 8 * 16 * d), p[t]);
      if (d % STEPS == STEPS - 1) keep_order();
    }
  }

  // l so far holds this lane's own entries.
  columns_sum(l);
  UNROLL for (u32 i = 0; i < ACC_ELEMENTS; i++) {
    if (acc_row(i) != 0) continue;  // one lane a column
    lds.m[wave()][acc_column(i)] = m.v[acc_slot(i)];
    lds.l[wave()][acc_column(i)] = l.v[acc_slot(i)];
  }
  UNROLL for (u32 slice = 0; slice < DIM / SLICE; slice++) {
    barrier();
    UNROLL for (u32 d = 0; d < SLICE / 16; d++)
      tile_each(o[slice * (SLICE / 16) + d],
                [&](u32 dimension, u32 head, float& e) { lds.o[wave()][16 * d + dimension][head] = e; });
    barrier();
    for (u32 i = tid(); i < group * SLICE; i += THREADS) {
      const u32 head = i / SLICE, dimension = slice * SLICE + i % SLICE;
      float high = NEGATIVE, total = 0.f, sum = 0.f;
      UNROLL for (u32 w = 0; w < WAVES; w++) high = fmax_(high, lds.m[w][head]);
      UNROLL for (u32 w = 0; w < WAVES; w++) {
        const float weight = exp_(lds.m[w][head] - high);
        total = fma_(weight, lds.l[w][head], total);
        sum = fma_(weight, lds.o[w][i % SLICE][head], sum);
      }
      const u32 query_head = kv * group + head;
      const float gate =
          a.gate[static_cast<u64>(row) * a.gate_row_stride + static_cast<u64>(query_head) * a.gate_head_stride + dimension];
      a.out[(static_cast<u64>(row) * a.heads + query_head) * DIM + dimension] = sum / total / (1.f + exp_(-gate));
    }
  }
}

KERNEL_BIG_LDS(qsa_gather_attend_256, GatherLds<256>)
KERNEL(THREADS, qsa_gather_attend_256, GatherAttendArgs) {
  LDS_BIG(GatherLds<256>, lds);
  gather_attend<256>(a, lds);
}
KERNEL_BIG_LDS(qsa_gather_attend_64, GatherLds<64>)
KERNEL(THREADS, qsa_gather_attend_64, GatherAttendArgs) {
  LDS_BIG(GatherLds<64>, lds);
  gather_attend<64>(a, lds);
}
