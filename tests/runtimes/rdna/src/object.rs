//! Code objects: from the ELF that clang writes to kernels that can be launched.
//!
//! Owns: reading sections, metadata and kernel descriptors, and the image in host memory that PC-relative addresses and
//! relocations point into. Always true: what this stand-in cannot execute faithfully (wave64, scratch, hidden arguments,
//! another architecture) is refused here with a sentence.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hip_facade::executor::KernelInfo;
use object::elf::{FileHeader64, PF_W, PT_LOAD};
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::decode::Program;
use crate::isa::Isa;
use crate::memory::Extra;

/// Relocations of the dynamic section that clang and lld emit for data.
const R_AMDGPU_ABS64: u32 = 3;
const R_AMDGPU_RELATIVE64: u32 = 13;
/// Alignment of the image: no section asks for more.
const PAGE: u64 = 4096;

/// What a launch needs to know of a kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// What the host may know.
    pub info: KernelInfo,
    /// Index of its first instruction.
    pub entry: usize,
    /// One past its last.
    pub end: usize,
    /// Scalar registers that the launch fills before the workgroup's ids.
    pub user_scalars: usize,
    /// Scalar register of the argument pointer, if the kernel reads arguments.
    pub arguments_at: Option<usize>,
    /// Which workgroup ids are asked for.
    pub group_ids: [bool; 3],
    /// Which work-item ids are packed into v0: 0 x, 1 x and y, 2 all.
    pub item_ids: u32,
    /// Vector registers to poison before each workgroup.
    pub allocated_vgprs: usize,
    /// F32 denormals: (flushed when read, flushed when written).
    pub flush: (bool, bool),
    /// Whether its results may depend on the order of workgroups.
    pub atomics: bool,
}

/// A loaded code object.
pub struct Code {
    /// `gfx1151` or `gfx1201`.
    pub arch: String,
    /// Its instructions.
    pub program: Program,
    /// By name.
    pub kernels: HashMap<String, Kernel>,
    /// Host address of the code object's address 0.
    pub base: u64,
    /// Its segments, for bounds.
    pub segments: Vec<Extra>,
    /// The memory behind `base`: words that kernels of several threads may touch.
    _image: Vec<AtomicU64>,
}

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// Loads an image for `arch`.
pub fn load(image: &[u8], arch: &str) -> Result<Code, String> {
    let isa = Isa::of(arch)
        .ok_or_else(|| format!("this stand-in executes gfx1151 and gfx1201, not {arch}; set HIPFIRE_STANDIN_ARCH"))?;
    let elf = Elf::parse(image).map_err(|e| format!("the code object is not an ELF file for AMDGPU: {e}"))?;
    if elf.elf_header().e_machine(LittleEndian) != object::elf::EM_AMDGPU {
        return Err("the code object is an ELF file, but not for AMDGPU".into());
    }
    let metadata = metadata(&elf)?;
    let target = text(&metadata, "amdhsa.target").unwrap_or_default();
    if target.rsplit('-').next().and_then(|t| t.split(':').next()) != Some(arch) {
        return Err(format!("the code object is for {target}, and this stand-in imitates {arch}"));
    }
    let (words, base, segments) = image_of(&elf)?;
    let section = elf.section_by_name(".text").ok_or("the code object has no .text section")?;
    let bytes = section.data().map_err(|e| format!("the .text section cannot be read: {e}"))?;
    let described =
        field(&metadata, "amdhsa.kernels").and_then(|k| k.as_array()).ok_or("the metadata lists no kernels")?;
    let mut kernels = Vec::new();
    for entry in described {
        kernels.push(describe(&elf, entry, isa.gfx12)?);
    }
    let flush = kernels.iter().any(|(_, k, _, _)| k.flush.0 || k.flush.1);
    let start = u32::try_from(section.address()).map_err(|_| "the .text section lies above 4 GiB")?;
    let program = Program::new(isa, bytes, start, flush);
    let mut by_name = HashMap::new();
    for (name, mut kernel, pc, size) in kernels {
        kernel.entry = program.at(pc).ok_or_else(|| format!("kernel {name} starts outside the .text section"))?;
        kernel.end = program.at(pc + size).unwrap_or(program.insts.len());
        let body = program.insts.get(kernel.entry..kernel.end).unwrap_or_default();
        kernel.atomics = body.iter().any(|i| i.name.contains("_atomic_"));
        by_name.insert(name, kernel);
    }
    Ok(Code { arch: arch.to_owned(), program, kernels: by_name, base, segments, _image: words })
}

/// Copies the loadable segments to host memory and applies the dynamic relocations.
fn image_of(elf: &Elf<'_>) -> Result<(Vec<AtomicU64>, u64, Vec<Extra>), String> {
    let loads = || elf.elf_program_headers().iter().filter(|h| h.p_type(LittleEndian) == PT_LOAD);
    let size = loads().map(|h| h.p_vaddr(LittleEndian).saturating_add(h.p_memsz(LittleEndian))).max().unwrap_or(0);
    if size > 1 << 30 {
        return Err(format!("the code object asks for {size} bytes of memory, which no kernel of ours needs"));
    }
    let mut bytes = vec![0u8; size as usize];
    let mut segments = Vec::new();
    for header in loads() {
        let (at, file) = (header.p_vaddr(LittleEndian), header.data(LittleEndian, elf.data()));
        let file = file.map_err(|()| "a segment of the code object reaches beyond the file")?;
        bytes
            .get_mut(at as usize..at as usize + file.len())
            .ok_or("a segment is larger than its memory")?
            .copy_from_slice(file);
        let writable = header.p_flags(LittleEndian) & PF_W != 0;
        segments.push(Extra { start: at, end: at + header.p_memsz(LittleEndian), writable });
    }
    let words: Vec<AtomicU64> = (0..size / 8 + PAGE / 4).map(|_| AtomicU64::new(0)).collect();
    let base = (words.as_ptr() as u64).next_multiple_of(PAGE);
    relocate(elf, &mut bytes, base)?;
    let first = ((base - words.as_ptr() as u64) / 8) as usize;
    for (word, chunk) in words[first..].iter().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(whole), Relaxed);
    }
    segments.iter_mut().for_each(|s| (s.start, s.end) = (s.start + base, s.end + base));
    Ok((words, base, segments))
}

fn relocate(elf: &Elf<'_>, bytes: &mut [u8], base: u64) -> Result<(), String> {
    let Some(relocations) = elf.dynamic_relocations() else { return Ok(()) };
    for (at, relocation) in relocations {
        let object::RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        let value = match (r_type, relocation.target()) {
            (R_AMDGPU_RELATIVE64, _) => base.wrapping_add_signed(relocation.addend()),
            (R_AMDGPU_ABS64, object::RelocationTarget::Symbol(index)) => {
                let table = elf.dynamic_symbol_table().ok_or("a relocation names a symbol, and there are none")?;
                let symbol = object::ObjectSymbolTable::symbol_by_index(&table, index).map_err(|e| e.to_string())?;
                base.wrapping_add(symbol.address()).wrapping_add_signed(relocation.addend())
            }
            _ => return Err(format!("the code object has a relocation of type {r_type}, which is not implemented")),
        };
        let cell = bytes.get_mut(at as usize..at as usize + 8).ok_or("a relocation lies outside the image")?;
        cell.copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
}

/// The msgpack map in the AMDGPU note.
fn metadata(elf: &Elf<'_>) -> Result<rmpv::Value, String> {
    let header: &FileHeader64<LittleEndian> = elf.elf_header();
    let sections = header.sections(LittleEndian, elf.data()).map_err(|e| format!("the section table: {e}"))?;
    for section in sections.iter() {
        use object::read::elf::SectionHeader as _;
        let Ok(Some(mut notes)) = section.notes(LittleEndian, elf.data()) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"AMDGPU" && note.n_type(LittleEndian) == 32 {
                let mut bytes = note.desc();
                return rmpv::decode::read_value(&mut bytes)
                    .map_err(|e| format!("the AMDGPU metadata is damaged: {e}"));
            }
        }
    }
    Err("the code object has no AMDGPU metadata note".into())
}

fn field<'a>(map: &'a rmpv::Value, key: &str) -> Option<&'a rmpv::Value> {
    map.as_map()?.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v)
}
fn text(map: &rmpv::Value, key: &str) -> Option<String> {
    field(map, key)?.as_str().map(str::to_owned)
}
fn number(map: &rmpv::Value, key: &str) -> u32 {
    field(map, key).and_then(rmpv::Value::as_u64).map_or(0, |n| n.min(u64::from(u32::MAX)) as u32)
}

/// Kernel, address of its first instruction, and bytes of code.
fn describe(elf: &Elf<'_>, entry: &rmpv::Value, gfx12: bool) -> Result<(String, Kernel, u32, u32), String> {
    let name = text(entry, ".name").ok_or("the metadata has a kernel without a name")?;
    let refuse = |why: String| Err(format!("kernel {name} {why}"));
    let symbol = text(entry, ".symbol").unwrap_or_else(|| format!("{name}.kd"));
    let find = |wanted: &str| elf.symbols().chain(elf.dynamic_symbols()).find(|s| s.name() == Ok(wanted));
    let Some(descriptor_at) = find(&symbol).map(|s| s.address()) else {
        return refuse(format!("has no descriptor {symbol}"));
    };
    let Some(descriptor) = read(elf, descriptor_at, 64) else {
        return refuse(format!("has a descriptor outside the file's data ({descriptor_at:#x})"));
    };
    let word =
        |at: usize| u32::from_le_bytes([descriptor[at], descriptor[at + 1], descriptor[at + 2], descriptor[at + 3]]);
    let (rsrc1, rsrc2, properties, preload) = (word(48), word(52), word(56) & 0xffff, word(56) >> 16);
    let hidden = field(entry, ".args").and_then(|a| a.as_array()).into_iter().flatten();
    if let Some(kind) = hidden.filter_map(|a| text(a, ".value_kind")).find(|k| k.starts_with("hidden")) {
        return refuse(format!("reads the hidden argument {kind}; pass sizes in the argument struct"));
    }
    if properties & 1 << 10 == 0 || number(entry, ".wavefront_size") == 64 {
        return refuse("is compiled for waves of 64 lanes; compile with -mno-wavefrontsize64".into());
    }
    let scratch = word(4).max(number(entry, ".private_segment_fixed_size"));
    if scratch > 0 || rsrc2 & 1 != 0 {
        return refuse(format!("uses {scratch} bytes of scratch a lane; unroll what indexes a private array"));
    }
    if properties & 0x77 & !8 != 0 || preload != 0 {
        return refuse(format!(
            "asks for launch data beside its arguments (properties {properties:#x}, preload {preload:#x})"
        ));
    }
    if rsrc1 >> 12 & 15 != 0 {
        return refuse("starts with a rounding mode other than to nearest even".into());
    }
    let entry_at = descriptor_at.wrapping_add_signed(i64::from_le_bytes([
        descriptor[16],
        descriptor[17],
        descriptor[18],
        descriptor[19],
        descriptor[20],
        descriptor[21],
        descriptor[22],
        descriptor[23],
    ]));
    let Ok(pc) = u32::try_from(entry_at) else { return refuse("starts above 4 GiB".into()) };
    let size = find(&name).map_or(0, |s| s.size() as u32);
    let kernel = Kernel {
        info: KernelInfo {
            kernarg_bytes: number(entry, ".kernarg_segment_size").max(word(8)) as usize,
            max_threads: number(entry, ".max_flat_workgroup_size"),
            lds_bytes: number(entry, ".group_segment_fixed_size").max(word(0)),
            vgprs: number(entry, ".vgpr_count"),
            sgprs: number(entry, ".sgpr_count"),
            scratch_bytes: scratch,
        },
        entry: 0,
        end: 0,
        user_scalars: (rsrc2 >> 1 & 31) as usize,
        arguments_at: (properties & 8 != 0).then_some(0),
        // gfx12 passes all three in trap temporaries.
        group_ids: [rsrc2 >> 7 & 1 != 0 || gfx12, rsrc2 >> 8 & 1 != 0 || gfx12, rsrc2 >> 9 & 1 != 0 || gfx12],
        item_ids: rsrc2 >> 11 & 3,
        // The descriptor counts in eights in wave32.
        allocated_vgprs: (8 * (rsrc1 as usize & 63) + 8).min(256),
        flush: (rsrc1 >> 16 & 1 == 0, rsrc1 >> 17 & 1 == 0),
        atomics: false,
    };
    Ok((name, kernel, pc, size))
}

/// Bytes at an address of the loaded image.
fn read<'a>(elf: &Elf<'a>, at: u64, count: u64) -> Option<&'a [u8]> {
    elf.sections().find_map(|s| s.data_range(at, count).ok().flatten())
}
