// Scores of complete blocks (spec 2.4.1).
#include "abi.h"
#include "kv.h"

// scores[r - first][j] = sum_h relu(queries[r][h] . key_j)     for blocks j complete at row r: j < (positions[r] + 1) / ratio
// grid ceil(count / ROWS) * ceil(max_blocks / 256), block 256: a lane a block, for ROWS rows; LDS 0 on AMD.
// A lane reads its key once, AHEAD parts of PART elements at a time; queries are the same for the whole wave (uniform_rows).
// Rows of other sequences than the group's first are scored by a loop of their own.
// Ordered: elements 0 .. dim in order, then heads in order, for every ROWS. Oracle: backend/cpu/attend.rs index_scores.
//
// Few rows wait for their keys: many loads go first. Many rows have work meanwhile, and no registers to spare.
enum : u32 { THREADS = 256, PART = 16, INDEX_HEADS = 4 };
template<int ROWS> constexpr u32 AHEAD = ROWS <= 4 ? 4 : 1;
struct alignas(64) QueryPart { float v[PART]; };
template<int ROWS> using Queries = UniformLds<ROWS * INDEX_HEADS, PART * AHEAD<ROWS>>;

template<class Index, int ROWS> DEV void score_rows(const QsaScoreArgs& a, Queries<ROWS>& lds, const u8* plane, u32 first,
                                                    u32 rows, u32 block, u32 read) {
  typedef typename Index::Element Element;
  struct alignas(16) Vector { Element v[16 / sizeof(Element)]; };
  enum : u32 { LOADS = PART * sizeof(Element) / 16 };
  const Element* key = global(reinterpret_cast<const Element*>(plane)) + static_cast<u64>(read) * a.dim;
  const float* first_query = a.queries + static_cast<u64>(first) * a.heads * a.dim;
  float dot[ROWS][INDEX_HEADS];
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) dot[r][h] = 0.f;
  for (u32 k0 = 0; k0 < a.dim; k0 += PART * AHEAD<ROWS>) {
    Vector stored[AHEAD<ROWS>][LOADS];
    UNROLL for (u32 p = 0; p < AHEAD<ROWS>; p++) {
      const u32 k = k0 + PART * p < a.dim ? k0 + PART * p : 0;
      UNROLL for (u32 i = 0; i < LOADS; i++) stored[p][i] = reinterpret_cast<const Vector*>(key + k)[i];
    }
    const UniformRows queries = uniform_rows<THREADS>(lds, first_query + k0, rows * a.heads, a.dim, a.dim - k0);
    UNROLL for (u32 p = 0; p < AHEAD<ROWS>; p++) {
      if (k0 + PART * p >= a.dim) break;
      float part[PART];
      UNROLL for (u32 i = 0; i < PART; i++)
        part[i] = Index::number(stored[p][i * sizeof(Element) / 16].v[i % (16 / sizeof(Element))]);
      UNROLL for (int r = 0; r < ROWS; r++) {
        const u32 row = static_cast<u32>(r) < rows ? r : 0;
        UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) {
          if (h >= a.heads) break;
          const float* query = queries.first + (row * a.heads + h) * queries.stride + PART * p;
          const QueryPart q = load_uniform(reinterpret_cast<const QueryPart*>(query));
          UNROLL for (u32 i = 0; i < PART; i++) dot[r][h] = fma_(q.v[i], part[i], dot[r][h]);
        }
        keep_order();  // or the scalar loads of all rows go first and spill
      }
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++) {
    float score = 0.f;
    UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) score += fmax_(dot[r][h], 0.f);
    if (static_cast<u32>(r) < rows && block < (a.positions[first + r] + 1) / a.ratio)
      a.scores[static_cast<u64>(first + r - a.first) * a.max_blocks + block] = score;
  }
}

template<class Index, int ROWS> DEV void qsa_score(const QsaScoreArgs& a, Queries<ROWS>& lds) {
  const u32 parts = (a.max_blocks + 255) / 256;
  const u32 from = a.first + bidx() / parts * ROWS, block = bidx() % parts * 256 + tid();
  const u32 end = a.first + a.count < from + ROWS ? a.first + a.count : from + ROWS;
  // Runs of rows of one sequence: mostly one. The last row of a run sees the most blocks.
  for (u32 first = from; first < end;) {
    const u32 sequence = load_uniform(a.sequence + first);
    u32 last = first + 1;
    while (last < end && load_uniform(a.sequence + last) == sequence) last++;
    const u32 complete = (load_uniform(a.positions + last - 1) + 1) / a.ratio;
    if (bidx() % parts * 256 < complete) {
      // A lane beyond the last block reads that one and stores nothing.
      const u32 read = block < complete ? block : complete - 1;
      score_rows<Index, ROWS>(a, lds, a.planes[sequence].blocks, first, last - first, block, read);
    }
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
