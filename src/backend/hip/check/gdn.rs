//! Gated DeltaNet around its recurrence: convolution, gates, window, output norm. Also what the recurrence's checks share.

use super::super::abi::{GdnConvArgs, GdnOutputArgs, GdnPlanes, GdnSegment, GdnSlideArgs};
use super::Class;
use super::bench::{Bench, Expected, Output, U32, gamma, sigmoid};
use super::dense::norm_error;
use crate::device::DeviceMemory;
use crate::error::Result;
use crate::state::recurrent::slide;

/// Columns before the step's: the kernels' convolution has four taps.
const HISTORY: usize = 3;

/// Heads of a case.
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// GGUF order of value heads.
    pub tiled: bool,
}

impl Heads {
    pub fn keys(&self) -> usize {
        self.key_heads * self.key_dim
    }
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }
    /// The key head of a value head.
    pub fn key_head(&self, head: usize) -> usize {
        if self.tiled { head % self.key_heads } else { head / (self.value_heads / self.key_heads) }
    }
}

impl std::fmt::Display for Heads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let map = if self.tiled { ", tiled" } else { "" };
        write!(f, "{}x{} to {}x{}{map}", self.key_heads, self.key_dim, self.value_heads, self.value_dim)
    }
}

/// Heads in the order of a table.
pub fn heads(key_heads: usize, value_heads: usize, key_dim: usize, value_dim: usize, tiled: bool) -> Heads {
    Heads { key_heads, value_heads, key_dim, value_dim, tiled }
}

/// Segments of `(rows, pending)`, one behind the other.
pub fn segments(list: &[(usize, usize)]) -> Vec<GdnSegment> {
    let (mut first, mut chunk) = (0, 0);
    let segment = |&(rows, pending): &(usize, usize)| {
        let segment = GdnSegment { first, rows: rows as u32, pending: pending as u32, chunk };
        first += rows as u32;
        chunk += rows.div_ceil(64) as u32;
        segment
    };
    list.iter().map(segment).collect()
}

/// One sequence's state on the host.
#[derive(Clone)]
pub struct State {
    pub state: Vec<f32>,
    pub window: Vec<f32>,
    pub keys: Vec<f32>,
    pub values: Vec<f32>,
    pub decay: Vec<f32>,
    pub strength: Vec<f32>,
}

impl State {
    /// Numbers everywhere, `rewind` rows that could be pending; keys are unit vectors.
    pub fn new(bench: &mut Bench<'_>, h: &Heads, rewind: usize) -> State {
        State {
            state: bench.signed(h.value_heads * h.key_dim * h.value_dim),
            window: bench.signed((HISTORY + rewind) * h.channels()),
            keys: units(bench, rewind * h.key_heads, h.key_dim),
            values: bench.signed(rewind * h.values()),
            decay: decays(bench, rewind * h.value_heads),
            strength: (0..rewind * h.value_heads).map(|_| bench.uniform()).collect(),
        }
    }
}

/// Unit vectors.
pub fn units(bench: &mut Bench<'_>, count: usize, width: usize) -> Vec<f32> {
    let mut values = bench.signed(count * width);
    for row in values.chunks_exact_mut(width) {
        // A little below one, so that rounding leaves no norm above it: the bounds rest on that.
        let norm = 1.000_001 * row.iter().map(|&x| x as f64 * x as f64).sum::<f64>().sqrt();
        row.iter_mut().for_each(|x| *x = (*x as f64 / norm) as f32);
    }
    values
}

/// Logarithms of decays as trained models have them: mostly slow, some fast.
pub fn decays(bench: &mut Bench<'_>, count: usize) -> Vec<f32> {
    (0..count).map(|_| -8.0 * bench.uniform().powi(6)).collect()
}

/// A state on the device, and the table of all sequences' addresses.
pub struct Planes {
    parts: Vec<[Output; 6]>,
    table: DeviceMemory,
}

impl Planes {
    pub fn new(bench: &Bench<'_>, states: &[State]) -> Result<Planes> {
        let mut parts = Vec::new();
        for s in states {
            let part = |values: &[f32]| bench.update(values);
            parts.push([
                part(&s.state)?,
                part(&s.window)?,
                part(&s.keys)?,
                part(&s.values)?,
                part(&s.decay)?,
                part(&s.strength)?,
            ]);
        }
        let entry = |p: &[Output; 6]| GdnPlanes {
            state: p[0].address(),
            window: p[1].address(),
            keys: p[2].address(),
            values: p[3].address(),
            decay: p[4].address(),
            strength: p[5].address(),
        };
        let table = bench.upload(&parts.iter().map(entry).collect::<Vec<_>>())?;
        Ok(Planes { parts, table })
    }
    pub fn address(&self) -> u64 {
        self.table.address()
    }
    pub fn read(&self, bench: &Bench<'_>, sequence: usize) -> Result<State> {
        let p = &self.parts[sequence];
        Ok(State {
            state: bench.read(&p[0])?,
            window: bench.read(&p[1])?,
            keys: bench.read(&p[2])?,
            values: bench.read(&p[3])?,
            decay: bench.read(&p[4])?,
            strength: bench.read(&p[5])?,
        })
    }
}

/// Relative error of e^x in F32: the argument is scaled for exp2 by a rounded constant and rounded, then one hardware
/// exponential, good to one unit in the last place.
pub fn exponential(x: f64) -> f64 {
    (2.0 * x.abs() + 3.0) * U32
}

/// Relative error of a sigmoid: the exponential, a sum, a reciprocal (one unit in the last place), a product.
fn sigmoid_error(x: f64) -> f64 {
    exponential(x) + 5.0 * U32
}

/// Convolution with unit norms, gates, and the window that every kind of step leaves.
pub fn conv(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(60);
    for (h, rewind, tile, list) in [
        (heads(2, 6, 16, 16, false), 4, 16, &[(1, 0), (5, 2), (9, 0)][..]),
        (heads(2, 4, 64, 64, false), 8, 8, &[(8, 3), (4, 4), (3, 1), (2, 8)]),
        (heads(1, 3, 128, 128, false), 4, 16, &[(17, 2), (1, 0), (33, 1), (16, 4)]),
        (heads(2, 2, 200, 12, false), 0, 1, &[(2, 0), (1, 0)]),
        (heads(16, 48, 128, 128, false), 4, 8, &[(1, 1)]),
    ] {
        let (channels, rows) = (h.channels(), list.iter().map(|(rows, _)| rows).sum::<usize>());
        let scaled = |values: Vec<f32>, by: f32| -> Vec<f32> { values.into_iter().map(|x| x * by).collect() };
        let states: Vec<State> = list.iter().map(|_| State::new(bench, &h, rewind)).collect();
        let qkv = scaled(bench.signed(rows * channels), 3.0);
        let taps = bench.signed(4 * channels);
        let (b, a) = (bench.signed(rows * h.value_heads), bench.signed(rows * h.value_heads));
        let (b, a) = (scaled(b, 12.0), scaled(a, 30.0));
        let bias = bench.signed(h.value_heads);
        let rate = scaled((0..h.value_heads).map(|_| bench.uniform()).collect(), -2.0);
        let (planes, segments) = (Planes::new(bench, &states)?, segments(list));
        let (s, x, t) = (bench.upload(&segments)?, bench.upload(&qkv)?, bench.upload(&taps)?);
        let (b_in, a_in, d, r) = (bench.upload(&b)?, bench.upload(&a)?, bench.upload(&bias)?, bench.upload(&rate)?);
        let mixed = bench.output::<f32>(rows * channels)?;
        let gates = [bench.output::<f32>(rows * h.value_heads)?, bench.output::<f32>(rows * h.value_heads)?];
        let tiles = list.iter().map(|(rows, _)| rows.div_ceil(tile)).max().unwrap_or(1);
        let query_scale = 1.0 / (h.key_dim as f32).sqrt();
        let arguments = GdnConvArgs {
            mixed: mixed.address(),
            strength: gates[0].address(),
            decay: gates[1].address(),
            planes: planes.address(),
            segments: s.address(),
            qkv: x.address(),
            b: b_in.address(),
            a: a_in.address(),
            taps: t.address(),
            dt_bias: d.address(),
            rate: r.address(),
            tiles: tiles as u32,
            tile: tile as u32,
            key_heads: h.key_heads as u32,
            value_heads: h.value_heads as u32,
            key_dim: h.key_dim as u32,
            value_dim: h.value_dim as u32,
            rewind: rewind as u32,
            query_scale,
        };
        let tasks = 2 * h.key_heads + h.value_heads + 1;
        bench.launch("gdn_conv", list.len() * tiles * tasks.div_ceil(8), &arguments)?;
        let slides = GdnSlideArgs {
            planes: planes.address(),
            segments: s.address(),
            qkv: x.address(),
            channels: channels as u32,
            tile: tile as u32,
        };
        bench.launch("gdn_slide", list.len() * channels.div_ceil(1024), &slides)?;

        let case = format!("{h}, {list:?}, {rewind} revocable");
        let mut want = Vec::with_capacity(rows * channels);
        let (mut windows, mut slid) = (Vec::new(), Vec::new());
        for (i, (segment, &(count, pending))) in segments.iter().zip(list).enumerate() {
            let new = &qkv[segment.first as usize * channels..][..count * channels];
            let mut columns = states[i].window[pending * channels..(pending + HISTORY) * channels].to_vec();
            columns.extend_from_slice(new);
            for row in columns.windows(4 * channels).step_by(channels) {
                // The same products in the same order: these sums have the same bits.
                let sums: Vec<f32> = (0..channels)
                    .map(|c| (0..4).fold(0f32, |sum, t| taps[t * channels + c].mul_add(row[t * channels + c], sum)))
                    .collect();
                mix(&h, &sums, query_scale, &mut want);
            }
            let mut window = states[i].window.clone();
            slide(&mut window, channels, HISTORY, pending, new);
            slid.extend(window);
            windows.extend(planes.read(bench, i)?.window);
        }
        let got = bench.read::<f32>(&mixed)?;
        bench.close("gdn_conv", format!("{case}, mixed"), Class::Ordered, &got, &want);
        // Segments of one tile slide in gdn_conv itself.
        let slider = if tiles > 1 { "gdn_slide" } else { "gdn_conv" };
        bench.exact(slider, format!("{case}, windows"), &windows, &slid);
        let want: Vec<_> = b
            .iter()
            .map(|&b| Expected { value: sigmoid(b as f64), bound: sigmoid_error(b as f64) * sigmoid(b as f64) })
            .collect();
        let got = bench.read::<f32>(&gates[0])?;
        bench.close("gdn_conv", format!("{case}, strength"), Class::Ordered, &got, &want);
        let softplus = |(i, &a): (usize, &f32)| {
            let head = i % h.value_heads;
            let x = (a + bias[head]) as f64;
            let value = rate[head] as f64 * if x > 20.0 { x } else { x.exp().ln_1p() };
            // The exponential; then a reciprocal and eight roundings of the series, or a logarithm that is good to
            // 2^-22 of base 2 near one, which is at most four units of ln(1.5), the least that it is used for.
            Expected { value, bound: (exponential(x.min(20.0)) + 16.0 * U32) * value.abs() }
        };
        let want: Vec<_> = a.iter().enumerate().map(softplus).collect();
        let got = bench.read::<f32>(&gates[1])?;
        bench.close("gdn_conv", format!("{case}, decay"), Class::Ordered, &got, &want);
    }
    Ok(())
}

/// What becomes of a row's convolution sums.
fn mix(h: &Heads, sums: &[f32], query_scale: f32, want: &mut Vec<Expected>) {
    let silu = |&x: &f32| (x as f64 * sigmoid(x as f64), sigmoid_error(x as f64) + U32);
    let (normed, values) = sums.split_at(2 * h.keys());
    for (head, x) in normed.chunks_exact(h.key_dim).enumerate() {
        let factor = if head < h.key_heads { query_scale as f64 } else { 1.0 };
        let u: Vec<(f64, f64)> = x.iter().map(silu).collect();
        let squares = u.iter().map(|(v, _)| v * v).sum::<f64>() + 1e-6;
        let worst = u.iter().map(|&(_, e)| e).fold(0.0, f64::max);
        // Squares are off by twice their elements' error and the sum's; the root halves that. Then the sum with
        // epsilon, a reciprocal root (one unit in the last place), and two products.
        let error = 2.0 * worst + gamma(h.key_dim.div_ceil(32) + 8) / 2.0 + 6.0 * U32;
        let scale = factor / squares.sqrt();
        want.extend(u.iter().map(|(v, _)| Expected { value: v * scale, bound: error * (v * scale).abs() }));
    }
    want.extend(values.iter().map(silu).map(|(value, e)| Expected { value, bound: e * value.abs() }));
}

/// The gated norm with either gate, and the rows that stay pending.
pub fn output(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(61);
    for (h, rewind, silu, list) in [
        (heads(2, 6, 16, 16, false), 4, false, &[(1, 0), (5, 2), (4, 0)][..]),
        (heads(2, 4, 64, 64, true), 8, true, &[(8, 3), (9, 0)]),
        (heads(16, 48, 128, 128, false), 4, false, &[(3, 1)]),
        (heads(1, 1, 200, 252, false), 2, true, &[(2, 0)]),
    ] {
        let (values, rows) = (h.values(), list.iter().map(|(rows, _)| rows).sum::<usize>());
        let states: Vec<State> = list.iter().map(|_| State::new(bench, &h, rewind)).collect();
        let (o, weight) = (bench.signed(rows * values), bench.signed(h.value_dim));
        let z: Vec<f32> = bench.signed(rows * values).into_iter().map(|x| 8.0 * x).collect();
        let mixed = bench.signed(rows * h.channels());
        let (decay, strength) = (bench.signed(rows * h.value_heads), bench.signed(rows * h.value_heads));
        let sequence: Vec<u32> =
            list.iter().enumerate().flat_map(|(i, &(rows, _))| std::iter::repeat_n(i as u32, rows)).collect();
        let (planes, segments) = (Planes::new(bench, &states)?, segments(list));
        let (s, i, m) = (bench.upload(&segments)?, bench.upload(&sequence)?, bench.upload(&mixed)?);
        let (o_in, z_in, w) = (bench.upload(&o)?, bench.upload(&z)?, bench.upload(&weight)?);
        let (d, b) = (bench.upload(&decay)?, bench.upload(&strength)?);
        let out = bench.output::<f32>(rows * values)?;
        let arguments = GdnOutputArgs {
            out: out.address(),
            o: o_in.address(),
            z: z_in.address(),
            weight: w.address(),
            planes: planes.address(),
            segments: s.address(),
            sequence: i.address(),
            mixed: m.address(),
            decay: d.address(),
            strength: b.address(),
            rows: rows as u32,
            key_heads: h.key_heads as u32,
            value_heads: h.value_heads as u32,
            key_dim: h.key_dim as u32,
            value_dim: h.value_dim as u32,
            rewind: rewind as u32,
            eps: 1e-6,
            silu: u32::from(silu),
        };
        bench.launch("gdn_output", (rows * h.value_heads).div_ceil(8), &arguments)?;
        let case = format!("{h}, {list:?}, {rewind} revocable");
        let mut want = Vec::with_capacity(rows * values);
        let error = norm_error(h.value_dim.div_ceil(32) + 9, h.value_dim);
        for (o, z) in o.chunks_exact(h.value_dim).zip(z.chunks_exact(h.value_dim)) {
            let mean = o.iter().map(|&x| x as f64 * x as f64).sum::<f64>() / h.value_dim as f64;
            let scale = 1.0 / (mean + 1e-6).sqrt();
            for ((&o, &z), &w) in o.iter().zip(z).zip(&weight) {
                let gate = sigmoid(z as f64) * if silu { z as f64 } else { 1.0 };
                let value = o as f64 * scale * w as f64 * gate;
                want.push(Expected { value, bound: (error + sigmoid_error(z as f64) + 2.0 * U32) * value.abs() });
            }
        }
        let got = bench.read::<f32>(&out)?;
        bench.close("gdn_output", case.clone(), Class::Ordered, &got, &want);
        let (mut got, mut want) = (Vec::new(), Vec::new());
        for (i, mut state) in states.into_iter().enumerate() {
            let first = segments[i].first as usize;
            if list[i].0 <= rewind {
                for row in 0..list[i].0 {
                    let from = &mixed[(first + row) * h.channels()..][..h.channels()];
                    state.keys[row * h.keys()..][..h.keys()].copy_from_slice(&from[h.keys()..2 * h.keys()]);
                    state.values[row * values..][..values].copy_from_slice(&from[2 * h.keys()..]);
                    let (to, from) = (row * h.value_heads, (first + row) * h.value_heads);
                    state.decay[to..][..h.value_heads].copy_from_slice(&decay[from..][..h.value_heads]);
                    state.strength[to..][..h.value_heads].copy_from_slice(&strength[from..][..h.value_heads]);
                }
            }
            let after = planes.read(bench, i)?;
            got.extend([after.keys, after.values, after.decay, after.strength, after.state].concat());
            want.extend([state.keys, state.values, state.decay, state.strength, state.state].concat());
        }
        bench.exact("gdn_output", format!("{case}, pending rows"), &got, &want);
    }
    Ok(())
}
