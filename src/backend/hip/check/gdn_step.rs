//! The delta rule of a few rows: against the recurrence in F64, and against itself however rows were pending.

use super::super::abi::{GdnOutputArgs, GdnSegment, GdnStepArgs};
use super::Class;
use super::bench::{Bench, Expected, Output, U32, gamma};
use super::gdn::{Heads, Planes, State, decays, exponential, heads, segments, units};
use crate::error::Result;

/// Inputs of a step's rows.
pub struct Rows {
    pub mixed: Vec<f32>,
    pub decay: Vec<f32>,
    pub strength: Vec<f32>,
}

impl Rows {
    /// Unit queries (scaled) and keys, values, gates.
    pub fn new(bench: &mut Bench<'_>, h: &Heads, rows: usize) -> Rows {
        let mut mixed = Vec::with_capacity(rows * h.channels());
        for _ in 0..rows {
            let scale = 1.0 / (h.key_dim as f32).sqrt();
            mixed.extend(units(bench, h.key_heads, h.key_dim).iter().map(|q| q * scale));
            mixed.extend(units(bench, h.key_heads, h.key_dim));
            mixed.extend(bench.signed(h.values()));
        }
        let count = rows * h.value_heads;
        Rows { mixed, decay: decays(bench, count), strength: (0..count).map(|_| bench.uniform()).collect() }
    }
}

/// One row as the recurrence of a head sees it.
pub struct Token<'a> {
    pub q: Option<&'a [f32]>,
    pub k: &'a [f32],
    pub v: &'a [f32],
    pub g: f32,
    pub beta: f32,
}

/// The rows of a head: `pending` ones of the state, then the step's.
pub fn tokens<'a>(h: &Heads, head: usize, state: &'a State, segment: &GdnSegment, rows: &'a Rows) -> Vec<Token<'a>> {
    let (at, dk, dv) = (h.key_head(head) * h.key_dim, h.key_dim, h.value_dim);
    let old = (0..segment.pending as usize).map(|r| Token {
        q: None,
        k: &state.keys[r * h.keys() + at..][..dk],
        v: &state.values[r * h.values() + head * dv..][..dv],
        g: state.decay[r * h.value_heads + head],
        beta: state.strength[r * h.value_heads + head],
    });
    let new = (segment.first as usize..(segment.first + segment.rows) as usize).map(|r| {
        let mixed = &rows.mixed[r * h.channels()..][..h.channels()];
        Token {
            q: Some(&mixed[at..][..dk]),
            k: &mixed[h.keys() + at..][..dk],
            v: &mixed[2 * h.keys() + head * dv..][..dv],
            g: rows.decay[r * h.value_heads + head],
            beta: rows.strength[r * h.value_heads + head],
        }
    });
    old.chain(new).collect()
}

/// The recurrence in F64 with the bound of its F32 form, column by column.
///
/// With |k| <= 1 and 0 <= beta <= 1 the map S -> (I - beta k k^T) e^g S makes no column longer, so a column's error (a
/// 2-norm) is at most e^g times the one before, plus the row's own roundings: of the decay and two of the update
/// (relative to the column), of d (read as a sum of `depth` steps), of the product k d.
pub struct Recurrence {
    pub state: Vec<f64>,
    pub error: Vec<f64>,
}

impl Recurrence {
    pub fn new(state: &[f32], dv: usize) -> Recurrence {
        Recurrence { state: state.iter().map(|&x| x as f64).collect(), error: vec![0.0; dv] }
    }
    /// Applies a row; returns its output, if it has queries.
    pub fn apply(&mut self, token: &Token<'_>, depth: usize) -> Vec<Expected> {
        let dv = self.error.len();
        let (decay, shrink_error) = ((token.g as f64).exp(), exponential(token.g as f64));
        let beta = token.beta as f64;
        let mut out = Vec::new();
        for c in 0..dv {
            let column = |s: &[f64]| s.iter().skip(c).step_by(dv).map(|x| x * x).sum::<f64>().sqrt();
            let length = column(&self.state) + self.error[c];
            let v = token.v[c] as f64;
            let read: f64 = token.k.iter().enumerate().map(|(i, &k)| self.state[i * dv + c] * k as f64).sum();
            let d = (v - decay * read) * beta;
            for (i, &k) in token.k.iter().enumerate() {
                self.state[i * dv + c] = self.state[i * dv + c] * decay + k as f64 * d;
            }
            let d_error = beta * (decay * length * (gamma(depth) + shrink_error + 3.0 * U32) + 3.0 * U32 * v.abs());
            self.error[c] =
                decay * self.error[c] + decay * length * (shrink_error + 2.0 * U32) + d_error + 2.0 * U32 * d.abs();
            if let Some(q) = token.q {
                let sum = q.iter().enumerate().map(|(i, &q)| self.state[i * dv + c] * q as f64).sum();
                let long = q.iter().map(|&q| q as f64 * q as f64).sum::<f64>().sqrt();
                let after = column(&self.state) + self.error[c];
                out.push(Expected { value: sum, bound: long * (self.error[c] + gamma(depth) * after) });
            }
        }
        out
    }
    /// The state with its bounds.
    pub fn expected(&self) -> Vec<Expected> {
        let bounds = self.error.iter().cycle();
        self.state.iter().zip(bounds).map(|(&value, &bound)| Expected { value, bound }).collect()
    }
}

/// Device copies of a step's rows.
pub struct Launch<'a> {
    pub heads: &'a Heads,
    pub planes: &'a Planes,
    pub rewind: usize,
    pub limit: usize,
}

impl Launch<'_> {
    /// Runs the step kernel for these segments; `output` also stores the rows that stay pending.
    pub fn step(&self, bench: &Bench<'_>, list: &[GdnSegment], rows: &Rows, output: bool) -> Result<Output> {
        let h = self.heads;
        let count = rows.decay.len() / h.value_heads;
        let (s, m) = (bench.upload(list)?, bench.upload(&rows.mixed)?);
        let (d, b) = (bench.upload(&rows.decay)?, bench.upload(&rows.strength)?);
        let out = bench.output::<f32>(count * h.values())?;
        let arguments = GdnStepArgs {
            out: out.address(),
            planes: self.planes.address(),
            segments: s.address(),
            mixed: m.address(),
            decay: d.address(),
            strength: b.address(),
            key_heads: h.key_heads as u32,
            value_heads: h.value_heads as u32,
            key_dim: h.key_dim as u32,
            value_dim: h.value_dim as u32,
            rewind: self.rewind as u32,
            limit: self.limit as u32,
            tiled: u32::from(h.tiled),
            unused: 0,
        };
        bench.launch(&kernel(h), list.len() * h.value_heads * h.value_dim.div_ceil(32), &arguments)?;
        if output {
            let place = |(i, s): (usize, &GdnSegment)| std::iter::repeat_n(i as u32, s.rows as usize);
            let sequence: Vec<u32> = list.iter().enumerate().flat_map(place).collect();
            let (i, w) = (bench.upload(&sequence)?, bench.upload(&vec![1f32; h.value_dim])?);
            let (z, normed) =
                (bench.upload(&vec![0f32; count * h.values()])?, bench.output::<f32>(count * h.values())?);
            let arguments = GdnOutputArgs {
                out: normed.address(),
                o: out.address(),
                z: z.address(),
                weight: w.address(),
                planes: self.planes.address(),
                segments: s.address(),
                sequence: i.address(),
                mixed: m.address(),
                decay: d.address(),
                strength: b.address(),
                rows: count as u32,
                key_heads: h.key_heads as u32,
                value_heads: h.value_heads as u32,
                key_dim: h.key_dim as u32,
                value_dim: h.value_dim as u32,
                rewind: self.rewind as u32,
                eps: 1e-6,
                silu: 0,
            };
            bench.launch("gdn_output", (count * h.value_heads).div_ceil(8), &arguments)?;
        }
        Ok(out)
    }
}

fn kernel(h: &Heads) -> String {
    match h.key_dim {
        64 | 128 => format!("gdn_step_{}", h.key_dim),
        _ => "gdn_step_any".into(),
    }
}

/// Every kind of segment against the recurrence, then a sequence's steps cut in different ways.
pub fn step(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(62);
    for (h, rewind, limit, list) in [
        (heads(2, 6, 16, 16, false), 4, 8, &[(1, 0), (5, 2), (9, 3), (0, 2), (4, 4)][..]),
        (heads(2, 4, 64, 64, true), 8, 8, &[(8, 3), (1, 8), (3, 0)]),
        (heads(2, 4, 64, 64, false), 2, 9, &[(9, 2), (0, 0), (2, 1)]),
        (heads(1, 3, 128, 128, false), 4, 8, &[(1, 1), (8, 0), (4, 3), (70, 2)]),
        (heads(1, 2, 204, 36, false), 3, 8, &[(3, 2), (5, 1)]),
        (heads(16, 48, 128, 128, false), 4, 8, &[(1, 0)]),
        (heads(16, 48, 128, 128, true), 4, 8, &[(2, 1)]),
    ] {
        let states: Vec<State> = list.iter().map(|_| State::new(bench, &h, rewind.max(4))).collect();
        let rows = Rows::new(bench, &h, list.iter().map(|(rows, _)| rows).sum());
        let (planes, segments) = (Planes::new(bench, &states)?, segments(list));
        let out = Launch { heads: &h, planes: &planes, rewind, limit }.step(bench, &segments, &rows, false)?;
        let out = bench.read::<f32>(&out)?;
        let (mut got, mut want, mut got_states, mut want_states) = (vec![], vec![], vec![], vec![]);
        for (i, segment) in segments.iter().enumerate() {
            let count = segment.rows as usize;
            let fresh = if count <= limit { count } else { 0 };
            let written = segment.pending as usize + if fresh <= rewind { 0 } else { fresh };
            for head in 0..h.value_heads {
                let size = h.key_dim * h.value_dim;
                let mut exact = Recurrence::new(&states[i].state[head * size..][..size], h.value_dim);
                for (r, token) in tokens(&h, head, &states[i], segment, &rows).iter().enumerate() {
                    if r == written {
                        want_states.extend(exact.expected());
                    }
                    let Some(row) = r.checked_sub(segment.pending as usize) else {
                        exact.apply(token, h.key_dim.div_ceil(8) + 3);
                        continue;
                    };
                    let at = ((segment.first as usize + row) * h.value_heads + head) * h.value_dim;
                    if fresh == 0 {
                        // gdn_scan's: still poison.
                        got.extend(out[at..][..h.value_dim].iter().map(|x| if x.is_nan() { 0.0 } else { 1.0 }));
                        want.extend(std::iter::repeat_n(Expected { value: 0.0, bound: 0.0 }, h.value_dim));
                        continue;
                    }
                    want.extend(exact.apply(token, h.key_dim.div_ceil(8) + 3));
                    got.extend_from_slice(&out[at..][..h.value_dim]);
                }
                if written == segment.pending as usize + count {
                    want_states.extend(exact.expected());
                }
            }
            got_states.extend(planes.read(bench, i)?.state);
        }
        let case = format!("{h}, {list:?}, {rewind} revocable");
        bench.close(&kernel(&h), format!("{case}, output"), Class::Ordered, &got, &want);
        bench.close(&kernel(&h), format!("{case}, state"), Class::Ordered, &got_states, &want_states);
    }
    for h in [heads(2, 4, 64, 64, false), heads(1, 3, 128, 128, false), heads(2, 6, 16, 16, true)] {
        cuts(bench, &h)?;
    }
    Ok(())
}

/// Six rows at once, and as four of which one is taken back, then three: the same outputs and the same state.
fn cuts(bench: &mut Bench<'_>, h: &Heads) -> Result<()> {
    let state = State::new(bench, h, 4);
    let rows = Rows::new(bench, h, 7);
    let part = |range: std::ops::Range<usize>| Rows {
        mixed: rows.mixed[range.start * h.channels()..range.end * h.channels()].to_vec(),
        decay: rows.decay[range.start * h.value_heads..range.end * h.value_heads].to_vec(),
        strength: rows.strength[range.start * h.value_heads..range.end * h.value_heads].to_vec(),
    };
    let planes = Planes::new(bench, std::slice::from_ref(&state))?;
    let whole = Launch { heads: h, planes: &planes, rewind: 0, limit: 8 };
    let out = whole.step(bench, &segments(&[(6, 0)]), &part(0..6), false)?;
    let (want, want_state) = (bench.read::<f32>(&out)?, planes.read(bench, 0)?.state);

    let planes = Planes::new(bench, &[state])?;
    let cut = Launch { heads: h, planes: &planes, rewind: 4, limit: 8 };
    let mut drafted = part(0..3);
    let wrong = part(6..7);
    drafted.mixed.extend(wrong.mixed);
    drafted.decay.extend(wrong.decay);
    drafted.strength.extend(wrong.strength);
    let first = cut.step(bench, &segments(&[(4, 0)]), &drafted, true)?;
    let second = cut.step(bench, &segments(&[(3, 3)]), &part(3..6), true)?;
    cut.step(bench, &segments(&[(0, 3)]), &part(0..1), false)?;
    let mut got = bench.read::<f32>(&first)?;
    got.truncate(3 * h.values());
    got.extend(bench.read::<f32>(&second)?);
    bench.exact(&kernel(h), format!("{h}, six rows in two steps, one taken back, output"), &got, &want);
    let got = planes.read(bench, 0)?.state;
    bench.exact(&kernel(h), format!("{h}, six rows in two steps, one taken back, state"), &got, &want_state);
    Ok(())
}
