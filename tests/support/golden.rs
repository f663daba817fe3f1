//! Reads the golden tensors that transformers wrote, and runs our model on them with every value captured.
#![allow(dead_code)] // each test file uses a part

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hipfire::backend::cpu::Cpu;
use hipfire::backend::{Backend, Observed, Observer};
use hipfire::config::Mixer;
use hipfire::model::LanguageModel;
use hipfire::model::forward::Model;
use hipfire::model::load::{self, LoadOptions};
use hipfire::state::Sequence;
use hipfire::weights::Source;

/// Tensors of one file, floats as F32, integers and booleans as i64.
pub struct Golden {
    floats: HashMap<String, Vec<f32>>,
    integers: HashMap<String, Vec<i64>>,
}

impl Golden {
    pub fn read(set: &str) -> Golden {
        let bytes = std::fs::read(folder(set).join("golden.safetensors")).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let entries: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
        let mut golden = Golden { floats: HashMap::new(), integers: HashMap::new() };
        for (name, entry) in entries.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__") {
            let at = |i: usize| 8 + header + entry["data_offsets"][i].as_u64().unwrap() as usize;
            let data = &bytes[at(0)..at(1)];
            match entry["dtype"].as_str().unwrap() {
                "F32" => {
                    let values = data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
                    golden.floats.insert(name.clone(), values);
                }
                "I64" => {
                    let values = data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect();
                    golden.integers.insert(name.clone(), values);
                }
                "BOOL" => {
                    golden.integers.insert(name.clone(), data.iter().map(|&b| b as i64).collect());
                }
                other => panic!("{name} has type {other}"),
            }
        }
        golden
    }
    pub fn floats(&self, name: &str) -> &[f32] {
        self.floats.get(name).unwrap_or_else(|| panic!("no golden tensor {name}"))
    }
    pub fn integers(&self, name: &str) -> &[i64] {
        self.integers.get(name).unwrap_or_else(|| panic!("no golden tensor {name}"))
    }
    pub fn ids(&self, name: &str) -> Vec<u32> {
        self.integers(name).iter().map(|&id| id as u32).collect()
    }
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.floats.keys().chain(self.integers.keys())
    }
}

pub fn folder(set: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(set)
}

/// The golden model with its MTP sidecar.
pub fn model(set: &str, options: &LoadOptions) -> Model<Cpu> {
    let source = Source::open(&folder(set).join("model")).unwrap();
    let source = source.with(&folder(set).join("mtp.safetensors")).unwrap();
    load::cpu(load::open(&source).unwrap(), options, &mut |_| {}).unwrap()
}

/// Values seen while a step ran, by name.
#[derive(Default, Clone)]
pub struct Captured {
    pub floats: HashMap<String, Vec<f32>>,
    pub integers: HashMap<String, Vec<i64>>,
}

/// Starts capturing a model's values; the returned handle fills as steps run.
pub fn capture(model: &mut Model<Cpu>) -> Arc<Mutex<Captured>> {
    let captured = Arc::new(Mutex::new(Captured::default()));
    model.set_observers(Some(observer(&captured)), Some(observer(&captured)));
    captured
}

/// Starts capturing a backend's values.
pub fn capture_cpu(cpu: &mut Cpu) -> Arc<Mutex<Captured>> {
    let captured = Arc::new(Mutex::new(Captured::default()));
    cpu.set_observer(Some(observer(&captured)));
    captured
}

fn observer(captured: &Arc<Mutex<Captured>>) -> Observer {
    let captured = captured.clone();
    Box::new(move |name, value| {
        let Captured { floats, integers } = &mut *captured.lock().unwrap();
        match value {
            Observed::F32(x) => drop(floats.insert(name.to_string(), x.to_vec())),
            Observed::U32(x) => drop(integers.insert(name.to_string(), x.iter().map(|&x| x as i64).collect())),
            Observed::U64(x) => drop(integers.insert(name.to_string(), x.iter().map(|&x| x as i64).collect())),
        }
    })
}

/// The largest absolute difference; NaN counts as infinite.
pub fn worst(ours: &[f32], golden: &[f32]) -> f32 {
    assert_eq!(ours.len(), golden.len(), "lengths differ");
    ours.iter()
        .zip(golden)
        .map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() })
        .fold(0.0, |m, d| if d.is_nan() { f32::INFINITY } else { d.max(m) })
}

/// The first of the largest.
pub fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter().position(|&x| x == best).unwrap() as u32
}

/// Everything a sequence remembers of its trunk, in comparable form: valid rows of every cache, recurrent matrices,
/// windows, ids.
pub fn state_of(model: &Model<Cpu>, sequence: &Sequence) -> Vec<Vec<f32>> {
    let shape = model.shape();
    let mut parts = vec![sequence.ids().iter().map(|&id| id as f32).collect()];
    parts.extend((0..shape.count(Mixer::Qsa)).map(|cache| cache_of(model, sequence, cache, sequence.len())));
    for layer in 0..shape.count(Mixer::Gdn) {
        let (matrix, window) = sequence.recurrent.gdn_view(layer, sequence.pending(), shape.gdn.channels());
        parts.push(matrix.to_vec());
        parts.push(window.to_vec());
    }
    for layer in 0..shape.ple.as_ref().map_or(0, |p| p.layers.len()) {
        parts.push(sequence.recurrent.ple_view(layer, sequence.pending(), shape.wide()).to_vec());
    }
    parts
}

/// The final rows of the MTP head's cache.
pub fn head_of(model: &Model<Cpu>, sequence: &Sequence) -> Vec<f32> {
    cache_of(model, sequence, model.shape().count(Mixer::Qsa), sequence.head().rows())
}

fn cache_of(model: &Model<Cpu>, sequence: &Sequence, cache: usize, rows: usize) -> Vec<f32> {
    let (a, i) = (&model.shape().attention, &model.shape().indexer);
    let cache = &sequence.kv[cache];
    let mut row = vec![0.0; a.head_dim.max(i.head_dim)];
    let mut part = Vec::new();
    for token in 0..rows {
        for head in 0..a.kv_heads {
            cache.key(token, head, &mut row[..a.head_dim]);
            part.extend_from_slice(&row[..a.head_dim]);
            cache.value(token, head, &mut row[..a.head_dim]);
            part.extend_from_slice(&row[..a.head_dim]);
        }
        cache.raw_index(token, &mut row[..i.head_dim]);
        part.extend_from_slice(&row[..i.head_dim]);
    }
    for block in 0..rows / i.ratio {
        cache.block_key(block, &mut row[..i.head_dim]);
        part.extend_from_slice(&row[..i.head_dim]);
    }
    part
}
