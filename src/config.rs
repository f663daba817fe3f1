//! Plain values that every folder may hold: the checked shape of a model and the choices a user made.
//!
//! Owns: types without behaviour beyond simple arithmetic on themselves.
//! Always true: a `Shape` that exists was checked (`model::config` builds it), so nobody checks it again.
//! Not here: reading config.json (`model::config`), reading flags and files (`cli::settings`).

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Everything about a `qwen4_exp` model that its weights and state are sized by (spec, section 1.2).
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Ids are `0..vocab`.
    pub vocab: usize,
    /// Width H of one residual stream.
    pub hidden: usize,
    /// One entry a layer, in order.
    pub layers: Vec<Mixer>,
    /// Added to every mean square before the root.
    pub norm_eps: f32,
    /// Hyper-connections (spec 2.2).
    pub hyper: HyperShape,
    /// Grouped-query attention of the QSA layers (spec 2.4).
    pub attention: AttentionShape,
    /// Rotary embedding shared by attention and indexer (spec 2.0).
    pub rope: RopeShape,
    /// Block selection of the QSA layers (spec 2.4.1).
    pub indexer: IndexerShape,
    /// Gated DeltaNet of the linear layers (spec 2.3).
    pub gdn: GdnShape,
    /// Routed and shared experts (spec 2.5).
    pub moe: MoeShape,
    /// Hashed n-gram embedding, where the model has one (spec 2.6).
    pub ple: Option<PleShape>,
    /// Layers of the MTP head: 0 or 1 (spec 4).
    pub mtp_layers: usize,
    /// The longest sequence the model was made for, in tokens.
    pub max_position: usize,
    /// The output head is the embedding table.
    pub tied_head: bool,
    /// `eos_token_id` of config.json (the first, if a list): resets the n-gram context. Not the chat's stop id.
    pub eos: Option<u32>,
}

/// What mixes tokens in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixer {
    /// Gated DeltaNet: a recurrent state of fixed size.
    Gdn,
    /// Qwen Sparse Attention: keys and values of every token, a selection of them read.
    Qsa,
}

/// Hyper-connections: `streams` residual streams and the low-rank gate that reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HyperShape {
    /// C, the number of residual streams.
    pub streams: usize,
    /// Rank of the gate.
    pub low_rank: usize,
}

/// Head geometry of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Query heads, a multiple of `kv_heads`.
    pub query_heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
}

/// Rotary embedding: `rotary_dim / 2` frequencies in half-split pairing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeShape {
    /// Base of the frequencies.
    pub theta: f64,
    /// How many leading dimensions of a head rotate.
    pub rotary_dim: usize,
    /// Static YaRN, if the config asks for it.
    pub yarn: Option<YarnShape>,
}

/// Static YaRN (spec 1.2, long context).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YarnShape {
    /// How much longer than `original` the context becomes.
    pub factor: f64,
    /// Context length the frequencies were trained for.
    pub original: usize,
    /// Fast and slow corrections, in rotations.
    pub beta_fast: f64,
    /// See `beta_fast`.
    pub beta_slow: f64,
    /// Multiplied into cos and sin.
    pub attention_factor: f64,
}

/// The indexer that selects blocks of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexerShape {
    /// Query heads of the indexer.
    pub heads: usize,
    /// Width of one indexer head, also of the single key.
    pub head_dim: usize,
    /// Tokens a query may select from complete blocks.
    pub budget: usize,
    /// Tokens in a block.
    pub ratio: usize,
}

impl IndexerShape {
    /// Blocks a query may select.
    pub fn budget_blocks(&self) -> usize {
        self.budget / self.ratio
    }
    /// The most tokens a selection can hold: the budget and an open block's tail.
    pub fn max_selected(&self) -> usize {
        self.budget + self.ratio - 1
    }
}

/// Gated DeltaNet geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GdnShape {
    /// Key (and query) heads.
    pub key_heads: usize,
    /// Value heads, a multiple of `key_heads`.
    pub value_heads: usize,
    /// dk, width of a key head.
    pub key_dim: usize,
    /// dv, width of a value head.
    pub value_dim: usize,
    /// Taps of the causal depthwise convolution.
    pub conv_kernel: usize,
    /// Applied to the normalised output.
    pub gate: Gate,
    /// Which key head a value head uses.
    pub head_map: HeadMap,
}

impl GdnShape {
    /// Channels of the convolution: queries, keys and values in that order.
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }
    /// Width of all key heads.
    pub fn keys(&self) -> usize {
        self.key_heads * self.key_dim
    }
    /// Width of all value heads.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }
}

/// How value heads share key heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadMap {
    /// Value head j uses key head j / (value heads per key head): Hugging Face order.
    Grouped,
    /// Value head j uses key head j mod key heads: GGUF order (spec 5.4).
    Tiled,
}

/// An output gate's activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// 1 / (1 + e^-x)
    Sigmoid,
    /// x / (1 + e^-x)
    Silu,
}

/// Mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoeShape {
    /// Routed experts.
    pub experts: usize,
    /// Routed experts a token uses.
    pub top_k: usize,
    /// Inner width of a routed expert.
    pub intermediate: usize,
    /// Inner width of the shared expert.
    pub shared_intermediate: usize,
    /// Whether the selected weights are divided by their sum.
    pub normalise: bool,
}

/// Hashed n-gram embedding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PleShape {
    /// Zero-based layers it is injected before (the config counts from one).
    pub layers: Vec<usize>,
    /// Width of the concatenated rows.
    pub embed_dim: usize,
    /// Taps of the dilated convolution; the dilation is `ngram`.
    pub conv_kernel: usize,
    /// Longest n-gram; n runs from 2 to this.
    pub ngram: usize,
    /// Rows an n-gram length contributes.
    pub heads_per_ngram: usize,
    /// Hash constants, one a PLE layer.
    pub hash: Vec<NgramHash>,
}

impl PleShape {
    /// Rows of the table a token reads.
    pub fn heads(&self) -> usize {
        (self.ngram - 1) * self.heads_per_ngram
    }
    /// Width of one row of the table.
    pub fn row_dim(&self) -> usize {
        self.embed_dim / self.heads()
    }
    /// Columns the convolution looks back.
    pub fn conv_history(&self) -> usize {
        (self.conv_kernel - 1) * self.ngram
    }
}

/// Integer constants of the n-gram hash (spec 2.6): never through a float.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NgramHash {
    /// M, one a context position (newest first).
    pub multipliers: Vec<u64>,
    /// V, a prime a head.
    pub head_sizes: Vec<u64>,
    /// First row of each head's range.
    pub head_offsets: Vec<u64>,
    /// Rows of the whole table, padding included.
    pub table_rows: u64,
}

impl Shape {
    /// D, the width of all residual streams.
    pub fn wide(&self) -> usize {
        self.hidden * self.hyper.streams
    }
    /// Width of a token's n-gram rows together; 0 in a model without them.
    pub fn ngram_width(&self) -> usize {
        self.ple.as_ref().map_or(0, |ple| ple.embed_dim)
    }
    /// Number of layers of a kind.
    pub fn count(&self, kind: Mixer) -> usize {
        self.layers.iter().filter(|&&m| m == kind).count()
    }
}

/// How keys, values and index keys are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvMode {
    /// Everything F32.
    F32,
    /// K and V as E4M3 with one f16 scale a head and token; index keys BF16.
    Fp8,
    /// K and V as Q8_0 (32 values and an f16 scale a block); index keys BF16.
    Q8,
}

/// How the context's memory is obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvBackend {
    /// Addresses for the largest context at load, memory as it is written.
    Vmm,
    /// All of it at load.
    Legacy,
}

/// Which keys a query reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionMode {
    /// The indexer's selection: the model as published.
    Sparse,
    /// Every visible key: the reference for judging the selection.
    Dense,
}

/// Where the model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The best there is.
    Auto,
    /// The host.
    Cpu,
    /// A GPU, by HIP's number.
    Hip(usize),
}

/// Precision of the rotary table (spec 2.0: the reference rounds cos and sin to the activation type).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopePrecision {
    /// As computed.
    F32,
    /// Rounded to BF16, as a BF16 run of the reference does.
    Bf16,
}

macro_rules! names {
    ($type:ident, $what:literal, { $($name:literal => $value:ident),+ $(,)? }) => {
        impl FromStr for $type {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                match text {
                    $($name => Ok($type::$value),)+
                    _ => Err(Error::Invalid(format!(
                        "{} '{text}' is not known; use one of: {}", $what, [$($name),+].join(", ")
                    ))),
                }
            }
        }
        names!(@display $type { $($name => $value),+ });
    };
    (@display $type:ident { $($name:literal => $value:ident),+ }) => {
        impl fmt::Display for $type {
            #[allow(unreachable_patterns)] // an old name may repeat a value
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($type::$value => $name),+ })
            }
        }
    };
}
names!(KvMode, "KV mode", { "f32" => F32, "fp8" => Fp8, "q8" => Q8 });
names!(KvBackend, "KV backend", { "vmm" => Vmm, "legacy" => Legacy, "contiguous" => Legacy });
names!(AttentionMode, "attention mode", { "sparse" => Sparse, "dense" => Dense });
names!(RopePrecision, "rope precision", { "f32" => F32, "bf16" => Bf16 });
