//! The metadata of a GGUF file (spec 5.4).
//!
//! Owns: every key we write and where its value comes from.
//! Always true: what `Shape` knows is written from it, so the file says what was checked; a GGUF source's tokenizer and
//! general keys are copied as they are.
//! Not here: reading keys (`model::config_gguf`).

use serde_json::Value;
use tracing::warn;

use super::vocabulary;
use crate::config::{Mixer, Shape};
use crate::error::Result;
use crate::model::names::{Parameters, Part};
use crate::weights::gguf::metadata::Kind;
use crate::weights::gguf::vocabulary::PRE_TOKENIZER;
use crate::weights::gguf::write::Field;
use crate::weights::gguf::{ARCHITECTURE, Metadata, Vocabulary, types};
use crate::weights::{Format, Source};

/// All keys of the file.
pub fn pairs(
    source: &Source,
    parameters: &dyn Parameters,
    shape: &Shape,
    mtp: bool,
    format: Format,
) -> Result<Vec<(String, Field)>> {
    let metadata = parameters.checkpoint().gguf();
    let mut keys = Keys(Vec::new());
    keys.put("general.architecture", Field::Text(ARCHITECTURE.into()));
    keys.put("general.type", Field::Text("model".into()));
    keys.put("general.file_type", Field::U32(file_type(format)));
    keys.put("general.quantization_version", Field::U32(2));
    match metadata {
        Some(metadata) => keys.copy(metadata, "general."),
        None => keys.put("general.name", Field::Text(source.name().into())),
    }
    keys.shape(shape, mtp);
    keys.rope(source, shape, metadata)?;
    keys.ple(source, parameters, shape)?;
    match metadata {
        Some(metadata) => keys.copy(metadata, "tokenizer."),
        None => match vocabulary::read(source, shape.vocab)? {
            Some(vocabulary) => keys.vocabulary(vocabulary),
            None => warn!("there is no tokenizer.json: the file can be computed with, but it cannot read text"),
        },
    }
    Ok(keys.0)
}

struct Keys(Vec<(String, Field)>);

impl Keys {
    /// Adds a key, unless it is there.
    fn put(&mut self, key: impl Into<String>, field: Field) {
        let key = key.into();
        if !self.0.iter().any(|(known, _)| *known == key) {
            self.0.push((key, field));
        }
    }

    fn ours(&mut self, key: &str, field: Field) {
        self.put(format!("{ARCHITECTURE}.{key}"), field);
    }

    fn number(&mut self, key: &str, value: usize) {
        self.ours(key, Field::U32(value as u32));
    }

    fn copy(&mut self, metadata: &Metadata, prefix: &str) {
        // The alignment is ours, and nobody else's checksums hold.
        let keys = metadata.keys().filter(|key| key.starts_with(prefix) && *key != "general.alignment");
        for key in keys {
            if let Some((value, bytes)) = metadata.stored(key) {
                self.put(key, Field::Copied { kind: value.kind, count: value.count, bytes: bytes.to_vec() });
            }
        }
    }

    fn shape(&mut self, shape: &Shape, mtp: bool) {
        let (a, i, g, m) = (&shape.attention, &shape.indexer, &shape.gdn, &shape.moe);
        let blocks = shape.layers.len() + usize::from(mtp);
        for (key, value) in [
            ("block_count", blocks),
            ("context_length", shape.max_position),
            ("embedding_length", shape.hidden),
            ("vocab_size", shape.vocab),
            ("attention.head_count", a.query_heads),
            ("attention.head_count_kv", a.kv_heads),
            ("attention.key_length", a.head_dim),
            ("attention.value_length", a.head_dim),
            ("ssm.conv_kernel", g.conv_kernel),
            ("ssm.group_count", g.key_heads),
            ("ssm.state_size", g.key_dim),
            ("ssm.time_step_rank", g.value_heads),
            ("ssm.inner_size", g.values()),
            ("expert_count", m.experts),
            ("expert_used_count", m.top_k),
            ("expert_feed_forward_length", m.intermediate),
            ("expert_shared_feed_forward_length", m.shared_intermediate),
            ("attention.indexer.head_count", i.heads),
            ("attention.indexer.key_length", i.head_dim),
            ("attention.indexer.top_k", i.budget),
            ("hyper_connection.count", shape.hyper.streams),
            ("hyper_connection.low_rank", shape.hyper.low_rank),
        ] {
            self.number(key, value);
        }
        self.ours("attention.layer_norm_rms_epsilon", Field::F32(shape.norm_eps));
        let head = [Mixer::Qsa];
        let kinds = || shape.layers.iter().chain(&head).take(blocks);
        let ratio = |kind: &Mixer| if *kind == Mixer::Qsa { i.ratio as i32 } else { 0 };
        self.ours("attention.compress_ratios", Field::I32s(kinds().map(ratio).collect()));
        match interval(&shape.layers) {
            Some(interval) => self.number("full_attention_interval", interval),
            None => {
                let bytes: Vec<u8> = kinds().map(|kind| u8::from(*kind == Mixer::Gdn)).collect();
                let field = Field::Copied { kind: Kind::Bool, count: Some(bytes.len()), bytes };
                self.ours("attention.recurrent_layers", field);
            }
        }
        if mtp {
            self.number("nextn_predict_layers", 1);
            self.ours("nextn_shared_target_tensors", Field::Bool(true));
        }
    }

    fn rope(&mut self, source: &Source, shape: &Shape, metadata: Option<&Metadata>) -> Result<()> {
        self.number("rope.dimension_count", shape.rope.rotary_dim);
        self.ours("rope.freq_base", Field::F32(shape.rope.theta as f32));
        const SECTIONS: &str = "rope.dimension_sections";
        if let Some(metadata) = metadata {
            self.copy(metadata, &format!("{ARCHITECTURE}.{SECTIONS}"));
        }
        let config = text_config(source)?;
        let listed = config["rope_parameters"]["mrope_section"].as_array().cloned().unwrap_or_default();
        let mut sections: Vec<i32> = listed.iter().filter_map(Value::as_i64).map(|n| n as i32).collect();
        if sections.len() != 3 {
            // The released split of the frequencies over time, height and width; text uses equal positions.
            let half = shape.rope.rotary_dim as i32 / 2;
            sections = vec![half - 2 * (half / 3), half / 3, half / 3];
        }
        sections.push(0);
        self.ours(SECTIONS, Field::I32s(sections));
        if let Some(yarn) = &shape.rope.yarn {
            let own = if yarn.factor > 1.0 { 0.1 * yarn.factor.ln() + 1.0 } else { 1.0 };
            self.ours("rope.scaling.type", Field::Text("yarn".into()));
            self.number("rope.scaling.original_context_length", yarn.original);
            for (key, value) in [
                ("rope.scaling.factor", yarn.factor),
                ("rope.scaling.attn_factor", yarn.attention_factor / own),
                ("rope.scaling.yarn_beta_fast", yarn.beta_fast),
                ("rope.scaling.yarn_beta_slow", yarn.beta_slow),
            ] {
                self.ours(key, Field::F32(value as f32));
            }
        }
        Ok(())
    }

    fn ple(&mut self, source: &Source, parameters: &dyn Parameters, shape: &Shape) -> Result<()> {
        let (Some(ple), Some(eos)) = (&shape.ple, shape.eos) else { return Ok(()) };
        let hash = parameters.hash(Part::Layer(ple.layers[0]), ple, &ple.hash[0])?;
        self.ours("ple.layers", Field::U32s(ple.layers.iter().map(|&layer| layer as u32).collect()));
        self.number("ple.ngram_size", ple.ngram);
        self.number("ple.heads_per_ngram", ple.heads_per_ngram);
        self.number("ple.conv_kernel", ple.conv_kernel);
        self.number("embedding_length_per_layer_input", ple.row_dim());
        self.ours("ple.eos_token_id", Field::U32(eos));
        const IMAGE: &str = "ple.image_token_id";
        if let Some(metadata) = parameters.checkpoint().gguf() {
            self.copy(metadata, &format!("{ARCHITECTURE}.{IMAGE}"));
        }
        if let Some(image) = config(source)?["image_token_id"].as_u64() {
            self.number(IMAGE, image as usize);
        }
        self.ours("ple.layer_multipliers", Field::U64s(hash.multipliers));
        self.ours("ple.head_offsets", Field::U64s(hash.head_offsets));
        self.ours("ple.head_vocab_sizes", Field::U64s(hash.head_sizes));
        Ok(())
    }

    fn vocabulary(&mut self, vocabulary: Vocabulary) {
        let sampling = vocabulary.sampling;
        let floats = [("temp", sampling.temperature), ("top_p", sampling.top_p), ("min_p", sampling.min_p)];
        for (key, value) in floats.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            self.put(format!("general.sampling.{key}"), Field::F32(value as f32));
        }
        if let Some(top_k) = sampling.top_k.and_then(|k| i32::try_from(k).ok()) {
            let field = Field::Copied { kind: Kind::I32, count: None, bytes: top_k.to_le_bytes().to_vec() };
            self.put("general.sampling.top_k", field);
        }
        self.put("tokenizer.ggml.model", Field::Text("gpt2".into()));
        self.put("tokenizer.ggml.pre", Field::Text(PRE_TOKENIZER.into()));
        self.put(
            "tokenizer.ggml.token_type",
            Field::I32s(vocabulary.kinds.iter().map(|kind| kind.id() as i32).collect()),
        );
        self.put("tokenizer.ggml.tokens", Field::Texts(vocabulary.tokens));
        self.put("tokenizer.ggml.merges", Field::Texts(vocabulary.merges));
        self.put("tokenizer.ggml.add_bos_token", Field::Bool(false));
        let ids = [("eos", vocabulary.eos), ("bos", vocabulary.bos), ("padding", vocabulary.padding)];
        for (key, id) in ids.into_iter().filter_map(|(key, id)| Some((key, id?))) {
            self.put(format!("tokenizer.ggml.{key}_token_id"), Field::U32(id));
        }
        if let Some(template) = vocabulary.chat_template {
            self.put("tokenizer.chat_template", Field::Text(template));
        }
    }
}

/// The n for which every n-th layer is QSA and the others are not.
fn interval(layers: &[Mixer]) -> Option<usize> {
    let first = layers.iter().position(|&kind| kind == Mixer::Qsa)? + 1;
    let fits = layers.iter().enumerate().all(|(i, &kind)| ((i + 1) % first == 0) == (kind == Mixer::Qsa));
    fits.then_some(first)
}

fn config(source: &Source) -> Result<Value> {
    // It was parsed before with its errors told; a GGUF source has none.
    Ok(source.file("config.json")?.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
}

fn text_config(source: &Source) -> Result<Value> {
    let config = config(source)?;
    Ok(if config["text_config"].is_object() { config["text_config"].clone() } else { config })
}

/// ggml's number for "mostly this type"; 0 where there is none.
fn file_type(format: Format) -> u32 {
    types::of(format).map_or(0, |kind| match kind.name {
        "F16" => 1,
        "Q4_0" => 2,
        "Q4_1" => 3,
        "Q8_0" => 7,
        "Q5_0" => 8,
        "Q5_1" => 9,
        "Q2_K" => 10,
        "Q3_K" => 12,
        "Q4_K" => 15,
        "Q5_K" => 17,
        "Q6_K" => 18,
        "IQ4_NL" => 25,
        "IQ4_XS" => 30,
        "BF16" => 32,
        _ => 0,
    })
}
