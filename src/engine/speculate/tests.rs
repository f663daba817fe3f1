//! The law of speculated tokens against the target's, by counting. A toy stands in for the model: its logits are a
//! function of the tokens before.

use std::collections::HashMap;

use super::*;
use crate::engine::sampler::SamplingParams;

const VOCAB: usize = 5;
const TOKENS: usize = 3;
const DRAWS: u64 = 200_000;

/// Logits behind `before`; the draft's are other ones, close enough that both verdicts are common.
fn logits(before: &[u32], draft: bool) -> [f32; VOCAB] {
    let seed = before.iter().fold(3u32, |h, &id| h.wrapping_mul(31).wrapping_add(id + 1));
    std::array::from_fn(|id| {
        let spread = |salt: u32| (seed ^ salt).wrapping_add(id as u32).wrapping_mul(0x9E37_79B1) >> 16;
        let own = spread(0) as f32 / 65536.0 * 3.0;
        if draft { own + spread(0x5555) as f32 / 65536.0 * 2.0 } else { own }
    })
}

/// Three tokens by rounds of up to `depth` drafts.
fn speculated(params: &SamplingParams, rule: Rule, depth: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(params.clone(), &[]);
    let choice = Speculation { depth: Depth::Fixed(depth), rule };
    let mut speculator = Speculator::new(choice, depth);
    let mut ids = Vec::new();
    while ids.len() < TOKENS {
        let mut supposed = ids.clone();
        for _ in 0..depth {
            supposed.push(speculator.propose(&mut sampler, &logits(&supposed, true)).unwrap());
        }
        sampler.forget();
        let mut goes_on = true;
        while goes_on {
            let judged = speculator.judge(&mut sampler, &logits(&ids, false)).unwrap();
            ids.push(judged.id);
            goes_on = judged.goes_on;
        }
        speculator.end(Default::default(), true);
    }
    ids.truncate(TOKENS);
    ids
}

/// The target's law of three tokens, by multiplying.
fn joint(params: &SamplingParams) -> HashMap<Vec<u32>, f64> {
    let mut whole = HashMap::from([(Vec::new(), 1.0)]);
    for _ in 0..TOKENS {
        let mut longer = HashMap::new();
        for (ids, p) in whole {
            let mut sampler = Sampler::new(params.clone(), &[]);
            ids.iter().for_each(|&id| drop(sampler.record(id)));
            let mut law = Distribution::default();
            sampler.law(&logits(&ids, false), &mut law).unwrap();
            for &(id, weight) in law.entries() {
                longer.insert([&ids[..], &[id]].concat(), p * weight / law.total());
            }
        }
        whole = longer;
    }
    whole
}

/// Pearson's statistic in units of standard deviations of its own law: (χ² - n) / √(2n) for n degrees of freedom.
/// Panics if a text came that cannot be.
fn deviation(params: &SamplingParams, rule: Rule, depth: usize) -> f64 {
    let law = joint(params);
    let mut counts: HashMap<Vec<u32>, u64> = HashMap::new();
    for seed in 0..DRAWS {
        *counts.entry(speculated(&SamplingParams { seed, ..params.clone() }, rule, depth)).or_default() += 1;
    }
    assert!(counts.keys().all(|ids| law.contains_key(ids)), "a filtered text came");
    // Cells that expect fewer than five would not follow the law of χ²: together they are one cell.
    let (mut statistic, mut cells, mut rare) = (0.0, 0, (0.0, 0.0));
    let mut add = |expected: f64, count: f64| {
        statistic += (count - expected).powi(2) / expected;
        cells += 1;
    };
    for (ids, p) in &law {
        let (expected, count) = (p * DRAWS as f64, counts.get(ids).copied().unwrap_or(0) as f64);
        if expected < 5.0 { rare = (rare.0 + expected, rare.1 + count) } else { add(expected, count) }
    }
    if rare.0 >= 5.0 {
        add(rare.0, rare.1);
    }
    let freedom = f64::from(cells - 1);
    (statistic - freedom) / (2.0 * freedom).sqrt()
}

/// χ² leans to the right of a normal law: by Wilson and Hilferty its quantile of level 10⁻⁴ lies 4.6 of its own standard
/// deviations above its mean at 50 degrees of freedom; between 20 and 124, as these laws have, the level of that bound is
/// 3·10⁻⁴ to 4·10⁻⁵. The seeds are fixed: the verdict is always the same.
const BOUND: f64 = 4.6;

fn laws() -> [SamplingParams; 4] {
    let plain = SamplingParams { temperature: 0.9, ..SamplingParams::default() };
    [
        plain.clone(),
        SamplingParams { top_k: 4, ..plain.clone() },
        SamplingParams { top_p: 0.85, ..plain.clone() },
        SamplingParams {
            top_k: 4,
            top_p: 0.9,
            min_p: 0.05,
            presence_penalty: 0.5,
            logit_bias: vec![(1, 0.7)],
            ..plain
        },
    ]
}

#[test]
fn the_joint_law_of_three_tokens_is_the_targets_with_and_without_filters() {
    for params in laws() {
        for depth in [1, 3] {
            let deviation = deviation(&params, Rule::Exact, depth);
            assert!(deviation.abs() < BOUND, "depth {depth}, {params:?}: {deviation} standard deviations");
        }
    }
}

#[test]
fn the_count_would_notice_a_wrong_law() {
    let off = deviation(&laws()[0], Rule::Typical(0.2), 3);
    assert!(off > 10.0 * BOUND, "the typical rule is {off} standard deviations away");
}

#[test]
fn a_seed_gives_the_same_text_and_a_round_without_drafts_that_of_the_plain_sampler() {
    let params = SamplingParams { seed: 11, ..laws()[1].clone() };
    assert_eq!(speculated(&params, Rule::Exact, 3), speculated(&params, Rule::Exact, 3));
    let mut sampler = Sampler::new(params.clone(), &[]);
    let mut plain = Vec::new();
    (0..TOKENS).for_each(|_| plain.push(sampler.sample(&logits(&plain, false)).unwrap()));
    assert_eq!(speculated(&params, Rule::Exact, 0), plain);
}

#[test]
fn supposed_tokens_leave_no_trace_in_the_record() {
    let params = SamplingParams { repetition_penalty: 1.5, frequency_penalty: 0.2, ..laws()[0].clone() };
    let law_of = |sampler: &mut Sampler| {
        let mut law = Distribution::default();
        sampler.law(&logits(&[], false), &mut law).unwrap();
        (law, sampler.uniform(Purpose::Token))
    };
    let mut sampler = Sampler::new(params, &[2]);
    sampler.record(0).unwrap();
    let before = law_of(&mut sampler);
    [0, 1, 2, 1].iter().for_each(|&id| sampler.suppose(id));
    assert_ne!(law_of(&mut sampler), before);
    assert!(sampler.record(3).is_err(), "nothing is recorded behind a supposition");
    sampler.forget();
    assert_eq!(law_of(&mut sampler), before);
}
