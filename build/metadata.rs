//! Reads what a code object says of its kernels: the msgpack note of AMDGPU ELF files (code object 5 and 6).

use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{Endianness, elf};
use rmpv::Value;

use crate::manifest::Kernel;

/// Note type of the kernels' metadata (LLVM's AMDGPU usage guide).
const NT_AMDGPU_METADATA: u32 = 32;

/// The kernels of a code object, by name. Hidden arguments are refused: a kernel that has them reads sizes that
/// nobody passes.
pub fn kernels(bytes: &[u8]) -> Result<Vec<Kernel>, String> {
    let metadata = note(bytes)?;
    let list = get(&metadata, "amdhsa.kernels").and_then(Value::as_array).ok_or("the metadata lists no kernels")?;
    let mut kernels = list.iter().map(kernel).collect::<Result<Vec<_>, String>>()?;
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(kernels)
}

fn kernel(entry: &Value) -> Result<Kernel, String> {
    let name = get(entry, ".name").and_then(Value::as_str).ok_or("a kernel has no name")?.to_string();
    let number = |key: &str| {
        let value = get(entry, key).and_then(Value::as_u64).and_then(|value| u32::try_from(value).ok());
        value.ok_or_else(|| format!("kernel {name}: the metadata has no {key}"))
    };
    let arguments = get(entry, ".args").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if let Some(hidden) = arguments.iter().find_map(|argument| {
        get(argument, ".value_kind").and_then(Value::as_str).filter(|kind| kind.starts_with("hidden_"))
    }) {
        return Err(format!("kernel {name} uses the hidden argument {hidden}: pass sizes in its struct instead"));
    }
    if number(".wavefront_size")? != 32 {
        return Err(format!("kernel {name} is not built for waves of 32"));
    }
    Ok(Kernel {
        threads: number(".max_flat_workgroup_size")?,
        kernarg_bytes: number(".kernarg_segment_size")?,
        vgprs: number(".vgpr_count")?,
        sgprs: number(".sgpr_count")?,
        lds_bytes: number(".group_segment_fixed_size")?,
        scratch_bytes: number(".private_segment_fixed_size")?,
        vgpr_spills: number(".vgpr_spill_count")?,
        sgpr_spills: number(".sgpr_spill_count")?,
        proof: None,
        name,
    })
}

/// The decoded note.
fn note(bytes: &[u8]) -> Result<Value, String> {
    let file = ElfFile64::<Endianness>::parse(bytes).map_err(|e| e.to_string())?;
    let (header, endian) = (file.elf_header(), file.endian());
    if header.e_machine(endian) != elf::EM_AMDGPU {
        return Err("not an AMDGPU code object".into());
    }
    for section in header.sections(endian, bytes).map_err(|e| e.to_string())?.iter() {
        let Some(mut notes) = section.notes(endian, bytes).map_err(|e| e.to_string())? else { continue };
        while let Some(note) = notes.next().map_err(|e| e.to_string())? {
            if note.name() == b"AMDGPU" && note.n_type(endian) == NT_AMDGPU_METADATA {
                return rmpv::decode::read_value(&mut note.desc()).map_err(|e| e.to_string());
            }
        }
    }
    Err("the code object has no metadata".into())
}

fn get<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
}
