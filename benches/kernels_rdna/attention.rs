//! Attention at the released geometry: scores and selection at 262,144 tokens, a row's and a chunk's attention.

use bytemuck::Zeroable;
use hipfire::backend::hip::abi::{GatherAttendArgs, KvPlanes, QsaAttendArgs, QsaScoreArgs, QsaSelectArgs};
use hipfire::error::Result;

use crate::device::{Case, Device};

const HEADS: usize = 24;
const KV_HEADS: usize = 2;
const DIM: usize = 256;
const INDEX_HEADS: usize = 4;
const INDEX: usize = 128;
const BLOCKS: usize = 65_536;
const BUDGET: usize = 512;
const PART_BLOCKS: usize = 4096;

impl Device<'_> {
    pub fn attention(&mut self) -> Result<()> {
        for rows in [1, 4, 8, 16] {
            self.score(rows)?;
        }
        self.select()?;
        for (mode, head_bytes) in [("f32", 4 * DIM), ("fp8", DIM + 2), ("q8", DIM / 32 * 34)] {
            self.attend(mode, head_bytes)?;
        }
        self.gather()
    }

    fn score(&mut self, rows: usize) -> Result<()> {
        let planes = KvPlanes { blocks: self.zeros(BLOCKS * INDEX * 2)?, ..KvPlanes::zeroed() };
        let arguments = QsaScoreArgs {
            scores: self.zeros(4 * rows * BLOCKS)?,
            queries: self.zeros(4 * rows * INDEX_HEADS * INDEX)?,
            planes: self.put(&[planes])?,
            sequence: self.put(&vec![0u32; rows])?,
            positions: self.put(&vec![4 * BLOCKS as u32 - 1; rows])?,
            first: 0,
            count: rows as u32,
            max_blocks: BLOCKS as u32,
            heads: INDEX_HEADS as u32,
            dim: INDEX as u32,
            ratio: 4,
        };
        let keys = BLOCKS * INDEX * 2;
        let case = Case {
            kernel: format!("qsa_score_bf16_r{rows}"),
            geometry: format!("{rows} rows, {BLOCKS} blocks"),
            grid: BLOCKS / 256,
            run: 2,
            unit: "score".into(),
            units: (rows * BLOCKS) as f64,
            floor: (keys + 4 * rows * BLOCKS) as f64,
            // A lane also reads where the keys lie. Two groups of the widest kernel's waves share the keys, out of a cache.
            loads: (rows <= 8).then_some((keys + BLOCKS * 8) as f64),
        };
        self.launch(case, &arguments)
    }

    /// Scores that are all different: the work depends on them. First the candidates of every part, then the best of those.
    fn select(&mut self) -> Result<()> {
        let parts = BLOCKS / PART_BLOCKS;
        let arguments = self.selection(parts)?;
        let narrow = Case {
            kernel: "qsa_narrow".into(),
            geometry: format!("{BUDGET} of each {PART_BLOCKS} of {BLOCKS} blocks, different scores"),
            grid: parts,
            run: 1,
            unit: "score".into(),
            units: BLOCKS as f64,
            floor: (4 * (BLOCKS + parts * BUDGET)) as f64,
            loads: None,
        };
        self.launch(narrow, &arguments)?;
        let arguments = self.selection(parts)?;
        let select = Case {
            kernel: "qsa_select".into(),
            geometry: format!("{BUDGET} of {} candidates", parts * BUDGET),
            grid: 1,
            run: 1,
            unit: "candidate".into(),
            units: (parts * BUDGET) as f64,
            floor: (4 * (2 * parts * BUDGET + BUDGET)) as f64,
            loads: None,
        };
        self.launch(select, &arguments)
    }

    fn selection(&mut self, parts: usize) -> Result<QsaSelectArgs> {
        let scores: Vec<f32> = (0..BLOCKS as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32).collect();
        let candidates: Vec<u32> = (0..(parts * BUDGET) as u32).map(|i| i * (PART_BLOCKS / BUDGET) as u32).collect();
        Ok(QsaSelectArgs {
            blocks: self.zeros(4 * BUDGET)?,
            counts: self.zeros(4)?,
            candidates: self.put(&candidates)?,
            scores: self.put(&scores)?,
            positions: self.put(&[4 * BLOCKS as u32 - 1])?,
            first: 0,
            count: 1,
            max_blocks: BLOCKS as u32,
            budget: BUDGET as u32,
            ratio: 4,
            parts: parts as u32,
        })
    }

    /// A row at 8,192 tokens: 512 blocks of four, every fourth.
    fn lists(&mut self, rows: usize) -> Result<[u64; 4]> {
        let blocks: Vec<u32> = (0..rows).flat_map(|_| (0..BUDGET as u32).map(|i| 4 * i)).collect();
        let positions = vec![4 * 4 * BUDGET as u32 - 1; rows];
        let counts = vec![BUDGET as u32; rows];
        Ok([self.put(&blocks)?, self.put(&counts)?, self.put(&positions)?, self.put(&vec![0u32; rows])?])
    }

    fn attend(&mut self, mode: &str, head_bytes: usize) -> Result<()> {
        let (entries, tokens, split_entries) = (4 * BUDGET, 16 * BUDGET, 64);
        let splits = entries / split_entries;
        let plane = tokens * KV_HEADS * head_bytes;
        let planes = KvPlanes { keys: self.zeros(plane)?, values: self.zeros(plane)?, ..KvPlanes::zeroed() };
        let [blocks, counts, positions, sequence] = self.lists(1)?;
        let partial = HEADS * splits * DIM;
        let arguments = QsaAttendArgs {
            partial: self.zeros(4 * partial)?,
            partial_sums: self.zeros(8 * HEADS * splits)?,
            queries: self.zeros(4 * HEADS * DIM)?,
            planes: self.put(&[planes])?,
            sequence,
            positions,
            blocks,
            counts,
            heads: HEADS as u32,
            kv_heads: KV_HEADS as u32,
            max_blocks: BUDGET as u32,
            splits: splits as u32,
            split_entries: split_entries as u32,
            ratio: 4,
            dim: DIM as u32,
            scale: 1.0 / 16.0,
        };
        let rows_read = 2 * entries * KV_HEADS * head_bytes;
        let case = Case {
            kernel: format!("qsa_attend_{mode}_g12"),
            geometry: format!("1 row, {entries} entries in {splits} splits"),
            grid: KV_HEADS * splits,
            run: 4,
            unit: "entry".into(),
            units: entries as f64,
            floor: (rows_read + 4 * (HEADS * DIM + partial)) as f64,
            loads: Some((rows_read + 4 * splits * HEADS * DIM) as f64),
        };
        self.launch(case, &arguments)
    }

    fn gather(&mut self) -> Result<()> {
        let (rows, tokens, width) = (512, 16 * BUDGET, KV_HEADS * DIM);
        let [blocks, counts, positions, _] = self.lists(rows)?;
        let arguments = GatherAttendArgs {
            out: self.zeros(4 * rows * HEADS * DIM)?,
            q: self.zeros(4 * rows * HEADS * DIM)?,
            gate: self.zeros(8 * rows * HEADS * DIM)?,
            k: self.zeros(2 * tokens * width)?,
            v: self.zeros(2 * tokens * width)?,
            blocks,
            counts,
            positions,
            heads: HEADS as u32,
            kv_heads: KV_HEADS as u32,
            max_blocks: BUDGET as u32,
            gate_row_stride: (2 * HEADS * DIM) as u32,
            gate_head_stride: (2 * DIM) as u32,
            scale: 1.0 / 16.0,
        };
        let case = Case {
            kernel: "qsa_gather_attend_256".into(),
            geometry: format!("{rows} rows, {} entries each of {tokens}", 4 * BUDGET),
            grid: rows * KV_HEADS,
            run: 2,
            unit: "MFLOP".into(),
            units: 4e-6 * (rows * HEADS * DIM * 4 * BUDGET) as f64,
            floor: (4 * tokens * width + 12 * rows * HEADS * DIM) as f64,
            loads: None,
        };
        self.launch(case, &arguments)
    }
}
