//! Which tokens a query reads (spec 2.4.1): the best complete blocks by score, then the open block's tail.
//!
//! Owns: the selection as a pure function of scores, position and geometry.
//! Always true: score descending, then the lowest block; tokens come out ascending; `min(budget, complete)` blocks.
//! Not here: the scores (`attend::index_scores`).

use crate::config::IndexerShape;

/// Whether a query at `position` sees no more complete blocks than it may select: then it reads everything and no
/// score is needed.
pub fn reads_everything(indexer: &IndexerShape, position: usize) -> bool {
    (position + 1) / indexer.ratio <= indexer.budget_blocks()
}

/// Writes every visible token of a query at `position`.
pub fn everything(position: usize, tokens: &mut Vec<u32>) {
    tokens.clear();
    tokens.extend(0..=position as u32);
}

/// Writes the selected tokens of a query at `position`, given the scores of its complete blocks.
///
/// `order` is scratch. `scores.len()` is the number of complete blocks, `(position + 1) / ratio`.
pub fn select(indexer: &IndexerShape, position: usize, scores: &[f32], order: &mut Vec<u32>, tokens: &mut Vec<u32>) {
    let (budget, ratio) = (indexer.budget_blocks(), indexer.ratio);
    order.clear();
    order.extend(0..scores.len() as u32);
    if scores.len() > budget {
        order
            .select_nth_unstable_by(budget, |&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
        order.truncate(budget);
        order.sort_unstable();
    }
    tokens.clear();
    for &block in order.iter() {
        let first = block * ratio as u32;
        tokens.extend(first..first + ratio as u32);
    }
    tokens.extend((scores.len() * ratio) as u32..=position as u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RELEASED: IndexerShape = IndexerShape { heads: 4, head_dim: 128, budget: 2048, ratio: 4 };

    fn brute_force(indexer: &IndexerShape, position: usize, scores: &[f32]) -> Vec<u32> {
        let mut blocks: Vec<usize> = (0..scores.len()).collect();
        blocks.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).unwrap().then(a.cmp(&b)));
        blocks.truncate(indexer.budget_blocks());
        (0..=position as u32)
            .filter(|&t| {
                let block = t as usize / indexer.ratio;
                block >= scores.len() || blocks.contains(&block)
            })
            .collect()
    }

    #[test]
    fn counts_around_the_budget_are_those_of_the_spec() {
        let expected = [
            (2049, 2049),
            (2050, 2050),
            (2051, 2051),
            (2052, 2048),
            (2053, 2049),
            (2054, 2050),
            (2055, 2051),
            (2056, 2048),
        ];
        for (visible, count) in expected {
            let (mut order, mut tokens) = (Vec::new(), Vec::new());
            let scores = vec![0.0; visible / 4];
            select(&RELEASED, visible - 1, &scores, &mut order, &mut tokens);
            assert_eq!(tokens.len(), count, "{visible} visible tokens");
            assert_eq!(reads_everything(&RELEASED, visible - 1), visible < 2052);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]
        #[test]
        fn a_selection_equals_brute_force_with_many_ties(
            budget_blocks in 1usize..6,
            ratio in 1usize..6,
            extra in 0usize..60,
            levels in 1u32..4,
            seed in any::<u64>(),
        ) {
            let indexer = IndexerShape { heads: 1, head_dim: 8, budget: budget_blocks * ratio, ratio };
            let position = (budget_blocks * ratio + extra).saturating_sub(2);
            let mut x = seed | 1;
            let scores: Vec<f32> = (0..(position + 1) / ratio)
                .map(|_| { x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                           ((x >> 60) as u32 % levels) as f32 })
                .collect();
            let (mut order, mut tokens) = (Vec::new(), Vec::new());
            select(&indexer, position, &scores, &mut order, &mut tokens);
            prop_assert_eq!(tokens, brute_force(&indexer, position, &scores));
        }
    }
}
