//! Products at the released geometry: few rows and many against a projection, the hyper-connections' gated read.

use hipfire::backend::hip::abi::{GemmArgs, GemvArgs, GemvPart, HyperGateArgs};
use hipfire::backend::hip::matrix;
use hipfire::error::Result;
use hipfire::weights::Format;

use crate::device::{Case, Device};

const HIDDEN: usize = 2560;
const STREAMS: usize = 4;
const WIDE: usize = STREAMS * HIDDEN;
const RANK: usize = 320;
/// Rows of a prefill step.
const CHUNK: usize = 4096;

impl Device<'_> {
    pub fn dense(&mut self) -> Result<()> {
        for (format, rows) in [
            (Format::Bf16, 1),
            (Format::Bf16, 8),
            (Format::F8E4m3, 1),
            (Format::Q8_0, 1),
            (Format::Q4K, 1),
            (Format::Q6K, 1),
        ] {
            self.gemv(format, rows)?;
        }
        for format in [Format::Bf16, Format::Q4K] {
            self.gemm(format)?;
        }
        for (name, format) in [("bf16", Format::Bf16), ("q8_0", Format::Q8_0)] {
            self.hyper_gate(name, format)?;
        }
        Ok(())
    }

    /// What a matrix keeps beside its rows: scales of FP8, heads of blocks.
    pub fn beside(&mut self, format: Format, outputs: usize, inputs: usize) -> Result<u64> {
        match matrix::planes(format) {
            Some(planes) => self.zeros(outputs * inputs / format.block() * planes.head),
            None => self.zeros(4 * outputs.div_ceil(128) * inputs.div_ceil(128)),
        }
    }

    fn gemv(&mut self, format: Format, rows: usize) -> Result<()> {
        let (outputs, inputs) = (WIDE, HIDDEN);
        let Some(kernel) = matrix::gemv(format, rows) else { return Ok(()) };
        let Some((grid, split)) = matrix::gemv_grid(format, outputs, inputs) else { return Ok(()) };
        let weights = outputs * format.row_bytes(inputs);
        let mut arguments = GemvArgs {
            x: self.zeros(4 * rows * inputs)?,
            rows: rows as u32,
            inputs: inputs as u32,
            count: 1,
            ..GemvArgs::default()
        };
        arguments.parts[0] = GemvPart {
            y: self.zeros(4 * rows * outputs)?,
            w: self.zeros(weights)?,
            scales: self.beside(format, outputs, inputs)?,
            outputs: outputs as u32,
            split,
            ..GemvPart::default()
        };
        // A workgroup reads the activations once, and a group of FP8 its scale.
        let scales = if format == Format::F8E4m3 { outputs / 4 * inputs / 16 * 4 } else { 0 };
        let case = Case {
            kernel,
            geometry: format!("{rows} x {inputs} by {outputs}"),
            grid,
            run: 16,
            unit: "output".into(),
            units: (rows * outputs) as f64,
            floor: (weights + 4 * rows * (inputs + outputs)) as f64,
            loads: Some((weights + grid * rows * inputs * 4 + scales) as f64),
        };
        self.launch(case, &arguments)
    }

    fn gemm(&mut self, format: Format) -> Result<()> {
        let (outputs, inputs) = (WIDE, HIDDEN);
        let Some(gemm) = matrix::gemm(format, CHUNK, outputs, inputs) else { return Ok(()) };
        let (weights, stride) = (outputs * format.row_bytes(inputs), matrix::gemm_stride(inputs));
        let arguments = GemmArgs {
            y: self.zeros(4 * CHUNK * outputs)?,
            x: self.zeros(2 * CHUNK * stride)?,
            factors: self.zeros(4 * CHUNK)?,
            w: self.zeros(weights)?,
            scales: self.beside(format, outputs, inputs)?,
            rows: CHUNK as u32,
            outputs: outputs as u32,
            inputs: inputs as u32,
            y_stride: outputs as u32,
            row_offset: 0,
            unused: 0,
        };
        let case = Case {
            kernel: gemm.kernel,
            geometry: format!("{CHUNK} x {inputs} by {outputs}"),
            grid: gemm.grid,
            run: 2,
            unit: "MFLOP".into(),
            units: 2e-6 * (CHUNK * outputs * inputs) as f64,
            floor: (weights + 2 * CHUNK * stride + 4 * CHUNK * outputs) as f64,
            loads: None,
        };
        self.launch(case, &arguments)
    }

    fn hyper_gate(&mut self, name: &str, format: Format) -> Result<()> {
        let weights = WIDE * format.row_bytes(RANK);
        let arguments = HyperGateArgs {
            x: self.zeros(4 * HIDDEN)?,
            inject: self.zeros(4 * STREAMS)?,
            normed: self.zeros(4 * WIDE)?,
            low: self.zeros(4 * RANK)?,
            raw: self.zeros(4 * STREAMS)?,
            up: self.zeros(weights)?,
            scales: self.beside(format, WIDE, RANK)?,
            rows: 1,
            streams: STREAMS as u32,
            hidden: HIDDEN as u32,
            rank: RANK as u32,
        };
        let case = Case {
            kernel: format!("hyper_gate_{name}_r1"),
            geometry: format!("1 row, {STREAMS} x {HIDDEN}, rank {RANK}"),
            grid: HIDDEN / matrix::GATE_COLUMNS,
            run: 8,
            unit: "column".into(),
            units: HIDDEN as f64,
            floor: (weights + 4 * (WIDE + HIDDEN)) as f64,
            loads: None,
        };
        self.launch(case, &arguments)
    }
}
