//! The decoder against LLVM's disassembler, on the tests' own kernels; those that ship are in the program's `kernel_gates`.

mod support;

use support::{TARGETS, compile, decoded, probe};

#[test]
#[cfg_attr(not(all(has_clang, has_objdump)), ignore = "clang-22 or llvm-objdump-22 is not installed")]
fn every_instruction_of_our_probes_decodes_to_the_mnemonic_and_size_that_llvm_prints() {
    let (mut compared, mut without) = (0, std::collections::BTreeMap::new());
    let sources = std::fs::read_dir(probe("")).unwrap().map(|entry| entry.unwrap().path());
    for source in sources.filter(|path| path.extension().is_some_and(|extension| extension == "hip")) {
        for target in TARGETS {
            let name = source.display().to_string();
            compared += decoded::compare(&name, &compile(&source, target), target, &mut without);
        }
    }
    assert!(compared > 1000, "{compared} instructions compared");
    assert!(without.is_empty(), "instructions without semantics: {without:?}");
}

#[test]
fn every_line_of_semantics_names_an_instruction_that_exists() {
    let known: std::collections::HashSet<_> =
        TARGETS.iter().flat_map(|t| hip_rdna::isa::Isa::of(t).unwrap().names()).collect();
    let unknown: Vec<_> =
        hip_rdna::semantics::names().filter(|n| !known.contains(n.trim_end_matches(" clamp"))).collect();
    assert!(unknown.is_empty(), "in no opcode table: {unknown:?}");
}
