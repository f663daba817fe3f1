//! The mixture of experts at the released geometry: one row through its ten experts, 4,096 rows through all 512.

use bytemuck::Zeroable;
use hipfire::backend::hip::abi::{
    MoeCombineArgs, MoeDownArgs, MoeExpert, MoeGateUpArgs, MoeGemmDownArgs, MoeGemmGateUpArgs, MoeGroup, MoeTile,
};
use hipfire::backend::hip::matrix;
use hipfire::error::Result;
use hipfire::weights::Format;

use crate::device::{Case, Device};

const HIDDEN: usize = 2560;
const EXPERTS: usize = 512;
const TOP: usize = 10;
const INNER: usize = 640;
/// Rows of a prefill step.
const CHUNK: usize = 4096;

impl Device<'_> {
    pub fn experts(&mut self) -> Result<()> {
        for format in [Format::Bf16, Format::Q4K, Format::Q8_0] {
            self.experts_of_one_row(format)?;
        }
        for format in [Format::Bf16, Format::Q4K, Format::Q8_0] {
            self.experts_of_many_rows(format)?;
        }
        self.combine()
    }

    /// A table of experts that share their matrices.
    fn table(&mut self, format: Format, experts: usize) -> Result<u64> {
        let up = INNER * format.row_bytes(HIDDEN);
        let (gate, up, down) = (
            self.zeros(up)?,
            self.zeros(up)?,
            self.zeros(HIDDEN * format.row_bytes(INNER.next_multiple_of(format.block())))?,
        );
        let (inward, outward) = (self.beside(format, INNER, HIDDEN)?, self.beside(format, HIDDEN, INNER)?);
        let scales = MoeExpert { gate_scales: inward, up_scales: inward, down_scales: outward, ..MoeExpert::zeroed() };
        self.put(&vec![MoeExpert { gate, up, down, ..scales }; experts])
    }

    fn experts_of_one_row(&mut self, format: Format) -> Result<()> {
        let Some((name, multiple)) = matrix::kernels(format) else { return Ok(()) };
        let groups: Vec<MoeGroup> =
            (0..TOP as u32).map(|i| MoeGroup { expert: i, rows: 1, slots: i, unused: 0 }).collect();
        let arguments = MoeGateUpArgs {
            hidden: self.zeros(4 * TOP * INNER)?,
            shared_hidden: self.zeros(4 * INNER)?,
            x: self.zeros(4 * HIDDEN)?,
            experts: self.table(format, TOP + 1)?,
            groups: self.put(&groups)?,
            rows: 1,
            top_k: TOP as u32,
            inputs: HIDDEN as u32,
            inner: INNER as u32,
            shared: TOP as u32,
            shared_inner: INNER as u32,
            shared_q8_0: 0,
            unused: 0,
        };
        let weights = (TOP + 1) * 2 * INNER * format.row_bytes(HIDDEN);
        let case = Case {
            kernel: format!("moe_gate_up_{name}_r1"),
            geometry: format!("1 row, {TOP} experts and the shared one, {HIDDEN} x {INNER}"),
            grid: (TOP + 1) * INNER / 16,
            run: 8,
            unit: "output".into(),
            units: ((TOP + 1) * INNER) as f64,
            floor: (weights + 4 * HIDDEN + 4 * (TOP + 1) * INNER) as f64,
            // Each 16 outputs read the activations once.
            loads: Some((weights + (TOP + 1) * INNER / 16 * 4 * HIDDEN) as f64),
        };
        self.launch(case, &arguments)?;
        // Q4_K cannot store rows of 640: files of this model keep `down` in another format.
        if !INNER.is_multiple_of(multiple) {
            return Ok(());
        }
        let arguments = MoeDownArgs {
            y: self.zeros(4 * HIDDEN)?,
            hidden: self.zeros(4 * TOP * INNER)?,
            shared_hidden: self.zeros(4 * INNER)?,
            weights: self.zeros(4 * TOP)?,
            scale: self.zeros(4)?,
            experts: self.table(format, TOP + 1)?,
            groups: self.put(&groups)?,
            rows: 1,
            top_k: TOP as u32,
            outputs: HIDDEN as u32,
            inner: INNER as u32,
            shared: TOP as u32,
            shared_inner: INNER as u32,
            scale_stride: 1,
            add: 0,
            shared_q8_0: 0,
            unused: 0,
        };
        let weights = (TOP + 1) * HIDDEN * format.row_bytes(INNER);
        let case = Case {
            kernel: format!("moe_down_{name}_r1"),
            geometry: format!("1 row, {TOP} experts and the shared one, {INNER} x {HIDDEN}"),
            grid: HIDDEN / 8,
            run: 8,
            unit: "output".into(),
            units: HIDDEN as f64,
            floor: (weights + 4 * HIDDEN + 4 * (TOP + 1) * INNER) as f64,
            loads: Some((weights + (TOP + 1) * HIDDEN / 8 * 4 * INNER + 4 * TOP) as f64),
        };
        self.launch(case, &arguments)
    }

    /// 80 rows an expert: a tile of 64 and one of 16.
    fn experts_of_many_rows(&mut self, format: Format) -> Result<()> {
        let Some((name, multiple)) = matrix::kernels(format) else { return Ok(()) };
        let (entries, share) = (CHUNK * TOP, CHUNK * TOP / EXPERTS);
        let order: Vec<u32> = (0..entries as u32).collect();
        let tiles: Vec<MoeTile> = (0..EXPERTS as u32)
            .flat_map(|expert| {
                let first = expert * share as u32;
                [(first, 64), (first + 64, share as u32 - 64)].map(|(first, count)| MoeTile {
                    expert,
                    first,
                    count,
                    unused: 0,
                })
            })
            .collect();
        let arguments = MoeGemmGateUpArgs {
            hidden: self.zeros(2 * entries * INNER)?,
            x: self.zeros(2 * CHUNK * HIDDEN)?,
            factors: self.zeros(4 * CHUNK)?,
            experts: self.table(format, EXPERTS)?,
            entries: self.put(&order)?,
            tiles: self.put(&tiles)?,
            count: CHUNK as u32,
            expert: 0,
            top_k: TOP as u32,
            inputs: HIDDEN as u32,
            inner: INNER as u32,
            unused: 0,
        };
        let (parts, geometry) = (INNER.div_ceil(128), format!("{CHUNK} rows, {share} of each of {EXPERTS} experts"));
        let case = Case {
            kernel: format!("moe_gemm_gate_up_{name}"),
            geometry: geometry.clone(),
            grid: tiles.len() * parts,
            run: 2 * parts,
            unit: "MFLOP".into(),
            units: 4e-6 * (entries * INNER * HIDDEN) as f64,
            floor: (EXPERTS * 2 * INNER * format.row_bytes(HIDDEN) + 2 * CHUNK * HIDDEN + 2 * entries * INNER) as f64,
            loads: None,
        };
        self.launch(case, &arguments)?;
        if !INNER.is_multiple_of(multiple) {
            return Ok(());
        }
        let arguments = MoeGemmDownArgs {
            parts: self.zeros(2 * entries * HIDDEN)?,
            hidden: self.zeros(2 * entries * INNER)?,
            experts: self.table(format, EXPERTS)?,
            entries: self.put(&order)?,
            tiles: self.put(&tiles)?,
            count: CHUNK as u32,
            expert: 0,
            outputs: HIDDEN as u32,
            inner: INNER as u32,
        };
        let parts = HIDDEN.div_ceil(256);
        let case = Case {
            kernel: format!("moe_gemm_down_{name}"),
            geometry,
            grid: tiles.len() * parts,
            run: 2 * parts,
            unit: "MFLOP".into(),
            units: 2e-6 * (entries * INNER * HIDDEN) as f64,
            floor: (EXPERTS * HIDDEN * format.row_bytes(INNER) + 2 * entries * (INNER + HIDDEN)) as f64,
            loads: None,
        };
        self.launch(case, &arguments)
    }

    fn combine(&mut self) -> Result<()> {
        let run = 16;
        let rows = run * 2048 / HIDDEN;
        let arguments = MoeCombineArgs {
            y: self.zeros(4 * rows * HIDDEN)?,
            parts: self.zeros(2 * rows * TOP * HIDDEN)?,
            shared: self.zeros(2 * rows * HIDDEN)?,
            weights: self.zeros(4 * rows * TOP)?,
            scale: self.zeros(4 * rows)?,
            rows: rows as u32,
            top_k: TOP as u32,
            width: HIDDEN as u32,
            scale_stride: 1,
        };
        let case = Case {
            kernel: "moe_combine".into(),
            geometry: format!("{CHUNK} rows"),
            grid: CHUNK * HIDDEN / 2048,
            run,
            unit: "element".into(),
            units: (CHUNK * HIDDEN) as f64,
            floor: (CHUNK * HIDDEN * (2 * (TOP + 1) + 4)) as f64,
            loads: None,
        };
        self.launch(case, &arguments)
    }
}
