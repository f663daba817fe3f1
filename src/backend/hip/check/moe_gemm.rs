//! Mixture of experts for many rows: the grouped products over tiles, and the sum over a row's experts.

use half::f16;

use super::super::abi::{MoeCombineArgs, MoeGemmDownArgs, MoeGemmGateUpArgs};
use super::Class;
use super::bench::{Bench, Expected, SIGMOID, U16, gamma};
use super::matrix::formats;
use super::moe::{Weights, choose, listed, swiglu};
use crate::device::DeviceMemory;
use crate::error::Result;
use crate::weights::Format;

/// Entries of a tile.
const TILE: usize = 64;
/// Half of F16's least number.
const LEAST: f64 = 1.0 / (1u64 << 25) as f64;

/// Rows in F16 as the kernels want them: `[rows, width to a multiple of 64]` and each row's factor.
struct HalfRows {
    stride: usize,
    bits: Vec<u16>,
    factors: Vec<f32>,
}

impl HalfRows {
    fn new(x: &[f32], width: usize) -> HalfRows {
        let stride = width.next_multiple_of(64);
        let (mut bits, mut factors) = (Vec::new(), Vec::new());
        for (row, x) in x.chunks(width).enumerate() {
            let factor = [0.5, 1.0, 4.0][row % 3];
            factors.push(factor);
            bits.extend(x.iter().map(|x| f16::from_f32(x / factor).to_bits()));
            bits.resize(bits.len().next_multiple_of(stride), 0);
        }
        HalfRows { stride, bits, factors }
    }
    /// What the kernel sees of a row.
    fn row(&self, row: usize, width: usize) -> Vec<f64> {
        let factor = self.factors[row] as f64;
        self.bits[row * self.stride..][..width].iter().map(|&b| f16::from_bits(b).to_f64() * factor).collect()
    }
}

/// `w · x` of exact activations and weights rounded to F16, summed over all of a padded row.
fn product(w: &[f32], x: &[f64]) -> Expected {
    let products = || w.iter().zip(x).map(|(w, x)| *w as f64 * x);
    let weights = x.iter().map(|x| x.abs() * LEAST).sum::<f64>();
    let depth = w.len().next_multiple_of(64);
    let bound = (gamma(depth) + U16) * products().map(f64::abs).sum::<f64>() + weights * (1.0 + gamma(depth));
    Expected { value: products().sum(), bound }
}

/// Stored in F16.
fn stored(e: Expected) -> Expected {
    Expected { value: e.value, bound: e.bound + U16 * (e.value.abs() + e.bound) + LEAST }
}

fn numbers(bits: &[u16]) -> Vec<f32> {
    bits.iter().map(|&bits| f16::from_bits(bits).to_f32()).collect()
}

/// Entries on the device: null for those of one expert.
struct Lists {
    entries: Option<DeviceMemory>,
    tiles: Option<DeviceMemory>,
    max_tiles: usize,
}

/// One mixture; `pairs` names each entry's row, expert and the row of parts it writes.
struct Case<'a> {
    weights: &'a Weights,
    x: &'a HalfRows,
    rows: usize,
    hidden: usize,
    inner: usize,
    top_k: usize,
    expert: usize,
    name: &'a str,
}

impl Case<'_> {
    /// Both products over `pairs` (row, expert, row of parts) in the order of entries; returns the parts.
    fn run(&self, bench: &mut Bench<'_>, lists: &Lists, pairs: &[(usize, usize, usize)]) -> Result<Vec<u16>> {
        let (hidden, inner, stride) = (self.hidden, self.inner, self.inner.next_multiple_of(64));
        let (x, factors) = (bench.upload(&self.x.bits)?, bench.upload(&self.x.factors)?);
        let between = bench.output::<u16>(pairs.len() * stride)?;
        let [entries, tiles] = [&lists.entries, &lists.tiles].map(|m| m.as_ref().map_or(0, DeviceMemory::address));
        let (table, count, expert) = (self.weights.table.address(), self.rows as u32, self.expert as u32);
        let arguments = MoeGemmGateUpArgs {
            hidden: between.address(),
            x: x.address(),
            factors: factors.address(),
            experts: table,
            entries,
            tiles,
            count,
            expert,
            top_k: self.top_k as u32,
            inputs: hidden as u32,
            inner: inner as u32,
            unused: 0,
        };
        let kernel = format!("moe_gemm_gate_up_{}", self.weights.name);
        bench.launch(&kernel, lists.max_tiles * inner.div_ceil(128), &arguments)?;
        let bits = bench.read::<u16>(&between)?;
        let mut want = Vec::new();
        for &(row, expert, _) in pairs {
            let x = self.x.row(row, hidden);
            let [gate, up, _] = self.weights.values(expert);
            for (gate, up) in gate.chunks(hidden).zip(up.chunks(hidden)) {
                let e = swiglu(product(gate, &x), product(up, &x));
                want.push(stored(Expected { value: e.value / 16.0, bound: e.bound / 16.0 }));
            }
            want.resize(want.len().next_multiple_of(stride), Expected { value: 0.0, bound: 0.0 });
        }
        bench.close(&kernel, self.name.into(), Class::Rounding, &numbers(&bits), &want);

        let parts = bench.output::<u16>(pairs.len() * hidden)?;
        let arguments = MoeGemmDownArgs {
            parts: parts.address(),
            hidden: between.address(),
            experts: table,
            entries,
            tiles,
            count,
            expert,
            outputs: hidden as u32,
            inner: inner as u32,
        };
        let kernel = format!("moe_gemm_down_{}", self.weights.name);
        bench.launch(&kernel, lists.max_tiles * hidden.div_ceil(256), &arguments)?;
        let mut want = vec![Expected { value: 0.0, bound: 0.0 }; pairs.len() * hidden];
        for (entry, &(_, expert, to)) in pairs.iter().enumerate() {
            let x: Vec<f64> = numbers(&bits[entry * stride..][..inner]).iter().map(|&x| x.into()).collect();
            for (want, down) in want[to * hidden..].iter_mut().zip(self.weights.values(expert)[2].chunks(inner)) {
                *want = stored(product(down, &x));
            }
        }
        let got = bench.read::<u16>(&parts)?;
        bench.close(&kernel, self.name.into(), Class::Rounding, &numbers(&got), &want);
        Ok(got)
    }
}

/// Skewed routing, experts of one row and of several tiles, the shared expert, and the sum.
pub fn gemm(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(63);
    for format in formats() {
        gemm_case(bench, format, [9, 8, 3], 1, [24, 24, 40])?;
    }
    let bf16 = (Format::Bf16, "bf16", 8);
    gemm_case(bench, bf16, [67, 16, 4], 3, [256, 32, 64])?;
    gemm_case(bench, bf16, [17, 3, 2], 1, [264, 136, 8])?;
    gemm_case(bench, bf16, [130, 4, 1], 6, [72, 200, 0])
}

/// One mixture of `rows` rows with `top_k` of `experts`; widths of model, expert and shared expert (0: none).
fn gemm_case(
    bench: &mut Bench<'_>,
    format: (Format, &'static str, usize),
    [rows, experts, top_k]: [usize; 3],
    skew: i32,
    widths: [usize; 3],
) -> Result<()> {
    let [hidden, inner, shared] = widths.map(|width| width.next_multiple_of(format.2));
    let widths: Vec<usize> = (0..experts).map(|_| inner).chain([shared.max(format.2)]).collect();
    let weights = &Weights::new(bench, format, hidden, &widths, false)?;
    let x = &HalfRows::new(&bench.signed(rows * hidden).iter().map(|x| x / 8.0).collect::<Vec<_>>(), hidden);
    let ids = choose(bench, rows, experts, top_k, skew);
    let max_tiles = ids.len().min(ids.len() / TILE + experts);
    let (entries, _, tiles) = listed(&ids, experts, TILE as u32, max_tiles);
    let lists = Lists { entries: Some(bench.upload(&entries)?), tiles: Some(bench.upload(&tiles)?), max_tiles };
    let name = &format!("{rows} rows, {top_k} of {experts}, {hidden} x {inner}");
    let routed = Case { weights, x, rows, hidden, inner, top_k, expert: 0, name };
    let pairs: Vec<_> = entries.iter().map(|&p| p as usize).map(|p| (p / top_k, ids[p] as usize, p)).collect();
    let parts = routed.run(bench, &lists, &pairs)?;
    let mut shared_parts = Vec::new();
    if shared != 0 {
        let name = &format!("{rows} rows, shared, {hidden} x {shared}");
        let lists = Lists { entries: None, tiles: None, max_tiles: rows.div_ceil(TILE) };
        let all: Vec<_> = (0..rows).map(|row| (row, experts, row)).collect();
        shared_parts = Case { inner: shared, top_k: 1, expert: experts, name, ..routed }.run(bench, &lists, &all)?;
    }
    combine(bench, [&parts, &shared_parts], rows, top_k, hidden)
}

/// `y = Σ_s weight_s · 16 parts_s + sigmoid(scale) · 16 shared`.
fn combine(bench: &mut Bench<'_>, parts: [&[u16]; 2], rows: usize, top_k: usize, width: usize) -> Result<()> {
    let stride = 2;
    let weights: Vec<f32> = (0..rows * top_k).map(|_| bench.uniform()).collect();
    let scale: Vec<f32> = bench.signed(rows * stride).into_iter().map(|v| 8.0 * v).collect();
    let (routed, factors, gates) = (bench.upload(parts[0])?, bench.upload(&weights)?, bench.upload(&scale)?);
    let shared = if parts[1].is_empty() { None } else { Some(bench.upload(parts[1])?) };
    let y = bench.output::<f32>(rows * width)?;
    let arguments = MoeCombineArgs {
        y: y.address(),
        parts: routed.address(),
        shared: shared.as_ref().map_or(0, DeviceMemory::address),
        weights: factors.address(),
        scale: gates.address(),
        rows: rows as u32,
        top_k: top_k as u32,
        width: width as u32,
        scale_stride: stride as u32,
    };
    bench.launch("moe_combine", (rows * width).div_ceil(2048), &arguments)?;
    let (routed, shared) = (numbers(parts[0]), numbers(parts[1]));
    let want: Vec<_> = (0..rows * width)
        .map(|i| {
            let (row, n) = (i / width, i % width);
            let term = |slot: usize| {
                weights[row * top_k + slot] as f64 * 16.0 * routed[(row * top_k + slot) * width + n] as f64
            };
            let gate = 1.0 / (1.0 + (-scale[row * stride] as f64).exp());
            let last = if shared.is_empty() { 0.0 } else { gate * 16.0 * shared[i] as f64 };
            let size = (0..top_k).map(|slot| term(slot).abs()).sum::<f64>() + last.abs();
            let value = (0..top_k).map(term).sum::<f64>() + last;
            Expected { value, bound: gamma(top_k + 1) * size + SIGMOID * last.abs() }
        })
        .collect();
    let got = bench.read::<f32>(&y)?;
    bench.close("moe_combine", format!("{rows} rows, {top_k} of {width}"), Class::Ordered, &got, &want);
    Ok(())
}
