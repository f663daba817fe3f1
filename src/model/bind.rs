//! Checkpoint names → typed weights (spec, section 5.1).
//!
//! Owns: every tensor name of the architecture, and what is pre-computed from a stored tensor (1 + w, −exp(A_log),
//! taps in tap-major order).
//! Always true: after binding, every shape was compared with the config; a missing tensor has stopped the load with
//! its name.
//! Not here: storage layouts of experts and table (`weights`).

use crate::backend::{Backend, Gdn, HyperRead, Moe, MtpFuse, Ple, Qsa};
use crate::config::{Mixer, NgramHash, PleShape, Shape};
use crate::error::{Error, Result};
use crate::weights::experts::Experts;
use crate::weights::ngram::NgramTable;
use crate::weights::{Checkpoint, Matrix};

/// A model's weights as a backend holds them.
pub struct Weights<B: Backend> {
    /// `[vocab, H]`
    pub embedding: B::Matrix,
    /// `[vocab, H]`
    pub head: B::Matrix,
    /// Replaces a final norm.
    pub mixer: HyperRead<B>,
    /// The trunk.
    pub layers: Vec<Layer<B>>,
    /// The MTP head, where the checkpoint has one.
    pub mtp: Option<Mtp<B>>,
}

/// One decoder layer.
pub struct Layer<B: Backend> {
    /// Injected before the layer.
    pub ple: Option<Injection<B>>,
    /// Read before the mixer.
    pub mixer_hyper: HyperRead<B>,
    /// GDN or QSA.
    pub mixer: LayerMixer<B>,
    /// Read before the experts.
    pub moe_hyper: HyperRead<B>,
    /// Experts.
    pub moe: Moe<B>,
}

/// A layer's token mixer.
pub enum LayerMixer<B: Backend> {
    /// Gated DeltaNet.
    Gdn(Gdn<B>),
    /// Qwen Sparse Attention.
    Qsa(Qsa<B>),
}

/// A PLE injection with its table, which stays on the host.
pub struct Injection<B: Backend> {
    /// Device parameters.
    pub ple: Ple<B>,
    /// Rows on disk.
    pub table: NgramTable,
    /// The checkpoint's constants, or the derived ones.
    pub hash: NgramHash,
}

/// The MTP head: its input, one QSA layer and its own final mixer.
pub struct Mtp<B: Backend> {
    /// Input fusion.
    pub fuse: MtpFuse<B>,
    /// The layer.
    pub layer: Layer<B>,
    /// Read before the shared head.
    pub mixer: HyperRead<B>,
}

const TRUNK_PREFIXES: [&str; 4] = ["model.language_model.", "model.", "language_model.", ""];
const MTP_PREFIXES: [&str; 4] = ["mtp.", "model.mtp.", "language_model.mtp.", "model.language_model.mtp."];

/// The prefix of the MTP head's tensors, if the checkpoint has the head.
pub fn mtp_prefix(checkpoint: &Checkpoint) -> Option<&'static str> {
    MTP_PREFIXES.into_iter().find(|prefix| checkpoint.contains(&format!("{prefix}fc_hidden.weight")))
}

/// Binds every weight; `progress` is called with the share done, from 0 to 1.
///
/// # Errors
/// `Model`, naming the tensor that is missing or has another shape or type than the config asks for.
pub fn bind<B: Backend>(
    checkpoint: &Checkpoint,
    shape: &Shape,
    backend: &mut B,
    mtp: bool,
    progress: &mut dyn FnMut(f32),
) -> Result<Weights<B>> {
    let prefix = TRUNK_PREFIXES
        .into_iter()
        .find(|prefix| checkpoint.contains(&format!("{prefix}embed_tokens.weight")))
        .ok_or_else(|| {
            Error::model(format!(
                "{} has no tensor 'model.language_model.embed_tokens.weight' (nor under the prefixes 'model.', \
                 'language_model.' or none): it is not a qwen4_exp checkpoint",
                checkpoint.name()
            ))
        })?;
    let mut bind = Binder { checkpoint, shape, backend };
    let embedding_name = format!("{prefix}embed_tokens.weight");
    let head_name = match shape.tied_head {
        true => embedding_name.clone(),
        false => ["lm_head.weight".to_string(), format!("{prefix}lm_head.weight")]
            .into_iter()
            .find(|name| checkpoint.contains(name))
            .unwrap_or_else(|| "lm_head.weight".to_string()),
    };
    let embedding = bind.matrix(&embedding_name, shape.vocab, shape.hidden)?;
    let head = bind.matrix(&head_name, shape.vocab, shape.hidden)?;
    let mixer = bind.hyper(&format!("{prefix}hyper_connection_mixer."), false)?;
    let steps = shape.layers.len() as f32;
    let mut layers = Vec::with_capacity(shape.layers.len());
    for (i, &kind) in shape.layers.iter().enumerate() {
        let name = format!("{prefix}layers.{i}.");
        let mut layer = bind.layer(&name, kind)?;
        if let Some((ple, index)) = shape.ple.as_ref().and_then(|p| Some((p, p.layers.iter().position(|&l| l == i)?))) {
            layer.ple = Some(bind.injection(&format!("{name}ple."), ple, &ple.hash[index])?);
        }
        layers.push(layer);
        progress((i + 1) as f32 / steps);
    }
    let mtp = match mtp_prefix(checkpoint).filter(|_| mtp) {
        Some(prefix) => Some(bind.mtp(prefix)?),
        None => None,
    };
    Ok(Weights { embedding, head, mixer, layers, mtp })
}

struct Binder<'a, B> {
    checkpoint: &'a Checkpoint,
    shape: &'a Shape,
    backend: &'a mut B,
}

impl<B: Backend> Binder<'_, B> {
    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<B::Matrix> {
        self.backend.matrix(self.checkpoint.matrix(name, rows, cols)?)
    }

    fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.checkpoint.expect(name, shape)?.to_f32()
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<B::Vector> {
        self.backend.vector(values)
    }

    /// A zero-centred norm as its multiplier, 1 + w.
    fn norm(&mut self, name: &str, width: usize) -> Result<B::Vector> {
        let weights = self.floats(name, &[width])?;
        self.vector(weights.into_iter().map(|w| 1.0 + w).collect())
    }

    /// Depthwise taps `[channels, 1, kernel]` → `[kernel, channels]`.
    fn taps(&mut self, name: &str, channels: usize, kernel: usize) -> Result<B::Vector> {
        let stored = self.floats(name, &[channels, 1, kernel])?;
        self.vector((0..kernel * channels).map(|i| stored[i % channels * kernel + i / channels]).collect())
    }

    fn hyper(&mut self, prefix: &str, injects: bool) -> Result<HyperRead<B>> {
        let (d, rank, streams) = (self.shape.wide(), self.shape.hyper.low_rank, self.shape.hyper.streams);
        Ok(HyperRead {
            norm: self.norm(&format!("{prefix}hc_norm.weight"), d)?,
            down: self.matrix(&format!("{prefix}input_mix_weight_down.weight"), rank, d)?,
            up: self.matrix(&format!("{prefix}input_mix_weight_up.weight"), d, rank)?,
            inject: match injects {
                true => Some(self.matrix(&format!("{prefix}block_inject_weight.weight"), streams, d)?),
                false => None,
            },
        })
    }

    fn layer(&mut self, prefix: &str, kind: Mixer) -> Result<Layer<B>> {
        Ok(Layer {
            ple: None,
            mixer_hyper: self.hyper(&format!("{prefix}attn_hyper_connection."), true)?,
            mixer: match kind {
                Mixer::Gdn => LayerMixer::Gdn(self.gdn(&format!("{prefix}linear_attn."))?),
                Mixer::Qsa => LayerMixer::Qsa(self.qsa(&format!("{prefix}self_attn."))?),
            },
            moe_hyper: self.hyper(&format!("{prefix}mlp_hyper_connection."), true)?,
            moe: self.moe(&format!("{prefix}mlp."))?,
        })
    }

    fn gdn(&mut self, prefix: &str) -> Result<Gdn<B>> {
        let (hidden, g) = (self.shape.hidden, self.shape.gdn);
        let log_rates = self.floats(&format!("{prefix}A_log"), &[g.value_heads])?;
        let dt_bias = self.floats(&format!("{prefix}dt_bias"), &[g.value_heads])?;
        let norm = self.floats(&format!("{prefix}norm.weight"), &[g.value_dim])?;
        Ok(Gdn {
            qkv: self.matrix(&format!("{prefix}in_proj_qkv.weight"), g.channels(), hidden)?,
            z: self.matrix(&format!("{prefix}in_proj_z.weight"), g.values(), hidden)?,
            b: self.matrix(&format!("{prefix}in_proj_b.weight"), g.value_heads, hidden)?,
            a: self.matrix(&format!("{prefix}in_proj_a.weight"), g.value_heads, hidden)?,
            conv: self.taps(&format!("{prefix}conv1d.weight"), g.channels(), g.conv_kernel)?,
            decay: self.vector(log_rates.into_iter().map(|a| -a.exp()).collect())?,
            dt_bias: self.vector(dt_bias)?,
            norm: self.vector(norm)?,
            out: self.matrix(&format!("{prefix}out_proj.weight"), hidden, g.values())?,
        })
    }

    fn qsa(&mut self, prefix: &str) -> Result<Qsa<B>> {
        let (hidden, a, i) = (self.shape.hidden, self.shape.attention, self.shape.indexer);
        let queries = i.heads * i.head_dim;
        let joint_name = format!("{prefix}indexer.index_qk_proj.weight");
        let joint = self.checkpoint.matrix(&joint_name, queries + i.head_dim, hidden)?;
        let part = |rows: std::ops::Range<usize>| -> Result<Matrix> {
            joint.sub_rows(rows).ok_or_else(|| Error::model(format!("tensor '{joint_name}' is too short")))
        };
        Ok(Qsa {
            q: self.matrix(&format!("{prefix}q_proj.weight"), a.query_heads * 2 * a.head_dim, hidden)?,
            k: self.matrix(&format!("{prefix}k_proj.weight"), a.kv_heads * a.head_dim, hidden)?,
            v: self.matrix(&format!("{prefix}v_proj.weight"), a.kv_heads * a.head_dim, hidden)?,
            o: self.matrix(&format!("{prefix}o_proj.weight"), hidden, a.query_heads * a.head_dim)?,
            q_norm: self.norm(&format!("{prefix}q_norm.weight"), a.head_dim)?,
            k_norm: self.norm(&format!("{prefix}k_norm.weight"), a.head_dim)?,
            index_q: self.backend.matrix(part(0..queries)?)?,
            index_k: self.backend.matrix(part(queries..queries + i.head_dim)?)?,
            index_q_norm: self.norm(&format!("{prefix}indexer.q_layernorm.weight"), i.head_dim)?,
            index_k_norm: self.norm(&format!("{prefix}indexer.k_layernorm.weight"), i.head_dim)?,
        })
    }

    fn moe(&mut self, prefix: &str) -> Result<Moe<B>> {
        let (hidden, moe) = (self.shape.hidden, self.shape.moe);
        let experts = Experts::load(self.checkpoint, prefix, &moe, hidden)?;
        let shared = format!("{prefix}shared_expert.");
        Ok(Moe {
            router: self.matrix(&format!("{prefix}gate.weight"), moe.experts, hidden)?,
            experts: self.backend.experts(experts)?,
            shared_gate: self.matrix(&format!("{shared}gate_proj.weight"), moe.shared_intermediate, hidden)?,
            shared_up: self.matrix(&format!("{shared}up_proj.weight"), moe.shared_intermediate, hidden)?,
            shared_down: self.matrix(&format!("{shared}down_proj.weight"), hidden, moe.shared_intermediate)?,
            shared_scale: self.matrix(&format!("{prefix}shared_expert_gate.weight"), 1, hidden)?,
        })
    }

    fn injection(&mut self, prefix: &str, ple: &PleShape, derived: &NgramHash) -> Result<Injection<B>> {
        let (hidden, d) = (self.shape.hidden, self.shape.wide());
        let place = format!("{prefix}ple_embedding.");
        let hash = self.hash(&place, ple, derived)?;
        Ok(Injection {
            ple: Ple {
                key: self.matrix(&format!("{prefix}key_proj.weight"), d, ple.embed_dim)?,
                value: self.matrix(&format!("{prefix}value_proj.weight"), hidden, ple.embed_dim)?,
                norm_key: self.norm(&format!("{prefix}norm_key.weight"), d)?,
                norm_query: self.norm(&format!("{prefix}norm_query.weight"), d)?,
                norm_conv: self.norm(&format!("{prefix}norm_conv.weight"), d)?,
                conv: self.taps(&format!("{prefix}conv1d.weight"), d, ple.conv_kernel)?,
            },
            table: NgramTable::load(self.checkpoint, &place, hash.table_rows, ple.row_dim())?,
            hash,
        })
    }

    /// The hash constants: the checkpoint's own where it has them, else the derived ones.
    fn hash(&self, prefix: &str, ple: &PleShape, derived: &NgramHash) -> Result<NgramHash> {
        let integers = |name: &str, count: usize| -> Result<Option<Vec<u64>>> {
            let name = format!("{prefix}{name}");
            if !self.checkpoint.contains(&name) {
                return Ok(None);
            }
            let values = self.checkpoint.expect(&name, &[count])?.to_i64()?;
            let wrong = |v: &i64| Error::model(format!("tensor '{name}' holds {v}; hash constants are not negative"));
            values.iter().map(|v| u64::try_from(*v).map_err(|_| wrong(v))).collect::<Result<Vec<_>>>().map(Some)
        };
        let mut hash = derived.clone();
        if let Some(values) = integers("layer_multipliers", ple.ngram)? {
            hash.multipliers = values;
        }
        if let Some(values) = integers("ngram_heads_vocab_sizes", ple.heads())? {
            hash.head_sizes = values;
        }
        if let Some(values) = integers("ngram_heads_offsets", ple.heads())? {
            hash.head_offsets = values;
        }
        let largest_id = self.shape.vocab as u64 - 1;
        let fits = hash.multipliers.iter().all(|m| m.checked_mul(largest_id).is_some_and(|p| p < 1 << 63));
        let inside = hash
            .head_sizes
            .iter()
            .zip(&hash.head_offsets)
            .all(|(&size, &offset)| size > 0 && offset.checked_add(size).is_some_and(|end| end <= hash.table_rows));
        if fits && inside {
            return Ok(hash);
        }
        Err(Error::model(format!(
            "the hash constants under '{prefix}' do not fit a vocabulary of {} and a table of {} rows: the checkpoint and \
             its config.json belong to different models",
            self.shape.vocab, hash.table_rows
        )))
    }

    fn mtp(&mut self, prefix: &str) -> Result<Mtp<B>> {
        let (hidden, d) = (self.shape.hidden, self.shape.wide());
        Ok(Mtp {
            fuse: MtpFuse {
                norm_embedding: self.norm(&format!("{prefix}pre_fc_norm_embedding.weight"), hidden)?,
                norm_hidden: self.norm(&format!("{prefix}pre_fc_norm_hidden.weight"), d)?,
                embedding: self.matrix(&format!("{prefix}fc_embedding.weight"), hidden, hidden)?,
                hidden: self.matrix(&format!("{prefix}fc_hidden.weight"), hidden, hidden)?,
            },
            layer: self.layer(&format!("{prefix}layers.0."), Mixer::Qsa)?,
            mixer: self.hyper(&format!("{prefix}hyper_connection_mixer."), false)?,
        })
    }
}
