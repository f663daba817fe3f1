//! The decoder against LLVM's disassembler, for the tests of this crate and of the program whose kernels ship.

use std::collections::BTreeMap;
use std::process::Command;

use hip_rdna::{inst, object, semantics};

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

/// Compares mnemonic and size of every instruction of a code object, at every address; says how many they are. `without`
/// counts those that have no semantics, by name.
pub fn compare(name: &str, image: &[u8], target: &str, without: &mut BTreeMap<String, usize>) -> usize {
    let code = object::load(image, target).unwrap();
    let insts = &code.program.insts;
    let lines = disassemble(image);
    for (n, (address, expected)) in lines.iter().enumerate() {
        let at = format!("{name} {target} {address:#x}");
        let first = code.program.at(*address).unwrap_or_else(|| panic!("{at}: nothing decoded, {expected}"));
        let inst = &insts[first];
        let mut parts: Vec<_> = insts[first..].iter().take_while(|i| i.pc == *address).filter(|i| i.part < 2).collect();
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
            if part.run as usize == semantics::unknown as inst::Handler as usize {
                *without.entry(part.name.to_owned()).or_default() += 1;
            }
        }
    }
    lines.len()
}
