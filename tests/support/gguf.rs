//! GGUF files in memory that a test can change and put together again, and the golden model as one.
//!
//! Owns: the way from a file to editable parts and back.
//! Always true: a file that nothing was changed in has the same tensors and keys.
//! Not here: what is right or wrong about a file (the tests).
#![allow(dead_code)] // every test file uses its part

use std::path::Path;

use hipfire::backend::cpu::Cpu;
use hipfire::model::LOGIT_ROWS;
use hipfire::model::forward::Model;
use hipfire::model::load::{self, LoadOptions};
use hipfire::model::quantize::{Options, quantize};
use hipfire::model::{Feed, LanguageModel};
use hipfire::weights::format::Format;
use hipfire::weights::gguf::types;
use hipfire::weights::gguf::write::{Announced, Field, Layout, Writer};
use hipfire::weights::gguf::{Metadata, read};
use hipfire::weights::{Bytes, Source};

/// A tensor with its data.
#[derive(Clone)]
pub struct Part {
    pub name: String,
    pub kind: &'static types::StoredType,
    /// Outermost first.
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

/// A file in parts.
#[derive(Clone, Default)]
pub struct Edited {
    pub pairs: Vec<(String, Field)>,
    pub tensors: Vec<Part>,
}

impl Edited {
    pub fn read(bytes: &[u8]) -> Edited {
        let bytes = Bytes::heap(bytes.to_vec());
        let header = read::header("edited.gguf", &bytes).unwrap();
        let part = |entry: read::Entry| {
            let data = bytes[entry.start..entry.end].to_vec();
            Part { name: entry.name, kind: entry.kind, shape: entry.shape, data }
        };
        Edited { pairs: pairs(&header.metadata), tensors: header.tensors.into_iter().map(part).collect() }
    }

    pub fn write(&self) -> Vec<u8> {
        let announced = |part: &Part| Announced { name: part.name.clone(), kind: part.kind, shape: part.shape.clone() };
        let layout = Layout { pairs: self.pairs.clone(), tensors: self.tensors.iter().map(announced).collect() };
        let mut writer = Writer::start(&layout, Vec::new()).unwrap();
        for part in &self.tensors {
            writer.append(&part.name, &part.data).unwrap();
        }
        let bytes = writer.finish().unwrap();
        assert_eq!(bytes.len() as u64, layout.bytes());
        bytes
    }

    pub fn set(&mut self, key: &str, field: Field) {
        self.pairs.retain(|(known, _)| known != key);
        self.pairs.push((key.to_owned(), field));
    }

    pub fn remove(&mut self, key: &str) {
        let before = self.pairs.len();
        self.pairs.retain(|(known, _)| known != key);
        assert_eq!(self.pairs.len() + 1, before, "there was a key {key}");
    }

    pub fn tensor(&mut self, name: &str) -> &mut Part {
        self.tensors.iter_mut().find(|part| part.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    pub fn take(&mut self, name: &str) -> Part {
        let at = self.tensors.iter().position(|part| part.name == name).unwrap_or_else(|| panic!("no tensor {name}"));
        self.tensors.remove(at)
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        self.tensor(from).name = to.to_owned();
    }
}

pub fn pairs(metadata: &Metadata) -> Vec<(String, Field)> {
    let copied = |key: &str| {
        let (value, bytes) = metadata.stored(key).unwrap();
        (key.to_owned(), Field::Copied { kind: value.kind, count: value.count, bytes: bytes.to_vec() })
    };
    metadata.keys().map(copied).collect()
}

impl Part {
    pub fn f32(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.shape.iter().product()];
        self.kind.format.unwrap().decode_row(&self.data, &mut values);
        values
    }

    pub fn set_f32(&mut self, values: &[f32]) {
        self.kind = types::of(Format::F32).unwrap();
        self.data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    }
}

/// A golden set with its MTP head.
pub fn golden_source(set: &str) -> Source {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(set);
    Source::open(&folder.join("model")).unwrap().with(&folder.join("mtp.safetensors")).unwrap()
}

/// The bytes of `source` as GGUF.
pub fn written(source: &Source, options: &Options) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    quantize(source, &out, options, &mut |_| {}).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the file");
    std::fs::read(out).unwrap()
}

pub fn memory_source(files: &[(&str, &[u8])]) -> Source {
    let files = files.iter().map(|(name, bytes)| (name.to_string(), Bytes::heap(bytes.to_vec())));
    Source::from_files("memory", files).unwrap()
}

pub fn load(source: &Source) -> hipfire::error::Result<Model<Cpu>> {
    let options = LoadOptions { mtp: true, ..LoadOptions::default() };
    load::cpu(load::open(source)?, &options, &mut |_| {})
}

/// Logits of every row of one step, and those of the MTP head for every row but the last.
pub fn logits(model: &mut Model<Cpu>, ids: &[u32]) -> (Vec<f32>, Vec<f32>) {
    let mut sequence = model.new_sequence().unwrap();
    model.forward(&mut [Feed { sequence: &mut sequence, ids }]).unwrap();
    let (mut trunk, mut head) = (Vec::new(), Vec::new());
    for first in (0..ids.len()).step_by(LOGIT_ROWS) {
        let rows: Vec<usize> = (first..ids.len().min(first + LOGIT_ROWS)).collect();
        trunk.extend_from_slice(model.logits(&rows).unwrap());
    }
    if model.has_mtp() {
        for first in (0..ids.len() - 1).step_by(LOGIT_ROWS) {
            let rows: Vec<usize> = (first..(ids.len() - 1).min(first + LOGIT_ROWS)).collect();
            head.extend_from_slice(model.head_logits(&rows).unwrap());
        }
    }
    (trunk, head)
}
