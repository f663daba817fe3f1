//! How many tokens to draft next: `--mtp auto`, from what rounds gave and what they took.
//!
//! Owns: the estimates of acceptance and time, and a budget for rounds that do not pay.
//! Always true: time lost against steps without drafts stays within two such steps and a hundredth of the whole, so a text
//! whose drafts all fail is at most 2 % slower from 300 tokens on; the same history gives the same depth.
//! Not here: measuring (`worker`), drafting itself (`speculate`).

use super::MAX_DRAFTS;

/// Share of an estimate that one observation replaces, once there were many.
const WEIGHT: f64 = 1.0 / 24.0;
/// Probability that a draft is accepted, given the one before was: until it is known. It counts as two observations.
const PRIOR: f64 = 0.75;
const PRIOR_COUNT: f64 = 2.0;
/// What a draft and its row in the verification add to a step, as a share of it: until it is known.
const PRIOR_SLOPE: f64 = 0.25;
/// Steps without drafts that a request begins with, to know what they take; the first is not counted: it warms caches.
const FIRST_STEPS: usize = 4;
/// Rounds after which the time of a step without drafts is measured again, where drafts clearly pay and where they may
/// only seem to.
const REMEASURE: [u32; 2] = [128, 12];
/// How much faster a round must be to pay clearly.
const CLEARLY: f64 = 1.3;
/// A time is taken for at most this factor away from what was expected: of a step without drafts, of a round. What lies
/// beyond is the system's doing and says nothing about the next one.
const OUTLIER: [f64; 2] = [1.25, 1.5];
/// Steps without drafts that may be lost at once at the start.
const START: f64 = 2.0;
/// Steps without drafts that were won and may be lost again.
const CREDIT: f64 = 4.0;
/// Share of the time that may be lost in rounds that do not pay.
const BUDGET: f64 = 0.01;
/// Steps without drafts, since a round last paid, after which drafting is given up: until then the MTP head is kept up
/// to date, which costs a part of a step each time the kept rows are full.
const PATIENCE: u32 = 48;

/// Chooses the depth of the next round.
#[derive(Debug, Clone)]
pub struct Adaptive {
    most: usize,
    accepted: [f64; MAX_DRAFTS],
    /// How often each draft was judged.
    judged: [f64; MAX_DRAFTS],
    /// Seconds of the first steps without drafts that count.
    first: [f64; FIRST_STEPS - 1],
    /// Seconds of a step without drafts, once it is known.
    plain: Option<f64>,
    /// Seconds of a round with as many drafts as the place says, plus one.
    rounds: [Option<f64>; MAX_DRAFTS],
    /// Rounds of each depth.
    counts: [f64; MAX_DRAFTS],
    /// Steps without drafts so far, and since the last round that paid.
    steps: u32,
    idle: u32,
    /// Rounds since a step without drafts.
    since: u32,
    /// Seconds that rounds took beyond steps without drafts for the same tokens.
    lost: f64,
    /// Seconds that all tokens would have taken without drafts.
    whole: f64,
}

impl Adaptive {
    /// Up to `most` drafts.
    pub fn new(most: usize) -> Adaptive {
        Adaptive {
            most: most.min(MAX_DRAFTS),
            accepted: [PRIOR; MAX_DRAFTS],
            judged: [PRIOR_COUNT; MAX_DRAFTS],
            first: [0.0; FIRST_STEPS - 1],
            plain: None,
            rounds: [None; MAX_DRAFTS],
            counts: [0.0; MAX_DRAFTS],
            steps: 0,
            idle: 0,
            since: 0,
            lost: 0.0,
            whole: 0.0,
        }
    }

    /// Drafts of the next round; 0 is a step without any.
    pub fn depth(&self) -> usize {
        let Some(plain) = self.plain else { return 0 };
        if self.gave_up() {
            return 0;
        }
        let affordable =
            |depth: &usize, start: f64| self.lost + self.seconds(*depth, plain) - plain <= start + BUDGET * self.whole;
        let rate = |depth: usize| self.tokens(depth) / self.seconds(depth, plain);
        // The first round shows what a draft takes.
        let known = if self.rounds.iter().all(Option::is_none) { 1 } else { MAX_DRAFTS };
        let best = (1..=self.most.min(known))
            .filter(|depth| affordable(depth, START * plain))
            .max_by(|&a, &b| rate(a).total_cmp(&rate(b)));
        match best {
            Some(depth) if rate(depth) * plain > 1.0 => {
                let [clear, thin] = REMEASURE;
                let rounds = if rate(depth) * plain > CLEARLY { clear } else { thin };
                if self.since < rounds { depth } else { 0 }
            }
            // Now and then one draft shows whether the text has changed.
            _ if self.most > 0 && affordable(&1, 0.0) => 1,
            _ => 0,
        }
    }

    /// Whether drafting did not pay for so long that it is not tried again.
    pub fn gave_up(&self) -> bool {
        self.idle >= PATIENCE
    }

    /// A round with `depth` drafts, `accepted` of them good, took `seconds`.
    pub fn record(&mut self, depth: usize, accepted: usize, seconds: f64) {
        let clip = |expected: f64, factor: f64| seconds.clamp(expected / factor, expected * factor);
        if depth == 0 {
            self.steps += 1;
            self.idle += 1;
            self.since = 0;
            self.measure(seconds, clip);
        }
        let Some(plain) = self.plain else { return };
        let without = plain * (1 + accepted) as f64;
        self.whole += without;
        if !(1..=self.most).contains(&depth) {
            return;
        }
        self.since += 1;
        for draft in 0..depth.min(accepted + 1) {
            let (rate, count) = (&mut self.accepted[draft], &mut self.judged[draft]);
            *count += 1.0;
            *rate += (f64::from(u8::from(draft < accepted)) - *rate) * WEIGHT.max(1.0 / *count);
        }
        let expected = self.seconds(depth, plain);
        let took = clip(expected, OUTLIER[1]);
        self.counts[depth - 1] += 1.0;
        // What was expected before the first one counts as much as one.
        let weight = WEIGHT.max(1.0 / (self.counts[depth - 1] + 1.0));
        self.rounds[depth - 1] = Some(expected + (took - expected) * weight);
        if took < without {
            self.idle = 0;
        }
        self.lost = (self.lost + took - without).max(-CREDIT * plain);
    }

    /// The time of a step without drafts: the median of the first three, then a mean that outliers hardly move.
    fn measure(&mut self, seconds: f64, clip: impl Fn(f64, f64) -> f64) {
        match (self.plain, self.steps as usize) {
            (Some(plain), steps) => {
                let weight = WEIGHT.max(1.0 / (steps - 1) as f64);
                self.plain = Some(plain + (clip(plain, OUTLIER[0]) - plain) * weight);
            }
            (None, 1) => {}
            (None, steps) => {
                self.first[steps - 2] = seconds;
                if steps == FIRST_STEPS {
                    self.first.sort_unstable_by(f64::total_cmp);
                    self.plain = Some(self.first[self.first.len() / 2]);
                }
            }
        }
    }

    /// Expected tokens of a round. A draft that was never judged is thought as good as the one before it.
    fn tokens(&self, depth: usize) -> f64 {
        let (mut reached, mut sum, mut rate) = (1.0, 1.0, PRIOR);
        for draft in 0..depth {
            if draft == 0 || self.judged[draft] > PRIOR_COUNT {
                rate = self.accepted[draft];
            }
            reached *= rate;
            sum += reached;
        }
        sum
    }

    /// Expected seconds of a round: measured, or from the nearest depth that was.
    fn seconds(&self, depth: usize, plain: f64) -> f64 {
        if let Some(seconds) = self.rounds[depth - 1] {
            return seconds;
        }
        let measured = (1..=MAX_DRAFTS).filter_map(|d| Some((d, self.rounds[d - 1]?)));
        let slope = measured
            .min_by_key(|(d, _)| d.abs_diff(depth))
            .map_or(PRIOR_SLOPE * plain, |(d, seconds)| ((seconds - plain) / d as f64).max(0.0));
        plain + slope * depth as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times are in steps without drafts.
    #[derive(Clone, Copy)]
    struct Machine {
        /// What a draft adds to a round.
        slope: f64,
        /// What reading 15 rows costs the MTP head.
        catch_up: f64,
        /// Every time is off by up to this share.
        noise: f64,
        /// One step in twenty takes this many times as long.
        hiccup: f64,
    }

    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Time that `tokens` tokens take where the draft of token i is good with probability `good(i)`.
    fn simulate(machine: Machine, tokens: usize, fixed: Option<usize>, good: impl Fn(usize) -> f64) -> f64 {
        // The same for every length, so that a longer text begins as a shorter one does.
        let mut numbers = Numbers(29);
        let mut policy = Adaptive::new(5);
        let (mut time, mut made, mut kept) = (0.0, 0, 0);
        while made < tokens {
            let depth = fixed.unwrap_or_else(|| policy.depth());
            let accepted = (0..depth).take_while(|i| numbers.next() < good(made + i)).count();
            let mut took = 1.0 + machine.slope * depth as f64;
            kept = if depth > 0 { 0 } else { kept + 1 };
            if fixed.is_none() && kept == 15 && !policy.gave_up() {
                took += machine.catch_up;
                kept = 0;
            }
            took *= 1.0 + machine.noise * (2.0 * numbers.next() - 1.0);
            took *= if numbers.next() < 0.05 { machine.hiccup } else { 1.0 };
            policy.record(depth, accepted, took);
            time += took;
            made += accepted + 1;
        }
        time * tokens as f64 / made as f64
    }

    const MACHINES: [Machine; 7] = [
        Machine { slope: 0.15, catch_up: 0.1, noise: 0.1, hiccup: 5.0 },
        Machine { slope: 0.15, catch_up: 0.1, noise: 0.3, hiccup: 1.0 },
        Machine { slope: 0.05, catch_up: 0.02, noise: 0.0, hiccup: 1.0 },
        Machine { slope: 0.15, catch_up: 0.1, noise: 0.02, hiccup: 1.0 },
        Machine { slope: 0.3, catch_up: 0.3, noise: 0.02, hiccup: 1.0 },
        Machine { slope: 0.6, catch_up: 0.3, noise: 0.02, hiccup: 1.0 },
        Machine { slope: 1.1, catch_up: 0.3, noise: 0.02, hiccup: 1.0 },
    ];

    #[test]
    fn a_text_whose_drafts_all_fail_is_at_most_two_per_cent_slower() {
        for machine in MACHINES {
            for tokens in [300, 500, 1000, 4000] {
                let slower = simulate(machine, tokens, None, |_| 0.0) / simulate(machine, tokens, Some(0), |_| 0.0);
                // The means of `tokens` disturbances, uniform ones and hiccups, of both runs at four deviations.
                let variance = machine.noise.powi(2) / 3.0 + 0.05 * (machine.hiccup - 1.0).powi(2);
                let chance = 4.0 * (2.0 * variance / tokens as f64).sqrt();
                assert!(slower <= 1.02 + chance, "slope {}, {tokens} tokens: {slower}", machine.slope);
            }
        }
    }

    #[test]
    fn a_predictable_text_gets_close_to_the_best_fixed_depth() {
        for machine in MACHINES {
            for good in [0.6, 0.8, 0.95] {
                let fixed = |depth| simulate(machine, 2000, Some(depth), |_| good);
                let best = (0..=5).map(fixed).fold(f64::INFINITY, f64::min);
                let ours = simulate(machine, 2000, None, |_| good);
                assert!(ours <= 1.1 * best, "slope {}, good {good}: {ours} against {best}", machine.slope);
            }
        }
    }

    #[test]
    fn a_text_that_turns_unpredictable_stops_being_drafted() {
        for machine in MACHINES.into_iter().filter(|machine| machine.noise < 0.1) {
            let good = |token| if token < 1000 { 0.9 } else { 0.0 };
            let (whole, first) = (simulate(machine, 2000, None, good), simulate(machine, 1000, None, good));
            // Lost at once, won before, the hundredth of all; a round across the end; the head's last readings; and
            // disturbances of 2,000 steps at four deviations.
            let disturbed = 4.0 * machine.noise * (2000.0f64 / 3.0).sqrt();
            let readings = f64::from(PATIENCE) / 15.0 * machine.catch_up;
            let lost = START + CREDIT + BUDGET * 2000.0 + 5.0 + readings + disturbed;
            assert!(whole - first <= 1000.0 + lost, "slope {}: {} {lost}", machine.slope, whole - first);
        }
    }

    #[test]
    fn without_a_draft_to_make_nothing_is_drafted() {
        let mut policy = Adaptive::new(0);
        for _ in 0..100 {
            assert_eq!(policy.depth(), 0);
            policy.record(0, 0, 1.0);
        }
    }
}
