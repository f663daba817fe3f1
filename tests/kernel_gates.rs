//! What the metadata of every embedded code object must say: no scratch, no spills, the argument struct that the host
//! hands over, and registers and LDS below ceilings that keep enough waves on a SIMD.
//!
//! A kernel that is not in the table fails the test: its ceilings are a decision, to be made when it is written.

use hipfire::backend::hip::abi;
use hipfire::backend::hip::manifest::Kernel;
use hipfire::backend::hip::matrix;
use hipfire::backend::hip::pack::Pack;
use hipfire::weights::Format;

/// Kernels by name (`*` stands for a number, `@` for a storage format), bytes of the argument struct, and the most VGPRs
/// and LDS bytes allowed.
/// 96 registers leave 16 waves a SIMD, 120 leave 12, 240 leave 6 (HARDWARE.md).
const CEILINGS: &[(&str, usize, u32, u32)] = &[
    ("canary", size_of::<abi::CanaryArgs>(), 96, 0),
    ("copy_rows_f32", size_of::<abi::CopyRowsArgs>(), 96, 0),
    ("embed_@", size_of::<abi::EmbedArgs>(), 96, 0),
    ("gdn_conv", size_of::<abi::GdnConvArgs>(), 96, 0),
    ("gdn_output", size_of::<abi::GdnOutputArgs>(), 96, 0),
    ("gdn_scan_*", size_of::<abi::GdnScanArgs>(), 256, 0),
    ("gdn_scan_pack", size_of::<abi::GdnScanArgs>(), 96, 17 << 10),
    ("gdn_scan_prepare_*", size_of::<abi::GdnScanArgs>(), 240, 17 << 10),
    ("gdn_slide", size_of::<abi::GdnSlideArgs>(), 96, 0),
    ("gdn_step_*", size_of::<abi::GdnStepArgs>(), 168, 12 << 10),
    ("gdn_step_any", size_of::<abi::GdnStepArgs>(), 256, 12 << 10),
    ("gemm_@_*", size_of::<abi::GemmArgs>(), 240, 36 << 10),
    ("gemm_rows", size_of::<abi::GemmRowsArgs>(), 96, 32),
    // Activations in LDS leave twelve waves a SIMD of one row, six of more, and registers up to 128 and 256 cost none.
    ("gemv_@_r1", size_of::<abi::GemvArgs>(), 128, 19 << 10),
    ("gemv_@_r2", size_of::<abi::GemvArgs>(), 144, 37 << 10),
    ("gemv_@_r4", size_of::<abi::GemvArgs>(), 168, 37 << 10),
    ("gemv_@_r8", size_of::<abi::GemvArgs>(), 208, 37 << 10),
    ("grouped_norm", size_of::<abi::GroupedNormArgs>(), 96, 32),
    ("head_norm_rope", size_of::<abi::HeadNormRopeArgs>(), 96, 0),
    ("hidden_keep", size_of::<abi::HiddenArgs>(), 96, 0),
    ("hidden_load", size_of::<abi::HiddenArgs>(), 96, 0),
    ("hyper_gate_@_r1", size_of::<abi::HyperGateArgs>(), 128, 3 << 10),
    ("hyper_gate_@_r8", size_of::<abi::HyperGateArgs>(), 216, 18 << 10),
    ("hyper_low", size_of::<abi::HyperLowArgs>(), 96, 0),
    ("hyper_mix", size_of::<abi::HyperMixArgs>(), 96, 0),
    ("hyper_write", size_of::<abi::HyperWriteArgs>(), 96, 32),
    ("moe_combine", size_of::<abi::MoeCombineArgs>(), 96, 0),
    // LDS leaves six waves a SIMD of one row: registers up to 256 would cost none.
    ("moe_down_@_r1", size_of::<abi::MoeDownArgs>(), 168, 45 << 10),
    ("moe_down_@_r8", size_of::<abi::MoeDownArgs>(), 176, 5 << 10),
    ("moe_gate_up_@_r1", size_of::<abi::MoeGateUpArgs>(), 128, 18 << 10),
    // Eight rows of a format with blocks of 256 keep the bytes of two matrices beside 32 sums.
    ("moe_gate_up_@_r8", size_of::<abi::MoeGateUpArgs>(), 240, 18 << 10),
    // LDS leaves four waves a SIMD: registers up to 256 cost none.
    ("moe_gemm_down_@", size_of::<abi::MoeGemmDownArgs>(), 240, 46 << 10),
    ("moe_gemm_gate_up_@", size_of::<abi::MoeGemmGateUpArgs>(), 240, 46 << 10),
    ("moe_lists", size_of::<abi::MoeListsArgs>(), 96, 33 << 10),
    ("moe_route", size_of::<abi::MoeRouteArgs>(), 96, 17 << 10),
    ("ple_conv", size_of::<abi::PleConvArgs>(), 96, 0),
    ("ple_gate", size_of::<abi::PleGateArgs>(), 96, 128),
    ("ple_slide", size_of::<abi::PleSlideArgs>(), 96, 0),
    // LDS leaves four waves a SIMD, fewer than 240 registers.
    ("qsa_attend_f32_g*", size_of::<abi::QsaAttendArgs>(), 240, 55 << 10),
    ("qsa_attend_fp8_g*", size_of::<abi::QsaAttendArgs>(), 240, 55 << 10),
    ("qsa_attend_q8_g*", size_of::<abi::QsaAttendArgs>(), 240, 55 << 10),
    ("qsa_gather_attend_*", size_of::<abi::GatherAttendArgs>(), 240, 18 << 10),
    ("qsa_merge", size_of::<abi::QsaMergeArgs>(), 96, 0),
    ("qsa_narrow", size_of::<abi::QsaSelectArgs>(), 96, 18 << 10),
    ("qsa_pack_f32", size_of::<abi::QsaPackArgs>(), 96, 0),
    ("qsa_pack_fp8", size_of::<abi::QsaPackArgs>(), 96, 0),
    ("qsa_pack_q8", size_of::<abi::QsaPackArgs>(), 96, 0),
    ("qsa_prepare_f32", size_of::<abi::QsaPrepareArgs>(), 96, 0),
    ("qsa_prepare_fp8", size_of::<abi::QsaPrepareArgs>(), 96, 0),
    ("qsa_prepare_q8", size_of::<abi::QsaPrepareArgs>(), 96, 0),
    ("qsa_score_bf16_r*", size_of::<abi::QsaScoreArgs>(), 168, 0),
    ("qsa_score_f32_r*", size_of::<abi::QsaScoreArgs>(), 168, 0),
    ("qsa_select", size_of::<abi::QsaSelectArgs>(), 96, 34 << 10),
    ("sample_adjust", size_of::<abi::SampleAdjustArgs>(), 96, 8 << 10),
    ("sample_argmax", size_of::<abi::SampleDrawArgs>(), 96, 21 << 10),
    ("sample_draw", size_of::<abi::SampleDrawArgs>(), 96, 21 << 10),
    ("sample_logprobs", size_of::<abi::SampleLogprobsArgs>(), 96, 21 << 10),
    ("stream_add", size_of::<abi::StreamAddArgs>(), 96, 0),
];

fn kernels() -> Vec<(String, Kernel)> {
    let pack = Pack::embedded().unwrap();
    let kernels = pack.manifest().objects.iter().flat_map(|o| o.kernels.iter().map(|k| (o.arch.clone(), k.clone())));
    kernels.collect()
}

fn named(pattern: &str, name: &str) -> bool {
    if pattern.contains('@') {
        let mut formats = Format::ALL.into_iter().filter_map(matrix::kernels);
        return formats.any(|(format, _)| named(&pattern.replace('@', format), name));
    }
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            let middle = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
            middle.is_some_and(|middle| !middle.is_empty() && middle.bytes().all(|byte| byte.is_ascii_digit()))
        }
    }
}

#[test]
#[cfg_attr(not(hipfire_kernels), ignore = "built without GPU kernels: install clang-22 and lld-22")]
fn every_kernel_keeps_its_registers_its_lds_and_its_arguments() {
    let kernels = kernels();
    for (arch, kernel) in &kernels {
        let name = &kernel.name;
        let row = CEILINGS.iter().find(|(pattern, ..)| named(pattern, name));
        let &(_, arguments, vgprs, lds) = row.unwrap_or_else(|| panic!("{name} has no ceilings in this test"));
        assert_eq!(kernel.scratch_bytes, 0, "{arch} {name}: scratch");
        assert_eq!(kernel.vgpr_spills + kernel.sgpr_spills, 0, "{arch} {name}: spills");
        assert_eq!(kernel.kernarg_bytes as usize, arguments, "{arch} {name}: argument struct");
        // The relatives are scheduled in other ways; ceilings are decisions about the two targets.
        let target = ["gfx1151", "gfx1201"].contains(&arch.as_str());
        assert!(kernel.vgprs <= vgprs || !target, "{arch} {name}: {} VGPRs, at most {vgprs}", kernel.vgprs);
        assert!(kernel.lds_bytes <= lds, "{arch} {name}: {} bytes of LDS, at most {lds}", kernel.lds_bytes);
    }
    for (pattern, ..) in CEILINGS {
        assert!(kernels.iter().any(|(_, kernel)| named(pattern, &kernel.name)), "no kernel is named {pattern}");
    }
}

#[test]
#[cfg_attr(not(hipfire_kernels), ignore = "built without GPU kernels: install clang-22 and lld-22")]
fn both_targets_have_the_same_kernels() {
    let of = |target: &str| {
        let mut names: Vec<_> =
            kernels().into_iter().filter(|(arch, _)| arch == target).map(|(_, k)| (k.name, k.threads)).collect();
        names.sort();
        names
    };
    assert_eq!(of("gfx1151"), of("gfx1201"));
    assert!(!of("gfx1151").is_empty());
}
