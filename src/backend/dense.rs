//! How the dense path (`--attention dense`) cuts a few-row step into passes over the keys.
//!
//! Owns: the plan as a pure function of rows and heads, also its receipt.
//! Always true: rows × query heads of a pass are at most [`LANES`], so that a pass keeps all its running sums in
//! registers and reads each key once for all of them, as it is stored; a pass never mixes heads of two KV heads.
//! Not here: the passes themselves. On the CPU the split has no meaning: it takes one row and KV head at a time
//! ([`DensePasses::by_row`]), so that a row's bits do not depend on its neighbours.

use serde::Serialize;

use crate::config::{AttentionMode, AttentionShape};

/// The most rows × query heads of a pass.
pub const LANES: usize = 32;
/// The widest step that is cut; wider ones are prefill.
pub const MOST_ROWS: usize = 8;

/// The plan of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DensePasses {
    /// Whether heads are split: without it a KV head's query heads go through in one pass.
    pub engaged: bool,
    /// Rows of the step.
    pub q_len: usize,
    /// Query heads of a pass, all of one KV head.
    pub heads_per_chunk: usize,
    /// Passes of the step, all KV heads together.
    pub chunks: usize,
    /// KV heads.
    pub n_kv_heads: usize,
}

impl DensePasses {
    /// Without a split: each row and KV head for itself.
    pub fn by_row(attention: &AttentionShape, q_len: usize) -> DensePasses {
        DensePasses {
            engaged: false,
            q_len,
            heads_per_chunk: attention.query_heads / attention.kv_heads,
            chunks: q_len * attention.kv_heads,
            n_kv_heads: attention.kv_heads,
        }
    }

    /// For a step of `q_len` rows of one sequence, at least 1.
    pub fn plan(mode: AttentionMode, attention: &AttentionShape, q_len: usize) -> DensePasses {
        let group = attention.query_heads / attention.kv_heads;
        let fits = (LANES / q_len.max(1)).max(1);
        let engaged = mode == AttentionMode::Dense && q_len <= MOST_ROWS && fits < group;
        let heads_per_chunk = if engaged { fits } else { group };
        let chunks = attention.kv_heads * group.div_ceil(heads_per_chunk);
        DensePasses { engaged, q_len, heads_per_chunk, chunks, n_kv_heads: attention.kv_heads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASED: AttentionShape = AttentionShape { query_heads: 24, kv_heads: 2, head_dim: 256 };

    #[test]
    fn the_released_geometry_is_cut_as_published() {
        let plan = |rows| DensePasses::plan(AttentionMode::Dense, &RELEASED, rows);
        let cut = |rows| (plan(rows).engaged, plan(rows).heads_per_chunk, plan(rows).chunks);
        assert_eq!([1, 2].map(cut), [(false, 12, 2); 2]);
        let few = [3, 4, 5, 6, 7, 8].map(cut);
        assert_eq!(few, [(true, 10, 4), (true, 8, 4), (true, 6, 4), (true, 5, 6), (true, 4, 6), (true, 4, 6)]);
        assert_eq!(cut(9), (false, 12, 2), "a wider step is prefill");
        assert!(!DensePasses::plan(AttentionMode::Sparse, &RELEASED, 4).engaged);
    }

    #[test]
    fn every_plan_covers_all_heads_within_the_lanes_and_never_mixes_kv_heads() {
        for (kv_heads, group) in (1..=8).flat_map(|kv| (1..=40).map(move |group| (kv, group))) {
            let attention = AttentionShape { query_heads: kv_heads * group, kv_heads, head_dim: 64 };
            for rows in 1..=MOST_ROWS {
                let plan = DensePasses::plan(AttentionMode::Dense, &attention, rows);
                let of_one = plan.chunks / kv_heads;
                assert_eq!(plan.chunks % kv_heads, 0, "as many passes for each KV head");
                assert!(of_one * plan.heads_per_chunk >= group && (of_one - 1) * plan.heads_per_chunk < group);
                assert!(rows * plan.heads_per_chunk <= LANES || !plan.engaged && rows * group <= LANES);
            }
        }
    }
}
