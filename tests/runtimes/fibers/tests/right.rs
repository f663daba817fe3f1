//! Kernels that are right give the right answer in every layout and schedule, and pass both sanitizers.
#![cfg_attr(not(hip_fibers), allow(dead_code, unused_imports))]

mod support;

use half::f16;
use hip_fibers::{Layout, Sanitizer};
use support::{Arguments, Device, launch, run, sanitize};

/// Natural, lanes reversed, waves reversed, both, and four at random.
const SCHEDULES: [u64; 8] = [0, 1, 2, 3, 4, 5, 0x1234_5678_9abc, u64::MAX];

/// Pseudo-random numbers in [-1, 1).
fn values(count: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A kernel with inputs, and whether what it stored is right.
struct Case {
    kernel: &'static str,
    groups: u32,
    threads: u32,
    dynamic_lds: u32,
    prepare: fn(&Device) -> (Arguments, u64),
    check: fn(&Device, u64),
}

impl Case {
    fn each_schedule(&self) {
        for layout in Layout::ALL {
            for schedule in SCHEDULES {
                let device = Device::default();
                let (arguments, out) = (self.prepare)(&device);
                let mut launch = launch(self.kernel, self.groups, self.threads, &arguments);
                launch.schedule = schedule;
                launch.dynamic_lds = self.dynamic_lds;
                run(layout, &launch, &device).unwrap_or_else(|error| panic!("{layout:?} schedule {schedule}: {error}"));
                (self.check)(&device, out);
            }
        }
    }

    fn each_sanitizer(&self) {
        for layout in Layout::REPLAYED {
            for sanitizer in Sanitizer::ALL {
                let device = Device::default();
                let (arguments, _) = (self.prepare)(&device);
                let mut launch = launch(self.kernel, self.groups, self.threads, &arguments);
                launch.dynamic_lds = self.dynamic_lds;
                sanitize(layout, &launch, &device, sanitizer)
                    .unwrap_or_else(|error| panic!("{layout:?} {sanitizer:?}: {error}"));
            }
        }
    }
}

const CANARY_WORDS: u32 = 1000;
const CANARY: Case = Case {
    kernel: "canary",
    groups: 4,
    threads: 256,
    dynamic_lds: 0,
    prepare: |device| {
        // Word 5 is what it should be, for a seed of 7: the rest are mismatches.
        let mut words = vec![0_u64; CANARY_WORDS as usize];
        let mut x = 7_u64.wrapping_add(5_u64.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x ^= x >> 31;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        words[5] = x ^ (x >> 29);
        let mismatches = device.upload(&[0_u32]);
        (Arguments::default().u64(device.upload(&words)).u64(7).u64(mismatches).u32(CANARY_WORDS).u32(1), mismatches)
    },
    check: |device, mismatches| assert_eq!(device.download::<u32>(mismatches, 1), [CANARY_WORDS - 1]),
};

const NORM: Case = Case {
    kernel: "grouped_norm",
    groups: 6,
    threads: 256,
    dynamic_lds: 0,
    prepare: |device| {
        let out = device.upload(&[0.0_f32; 6 * 1028]);
        let (input, weight) = (device.upload(&values(6 * 1028)), device.upload(&values(2 * 1028)));
        (Arguments::default().u64(out).u64(input).u64(weight).u32(2).u32(1028).f32(1e-6).u32(0), out)
    },
    check: |device, out| {
        let (input, weight) = (values(6 * 1028), values(2 * 1028));
        let got = device.download::<f32>(out, 6 * 1028);
        for (row, x) in input.chunks(1028).enumerate() {
            let mean = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / 1028.0;
            for (i, &v) in x.iter().enumerate() {
                let want = f64::from(v) / (mean + 1e-6).sqrt() * f64::from(weight[row % 2 * 1028 + i]);
                // A sum of 1028 squares in at most 8 + 13 steps, then six more roundings, each half a last place.
                let bound = want.abs() * 28.0 * f64::from(f32::EPSILON);
                assert!((f64::from(got[row * 1028 + i]) - want).abs() <= bound, "row {row} element {i}");
            }
        }
    },
};

fn histogram_input() -> Vec<u32> {
    (0..5000_u32).map(|i| i.wrapping_mul(2_654_435_761) >> 13).collect()
}

const HISTOGRAM: Case = Case {
    kernel: "right_histogram",
    groups: 5,
    threads: 256,
    dynamic_lds: 0,
    prepare: |device| {
        // The sum comes after the bins, so that one address finds both.
        let out = device.upload(&[0_u32; 257]);
        let input = device.upload(&histogram_input());
        (Arguments::default().u64(out).u64(input).u64(out + 1024).u32(5000).u32(0), out)
    },
    check: |device, out| {
        let mut want = vec![0_u32; 256];
        histogram_input().iter().for_each(|value| want[(value & 255) as usize] += 1);
        want.push(5000_f32.to_bits());
        assert_eq!(device.download::<u32>(out, 257), want);
    },
};

const REVERSE: Case = Case {
    kernel: "right_reverse",
    groups: 3,
    threads: 256,
    dynamic_lds: 4000,
    prepare: |device| {
        let out = device.upload(&[0.0_f32; 3000]);
        (Arguments::default().u64(out).u64(device.upload(&values(3000))).u32(1000).u32(0), out)
    },
    check: |device, out| {
        let want: Vec<f32> = values(3000).chunks(1000).flat_map(|row| row.iter().rev().copied()).collect();
        assert_eq!(device.download::<f32>(out, 3000), want);
    },
};

fn halves(count: usize) -> Vec<f16> {
    values(count).into_iter().map(f16::from_f32).collect()
}

const TILE: Case = Case {
    kernel: "right_tile",
    groups: 1,
    threads: 32,
    dynamic_lds: 0,
    prepare: |device| {
        let out = device.upload(&[0.0_f32; 256]);
        let input = device.upload(&halves(512));
        (Arguments::default().u64(out).u64(input).u64(input + 512), out)
    },
    check: |device, out| {
        let input = halves(512);
        let got = device.download::<f32>(out, 256);
        for (row, a) in input[..256].chunks(16).enumerate() {
            for (column, b) in input[256..].chunks(16).enumerate() {
                // Products of two halves are exact in float: the sum is 16 additions in order.
                let want = a.iter().zip(b).fold(0.0_f32, |sum, (x, y)| sum + x.to_f32() * y.to_f32());
                assert_eq!(got[16 * row + column], want, "row {row} column {column}");
            }
        }
    },
};

const LAST: Case = Case {
    kernel: "right_last_workgroup",
    groups: 9,
    threads: 64,
    dynamic_lds: 0,
    prepare: |device| {
        let (partial, done, total) = (device.upload(&[0_u32; 9]), device.upload(&[0_u32]), device.upload(&[0_u32]));
        (Arguments::default().u64(partial).u64(done).u64(total).u32(9).u32(0), total)
    },
    check: |device, total| assert_eq!(device.download::<u32>(total, 1), [45]),
};

macro_rules! cases {
    ($($case:ident: $schedules:ident, $sanitizers:ident;)*) => {$(
        #[test]
        #[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
        fn $schedules() {
            $case.each_schedule();
        }

        #[test]
        #[cfg_attr(not(hip_fibers_sanitizers), ignore = "no clang++ 19 or newer with its sanitizer runtimes")]
        fn $sanitizers() {
            $case.each_sanitizer();
        }
    )*};
}

cases! {
    CANARY: the_canary_counts_mismatches_in_every_schedule, the_canary_is_clean_under_sanitizers;
    NORM: the_norm_agrees_with_f64_in_every_schedule, the_norm_is_clean_under_sanitizers;
    HISTOGRAM: a_histogram_is_exact_in_every_schedule, a_histogram_is_clean_under_sanitizers;
    REVERSE: dynamic_lds_reverses_rows_in_every_schedule, dynamic_lds_is_clean_under_sanitizers;
    TILE: a_matrix_tile_is_exact_in_every_schedule, a_matrix_tile_is_clean_under_sanitizers;
    LAST: the_last_workgroup_sees_all_in_every_schedule, the_last_workgroup_is_clean_under_sanitizers;
}
