//! The kernels that ship, executed from their machine code on both targets and compared with an oracle.

mod support;

use support::{Arguments, Buffers, TARGETS, launch, load, noise, shipped};

/// The words that hip/canary.hip writes.
fn canary_word(seed: u64, i: u64) -> u64 {
    let mut x = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x ^= x >> 31;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 29
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn canary_writes_its_words_and_counts_the_one_that_changed() {
    for target in TARGETS {
        let module = load(&shipped().join("canary.hip"), target);
        let (mut words, mut mismatches, seed) = (vec![0u64; 1000], vec![0u32; 1], 42);
        let memory = Buffers::default();
        let (at, count) = (memory.add(&mut words), memory.add(&mut mismatches));
        let arguments = |phase| Arguments::default().long(at).long(seed).long(count).word(1000).word(phase).bytes();
        launch(&*module, "canary", 4, 256, &arguments(0), &memory, 0).unwrap();
        for (i, word) in words.iter().enumerate() {
            assert_eq!(*word, canary_word(seed, i as u64), "{target} word {i}");
        }
        launch(&*module, "canary", 4, 256, &arguments(1), &memory, 0).unwrap();
        assert_eq!(mismatches[0], 0, "{target}");
        words[777] ^= 1 << 40;
        launch(&*module, "canary", 4, 256, &arguments(1), &memory, 0).unwrap();
        assert_eq!(mismatches[0], 1, "{target}");
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn grouped_norm_agrees_with_its_oracle_under_four_schedules() {
    let (rows, groups, width, eps) = (3, 2, 1028, 1e-6f32);
    let input = noise(rows * groups * width, 1);
    let weight = noise(groups * width, 2);
    let mut expected = vec![0f32; input.len()];
    for row in 0..rows * groups {
        let x = &input[row * width..][..width];
        let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / width as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        for i in 0..width {
            expected[row * width + i] = (f64::from(x[i]) * scale * f64::from(weight[row % groups * width + i])) as f32;
        }
    }
    // The sum of squares of one thread has at most 2 times 4 terms and 13 more additions follow, all of positive terms;
    // half of that relative error reaches the scale, and 4 roundings more the product.
    let bound = (21.0 / 2.0 + 5.0) * f32::EPSILON;
    for target in TARGETS {
        let module = load(&shipped().join("norm.hip"), target);
        for schedule in 0..4 {
            let (mut out, mut given, mut weight) = (vec![f32::NAN; input.len()], input.clone(), weight.clone());
            let memory = Buffers::default();
            let (o, i, w) = (memory.add(&mut out), memory.add(&mut given), memory.add(&mut weight));
            let arguments = Arguments::default().long(o).long(i).long(w);
            let arguments = arguments.word(groups as u32).word(width as u32).float(eps).word(0).bytes();
            launch(&*module, "grouped_norm", (rows * groups) as u32, 256, &arguments, &memory, schedule).unwrap();
            for (k, (got, want)) in out.iter().zip(&expected).enumerate() {
                assert!((got - want).abs() <= bound * want.abs(), "{target} schedule {schedule} [{k}]: {got} {want}");
            }
        }
    }
}
