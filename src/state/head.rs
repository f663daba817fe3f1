//! How far the MTP head's cache follows the trunk (spec 4.4), as arithmetic on a few numbers.
//!
//! Owns: which rows of the head's cache are final, and which hidden rows of the trunk must still be kept for the others.
//! Always true: row t of the head pairs the trunk's hidden row t with token t + 1, so of a sequence of T tokens at most
//! T - 1 rows are final; every row behind them, up to T - 1, still has its hidden row in the ring, slot t mod
//! [`HIDDEN_ROWS`]. Rows that drafting wrote behind the final ones are approximations that are written again.
//! Not here: computing rows (`model::speculation`), where the ring lies (`recurrent`).

use std::ops::Range;

/// Hidden rows of the trunk that a sequence keeps for its MTP head. A step of fewer rows only keeps them, so the head
/// need not run at every step; 16 rows of the released model are 640 KiB.
pub const HIDDEN_ROWS: usize = 16;

/// The head's progress in one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    follows: bool,
    rows: usize,
    /// Row `len - 1` is written too, on the promise that this token comes next.
    promised: Option<u32>,
}

impl Head {
    /// Of an empty sequence; without a head nothing `follows`.
    pub(super) fn new(follows: bool) -> Head {
        Head { follows, rows: 0, promised: None }
    }

    /// Of a sequence of `len` tokens, as a file has it. `None`, if that cannot be.
    pub(super) fn stored(follows: bool, rows: usize, len: usize) -> Option<Head> {
        let waiting = len.checked_sub(rows)?;
        let known = !follows || (rows < len && waiting <= HIDDEN_ROWS);
        known.then_some(Head { follows, rows, promised: None })
    }

    /// Whether the head's cache follows this sequence, so that it can draft.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// Rows of the head's cache that come from the trunk's states and the sequence's own tokens.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Lets the head fall behind for good: nothing is computed for it any more.
    pub(super) fn stop(&mut self) {
        self.follows = false;
    }

    /// Rows to compute before `next` is fed, so that the head knows everything up to it; `len` tokens have been fed.
    pub fn missing(&self, len: usize, next: u32) -> Range<usize> {
        if self.promised == Some(next) { len..len } else { self.rows..len }
    }

    /// Whether hidden rows that are still needed would leave the ring if `rows` more came, all of which may be taken
    /// back.
    pub fn is_full(&self, len: usize, rows: usize) -> bool {
        self.follows && len + rows - self.rows > HIDDEN_ROWS
    }

    /// The rows that [`Head::missing`] named have been computed.
    pub(super) fn promise(&mut self, len: usize, next: u32) {
        self.rows = len.saturating_sub(1);
        self.promised = Some(next);
    }

    /// For a snapshot: the promised row may be written with another token before it is restored.
    pub(super) fn without_promise(self) -> Head {
        Head { promised: None, ..self }
    }

    /// The trunk has been fed tokens behind the first `len`; the first of them is `next`.
    pub(super) fn advance(&mut self, len: usize, next: u32) {
        if self.promised.take() == Some(next) {
            self.rows = len;
        }
    }

    /// The head has run on the step's own rows: all below `rows` are final.
    pub(super) fn reached(&mut self, rows: usize) {
        self.rows = rows;
    }

    /// The sequence was cut to `len` tokens.
    pub(super) fn rewind(&mut self, len: usize) {
        self.rows = self.rows.min(len.saturating_sub(1));
        self.promised = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a head computed: the hidden row's and the next token's identity of every row written so far.
    #[derive(Default, Clone)]
    struct Model {
        tokens: Vec<u32>,
        /// Position and identity of the hidden row in each slot.
        ring: Vec<Option<(usize, u32)>>,
        written: Vec<(u32, u32)>,
    }

    impl Model {
        /// A hidden row's identity: everything up to its token.
        fn hidden(&self, row: usize) -> u32 {
            self.tokens[..=row].iter().fold(7, |h: u32, &t| h.wrapping_mul(31).wrapping_add(t))
        }
        fn compute(&mut self, rows: Range<usize>, next: u32) {
            for row in rows {
                let kept = self.ring[row % HIDDEN_ROWS].unwrap();
                assert_eq!(kept, (row, self.hidden(row)), "the ring still holds row {row}");
                let token = self.tokens.get(row + 1).copied().unwrap_or(next);
                self.written.truncate(row);
                self.written.push((kept.1, token));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]
        /// Any order of steps, rewinds and drafts leaves every final row computed from the right pair.
        #[test]
        fn final_rows_are_those_of_a_fresh_run(
            script in prop::collection::vec((0u32..3, 1usize..HIDDEN_ROWS, 0usize..HIDDEN_ROWS, any::<bool>()), 1..40),
        ) {
            let mut model = Model { ring: vec![None; HIDDEN_ROWS], ..Model::default() };
            let mut head = Head::new(true);
            for (token, rows, back, drafts) in script {
                let len = model.tokens.len();
                if drafts && len > 0 {
                    model.compute(head.missing(len, token), token);
                    head.promise(len, token);
                    // An approximation behind the final rows.
                    model.written.truncate(len);
                    model.written.push((0, 0));
                }
                if head.is_full(len, rows) {
                    model.compute(head.missing(len, token), token);
                    head.promise(len, token);
                }
                for i in 0..rows {
                    model.tokens.push(if i == 0 { token } else { i as u32 });
                    model.ring[(len + i) % HIDDEN_ROWS] = Some((len + i, model.hidden(len + i)));
                }
                head.advance(len, token);
                let back = back.min(rows);
                model.tokens.truncate(len + rows - back);
                if back > 0 {
                    head.rewind(model.tokens.len());
                }
                prop_assert!(head.rows() <= model.tokens.len().saturating_sub(1));
                for row in 0..head.rows() {
                    prop_assert_eq!(model.written[row], (model.hidden(row), model.tokens[row + 1]));
                }
            }
        }
    }
}
