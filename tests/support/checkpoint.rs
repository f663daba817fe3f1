//! Writes synthetic `qwen4_exp` checkpoints: any sizes, any legal layout, always the same weights for the same seed.
//!
//! Owns: the recipe of a checkpoint, config.json, which tensor goes into which file, the index.
//! Always true: two recipes that differ only in layout, or in formats that their grid allows, hold equal weights; files
//! are written as a stream, so a model larger than memory can be made.
//! Not here: the tensor list (`tensors`), files (`safetensors`), distributions and rounding (`values`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use hipfire::weights::format::Format;
use serde_json::{Value, json};

use super::safetensors::{Stored, write_file};
use super::tensors;
pub use super::values::Grid;

/// Names of the trunk's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// The hub's: `text_config` nested, `model.language_model.`
    Hub,
    /// A text-only save: flat config, `model.`
    TextOnly,
    /// Flat config, no prefix.
    Bare,
}

/// How routed experts are laid out (spec 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertLayout {
    Packed,
    Transposed,
    Separate,
}

/// Where the MTP head is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mtp {
    None,
    Inside,
    /// `mtp.safetensors` in the folder, not in the index.
    Sidecar,
}

/// What to write.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The text config.
    pub config: Value,
    pub seed: u64,
    pub grid: Grid,
    /// Format of everything but routed experts, the n-gram table and the hash constants.
    pub dense: Format,
    pub experts: Format,
    pub table: Format,
    /// Format of the FP8 scales: BF16 or F32.
    pub scales: Format,
    pub naming: Naming,
    pub expert_layout: ExpertLayout,
    /// The table in `split_ngram_parts` shards, or as one tensor.
    pub table_sharded: bool,
    /// One file without an index, or several with one.
    pub files: usize,
    pub mtp: Mtp,
    /// A few `model.visual.*` tensors of types that nobody computes with.
    pub visual: bool,
}

impl Recipe {
    /// The hub's layout in F32 with the tiny legal config of spec 8.2.
    pub fn tiny() -> Recipe {
        Recipe {
            config: tiny_config(),
            seed: 7,
            grid: Grid::F32,
            dense: Format::F32,
            experts: Format::F32,
            table: Format::F32,
            scales: Format::Bf16,
            naming: Naming::Hub,
            expert_layout: ExpertLayout::Packed,
            table_sharded: true,
            files: 1,
            mtp: Mtp::Inside,
            visual: false,
        }
    }

    /// Sets a key of the text config.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Recipe {
        self.config[key] = value.into();
        self
    }

    /// All weights in one format; FP8 means experts and table, and BF16 for the rest.
    pub fn formats(mut self, format: Format) -> Recipe {
        self.dense = if format == Format::F8E4m3 { Format::Bf16 } else { format };
        (self.experts, self.table) = (format, format);
        self
    }

    /// Writes config.json and the weights into the folder `to`, which exists.
    pub fn write(&self, to: &Path) -> io::Result<()> {
        fs::write(to.join("config.json"), serde_json::to_vec_pretty(&self.config_json())?)?;
        let mut tensors = tensors::list(self);
        if self.mtp == Mtp::Sidecar {
            let (mtp, trunk) = tensors.into_iter().partition::<Vec<_>, _>(|tensor| tensor.name.starts_with("mtp."));
            write_file(&to.join("mtp.safetensors"), &mtp)?;
            tensors = trunk;
        }
        if self.files <= 1 {
            return write_file(&to.join("model.safetensors"), &tensors);
        }
        let total: u64 = tensors.iter().map(Stored::bytes).sum();
        let mut files: Vec<Vec<Stored>> = (0..self.files).map(|_| Vec::new()).collect();
        let mut before = 0;
        for tensor in tensors {
            let bytes = tensor.bytes();
            files[(before * self.files as u64 / total.max(1)) as usize].push(tensor);
            before += bytes;
        }
        let mut weight_map = BTreeMap::new();
        for (i, tensors) in files.iter().enumerate() {
            let name = format!("model-{:05}-of-{:05}.safetensors", i + 1, self.files);
            write_file(&to.join(&name), tensors)?;
            weight_map.extend(tensors.iter().map(|tensor| (tensor.name.clone(), name.clone())));
        }
        let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
        fs::write(to.join("model.safetensors.index.json"), serde_json::to_vec_pretty(&index)?)
    }

    /// Writes into a new temporary folder.
    pub fn write_temporary(&self) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        self.write(folder.path()).expect("a checkpoint");
        folder
    }

    /// What precedes the trunk's tensor names.
    pub fn prefix(&self) -> &'static str {
        match self.naming {
            Naming::Hub => "model.language_model.",
            Naming::TextOnly => "model.",
            Naming::Bare => "",
        }
    }

    /// A number of the text config.
    pub fn number(&self, key: &str) -> usize {
        self.config[key].as_u64().unwrap_or_else(|| panic!("config has no number {key}")) as usize
    }

    fn config_json(&self) -> Value {
        let mut text = self.config.clone();
        text["mtp_num_hidden_layers"] = json!(usize::from(self.mtp != Mtp::None));
        let mut config = match self.naming {
            Naming::Hub => json!({
                "architectures": ["Qwen4ExpForConditionalGeneration"],
                "model_type": "qwen4_exp",
                "text_config": text,
                "vision_config": { "depth": 1 },
            }),
            _ => {
                text["architectures"] = json!(["Qwen4ExpForCausalLM"]);
                text
            }
        };
        if self.experts == Format::F8E4m3 {
            config["quantization_config"] = json!({
                "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
                "modules_to_convert": ["ple.ple_embedding.ngram_embedding"],
            });
        }
        config
    }
}

/// The tiny legal config of spec 8.2: it exercises every branch.
pub fn tiny_config() -> Value {
    let kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"];
    json!({
        "model_type": "qwen4_exp_text",
        "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 8, "layer_types": [kinds, kinds].concat(),
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 512, "tie_word_embeddings": false,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "attention_bias": false,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
            "mrope_section": [3, 3, 2], "mrope_interleaved": true,
        },
        "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16,
        "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "output_gate_type": "sigmoid",
        "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 24, "norm_topk_prob": true,
        "hc_count": 4, "hc_lowrank": 16,
        "ple_layer_ids": [2], "ple_embed_dim": 64, "ple_conv_kernel_size": 4, "ngram_size": 3, "heads_per_ngram": 2,
        "ngram_vocab_size_base": 50, "make_ngram_vocab_size_divisible_by": 8, "split_ngram_parts": 4, "seed": 1234,
        "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8,
        "indexer_compress_ratio": 4,
        "bos_token_id": 90, "eos_token_id": 90, "pad_token_id": null, "dtype": "float32",
    })
}
