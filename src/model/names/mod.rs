//! What a parameter of the model is called in a checkpoint, and what was done to it before it was stored.
//!
//! Owns: the one interface through which weights are asked for, whichever kind of file they lie in.
//! Always true: answers are in one convention: norms are multipliers (1 + w), decay is −exp(A_log), taps are tap-major,
//! indexer projections are apart. The names asked for are Hugging Face's, without prefix and layer number. The one
//! difference left is the order of value heads, which `Shape` says (`gdn.head_map`).
//! Not here: which parameters there are (`bind`), where tensors lie (`weights`).

mod gguf;
mod hub;
mod synthetic;

use std::collections::BTreeMap;

pub(crate) use gguf::MIXER;
pub use gguf::{Gguf, block_name};
pub use hub::Hub;
pub use synthetic::Synthetic;

use crate::config::{MoeShape, NgramHash, PleShape, Shape};
use crate::error::{Error, Result};
use crate::weights::{Checkpoint, Expert, Matrix, NgramTable, Tensor};

/// A part of the model that has its own tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Embedding, head, final mixer.
    Trunk,
    /// A decoder layer of the trunk.
    Layer(usize),
    /// Input and final mixer of the MTP head.
    Head,
    /// The decoder layer of the MTP head.
    HeadLayer,
}

/// What a stored tensor is for, as the memory plan counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Read in every step.
    Dense,
    /// A routed expert, or all of a layer of the trunk, and which layer.
    Experts(usize),
    /// The n-gram table.
    Table,
    /// The MTP head.
    Mtp,
    /// Not used: the vision tower.
    Unused,
}

/// Stored bytes by what happens to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Read in every step.
    pub dense: usize,
    /// Routed experts of each of the trunk's layers.
    pub experts: Vec<usize>,
    /// The MTP head, its experts included.
    pub mtp: usize,
    /// The n-gram table.
    pub table: usize,
}

/// The layer that a tensor's name numbers; 0 without one.
fn layer_of(tensor: &str) -> usize {
    tensor.split('.').find_map(|part| part.parse().ok()).unwrap_or(0)
}

/// Answers for every parameter of a checkpoint. Errors name the tensor that is missing or has another shape.
pub trait Parameters {
    /// The checkpoint's tensors.
    fn checkpoint(&self) -> &Checkpoint;
    /// The full name of a tensor in the checkpoint.
    fn name(&self, part: Part, name: &str) -> String;
    /// Whether an MTP head is there.
    fn has_mtp(&self) -> bool;
    /// What a stored tensor is for.
    fn group(&self, tensor: &str) -> Group;
    /// A norm's multiplier, `[width]`.
    fn norm(&self, part: Part, name: &str, width: usize) -> Result<Vec<f32>>;
    /// Depthwise taps, oldest first, `[kernel, channels]`.
    fn taps(&self, part: Part, name: &str, channels: usize, kernel: usize) -> Result<Vec<f32>>;
    /// −exp(A_log), `[heads]`.
    fn decay(&self, part: Part, heads: usize) -> Result<Vec<f32>>;
    /// Indexer projections `[queries, hidden]` and `[keys, hidden]`.
    fn index_projections(&self, part: Part, queries: usize, keys: usize, hidden: usize) -> Result<(Matrix, Matrix)>;
    /// Routed experts, in order.
    fn experts(&self, part: Part, moe: &MoeShape, hidden: usize) -> Result<Vec<Expert>>;
    /// The MTP head's two input matrices, of the embedding and of the hidden state, each `[hidden, hidden]`.
    fn fusion(&self, hidden: usize) -> Result<(Matrix, Matrix)>;
    /// The n-gram table of a PLE layer.
    fn table(&self, part: Part, ple: &PleShape, rows: u64) -> Result<NgramTable>;
    /// The hash constants of a PLE layer as the checkpoint states them, `known` where it does not.
    fn hash(&self, part: Part, ple: &PleShape, known: &NgramHash) -> Result<NgramHash>;

    /// Stored bytes of all that is used.
    fn sizes(&self) -> Sizes {
        let (mut sizes, mut experts) = (Sizes::default(), BTreeMap::<usize, usize>::new());
        for tensor in self.checkpoint().list() {
            match self.group(tensor.name) {
                Group::Dense => sizes.dense += tensor.bytes,
                Group::Experts(layer) => *experts.entry(layer).or_default() += tensor.bytes,
                Group::Table => sizes.table += tensor.bytes,
                Group::Mtp => sizes.mtp += tensor.bytes,
                Group::Unused => {}
            }
        }
        sizes.experts = experts.into_values().collect();
        sizes
    }

    /// A weight matrix `[rows, cols]`.
    fn matrix(&self, part: Part, name: &str, rows: usize, cols: usize) -> Result<Matrix> {
        self.checkpoint().matrix(&self.name(part, name), rows, cols)
    }
    /// A vector used as it is stored.
    fn floats(&self, part: Part, name: &str, width: usize) -> Result<Vec<f32>> {
        self.checkpoint().expect(&self.name(part, name), &[width])?.to_f32()
    }
}

/// The names of a checkpoint whose shape is known.
///
/// # Errors
/// `Model`, if it has no token embedding under any known name.
pub fn of<'a>(checkpoint: &'a Checkpoint, shape: &Shape) -> Result<Box<dyn Parameters + 'a>> {
    match checkpoint.gguf() {
        Some(_) => Ok(Box::new(Gguf::new(checkpoint, shape)?)),
        None => Ok(Box::new(Hub::new(checkpoint, shape)?)),
    }
}

/// Hash constants that cannot fit a model are refused, wherever they come from.
pub fn check_hash(hash: &NgramHash, vocab: usize, place: &str) -> Result<()> {
    let largest_id = (vocab as u64).saturating_sub(1);
    let fits = hash.multipliers.iter().all(|m| m.checked_mul(largest_id).is_some_and(|p| p < 1 << 63));
    let inside = hash
        .head_sizes
        .iter()
        .zip(&hash.head_offsets)
        .all(|(&size, &offset)| size > 0 && offset.checked_add(size).is_some_and(|end| end <= hash.table_rows));
    if fits && inside {
        return Ok(());
    }
    Err(Error::model(format!(
        "the hash constants {place} do not fit a vocabulary of {vocab} and a table of {} rows: weights and config are of \
         different models",
        hash.table_rows
    )))
}

/// Depthwise taps stored `[channels, kernel]` (a dimension of 1 between changes nothing), tap-major.
fn tap_major(stored: &Tensor, channels: usize, kernel: usize) -> Result<Vec<f32>> {
    let values = stored.to_f32()?;
    Ok((0..kernel * channels).map(|i| values[i % channels * kernel + i / channels]).collect())
}
