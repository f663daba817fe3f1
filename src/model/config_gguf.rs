//! GGUF metadata → a checked [`Shape`] (spec 5.4).
//!
//! Owns: the keys of architecture `qwen4exp`, with what published files leave out or spell in two ways.
//! Always true: a `Shape` from here obeys the same rules as one from config.json; value heads are tiled; the id that
//! separates n-grams is the PLE's own and not the tokenizer's.
//! Not here: tensors, but for what only they tell (a tied head, the table's rows, whether there is an indexer).

use crate::config::{
    AttentionShape, Gate, GdnShape, HeadMap, HyperShape, IndexerShape, Mixer, MoeShape, NgramHash, PleShape, RopeShape,
    Shape, YarnShape,
};
use crate::error::{Error, Result};
use crate::weights::gguf::{ARCHITECTURE, Metadata, TABLE_NAMES};
use crate::weights::{Checkpoint, hash};

/// See `config::MAX_SIZE`.
const MAX_SIZE: u64 = 1 << 21;
const MAX_LAYERS: usize = 4096;
/// Tokens in a block where a file does not say: converters derive it from a layer's type, whose spelling varies.
const DEFAULT_RATIO: usize = 4;
/// Rows that a table may have beyond its heads' ranges: they are padded up to a multiple of 128.
const TABLE_PADDING: u64 = 4096;

/// The shape of a GGUF checkpoint.
///
/// # Errors
/// `Model`, naming the file, the key, the value found and what is accepted.
pub fn parse(checkpoint: &Checkpoint) -> Result<Shape> {
    let metadata = checkpoint.gguf().ok_or_else(|| Error::model(format!("{} is not GGUF", checkpoint.name())))?;
    let keys = Keys { metadata };
    let blocks = keys.size("block_count")?;
    let heads = keys.size_or_zero("nextn_predict_layers")?;
    if heads > 1 || heads >= blocks {
        return Err(keys.wrong("nextn_predict_layers", format!("is {heads}; 0 or 1 beside the trunk is supported")));
    }
    let layers = layers(&keys, blocks, heads)?;
    let attention = AttentionShape {
        query_heads: keys.uniform("attention.head_count")?,
        kv_heads: keys.uniform("attention.head_count_kv")?,
        head_dim: keys.size("attention.key_length")?,
    };
    keys.divides("attention.head_count_kv", attention.kv_heads, "attention.head_count", attention.query_heads)?;
    keys.equals("attention.value_length", attention.head_dim)?;
    let hidden = keys.size("embedding_length")?;
    let vocab = match keys.has("vocab_size") {
        true => keys.size("vocab_size")?,
        false => rows_of(checkpoint, "token_embd.weight").unwrap_or(0),
    };
    let rope = rope(&keys, attention.head_dim)?;
    let eos = keys.integer("ple.eos_token_id")?.and_then(|id| u32::try_from(id).ok());
    let hyper =
        HyperShape { streams: keys.size("hyper_connection.count")?, low_rank: keys.size("hyper_connection.low_rank")? };
    if hyper.streams < 2 {
        return Err(keys.wrong("hyper_connection.count", "is 1; hyper-connections need at least 2 streams"));
    }
    let shape = Shape {
        vocab,
        hidden,
        norm_eps: keys.float("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-6) as f32,
        hyper,
        attention,
        rope,
        indexer: indexer(&keys, checkpoint, &layers, &rope)?,
        gdn: gdn(&keys)?,
        moe: moe(&keys)?,
        ple: ple(&keys, checkpoint, &layers, eos, vocab)?,
        layers,
        mtp_layers: heads,
        max_position: keys.size("context_length")?,
        tied_head: !checkpoint.contains("output.weight"),
        eos,
    };
    match shape.eos.filter(|&id| id as usize >= vocab) {
        Some(id) => Err(keys.wrong("ple.eos_token_id", format!("is {id}, outside the vocabulary of {vocab}"))),
        None => Ok(shape),
    }
}

fn layers(keys: &Keys<'_>, blocks: usize, heads: usize) -> Result<Vec<Mixer>> {
    let count = blocks - heads;
    if count > MAX_LAYERS {
        return Err(keys.wrong("block_count", format!("is {blocks}, which is not a plausible model")));
    }
    if let Some(recurrent) = keys.integers("attention.recurrent_layers")? {
        if recurrent.len() < count {
            let why = format!("has {} entries for {count} layers", recurrent.len());
            return Err(keys.wrong("attention.recurrent_layers", why));
        }
        return Ok(recurrent[..count].iter().map(|&on| if on != 0 { Mixer::Gdn } else { Mixer::Qsa }).collect());
    }
    let interval = if keys.has("full_attention_interval") { keys.size("full_attention_interval")? } else { 4 };
    Ok((0..count).map(|i| if (i + 1) % interval == 0 { Mixer::Qsa } else { Mixer::Gdn }).collect())
}

fn rope(keys: &Keys<'_>, head_dim: usize) -> Result<RopeShape> {
    let theta = keys.float("rope.freq_base")?.unwrap_or(1e7);
    let rotary_dim = if keys.has("rope.dimension_count") { keys.size("rope.dimension_count")? } else { head_dim };
    if !(theta > 1.0 && theta.is_finite()) {
        return Err(keys.wrong("rope.freq_base", format!("is {theta}, not a usable base")));
    }
    if rotary_dim > head_dim || !rotary_dim.is_multiple_of(2) {
        let why = format!("is {rotary_dim}; an even number up to the head's {head_dim} is needed");
        return Err(keys.wrong("rope.dimension_count", why));
    }
    let yarn = match keys.text("rope.scaling.type")? {
        None | Some("none") => None,
        Some("yarn") => Some(yarn(keys)?),
        Some(other) => return Err(keys.wrong("rope.scaling.type", format!("is \"{other}\"; known: none, yarn"))),
    };
    Ok(RopeShape { theta, rotary_dim, yarn })
}

fn yarn(keys: &Keys<'_>) -> Result<YarnShape> {
    let factor = keys.float("rope.scaling.factor")?.unwrap_or(f64::NAN);
    if !(factor >= 1.0 && factor.is_finite()) {
        return Err(keys.wrong("rope.scaling.factor", "must be a number of at least 1 for yarn"));
    }
    // ggml states a multiplier on top of YaRN's own.
    let own = if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 };
    Ok(YarnShape {
        factor,
        original: keys.size("rope.scaling.original_context_length")?,
        beta_fast: keys.float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
        beta_slow: keys.float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
        attention_factor: own * keys.float("rope.scaling.attn_factor")?.unwrap_or(1.0),
    })
}

fn indexer(keys: &Keys<'_>, checkpoint: &Checkpoint, layers: &[Mixer], rope: &RopeShape) -> Result<IndexerShape> {
    let missing = |&(i, kind): &(usize, &Mixer)| {
        *kind == Mixer::Qsa && !checkpoint.contains(&format!("blk.{i}.indexer.q_proj.weight"))
    };
    if let Some((i, _)) = layers.iter().enumerate().find(missing) {
        return Err(Error::model(format!(
            "{} has no tensor 'blk.{i}.indexer.q_proj.weight': the file was made without the indexer that selects keys",
            checkpoint.name()
        )));
    }
    let ratios = keys.integers("attention.compress_ratios")?.unwrap_or_default();
    let ratio = match ratios.iter().all(|&ratio| ratio == 0) {
        true => DEFAULT_RATIO,
        false => keys.uniform("attention.compress_ratios")?,
    };
    let indexer = IndexerShape {
        heads: keys.size("attention.indexer.head_count")?,
        head_dim: keys.size("attention.indexer.key_length")?,
        budget: keys.size("attention.indexer.top_k")?,
        ratio,
    };
    keys.divides("attention.compress_ratios", ratio, "attention.indexer.top_k", indexer.budget)?;
    if rope.rotary_dim > indexer.head_dim {
        let why = format!("is {}, less than the {} dimensions that rotate", indexer.head_dim, rope.rotary_dim);
        return Err(keys.wrong("attention.indexer.key_length", why));
    }
    Ok(indexer)
}

fn gdn(keys: &Keys<'_>) -> Result<GdnShape> {
    let (value_heads, inner) = (keys.size("ssm.time_step_rank")?, keys.size("ssm.inner_size")?);
    keys.divides("ssm.time_step_rank", value_heads, "ssm.inner_size", inner)?;
    let gdn = GdnShape {
        key_heads: keys.size("ssm.group_count")?,
        value_heads,
        key_dim: keys.size("ssm.state_size")?,
        value_dim: inner / value_heads,
        conv_kernel: keys.size("ssm.conv_kernel")?,
        gate: Gate::Sigmoid,
        head_map: HeadMap::Tiled,
    };
    keys.divides("ssm.group_count", gdn.key_heads, "ssm.time_step_rank", value_heads)?;
    Ok(gdn)
}

fn moe(keys: &Keys<'_>) -> Result<MoeShape> {
    let moe = MoeShape {
        experts: keys.size("expert_count")?,
        top_k: keys.size("expert_used_count")?,
        intermediate: keys.uniform("expert_feed_forward_length")?,
        shared_intermediate: keys.size("expert_shared_feed_forward_length")?,
        normalise: keys.integer("expert_weights_norm")?.is_none_or(|on| on != 0),
    };
    if moe.top_k > moe.experts {
        return Err(keys.wrong("expert_used_count", format!("is {} of {} experts", moe.top_k, moe.experts)));
    }
    Ok(moe)
}

fn ple(
    keys: &Keys<'_>,
    checkpoint: &Checkpoint,
    layers: &[Mixer],
    eos: Option<u32>,
    vocab: usize,
) -> Result<Option<PleShape>> {
    let Some(injected) = keys.integers("ple.layers")?.filter(|layers| !layers.is_empty()) else { return Ok(None) };
    let &[layer] = injected.as_slice() else {
        return Err(keys.wrong("ple.layers", format!("is {injected:?}; a GGUF file has constants for one layer")));
    };
    let layer = usize::try_from(layer).ok().filter(|&layer| layers.get(layer) == Some(&Mixer::Gdn));
    let layer =
        layer.ok_or_else(|| keys.wrong("ple.layers", format!("is {injected:?}, not a GDN layer of the model")))?;
    if eos.is_none() {
        return Err(keys.wrong("ple.eos_token_id", "is missing; it separates n-grams"));
    }
    let mut ple = PleShape {
        layers: vec![layer],
        embed_dim: 0,
        conv_kernel: keys.size("ple.conv_kernel")?,
        ngram: keys.size("ple.ngram_size")?,
        heads_per_ngram: keys.size("ple.heads_per_ngram")?,
        hash: Vec::new(),
    };
    if !(2..=hash::MAX_NGRAM).contains(&ple.ngram) {
        return Err(keys.wrong("ple.ngram_size", format!("is {}; 2 to {} is supported", ple.ngram, hash::MAX_NGRAM)));
    }
    ple.embed_dim = ple.heads().saturating_mul(keys.size("embedding_length_per_layer_input")?);
    let table = TABLE_NAMES.iter().find(|name| checkpoint.contains(name)).copied().unwrap_or(TABLE_NAMES[0]);
    let constants = NgramHash {
        multipliers: keys.list("ple.layer_multipliers", ple.ngram)?,
        head_sizes: keys.list("ple.head_vocab_sizes", ple.heads())?,
        head_offsets: keys.list("ple.head_offsets", ple.heads())?,
        table_rows: rows_of(checkpoint, table).unwrap_or(0) as u64,
    };
    let ends = constants.head_offsets.iter().zip(&constants.head_sizes);
    let needed = ends.map(|(offset, size)| offset.saturating_add(*size)).max().unwrap_or(0);
    if needed > constants.table_rows || constants.table_rows - needed > TABLE_PADDING {
        return Err(Error::model(format!(
            "tensor '{table}' has {} rows, and '{ARCHITECTURE}.ple.head_offsets' and 'head_vocab_sizes' describe {needed}: \
             the table belongs to another model",
            constants.table_rows
        )));
    }
    super::names::check_hash(&constants, vocab, "of its metadata")?;
    ple.hash.push(constants);
    Ok(Some(ple))
}

/// The first dimension of a tensor.
fn rows_of(checkpoint: &Checkpoint, name: &str) -> Option<usize> {
    checkpoint.shape_of(name)?.first().copied()
}

/// The architecture's keys, named without their prefix.
struct Keys<'a> {
    metadata: &'a Metadata,
}

impl<'a> Keys<'a> {
    fn full(key: &str) -> String {
        format!("{ARCHITECTURE}.{key}")
    }
    fn wrong(&self, key: &str, why: impl std::fmt::Display) -> Error {
        self.metadata.wrong(&Keys::full(key), why)
    }
    fn has(&self, key: &str) -> bool {
        self.metadata.contains(&Keys::full(key))
    }
    fn integer(&self, key: &str) -> Result<Option<u64>> {
        self.metadata.integer(&Keys::full(key))
    }
    fn integers(&self, key: &str) -> Result<Option<Vec<u64>>> {
        self.metadata.integers(&Keys::full(key))
    }
    fn float(&self, key: &str) -> Result<Option<f64>> {
        self.metadata.float(&Keys::full(key))
    }
    fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.metadata.text(&Keys::full(key))
    }

    fn size(&self, key: &str) -> Result<usize> {
        let value = self.integer(key)?.ok_or_else(|| self.wrong(key, "is missing"))?;
        self.checked(key, value)
    }

    fn checked(&self, key: &str, value: u64) -> Result<usize> {
        match value {
            1..=MAX_SIZE => Ok(value as usize),
            _ => Err(self.wrong(key, format!("is {value}; 1 to {MAX_SIZE} is accepted"))),
        }
    }

    fn size_or_zero(&self, key: &str) -> Result<usize> {
        match self.integer(key)? {
            None | Some(0) => Ok(0),
            Some(value) => self.checked(key, value),
        }
    }

    /// A number, or a list with an entry a layer, of which those that are not 0 agree.
    fn uniform(&self, key: &str) -> Result<usize> {
        let values = self.integers(key)?.ok_or_else(|| self.wrong(key, "is missing"))?;
        let mut used = values.iter().copied().filter(|&value| value != 0);
        let first = used.next().ok_or_else(|| self.wrong(key, "is 0 for every layer"))?;
        match used.find(|&value| value != first) {
            None => self.checked(key, first),
            Some(other) => {
                Err(self.wrong(key, format!("differs by layer ({first} and {other}); one value is supported")))
            }
        }
    }

    fn list(&self, key: &str, count: usize) -> Result<Vec<u64>> {
        let values = self.integers(key)?.ok_or_else(|| self.wrong(key, "is missing"))?;
        if values.len() == count {
            return Ok(values);
        }
        Err(self.wrong(key, format!("has {} entries; {count} are needed", values.len())))
    }

    fn divides(&self, small_key: &str, small: usize, large_key: &str, large: usize) -> Result<()> {
        if large.is_multiple_of(small) {
            return Ok(());
        }
        Err(self.wrong(large_key, format!("is {large}, not a multiple of {small_key} {small}")))
    }

    fn equals(&self, key: &str, only: usize) -> Result<()> {
        match self.integer(key)?.filter(|&value| value != only as u64) {
            None => Ok(()),
            Some(value) => Err(self.wrong(key, format!("is {value}; only {only}, the key's length, is supported"))),
        }
    }
}
