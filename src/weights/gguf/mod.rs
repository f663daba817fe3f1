//! GGUF files, read and written (spec, section 5.4).
//!
//! Owns: which files make a model, the header of each, the vocabulary inside, and a streaming writer.
//! Always true: opening reads headers only; every check of a header is made before a tensor can be asked for.
//! Not here: names and meaning of tensors (`model::names`), of keys (`model::config_gguf`), of blocks (`format`).

pub mod metadata;
pub mod read;
pub mod sets;
pub mod types;
pub mod vocabulary;
pub mod write;

use std::collections::BTreeMap;

pub use metadata::Metadata;
pub use vocabulary::Vocabulary;

use super::checkpoint::{Checkpoint, Stored};
use super::{Bytes, Source};
use crate::error::{Error, Result};
use read::{Entry, Header};

/// `general.architecture` of the model.
pub const ARCHITECTURE: &str = "qwen4exp";
/// Names that the n-gram table goes by.
pub const TABLE_NAMES: [&str; 3] = ["per_layer_token_embd.weight", "ple.weight", "ple_ngram_embd.weight"];

/// Reads the headers of a model's GGUF files: its parts, then files beside them for what the parts lack. A table that
/// the parts do not have is looked for in the folder's other GGUF files.
pub(super) fn open(source: &Source) -> Result<Checkpoint> {
    let mut checkpoint = Checkpoint::empty(source);
    let parts = source.gguf_parts();
    let mut tensors = 0;
    for (i, name) in parts.iter().enumerate() {
        let bytes = needed(source, name)?;
        let Header { metadata, tensors: entries } = read::header(name, &bytes)?;
        check_split(&metadata, i, parts.len())?;
        tensors += entries.len();
        if i == 0 {
            check_architecture(&metadata)?;
            checkpoint.set_gguf(metadata);
        }
        add(&mut checkpoint, name, bytes, entries)?;
    }
    let Some(metadata) = checkpoint.gguf().cloned() else {
        return Err(Error::model(format!("{} has no GGUF files", source.name())));
    };
    if let Some(expected) = metadata.integer("split.tensors.count")?.filter(|&expected| expected != tensors as u64) {
        let why = format!("is {expected}, and the {} files have {tensors} tensors; download them again", parts.len());
        return Err(metadata.wrong("split.tensors.count", why));
    }
    for name in source.gguf_sidecars() {
        let bytes = needed(source, name)?;
        let mut header = read::header(name, &bytes)?;
        // A head's own file repeats the embedding it shares with the trunk.
        header.tensors.retain(|entry| !checkpoint.contains(&entry.name));
        add(&mut checkpoint, name, bytes, header.tensors)?;
    }
    let has_table = |checkpoint: &Checkpoint| TABLE_NAMES.iter().any(|name| checkpoint.contains(name));
    let wants_table = metadata.contains(&format!("{ARCHITECTURE}.ple.layers"));
    if wants_table && !has_table(&checkpoint) {
        find_table(source, &mut checkpoint)?;
    }
    Ok(checkpoint)
}

/// Adds the n-gram table from the one other GGUF file of the folder that has it.
fn find_table(source: &Source, checkpoint: &mut Checkpoint) -> Result<()> {
    let mut found = Vec::new();
    let others = source.other_gguf_files()?;
    for name in &others {
        // Whatever else lies in the folder may be broken without harm to this model.
        let Some(bytes) = source.beside(name)? else { continue };
        let Ok(mut header) = read::header(name, &bytes) else { continue };
        header.tensors.retain(|entry| TABLE_NAMES.contains(&entry.name.as_str()));
        if !header.tensors.is_empty() {
            found.push((name.clone(), bytes, header.tensors));
        }
    }
    match found.len() {
        0 => Err(Error::model(format!(
            "{} has no n-gram table: neither its own files nor one of the {} other GGUF files beside them have a tensor \
             called {}",
            source.name(),
            others.len(),
            TABLE_NAMES.join(", ")
        ))),
        1 => found.into_iter().try_for_each(|(name, bytes, tensors)| add(checkpoint, &name, bytes, tensors)),
        _ => {
            let names: Vec<String> = found.into_iter().map(|(name, ..)| name).collect();
            Err(Error::model(format!(
                "{} has its n-gram table in several files beside it ({}): keep one in the folder",
                source.name(),
                names.join(", ")
            )))
        }
    }
}

fn needed(source: &Source, name: &str) -> Result<Bytes> {
    source.file(name)?.ok_or_else(|| {
        Error::model(format!("{} is not complete: its file {name} is missing; download it", source.name()))
    })
}

fn add(checkpoint: &mut Checkpoint, name: &str, bytes: Bytes, entries: Vec<Entry>) -> Result<()> {
    let tensors = entries.into_iter().map(|entry| {
        let Entry { name, kind, shape, start, end } = entry;
        (name, Stored { file: 0, dtype: kind.name.into(), format: kind.format, shape, start, end })
    });
    checkpoint.add(name.into(), bytes, BTreeMap::new(), tensors)
}

fn check_architecture(metadata: &Metadata) -> Result<()> {
    const KEY: &str = "general.architecture";
    match metadata.text(KEY)? {
        Some(ARCHITECTURE) => Ok(()),
        Some(other) => {
            let why = format!("is \"{other}\"; hipfire runs {ARCHITECTURE} (Qwen3.8 Flash-Next) only");
            Err(metadata.wrong(KEY, why))
        }
        None => Err(metadata.wrong(KEY, format!("is missing; hipfire runs {ARCHITECTURE} (Qwen3.8 Flash-Next) only"))),
    }
}

/// What a part says about itself is what its name says.
fn check_split(metadata: &Metadata, part: usize, parts: usize) -> Result<()> {
    for (key, ours) in [("split.no", part), ("split.count", parts)] {
        // llama.cpp writes a count of 1 or 0 into a file that is not split.
        let single = parts == 1 && key == "split.count";
        match metadata.integer(key)? {
            None if parts == 1 => {}
            Some(0) if single => {}
            Some(value) if value == ours as u64 => {}
            Some(value) => {
                let why = format!(
                    "is {value}, and by its name the file is number {part} (from 0) of {parts}; name the \
                     files as they were published"
                );
                return Err(metadata.wrong(key, why));
            }
            None => return Err(metadata.wrong(key, "is missing; it is not a part of a split model")),
        }
    }
    Ok(())
}
