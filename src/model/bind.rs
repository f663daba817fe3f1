//! Checkpoint → typed weights (spec, section 5).
//!
//! Owns: which parameters the architecture has, and their shapes.
//! Always true: after binding, every shape was compared with the config; a missing tensor has stopped the load with
//! its name.
//! Not here: names and conventions of a kind of file (`names`), storage layouts of experts and table (`weights`).

use crate::backend::{Backend, Gdn, HyperRead, Moe, MtpFuse, Ple, Qsa};
use crate::config::{Mixer, NgramHash, PleShape, Shape};
use crate::error::{Error, Result};
use crate::model::names::{self, Parameters, Part};
use crate::weights::NgramTable;

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
    /// Rows of the output head that drafts are chosen from, where a list of ids was given.
    pub vocabulary: Option<DraftVocabulary<B>>,
}

/// A part of the vocabulary.
pub struct DraftVocabulary<B: Backend> {
    /// The ids, most likely first.
    pub ids: Vec<u32>,
    /// `[ids, H]`
    pub head: B::Matrix,
}

/// Binds every weight, the MTP head's if it is asked for; `draft_ids` are the only ids it may then draft. `progress` is
/// called with the share done, from 0 to 1.
///
/// # Errors
/// `Model`, naming the tensor that is missing or has another shape or type than the config asks for.
pub fn bind<B: Backend>(
    parameters: &dyn Parameters,
    shape: &Shape,
    backend: &mut B,
    mtp: bool,
    draft_ids: Option<&[u32]>,
    progress: &mut dyn FnMut(f32),
) -> Result<Weights<B>> {
    let mut bind = Binder { parameters, shape, backend };
    let embedding = bind.matrix(Part::Trunk, "embed_tokens.weight", shape.vocab, shape.hidden)?;
    let head = bind.matrix(Part::Trunk, "lm_head.weight", shape.vocab, shape.hidden)?;
    let mixer = bind.hyper(Part::Trunk, "hyper_connection_mixer.", false)?;
    let steps = shape.layers.len() as f32;
    let mut layers = Vec::with_capacity(shape.layers.len());
    for (i, &kind) in shape.layers.iter().enumerate() {
        let mut layer = bind.layer(Part::Layer(i), kind)?;
        if let Some((ple, index)) = shape.ple.as_ref().and_then(|p| Some((p, p.layers.iter().position(|&l| l == i)?))) {
            layer.ple = Some(bind.injection(Part::Layer(i), ple, &ple.hash[index])?);
        }
        layers.push(layer);
        progress((i + 1) as f32 / steps);
    }
    let mtp = if mtp && parameters.has_mtp() { Some(bind.mtp(draft_ids)?) } else { None };
    Ok(Weights { embedding, head, mixer, layers, mtp })
}

struct Binder<'a, B> {
    parameters: &'a dyn Parameters,
    shape: &'a Shape,
    backend: &'a mut B,
}

impl<B: Backend> Binder<'_, B> {
    fn matrix(&mut self, part: Part, name: &str, rows: usize, cols: usize) -> Result<B::Matrix> {
        self.backend.matrix(self.parameters.matrix(part, name, rows, cols)?)
    }

    fn norm(&mut self, part: Part, name: &str, width: usize) -> Result<B::Vector> {
        self.backend.vector(self.parameters.norm(part, name, width)?)
    }

    fn floats(&mut self, part: Part, name: &str, width: usize) -> Result<B::Vector> {
        self.backend.vector(self.parameters.floats(part, name, width)?)
    }

    fn taps(&mut self, part: Part, name: &str, channels: usize, kernel: usize) -> Result<B::Vector> {
        self.backend.vector(self.parameters.taps(part, name, channels, kernel)?)
    }

    fn hyper(&mut self, part: Part, place: &str, injects: bool) -> Result<HyperRead<B>> {
        let (d, rank, streams) = (self.shape.wide(), self.shape.hyper.low_rank, self.shape.hyper.streams);
        Ok(HyperRead {
            norm: self.norm(part, &format!("{place}hc_norm.weight"), d)?,
            down: self.matrix(part, &format!("{place}input_mix_weight_down.weight"), rank, d)?,
            up: self.matrix(part, &format!("{place}input_mix_weight_up.weight"), d, rank)?,
            inject: match injects {
                true => Some(self.matrix(part, &format!("{place}block_inject_weight.weight"), streams, d)?),
                false => None,
            },
        })
    }

    fn layer(&mut self, part: Part, kind: Mixer) -> Result<Layer<B>> {
        Ok(Layer {
            ple: None,
            mixer_hyper: self.hyper(part, "attn_hyper_connection.", true)?,
            mixer: match kind {
                Mixer::Gdn => LayerMixer::Gdn(self.gdn(part)?),
                Mixer::Qsa => LayerMixer::Qsa(self.qsa(part)?),
            },
            moe_hyper: self.hyper(part, "mlp_hyper_connection.", true)?,
            moe: self.moe(part)?,
        })
    }

    fn gdn(&mut self, part: Part) -> Result<Gdn<B>> {
        let (hidden, g) = (self.shape.hidden, self.shape.gdn);
        let decay = self.parameters.decay(part, g.value_heads)?;
        Ok(Gdn {
            qkv: self.matrix(part, "linear_attn.in_proj_qkv.weight", g.channels(), hidden)?,
            z: self.matrix(part, "linear_attn.in_proj_z.weight", g.values(), hidden)?,
            b: self.matrix(part, "linear_attn.in_proj_b.weight", g.value_heads, hidden)?,
            a: self.matrix(part, "linear_attn.in_proj_a.weight", g.value_heads, hidden)?,
            conv: self.taps(part, "linear_attn.conv1d.weight", g.channels(), g.conv_kernel)?,
            decay: self.backend.vector(decay)?,
            dt_bias: self.floats(part, "linear_attn.dt_bias", g.value_heads)?,
            norm: self.floats(part, "linear_attn.norm.weight", g.value_dim)?,
            out: self.matrix(part, "linear_attn.out_proj.weight", hidden, g.values())?,
        })
    }

    fn qsa(&mut self, part: Part) -> Result<Qsa<B>> {
        let (hidden, a, i) = (self.shape.hidden, self.shape.attention, self.shape.indexer);
        let (index_q, index_k) = self.parameters.index_projections(part, i.heads * i.head_dim, i.head_dim, hidden)?;
        Ok(Qsa {
            q: self.matrix(part, "self_attn.q_proj.weight", a.query_heads * 2 * a.head_dim, hidden)?,
            k: self.matrix(part, "self_attn.k_proj.weight", a.kv_heads * a.head_dim, hidden)?,
            v: self.matrix(part, "self_attn.v_proj.weight", a.kv_heads * a.head_dim, hidden)?,
            o: self.matrix(part, "self_attn.o_proj.weight", hidden, a.query_heads * a.head_dim)?,
            q_norm: self.norm(part, "self_attn.q_norm.weight", a.head_dim)?,
            k_norm: self.norm(part, "self_attn.k_norm.weight", a.head_dim)?,
            index_q: self.backend.matrix(index_q)?,
            index_k: self.backend.matrix(index_k)?,
            index_q_norm: self.norm(part, "self_attn.indexer.q_layernorm.weight", i.head_dim)?,
            index_k_norm: self.norm(part, "self_attn.indexer.k_layernorm.weight", i.head_dim)?,
        })
    }

    fn moe(&mut self, part: Part) -> Result<Moe<B>> {
        let (hidden, moe) = (self.shape.hidden, self.shape.moe);
        let (inner, experts) = (moe.shared_intermediate, self.parameters.experts(part, &moe, hidden)?);
        let shared_gate = self.matrix(part, "mlp.shared_expert.gate_proj.weight", inner, hidden)?;
        let shared_up = self.matrix(part, "mlp.shared_expert.up_proj.weight", inner, hidden)?;
        let shared_down = self.matrix(part, "mlp.shared_expert.down_proj.weight", hidden, inner)?;
        Ok(Moe {
            router: self.matrix(part, "mlp.gate.weight", moe.experts, hidden)?,
            experts: self.backend.experts(experts, [&shared_gate, &shared_up, &shared_down])?,
            shared_gate,
            shared_up,
            shared_down,
            shared_scale: self.matrix(part, "mlp.shared_expert_gate.weight", 1, hidden)?,
        })
    }

    fn injection(&mut self, part: Part, ple: &PleShape, known: &NgramHash) -> Result<Injection<B>> {
        let (hidden, d) = (self.shape.hidden, self.shape.wide());
        let hash = self.parameters.hash(part, ple, known)?;
        names::check_hash(&hash, self.shape.vocab, &format!("of '{}'", self.parameters.name(part, "ple.")))?;
        Ok(Injection {
            ple: Ple {
                key: self.matrix(part, "ple.key_proj.weight", d, ple.embed_dim)?,
                value: self.matrix(part, "ple.value_proj.weight", hidden, ple.embed_dim)?,
                norm_key: self.norm(part, "ple.norm_key.weight", d)?,
                norm_query: self.norm(part, "ple.norm_query.weight", d)?,
                norm_conv: self.norm(part, "ple.norm_conv.weight", d)?,
                conv: self.taps(part, "ple.conv1d.weight", d, ple.conv_kernel)?,
            },
            table: self.parameters.table(part, ple, hash.table_rows)?,
            hash,
        })
    }

    fn mtp(&mut self, draft_ids: Option<&[u32]>) -> Result<Mtp<B>> {
        let (hidden, d) = (self.shape.hidden, self.shape.wide());
        let (embedding, state) = self.parameters.fusion(hidden)?;
        Ok(Mtp {
            fuse: MtpFuse {
                norm_embedding: self.norm(Part::Head, "pre_fc_norm_embedding.weight", hidden)?,
                norm_hidden: self.norm(Part::Head, "pre_fc_norm_hidden.weight", d)?,
                embedding: self.backend.matrix(embedding)?,
                hidden: self.backend.matrix(state)?,
            },
            layer: self.layer(Part::HeadLayer, Mixer::Qsa)?,
            mixer: self.hyper(Part::Head, "hyper_connection_mixer.", false)?,
            vocabulary: draft_ids.map(|ids| self.draft_vocabulary(ids)).transpose()?,
        })
    }

    fn draft_vocabulary(&mut self, ids: &[u32]) -> Result<DraftVocabulary<B>> {
        let head = self.parameters.matrix(Part::Trunk, "lm_head.weight", self.shape.vocab, self.shape.hidden)?;
        let rows = head.pick_rows(ids).filter(|_| !ids.is_empty()).ok_or_else(|| {
            Error::invalid(format!("the draft vocabulary must name at least one id, all below {}", self.shape.vocab))
        })?;
        Ok(DraftVocabulary { ids: ids.to_vec(), head: self.backend.matrix(rows)? })
    }
}
