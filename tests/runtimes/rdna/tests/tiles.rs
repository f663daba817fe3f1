//! Matrix instructions against an oracle written from the layout table, and the profile's numbers.

// Layouts are written as functions from coordinates; naming each closure's type would hide them.
#![allow(clippy::type_complexity)]

mod support;

use hip_facade::executor::{Executor, Launch};
use hip_rdna::Rdna;
use support::{Arguments, Buffers, TARGETS, compile, noise, probe};

const N: usize = 16;

/// Where element k of row (or column) r stands: (lane, word, shift), `bits` wide; gfx11 repeats it 16 lanes further.
fn operand_place(gfx12: bool, bits: usize, r: usize, k: usize) -> (usize, usize, usize) {
    let (lane, at) = if gfx12 { (r + 16 * (k / 8), k % 8) } else { (r, k) };
    (lane, at * bits / 32, at * bits % 32)
}

/// Where D's element (row, column) stands: (lane, element).
fn result_place(gfx12: bool, row: usize, column: usize) -> (usize, usize) {
    if gfx12 { (column + 16 * (row / 8), row % 8) } else { (column + 16 * (row % 2), row / 2) }
}

/// Registers, 32 lanes each, that hold a 16 by 16 operand of `bits`-wide elements.
fn pack(gfx12: bool, bits: usize, element: impl Fn(usize, usize) -> u32) -> Vec<u32> {
    let mut words = vec![0u32; 8 * 32];
    for r in 0..N {
        for k in 0..N {
            let (lane, word, shift) = operand_place(gfx12, bits, r, k);
            words[32 * word + lane] |= element(r, k) << shift;
            if !gfx12 {
                words[32 * word + lane + 16] |= element(r, k) << shift;
            }
        }
    }
    words
}

fn run(target: &str, kernel: &str, mut a: Vec<u32>, mut b: Vec<u32>, mut c: Vec<u32>) -> Vec<u32> {
    let executor = Rdna::new(1);
    let module = executor.load(&compile(&probe("tiles.hip"), target), target).unwrap();
    let mut out = vec![0u32; 8 * 32];
    let memory = Buffers::default();
    let pointers = [memory.add(&mut out), memory.add(&mut a), memory.add(&mut b), memory.add(&mut c)];
    let arguments = pointers.iter().fold(Arguments::default(), |x, p| x.long(*p)).bytes();
    support::launch(&*module, kernel, 1, 32, &arguments, &memory, 0).unwrap();
    out
}

/// Small numbers that every format holds exactly, so that any order of summation gives the same sum.
fn small(r: usize, k: usize, seed: usize) -> i32 {
    ((r * 7 + k * 5 + seed * 3) % 9) as i32 - 4
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn every_format_multiplies_in_its_generations_layout() {
    let f16 = |x: i32| u32::from(hip_rdna::float::f32_to_f16(x as f32));
    let bf16 = |x: i32| u32::from(hip_rdna::float::f32_to_bf16(x as f32));
    let fp8 = |x: i32| u32::from(hip_rdna::float::f32_to_fp8(hip_rdna::float::Fp8::E4M3, x as f32, false));
    let byte = |x: i32| x as u8 as u32;
    for target in TARGETS {
        let gfx12 = target == "gfx1201";
        let product = |b: &dyn Fn(usize, usize) -> i32, row: usize, column: usize| -> i32 {
            (0..N).map(|k| small(row, k, 1) * b(column, k)).sum::<i32>() + small(row, column, 3)
        };
        let signed = |r: usize, k: usize| small(r, k, 2);
        // Unsigned bytes for iu8's second operand.
        let unsigned = |r: usize, k: usize| small(r, k, 2) & 255;
        let c = |bits: &dyn Fn(i32) -> u32, half: bool| {
            let mut words = vec![0u32; 8 * 32];
            for row in 0..N {
                for column in 0..N {
                    let (lane, j) = result_place(gfx12, row, column);
                    let (word, shift) = if half && gfx12 { (j / 2, 16 * (j % 2)) } else { (j, 0) };
                    words[32 * word + lane] |= bits(small(row, column, 3)) << shift;
                }
            }
            words
        };
        let check =
            |kernel: &str, out: &[u32], half: bool, read: &dyn Fn(u32) -> f64, b: &dyn Fn(usize, usize) -> i32| {
                for row in 0..N {
                    for column in 0..N {
                        let (lane, j) = result_place(gfx12, row, column);
                        let (word, shift) = if half && gfx12 { (j / 2, 16 * (j % 2)) } else { (j, 0) };
                        let got = read(out[32 * word + lane] >> shift);
                        assert_eq!(got, f64::from(product(b, row, column)), "{target} {kernel} ({row}, {column})");
                    }
                }
            };
        let f32_bits = |x: i32| (x as f32).to_bits();
        let as_f32 = |x: u32| f64::from(f32::from_bits(x));
        let as_f16 = |x: u32| f64::from(hip_rdna::float::f16_to_f32(x as u16));
        let pair = |bits: usize, to: &dyn Fn(i32) -> u32| {
            (pack(gfx12, bits, |r, k| to(small(r, k, 1))), pack(gfx12, bits, |r, k| to(small(r, k, 2))))
        };
        let mut floats: Vec<(&str, usize, &dyn Fn(i32) -> u32)> =
            vec![("tile_f32_f16", 16, &f16), ("tile_f32_bf16", 16, &bf16)];
        if gfx12 {
            floats.push(("tile_f32_fp8", 8, &fp8));
        }
        for (kernel, bits, to) in floats {
            let (a, b) = pair(bits, to);
            check(kernel, &run(target, kernel, a, b, c(&f32_bits, false)), false, &as_f32, &signed);
        }
        let (a, b) = pair(16, &f16);
        check("tile_f16_f16", &run(target, "tile_f16_f16", a, b, c(&f16, true)), true, &as_f16, &signed);
        let (a, b) = pair(8, &byte);
        check(
            "tile_i32_iu8",
            &run(target, "tile_i32_iu8", a, b, c(&|x| x as u32, false)),
            false,
            &|x| f64::from(x as i32),
            &unsigned,
        );
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn the_profile_counts_classes_bytes_and_bank_conflicts() {
    for target in TARGETS {
        let executor = Rdna::new(1);
        assert_eq!(executor.profile(), "[]");
        let module = executor.load(&compile(&probe("tiles.hip"), target), target).unwrap();
        let (mut out, mut rest) = (vec![0u32; 256], vec![0u32; 256]);
        let memory = Buffers::default();
        let (o, r) = (memory.add(&mut out), memory.add(&mut rest));
        let arguments = Arguments::default().long(o).long(r).long(r).long(r).bytes();
        for kernel in ["conflicts", "conflicts", "tile_f32_f16"] {
            support::launch(&*module, kernel, 3, 32, &arguments, &memory, 0).unwrap();
        }
        let json = executor.profile();
        let of = |kernel: &str| {
            let from = json.find(&format!("{{\"kernel\":\"{kernel}\"")).unwrap();
            json[from..].split("},{\"kernel\"").next().unwrap().to_owned()
        };
        let conflicts = of("conflicts");
        for part in [
            "\"launches\":2",
            "\"workgroups\":6",
            "\"waves\":6",
            "\"lds_conflict_cycles\":372",
            "\"lds_store\":{\"bytes\":768",
            "\"global_store\":{\"bytes\":768",
            "\"lds\":12",
        ] {
            assert!(conflicts.contains(part), "{target}: {part} is not in {conflicts}");
        }
        assert!(of("tile_f32_f16").contains("\"wmma\":3"), "{target}: {json}");
    }
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn threads_change_neither_results_nor_faults() {
    let image = compile(&probe("speed.hip"), "gfx1201");
    let outcome = |workers: usize, length: usize| {
        let module = Rdna::new(workers).load(&image, "gfx1201").unwrap();
        // Room that no allocation of the device covers, so that a store past the end never meets x.
        let (mut y, mut x) = (vec![0f32; length + 32 * 256], noise(1 << 16, 1));
        let memory = Buffers::default();
        let arguments =
            Arguments::default().long(memory.add(&mut y[..length])).long(memory.add(&mut x)).word(5).float(0.5).bytes();
        let launch = Launch {
            kernel: "arithmetic",
            grid: [32, 1, 1],
            block: [256, 1, 1],
            dynamic_lds: 0,
            arguments: &arguments,
            schedule: 4,
        };
        let result = module.launch(&launch, &memory);
        // An address differs from run to run; what was wrong and where does not.
        (y, result.map_err(|text| text.split(" stores").next().unwrap().to_owned()))
    };
    assert_eq!(outcome(1, 32 * 256), outcome(4, 32 * 256));
    let (one, four) = (outcome(1, 20 * 256).1, outcome(4, 20 * 256).1);
    assert!(one.as_ref().is_err_and(|text| text.contains("workgroup (")), "{one:?}");
    assert_eq!(one, four);
}
