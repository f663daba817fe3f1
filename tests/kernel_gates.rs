//! What the metadata of every embedded code object must say: no scratch, no spills, the argument struct that the host
//! hands over, and registers and LDS below ceilings that keep enough waves on a SIMD.
//!
//! A kernel that is not in the table fails the test: its ceilings are a decision, to be made when it is written.

use hipfire::backend::hip::abi;
use hipfire::backend::hip::manifest::Kernel;
use hipfire::backend::hip::pack::Pack;

/// Kernels by name (`*` stands for a number), bytes of the argument struct, and the most VGPRs and LDS bytes allowed.
/// 96 registers leave 16 waves a SIMD, 120 leave 12, 240 leave 6 (HARDWARE.md).
const CEILINGS: [(&str, usize, u32, u32); 20] = [
    ("canary", size_of::<abi::CanaryArgs>(), 96, 0),
    ("copy_rows_f32", size_of::<abi::CopyRowsArgs>(), 96, 0),
    ("embed_bf16", size_of::<abi::EmbedArgs>(), 96, 0),
    ("gemv_bf16_r*", size_of::<abi::GemvArgs>(), 120, 0),
    ("grouped_norm", size_of::<abi::GroupedNormArgs>(), 96, 32),
    ("head_norm_rope", size_of::<abi::HeadNormRopeArgs>(), 96, 8 << 10),
    ("hyper_gate_bf16_r*", size_of::<abi::HyperGateArgs>(), 96, 16 << 10),
    ("hyper_write", size_of::<abi::HyperWriteArgs>(), 96, 32),
    ("ple_conv", size_of::<abi::PleConvArgs>(), 96, 0),
    ("ple_gate", size_of::<abi::PleGateArgs>(), 96, 128),
    ("ple_slide", size_of::<abi::PleSlideArgs>(), 96, 0),
    ("qsa_gather_attend_*", size_of::<abi::GatherAttendArgs>(), 240, 36 << 10),
    ("qsa_pack_f32", size_of::<abi::QsaPackArgs>(), 96, 0),
    ("qsa_pack_fp8", size_of::<abi::QsaPackArgs>(), 96, 0),
    ("qsa_pack_q8", size_of::<abi::QsaPackArgs>(), 96, 0),
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
        assert!(kernel.vgprs <= vgprs, "{arch} {name}: {} VGPRs, at most {vgprs} are allowed", kernel.vgprs);
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
