//! Matrices in every storage format: embedding rows, products with few rows, products with many.

use half::f16;

use super::super::abi::{EmbedArgs, GemmArgs, GemmRowsArgs, GemvArgs, GemvPart};
use super::super::matrix;
use super::Class;
use super::bench::{Bench, Expected, U16, gamma};
use crate::device::DeviceMemory;
use crate::error::Result;
use crate::weights::Format;

/// A matrix on the device, and its values.
pub struct Stored {
    /// Its bytes.
    pub weights: DeviceMemory,
    scales: Option<DeviceMemory>,
    /// What they decode to.
    pub values: Vec<f32>,
}

impl Stored {
    /// Address of the scales beside the bytes; 0 if the format has none.
    pub fn scales(&self) -> u64 {
        self.scales.as_ref().map_or(0, DeviceMemory::address)
    }
}

/// Columns that share a scale beside the bytes.
const SCALE_BLOCK: usize = 128;

/// Formats that have kernels, with the end of their names and what a row must be a multiple of.
pub fn formats() -> impl Iterator<Item = (Format, &'static str, usize)> {
    Format::ALL
        .into_iter()
        .filter_map(|format| matrix::kernels(format).map(|(name, multiple)| (format, name, multiple)))
}

/// `[outputs, inputs]` of blocks that `block` makes; the first block of scales begins `row_offset` rows before row 0.
pub fn store(
    bench: &mut Bench<'_>,
    format: Format,
    [outputs, inputs]: [usize; 2],
    row_offset: usize,
    mut block: impl FnMut(&mut Bench<'_>) -> Vec<u8>,
) -> Result<Stored> {
    let (row_bytes, mut bytes) = (format.row_bytes(inputs), Vec::new());
    while bytes.len() < outputs * row_bytes {
        bytes.extend(block(bench));
    }
    bytes.truncate(outputs * row_bytes);
    let mut values = vec![0.0; outputs * inputs];
    for (bytes, values) in bytes.chunks_exact(row_bytes).zip(values.chunks_exact_mut(inputs)) {
        format.decode_row(bytes, values);
    }
    let mut scales = None;
    if format == Format::F8E4m3 {
        let across = inputs.div_ceil(SCALE_BLOCK);
        let count = (outputs + row_offset).div_ceil(SCALE_BLOCK) * across;
        let numbers: Vec<f32> = (0..count).map(|_| 0.01 + bench.uniform()).collect();
        for (r, row) in values.chunks_exact_mut(inputs).enumerate() {
            for (c, value) in row.iter_mut().enumerate() {
                *value *= numbers[(r + row_offset) / SCALE_BLOCK * across + c / SCALE_BLOCK];
            }
        }
        scales = Some(bench.upload(&numbers)?);
    }
    if let Some(planes) = matrix::planes(format) {
        let part = |part: matrix::Strided<'_>| {
            let mut bytes = vec![0; part.len()];
            part.copy(0, &mut bytes);
            bytes
        };
        scales = Some(bench.upload(&part(planes.heads(&bytes)))?);
        bytes = part(planes.codes(&bytes));
    }
    Ok(Stored { weights: bench.upload(&bytes)?, scales, values })
}

/// Blocks of any bits whose values are finite: every code, scale and sign occurs.
fn any_bits(format: Format) -> impl FnMut(&mut Bench<'_>) -> Vec<u8> {
    let mut values = vec![0.0; format.block()];
    move |bench| loop {
        let bytes: Vec<u8> = (0..format.block_bytes()).map(|_| (bench.uniform() * 256.0) as u8).collect();
        format.decode_row(&bytes, &mut values);
        if values.iter().all(|value| value.is_finite()) {
            return bytes;
        }
    }
}

/// Blocks out of a few that hold numbers in [-1, 1).
pub fn usual(bench: &mut Bench<'_>, format: Format) -> impl FnMut(&mut Bench<'_>) -> Vec<u8> + use<> {
    let pool: Vec<Vec<u8>> = (0..61)
        .map(|_| {
            let mut bytes = Vec::new();
            format.encode_row(&bench.signed(format.block()), &mut bytes);
            bytes
        })
        .collect();
    move |bench| pool[(bench.uniform() * 61.0) as usize % 61].clone()
}

/// Rows of a table in every stream: decode, bit for bit.
pub fn embed(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(1);
    for (format, name, multiple) in formats() {
        for (rows, streams, hidden) in [(1, 1, multiple), (3, 4, 264), (2, 2, 2560)] {
            let hidden = hidden.next_multiple_of(multiple);
            let vocabulary = 131;
            let table = store(bench, format, [vocabulary, hidden], 0, any_bits(format))?;
            let ids: Vec<u32> = (0..rows as u32).map(|r| (r * 7 + 130) % vocabulary as u32).collect();
            let i = bench.upload(&ids)?;
            let wide = bench.output::<f32>(rows * streams * hidden)?;
            let arguments = EmbedArgs {
                wide: wide.address(),
                table: table.weights.address(),
                scales: table.scales(),
                ids: i.address(),
                streams: streams as u32,
                hidden: hidden as u32,
            };
            let kernel = format!("embed_{name}");
            bench.launch(&kernel, rows, &arguments)?;
            let row = |id: u32| &table.values[id as usize * hidden..][..hidden];
            let want: Vec<f32> = ids.iter().flat_map(|&id| (0..streams).flat_map(move |_| row(id)).copied()).collect();
            let got = bench.read::<f32>(&wide)?;
            bench.exact(&kernel, format!("{rows} rows, {streams} streams of {hidden}"), &got, &want);
        }
    }
    Ok(())
}

/// Few rows against a matrix: every kernel's own widths, every split, and the same row alone and in company.
pub fn gemv(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(3);
    for (format, name, multiple) in formats() {
        let mut blocks = usual(bench, format);
        for (kernel_rows, shapes) in [
            (1, &[(1, 5, 8), (1, 132, 2568), (1, 33, 10240)][..]),
            (2, &[(1, 4, 8), (2, 65, 520), (2, 36, 2560)]),
            (4, &[(3, 7, 16), (4, 64, 640), (4, 33, 2560)]),
            (8, &[(5, 3, 24), (7, 17, 320), (8, 48, 2560), (6, 9, 40)]),
        ] {
            for (at, &(rows, outputs, inputs)) in shapes.iter().enumerate() {
                let inputs = usize::next_multiple_of(inputs, multiple);
                let row_offset = if at == 1 { 100 } else { 0 };
                let w = store(bench, format, [outputs, inputs], row_offset, &mut blocks)?;
                let x = bench.signed(rows * inputs);
                let split = matrix::gemv_grid(format, outputs, inputs).map_or(0, |(_, split)| split);
                // The smallest shape leaves waves without work.
                let split = if at == 0 { 3 } else { split };
                let case = format!("{rows} rows, {outputs} x {inputs}, 2^{split} waves");
                let kernel = format!("gemv_{name}_r{kernel_rows}");
                let got = product(bench, &kernel, &w, &x, [rows, outputs, inputs], row_offset, split)?;
                // A lane's chain of products, then five steps across lanes and the waves of an output.
                let group = multiple.min(32);
                let depth = (inputs / group).div_ceil(32 << split) * group + 5 + (1 << split);
                bench.close(
                    &kernel,
                    case.clone(),
                    Class::Ordered,
                    &got,
                    &products(&w.values, &x, inputs, gamma(depth)),
                );
                if kernel_rows > 1 {
                    let (alone, row) = (format!("gemv_{name}_r1"), rows - 1);
                    let x = &x[row * inputs..];
                    let one = product(bench, &alone, &w, x, [1, outputs, inputs], row_offset, split)?;
                    bench.exact(&kernel, format!("{case}, row {row} alone"), &one, &got[row * outputs..]);
                }
            }
        }
    }
    Ok(())
}

/// What a GEMV kernel makes of `x`, `[rows, inputs]`. Another matrix of one output goes along and is multiplied again.
fn product(
    bench: &mut Bench<'_>,
    kernel: &str,
    w: &Stored,
    x: &[f32],
    [rows, outputs, inputs]: [usize; 3],
    row_offset: usize,
    split: u32,
) -> Result<Vec<f32>> {
    let input = bench.upload(x)?;
    let (y, first) = (bench.output::<f32>(rows * outputs)?, bench.output::<f32>(rows)?);
    let part = |y: u64, outputs: usize, first: u32| GemvPart {
        y,
        w: w.weights.address(),
        scales: w.scales(),
        outputs: outputs as u32,
        row_offset: row_offset as u32,
        split,
        first,
    };
    let mut arguments =
        GemvArgs { x: input.address(), rows: rows as u32, inputs: inputs as u32, count: 2, ..GemvArgs::default() };
    arguments.parts[0] = part(first.address(), 1, 0);
    arguments.parts[1] = part(y.address(), outputs, 1);
    bench.launch(kernel, 1 + outputs.div_ceil(4 * (8 >> split)), &arguments)?;
    let got = bench.read::<f32>(&y)?;
    let again: Vec<f32> = got.chunks_exact(outputs).map(|row| row[0]).collect();
    let first = bench.read::<f32>(&first)?;
    bench.exact(kernel, format!("{rows} rows, 1 of {outputs} x {inputs} before the rest"), &first, &again);
    Ok(got)
}

/// Products in F64, each with a bound relative to the sum of its terms' magnitudes.
fn products(w: &[f32], x: &[f32], inputs: usize, relative: f64) -> Vec<Expected> {
    let mut want = Vec::new();
    for x in x.chunks_exact(inputs) {
        for w in w.chunks_exact(inputs) {
            let (mut value, mut magnitude) = (0.0, 0.0);
            for (w, x) in w.iter().zip(x) {
                let term = *w as f64 * *x as f64;
                value += term;
                magnitude += term.abs();
            }
            want.push(Expected { value, bound: relative * magnitude });
        }
    }
    want
}

/// Many rows: their rounding to F16, both tile shapes with every kind of edge, and a row's bits in both.
pub fn gemm(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(13);
    for (format, name, multiple) in formats() {
        let mut blocks = usual(bench, format);
        // One format of each kind of group meets the larger shapes.
        let all = matches!(format, Format::Bf16 | Format::F8E4m3 | Format::Q8_0 | Format::Q4K);
        let everyone = [(9, 17, 8, 0), (65, 72, 136, 60)];
        let edges = [15, 16, 17, 511, 512, 513].map(|rows| (rows, 33, 72, 0));
        let more = [(130, 200, 640, 4)].into_iter().chain(edges).filter(|_| all);
        for (rows, outputs, inputs, row_offset) in everyone.into_iter().chain(more) {
            let inputs = usize::next_multiple_of(inputs, multiple);
            let w = store(bench, format, [outputs, inputs], row_offset, &mut blocks)?;
            // Rows of very different sizes, far beyond F16's range.
            let sizes: Vec<f32> = (0..rows).map(|r| [1.0, 1e6, 1e-6, 0.0, 300.0][r % 5]).collect();
            let mut x = bench.signed(rows * inputs);
            for (x, size) in x.chunks_exact_mut(inputs).zip(&sizes) {
                // A negative zero may lose its sign (see the kernel): there is none here.
                x.iter_mut().for_each(|x| *x = *x * size + 0.0);
            }
            let shape = format!("{rows} rows, {outputs} x {inputs}");
            let stride = matrix::gemm_stride(inputs);
            let (input, packed) = (bench.upload(&x)?, bench.output::<u16>(rows * stride)?);
            let factors = bench.output::<f32>(rows)?;
            let arguments = GemmRowsArgs {
                out: packed.address(),
                factors: factors.address(),
                x: input.address(),
                inputs: inputs as u32,
                stride: stride as u32,
            };
            bench.launch("gemm_rows", rows, &arguments)?;
            let want_factors: Vec<f32> = x.chunks_exact(inputs).map(factor).collect();
            let got = bench.read::<f32>(&factors)?;
            bench.exact("gemm_rows", format!("{rows} rows of {inputs}, factors"), &got, &want_factors);
            let rounded = x.chunks_exact(inputs).zip(&want_factors).flat_map(|(x, factor)| {
                (0..stride).map(move |i| x.get(i).map_or(0, |x| f16::from_f32(x / factor).to_bits()))
            });
            let got = bench.read::<u16>(&packed)?;
            bench.exact("gemm_rows", format!("{rows} rows of {inputs}"), &got, &rounded.collect::<Vec<_>>());

            let want = rounded_products(&w.values, &x, inputs);
            let mut results = Vec::new();
            for size in [64, 128] {
                let y = bench.output::<f32>(rows * outputs)?;
                let arguments = GemmArgs {
                    y: y.address(),
                    x: packed.address(),
                    factors: factors.address(),
                    w: w.weights.address(),
                    scales: w.scales(),
                    rows: rows as u32,
                    outputs: outputs as u32,
                    inputs: inputs as u32,
                    y_stride: outputs as u32,
                    row_offset: row_offset as u32,
                    unused: 0,
                };
                let kernel = format!("gemm_{name}_{size}");
                bench.launch(&kernel, rows.div_ceil(size) * outputs.div_ceil(size), &arguments)?;
                let got = bench.read::<f32>(&y)?;
                bench.close(&kernel, shape.clone(), Class::Rounding, &got, &want);
                results.push(got);
            }
            bench.exact(&format!("gemm_{name}_128"), format!("{shape}, as in small tiles"), &results[1], &results[0]);
        }
    }
    Ok(())
}

/// The power of two that brings the largest magnitude of a row into [2^14, 2^15), of a tiny row nearer to it.
fn factor(x: &[f32]) -> f32 {
    let exponent = x.iter().map(|x| x.abs().to_bits() >> 23).max().unwrap_or(0).max(15);
    f32::from_bits((exponent - 14) << 23)
}

/// Products in F64 of unrounded operands, with the bound that F16 operands have: each is off by `U16` of itself, or by
/// half of F16's smallest number (2^-25; of an activation 2^-25 of its row's factor), and sums of F32 add `γ`.
fn rounded_products(w: &[f32], x: &[f32], inputs: usize) -> Vec<Expected> {
    let least = 1.0 / (1u32 << 25) as f64;
    let relative = (1.0 + U16) * (1.0 + U16) * (1.0 + gamma(inputs + 8)) - 1.0;
    let mut want = products(w, x, inputs, relative);
    let sums = |values: &[f32]| -> Vec<f64> {
        values.chunks_exact(inputs).map(|row| row.iter().map(|v| v.abs() as f64).sum()).collect()
    };
    let (w_sums, x_sums) = (sums(w), sums(x));
    let factors: Vec<f64> = x.chunks_exact(inputs).map(|x| factor(x) as f64).collect();
    for (i, expected) in want.iter_mut().enumerate() {
        let (row, output) = (i / w_sums.len(), i % w_sums.len());
        expected.bound += (1.0 + 2.0 * U16) * least * (x_sums[row] + factors[row] * w_sums[output]);
        expected.bound += least * least * factors[row] * inputs as f64;
    }
    want
}
