//! What a model is, without loading it: its shape, parameters and bytes by group, and where the bytes are in a run.
//!
//! Owns: which group a tensor belongs to, where a group is kept, and the sums.
//! Always true: only headers and config.json are read; every byte of every tensor is in exactly one group.
//! Not here: the memory plan (`arena::plan`), printing (`cli::inspect`).

use serde::Serialize;

use crate::config::{Mixer, Shape};
use crate::model::load::Opened;

/// A model's description.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Name of the folder, or "ember".
    pub name: String,
    /// Named facts about the shape, in reading order.
    pub shape: Vec<Fact>,
    /// Tensors by what they do; empty groups are left out.
    pub groups: Vec<Group>,
    /// Parameters of all groups.
    pub parameters: u64,
    /// Bytes of all groups.
    pub bytes: u64,
    /// Those that a run keeps in memory.
    pub memory_bytes: u64,
    /// Those that stay in their file.
    pub file_bytes: u64,
}

/// Where a run has a group's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Resident, of the device that runs the model.
    Memory,
    /// Resident if tokens are drafted.
    MemoryForDrafts,
    /// On disk: a token reads a few rows.
    File,
    /// Not read.
    Nowhere,
}

/// One line about the shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// What it is about.
    pub name: &'static str,
    /// In words.
    pub value: String,
}

/// Tensors that do the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// What they do.
    pub name: &'static str,
    /// How many there are.
    pub tensors: usize,
    /// Elements, without scales and integer constants.
    pub parameters: u64,
    /// Bytes in the checkpoint, scales and constants included.
    pub bytes: u64,
    /// Element types, each once.
    pub types: Vec<String>,
    /// Where a run has them.
    pub kept: Kept,
}

/// Groups in the order they are shown, with a part of the tensor's name that tells; the first match counts, the last
/// one matches everything.
const GROUPS: [(&str, Kept, &[&str]); 11] = [
    ("vision tower (not used)", Kept::Nowhere, &["visual."]),
    ("MTP head", Kept::MemoryForDrafts, &["mtp."]),
    ("routed experts", Kept::Memory, &[".mlp.experts.", "_exps."]),
    ("shared experts and routers", Kept::Memory, &[".mlp.", "_shexp.", ".ffn_gate_inp."]),
    ("hyper-connections", Kept::Memory, &["hyper_connection", ".hc_attn_", ".hc_ffn_", "output_hc_"]),
    ("GDN mixers", Kept::Memory, &[".linear_attn.", ".attn_qkv.", ".attn_gate.", ".ssm_"]),
    ("QSA attention", Kept::Memory, &[".self_attn.", ".attn_", ".indexer."]),
    ("n-gram table", Kept::File, &["ngram_embedding.", "per_layer_token_embd.", "ple_ngram_embd."]),
    ("n-gram embedding, dense part", Kept::Memory, &[".ple.", ".ple_"]),
    ("embedding and head", Kept::Memory, &["embed_tokens.", "lm_head.", "token_embd.", "output."]),
    ("other", Kept::Nowhere, &[""]),
];

/// Describes an opened model.
pub fn summary(name: &str, Opened { checkpoint, shape, .. }: &Opened) -> Summary {
    // In a GGUF file the head is a block behind the trunk's.
    let head = format!("blk.{}.", shape.layers.len());
    let tensors = checkpoint.list().map(|t| {
        let name = match t.name {
            name if name.starts_with(&head) => "mtp.",
            "ple.weight" => "per_layer_token_embd.weight",
            name => name,
        };
        (name, t.dtype, t.shape, t.bytes)
    });
    let groups = grouped(tensors);
    let bytes = |kept: &[Kept]| groups.iter().filter(|g| kept.contains(&g.kept)).map(|g| g.bytes).sum();
    Summary {
        name: name.to_string(),
        shape: facts(shape),
        memory_bytes: bytes(&[Kept::Memory, Kept::MemoryForDrafts]),
        file_bytes: bytes(&[Kept::File]),
        parameters: groups.iter().map(|g| g.parameters).sum(),
        bytes: groups.iter().map(|g| g.bytes).sum(),
        groups,
    }
}

fn grouped<'a>(tensors: impl Iterator<Item = (&'a str, &'a str, &'a [usize], usize)>) -> Vec<Group> {
    let empty = |name, kept| Group { name, tensors: 0, parameters: 0, bytes: 0, types: Vec::new(), kept };
    let mut groups: Vec<Group> = GROUPS.iter().map(|&(name, kept, _)| empty(name, kept)).collect();
    for (name, dtype, shape, bytes) in tensors {
        let index = GROUPS.iter().position(|(_, _, parts)| parts.iter().any(|part| name.contains(part)));
        let group = &mut groups[index.unwrap_or(GROUPS.len() - 1)];
        group.tensors += 1;
        group.bytes += bytes as u64;
        let constant = dtype.starts_with('I') || dtype.starts_with('U') || name.contains("_scale");
        if !constant {
            group.parameters += shape.iter().map(|&n| n as u64).product::<u64>();
            if !group.types.iter().any(|known| known == dtype) {
                group.types.push(dtype.to_string());
            }
        }
    }
    groups.retain(|group| group.tensors > 0);
    groups
}

fn facts(shape: &Shape) -> Vec<Fact> {
    let fact = |name, value| Fact { name, value };
    let (a, i, g, m) = (&shape.attention, &shape.indexer, &shape.gdn, &shape.moe);
    let mut facts = vec![
        fact("vocabulary", format!("{} ids", shape.vocab)),
        fact("context", format!("{} tokens", shape.max_position)),
        fact(
            "layers",
            format!("{}: {} GDN, {} QSA", shape.layers.len(), shape.count(Mixer::Gdn), shape.count(Mixer::Qsa)),
        ),
        fact("width", format!("{} in {} residual streams", shape.hidden, shape.hyper.streams)),
        fact("QSA", format!("{} query and {} KV heads of {}", a.query_heads, a.kv_heads, a.head_dim)),
        fact("indexer", format!("{} heads of {}; {} tokens in blocks of {}", i.heads, i.head_dim, i.budget, i.ratio)),
        fact(
            "GDN",
            format!("{} key heads of {}, {} value heads of {}", g.key_heads, g.key_dim, g.value_heads, g.value_dim),
        ),
        fact(
            "experts",
            format!(
                "{} of width {}, {} a token; a shared one of {}",
                m.experts, m.intermediate, m.top_k, m.shared_intermediate
            ),
        ),
    ];
    if let Some(ple) = &shape.ple {
        let rows = ple.hash.first().map_or(0, |hash| hash.table_rows);
        facts.push(fact("n-gram table", format!("{rows} rows of {}, {} a token", ple.row_dim(), ple.heads())));
    }
    let mtp = if shape.mtp_layers == 0 { "none".into() } else { format!("{} layer", shape.mtp_layers) };
    facts.push(fact("MTP head", mtp));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::{Checkpoint, Source};

    #[test]
    fn every_tensor_of_the_embedded_model_has_a_group_and_the_sums_are_the_cards() {
        let Some(source) = Source::embedded() else { return };
        let checkpoint = Checkpoint::open(&source).unwrap();
        let groups = grouped(checkpoint.list().map(|t| (t.name, t.dtype, t.shape, t.bytes)));
        assert!(groups.iter().all(|group| group.name != "other"), "{groups:?}");
        assert_eq!(groups.iter().map(|g| g.bytes).sum::<u64>(), checkpoint.bytes());
        // The model card: 11.94 M parameters.
        let parameters: u64 = groups.iter().map(|g| g.parameters).sum();
        assert_eq!((parameters as f64 / 1e4).round() / 100.0, 11.94);
    }

    #[test]
    fn scales_and_integer_constants_are_bytes_but_no_parameters() {
        let tensors: [(&str, &str, &[usize], usize); 3] = [
            ("model.layers.0.mlp.experts.0.up_proj.weight", "F8_E4M3", &[128, 256], 32768),
            ("model.layers.0.mlp.experts.0.up_proj.weight_scale_inv", "F32", &[1, 2], 8),
            ("model.layers.1.ple.ple_embedding.layer_multipliers", "I64", &[3], 24),
        ];
        let groups = grouped(tensors.into_iter());
        assert_eq!((groups[0].parameters, groups[0].bytes, groups[0].types.len()), (32768, 32776, 1));
        assert_eq!((groups[1].parameters, groups[1].bytes), (0, 24));
    }
}
