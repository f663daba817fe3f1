//! Writes a model as one GGUF file (spec 5.4), from safetensors or from GGUF, in types of one's choice.
//!
//! Owns: the order of the work, the file beside the file, and the summary.
//! Always true: memory holds small vectors and one piece of a tensor, never the model; the output appears under its name
//! only when it is complete; a mistake in the request is found before a byte is written.
//! Not here: the tensor list (`plan`), which type each gets (`recipe`), the keys (`keys`), block encodings
//! (`weights::format`).

mod keys;
mod plan;
mod recipe;
mod stream;
mod vocabulary;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

pub use recipe::Override;

use super::{load, names};
use crate::arena::host;
use crate::config::{Gate, Shape};
use crate::error::{Error, Result};
use crate::weights::gguf::types;
use crate::weights::gguf::write::{Announced, Layout, Writer};
use crate::weights::{Format, Source};
use plan::Output;

/// What to write.
#[derive(Debug, Clone)]
pub struct Options {
    /// Of every weight matrix that the recipe does not protect and whose rows fit its blocks.
    pub format: Format,
    /// Exceptions; the last that matches counts.
    pub overrides: Vec<Override>,
    /// Whether to write the MTP head. llama.cpp as of late 2026 refuses files that have one.
    pub mtp: bool,
    /// Whether an existing file may be replaced.
    pub overwrite: bool,
}

impl Options {
    /// Everything in one format, head included.
    pub fn new(format: Format) -> Options {
        Options { format, overrides: Vec::new(), mtp: true, overwrite: false }
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Bytes written.
    pub done: u64,
    /// Bytes of the whole file.
    pub total: u64,
    /// The tensor being written.
    pub tensor: &'a str,
}

/// What was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Bytes of the file.
    pub bytes: u64,
    /// By what tensors do, in the file's order.
    pub groups: Vec<GroupSize>,
}

/// Tensors that do the same.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSize {
    /// What they do.
    pub name: &'static str,
    /// How many.
    pub tensors: usize,
    /// Weights in them.
    pub parameters: u64,
    /// Bytes they take.
    pub bytes: u64,
    /// Their types, each once, in order of appearance.
    pub types: Vec<&'static str>,
}

impl GroupSize {
    /// Bits of a weight, on average.
    pub fn bits_per_weight(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.parameters.max(1) as f64
    }
}

impl Summary {
    /// Bits of a weight, on average over all tensors.
    pub fn bits_per_weight(&self) -> f64 {
        let (bytes, parameters) = self.groups.iter().fold((0, 0), |(b, p), g| (b + g.bytes, p + g.parameters));
        bytes as f64 * 8.0 / u64::max(parameters, 1) as f64
    }
}

/// Writes the model of `source` to `out`.
///
/// # Errors
/// `Invalid` for a request that cannot be met (with the tensor or pattern), `InsufficientMemory` if the disk has not
/// enough room, `Model` for a source that is damaged, `Io`.
pub fn quantize(
    source: &Source,
    out: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Summary> {
    let opened = load::open(source)?;
    let shape = &opened.shape;
    check_expressible(shape)?;
    let parameters = names::of(&opened.checkpoint, shape)?;
    let mtp = options.mtp && parameters.has_mtp();
    let outputs = plan::outputs(&*parameters, shape, mtp)?;
    let formats = recipe::formats(&outputs, options.format, &options.overrides)?;
    let tensors = outputs.iter().zip(&formats).map(|(output, &format)| {
        Ok(Announced { name: output.name.clone(), kind: types::of(format)?, shape: output.shape.clone() })
    });
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    let pairs = keys::pairs(source, &*parameters, shape, mtp, options.format)?;
    let layout = Layout { pairs, tensors };
    let partial = prepare(out, layout.bytes(), options.overwrite)?;
    let written = write(&partial, &layout, &outputs, &formats, progress)
        .and_then(|()| fs::rename(&partial, out).map_err(Error::io(format!("cannot rename {}", partial.display()))));
    if let Err(error) = written {
        // Best effort: the first error is the one to tell.
        let _ = fs::remove_file(&partial);
        return Err(error);
    }
    Ok(summary(&layout, &outputs))
}

/// GGUF has no key for these two, and every published model has the one value.
fn check_expressible(shape: &Shape) -> Result<()> {
    let wrong =
        |what: &str| Err(Error::invalid(format!("GGUF cannot express {what}: readers would compute something else")));
    if shape.gdn.gate != Gate::Sigmoid {
        return wrong("an output_gate_type other than sigmoid");
    }
    if !shape.moe.normalise {
        return wrong("norm_topk_prob = false");
    }
    if shape.ple.as_ref().is_some_and(|ple| ple.layers.len() != 1) {
        return wrong("more than one PLE layer");
    }
    if shape.gdn.key_dim != shape.gdn.value_dim {
        return wrong("value heads that are wider than key heads");
    }
    Ok(())
}

/// The name to write under first. Errors before anything is written: the file exists, or there is no room for it.
fn prepare(out: &Path, bytes: u64, overwrite: bool) -> Result<PathBuf> {
    let shown = out.display();
    let Some(name) = out.file_name() else { return Err(Error::invalid(format!("{shown} is not a file name"))) };
    if out.exists() && !overwrite {
        return Err(Error::invalid(format!("{shown} exists: remove it or choose another name")));
    }
    let folder = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(Error::invalid(format!("there is no folder {} to write to", folder.display())));
    }
    let free = host::free_bytes(folder)?;
    if bytes > free {
        return Err(Error::InsufficientMemory(format!(
            "{shown} will have {bytes} bytes and the disk under {} has {free} free: make room or choose a smaller type",
            folder.display()
        )));
    }
    let mut partial = name.to_owned();
    partial.push(".partial");
    Ok(out.with_file_name(partial))
}

fn write(
    partial: &Path,
    layout: &Layout,
    outputs: &[Output],
    formats: &[Format],
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<()> {
    let what = || format!("cannot write {}", partial.display());
    let file = File::create(partial).map_err(Error::io(what()))?;
    let mut writer = Writer::start(layout, BufWriter::with_capacity(1 << 20, file)).map_err(Error::io(what()))?;
    let total = layout.bytes();
    let mut done = layout.header().len() as u64;
    for (output, &format) in outputs.iter().zip(formats) {
        stream::encode(output, format, &mut |bytes| {
            writer.append(&output.name, bytes).map_err(Error::io(what()))?;
            done += bytes.len() as u64;
            progress(Progress { done: done.min(total), total, tensor: &output.name });
            Ok(())
        })?;
    }
    let file = writer.finish()?.into_inner().map_err(|error| Error::io(what())(error.into_error()))?;
    file.sync_all().map_err(Error::io(what()))
}

fn summary(layout: &Layout, outputs: &[Output]) -> Summary {
    let mut groups: Vec<GroupSize> = Vec::new();
    for (tensor, output) in layout.tensors.iter().zip(outputs) {
        let at = groups.iter().position(|group| group.name == output.group).unwrap_or_else(|| {
            let (name, types) = (output.group, Vec::new());
            groups.push(GroupSize { name, tensors: 0, parameters: 0, bytes: 0, types });
            groups.len() - 1
        });
        let group = &mut groups[at];
        group.tensors += 1;
        group.parameters += tensor.shape.iter().map(|&size| size as u64).product::<u64>();
        group.bytes += tensor.bytes();
        if !group.types.contains(&tensor.kind.name) {
            group.types.push(tensor.kind.name);
        }
    }
    Summary { bytes: layout.bytes(), groups }
}
