//! Whether a draft becomes a token: the rule that keeps the output's law the target's.
//!
//! Owns: rejection sampling on two laws, and the named alternative that is not exact.
//! Always true: with [`Rule::Exact`], if the draft was drawn from `proposal` and both numbers are uniform and
//! independent, the token's law is `target`. Two greedy laws make it "equal or not".
//! Not here: where the laws come from (`sampler`), what follows for the state (`speculate`).

use crate::engine::distribution::Distribution;

/// When a draft is accepted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// With probability min(1, p/q): the law of the output is the target's.
    Exact,
    /// Where the target finds it typical: p ≥ min(t, √t · e^-H) for the entropy H of the target. Accepts more and
    /// changes the law.
    Typical(f64),
}

/// What becomes of a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the token.
    Accepted,
    /// This id is the token.
    Replaced(u32),
}

/// Judges `draft`, drawn from `proposal`, by `target`, its own law. `accept_at` and `draw_at` are uniform in [0, 1);
/// `rest` is scratch.
pub fn judge(
    rule: Rule,
    target: &Distribution,
    proposal: &Distribution,
    draft: u32,
    [accept_at, draw_at]: [f64; 2],
    rest: &mut Distribution,
) -> Verdict {
    let p = target.probability(draft);
    match rule {
        Rule::Exact => {
            if accept_at * proposal.probability(draft) < p {
                return Verdict::Accepted;
            }
            residual(target, proposal, rest);
            // Nothing is left where both laws are the same but for rounding.
            let law = if rest.entries().is_empty() { target } else { rest };
            Verdict::Replaced(law.draw(draw_at))
        }
        Rule::Typical(threshold) => {
            if p > 0.0 && p >= threshold.min(threshold.sqrt() * (-entropy(target)).exp()) {
                return Verdict::Accepted;
            }
            Verdict::Replaced(target.draw(draw_at))
        }
    }
}

/// `max(0, p - q)` for every id of the target.
fn residual(target: &Distribution, proposal: &Distribution, rest: &mut Distribution) {
    let mut q: Vec<(u32, f64)> = proposal.entries().to_vec();
    q.sort_unstable_by_key(|(id, _)| *id);
    rest.fill(target.entries().iter().map(|&(id, weight)| {
        let proposed = q.binary_search_by_key(&id, |(id, _)| *id).map_or(0.0, |at| q[at].1);
        (id, weight / target.total() - proposed / proposal.total())
    }));
}

/// In nats.
fn entropy(law: &Distribution) -> f64 {
    law.entries().iter().map(|(_, weight)| weight / law.total()).map(|p| -p * p.ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(weights: &[f64]) -> Distribution {
        Distribution::from_weights((0..).zip(weights.iter().copied()))
    }

    fn judged(rule: Rule, p: &[f64], q: &[f64], draft: u32, at: [f64; 2]) -> Verdict {
        judge(rule, &law(p), &law(q), draft, at, &mut Distribution::default())
    }

    #[test]
    fn a_draft_is_accepted_with_the_ratio_of_its_probabilities() {
        let (p, q) = ([0.2, 0.8], [0.4, 0.6]);
        assert_eq!(judged(Rule::Exact, &p, &q, 1, [0.999, 0.0]), Verdict::Accepted);
        assert_eq!(judged(Rule::Exact, &p, &q, 0, [0.499, 0.0]), Verdict::Accepted);
        // The rest of p over q is all at id 1.
        assert_eq!(judged(Rule::Exact, &p, &q, 0, [0.501, 0.0]), Verdict::Replaced(1));
    }

    #[test]
    fn greedy_laws_accept_equal_ids_only() {
        for at in [0.0, 0.5, 0.999_999] {
            assert_eq!(judged(Rule::Exact, &[0.0, 1.0], &[0.0, 1.0], 1, [at, at]), Verdict::Accepted);
            assert_eq!(judged(Rule::Exact, &[0.0, 1.0], &[1.0], 0, [at, at]), Verdict::Replaced(1));
        }
    }

    #[test]
    fn a_draft_that_the_target_forbids_is_never_accepted() {
        for rule in [Rule::Exact, Rule::Typical(0.0), Rule::Typical(0.3)] {
            assert_eq!(judged(rule, &[0.0, 1.0], &[0.5, 0.5], 0, [0.0, 0.9]), Verdict::Replaced(1), "{rule:?}");
        }
    }

    #[test]
    fn equal_laws_accept_everything() {
        let p = [0.1, 0.2, 0.7];
        for draft in 0..3 {
            assert_eq!(judged(Rule::Exact, &p, &p, draft, [0.999_999, 0.0]), Verdict::Accepted);
        }
    }

    #[test]
    fn typical_acceptance_depends_on_the_entropy_of_the_target_alone() {
        // Of four equal ids each has p = 1/4 and e^-H = 1/4: √0.09 · 1/4 = 0.075.
        assert_eq!(judged(Rule::Typical(0.09), &[1.0; 4], &[1.0], 0, [0.99, 0.0]), Verdict::Accepted);
        // p = 0.02 is below both bounds.
        assert_eq!(judged(Rule::Typical(0.09), &[0.98, 0.02], &[0.0, 1.0], 1, [0.0, 0.0]), Verdict::Replaced(0));
    }
}
