//! The forward pass (spec 2.1): which operation runs on which buffer, in which order.
//!
//! Owns: the activation buffers of a step, n-gram rows fetched for it, logits on request.
//! Always true: a step either runs whole and its sequences advance, or they stay what they were; what can fail on a sound
//! machine (memory, the n-gram table's file) is done before the first operation, and a sequence that a long step's
//! operations failed inside refuses further work (`state`).
//! Not here: the MTP head (`head`), what an operation computes (`backend`), what comes before and after a step
//! (`engine`).

mod head;

use super::bind::{Layer, LayerMixer, Weights};
use super::{Draft, Feed, LOGIT_ROWS, LanguageModel};
use crate::arena::Arena;
use crate::backend::dense::DensePasses;
use crate::backend::{Backend, HyperRead, KernelTime, Observed, Observer, Program, Rows};
use crate::config::{KvMode, Shape};
use crate::error::{Error, Result};
use crate::state::{Sequence, StateLayout};
use crate::weights::hash;

/// A model on a backend.
pub struct Model<B: Backend> {
    shape: Shape,
    weights: Weights<B>,
    backend: B,
    arena: Arena,
    layout: StateLayout,
    max_rows: usize,
    rows: Rows,
    buffers: Buffers<B>,
    host: Host,
    /// Position of every row of the trunk's last step.
    trunk_positions: Vec<u32>,
    /// What the MTP head's last step was.
    head: head::LastStep,
}

struct Buffers<B: Backend> {
    /// `[max_rows, D]`; after a step the streams before the final mixer.
    wide: B::Buffer,
    /// `[max_rows, H]`
    x: B::Buffer,
    /// `[max_rows, C]`
    inject: B::Buffer,
    /// `[max_rows, H]`
    y: B::Buffer,
    /// One a PLE layer, `[max_rows, embed_dim]`.
    ngram: Vec<B::Buffer>,
    /// `[LOGIT_ROWS, D]`, rows chosen for logits or as the MTP head's input.
    chosen: B::Buffer,
    /// `[LOGIT_ROWS, vocab]`
    logits: B::Buffer,
    /// `[head::most_rows, D]`, streams of the MTP head.
    mtp_wide: Option<B::Buffer>,
}

/// What the host prepares or reads.
struct Host {
    /// n-gram rows of the step, `[max_rows, heads]`.
    ngram_rows: Vec<u64>,
    /// Their values, `[max_rows, embed_dim]`.
    ngram_values: Vec<f32>,
    /// `[LOGIT_ROWS, vocab]`
    logits: Vec<f32>,
    observer: Option<Observer>,
}

/// Tokens for which memory is obtained while a step computes: more than a round of speculation adds.
const ROWS_AHEAD: usize = 16;

impl<B: Backend> Model<B> {
    /// Puts a bound model and its planned buffers together.
    pub fn new(
        shape: Shape,
        weights: Weights<B>,
        mut backend: B,
        arena: Arena,
        layout: StateLayout,
        max_rows: usize,
    ) -> Result<Model<B>> {
        let (d, hidden) = (shape.wide(), shape.hidden);
        let embed_dim = shape.ngram_width();
        let buffers = Buffers {
            wide: backend.buffer(max_rows, d)?,
            x: backend.buffer(max_rows.max(LOGIT_ROWS), hidden)?,
            inject: backend.buffer(max_rows, shape.hyper.streams)?,
            y: backend.buffer(max_rows, hidden)?,
            ngram: (0..injections(&shape)).map(|_| backend.buffer(max_rows, embed_dim)).collect::<Result<_>>()?,
            chosen: backend.buffer(LOGIT_ROWS, d)?,
            logits: backend.buffer(LOGIT_ROWS, shape.vocab)?,
            mtp_wide: match weights.mtp {
                Some(_) => Some(backend.buffer(head::most_rows(max_rows), d)?),
                None => None,
            },
        };
        let host = Host {
            ngram_rows: Vec::with_capacity(max_rows * shape.ple.as_ref().map_or(0, |p| p.heads())),
            ngram_values: vec![0.0; max_rows * embed_dim],
            logits: vec![0.0; LOGIT_ROWS * shape.vocab],
            observer: None,
        };
        Ok(Model {
            shape,
            weights,
            backend,
            arena,
            layout,
            max_rows,
            rows: Rows::default(),
            buffers,
            host,
            trunk_positions: Vec::with_capacity(max_rows),
            head: head::LastStep::default(),
        })
    }

    /// Bytes of activation buffers for a shape: part of the memory plan.
    pub fn buffer_bytes(shape: &Shape, max_rows: usize, mtp: bool) -> usize {
        let (d, hidden) = (shape.wide(), shape.hidden);
        let embed_dim = shape.ngram_width();
        let row = d + 2 * hidden + shape.hyper.streams + (1 + injections(shape)) * embed_dim;
        let head = if mtp { head::most_rows(max_rows) * d } else { 0 };
        (max_rows * row + head + LOGIT_ROWS * (d + 2 * shape.vocab)) * size_of::<f32>()
    }

    /// Shows every intermediate value to `observer` from the next step on. Only tests do.
    pub fn set_observers(&mut self, device: Option<Observer>, host: Option<Observer>) {
        self.backend.set_observer(device);
        self.host.observer = host;
    }

    /// Where its sequences' memory comes from.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// How its sequences store keys and values.
    pub fn kv_mode(&self) -> KvMode {
        self.layout.kv.mode()
    }

    /// What runs its operations.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Whether the MTP head is loaded.
    pub fn has_mtp(&self) -> bool {
        self.weights.mtp.is_some()
    }

    /// Reads the n-gram rows of the step and hands them to the backend.
    fn prepare_ngrams(&mut self, sequences: &[&mut Sequence]) -> Result<()> {
        let Model { weights, backend, buffers: b, rows, shape, host, .. } = self;
        let values = rows.len() * shape.ngram_width();
        let injections = weights.layers.iter().enumerate().filter_map(|(i, layer)| Some((i, layer.ple.as_ref()?)));
        for ((layer, injection), buffer) in injections.zip(&mut b.ngram) {
            fetch_ngrams(shape, injection, rows, sequences, host, layer)?;
            backend.upload(&host.ngram_values[..values], buffer)?;
        }
        Ok(())
    }

    fn trunk(&mut self, sequences: &mut [&mut Sequence]) -> Result<()> {
        let keeps = self.layout.mtp_caches > 0;
        let Model { weights, backend, buffers: b, rows, shape, .. } = self;
        let count = rows.len();
        backend.begin(rows, sequences)?;
        backend.run(Program::Trunk, &mut |backend| {
            layers(backend, weights, shape, count, sequences, b)?;
            match keeps {
                true => backend.keep_hidden(&b.wide, sequences),
                false => Ok(()),
            }
        })
    }

    /// Every id list of a step: not empty, inside the vocabulary, together no more than the rows planned for.
    fn check_step(&self, lists: &mut dyn Iterator<Item = &[u32]>) -> Result<()> {
        let (mut total, mut empty) = (0, false);
        for ids in lists {
            check_ids(ids, self.shape.vocab)?;
            total += ids.len();
            empty |= ids.is_empty();
        }
        if (1..=self.max_rows).contains(&total) && !empty {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a step takes 1 to {} tokens, each sequence at least one; asked for {total}",
            self.max_rows
        )))
    }

    /// Reads the logits of `rows`, `width` of them a row.
    fn read_logits(&mut self, rows: &[usize], stream: Stream, width: usize) -> Result<&[f32]> {
        let (what, positions) = match stream {
            Stream::Trunk => ("logits", &self.trunk_positions),
            Stream::Mtp => ("the MTP head's logits", &self.head.positions),
        };
        let logits = &mut self.host.logits[..rows.len() * width];
        self.backend.download(&self.buffers.logits, 0..rows.len(), width, logits)?;
        for (logits, &row) in logits.chunks_exact(width).zip(rows) {
            if let Some(id) = logits.iter().position(|x| x.is_nan()) {
                return Err(Error::Numeric(format!(
                    "{what} at position {} are not numbers (first at place {id}): the weights or the state are damaged",
                    positions[row]
                )));
            }
        }
        Ok(logits)
    }
}

impl<B: Backend> LanguageModel for Model<B> {
    fn shape(&self) -> &Shape {
        &self.shape
    }
    fn max_rows(&self) -> usize {
        self.max_rows
    }
    fn max_sequence(&self) -> usize {
        self.layout.max_sequence
    }
    fn adopt(&mut self) -> Result<()> {
        self.backend.adopt()
    }
    fn new_sequence(&mut self) -> Result<Sequence> {
        Sequence::new(&self.arena, &self.layout)
    }

    fn forward(&mut self, feeds: &mut [Feed<'_>]) -> Result<()> {
        self.check_step(&mut feeds.iter().map(|feed| feed.ids))?;
        for feed in feeds.iter_mut() {
            feed.sequence.check()?;
            feed.sequence.ensure(feed.sequence.len() + feed.ids.len())?;
        }
        self.trunk_positions.clear();
        self.catch_up(feeds)?;
        self.rows.clear();
        for feed in feeds.iter() {
            self.rows.push(feed.sequence.len(), feed.ids);
        }
        let mut sequences: Vec<&mut Sequence> = feeds.iter_mut().map(|feed| &mut *feed.sequence).collect();
        self.prepare_ngrams(&sequences)?;
        self.trunk(&mut sequences)?;
        self.follow(feeds)?;
        self.trunk_positions.extend(feeds.iter().flat_map(positions));
        for feed in feeds {
            feed.sequence.advance(feed.ids);
            if head::is_long(feed) {
                feed.sequence.head_reached(feed.sequence.len() - 1);
            }
            feed.sequence.ensure_ahead(ROWS_AHEAD);
        }
        Ok(())
    }

    fn logits(&mut self, rows: &[usize]) -> Result<&[f32]> {
        check_logit_rows(rows, &self.trunk_positions)?;
        let Model { weights, backend, buffers: b, shape, .. } = self;
        backend.choose(rows)?;
        backend.run(Program::Logits, &mut |backend| {
            backend.gather(&b.wide, shape.wide(), &mut b.chosen)?;
            head(backend, &weights.mixer, &weights.head, rows.len(), shape.hidden, b)
        })?;
        let vocab = self.shape.vocab;
        self.read_logits(rows, Stream::Trunk, vocab)
    }

    fn device_bytes(&self) -> Option<u64> {
        self.backend.device_bytes()
    }
    fn profile(&mut self, on: bool) -> Result<Vec<KernelTime>> {
        self.backend.profile(on)
    }

    fn max_drafts(&self) -> usize {
        match self.has_mtp() {
            true => self.layout.recurrent.rewind_rows.saturating_sub(1),
            false => 0,
        }
    }
    fn dense_passes(&self, rows: usize) -> Option<DensePasses> {
        self.backend.dense_passes(rows)
    }
    fn draft_first(&mut self, drafts: &mut [Draft<'_>]) -> Result<()> {
        self.first_drafts(drafts)
    }
    fn draft_next(&mut self, drafts: &mut [Draft<'_>]) -> Result<()> {
        self.next_drafts(drafts)
    }
    fn draft_logits(&mut self, drafts: &[usize]) -> Result<&[f32]> {
        self.logits_of_drafts(drafts)
    }
}

/// Which residual streams an operation works on.
#[derive(Clone, Copy, PartialEq)]
enum Stream {
    Trunk,
    Mtp,
}

/// The decoder layers, from the embedding on.
fn layers<B: Backend>(
    backend: &mut B,
    weights: &Weights<B>,
    shape: &Shape,
    count: usize,
    sequences: &mut [&mut Sequence],
    b: &mut Buffers<B>,
) -> Result<()> {
    let (d, hidden) = (shape.wide(), shape.hidden);
    backend.embed(&weights.embedding, &mut b.wide)?;
    backend.enter(format_args!("trunk"));
    backend.observe("embed", &b.wide, count, d);
    let (mut gdn, mut cache, mut ple) = (0, 0, 0);
    let mut read = false;
    for (i, layer) in weights.layers.iter().enumerate() {
        backend.enter(format_args!("layer{i}"));
        if let Some(injection) = &layer.ple {
            backend.ple(&injection.ple, ple, &b.ngram[ple], sequences, &mut b.wide)?;
            ple += 1;
        }
        if !read {
            backend.hyper_read(&layer.mixer_hyper, count, &b.wide, &mut b.x, &mut b.inject)?;
        }
        backend.observe("attn_hc.0", &b.x, count, hidden);
        backend.observe("attn_hc.1", &b.wide, count, d);
        backend.observe("attn_hc.2", &b.inject, count, shape.hyper.streams);
        match &layer.mixer {
            LayerMixer::Gdn(w) => {
                backend.gdn(w, gdn, &b.x, sequences, &mut b.y)?;
                backend.observe("gdn", &b.y, count, hidden);
                gdn += 1;
            }
            LayerMixer::Qsa(_) => {
                qsa(backend, layer, cache, sequences, b)?;
                backend.observe("attn", &b.y, count, hidden);
                cache += 1;
            }
        }
        // An injection changes the streams between the layers.
        let next = weights.layers.get(i + 1).filter(|next| next.ple.is_none());
        experts(backend, layer, next.map(|next| &next.mixer_hyper), count, shape, b, Stream::Trunk)?;
        read = next.is_some();
        backend.observe("out", &b.wide, count, d);
    }
    Ok(())
}

fn qsa<B: Backend>(
    backend: &mut B,
    layer: &Layer<B>,
    cache: usize,
    sequences: &mut [&mut Sequence],
    b: &mut Buffers<B>,
) -> Result<()> {
    let LayerMixer::Qsa(w) = &layer.mixer else { return Ok(()) };
    backend.qsa_project(w, cache, &b.x, sequences)?;
    backend.qsa_select(cache, sequences)?;
    backend.qsa_attend(w, cache, sequences, &mut b.y)
}

/// Writes the mixer's result back, then reads for, runs and writes back the experts, and reads for what comes `next`.
fn experts<B: Backend>(
    backend: &mut B,
    layer: &Layer<B>,
    next: Option<&HyperRead<B>>,
    count: usize,
    shape: &Shape,
    b: &mut Buffers<B>,
    stream: Stream,
) -> Result<()> {
    let wide = match (stream, &mut b.mtp_wide) {
        (Stream::Mtp, Some(wide)) => wide,
        _ => &mut b.wide,
    };
    backend.hyper_turn(&layer.moe_hyper, count, wide, &b.y, &mut b.x, &mut b.inject)?;
    backend.observe("mlp_hc.0", &b.x, count, shape.hidden);
    backend.observe("mlp_hc.1", wide, count, shape.wide());
    backend.observe("mlp_hc.2", &b.inject, count, shape.hyper.streams);
    backend.moe(&layer.moe, &b.x, &mut b.y)?;
    backend.observe("moe", &b.y, count, shape.hidden);
    match next {
        Some(next) => backend.hyper_turn(next, count, wide, &b.y, &mut b.x, &mut b.inject),
        None => backend.hyper_write(wide, &b.inject, &b.y),
    }
}

/// Positions of a feed's rows.
fn positions(feed: &Feed<'_>) -> std::ops::Range<u32> {
    let first = feed.sequence.len();
    first as u32..(first + feed.ids.len()) as u32
}

/// PLE layers.
fn injections(shape: &Shape) -> usize {
    shape.ple.as_ref().map_or(0, |ple| ple.layers.len())
}

/// Final mixer and output head on the chosen rows.
fn head<B: Backend>(
    backend: &mut B,
    mixer: &HyperRead<B>,
    head: &B::Matrix,
    rows: usize,
    hidden: usize,
    b: &mut Buffers<B>,
) -> Result<()> {
    backend.hyper_read(mixer, rows, &b.chosen, &mut b.x, &mut b.inject)?;
    backend.enter(format_args!("head"));
    backend.observe("mixer", &b.x, rows, hidden);
    backend.linear(head, rows, &b.x, &mut b.logits)
}

/// Hashes the step's n-grams and reads their rows into `host.ngram_values`.
fn fetch_ngrams<B: Backend>(
    shape: &Shape,
    injection: &super::bind::Injection<B>,
    rows: &Rows,
    sequences: &[&mut Sequence],
    host: &mut Host,
    layer: usize,
) -> Result<()> {
    let (Some(ple), Some(eos)) = (&shape.ple, shape.eos) else { return Ok(()) };
    let heads = ple.heads();
    host.ngram_rows.clear();
    host.ngram_rows.resize(rows.len() * heads, 0);
    let mut recent = Vec::with_capacity(rows.len() + ple.ngram);
    for (segment, sequence) in rows.segments.iter().zip(sequences) {
        let before = &sequence.ids()[sequence.len().saturating_sub(ple.ngram - 1)..];
        recent.clear();
        recent.extend_from_slice(before);
        recent.extend_from_slice(&rows.ids[segment.range()]);
        for row in segment.range() {
            let context = hash::context(&recent, before.len() + row - segment.first, eos, ple.ngram);
            hash::rows(&injection.hash, ple, &context, &mut host.ngram_rows[row * heads..(row + 1) * heads]);
        }
    }
    injection.table.gather(&host.ngram_rows, &mut host.ngram_values[..rows.len() * ple.embed_dim])?;
    if let Some(observer) = &mut host.observer {
        observer(&format!("layer{layer}.ple_rows"), Observed::U64(&host.ngram_rows));
        observer(&format!("layer{layer}.ple_emb"), Observed::F32(&host.ngram_values[..rows.len() * ple.embed_dim]));
    }
    Ok(())
}

/// Rows that logits are asked for: in the last step, and no more than their buffer was planned for.
fn check_logit_rows(rows: &[usize], positions: &[u32]) -> Result<()> {
    if rows.len() <= LOGIT_ROWS && rows.iter().all(|&row| row < positions.len()) {
        return Ok(());
    }
    Err(Error::invalid(format!("logits are kept for up to {LOGIT_ROWS} of the last step's {} rows", positions.len())))
}

fn check_ids(ids: &[u32], vocab: usize) -> Result<()> {
    match ids.iter().find(|&&id| id as usize >= vocab) {
        None => Ok(()),
        Some(id) => Err(Error::invalid(format!("token id {id} is outside the vocabulary of {vocab} ids"))),
    }
}
