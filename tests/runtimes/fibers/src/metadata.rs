//! What an AMDGPU code object says of its kernels (the note `NT_AMDGPU_METADATA`, in MessagePack).
//!
//! Always true: damaged input is a sentence. Not here: its machine code, which this stand-in never looks at.

use hip_facade::executor::KernelInfo;
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};
use rmpv::Value;

/// Type of the note; its owner is "AMDGPU".
const NT_AMDGPU_METADATA: u32 = 32;

/// A kernel of a code object.
pub struct Kernel {
    pub name: String,
    /// Bytes of the explicit arguments: hidden ones may follow in the segment.
    pub argument_bytes: usize,
    pub info: KernelInfo,
}

/// The kernels of a code object.
pub fn kernels(image: &[u8]) -> Result<Vec<Kernel>, String> {
    let damaged = |error: object::Error| format!("the code object is not an ELF file that can be read: {error}");
    let header = FileHeader64::<LittleEndian>::parse(image).map_err(damaged)?;
    let sections = header.sections(LittleEndian, image).map_err(damaged)?;
    for section in sections.iter() {
        let Some(mut notes) = section.notes(LittleEndian, image).map_err(damaged)? else { continue };
        while let Some(note) = notes.next().map_err(damaged)? {
            if note.n_type(LittleEndian) != NT_AMDGPU_METADATA || note.name() != b"AMDGPU" {
                continue;
            }
            let metadata = rmpv::decode::read_value(&mut note.desc())
                .map_err(|error| format!("the code object's metadata is damaged: {error}"))?;
            let list = field(&metadata, "amdhsa.kernels").and_then(Value::as_array);
            return list.ok_or("the code object's metadata lists no kernels")?.iter().map(kernel).collect();
        }
    }
    Err("the code object has no AMDGPU metadata: is it an image for an AMD card?".into())
}

fn field<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
}

fn number(map: &Value, key: &str) -> Result<u32, String> {
    let value = field(map, key).and_then(Value::as_u64).and_then(|value| u32::try_from(value).ok());
    value.ok_or_else(|| format!("the code object's metadata has no {key} for a kernel"))
}

fn kernel(map: &Value) -> Result<Kernel, String> {
    let name = field(map, ".name").and_then(Value::as_str).ok_or("the code object has a kernel without a name")?;
    let mut argument_bytes = 0;
    for argument in field(map, ".args").and_then(Value::as_array).into_iter().flatten() {
        let hidden =
            field(argument, ".value_kind").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("hidden_"));
        if !hidden {
            let end = u64::from(number(argument, ".offset")?) + u64::from(number(argument, ".size")?);
            argument_bytes = argument_bytes.max(usize::try_from(end).unwrap_or(usize::MAX));
        }
    }
    Ok(Kernel {
        name: name.to_string(),
        argument_bytes,
        info: KernelInfo {
            kernarg_bytes: number(map, ".kernarg_segment_size")? as usize,
            max_threads: number(map, ".max_flat_workgroup_size")?,
            lds_bytes: number(map, ".group_segment_fixed_size")?,
            vgprs: number(map, ".vgpr_count")?,
            sgprs: number(map, ".sgpr_count")?,
            scratch_bytes: number(map, ".private_segment_fixed_size")?,
        },
    })
}
