//! A model that is in no file: a geometry with random weights, to measure with.
//!
//! Owns: the geometries by name, pools of random weights, the skew of the routing.
//! Always true: the same name gives the same model; weights have the scale of trained ones (deviation 0.02, as
//! `initializer_range` says), so that activations stay finite; matrices are cut out of two pools, one a format, because
//! what is measured depends on bytes and shapes, not on values. Routing is skewed: some experts' logits vary more, so that
//! they win more often.
//! Not here: what is measured (`engine::bench`).

use std::sync::Arc;

use super::{Group, Parameters, Part};
use crate::arena::host::FileMap;
use crate::config::{Mixer, MoeShape, NgramHash, PleShape, Shape};
use crate::error::{Error, Result};
use crate::model::config;
use crate::weights::gguf::types::parse;
use crate::weights::{Bytes, Checkpoint, Expert, Format, Matrix, NgramTable, Tensor};

/// Deviation of the weights.
const DEVIATION: f32 = 0.02;
/// Bytes of a pool beyond its largest matrix, in which matrices start at different places.
const SLACK: usize = 64 << 20;
/// Weights that are drawn; a pool repeats them.
const DRAWN: usize = 1 << 20;

/// Random weights for a shape.
pub struct Synthetic {
    checkpoint: Checkpoint,
    shape: Shape,
    experts: Pool,
    trunk: Pool,
    table: Bytes,
}

/// Bytes of one format.
struct Pool {
    format: Format,
    bytes: Bytes,
}

impl Pool {
    fn new(format: Format, largest: usize) -> Pool {
        let mut random = Random(format as u64 + 1);
        let mut drawn = Vec::new();
        for _ in 0..DRAWN / 4096 {
            let values: Vec<f32> = (0..4096).map(|_| DEVIATION * random.normal()).collect();
            format.encode_row(&values, &mut drawn);
        }
        // Whole repetitions, so that a block never straddles two.
        let bytes = drawn.repeat((largest + SLACK).div_ceil(drawn.len()));
        Pool { format, bytes: Bytes::heap(bytes) }
    }

    fn matrix(&self, name: String, rows: usize, cols: usize) -> Result<Matrix> {
        // Rows that no whole number of blocks fills are stored as the trunk's control tensors are: unquantised.
        if !cols.is_multiple_of(self.format.block()) {
            return Pool::new(Format::F16, 0).sized(name, rows, cols);
        }
        self.sized(name, rows, cols)
    }

    fn sized(&self, name: String, rows: usize, cols: usize) -> Result<Matrix> {
        let bytes = self.format.row_bytes(cols) * rows;
        let unit = self.format.block_bytes() * 64;
        let start = (seed(&name) % (SLACK / unit / 2) as u64) as usize * unit;
        let data = self.bytes.slice(start..start + bytes);
        let data =
            data.ok_or_else(|| Error::invalid(format!("the pool of random weights is too small for '{name}'")))?;
        Tensor { name, format: self.format, shape: vec![rows, cols], data }.to_matrix()
    }
}

impl Synthetic {
    /// The model `GEOMETRY[:FORMAT]`: `released` or `small`, and the format of the experts (q4_0 without one). The trunk is
    /// Q8_0 beside quantised experts, else of the experts' format.
    ///
    /// # Errors
    /// `Invalid`, for a name or a format that is not known; `Io`, if the table's sparse file cannot be made.
    pub fn new(name: &str) -> Result<Synthetic> {
        let (geometry, format) = name.split_once(':').unwrap_or((name, "q4_0"));
        let config = match geometry {
            "released" => released()?,
            "small" => small()?,
            _ => {
                return Err(Error::invalid(format!("there is no synthetic model '{geometry}': use released or small")));
            }
        };
        let shape = config::parse(config.to_string().as_bytes())?;
        let experts = parse(format)?;
        let trunk = if experts.block() > 1 { Format::Q8_0 } else { experts };
        let largest = |format: Format, rows: usize, cols: usize| format.row_bytes(cols) * rows;
        let inner = shape.moe.intermediate.max(shape.moe.shared_intermediate);
        let of_experts = Pool::new(experts, largest(experts, inner.max(shape.hidden), shape.hidden.max(inner)));
        let of_trunk = Pool::new(trunk, largest(trunk, shape.vocab.max(shape.wide()), shape.hidden));
        Ok(Synthetic {
            checkpoint: Checkpoint::nowhere(name),
            table: table(&shape)?,
            shape,
            experts: of_experts,
            trunk: of_trunk,
        })
    }

    /// The geometry.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    fn expert_matrix(&self, name: String, rows: usize, cols: usize) -> Result<Matrix> {
        match cols.is_multiple_of(self.experts.format.block()) {
            true => self.experts.matrix(name, rows, cols),
            // As published quantised files have it: rows of 640 in Q4_K become Q8_0's 32-wide blocks.
            false => self.trunk.matrix(name, rows, cols),
        }
    }
}

/// A sparse file of zeros that is gone when the process ends: the table's rows cost reads as a real one's do.
fn table(shape: &Shape) -> Result<Bytes> {
    let Some(ple) = &shape.ple else { return Ok(Bytes::heap(Vec::new())) };
    let rows = ple.hash.first().map_or(0, |hash| hash.table_rows);
    let bytes = rows * Format::Bf16.row_bytes(ple.row_dim()) as u64;
    let path = std::env::temp_dir().join(format!("hipfire-table-{}", std::process::id()));
    let what = || format!("cannot make the sparse file {}", path.display());
    let file = std::fs::File::create_new(&path).map_err(Error::io(what()))?;
    let sized = file.set_len(bytes).map_err(Error::io(what()));
    let map = sized.and_then(|()| FileMap::open(&path));
    std::fs::remove_file(&path).map_err(Error::io(what()))?;
    Ok(Bytes::mapped(Arc::new(map?)))
}

impl Parameters for &Synthetic {
    fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }
    fn name(&self, part: Part, name: &str) -> String {
        format!("{part:?}.{name}")
    }
    fn has_mtp(&self) -> bool {
        self.shape.mtp_layers > 0
    }
    fn group(&self, _: &str) -> Group {
        Group::Dense
    }
    fn norm(&self, _: Part, _: &str, width: usize) -> Result<Vec<f32>> {
        Ok(vec![1.0; width])
    }
    fn taps(&self, part: Part, name: &str, channels: usize, kernel: usize) -> Result<Vec<f32>> {
        let mut random = Random(seed(&self.name(part, name)));
        Ok((0..channels * kernel).map(|_| random.normal() / (kernel as f32).sqrt()).collect())
    }
    fn decay(&self, _: Part, heads: usize) -> Result<Vec<f32>> {
        // From slow to fast, as A in (1, 16) was initialised.
        Ok((0..heads).map(|head| -(1.0 + 15.0 * head as f32 / heads as f32)).collect())
    }
    fn index_projections(&self, part: Part, queries: usize, keys: usize, hidden: usize) -> Result<(Matrix, Matrix)> {
        let matrix = |name: &str, rows| self.trunk.matrix(self.name(part, name), rows, hidden);
        Ok((matrix("index_q", queries)?, matrix("index_k", keys)?))
    }
    fn experts(&self, part: Part, moe: &MoeShape, hidden: usize) -> Result<Vec<Expert>> {
        let matrix = |expert: usize, name: &str, rows, cols| {
            self.expert_matrix(format!("{part:?}.experts.{expert}.{name}"), rows, cols)
        };
        (0..moe.experts)
            .map(|expert| {
                Ok(Expert {
                    gate: matrix(expert, "gate", moe.intermediate, hidden)?,
                    up: matrix(expert, "up", moe.intermediate, hidden)?,
                    down: matrix(expert, "down", hidden, moe.intermediate)?,
                })
            })
            .collect()
    }
    fn fusion(&self, hidden: usize) -> Result<(Matrix, Matrix)> {
        let matrix = |name: &str| self.matrix(Part::Head, name, hidden, hidden);
        Ok((matrix("fc_embedding.weight")?, matrix("fc_hidden.weight")?))
    }
    fn table(&self, part: Part, ple: &PleShape, rows: u64) -> Result<NgramTable> {
        let shape = vec![rows as usize, ple.row_dim()];
        let name = self.name(part, "table");
        NgramTable::of(
            &self.checkpoint,
            Tensor { name, format: Format::Bf16, shape, data: self.table.clone() },
            rows,
            ple.row_dim(),
        )
    }
    fn hash(&self, _: Part, _: &PleShape, known: &NgramHash) -> Result<NgramHash> {
        Ok(known.clone())
    }
    fn matrix(&self, part: Part, name: &str, rows: usize, cols: usize) -> Result<Matrix> {
        let full = self.name(part, name);
        if name != "mlp.gate.weight" {
            return self.trunk.matrix(full, rows, cols);
        }
        let mut random = Random(seed(&full));
        let mut data = Vec::with_capacity(rows * cols * 4);
        for expert in 0..rows {
            // A few experts' logits vary three times as much as most experts'.
            let spread = 0.5 + 2.5 / (1.0 + (expert * 37 % rows) as f32 / 16.0);
            data.extend((0..cols).flat_map(|_| (DEVIATION * spread * random.normal()).to_le_bytes()));
        }
        Tensor { name: full, format: Format::F32, shape: vec![rows, cols], data: Bytes::heap(data) }.to_matrix()
    }
    fn floats(&self, part: Part, name: &str, width: usize) -> Result<Vec<f32>> {
        let mut random = Random(seed(&self.name(part, name)));
        Ok((0..width).map(|_| 1.0 + 0.1 * random.normal()).collect())
    }
    fn sizes(&self) -> super::Sizes {
        let s = &self.shape;
        let bytes = |pool: &Pool, rows: usize, cols: usize| match cols.is_multiple_of(pool.format.block()) {
            true => pool.format.row_bytes(cols) * rows,
            false => Format::F16.row_bytes(cols) * rows,
        };
        let trunk = |rows: usize, cols: usize| bytes(&self.trunk, rows, cols);
        let (hidden, d, moe, a, g, i) = (s.hidden, s.wide(), &s.moe, &s.attention, &s.gdn, &s.indexer);
        let outward =
            if moe.intermediate.is_multiple_of(self.experts.format.block()) { &self.experts } else { &self.trunk };
        let experts = moe.experts
            * (2 * bytes(&self.experts, moe.intermediate, hidden) + bytes(outward, hidden, moe.intermediate));
        let hyper =
            |injects: bool| 2 * trunk(s.hyper.low_rank, d) + if injects { trunk(s.hyper.streams, d) } else { 0 };
        let shared = 3 * trunk(moe.shared_intermediate, hidden) + moe.experts * hidden * 4;
        let gdn = trunk(g.channels() + g.values() + 2 * g.value_heads, hidden) + trunk(hidden, g.values());
        let heads = a.query_heads * a.head_dim;
        let qsa =
            trunk(2 * heads + 2 * a.kv_heads * a.head_dim + (i.heads + 1) * i.head_dim, hidden) + trunk(hidden, heads);
        let layer = |mixer: usize| mixer + 2 * hyper(true) + shared;
        let ple = s.ple.as_ref().map_or(0, |p| p.layers.len() * trunk(d + hidden, p.embed_dim));
        super::Sizes {
            dense: s.count(Mixer::Gdn) * layer(gdn)
                + s.count(Mixer::Qsa) * layer(qsa)
                + 2 * trunk(s.vocab, hidden)
                + hyper(false)
                + ple,
            experts: vec![experts; s.layers.len()],
            mtp: s.mtp_layers * (layer(qsa) + experts + 2 * trunk(hidden, hidden) + hyper(false)),
            table: self.table.len(),
        }
    }
}

fn seed(name: &str) -> u64 {
    // FNV-1a.
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// SplitMix64, twelve of whose uniform numbers make a normal one (Irwin-Hall).
struct Random(u64);

impl Random {
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }
    fn uniform(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 24) as f32
    }
}

/// The published configuration (spec 1.2).
const RELEASED: &str = include_str!("released.json");

fn released() -> Result<serde_json::Value> {
    serde_json::from_str(RELEASED)
        .map_err(|error| Error::model(format!("the released configuration is damaged: {error}")))
}

/// The released head geometry and selection on a small width: long contexts in seconds.
fn small() -> Result<serde_json::Value> {
    let mut config = released()?;
    for (name, value) in [
        ("vocab_size", 4096),
        ("hidden_size", 256),
        ("num_hidden_layers", 4),
        ("num_experts", 16),
        ("num_experts_per_tok", 4),
        ("moe_intermediate_size", 64),
        ("shared_expert_intermediate_size", 64),
        ("hc_lowrank", 32),
        ("linear_num_key_heads", 2),
        ("linear_num_value_heads", 4),
        ("ple_embed_dim", 256),
        ("ngram_vocab_size_base", 5600),
        ("bos_token_id", 0),
        ("eos_token_id", 0),
    ] {
        config[name] = value.into();
    }
    config["layer_types"] = config["layer_types"].as_array().map(|all| all[..4].to_vec()).into();
    Ok(config)
}
