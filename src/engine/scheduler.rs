//! Who runs next: the decisions of the engine's thread, without any effect of their own.
//!
//! Owns: how many requests may be in the engine, which rows of which slots make up the next step.
//! Always true: an answer that has begun gets a row in every step, so it waits for one chunk at the most; every slot
//! is served after finitely many steps; a step never has more rows than the model plans for.
//! Not here: running a step (`worker`), which slot a request gets (`prefix`).

use std::time::Duration;

/// What may run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Requests that run at a time.
    pub parallel: usize,
    /// Requests that wait for a slot at a time.
    pub queue: usize,
    /// The most rows of a step, at least 1.
    pub rows: usize,
    /// The most prompt rows of a step, at least 1.
    pub chunk: usize,
}

/// A slot with work, as the scheduler sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its number.
    pub slot: usize,
    /// Rows it could use now, at least 1.
    pub ready: usize,
    /// Whether it still reads its prompt; otherwise its answer has begun.
    pub reads: bool,
    /// The most rows it takes of one step.
    pub most: usize,
    /// The step it was last served in.
    pub served: u64,
}

/// A slot's part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub slot: usize,
    pub rows: usize,
}

/// The rows of the next step: answers that have begun first, the least recently served before the others; then prompts
/// in the same order, each as much as is left of a chunk. So a long prompt and a short one take turns.
pub(super) fn next_step(seen: &[Seen], limits: Limits) -> Vec<Share> {
    let mut order: Vec<&Seen> = seen.iter().collect();
    order.sort_by_key(|s| (s.served, s.slot));
    // Where one row is all there is, not even the rule that answers go first may starve a prompt.
    if limits.rows == 1 {
        return order.first().map(|s| Share { slot: s.slot, rows: 1 }).into_iter().collect();
    }
    let reading = order.iter().any(|s| s.reads);
    let mut left = limits.rows - usize::from(reading);
    let mut shares = Vec::with_capacity(order.len());
    let mut give = |slot: &Seen, left: &mut usize| {
        let rows = slot.ready.min(slot.most).min(*left);
        if rows > 0 {
            shares.push(Share { slot: slot.slot, rows });
            *left -= rows;
        }
    };
    order.iter().filter(|s| !s.reads).for_each(|s| give(s, &mut left));
    let mut left = (left + usize::from(reading)).min(limits.chunk);
    order.iter().filter(|s| s.reads).for_each(|s| give(s, &mut left));
    shares
}

/// Whether `count` more requests may come in while `inside` of them wait or run.
pub(super) fn admits(inside: usize, count: usize, limits: Limits) -> bool {
    inside.saturating_add(count) <= limits.parallel.saturating_add(limits.queue)
}

/// When somebody who was turned away may try again: when a place in the queue is likely to be free, judged by how long
/// requests took lately. At least a second, so that nobody hammers; at most a minute, because nobody knows.
pub(super) fn retry_after(parallel: usize, typical: Duration) -> Duration {
    (typical / parallel.max(1) as u32).clamp(Duration::from_secs(1), Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { parallel: 4, queue: 2, rows: 16, chunk: 16 };

    fn answer(slot: usize, served: u64) -> Seen {
        Seen { slot, ready: 1, reads: false, most: usize::MAX, served }
    }
    fn prompt(slot: usize, ready: usize, served: u64) -> Seen {
        Seen { slot, ready, reads: true, most: usize::MAX, served }
    }
    fn rows(seen: &[Seen], limits: Limits) -> Vec<(usize, usize)> {
        next_step(seen, limits).iter().map(|s| (s.slot, s.rows)).collect()
    }

    #[test]
    fn answers_go_first_and_a_prompt_takes_what_is_left_of_the_rows() {
        assert_eq!(rows(&[prompt(0, 100, 0), answer(1, 9), answer(2, 8)], LIMITS), [(2, 1), (1, 1), (0, 14)]);
        assert_eq!(rows(&[], LIMITS), []);
    }

    #[test]
    fn a_short_prompt_shares_a_chunk_and_a_long_one_waits_its_turn() {
        assert_eq!(rows(&[prompt(0, 5, 1), prompt(1, 100, 2), prompt(2, 3, 3)], LIMITS), [(0, 5), (1, 11)]);
        assert_eq!(rows(&[prompt(1, 89, 4), prompt(2, 3, 3)], LIMITS), [(2, 3), (1, 13)]);
    }

    #[test]
    fn a_chunk_bounds_the_prompt_rows_of_a_step_and_a_slot_may_ask_for_less() {
        assert_eq!(rows(&[prompt(0, 100, 0)], Limits { chunk: 6, ..LIMITS }), [(0, 6)]);
        assert_eq!(rows(&[Seen { most: 3, ..prompt(0, 100, 0) }], LIMITS), [(0, 3)]);
    }

    #[test]
    fn several_rows_of_one_answer_are_one_share() {
        let drafting = Seen { ready: 4, ..answer(1, 0) };
        assert_eq!(rows(&[drafting, answer(0, 1)], LIMITS), [(1, 4), (0, 1)]);
    }

    #[test]
    fn nobody_starves_whatever_the_number_of_rows() {
        for most in 1..8 {
            let limits = Limits { rows: most, chunk: most, ..LIMITS };
            let mut seen = vec![answer(0, 0), answer(1, 0), answer(2, 0), prompt(3, 1000, 0), prompt(4, 1000, 0)];
            let mut times = [0; 5];
            for step in 1..=100 {
                let shares = next_step(&seen, limits);
                assert!((1..=most).contains(&shares.iter().map(|s| s.rows).sum()));
                for share in shares {
                    times[share.slot] += 1;
                    seen[share.slot].served = step;
                }
            }
            // Five slots over at least one row a step: each gets its fifth, give or take the first round.
            assert!(times.iter().all(|&n| n >= 19), "{most} rows: {times:?}");
        }
    }

    #[test]
    fn the_queue_ends_where_it_says_and_a_hint_stays_within_reason() {
        assert!(admits(5, 1, LIMITS) && !admits(6, 1, LIMITS) && admits(2, 4, LIMITS) && !admits(2, 5, LIMITS));
        assert!(admits(usize::MAX - 1, 1, Limits { queue: usize::MAX, ..LIMITS }));
        let hint = |seconds| retry_after(4, Duration::from_secs(seconds)).as_secs();
        assert_eq!([hint(0), hint(40), hint(4000)], [1, 10, 60]);
    }
}
