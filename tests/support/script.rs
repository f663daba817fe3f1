//! A model without arithmetic: what it predicts is a function of the tokens it has seen, and every state it is given is
//! checked against those tokens. Shared by the tests of the engine.
#![allow(dead_code)] // each test file uses a part

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hipfire::arena::host::HostMemory;
use hipfire::arena::{Arena, KvBackend, Limits};
use hipfire::config::{
    AttentionShape, Gate, GdnShape, HeadMap, HyperShape, IndexerShape, KvMode, Mixer, MoeShape, RopeShape, Shape,
};
use hipfire::engine::speculate::Speculation;
use hipfire::engine::{Engine, Event, MemoryUse, Options, Request, SamplingParams, Stream};
use hipfire::error::Result;
use hipfire::model::{Feed, LOGIT_ROWS, LanguageModel};
use hipfire::state::{Sequence, StateLayout};

/// From all tokens so far to the next one.
pub type Rule = fn(&[u32]) -> u32;

/// The last id plus one.
pub fn counting(ids: &[u32]) -> u32 {
    (ids[ids.len() - 1] + 1) % VOCAB as u32
}

/// Depends on every token and its place.
pub fn hashing(ids: &[u32]) -> u32 {
    ids.iter().fold(7u32, |h, &id| trace(h, id)) % VOCAB as u32
}

pub const VOCAB: usize = 10;

/// 24 bits, so that an F32 holds it.
fn trace(before: u32, id: u32) -> u32 {
    (before.wrapping_mul(0x9E37).wrapping_add(id).wrapping_mul(0x0085_EBCB) ^ (before >> 11)) & 0xFF_FFFF
}

/// See the head.
pub struct Script {
    pub shape: Shape,
    pub layout: StateLayout,
    pub arena: Arena,
    pub rule: Rule,
    pub rows: usize,
    /// Every step takes this long.
    pub pause: Duration,
    /// Panics in a step that goes beyond this many tokens.
    pub break_at: Option<usize>,
    /// Gives NaN behind this id.
    pub poison: Option<u32>,
    pub steps: Arc<AtomicUsize>,
    /// Rows of each feed of each step.
    pub shares: Arc<Mutex<Vec<Vec<usize>>>>,
    /// First two ids of every prompt that was read from its beginning, in order.
    pub begun: Arc<Mutex<Vec<[u32; 2]>>>,
    pub next: Vec<u32>,
    pub fed: Vec<u32>,
    pub logits: Vec<f32>,
}

impl Script {
    /// Sequences of up to `context` tokens, with keys of `width` F32 values.
    pub fn new(context: usize, width: usize, limits: Limits) -> Script {
        let shape = shape(width, context);
        Script {
            layout: StateLayout::new(&shape, KvMode::F32, context, 0, false).unwrap(),
            shape,
            arena: Arena::new(Box::new(HostMemory::new()), KvBackend::Vmm, limits),
            rule: counting,
            rows: 20,
            pause: Duration::ZERO,
            break_at: None,
            poison: None,
            steps: Arc::default(),
            shares: Arc::default(),
            begun: Arc::default(),
            next: Vec::new(),
            fed: Vec::new(),
            logits: Vec::new(),
        }
    }

    /// 60 tokens of context.
    pub fn small() -> Script {
        Script::new(60, 4, Limits::default())
    }

    pub fn start(self, options: Options) -> Engine {
        Engine::start(Box::new(self), options).unwrap()
    }

    /// Every part of the state describes exactly the sequence's tokens.
    fn check(&self, sequence: &Sequence) {
        let expected = sequence.ids().iter().fold(0, |h, &id| trace(h, id));
        assert_eq!(sequence.recurrent.floats()[0], expected as f32, "the recurrent state is that of other tokens");
        let mut key = vec![0.0; self.shape.attention.head_dim];
        for (position, &id) in sequence.ids().iter().enumerate() {
            sequence.kv[0].key(position, 0, &mut key);
            assert_eq!((key[0], key[1]), (id as f32, position as f32), "a key is that of another token");
        }
    }
}

impl LanguageModel for Script {
    fn shape(&self) -> &Shape {
        &self.shape
    }
    fn max_rows(&self) -> usize {
        self.rows
    }
    fn max_sequence(&self) -> usize {
        self.layout.max_sequence
    }
    fn new_sequence(&mut self) -> Result<Sequence> {
        Sequence::new(&self.arena, &self.layout)
    }

    fn forward(&mut self, feeds: &mut [Feed<'_>]) -> Result<()> {
        std::thread::sleep(self.pause);
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.shares.lock().unwrap().push(feeds.iter().map(|feed| feed.ids.len()).collect());
        assert!((1..=self.rows).contains(&feeds.iter().map(|feed| feed.ids.len()).sum()));
        self.next.clear();
        self.fed.clear();
        for Feed { sequence, ids } in feeds {
            self.check(sequence);
            if let ([a, b, ..], true) = (*ids, sequence.is_empty()) {
                self.begun.lock().unwrap().push([*a, *b]);
            }
            let mut all = sequence.ids().to_vec();
            sequence.ensure(all.len() + ids.len())?;
            let mut row = vec![0.0; self.shape.attention.head_dim];
            for &id in *ids {
                (row[0], row[1]) = (id as f32, all.len() as f32);
                sequence.kv[0].write(all.len(), &row, &row);
                let before = sequence.recurrent.floats()[0] as u32;
                sequence.recurrent.floats_mut()[0] = trace(before, id) as f32;
                all.push(id);
                self.next.push((self.rule)(&all));
                self.fed.push(id);
            }
            sequence.advance(ids);
            assert!(self.break_at.is_none_or(|at| all.len() <= at), "the script breaks here");
        }
        Ok(())
    }

    fn logits(&mut self, rows: &[usize]) -> Result<&[f32]> {
        assert!(rows.len() <= LOGIT_ROWS);
        self.logits.clear();
        for &row in rows {
            if self.poison == Some(self.fed[row]) {
                return Err(hipfire::error::Error::Numeric("the script's logits are damaged".into()));
            }
            let next = self.next[row] as usize;
            self.logits.extend((0..VOCAB).map(|id| if id == next { 3.0 } else { 0.0 }));
        }
        Ok(&self.logits)
    }
}

fn shape(width: usize, context: usize) -> Shape {
    Shape {
        vocab: VOCAB,
        hidden: 4,
        layers: vec![Mixer::Gdn, Mixer::Qsa],
        norm_eps: 1e-6,
        hyper: HyperShape { streams: 1, low_rank: 1 },
        attention: AttentionShape { query_heads: 1, kv_heads: 1, head_dim: width },
        rope: RopeShape { theta: 1e4, rotary_dim: 2, yarn: None },
        indexer: IndexerShape { heads: 1, head_dim: 2, budget: 4, ratio: 4 },
        gdn: GdnShape {
            key_heads: 1,
            value_heads: 1,
            key_dim: 2,
            value_dim: 2,
            conv_kernel: 2,
            gate: Gate::Silu,
            head_map: HeadMap::Grouped,
        },
        moe: MoeShape { experts: 1, top_k: 1, intermediate: 1, shared_intermediate: 1, normalise: true },
        ple: None,
        mtp_layers: 0,
        max_position: context,
        tied_head: false,
        eos: None,
    }
}

pub fn options() -> Options {
    Options {
        prefill_chunk: 0,
        parallel: 1,
        max_queue: 64,
        cache_memory: 0,
        sessions: None,
        grammars: None,
        memory: Arc::new(MemoryUse::default),
        speculation: Speculation::default(),
        threads: 1,
    }
}

/// Greedy, four tokens.
pub fn request(ids: &[u32]) -> Request {
    Request {
        ids: ids.to_vec(),
        max_tokens: Some(4),
        params: SamplingParams::default(),
        stop_ids: vec![],
        logprobs: None,
        constraint: None,
        cancel: Default::default(),
    }
}

pub fn tokens(events: &[Event]) -> Vec<u32> {
    events.iter().filter_map(|e| if let Event::Token(t) = e { Some(t.id) } else { None }).collect()
}

/// Tokens of an answer that ends without an error.
pub fn answer(stream: Stream) -> Vec<u32> {
    let events: Vec<Event> = stream.collect();
    assert!(matches!(events.last(), Some(Event::Done(_))), "{:?}", events.last());
    tokens(&events)
}

/// What `rule` makes of a prompt.
pub fn expected(rule: Rule, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut ids = prompt.to_vec();
    for _ in 0..count {
        ids.push(rule(&ids));
    }
    ids.split_off(prompt.len())
}
