//! The decoder against LLVM's disassembler: every instruction of every code object, mnemonic and size at every address.

mod support;

use std::path::PathBuf;
use std::process::Command;

use hip_rdna::object;
use support::{TARGETS, compile, probe, shipped};

/// Everything that compiles: what ships and the tests' own kernels.
fn sources() -> Vec<PathBuf> {
    let mut sources: Vec<_> = [shipped(), probe("")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "hip"))
        .collect();
    sources.sort();
    assert!(!sources.is_empty());
    sources
}

/// (address, mnemonic without encoding suffix, dual halves joined) of each line.
fn disassemble(image: &[u8]) -> Vec<(u32, String)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    let out = Command::new("llvm-objdump-22").arg("-d").arg(file.path()).output().unwrap();
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    let strip = |name: &str| {
        let suffix = ["_e64_dpp", "_e32", "_e64", "_dpp"].into_iter().find(|s| name.ends_with(s)).unwrap_or("");
        name[..name.len() - suffix.len()].replace("v_dual_", "v_")
    };
    text.lines()
        .filter_map(|line| {
            let (code, comment) = line.split_once("//")?;
            let address = u32::from_str_radix(comment.trim().split(':').next()?, 16).ok()?;
            let names: Vec<_> = code.split("::").filter_map(|part| part.split_whitespace().next()).map(strip).collect();
            Some((address, names.join(" :: ")))
        })
        .collect()
}

#[test]
#[cfg_attr(not(all(has_clang, has_objdump)), ignore = "clang-22 or llvm-objdump-22 is not installed")]
fn every_instruction_decodes_to_the_mnemonic_and_size_that_llvm_prints() {
    let (mut compared, mut without) = (0, std::collections::BTreeMap::<String, usize>::new());
    for target in TARGETS {
        for source in sources() {
            let image = compile(&source, target);
            let code = object::load(&image, target).unwrap();
            let insts = &code.program.insts;
            let lines = disassemble(&image);
            for (n, (address, expected)) in lines.iter().enumerate() {
                let at = format!("{} {target} {address:#x}", source.display());
                let first = code.program.at(*address).unwrap_or_else(|| panic!("{at}: nothing decoded, {expected}"));
                let inst = &insts[first];
                let mut parts: Vec<_> =
                    insts[first..].iter().take_while(|i| i.pc == *address).filter(|i| i.part < 2).collect();
                // A dual issue may be executed in the other order.
                parts.sort_by_key(|i| expected.find(i.name).unwrap_or(usize::MAX));
                let names: Vec<_> = parts.iter().map(|i| i.name).collect();
                assert!(
                    names.join(" :: ") == *expected || (names.len() == 2 && names[0] == names[1]),
                    "{at}: {names:?}, LLVM says {expected}"
                );
                if let Some((next, _)) = lines.get(n + 1)
                    && !expected.starts_with("s_code_end")
                {
                    assert_eq!(address + u32::from(inst.size), *next, "{at}: size of {expected}");
                }
                for part in parts {
                    if part.run as usize == hip_rdna::semantics::unknown as hip_rdna::inst::Handler as usize {
                        *without.entry(part.name.to_owned()).or_default() += 1;
                    }
                }
                compared += 1;
            }
        }
    }
    println!("{compared} instructions compared");
    assert!(without.is_empty(), "instructions of our code objects without semantics: {without:?}");
}

#[test]
fn every_line_of_semantics_names_an_instruction_that_exists() {
    let known: std::collections::HashSet<_> =
        TARGETS.iter().flat_map(|t| hip_rdna::isa::Isa::of(t).unwrap().names()).collect();
    let unknown: Vec<_> =
        hip_rdna::semantics::names().filter(|n| !known.contains(n.trim_end_matches(" clamp"))).collect();
    assert!(unknown.is_empty(), "in no opcode table: {unknown:?}");
}
