//! Names and conventions of GGUF files (spec 5.4).
//!
//! Owns: the dictionary between Hugging Face's names and GGUF's, the dialects of the MTP block, the table's names.
//! Always true: norms and decay are stored as they are used and answered unchanged, but for the head's two input norms,
//! whose convention is told by their mean; value heads are in tiled order.
//! Not here: the order of value heads and the hash constants (`config_gguf` puts them into the `Shape`).

use super::{Group, Parameters, Part, tap_major};
use crate::config::{MoeShape, NgramHash, PleShape, Shape};
use crate::error::{Error, Result};
use crate::weights::gguf::TABLE_NAMES;
use crate::weights::{Checkpoint, Expert, Experts, Matrix, NgramTable, Tensor};

/// Tensors of a layer: Hugging Face's name, GGUF's name after `blk.N.`
const LAYER: [(&str, &str); 39] = [
    ("attn_hyper_connection.hc_norm.weight", "hc_attn_norm.weight"),
    ("attn_hyper_connection.input_mix_weight_down.weight", "hc_attn_down.weight"),
    ("attn_hyper_connection.input_mix_weight_up.weight", "hc_attn_up.weight"),
    ("attn_hyper_connection.block_inject_weight.weight", "hc_attn_inject.weight"),
    ("mlp_hyper_connection.hc_norm.weight", "hc_ffn_norm.weight"),
    ("mlp_hyper_connection.input_mix_weight_down.weight", "hc_ffn_down.weight"),
    ("mlp_hyper_connection.input_mix_weight_up.weight", "hc_ffn_up.weight"),
    ("mlp_hyper_connection.block_inject_weight.weight", "hc_ffn_inject.weight"),
    ("linear_attn.in_proj_qkv.weight", "attn_qkv.weight"),
    ("linear_attn.in_proj_z.weight", "attn_gate.weight"),
    ("linear_attn.in_proj_b.weight", "ssm_beta.weight"),
    ("linear_attn.in_proj_a.weight", "ssm_alpha.weight"),
    ("linear_attn.A_log", "ssm_a"),
    ("linear_attn.dt_bias", "ssm_dt.bias"),
    ("linear_attn.conv1d.weight", "ssm_conv1d.weight"),
    ("linear_attn.norm.weight", "ssm_norm.weight"),
    ("linear_attn.out_proj.weight", "ssm_out.weight"),
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    ("self_attn.indexer.q_layernorm.weight", "indexer.q_norm.weight"),
    ("self_attn.indexer.k_layernorm.weight", "indexer.k_norm.weight"),
    ("mlp.gate.weight", "ffn_gate_inp.weight"),
    ("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"),
    ("mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"),
    ("mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"),
    ("mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"),
    ("ple.key_proj.weight", "ple_key.weight"),
    ("ple.value_proj.weight", "ple_value.weight"),
    ("ple.norm_key.weight", "ple_norm_key.weight"),
    ("ple.norm_query.weight", "ple_norm_query.weight"),
    ("ple.norm_conv.weight", "ple_norm_conv.weight"),
    ("ple.conv1d.weight", "ple_conv1d.weight"),
    // Where the head's input and mixer lie, upstream's spelling first (see `HEAD`).
    ("pre_fc_norm_embedding.weight", "nextn.enorm.weight"),
    ("pre_fc_norm_hidden.weight", "nextn.hnorm.weight"),
    ("fc_embedding.weight", "nextn.eh_proj.weight"),
];

/// A final mixer: Hugging Face's name, GGUF's after `output_` in the trunk and after `nextn.` in the head.
pub(crate) const MIXER: [(&str, &str, &str); 3] = [
    ("hyper_connection_mixer.hc_norm.weight", "output_hc_norm.weight", "nextn.hc_head_norm.weight"),
    ("hyper_connection_mixer.input_mix_weight_down.weight", "output_hc_down.weight", "nextn.hc_head_down.weight"),
    ("hyper_connection_mixer.input_mix_weight_up.weight", "output_hc_up.weight", "nextn.hc_head_up.weight"),
];

/// Input matrices of the head in dialects that keep them apart: of the embedding, of the hidden state.
const APART: [(&str, &str); 3] = [
    ("nextn.fc_embd.weight", "nextn.fc_hidden.weight"),
    ("nextn.fc_embedding.weight", "nextn.fc_hidden.weight"),
    ("mtp.fc_embd.weight", "mtp.fc_hidden.weight"),
];
const JOINED: &str = "nextn.eh_proj.weight";

/// GGUF's name of a layer's tensor, after `blk.N.`
pub fn block_name(name: &str) -> &str {
    LAYER.iter().find(|(hub, _)| *hub == name).map_or(name, |(_, gguf)| gguf)
}

/// A GGUF checkpoint.
pub struct Gguf<'a> {
    checkpoint: &'a Checkpoint,
    tied_head: bool,
    /// Number of the MTP block: it follows the trunk.
    head: usize,
}

impl<'a> Gguf<'a> {
    /// The names of a checkpoint with this shape.
    ///
    /// # Errors
    /// `Model`, if there is no token embedding.
    pub fn new(checkpoint: &'a Checkpoint, shape: &Shape) -> Result<Gguf<'a>> {
        if !checkpoint.contains("token_embd.weight") {
            return Err(Error::model(format!("{} has no tensor 'token_embd.weight'", checkpoint.name())));
        }
        Ok(Gguf { checkpoint, tied_head: shape.tied_head, head: shape.layers.len() })
    }

    fn block(&self, part: Part) -> String {
        match part {
            Part::Layer(i) => format!("blk.{i}."),
            _ => format!("blk.{}.", self.head),
        }
    }

    /// The first of these names that the head's block has.
    fn of_head<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
        let block = self.block(Part::Head);
        names.into_iter().map(|name| format!("{block}{name}")).find(|name| self.checkpoint.contains(name))
    }

    fn head_mixer(&self, trunk: &str, head: &str) -> String {
        // One fork drops "head_"; early files have no mixer of the head and use the trunk's.
        let short = head.replace("hc_head_", "hc_");
        let bare = short.replace("nextn.", "");
        self.of_head([head, &short, &bare]).unwrap_or_else(|| match self.checkpoint.contains(trunk) {
            true => trunk.to_owned(),
            false => format!("{}{head}", self.block(Part::Head)),
        })
    }

    /// The tensor of this name whose dimensions other than 1 are those of `shape`.
    fn squeezed(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let large = |shape: &[usize]| shape.iter().copied().filter(|&size| size != 1).collect::<Vec<_>>();
        match self.checkpoint.get(name)? {
            Some(tensor) if large(&tensor.shape) == large(shape) => Ok(Tensor { shape: shape.to_vec(), ..tensor }),
            _ => self.checkpoint.expect(name, shape),
        }
    }

    /// A vector, which some writers shape as a matrix of streams.
    fn flat(&self, name: &str, width: usize) -> Result<Vec<f32>> {
        match self.checkpoint.get(name)? {
            Some(tensor) if tensor.len() == width => tensor.to_f32(),
            _ => self.checkpoint.expect(name, &[width])?.to_f32(),
        }
    }
}

impl Parameters for Gguf<'_> {
    fn checkpoint(&self) -> &Checkpoint {
        self.checkpoint
    }

    fn name(&self, part: Part, name: &str) -> String {
        let mixer = MIXER.iter().find(|(hub, ..)| *hub == name);
        match (part, name, mixer) {
            (Part::Trunk, "embed_tokens.weight", _) => "token_embd.weight".into(),
            (Part::Trunk, "lm_head.weight", _) if self.tied_head => "token_embd.weight".into(),
            (Part::Trunk, "lm_head.weight", _) => "output.weight".into(),
            (Part::Trunk, _, Some((_, trunk, _))) => (*trunk).into(),
            (Part::Head, _, Some((_, trunk, head))) => self.head_mixer(trunk, head),
            _ => format!("{}{}", self.block(part), block_name(name)),
        }
    }

    fn has_mtp(&self) -> bool {
        self.of_head([JOINED]).is_some() || self.of_head(APART.map(|(_, hidden)| hidden)).is_some()
    }

    fn group(&self, tensor: &str) -> Group {
        if TABLE_NAMES.contains(&tensor) {
            Group::Table
        } else if tensor.starts_with(&self.block(Part::Head)) {
            Group::Mtp
        } else if tensor.contains("_exps.") {
            Group::Experts(super::layer_of(tensor))
        } else {
            Group::Dense
        }
    }

    fn matrix(&self, part: Part, name: &str, rows: usize, cols: usize) -> Result<Matrix> {
        self.squeezed(&self.name(part, name), &[rows, cols])?.to_matrix()
    }

    fn floats(&self, part: Part, name: &str, width: usize) -> Result<Vec<f32>> {
        self.flat(&self.name(part, name), width)
    }

    fn norm(&self, part: Part, name: &str, width: usize) -> Result<Vec<f32>> {
        let mut values = self.floats(part, name, width)?;
        if name.starts_with("pre_fc_norm") {
            // Not every dialect adds 1 to these two. Trained weights stay well within 0.5 of their start, which is 0.
            let mean = values.iter().map(|&w| f64::from(w)).sum::<f64>() / width as f64;
            if mean < 0.5 {
                values.iter_mut().for_each(|w| *w += 1.0);
            }
        }
        Ok(values)
    }

    fn taps(&self, part: Part, name: &str, channels: usize, kernel: usize) -> Result<Vec<f32>> {
        tap_major(&self.squeezed(&self.name(part, name), &[channels, kernel])?, channels, kernel)
    }

    fn decay(&self, part: Part, heads: usize) -> Result<Vec<f32>> {
        self.floats(part, "linear_attn.A_log", heads)
    }

    fn index_projections(&self, part: Part, queries: usize, keys: usize, hidden: usize) -> Result<(Matrix, Matrix)> {
        let block = self.block(part);
        let matrix = |name: &str, rows| self.squeezed(&format!("{block}{name}"), &[rows, hidden])?.to_matrix();
        Ok((matrix("indexer.q_proj.weight", queries)?, matrix("indexer.k_proj.weight", keys)?))
    }

    fn experts(&self, part: Part, moe: &MoeShape, hidden: usize) -> Result<Vec<Expert>> {
        let block = self.block(part);
        let get = |name: &str, rows, cols| self.squeezed(&format!("{block}{name}.weight"), &[moe.experts, rows, cols]);
        let inner = moe.intermediate;
        let down = get("ffn_down_exps", hidden, inner)?;
        if self.checkpoint.contains(&format!("{block}ffn_gate_up_exps.weight")) {
            return Experts::joint(&get("ffn_gate_up_exps", 2 * inner, hidden)?, &down);
        }
        Experts::apart(&get("ffn_gate_exps", inner, hidden)?, &get("ffn_up_exps", inner, hidden)?, &down)
    }

    fn fusion(&self, hidden: usize) -> Result<(Matrix, Matrix)> {
        for (embedding, state) in APART {
            if let (Some(embedding), Some(state)) = (self.of_head([embedding]), self.of_head([state])) {
                let matrix = |name: &str| self.squeezed(name, &[hidden, hidden])?.to_matrix();
                return Ok((matrix(&embedding)?, matrix(&state)?));
            }
        }
        let name = format!("{}{JOINED}", self.block(Part::Head));
        let joined = self.squeezed(&name, &[hidden, 2 * hidden])?.to_matrix()?;
        let short = || Error::model(format!("tensor '{name}' is too short"));
        joined.sub_cols(0..hidden).zip(joined.sub_cols(hidden..2 * hidden)).ok_or_else(short)
    }

    fn table(&self, _part: Part, ple: &PleShape, rows: u64) -> Result<NgramTable> {
        let found: Vec<&str> = TABLE_NAMES.into_iter().filter(|name| self.checkpoint.contains(name)).collect();
        let [name] = found[..] else {
            return Err(Error::model(format!(
                "{} needs one n-gram table and has {}: {}",
                self.checkpoint.name(),
                found.len(),
                TABLE_NAMES.join(" or ")
            )));
        };
        NgramTable::whole(self.checkpoint, name, rows, ple.row_dim())
    }

    /// The metadata's constants are in the shape already.
    fn hash(&self, _part: Part, _ple: &PleShape, known: &NgramHash) -> Result<NgramHash> {
        Ok(known.clone())
    }
}
