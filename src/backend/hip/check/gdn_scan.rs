//! The delta rule in chunks of 64 rows: against the recurrence in F64, within what F16 operands allow.

use std::ops::Range;

use half::f16;

use super::super::abi::{GdnScanArgs, GdnSegment};
use super::Class;
use super::bench::{Bench, Expected, U16, U32, gamma};
use super::gdn::{Heads, Planes, State, exponential, heads, segments};
use super::gdn_step::{Launch, Recurrence, Rows, Token, tokens};
use crate::error::Result;

const CHUNK: usize = 64;
/// Half of F16's least number.
const LEAST: f64 = 1.0 / (1u64 << 25) as f64;
/// What two rounded factors and their products' sums in F32 add to a product, relative to its terms.
const PRODUCT: f64 = 2.0 * U16 + U16 * U16 + 256.0 * U32;

/// Segments on both sides of the limit, with pending rows, of whole chunks and of one row more or less.
pub fn scan(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(63);
    for (h, list) in [
        (heads(2, 4, 64, 64, true), &[(9, 2), (64, 0), (3, 1), (130, 1)][..]),
        (heads(2, 4, 64, 64, false), &[(65, 0), (63, 4)]),
        (heads(1, 3, 128, 128, false), &[(100, 3), (17, 0)]),
        (heads(2, 2, 128, 128, false), &[(192, 0)]),
        (heads(1, 1, 64, 64, false), &[(511, 0), (512, 4), (513, 1)]),
    ] {
        let (rewind, limit) = (4, 8);
        let states: Vec<State> = list.iter().map(|_| State::new(bench, &h, rewind)).collect();
        let rows = Rows::new(bench, &h, list.iter().map(|(rows, _)| rows).sum());
        let (planes, segments) = (Planes::new(bench, &states)?, segments(list));
        Launch { heads: &h, planes: &planes, rewind, limit }.step(bench, &segments, &rows, false)?;
        let count = rows.decay.len() / h.value_heads;
        let (s, m) = (bench.upload(&segments)?, bench.upload(&rows.mixed)?);
        let (d, b) = (bench.upload(&rows.decay)?, bench.upload(&rows.strength)?);
        let chunks: usize = list.iter().map(|(rows, _)| rows.div_ceil(CHUNK)).sum();
        let longest = list.iter().map(|(rows, _)| rows.div_ceil(CHUNK)).max().unwrap_or(1);
        let keys = bench.output::<u16>(chunks * h.key_heads * 3 * CHUNK * h.key_dim)?;
        let pairs = bench.output::<u16>(chunks * h.value_heads * 2 * CHUNK * CHUNK)?;
        let growth = bench.output::<f32>(chunks * h.value_heads * 2 * CHUNK)?;
        let out = bench.output::<f32>(count * h.values())?;
        let arguments = GdnScanArgs {
            out: out.address(),
            planes: planes.address(),
            segments: s.address(),
            mixed: m.address(),
            decay: d.address(),
            strength: b.address(),
            keys: keys.address(),
            pairs: pairs.address(),
            growth: growth.address(),
            chunks: longest as u32,
            key_heads: h.key_heads as u32,
            value_heads: h.value_heads as u32,
            key_dim: h.key_dim as u32,
            value_dim: h.value_dim as u32,
            limit: limit as u32,
            tiled: u32::from(h.tiled),
            unused: 0,
        };
        let kernel = format!("gdn_scan_{}", h.key_dim);
        bench.launch("gdn_scan_pack", list.len() * longest * h.key_heads, &arguments)?;
        bench.launch(&format!("gdn_scan_prepare_{}", h.key_dim), list.len() * longest * h.value_heads, &arguments)?;
        let case = format!("{h}, {list:?}");
        let work = Workspace {
            keys: bench.read(&keys)?,
            pairs: bench.read(&pairs)?,
            growth: bench.read(&growth)?,
            heads: &h,
            rows: &rows,
        };
        work.check(bench, &case, &states, &segments, limit);
        bench.launch(&kernel, list.len() * h.value_heads * (h.value_dim / 64), &arguments)?;

        let written = bench.read::<f32>(&out)?;
        let (mut got, mut want, mut got_states, mut want_states) = (vec![], vec![], vec![], vec![]);
        for (i, segment) in segments.iter().enumerate() {
            let first = segment.first as usize * h.values();
            let rows_out = &written[first..][..segment.rows as usize * h.values()];
            if list[i].0 <= limit {
                // gdn_step's: still poison.
                got.extend(rows_out.iter().map(|x| if x.is_nan() { 0.0 } else { 1.0 }));
                want.extend(std::iter::repeat_n(Expected { value: 0.0, bound: 0.0 }, rows_out.len()));
                continue;
            }
            got_states.extend(planes.read(bench, i)?.state);
            for head in 0..h.value_heads {
                let row_of = |r: usize| &rows_out[(r * h.value_heads + head) * h.value_dim..][..h.value_dim];
                got.extend((0..list[i].0).flat_map(row_of));
                let all = tokens(&h, head, &states[i], segment, &rows);
                let (pending, new) = all.split_at(segment.pending as usize);
                let size = h.key_dim * h.value_dim;
                let mut exact = Recurrence::new(&states[i].state[head * size..][..size], h.value_dim);
                pending.iter().for_each(|token| drop(exact.apply(token, h.key_dim / 8 + 3)));
                for part in new.chunks(CHUNK) {
                    want.extend(chunk(&mut exact, part));
                }
                want_states.extend(exact.expected());
            }
        }
        bench.close(&kernel, format!("{case}, output"), Class::Rounding, &got, &want);
        bench.close(&kernel, format!("{case}, state"), Class::Rounding, &got_states, &want_states);
    }
    Ok(())
}

/// What the first two kernels leave for the third.
struct Workspace<'a> {
    /// F16, `[chunks, key_heads, 3, CHUNK · key_dim]`
    keys: Vec<u16>,
    /// F16, `[chunks, value_heads, 2, CHUNK, CHUNK]`
    pairs: Vec<u16>,
    /// `[chunks, value_heads, 2, CHUNK]`
    growth: Vec<f32>,
    heads: &'a Heads,
    rows: &'a Rows,
}

impl Workspace<'_> {
    /// Keys and queries to the bit, the others within what their own roundings allow; chunks that the kernels must not
    /// touch still hold the poison.
    fn check(&self, bench: &mut Bench<'_>, case: &str, states: &[State], segments: &[GdnSegment], limit: usize) {
        let h = self.heads;
        let (mut copies, mut untouched) = (vec![u16::MAX; self.keys.len()], self.growth.iter().map(|x| x.is_nan()));
        let (mut got, mut want) = ([vec![], vec![], vec![]], [vec![], vec![], vec![]]);
        let mut idle = 0;
        for (state, segment) in states.iter().zip(segments) {
            let count = segment.rows as usize;
            let chunks = count.div_ceil(CHUNK);
            let floats = chunks * h.value_heads * 2 * CHUNK;
            if count <= limit {
                idle += untouched.by_ref().take(floats).filter(|&poison| !poison).count();
                continue;
            }
            idle += untouched.by_ref().take(floats).filter(|&poison| poison).count();
            for at in 0..chunks {
                let (chunk, rows) = (segment.chunk as usize + at, CHUNK * at..count.min(CHUNK * (at + 1)));
                for head in 0..h.key_heads {
                    let size = CHUNK * h.key_dim;
                    let place = (chunk * h.key_heads + head) * 3 * size;
                    self.copy(segment.first as usize, rows.clone(), head, &mut copies[place..place + 3 * size]);
                }
                for head in 0..h.value_heads {
                    let all = tokens(h, head, state, segment, self.rows);
                    let f = Factors::new(&all[segment.pending as usize..][rows.clone()]);
                    let (pair, n) = (chunk * h.value_heads + head, rows.len());
                    for i in 0..2 * CHUNK {
                        let of = if i < CHUNK { &f.grown } else { &f.left };
                        // Rows past the end decay no more.
                        let (value, error) = of[(i % CHUNK).min(n - 1)];
                        // A device's exponential may leave subnormals out.
                        want[0].push(Expected { value, bound: value * error + f32::MIN_POSITIVE as f64 });
                        got[0].push(self.growth[pair * 2 * CHUNK + i]);
                    }
                    for (i, j) in (0..n).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                        let beta = all[segment.pending as usize + rows.start + j].beta as f64;
                        let element = |part: usize| {
                            f16::from_bits(self.pairs[(pair * 2 + part) * CHUNK * CHUNK + i * CHUNK + j]).to_f32()
                        };
                        got[1].push(element(0));
                        want[1].push(f.solved(i, j, beta));
                        got[2].push(element(1));
                        let (value, bound) = f.products[i][j];
                        want[2].push(Expected { value, bound });
                    }
                }
            }
        }
        bench.exact("gdn_scan_pack", case.into(), &self.keys, &copies);
        let prepare = format!("gdn_scan_prepare_{}", h.key_dim);
        bench.same(&prepare, format!("{case}, other chunks"), Class::Rounding, &[idle as u32], &[0]);
        for (what, (got, want)) in ["decays", "inverse", "products"].iter().zip(got.iter().zip(&want)) {
            bench.close(&prepare, format!("{case}, {what}"), Class::Rounding, got, want);
        }
    }

    /// A chunk's keys, queries and transposed keys of a head; zeros past the last row.
    fn copy(&self, first: usize, rows: Range<usize>, head: usize, to: &mut [u16]) {
        let (dk, h) = (self.heads.key_dim, self.heads);
        to.fill(0);
        for (row, at) in rows.enumerate() {
            let mixed = &self.rows.mixed[(first + at) * h.channels()..];
            for e in 0..dk {
                let bits = |from: usize| f16::from_f32(mixed[from + head * dk + e]).to_bits();
                to[row * dk + e] = bits(h.keys());
                to[(CHUNK + row) * dk + e] = bits(0);
                to[2 * CHUNK * dk + e * CHUNK + row] = bits(h.keys());
            }
        }
    }
}

fn dot(a: &[f32], b: impl Fn(usize) -> f64, size: bool) -> f64 {
    let term = |(i, &a): (usize, &f32)| a as f64 * b(i);
    a.iter().enumerate().map(term).map(|x| if size { x.abs() } else { x }).sum()
}

/// What a chunk's factors and the error of each are, the same for every column.
struct Factors {
    /// e^G and its relative error.
    grown: Vec<(f64, f64)>,
    /// e^(G_last - G) and its relative error.
    left: Vec<(f64, f64)>,
    /// T = (I + A)^-1 and |error of A|, its own solve's included: `[n, n]` lower triangles.
    inverse: Vec<Vec<f64>>,
    among: Vec<Vec<f64>>,
    /// P and its error.
    products: Vec<Vec<(f64, f64)>>,
}

impl Factors {
    /// T_ij with the error that A's reaches it with, T dA T, and that of its rounding to F16.
    fn solved(&self, i: usize, j: usize, beta: f64) -> Expected {
        let value = self.inverse[i][j] * beta;
        let through = |l: usize| (j..l).map(|m| self.among[l][m] * self.inverse[m][j].abs()).sum::<f64>();
        let error: f64 = (j + 1..=i).map(|l| self.inverse[i][l].abs() * through(l)).sum();
        Expected { value, bound: 1.1 * error * beta + value.abs() * (U16 + 4.0 * U32) + LEAST }
    }

    fn new(rows: &[Token<'_>]) -> Factors {
        let n = rows.len();
        let mut sum = 0.0;
        let sums: Vec<f64> = rows
            .iter()
            .map(|t| {
                sum += t.g as f64;
                sum
            })
            .collect();
        // A running sum of up to 64 terms of one sign is off by gamma(64) of itself; e^x by as much as its argument.
        let power = |from: f64, to: f64| {
            let x = to - from;
            (x.exp(), (gamma(CHUNK) * (from.abs() + to.abs())).exp_m1() + exponential(x))
        };
        let (mut inverse, mut among) = (vec![vec![0.0; n]; n], vec![vec![0.0; n]; n]);
        let mut products = vec![vec![(0.0, 0.0); n]; n];
        for i in 0..n {
            let (k, beta) = (rows[i].k, rows[i].beta as f64);
            inverse[i][i] = 1.0;
            for j in 0..=i {
                let (decay, error) = power(sums[j], sums[i]);
                let other = |e: usize| rows[j].k[e] as f64;
                let q = rows[i].q.unwrap_or(&[]);
                let (value, size) = (dot(q, other, false) * decay, dot(q, other, true) * decay);
                let tiny = decay * LEAST * 2.0 * (q.len() as f64).sqrt();
                let rounding = value.abs() * (error + U16 + 2.0 * U32) + LEAST;
                products[i][j] = (value, PRODUCT * size + tiny + rounding);
                if j == i {
                    continue;
                }
                let a = beta * decay * dot(k, other, false);
                let size = beta * decay * dot(k, other, true);
                let error = PRODUCT * size + a.abs() * (error + 3.0 * U32) + beta * tiny;
                among[i][j] = error + gamma(CHUNK) * (a.abs() + error);
                let (above, below) = inverse.split_at_mut(i);
                below[0][..=j].iter_mut().zip(&above[j]).for_each(|(to, from)| *to -= a * from);
            }
        }
        Factors {
            grown: sums.iter().map(|&to| power(0.0, to)).collect(),
            left: sums.iter().map(|&from| power(from, sum)).collect(),
            inverse,
            among,
            products,
        }
    }
}

/// Applies a chunk's rows to the exact recurrence and its error; returns the outputs, `[rows, dv]`.
///
/// Errors of the state before the chunk pass through the exact map, which lengthens no column. The chunk's own: the
/// F16 roundings of K, Q, S, T, P, V' and of the wanted values R = V - e^G K S, each as large as the terms that it
/// meets; the error of A, which reaches V' as T dA V'; sums in F32. A tenth on top stands for products of errors.
fn chunk(exact: &mut Recurrence, rows: &[Token<'_>]) -> Vec<Expected> {
    let (n, dv) = (rows.len(), exact.error.len());
    let f = Factors::new(rows);
    let mut out = vec![Expected { value: 0.0, bound: 0.0 }; n * dv];
    for c in 0..dv {
        let before = exact.error[c];
        let state = |e: usize| exact.state[e * dv + c];
        let length = (0..exact.state.len() / dv).map(|e| state(e).powi(2)).sum::<f64>().sqrt() + before;
        let tiny = 2.0 * LEAST * (exact.state.len() as f64 / dv as f64).sqrt() * (1.0 + length);
        // R and its error.
        let wanted: Vec<(f64, f64)> = rows
            .iter()
            .zip(&f.grown)
            .map(|(t, (grown, error))| {
                let (read, size) = (dot(t.k, state, false) * grown, (dot(t.k, state, true) + before) * grown);
                let value = t.v[c] as f64 - read;
                (value, PRODUCT * size + size * error + grown * tiny + 2.0 * U32 * (value.abs() + size))
            })
            .collect();
        // V' with the error of R and of the roundings of T and R, then with that of A.
        let mut change: Vec<(f64, f64)> = Vec::with_capacity(n);
        for i in 0..n {
            let (mut value, mut error) = (0.0, 0.0);
            for j in 0..=i {
                let t = f.inverse[i][j] * rows[j].beta as f64;
                let (r, off) = wanted[j];
                value += t * r;
                error += t.abs() * off + PRODUCT * t.abs() * r.abs() + LEAST * (r.abs() + t.abs());
            }
            change.push((value, error));
        }
        let spread: Vec<f64> =
            (0..n).map(|j| (0..j).map(|l| f.among[j][l] * (change[l].0.abs() + change[l].1)).sum()).collect();
        for (i, (_, error)) in change.iter_mut().enumerate() {
            *error += (0..=i).map(|j| f.inverse[i][j].abs() * spread[j]).sum::<f64>();
            *error *= 1.1;
        }
        for (i, t) in rows.iter().enumerate() {
            let (q, (grown, error)) = (t.q.unwrap_or(&[]), f.grown[i]);
            let long = q.iter().map(|&q| (q as f64).powi(2)).sum::<f64>().sqrt();
            let size = (dot(q, state, true) + long * before) * grown;
            let mut value = dot(q, state, false) * grown;
            let mut bound = PRODUCT * size + size * error + grown * tiny + long * grown * before;
            for (&(p, p_error), &(v, v_error)) in f.products[i].iter().zip(&change[..=i]) {
                value += p * v;
                bound += p_error * v.abs() + p.abs() * v_error + PRODUCT * p.abs() * v.abs() + LEAST * p.abs();
            }
            out[i * dv + c] = Expected { value, bound: 1.1 * bound };
        }
        let (shrink, shrink_error) = f.grown[n - 1];
        let mut after = shrink * before + shrink * length * (shrink_error + 6.0 * U32);
        for (i, (left, left_error)) in f.left.iter().enumerate() {
            let (v, v_error) = change[i];
            after += 1.1 * left * (v_error + (PRODUCT + left_error) * v.abs()) + LEAST;
            // K's subnormal elements, and those of V'.
            after += left * v.abs() * LEAST * (rows[i].k.len() as f64).sqrt();
        }
        for (e, s) in exact.state.iter_mut().skip(c).step_by(dv).enumerate() {
            *s *= shrink;
            for (i, t) in rows.iter().enumerate() {
                *s += t.k[e] as f64 * f.left[i].0 * change[i].0;
            }
        }
        exact.error[c] = after;
    }
    out
}
