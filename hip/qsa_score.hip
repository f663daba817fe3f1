// Scores of complete blocks (spec 2.4.1).
#include "abi.h"
#include "kv.h"

// scores[r - first][j] = sum_h relu(queries[r][h] . key_j)     for blocks j complete at row r: j < (positions[r] + 1) / ratio
// grid ceil(count / ROWS) * ceil(max_blocks / 256), block 256: a lane a block, for ROWS rows; LDS 0.
// A lane reads its key once, a part of PART elements at a time; queries are the same for the whole wave and come
// through scalar loads. Rows of other sequences than the group's first are scored by a loop of their own.
// Ordered: elements 0 .. dim in order, then heads in order, for every ROWS. Oracle: backend/cpu/attend.rs index_scores.
enum { PART = 16, INDEX_HEADS = 4 };
struct alignas(64) QueryPart { float v[PART]; };

template<class Index, int ROWS> DEV void score_rows(const QsaScoreArgs& a, const u8* plane, u32 first, u32 rows, u32 block, u32 read) {
  typedef typename Index::Element Element;
  struct alignas(16) Vector { Element v[16 / sizeof(Element)]; };
  const Element* key = global(reinterpret_cast<const Element*>(plane)) + static_cast<u64>(read) * a.dim;
  float dot[ROWS][INDEX_HEADS];
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int h = 0; h < INDEX_HEADS; h++) dot[r][h] = 0.f;
  for (u32 k = 0; k < a.dim; k += PART) {
    float part[PART];
    UNROLL for (u32 i = 0; i < PART * sizeof(Element) / 16; i++) {
      const Vector v = reinterpret_cast<const Vector*>(key + k)[i];
      UNROLL for (u32 j = 0; j < 16 / sizeof(Element); j++) part[i * (16 / sizeof(Element)) + j] = Index::number(v.v[j]);
    }
    UNROLL for (int r = 0; r < ROWS; r++) {
      UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) {
        if (h >= a.heads) break;
        const u64 row = first + (static_cast<u32>(r) < rows ? r : 0);
        const QueryPart q = load_uniform(reinterpret_cast<const QueryPart*>(a.queries + (row * a.heads + h) * a.dim + k));
        UNROLL for (u32 i = 0; i < PART; i++) dot[r][h] = fma_(q.v[i], part[i], dot[r][h]);
      }
      keep_order();  // or the scalar loads of all rows go first and spill
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++) {
    float score = 0.f;
    UNROLL for (u32 h = 0; h < INDEX_HEADS; h++) score += fmax_(dot[r][h], 0.f);
    if (static_cast<u32>(r) < rows && block < (a.positions[first + r] + 1) / a.ratio)
      a.scores[static_cast<u64>(first + r - a.first) * a.max_blocks + block] = score;
  }
}

template<class Index, int ROWS> DEV void qsa_score(const QsaScoreArgs& a) {
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
      score_rows<Index, ROWS>(a, a.planes[sequence].blocks, first, last - first, block, read);
    }
    first = last;
  }
}

KERNEL(256, qsa_score_f32_r1, QsaScoreArgs) { qsa_score<IndexF32, 1>(a); }
KERNEL(256, qsa_score_f32_r8, QsaScoreArgs) { qsa_score<IndexF32, 8>(a); }
KERNEL(256, qsa_score_f32_r16, QsaScoreArgs) { qsa_score<IndexF32, 16>(a); }
KERNEL(256, qsa_score_bf16_r1, QsaScoreArgs) { qsa_score<IndexBf16, 1>(a); }
KERNEL(256, qsa_score_bf16_r8, QsaScoreArgs) { qsa_score<IndexBf16, 8>(a); }
KERNEL(256, qsa_score_bf16_r16, QsaScoreArgs) { qsa_score<IndexBf16, 16>(a); }
