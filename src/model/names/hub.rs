//! Names and conventions of Hugging Face checkpoints (spec 5.1, 5.2).
//!
//! Owns: the prefixes, and what turns a stored tensor into the convention of `names`.
//! Always true: nothing is pre-applied in these files; value heads are in grouped order.
//! Not here: GGUF (`gguf`), storage layouts of experts and table (`weights`).

use super::{Group, Parameters, Part, tap_major};
use crate::config::{MoeShape, NgramHash, PleShape, Shape};
use crate::error::{Error, Result};
use crate::weights::{Checkpoint, Expert, Experts, Matrix, NgramTable};

const TRUNK_PREFIXES: [&str; 4] = ["model.language_model.", "model.", "language_model.", ""];
const MTP_PREFIXES: [&str; 4] = ["mtp.", "model.mtp.", "language_model.mtp.", "model.language_model.mtp."];

/// A safetensors checkpoint.
pub struct Hub<'a> {
    checkpoint: &'a Checkpoint,
    prefix: &'static str,
    mtp: Option<&'static str>,
    tied_head: bool,
}

impl<'a> Hub<'a> {
    /// Finds the prefixes.
    ///
    /// # Errors
    /// `Model`, if no known prefix has a token embedding.
    pub fn new(checkpoint: &'a Checkpoint, shape: &Shape) -> Result<Hub<'a>> {
        let has = |prefix: &str, name: &str| checkpoint.contains(&format!("{prefix}{name}"));
        let prefix = TRUNK_PREFIXES.into_iter().find(|prefix| has(prefix, "embed_tokens.weight")).ok_or_else(|| {
            Error::model(format!(
                "{} has no tensor 'model.language_model.embed_tokens.weight' (nor under the prefixes 'model.', \
                 'language_model.' or none): it is not a qwen4_exp checkpoint",
                checkpoint.name()
            ))
        })?;
        let mtp = MTP_PREFIXES.into_iter().find(|prefix| has(prefix, "fc_hidden.weight"));
        Ok(Hub { checkpoint, prefix, mtp, tied_head: shape.tied_head })
    }

    fn place(&self, layer: Part) -> String {
        self.name(layer, "ple.ple_embedding.")
    }

    fn integers(&self, name: &str, count: usize) -> Result<Option<Vec<u64>>> {
        if !self.checkpoint.contains(name) {
            return Ok(None);
        }
        let values = self.checkpoint.expect(name, &[count])?.to_i64()?;
        let wrong = |v: &i64| Error::model(format!("tensor '{name}' holds {v}; hash constants are not negative"));
        values.iter().map(|v| u64::try_from(*v).map_err(|_| wrong(v))).collect::<Result<Vec<_>>>().map(Some)
    }
}

impl Parameters for Hub<'_> {
    fn checkpoint(&self) -> &Checkpoint {
        self.checkpoint
    }

    fn name(&self, part: Part, name: &str) -> String {
        let (prefix, mtp) = (self.prefix, self.mtp.unwrap_or(MTP_PREFIXES[0]));
        match part {
            Part::Trunk if name == "lm_head.weight" => match self.tied_head {
                true => format!("{prefix}embed_tokens.weight"),
                // On the hub the head lies outside the language model's prefix.
                false => [name.to_owned(), format!("{prefix}{name}")]
                    .into_iter()
                    .find(|full| self.checkpoint.contains(full))
                    .unwrap_or_else(|| name.to_owned()),
            },
            Part::Trunk => format!("{prefix}{name}"),
            Part::Layer(i) => format!("{prefix}layers.{i}.{name}"),
            Part::Head => format!("{mtp}{name}"),
            Part::HeadLayer => format!("{mtp}layers.0.{name}"),
        }
    }

    fn has_mtp(&self) -> bool {
        self.mtp.is_some()
    }

    fn group(&self, tensor: &str) -> Group {
        if tensor.contains(".visual.") || tensor.starts_with("visual.") {
            Group::Unused
        } else if tensor.contains("ngram_embedding.") {
            Group::Table
        } else if self.mtp.is_some_and(|prefix| tensor.starts_with(prefix)) {
            Group::Mtp
        } else if tensor.contains(".experts.") {
            Group::Experts(super::layer_of(tensor))
        } else {
            Group::Dense
        }
    }

    fn norm(&self, part: Part, name: &str, width: usize) -> Result<Vec<f32>> {
        Ok(self.floats(part, name, width)?.into_iter().map(|w| 1.0 + w).collect())
    }

    fn taps(&self, part: Part, name: &str, channels: usize, kernel: usize) -> Result<Vec<f32>> {
        tap_major(&self.checkpoint.expect(&self.name(part, name), &[channels, 1, kernel])?, channels, kernel)
    }

    fn decay(&self, part: Part, heads: usize) -> Result<Vec<f32>> {
        Ok(self.floats(part, "linear_attn.A_log", heads)?.into_iter().map(|a| -a.exp()).collect())
    }

    fn index_projections(&self, part: Part, queries: usize, keys: usize, hidden: usize) -> Result<(Matrix, Matrix)> {
        let name = self.name(part, "self_attn.indexer.index_qk_proj.weight");
        let joint = self.checkpoint.matrix(&name, queries + keys, hidden)?;
        let short = || Error::model(format!("tensor '{name}' is too short"));
        let both = joint.sub_rows(0..queries).zip(joint.sub_rows(queries..queries + keys));
        both.ok_or_else(short)
    }

    fn experts(&self, part: Part, moe: &MoeShape, hidden: usize) -> Result<Vec<Expert>> {
        Experts::load(self.checkpoint, &self.name(part, "mlp."), moe, hidden)
    }

    fn fusion(&self, hidden: usize) -> Result<(Matrix, Matrix)> {
        let matrix = |name| self.matrix(Part::Head, name, hidden, hidden);
        Ok((matrix("fc_embedding.weight")?, matrix("fc_hidden.weight")?))
    }

    fn table(&self, part: Part, ple: &PleShape, rows: u64) -> Result<NgramTable> {
        NgramTable::load(self.checkpoint, &self.place(part), rows, ple.row_dim())
    }

    fn hash(&self, part: Part, ple: &PleShape, known: &NgramHash) -> Result<NgramHash> {
        let place = self.place(part);
        let get = |name: &str, count, known: &Vec<u64>| -> Result<Vec<u64>> {
            Ok(self.integers(&format!("{place}{name}"), count)?.unwrap_or_else(|| known.clone()))
        };
        Ok(NgramHash {
            multipliers: get("layer_multipliers", ple.ngram, &known.multipliers)?,
            head_sizes: get("ngram_heads_vocab_sizes", ple.heads(), &known.head_sizes)?,
            head_offsets: get("ngram_heads_offsets", ple.heads(), &known.head_offsets)?,
            table_rows: known.table_rows,
        })
    }
}
