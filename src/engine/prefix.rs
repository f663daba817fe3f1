//! Where a request finds the beginning of its prompt, and which slot it gets.
//!
//! Owns: the choice, as a pure function of what is held; which moments of a sequence are worth keeping.
//! Always true: at least one token of a prompt is left to read, because its logits are wanted; a state that goes on
//! where it ended is taken as it is, anything else is copied or put aside first.
//! Not here: the copies (`state::stored`, `worker`), what is kept in all (`cache`).

/// Where a beginning lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In a slot without work.
    Idle(usize),
    /// In a slot that works: only to copy from.
    Busy(usize),
    /// Put aside.
    Stored(usize),
}

/// Something that begins like a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub place: Place,
    /// Tokens that both begin with.
    pub same: usize,
    /// Tokens of it that can be taken over.
    pub known: usize,
    /// Tokens that it holds.
    pub held: usize,
}

/// A slot without work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdleSlot {
    pub slot: usize,
    pub held: usize,
    /// The step it was last served in.
    pub served: u64,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    /// The slot that gets the request.
    pub into: usize,
    /// What to copy into it; `None` leaves what it holds.
    pub from: Option<Place>,
    /// Tokens it then holds.
    pub known: usize,
}

/// Tokens that can be taken over from what agrees with a prompt in `same` tokens: up to one of the `moments` (lengths),
/// or as it stands, if it is `whole` tokens long.
pub(super) fn known(same: usize, prompt: usize, whole: Option<usize>, moments: impl Iterator<Item = usize>) -> usize {
    let most = same.min(prompt - 1);
    moments.chain(whole).filter(|&length| length <= most).max().unwrap_or(0)
}

/// The best beginning, and a slot for it. `None`: no slot is idle.
pub(super) fn choose(candidates: &[Candidate], idle: &[IdleSlot]) -> Option<Choice> {
    // An empty slot loses nothing; then the one that was of no use for the longest time.
    let spare = idle.iter().min_by_key(|slot| (slot.held > 0, slot.served, slot.slot))?;
    // What needs no copy first, among those what is lost least.
    let rank = |c: &&Candidate| (c.known, matches!(c.place, Place::Idle(_)), std::cmp::Reverse(c.held));
    let best = candidates.iter().filter(|c| c.known > 0).max_by_key(rank);
    Some(match best {
        None => Choice { into: spare.slot, from: None, known: 0 },
        Some(&Candidate { place: Place::Idle(slot), known, .. }) => Choice { into: slot, from: None, known },
        Some(best) => Choice { into: spare.slot, from: Some(best.place), known: best.known },
    })
}

/// Tokens of a state that are copied while one is read again; measured on a GPU with 7,000 tokens/s and 1 GB/s.
const COPIED_FOR_ONE_READ: usize = 16;

/// Whether a state of `held` tokens is put aside before the last `lost` of them go: reading those again, should anyone want
/// them, must take longer than copying it all does now. What a template drops of an answer mostly does not.
pub(super) fn is_put_aside(held: usize, lost: usize) -> bool {
    lost * COPIED_FOR_ONE_READ > held
}

/// Most moments of one sequence: a snapshot of a large model's recurrent state takes tens of megabytes.
const MOST_MOMENTS: usize = 16;

/// The youngest moments, which stay: the ends of a turn's last chunk, of its prompt and of its answer. The next turn goes on
/// from one of them, and they may lie closer together than any others.
const YOUNGEST: usize = 3;

/// The moment to forget, if there are too many: the one whose neighbours are closest, so that what is left lies ever
/// further apart towards the beginning of a long sequence; never one of the youngest. `lengths` ascend; `room` is the number
/// of moments that memory is meant for, of which one is always kept.
pub(super) fn dispensable(lengths: &[usize], room: usize) -> Option<usize> {
    let most = room.clamp(1, MOST_MOMENTS);
    if lengths.len() <= most {
        return None;
    }
    let gap = |at: &usize| lengths[at + 1] - if *at == 0 { 0 } else { lengths[at - 1] };
    (0..lengths.len() - YOUNGEST.min(most)).min_by_key(gap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(place: Place, known: usize, held: usize) -> Candidate {
        Candidate { place, same: known, known, held }
    }
    fn idle(slot: usize, held: usize, served: u64) -> IdleSlot {
        IdleSlot { slot, held, served }
    }

    #[test]
    fn one_token_is_always_left_to_read() {
        assert_eq!(known(10, 10, Some(10), [4, 9, 10].into_iter()), 9);
        assert_eq!(known(10, 11, Some(10), [4].into_iter()), 10);
        assert_eq!(known(7, 20, Some(9), [4, 8].into_iter()), 4);
        assert_eq!(known(3, 20, Some(9), [4, 8].into_iter()), 0);
        assert_eq!(known(1, 1, Some(1), [1].into_iter()), 0);
    }

    #[test]
    fn the_longest_beginning_wins_and_no_copy_is_better_than_one() {
        let two = [idle(0, 50, 1), idle(2, 80, 2)];
        let choice = |candidates: &[Candidate]| choose(candidates, &two).unwrap();
        let stays = |into, known| Choice { into, from: None, known };
        assert_eq!(choice(&[at(Place::Idle(0), 40, 50), at(Place::Idle(2), 60, 80)]), stays(2, 60));
        assert_eq!(choice(&[at(Place::Stored(0), 40, 40), at(Place::Idle(0), 40, 50)]), stays(0, 40));
        // Of two that know as much, the one that loses less.
        assert_eq!(choice(&[at(Place::Idle(0), 40, 50), at(Place::Idle(2), 40, 80)]), stays(0, 40));
        let copied = Choice { into: 0, from: Some(Place::Busy(1)), known: 70 };
        assert_eq!(choice(&[at(Place::Busy(1), 70, 90), at(Place::Idle(2), 60, 80)]), copied);
        assert_eq!(choice(&[at(Place::Idle(2), 0, 80)]), stays(0, 0));
    }

    #[test]
    fn an_empty_slot_is_taken_before_an_old_one_and_without_a_slot_there_is_no_choice() {
        assert_eq!(choose(&[], &[idle(0, 5, 1), idle(1, 0, 9)]).unwrap().into, 1);
        assert_eq!(choose(&[], &[idle(0, 5, 4), idle(1, 5, 3)]).unwrap().into, 1);
        assert_eq!(choose(&[at(Place::Stored(0), 9, 9)], &[]), None);
    }

    #[test]
    fn a_long_state_is_not_copied_for_the_end_of_an_answer() {
        assert!(is_put_aside(100, 7) && is_put_aside(100_000, 50_000));
        assert!(!is_put_aside(100_485, 32) && !is_put_aside(100, 0));
    }

    #[test]
    fn moments_thin_out_towards_the_beginning_and_the_last_one_stays() {
        let mut lengths = Vec::new();
        for chunk in 1..=200 {
            lengths.push(chunk * 512);
            if let Some(at) = dispensable(&lengths, MOST_MOMENTS) {
                lengths.remove(at);
            }
        }
        assert_eq!((lengths.len(), lengths.last()), (MOST_MOMENTS, Some(&(200 * 512))));
        // Wherever a prompt departs, less than a quarter of the whole is read again.
        let worst = lengths.windows(2).map(|w| w[1] - w[0]).chain([lengths[0]]).max().unwrap();
        assert!(worst <= 50 * 512, "{lengths:?}");
    }

    #[test]
    fn the_ends_of_a_long_prompt_and_of_its_short_answer_stay() {
        for (room, left) in [(MOST_MOMENTS, MOST_MOMENTS), (8, 8), (2, 2), (0, 1)] {
            let mut lengths: Vec<usize> = Vec::new();
            for length in (1..=24).map(|chunk| chunk * 4096).chain([100_453, 100_485]) {
                lengths.push(length);
                while let Some(at) = dispensable(&lengths, room) {
                    lengths.remove(at);
                }
            }
            assert_eq!(lengths.len(), left);
            let youngest = [98_304, 100_453, 100_485];
            assert!(youngest.ends_with(&lengths[left.saturating_sub(YOUNGEST)..]), "{lengths:?}");
        }
    }
}
