//! The tensor list of the architecture (spec 5.1) in each layout that a loader must accept.
//!
//! Owns: names, shapes and distributions of every tensor of a synthetic checkpoint.
//! Not here: which layout is asked for (`checkpoint`), bytes (`safetensors`).

use hipfire::weights::format::Format;
use hipfire::weights::hash;
use serde_json::{Value, json};

use super::checkpoint::{ExpertLayout, Mtp, Recipe};
use super::safetensors::{Content, Stored};
use super::values::{Draw, Field, matrix_deviation};

/// Every tensor of the model, as it will be stored.
pub fn list(recipe: &Recipe) -> Vec<Stored> {
    let mut list = List { recipe, tensors: Vec::new() };
    let (prefix, hidden, vocab) = (recipe.prefix(), recipe.number("hidden_size"), recipe.number("vocab_size"));
    let unit = Draw::Normal { mean: 0.0, deviation: 1.0 };
    list.dense(prefix, "embed_tokens.weight", &[vocab, hidden], unit);
    if recipe.config["tie_word_embeddings"] != json!(true) {
        list.matrix("", "lm_head.weight", vocab, hidden);
    }
    list.mixer(prefix, "hyper_connection_mixer.");
    let ple: Vec<usize> =
        recipe.config["ple_layer_ids"].as_array().map_or(vec![], |ids| ids.iter().filter_map(number).collect());
    for (i, kind) in recipe.config["layer_types"].as_array().expect("layer_types").iter().enumerate() {
        let layer = format!("layers.{i}.");
        if let Some(index) = ple.iter().position(|id| *id == i + 1) {
            list.ple(prefix, &layer, index);
        }
        list.layer(prefix, &layer, kind == "linear_attention");
    }
    if recipe.mtp != Mtp::None {
        list.norm("mtp.", "pre_fc_norm_embedding.weight", hidden);
        list.norm("mtp.", "pre_fc_norm_hidden.weight", hidden * recipe.number("hc_count"));
        list.matrix("mtp.", "fc_embedding.weight", hidden, hidden);
        list.matrix("mtp.", "fc_hidden.weight", hidden, hidden);
        list.mixer("mtp.", "hyper_connection_mixer.");
        list.layer("mtp.", "layers.0.", false);
    }
    if recipe.visual {
        for (name, dtype, shape, bytes) in [("a", "F64", vec![2, 3], 48), ("b", "I32", vec![2], 8), ("c", "Q7", vec![5], 9)] {
            let content = Content::Zeros(bytes);
            list.tensors.push(Stored { name: format!("model.visual.{name}"), dtype: dtype.into(), shape, content });
        }
    }
    list.tensors
}

fn number(value: &Value) -> Option<usize> {
    value.as_u64().map(|number| number as usize)
}

/// The tensors so far. Names are `prefix` + `name`; a tensor's values depend on `name` (and on being the MTP head's).
struct List<'a> {
    recipe: &'a Recipe,
    tensors: Vec<Stored>,
}

impl List<'_> {
    fn field(&self, prefix: &str, name: &str, draw: Draw) -> Field {
        let family = if prefix == "mtp." { "mtp." } else { "" };
        Field::new(self.recipe.seed, &format!("{family}{name}"), draw, self.recipe.grid)
    }

    fn push(&mut self, name: String, format: Format, shape: &[usize], content: Content) {
        self.tensors.push(Stored { name, dtype: format.to_string(), shape: shape.to_vec(), content });
    }

    fn dense(&mut self, prefix: &str, name: &str, shape: &[usize], draw: Draw) {
        let (field, format) = (self.field(prefix, name, draw), self.recipe.dense);
        let run = Content::Run { field, format, first: 0, count: shape.iter().product::<usize>() as u64 };
        self.push(format!("{prefix}{name}"), format, shape, run);
    }

    fn matrix(&mut self, prefix: &str, name: &str, rows: usize, cols: usize) {
        let draw = Draw::Normal { mean: 0.0, deviation: matrix_deviation(cols) };
        self.dense(prefix, name, &[rows, cols], draw);
    }

    fn norm(&mut self, prefix: &str, name: &str, size: usize) {
        self.dense(prefix, name, &[size], Draw::Normal { mean: 0.0, deviation: 0.2 });
    }

    fn mixer(&mut self, prefix: &str, at: &str) {
        let (rank, wide) = (self.recipe.number("hc_lowrank"), self.wide());
        self.norm(prefix, &format!("{at}hc_norm.weight"), wide);
        self.matrix(prefix, &format!("{at}input_mix_weight_down.weight"), rank, wide);
        self.matrix(prefix, &format!("{at}input_mix_weight_up.weight"), wide, rank);
    }

    fn wide(&self) -> usize {
        self.recipe.number("hidden_size") * self.recipe.number("hc_count")
    }

    fn layer(&mut self, prefix: &str, layer: &str, linear: bool) {
        for part in ["attn", "mlp"] {
            let at = format!("{layer}{part}_hyper_connection.");
            self.mixer(prefix, &at);
            let streams = self.recipe.number("hc_count");
            self.matrix(prefix, &format!("{at}block_inject_weight.weight"), streams, self.wide());
        }
        match linear {
            true => self.gdn(prefix, &format!("{layer}linear_attn.")),
            false => self.attention(prefix, &format!("{layer}self_attn.")),
        }
        self.moe(prefix, &format!("{layer}mlp."));
    }

    fn gdn(&mut self, prefix: &str, at: &str) {
        let n = |key: &str| self.recipe.number(key);
        let (hidden, heads, width) = (n("hidden_size"), n("linear_num_value_heads"), n("linear_value_head_dim"));
        let (keys, values) = (n("linear_num_key_heads") * n("linear_key_head_dim"), heads * width);
        let (channels, taps) = (2 * keys + values, n("linear_conv_kernel_dim"));
        self.matrix(prefix, &format!("{at}in_proj_qkv.weight"), channels, hidden);
        self.matrix(prefix, &format!("{at}in_proj_z.weight"), values, hidden);
        self.matrix(prefix, &format!("{at}in_proj_b.weight"), heads, hidden);
        self.matrix(prefix, &format!("{at}in_proj_a.weight"), heads, hidden);
        let conv = Draw::Normal { mean: 0.0, deviation: 0.4 };
        self.dense(prefix, &format!("{at}conv1d.weight"), &[channels, 1, taps], conv);
        self.dense(prefix, &format!("{at}A_log"), &[heads], Draw::DecayLog);
        self.dense(prefix, &format!("{at}dt_bias"), &[heads], Draw::Normal { mean: 0.0, deviation: 0.5 });
        self.dense(prefix, &format!("{at}norm.weight"), &[width], Draw::Normal { mean: 1.0, deviation: 0.2 });
        self.matrix(prefix, &format!("{at}out_proj.weight"), hidden, values);
    }

    fn attention(&mut self, prefix: &str, at: &str) {
        let n = |key: &str| self.recipe.number(key);
        let (hidden, width) = (n("hidden_size"), n("head_dim"));
        let (queries, keys) = (n("num_attention_heads") * width, n("num_key_value_heads") * width);
        let (index_heads, index_width) = (n("indexer_n_heads"), n("indexer_head_dim"));
        self.matrix(prefix, &format!("{at}q_proj.weight"), 2 * queries, hidden);
        self.matrix(prefix, &format!("{at}k_proj.weight"), keys, hidden);
        self.matrix(prefix, &format!("{at}v_proj.weight"), keys, hidden);
        self.matrix(prefix, &format!("{at}o_proj.weight"), hidden, queries);
        self.norm(prefix, &format!("{at}q_norm.weight"), width);
        self.norm(prefix, &format!("{at}k_norm.weight"), width);
        self.matrix(prefix, &format!("{at}indexer.index_qk_proj.weight"), (index_heads + 1) * index_width, hidden);
        self.norm(prefix, &format!("{at}indexer.q_layernorm.weight"), index_width);
        self.norm(prefix, &format!("{at}indexer.k_layernorm.weight"), index_width);
    }

    fn moe(&mut self, prefix: &str, at: &str) {
        let n = |key: &str| self.recipe.number(key);
        let (hidden, inner) = (n("hidden_size"), n("moe_intermediate_size"));
        let (experts, shared) = (n("num_experts"), n("shared_expert_intermediate_size"));
        self.matrix(prefix, &format!("{at}gate.weight"), experts, hidden);
        self.matrix(prefix, &format!("{at}shared_expert.gate_proj.weight"), shared, hidden);
        self.matrix(prefix, &format!("{at}shared_expert.up_proj.weight"), shared, hidden);
        self.matrix(prefix, &format!("{at}shared_expert.down_proj.weight"), hidden, shared);
        self.matrix(prefix, &format!("{at}shared_expert_gate.weight"), 1, hidden);
        self.experts(prefix, at, "gate_up", &["gate", "up"], [experts, inner, hidden]);
        self.experts(prefix, at, "down", &["down"], [experts, hidden, inner]);
    }

    /// One packed tensor `[experts, parts * rows, cols]`, in whichever layout.
    fn experts(&mut self, prefix: &str, at: &str, packed: &str, parts: &[&str], [experts, rows, cols]: [usize; 3]) {
        let name = format!("{at}experts.{packed}_proj");
        let field = self.field(prefix, &name, Draw::Experts { parts: parts.len(), rows, cols });
        let (format, fp8) = (self.recipe.experts, self.recipe.experts == Format::F8E4m3);
        let (size, all) = ((rows * cols) as u64, parts.len() * rows);
        let blocks = [rows.div_ceil(128), cols.div_ceil(128)];
        let scales = |first: usize, matrices: usize| {
            let (field, format) = (field.clone(), self.recipe.scales);
            Content::Scales { field, format, first: first as u64, matrices: matrices as u64, rows, cols }
        };
        match self.recipe.expert_layout {
            ExpertLayout::Packed => {
                // A block across gate and up would need one scale where separate experts have two.
                assert!(!fp8 || rows % 128 == 0 || parts.len() == 1, "packed FP8 experts need whole blocks");
                let (scales, count) = (scales(0, experts * parts.len()), (experts * all * cols) as u64);
                let run = Content::Run { field, format, first: 0, count };
                self.push(format!("{prefix}{name}"), format, &[experts, all, cols], run);
                if fp8 {
                    let shape = [experts, parts.len() * blocks[0], blocks[1]];
                    self.push(format!("{prefix}{name}_scale_inv"), self.recipe.scales, &shape, scales);
                }
            }
            ExpertLayout::Transposed => {
                assert!(!fp8, "the transposed layout has no scales");
                let turned = Content::Turned { field, format, experts, rows: all, cols };
                self.push(format!("{prefix}{name}"), format, &[experts, cols, all], turned);
            }
            ExpertLayout::Separate => {
                for (i, part) in (0..experts).flat_map(|_| parts).enumerate() {
                    let expert = i / parts.len();
                    let weight = format!("{prefix}{at}experts.{expert}.{part}_proj.weight");
                    let run = Content::Run { field: field.clone(), format, first: i as u64 * size, count: size };
                    let scales = scales(i, 1);
                    self.push(weight.clone(), format, &[rows, cols], run);
                    if fp8 {
                        self.push(format!("{weight}_scale_inv"), self.recipe.scales, &blocks, scales);
                    }
                }
            }
        }
    }

    fn ple(&mut self, prefix: &str, layer: &str, index: usize) {
        let n = |key: &str| self.recipe.number(key);
        let (hidden, wide, embed, at) = (n("hidden_size"), self.wide(), n("ple_embed_dim"), format!("{layer}ple."));
        let (ngram, per_ngram, seed) = (n("ngram_size"), n("heads_per_ngram"), n("seed") as u64);
        let (base, pad) = (n("ngram_vocab_size_base") as u64, n("make_ngram_vocab_size_divisible_by") as u64);
        let (taps, parts) = (n("ple_conv_kernel_size"), n("split_ngram_parts"));
        let hash = hash::derive(n("vocab_size"), seed, index, ngram, per_ngram, base, pad).expect("a legal config");
        self.matrix(prefix, &format!("{at}key_proj.weight"), wide, embed);
        self.matrix(prefix, &format!("{at}value_proj.weight"), hidden, embed);
        for norm in ["norm_key", "norm_query", "norm_conv"] {
            self.norm(prefix, &format!("{at}{norm}.weight"), wide);
        }
        let conv = Draw::Normal { mean: 0.0, deviation: 0.4 };
        self.dense(prefix, &format!("{at}conv1d.weight"), &[wide, 1, taps], conv);
        for (name, numbers) in [
            ("layer_multipliers", &hash.multipliers),
            ("ngram_heads_vocab_sizes", &hash.head_sizes),
            ("ngram_heads_offsets", &hash.head_offsets),
        ] {
            let name = format!("{prefix}{at}ple_embedding.{name}");
            self.push(name, Format::I64, &[numbers.len()], Content::Integers(numbers.clone()));
        }
        let name = format!("{at}ple_embedding.ngram_embedding.");
        let (field, format) = (self.field(prefix, &name, Draw::Table), self.recipe.table);
        let (rows, cols) = (hash.table_rows as usize, embed / hash.head_sizes.len());
        let shard = if self.recipe.table_sharded { rows.div_ceil(parts) } else { rows };
        for (i, first) in (0..rows).step_by(shard).enumerate() {
            let here = shard.min(rows - first);
            let part = if self.recipe.table_sharded { format!("shard_{i}.") } else { String::new() };
            let (first, count) = ((first * cols) as u64, (here * cols) as u64);
            let run = Content::Run { field: field.clone(), format, first, count };
            self.push(format!("{prefix}{name}{part}weight"), format, &[here, cols], run);
        }
        if format == Format::F8E4m3 {
            let format = self.recipe.scales;
            let scale = Content::Scales { field, format, first: 0, matrices: 1, rows: 1, cols: 1 };
            self.push(format!("{prefix}{name}weight_scale"), format, &[1], scale);
        }
    }
}
