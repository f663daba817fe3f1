//! Single instructions on tricky values: assembled by LLVM, executed here, compared with what the instruction set says.
//!
//! Each line's operands: v4, v5, v6, v7 hold the inputs a, b, c, d of a lane; v8 to v11 are stored as its results and
//! start as the inputs. Signs, halves and output modifiers are in the text, so the decoder's fields are tested too.

// `a & b | c << d` is how the instruction set's own description writes bit fields.
#![allow(clippy::precedence)]

mod support;

use std::fmt::Write as _;
use std::process::Command;

use hip_facade::executor::{Executor, Module};
use hip_rdna::Rdna;
use support::{Arguments, Buffers, TARGETS, launch};

type Words = [u32; 4];
/// Text, targets ("11", "12" or both), result.
type Line = (&'static str, &'static str, fn(Words) -> Words);

fn f(x: u32) -> f32 {
    f32::from_bits(x)
}
/// Only the first result changes.
fn one(given: Words, x: u32) -> Words {
    [x, given[1], given[2], given[3]]
}
fn float(given: Words, x: f32) -> Words {
    one(given, if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() })
}
fn low(given: Words, x: u16) -> Words {
    one(given, given[0] & 0xffff_0000 | u32::from(x))
}
fn high(given: Words, x: u16) -> Words {
    one(given, given[0] & 0xffff | u32::from(x) << 16)
}
fn h(x: u32) -> f32 {
    hip_rdna::float::f16_to_f32(x as u16)
}
fn to_h(x: f32) -> u16 {
    if x.is_nan() { 0x7e00 } else { hip_rdna::float::f32_to_f16(x) }
}

const LINES: &[Line] = &[
    ("v_fma_f32 v8, -v4, |v5|, v6", "both", |x| float(x, (-f(x[0])).mul_add(f(x[1]).abs(), f(x[2])))),
    ("v_fma_f32 v8, v4, v5, -|v6|", "both", |x| float(x, f(x[0]).mul_add(f(x[1]), -f(x[2]).abs()))),
    ("v_add_f32_e64 v8, v4, v5 clamp", "both", |x| {
        let s = f(x[0]) + f(x[1]);
        float(x, if s > 0.0 { s.min(1.0) } else { 0.0 })
    }),
    ("v_mul_f32_e64 v8, v4, v5 mul:2", "both", |x| float(x, f(x[0]) * f(x[1]) * 2.0)),
    ("v_mul_f32_e64 v8, v4, v5 div:2", "both", |x| float(x, f(x[0]) * f(x[1]) * 0.5)),
    ("v_add_f32 v8, 0x40490fdb, v5", "both", |x| float(x, std::f32::consts::PI + f(x[1]))),
    ("v_sub_f32 v8, 0.15915494, v5", "both", |x| float(x, f(0x3e22_f983) - f(x[1]))),
    ("v_fmaak_f32 v8, v4, v5, 0x3fc00000", "both", |x| float(x, f(x[0]).mul_add(f(x[1]), 1.5))),
    ("v_fmamk_f32 v8, v4, 0x3fc00000, v5", "both", |x| float(x, f(x[0]).mul_add(1.5, f(x[1])))),
    ("v_ldexp_f32 v8, v4, v5", "both", |x| {
        float(x, (f64::from(f(x[0])) * 2f64.powi((x[1] as i32).clamp(-400, 400))) as f32)
    }),
    ("v_cvt_i32_f32 v8, v4", "both", |x| one(x, f(x[0]) as i32 as u32)),
    ("v_cvt_u32_f32 v8, v4", "both", |x| one(x, f(x[0]) as u32)),
    ("v_cvt_f32_ubyte2 v8, v4", "both", |x| float(x, (x[0] >> 16 & 255) as f32)),
    ("v_cndmask_b32_e64 v8, v4, v5, s8", "both", |x| one(x, x[0])),
    ("v_bfe_u32 v8, v4, v5, v6", "both", |x| {
        one(x, ((u64::from(x[0]) >> (x[1] & 31)) & ((1 << (x[2] & 31)) - 1)) as u32)
    }),
    ("v_bfe_i32 v8, v4, 7, 9", "both", |x| one(x, ((x[0] << 16) as i32 >> 23) as u32)),
    ("v_bfi_b32 v8, v4, v5, v6", "both", |x| one(x, x[0] & x[1] | !x[0] & x[2])),
    ("v_alignbit_b32 v8, v4, v5, v6", "both", |x| {
        one(x, ((u64::from(x[0]) << 32 | u64::from(x[1])) >> (x[2] & 31)) as u32)
    }),
    ("v_perm_b32 v8, v4, v5, 0x0c080d03", "both", |x| {
        let sign = if x[1] >> 15 & 1 == 1 { 255 } else { 0 };
        one(x, x[1] >> 24 | 255 << 8 | sign << 16)
    }),
    ("v_med3_i32 v8, v4, v5, v6", "both", |x| {
        let mut s = [x[0] as i32, x[1] as i32, x[2] as i32];
        s.sort_unstable();
        one(x, s[1] as u32)
    }),
    ("v_max3_u32 v8, v4, v5, v6", "both", |x| one(x, x[0].max(x[1]).max(x[2]))),
    ("v_lshl_add_u32 v8, v4, 5, v6", "both", |x| one(x, (x[0] << 5).wrapping_add(x[2]))),
    ("v_add_lshl_u32 v8, v4, v5, 3", "both", |x| one(x, x[0].wrapping_add(x[1]) << 3)),
    ("v_mad_u32_u24 v8, v4, v5, v6", "both", |x| {
        one(x, (x[0] & 0xff_ffff).wrapping_mul(x[1] & 0xff_ffff).wrapping_add(x[2]))
    }),
    ("v_mul_hi_i32 v8, v4, v5", "both", |x| one(x, (i64::from(x[0] as i32) * i64::from(x[1] as i32) >> 32) as u32)),
    ("v_add_nc_u32_e64 v8, v4, v5 clamp", "both", |x| one(x, x[0].saturating_add(x[1]))),
    ("v_sub_nc_i32 v8, v4, v5 clamp", "both", |x| one(x, (x[0] as i32).saturating_sub(x[1] as i32) as u32)),
    ("v_ashrrev_i64 v[8:9], v4, v[6:7]", "both", |x| {
        let r = (i64::from(x[3] as i32) << 32 | i64::from(x[2])) >> (x[0] & 63);
        [r as u32, (r >> 32) as u32, x[2], x[3]]
    }),
    ("v_add_co_u32 v8, vcc_lo, v4, v5\n v_add_co_ci_u32 v9, vcc_lo, v6, v7, vcc_lo", "both", |x| {
        let r = (u64::from(x[2]) << 32 | u64::from(x[0])).wrapping_add(u64::from(x[3]) << 32 | u64::from(x[1]));
        [r as u32, (r >> 32) as u32, x[2], x[3]]
    }),
    ("v_mad_u64_u32 v[8:9], null, v4, v5, v[6:7]", "11", mad_wide),
    ("v_mad_co_u64_u32 v[8:9], null, v4, v5, v[6:7]", "12", mad_wide),
    ("v_dual_mul_f32 v8, v4, v5 :: v_dual_add_f32 v9, v6, v7", "both", |x| {
        let nan = |v: f32| if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() };
        [nan(f(x[0]) * f(x[1])), nan(f(x[2]) + f(x[3])), x[2], x[3]]
    }),
    // Each half must read the other's old value.
    ("v_dual_mov_b32 v8, v9 :: v_dual_mov_b32 v9, v8", "both", |x| [x[1], x[0], x[2], x[3]]),
    ("v_add_f16 v8.h, v4.l, v5.h", "11", |x| high(x, to_h(h(x[0]) + h(x[1] >> 16)))),
    ("v_fma_f16 v8.h, v4.l, -v5.h, |v6.l|", "11", |x| {
        let exact = f64::from(h(x[0])).mul_add(-f64::from(h(x[1] >> 16)), f64::from(h(x[2]).abs()));
        // F64 holds the product; the sum of these inputs loses nothing that would change the rounding through F32's odd.
        high(x, to_h(odd(exact)))
    }),
    ("v_add_f16 v8, v4, v5", "12", |x| low(x, to_h(h(x[0]) + h(x[1])))),
    (".long 0xd5325008, 0x00020b04 // v_add_f16 v8.h, v4.l, v5.h", "12", |x| high(x, to_h(h(x[0]) + h(x[1] >> 16)))),
    ("v_pk_add_f16 v8, v4, v5 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1]", "both", |x| {
        one(x, u32::from(to_h(h(x[0] >> 16) - h(x[1]))) | u32::from(to_h(h(x[0]) + h(x[1] >> 16))) << 16)
    }),
    ("v_pk_mul_f16 v8, v4, 2.0 op_sel_hi:[1,0]", "both", |x| {
        one(x, u32::from(to_h(h(x[0]) * 2.0)) | u32::from(to_h(h(x[0] >> 16) * 2.0)) << 16)
    }),
    ("v_pk_add_i16 v8, v4, v5 clamp", "both", |x| {
        let add = |s: u32| u32::from((x[0] >> s) as u16 as i16 as i32 as u32 as i16 as u16) << 16 | x[1] >> s & 0xffff;
        let sum = |p: u32| u32::from(((p >> 16) as u16 as i16).saturating_add(p as u16 as i16) as u16);
        one(x, sum(add(0)) | sum(add(16)) << 16)
    }),
    ("v_fma_mix_f32 v8, v4, v5, -v6 op_sel:[1,0,0] op_sel_hi:[1,0,0]", "both", |x| {
        float(x, h(x[0] >> 16).mul_add(f(x[1]), -f(x[2])))
    }),
    ("v_dot4_i32_iu8 v8, v4, v5, v6 neg_lo:[1,0,0]", "both", |x| {
        let s: i64 =
            (0..4).map(|k| i64::from((x[0] >> (8 * k)) as u8 as i8) * i64::from((x[1] >> (8 * k)) as u8)).sum();
        one(x, (s + i64::from(x[2] as i32)) as u32)
    }),
    ("v_dot2_f32_f16 v8, v4, v5, v6", "both", |x| {
        float(x, h(x[0] >> 16).mul_add(h(x[1] >> 16), h(x[0]).mul_add(h(x[1]), f(x[2]))))
    }),
    ("v_cvt_pk_rtz_f16_f32 v8, v4, v5", "both", |x| {
        let toward = |v: f32| {
            let n = hip_rdna::float::f32_to_f16(v);
            if h(u32::from(n)).abs() > v.abs() { n - 1 } else { n }
        };
        one(x, u32::from(toward(f(x[0]))) | u32::from(toward(f(x[1]))) << 16)
    }),
    ("v_cvt_f32_fp8_e64 v8, v4 byte_sel:2", "12", |x| float(x, fp8(x[0] >> 16))),
    ("v_mov_b32_dpp v8, v4 row_shl:1 row_mask:0xf bank_mask:0xf", "both", |x| x),
    ("s_mov_b32 s9, 0x12345678\n v_mov_b32 v8, s9", "both", |x| one(x, 0x1234_5678)),
    ("v_cmp_class_f32 s9, v4, 0x3\n v_cndmask_b32_e64 v8, 0, 1, s9", "both", |x| one(x, u32::from(f(x[0]).is_nan()))),
    ("v_cmp_nlt_f32 s9, v4, v5\n v_cndmask_b32_e64 v8, 0, 1, s9", "both", |x| {
        one(x, u32::from(f(x[0]).partial_cmp(&f(x[1])) != Some(std::cmp::Ordering::Less)))
    }),
    ("v_frexp_exp_i32_f32 v8, v4\n v_frexp_mant_f32 v9, v4\n v_ldexp_f32 v8, v9, v8\n v_mov_b32 v9, v5", "both", |x| {
        float(x, f(x[0]))
    }),
];

fn mad_wide(x: Words) -> Words {
    let r = (u64::from(x[0]) * u64::from(x[1])).wrapping_add(u64::from(x[3]) << 32 | u64::from(x[2]));
    [r as u32, (r >> 32) as u32, x[2], x[3]]
}
/// F64 to F32 with the last bit set if anything was lost.
fn odd(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) == x || x.is_nan() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    let outward = f64::from(nearest).abs() < x.abs();
    f32::from_bits(if outward { nearest.to_bits() + 1 } else { nearest.to_bits() - 1 })
}
/// E4M3 by its definition.
fn fp8(x: u32) -> f32 {
    let (e, m) = (x >> 3 & 15, (x & 7) as f32);
    let v = if e == 15 && m == 7.0 {
        f32::NAN
    } else if e == 0 {
        m / 512.0
    } else {
        (8.0 + m) * 2f32.powi(e as i32 - 10)
    };
    if x & 0x80 != 0 { -v } else { v }
}

/// One kernel a line, in one code object.
fn assemble(target: &str, denormals: u32) -> Vec<u8> {
    let gfx12 = target == "gfx1201";
    let (scalar, vector) =
        if gfx12 { ("s_wait_kmcnt 0x0", "s_wait_loadcnt 0x0") } else { ("s_waitcnt lgkmcnt(0)", "s_waitcnt vmcnt(0)") };
    let mut text = format!(".amdgcn_target \"amdgcn-amd-amdhsa--{target}\"\n.text\n");
    let mut described = String::from(".amdgpu_metadata\n---\namdhsa.version: [1, 2]\n");
    let _ = writeln!(described, "amdhsa.target: amdgcn-amd-amdhsa--{target}\namdhsa.kernels:");
    for (n, (line, _, _)) in LINES.iter().enumerate().filter(|(_, l)| applies(l, target)) {
        let _ = writeln!(
            text,
            ".globl line{n}\n.p2align 8\n.type line{n},@function\nline{n}:\n s_load_b128 s[4:7], s[0:1], 0x0\n {scalar}\n \
             s_mov_b32 s8, 0\n v_lshlrev_b32 v1, 4, v0\n global_load_b128 v[4:7], v1, s[4:5]\n {vector}\n v_mov_b32 v8, v4\n \
             v_mov_b32 v9, v5\n v_mov_b32 v10, v6\n v_mov_b32 v11, v7\n {line}\n global_store_b128 v1, v[8:11], s[6:7]\n \
             s_endpgm\n.Lend{n}:\n.size line{n}, .Lend{n}-line{n}\n.rodata\n.p2align 6\n.amdhsa_kernel line{n}\n \
             .amdhsa_user_sgpr_kernarg_segment_ptr 1\n .amdhsa_next_free_vgpr 16\n .amdhsa_next_free_sgpr 16\n \
             .amdhsa_wavefront_size32 1\n .amdhsa_kernarg_size 16\n .amdhsa_float_denorm_mode_32 {denormals}\n.end_amdhsa_kernel\n.text"
        );
        let _ = writeln!(
            described,
            "  - .name: line{n}\n    .symbol: line{n}.kd\n    .kernarg_segment_size: 16\n    .kernarg_segment_align: 8\n    \
             .group_segment_fixed_size: 0\n    .private_segment_fixed_size: 0\n    .wavefront_size: 32\n    .sgpr_count: 16\n    \
             .vgpr_count: 16\n    .max_flat_workgroup_size: 1024"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("lines.s"), folder.path().join("lines.co"));
    std::fs::write(&source, format!("{text}\n{described}.end_amdgpu_metadata\n")).unwrap();
    let out = Command::new("clang-22")
        .args(["-x", "assembler", "-target", "amdgcn-amd-amdhsa", &format!("-mcpu={target}")])
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    std::fs::read(&object).unwrap()
}

fn applies(line: &Line, target: &str) -> bool {
    line.1 == "both" || target.contains(&format!("gfx{}", line.1))
}

/// Every pair of tricky words, and triples of some.
fn inputs() -> Vec<Words> {
    let tricky = [
        0u32,
        1,
        0x8000_0000,
        0x7fff_ffff,
        0xffff_ffff,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x0000_0001 | 0x8000_0000,
        0x007f_ffff,
        0x0080_0000,
        0x7f7f_ffff,
        0x4b80_0001,
        0x3c00_3c01,
        0x8000_7bff,
        0x0001_83ff,
        0x7c00_fbff,
        0x3fc0_0000,
        0x4049_0fdb,
        31,
        0x1234_5678,
        0xdead_beef,
    ];
    let count = tricky.len();
    (0..count * count)
        .map(|n| [tricky[n / count], tricky[n % count], tricky[(n * 7 + 3) % count], tricky[(n * 5 + 1) % count]])
        .collect()
}

fn run(module: &dyn Module, kernel: &str, given: &[Words]) -> Result<Vec<Words>, String> {
    let mut input = given.to_vec();
    input.resize(given.len().next_multiple_of(32), [0; 4]);
    let mut out = vec![[0u32; 4]; input.len()];
    for (input, out) in input.chunks_mut(32).zip(out.chunks_mut(32)) {
        let memory = Buffers::default();
        let arguments = Arguments::default().long(memory.add(input)).long(memory.add(out)).bytes();
        launch(module, kernel, 1, 32, &arguments, &memory, 0)?;
    }
    Ok(out)
}

/// Any NaN of the wanted width is as good as another.
fn same(got: u32, want: u32) -> bool {
    let nan16 = |x: u32| x & 0x7fff > 0x7c00;
    let half =
        |shift: u32| got >> shift & 0xffff == want >> shift & 0xffff || (nan16(got >> shift) && nan16(want >> shift));
    got == want || (f(got).is_nan() && f(want).is_nan()) || (half(0) && half(16))
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn single_instructions_give_what_the_instruction_set_says() {
    let given = inputs();
    let mut wrong = Vec::new();
    for target in TARGETS {
        let module = Rdna::new(1).load(&assemble(target, 3), target).unwrap();
        for (n, line) in LINES.iter().enumerate().filter(|(_, l)| applies(l, target)) {
            let (text, _, expect) = line;
            let out = match run(&*module, &format!("line{n}"), &given) {
                Ok(out) => out,
                Err(fault) => {
                    wrong.push(format!("{target} {text}: {fault}"));
                    continue;
                }
            };
            // A DPP shift moves lanes: checked by itself below.
            if text.contains("row_shl") {
                for (at, got) in out.iter().take(given.len()).enumerate() {
                    let moved = if at % 16 == 15 { given[at][0] } else { given.get(at + 1).map_or(0, |x| x[0]) };
                    assert_eq!(got[0], moved, "{target} {text} lane {at}");
                }
                continue;
            }
            if let Some((x, got)) =
                given.iter().zip(&out).find(|(x, got)| got.iter().zip(expect(**x)).any(|(g, w)| !same(*g, w)))
            {
                wrong.push(format!("{target} {text}\n    of {x:08x?}\n    is {got:08x?}, want {:08x?}", expect(*x)));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
#[cfg_attr(not(has_clang), ignore = "clang-22 is not installed")]
fn a_kernel_without_denormals_reads_and_writes_zeros_for_them() {
    // The plain product of the third and fourth input, in the dual issue's second half: v9 = c + d.
    let line = LINES.iter().position(|l| l.0.starts_with("v_dual_mul_f32")).unwrap();
    let (tiny, small) = (1u32, 0x0080_0001u32);
    let given = [[0x3f80_0000, tiny, small, 0x8080_0000], [small, 0x3f00_0000, tiny, tiny]];
    for target in TARGETS {
        for (denormals, want) in [(3, [[tiny, 1], [0x0040_0000, 2]]), (0, [[0, 0], [0, 0]])] {
            let module = Rdna::new(1).load(&assemble(target, denormals), target).unwrap();
            let out = run(&*module, &format!("line{line}"), &given).unwrap();
            for (got, want) in out.iter().zip(want) {
                assert_eq!(got[..2], want, "{target} mode {denormals}");
            }
        }
    }
}
