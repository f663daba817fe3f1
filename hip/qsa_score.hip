// Scores of complete blocks (spec 2.4.1).
#include "abi.h"
#include "kv.h"

// scores[r - first][j] = sum_h relu(queries[r][h] . key_j)     for blocks j complete at row r: j < (positions[r] + 1) / ratio
// grid ceil(count / ROWS) * ceil(max_blocks / 256), block 256: ROWS rows and 256 blocks a workgroup; LDS 0 on AMD.
// Each of GROUPS groups of waves has ROWS / GROUPS of the rows, and a lane GROUPS blocks, so that a query's element that was
// fetched once is multiplied GROUPS times. A lane reads its keys once, AHEAD parts of PART elements at a time; queries are
// the same for the whole wave (uniform_rows).
// Rows of other sequences than the group's first are scored by a loop of their own.
// Ordered: elements 0 .. dim in order, then heads in order, for every ROWS. Oracle: backend/cpu/attend.rs index_scores.
//
// Few rows wait for their keys: many loads go first. Many rows have work meanwhile, and no registers to spare.
enum : u32 { THREADS = 256, PART = 16, INDEX_HEADS = 4 };
template<u32 ROWS> constexpr u32 AHEAD = ROWS <= 4 ? 4 : 1;
template<u32 ROWS> constexpr u32 GROUPS = ROWS <= 8 ? 1 : 2;
struct alignas(64) QueryPart { float v[PART]; };
template<u32 ROWS> using Queries = UniformLds<ROWS * INDEX_HEADS, PART * AHEAD<ROWS>>;

// Rows first .. first + rows of one sequence, whose last sees `complete` blocks; block0 is the workgroup's first.
template<class Index, u32 ROWS> DEV void score_rows(const QsaScoreArgs& a, Queries<ROWS>& lds, const u8* plane, u32 first,
                                                    u32 rows, u32 block0, u32 complete) {
  typedef typename Index::Element Element;
  struct alignas(16) Vector { Element v[16 / sizeof(Element)]; };
  enum : u32 { LOADS = PART * sizeof(Element) / 16, BLOCKS = GROUPS<ROWS>, OWN = ROWS / BLOCKS, LANES = THREADS / BLOCKS };
  const u32 own = uniform(tid() / LANES) * OWN;
  const Element* key[BLOCKS];
  UNROLL for (u32 b = 0; b < BLOCKS; b++) {
    // A lane beyond the last block reads that one and stores nothing.
    const u32 block = block0 + tid() % LANES + LANES * b;
    key[b] = global(reinterpret_cast<const Element*>(plane)) + static_cast<u64>(block < complete ? block : complete - 1) * a.dim;
  }
  const float* first_query = a.queries + static_cast<u64>(first) * a.heads * a.dim;
  float dot[BLOCKS][OWN][INDEX_HEADS];
  UNROLL for (u32 b = 0; b < BLOCKS; b++)
    UNROLL for (u32 r = 0; r < OWN; r++) UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) dot[b][r][h] = 0.f;
  for (u32 k0 = 0; k0 < a.dim; k0 += PART * AHEAD<ROWS>) {
    Vector stored[AHEAD<ROWS>][BLOCKS][LOADS];
    UNROLL for (u32 p = 0; p < AHEAD<ROWS>; p++) {
      const u32 k = k0 + PART * p < a.dim ? k0 + PART * p : 0;
      UNROLL for (u32 b = 0; b < BLOCKS; b++)
        UNROLL for (u32 i = 0; i < LOADS; i++) stored[p][b][i] = reinterpret_cast<const Vector*>(key[b] + k)[i];
    }
    const UniformRows queries = uniform_rows<THREADS>(lds, first_query + k0, rows * a.heads, a.dim, a.dim - k0);
    UNROLL for (u32 p = 0; p < AHEAD<ROWS>; p++) {
      if (k0 + PART * p >= a.dim) break;
      float part[BLOCKS][PART];
      UNROLL for (u32 b = 0; b < BLOCKS; b++)
        UNROLL for (u32 i = 0; i < PART; i++)
          part[b][i] = Index::number(stored[p][b][i * sizeof(Element) / 16].v[i % (16 / sizeof(Element))]);
      UNROLL for (u32 r = 0; r < OWN; r++) {
        // The same in all lanes as it is: uniform keeps its addresses from being held across the loop, in too many registers.
        const u32 row = uniform(own + r < rows ? own + r : 0);
        UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) {
          if (h >= a.heads) break;
          const float* query = queries.first + (row * a.heads + h) * queries.stride + PART * p;
          const QueryPart q = load_uniform(reinterpret_cast<const QueryPart*>(query));
          UNROLL for (u32 b = 0; b < BLOCKS; b++)
            UNROLL for (u32 i = 0; i < PART; i++) dot[b][r][h] = fma_(q.v[i], part[b][i], dot[b][r][h]);
        }
        keep_order();  // or the scalar loads of all rows go first and spill
      }
    }
  }
  UNROLL for (u32 r = 0; r < OWN; r++) {
    const u32 row = own + r;
    if (row >= rows) break;
    const u32 seen = (load_uniform(a.positions + first + row) + 1) / a.ratio;
    UNROLL for (u32 b = 0; b < BLOCKS; b++) {
      const u32 block = block0 + tid() % LANES + LANES * b;
      float score = 0.f;
      UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) score += fmax_(dot[b][r][h], 0.f);
      if (block < seen) a.scores[static_cast<u64>(first + row - a.first) * a.max_blocks + block] = score;
    }
  }
}

template<class Index, u32 ROWS> DEV void qsa_score(const QsaScoreArgs& a, Queries<ROWS>& lds) {
  const u32 parts = (a.max_blocks + 255) / 256;
  const u32 from = a.first + bidx() / parts * ROWS, block0 = bidx() % parts * 256;
  const u32 end = a.first + a.count < from + ROWS ? a.first + a.count : from + ROWS;
  // Runs of rows of one sequence: mostly one. The last row of a run sees the most blocks.
  for (u32 first = from; first < end;) {
    const u32 sequence = load_uniform(a.sequence + first);
    u32 last = first + 1;
    while (last < end && load_uniform(a.sequence + last) == sequence) last++;
    const u32 complete = (load_uniform(a.positions + last - 1) + 1) / a.ratio;
    if (block0 < complete) score_rows<Index, ROWS>(a, lds, a.planes[sequence].blocks, first, last - first, block0, complete);
    first = last;
  }
}

#define QSA_SCORE(keys, Index, ROWS)                    \
  KERNEL(THREADS, qsa_score_##keys##_r##ROWS, QsaScoreArgs) { \
    LDS(Queries<ROWS>, lds);                            \
    qsa_score<Index, ROWS>(a, lds);                     \
  }
#define QSA_SCORE_ROWS(keys, Index) \
  QSA_SCORE(keys, Index, 1) QSA_SCORE(keys, Index, 4) QSA_SCORE(keys, Index, 8) QSA_SCORE(keys, Index, 16)
QSA_SCORE_ROWS(f32, IndexF32)
QSA_SCORE_ROWS(bf16, IndexBf16)
