//! config.json → a checked [`Shape`].
//!
//! Owns: reading both layouts (nested `text_config`, flat), the legality rules of the architecture, and the sentence a
//! person gets when a value is missing, wrong or not supported.
//! Always true: a `Shape` from here is legal; sizes are positive and their products fit in memory arithmetic.
//! Not here: tensors (`model::bind` compares them with the shape).
//! Source: spec, sections 1.2 and 2.6.

use serde_json::{Map, Value};

use crate::config::{
    AttentionShape, Gate, GdnShape, HeadMap, HyperShape, IndexerShape, Mixer, MoeShape, PleShape, RopeShape, Shape,
    YarnShape,
};
use crate::error::{Error, Result};
use crate::weights::hash;

/// Largest value accepted for a width or a count: far above any real model, small enough that products of three
/// of them fit in 64 bits.
const MAX_SIZE: u64 = 1 << 21;
const DEFAULT_SEED: u64 = 1234;

/// Reads the bytes of a config.json.
///
/// # Errors
/// `Model`, naming the key, the value found and what is accepted.
pub fn parse(json: &[u8]) -> Result<Shape> {
    let root: Value =
        serde_json::from_slice(json).map_err(|e| Error::model(format!("config.json is not JSON: {e}")))?;
    let Some(root) = root.as_object() else {
        return Err(Error::model("config.json is not a JSON object"));
    };
    check_architecture(root)?;
    check_quantisation(root)?;
    let text = match root.get("text_config") {
        Some(Value::Object(map)) => Section { map, path: "text_config." },
        Some(other) => return Err(Error::model(format!("config.json: text_config is not an object: {other}"))),
        None => Section { map: root, path: "" },
    };
    shape(&text, root)
}

fn check_architecture(root: &Map<String, Value>) -> Result<()> {
    let kind = root.get("model_type").and_then(Value::as_str);
    match kind {
        Some("qwen4_exp" | "qwen4_exp_text") => Ok(()),
        Some(other) => Err(Error::model(format!(
            "config.json: model_type is \"{other}\"; hipfire runs qwen4_exp (Qwen3.8 Flash-Next) only"
        ))),
        None => Err(Error::model("config.json: model_type is missing; hipfire runs qwen4_exp models")),
    }
}

fn check_quantisation(root: &Map<String, Value>) -> Result<()> {
    let Some(quantisation) = root.get("quantization_config").filter(|v| !v.is_null()) else { return Ok(()) };
    let method = quantisation.get("quant_method").and_then(Value::as_str).unwrap_or("(none given)");
    if method != "fp8" {
        return Err(Error::model(format!(
            "config.json: quantization_config.quant_method is \"{method}\"; only \"fp8\" with 128x128 blocks is supported"
        )));
    }
    match quantisation.get("weight_block_size") {
        None => Ok(()),
        Some(block) if *block == serde_json::json!([128, 128]) => Ok(()),
        Some(block) => Err(Error::model(format!(
            "config.json: quantization_config.weight_block_size is {block}; only [128,128] is supported"
        ))),
    }
}

fn shape(text: &Section, root: &Map<String, Value>) -> Result<Shape> {
    text.expect("hidden_act", "silu", &["silu"])?;
    text.expect_bool("attention_bias", false)?;
    let hidden = text.size("hidden_size")?;
    let attention = AttentionShape {
        query_heads: text.size("num_attention_heads")?,
        kv_heads: text.size("num_key_value_heads")?,
        head_dim: text.size("head_dim")?,
    };
    text.divides("num_key_value_heads", attention.kv_heads, "num_attention_heads", attention.query_heads)?;
    let rope = rope(text, attention.head_dim)?;
    let layers = layers(text)?;
    let eos = eos(text, root)?;
    let shape = Shape {
        vocab: text.size("vocab_size")?,
        hidden,
        norm_eps: text.float("rms_norm_eps", 1e-6)? as f32,
        hyper: hyper(text)?,
        attention,
        rope,
        indexer: indexer(text, &rope)?,
        gdn: gdn(text)?,
        moe: moe(text)?,
        ple: ple(text, &layers, eos)?,
        layers,
        mtp_layers: mtp_layers(text)?,
        max_position: text.size("max_position_embeddings")?,
        tied_head: text.boolean("tie_word_embeddings", false)?,
        eos,
    };
    if let Some(eos) = shape.eos.filter(|&id| id as usize >= shape.vocab) {
        return Err(text.wrong("eos_token_id", format!("{eos} is outside the vocabulary of {}", shape.vocab)));
    }
    Ok(shape)
}

fn hyper(text: &Section) -> Result<HyperShape> {
    let hyper = HyperShape { streams: text.size("hc_count")?, low_rank: text.size("hc_lowrank")? };
    if hyper.streams < 2 {
        return Err(text.wrong("hc_count", "hyper-connections need at least 2 streams"));
    }
    Ok(hyper)
}

fn indexer(text: &Section, rope: &RopeShape) -> Result<IndexerShape> {
    let indexer = IndexerShape {
        heads: text.size("indexer_n_heads")?,
        head_dim: text.size("indexer_head_dim")?,
        budget: text.size("indexer_budget")?,
        ratio: text.size("indexer_compress_ratio")?,
    };
    if text.size_or("indexer_kv_heads", 1)? != 1 {
        return Err(text.wrong("indexer_kv_heads", "the architecture has exactly 1 indexer key head"));
    }
    text.divides("indexer_compress_ratio", indexer.ratio, "indexer_budget", indexer.budget)?;
    if rope.rotary_dim > indexer.head_dim {
        return Err(text.wrong(
            "indexer_head_dim",
            format!("{} is less than the {} dimensions that rotate", indexer.head_dim, rope.rotary_dim),
        ));
    }
    Ok(indexer)
}

fn gdn(text: &Section) -> Result<GdnShape> {
    let gdn = GdnShape {
        key_heads: text.size("linear_num_key_heads")?,
        value_heads: text.size("linear_num_value_heads")?,
        key_dim: text.size("linear_key_head_dim")?,
        value_dim: text.size("linear_value_head_dim")?,
        conv_kernel: text.size("linear_conv_kernel_dim")?,
        gate: match text.text("output_gate_type")?.or(text.text("hidden_act")?) {
            Some("sigmoid") => Gate::Sigmoid,
            Some("silu" | "swish") | None => Gate::Silu,
            Some(other) => return Err(text.unknown("output_gate_type", other, &["sigmoid", "silu"])),
        },
        head_map: HeadMap::Grouped,
    };
    text.divides("linear_num_key_heads", gdn.key_heads, "linear_num_value_heads", gdn.value_heads)?;
    if gdn.conv_kernel < 2 {
        return Err(text.wrong("linear_conv_kernel_dim", "the convolution needs at least 2 taps"));
    }
    text.expect("mamba_ssm_dtype", "float32", &["float32"])?;
    Ok(gdn)
}

fn moe(text: &Section) -> Result<MoeShape> {
    let moe = MoeShape {
        experts: text.size("num_experts")?,
        top_k: text.size("num_experts_per_tok")?,
        intermediate: text.size("moe_intermediate_size")?,
        shared_intermediate: text.size("shared_expert_intermediate_size")?,
        normalise: text.boolean("norm_topk_prob", true)?,
    };
    if moe.top_k > moe.experts {
        return Err(
            text.wrong("num_experts_per_tok", format!("a token cannot use {} of {} experts", moe.top_k, moe.experts))
        );
    }
    Ok(moe)
}

/// `layer_types` in any of its three spellings, or the interval it is derived from.
fn layers(text: &Section) -> Result<Vec<Mixer>> {
    let count = text.size("num_hidden_layers")?;
    if count > 4096 {
        return Err(text.wrong("num_hidden_layers", format!("{count} layers is not a plausible model")));
    }
    let Some(listed) = text.map.get("layer_types").filter(|v| !v.is_null()) else {
        let interval = text.size_or("full_attention_interval", 4)?;
        return Ok((0..count).map(|i| if (i + 1) % interval == 0 { Mixer::Qsa } else { Mixer::Gdn }).collect());
    };
    let listed = listed.as_array().ok_or_else(|| text.wrong("layer_types", "must be a list of names"))?;
    if listed.len() != count {
        return Err(text.wrong("layer_types", format!("lists {} layers, num_hidden_layers is {count}", listed.len())));
    }
    listed
        .iter()
        .map(|name| match name.as_str() {
            Some("linear_attention") => Ok(Mixer::Gdn),
            Some("full_attention" | "qwen_sparse_attention" | "indexed_attention") => Ok(Mixer::Qsa),
            _ => Err(text.unknown(
                "layer_types",
                &name.to_string(),
                &["linear_attention", "full_attention", "qwen_sparse_attention", "indexed_attention"],
            )),
        })
        .collect()
}

fn rope(text: &Section, head_dim: usize) -> Result<RopeShape> {
    let parameters = ["rope_parameters", "rope_scaling"]
        .into_iter()
        .find_map(|key| text.map.get(key).and_then(Value::as_object))
        .map(|map| Section { map, path: "rope_parameters." });
    let empty = Map::new();
    let nested = parameters.unwrap_or(Section { map: &empty, path: "rope_parameters." });
    let theta = nested.float("rope_theta", text.float("rope_theta", 1e7)?)?;
    let partial = nested.float("partial_rotary_factor", text.float("partial_rotary_factor", 0.25)?)?;
    let rotary_dim = (head_dim as f64 * partial) as usize;
    if !(theta > 1.0 && theta.is_finite()) {
        return Err(nested.wrong("rope_theta", format!("{theta} is not a usable base")));
    }
    if rotary_dim == 0 || rotary_dim > head_dim || !rotary_dim.is_multiple_of(2) {
        return Err(nested.wrong(
            "partial_rotary_factor",
            format!("{partial} of head_dim {head_dim} gives {rotary_dim} rotating dimensions; an even number from 2 to head_dim is needed"),
        ));
    }
    let yarn = match nested.text("rope_type")?.or(nested.text("type")?) {
        None | Some("default") => None,
        Some("yarn") => Some(yarn(text, &nested)?),
        Some(other) => return Err(nested.unknown("rope_type", other, &["default", "yarn"])),
    };
    Ok(RopeShape { theta, rotary_dim, yarn })
}

fn yarn(text: &Section, nested: &Section) -> Result<YarnShape> {
    let factor = nested.float("factor", f64::NAN)?;
    if !(factor >= 1.0 && factor.is_finite()) {
        return Err(nested.wrong("factor", "yarn needs a factor of at least 1"));
    }
    let default_attention = if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 };
    Ok(YarnShape {
        factor,
        original: nested.size_or("original_max_position_embeddings", text.size("max_position_embeddings")?)?,
        beta_fast: nested.float("beta_fast", 32.0)?,
        beta_slow: nested.float("beta_slow", 1.0)?,
        attention_factor: nested.float("attention_factor", default_attention)?,
    })
}

fn ple(text: &Section, layers: &[Mixer], eos: Option<u32>) -> Result<Option<PleShape>> {
    let ids = match text.map.get("ple_layer_ids").filter(|v| !v.is_null()) {
        None => return Ok(None),
        Some(list) => list.as_array().ok_or_else(|| text.wrong("ple_layer_ids", "must be a list of layer numbers"))?,
    };
    if ids.is_empty() {
        return Ok(None);
    }
    if eos.is_none() {
        return Err(text.wrong("eos_token_id", "must be set when ple_layer_ids is: it separates n-grams"));
    }
    let mut injected = Vec::new();
    for id in ids {
        let zero_based = id.as_u64().and_then(|one_based| one_based.checked_sub(1)).map(|i| i as usize);
        match zero_based {
            Some(layer) if layers.get(layer) == Some(&Mixer::Gdn) => injected.push(layer),
            _ => {
                return Err(text.wrong(
                    "ple_layer_ids",
                    format!("{id} is not the one-based number of a linear_attention layer (1 to {})", layers.len()),
                ));
            }
        }
    }
    injected.sort_unstable();
    injected.dedup();
    let mut shape = PleShape {
        embed_dim: text.size("ple_embed_dim")?,
        conv_kernel: text.size("ple_conv_kernel_size")?,
        ngram: text.size("ngram_size")?,
        heads_per_ngram: text.size("heads_per_ngram")?,
        layers: injected,
        hash: Vec::new(),
    };
    if shape.ngram < 2 {
        return Err(text.wrong("ngram_size", "must be at least 2"));
    }
    text.divides("(ngram_size - 1) * heads_per_ngram", shape.heads(), "ple_embed_dim", shape.embed_dim)?;
    let base = text.integer("ngram_vocab_size_base")?;
    let divisible = text.size("make_ngram_vocab_size_divisible_by")? as u64;
    let seed = match text.map.get("seed") {
        None | Some(Value::Null) => DEFAULT_SEED,
        Some(_) => text.integer("seed")?,
    };
    let vocab = text.size("vocab_size")?;
    shape.hash = (0..shape.layers.len())
        .map(|i| hash::derive(vocab, seed, i, shape.ngram, shape.heads_per_ngram, base, divisible))
        .collect::<Result<_>>()?;
    Ok(Some(shape))
}

/// The first id of `eos_token_id`, from the text section or the top level.
fn eos(text: &Section, root: &Map<String, Value>) -> Result<Option<u32>> {
    let value = text.map.get("eos_token_id").filter(|v| !v.is_null()).or(root.get("eos_token_id"));
    let first = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(list)) if list.is_empty() => return Ok(None),
        Some(Value::Array(list)) => &list[0],
        Some(single) => single,
    };
    match first.as_u64().and_then(|id| u32::try_from(id).ok()) {
        Some(id) => Ok(Some(id)),
        None => Err(text.wrong("eos_token_id", format!("{first} is not a token id"))),
    }
}

fn mtp_layers(text: &Section) -> Result<usize> {
    let nested = text.map.get("mtp").and_then(|mtp| mtp.get("num_hidden_layers"));
    let count = match text.map.get("mtp_num_hidden_layers").or(nested) {
        None | Some(Value::Null) => 0,
        Some(value) => value.as_u64().unwrap_or(u64::MAX),
    };
    if count > 1 {
        return Err(text.wrong("mtp_num_hidden_layers", "an MTP head of 0 or 1 layers is supported"));
    }
    Ok(count as usize)
}

/// One object of config.json with the path it is named by in messages.
struct Section<'a> {
    map: &'a Map<String, Value>,
    path: &'static str,
}

impl Section<'_> {
    fn wrong(&self, key: &str, why: impl std::fmt::Display) -> Error {
        Error::model(format!("config.json: {}{key}: {why}", self.path))
    }

    fn unknown(&self, key: &str, found: &str, known: &[&str]) -> Error {
        self.wrong(key, format!("\"{found}\" is not supported; known: {}", known.join(", ")))
    }

    fn integer(&self, key: &str) -> Result<u64> {
        match self.map.get(key) {
            None => Err(self.wrong(key, "is missing")),
            Some(value) => value.as_u64().ok_or_else(|| self.wrong(key, format!("{value} is not a whole number"))),
        }
    }

    fn size(&self, key: &str) -> Result<usize> {
        match self.integer(key)? {
            value @ 1..=MAX_SIZE => Ok(value as usize),
            value => Err(self.wrong(key, format!("{value} is not from 1 to {MAX_SIZE}"))),
        }
    }

    fn size_or(&self, key: &str, default: usize) -> Result<usize> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(_) => self.size(key),
        }
    }

    fn float(&self, key: &str, default: f64) -> Result<f64> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value.as_f64().ok_or_else(|| self.wrong(key, format!("{value} is not a number"))),
        }
    }

    fn boolean(&self, key: &str, default: bool) -> Result<bool> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(key, format!("{value} is not true or false"))),
        }
    }

    fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or_else(|| self.wrong(key, format!("{value} is not a name"))),
        }
    }

    fn expect(&self, key: &str, default: &str, known: &[&str]) -> Result<()> {
        let found = self.text(key)?.unwrap_or(default);
        if known.contains(&found) { Ok(()) } else { Err(self.unknown(key, found, known)) }
    }

    fn expect_bool(&self, key: &str, only: bool) -> Result<()> {
        if self.boolean(key, only)? == only {
            return Ok(());
        }
        Err(self.wrong(key, format!("only {only} is supported (every published qwen4_exp has it)")))
    }

    fn divides(&self, small_key: &str, small: usize, large_key: &str, large: usize) -> Result<()> {
        if large.is_multiple_of(small) {
            return Ok(());
        }
        Err(self.wrong(large_key, format!("{large} is not a multiple of {small_key} {small}")))
    }
}
