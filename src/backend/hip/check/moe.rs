//! Mixture of experts: the router's choice, the lists of each expert, and the products for few rows.

use bytemuck::Zeroable;

use super::super::abi::{MoeDownArgs, MoeExpert, MoeGateUpArgs, MoeGroup, MoeListsArgs, MoeRouteArgs, MoeTile};
use super::Class;
use super::bench::{Bench, Expected, SIGMOID, U32, gamma, sigmoid};
use super::matrix::{Stored, formats, store, usual};
use crate::backend::cpu::mixture;
use crate::config::MoeShape;
use crate::device::DeviceMemory;
use crate::error::Result;
use crate::weights::Format;

/// Logits of every kind of row: spread, equal, with ties across the boundary, far apart, not numbers.
fn logits(bench: &mut Bench<'_>, row: usize, experts: usize) -> Vec<f32> {
    let mut x = bench.signed(experts);
    match row % 6 {
        0 => x.iter_mut().for_each(|x| *x *= 8.0),
        1 => x.fill(0.25),
        2 => x.iter_mut().for_each(|x| *x = (*x * 3.0).round()),
        3 => x.iter_mut().for_each(|x| *x *= 200.0),
        4 => x[experts / 2] = f32::INFINITY,
        _ => x.iter_mut().for_each(|x| *x *= 1e-3),
    }
    x
}

/// The groups that the kernels for few rows start from.
fn groups(ids: &[u32], top_k: usize) -> Vec<MoeGroup> {
    let mut groups: Vec<MoeGroup> = Vec::new();
    for (pair, &expert) in ids.iter().enumerate() {
        let (row, slot) = (pair / top_k, (pair % top_k) as u32);
        let group = match groups.iter().position(|group| group.expert == expert) {
            Some(i) => &mut groups[i],
            None => {
                groups.push(MoeGroup { expert, ..MoeGroup::zeroed() });
                groups.last_mut().expect("just pushed")
            }
        };
        group.rows |= 1 << row;
        group.slots |= slot << (4 * row);
    }
    groups.resize(ids.len(), MoeGroup::zeroed());
    groups
}

/// The router's choice, bit for bit, with groups where rows are few.
pub fn route(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(60);
    for (rows, experts, top_k, stride, normalise) in [
        (1, 512, 10, 512, true),
        (8, 512, 10, 513, true),
        (7, 16, 4, 16, true),
        (3, 8, 3, 9, true),
        (2, 1, 1, 1, true),
        (5, 37, 16, 40, false),
        (17, 512, 10, 513, true),
    ] {
        let mut all = bench.signed(rows * stride);
        for row in 0..rows {
            let values = logits(bench, row, experts);
            all[row * stride..][..experts].copy_from_slice(&values);
        }
        let shape = MoeShape { experts, top_k, intermediate: 1, shared_intermediate: 1, normalise };
        let (mut want_ids, mut want_weights) = (vec![0; rows * top_k], vec![0.0; rows * top_k]);
        for row in 0..rows {
            let own = row * top_k..(row + 1) * top_k;
            let mut logits = all[row * stride..][..experts].to_vec();
            mixture::route(&shape, &mut logits, &mut want_ids[own.clone()], &mut want_weights[own]);
        }
        let input = bench.upload(&all)?;
        let (ids, weights) = (bench.output::<u32>(rows * top_k)?, bench.output::<f32>(rows * top_k)?);
        let grouped = bench.output::<MoeGroup>(rows * top_k)?;
        let arguments = MoeRouteArgs {
            ids: ids.address(),
            weights: weights.address(),
            groups: if rows <= 8 { grouped.address() } else { 0 },
            logits: input.address(),
            stride: stride as u32,
            rows: rows as u32,
            experts: experts as u32,
            top_k: top_k as u32,
            normalise: normalise.into(),
            unused: 0,
        };
        bench.launch("moe_route", rows.div_ceil(8), &arguments)?;
        let case = format!("{rows} rows, {top_k} of {experts}");
        let got = bench.read::<u32>(&ids)?;
        bench.exact("moe_route", format!("{case}, experts"), &got, &want_ids);
        // One NaN is as good as another.
        let canonical =
            |x: Vec<f32>| -> Vec<f32> { x.into_iter().map(|x| if x.is_nan() { f32::NAN } else { x }).collect() };
        let got = canonical(bench.read::<f32>(&weights)?);
        bench.exact("moe_route", format!("{case}, weights"), &got, &canonical(want_weights));
        if rows <= 8 {
            let words = |groups: Vec<MoeGroup>| bytemuck::pod_collect_to_vec::<MoeGroup, u32>(&groups);
            let got = words(bench.read::<MoeGroup>(&grouped)?);
            bench.exact("moe_route", format!("{case}, groups"), &got, &words(groups(&want_ids, top_k)));
        }
    }
    Ok(())
}

/// Experts for `rows` rows; `skew` above 1 makes low experts likelier.
pub fn choose(bench: &mut Bench<'_>, rows: usize, experts: usize, top_k: usize, skew: i32) -> Vec<u32> {
    let mut ids = Vec::with_capacity(rows * top_k);
    for _ in 0..rows {
        let start = ids.len();
        while ids.len() < start + top_k {
            let id = (bench.uniform().powi(skew) * experts as f32) as u32;
            if !ids[start..].contains(&id) {
                ids.push(id);
            }
        }
    }
    ids
}

/// What `moe_lists` makes of `ids`: entries, starts, and `max_tiles` tiles.
pub fn listed(ids: &[u32], experts: usize, tile_rows: u32, max_tiles: usize) -> (Vec<u32>, Vec<u32>, Vec<MoeTile>) {
    let (mut entries, mut starts, mut tiles) = (Vec::new(), vec![0], Vec::new());
    for expert in 0..experts as u32 {
        let first = entries.len() as u32;
        entries.extend((0..ids.len() as u32).filter(|&pair| ids[pair as usize] == expert));
        let end = entries.len() as u32;
        starts.push(end);
        tiles.extend((first..end).step_by(tile_rows as usize).map(|first| MoeTile {
            expert,
            first,
            count: tile_rows.min(end - first),
            unused: 0,
        }));
    }
    tiles.resize(max_tiles, MoeTile::zeroed());
    (entries, starts, tiles)
}

/// Lists and tiles of all shapes.
pub fn lists(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(61);
    for (rows, experts, top_k, skew, tile_rows) in [
        (1, 512, 10, 1, 64),
        (9, 8, 3, 2, 64),
        (51, 16, 4, 1, 16),
        (52, 512, 10, 5, 64),
        (511, 512, 10, 3, 64),
        (1025, 16, 4, 1, 64),
    ] {
        let ids = choose(bench, rows, experts, top_k, skew);
        let max_tiles = ids.len().min(ids.len() / tile_rows as usize + experts);
        let input = bench.upload(&ids)?;
        let (entries, starts) = (bench.output::<u32>(ids.len())?, bench.output::<u32>(experts + 1)?);
        let tiles = bench.output::<MoeTile>(max_tiles)?;
        let arguments = MoeListsArgs {
            entries: entries.address(),
            starts: starts.address(),
            tiles: tiles.address(),
            ids: input.address(),
            pairs: ids.len() as u32,
            experts: experts as u32,
            tile_rows,
            max_tiles: max_tiles as u32,
        };
        bench.launch("moe_lists", 1, &arguments)?;
        let (want_entries, want_starts, want_tiles) = listed(&ids, experts, tile_rows, max_tiles);
        let case = format!("{rows} rows, {top_k} of {experts}, tiles of {tile_rows}");
        let got = bench.read::<u32>(&entries)?;
        bench.exact("moe_lists", format!("{case}, entries"), &got, &want_entries);
        let got = bench.read::<u32>(&starts)?;
        bench.exact("moe_lists", format!("{case}, starts"), &got, &want_starts);
        let words = |tiles: Vec<MoeTile>| bytemuck::pod_collect_to_vec::<MoeTile, u32>(&tiles);
        let got = words(bench.read::<MoeTile>(&tiles)?);
        bench.exact("moe_lists", format!("{case}, tiles"), &got, &words(want_tiles));
    }
    Ok(())
}

/// Experts on the device.
pub struct Weights {
    /// The ends of their kernels' names.
    pub name: &'static str,
    /// `[experts]` of [`MoeExpert`].
    pub table: DeviceMemory,
    /// Whether the last expert is in Q8_0 and the others are not.
    pub shared_q8_0: bool,
    /// Matrices of an expert, and the number of elements that a lane loads at a time.
    experts: Vec<([Stored; 3], usize)>,
}

impl Weights {
    /// Experts of the widths `inner`, the last of which may be in Q8_0. Scales of `up` begin at other rows in each.
    pub fn new(
        bench: &mut Bench<'_>,
        (format, name, multiple): (Format, &'static str, usize),
        hidden: usize,
        inner: &[usize],
        shared_q8_0: bool,
    ) -> Result<Weights> {
        let mut blocks = usual(bench, format);
        let (mut experts, mut table, count) = (Vec::new(), Vec::new(), inner.len());
        for (i, &inner) in inner.iter().enumerate() {
            let (mut format, mut multiple) = (format, multiple);
            if shared_q8_0 && i + 1 == count {
                (format, multiple) = (Format::Q8_0, 32);
                blocks = usual(bench, format);
            }
            let up_offset = i % 3 * 50;
            let gate = store(bench, format, [inner, hidden], 0, &mut blocks)?;
            let up = store(bench, format, [inner, hidden], up_offset, &mut blocks)?;
            let down = store(bench, format, [hidden, inner], 0, &mut blocks)?;
            table.push(MoeExpert {
                gate: gate.weights.address(),
                up: up.weights.address(),
                down: down.weights.address(),
                gate_scales: gate.scales(),
                up_scales: up.scales(),
                down_scales: down.scales(),
                up_offset: up_offset as u32,
                unused: 0,
            });
            experts.push(([gate, up, down], multiple.min(32)));
        }
        Ok(Weights { name, table: bench.upload(&table)?, shared_q8_0, experts })
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.experts.len()
    }
    /// Values of an expert's gate, up and down.
    pub fn values(&self, expert: usize) -> [&[f32]; 3] {
        self.experts[expert].0.each_ref().map(|stored| &stored.values[..])
    }
    /// Elements that a lane loads of an expert's row at a time.
    pub fn group(&self, expert: usize) -> usize {
        self.experts[expert].1
    }
}

/// `w · x` with the bound of its sum.
fn product(w: &[f32], x: &[f64], depth: usize) -> Expected {
    let products = || w.iter().zip(x).map(|(w, x)| *w as f64 * x);
    Expected { value: products().sum(), bound: gamma(depth) * products().map(f64::abs).sum::<f64>() }
}

/// `silu(gate) · up`: the slope of SiLU is below 1.1.
pub fn swiglu(gate: Expected, up: Expected) -> Expected {
    let silu = gate.value * sigmoid(gate.value);
    let silu_bound = 1.1 * gate.bound + SIGMOID * silu.abs();
    let bound = silu_bound * (up.value.abs() + up.bound) + silu.abs() * up.bound;
    Expected { value: silu * up.value, bound: bound + 2.0 * U32 * (silu * up.value).abs() }
}

/// A lane's chain of products, then five steps across lanes.
fn depth(inputs: usize, group: usize) -> usize {
    (inputs / group).div_ceil(32) * group + 5
}

/// One step of at most eight rows.
struct Step<'a> {
    weights: &'a Weights,
    x: &'a [f32],
    scale: &'a [f32],
    ids: &'a [u32],
    mix: &'a [f32],
    top_k: usize,
    /// Widths: model, expert, shared expert.
    hidden: usize,
    inner: usize,
    shared: usize,
}

/// What a step leaves: the experts' hidden activations, the shared expert's, and the sums.
type Results = [Vec<f32>; 3];

impl Step<'_> {
    fn kernel(&self, part: &str, rows: usize) -> String {
        format!("moe_{part}_{}_r{rows}", self.weights.name)
    }

    /// Rows `from..from + rows` by the kernels for `kernel_rows` rows, shared expert and all.
    fn run(&self, bench: &Bench<'_>, kernel_rows: usize, from: usize, rows: usize) -> Result<Results> {
        let pairs = from * self.top_k..(from + rows) * self.top_k;
        let table = self.weights.table.address();
        let x = bench.upload(&self.x[from * self.hidden..(from + rows) * self.hidden])?;
        let groups = bench.upload(&groups(&self.ids[pairs.clone()], self.top_k))?;
        let hidden = bench.output::<f32>(pairs.len() * self.inner)?;
        let shared_hidden = bench.output::<f32>((rows * self.shared).max(1))?;
        let arguments = MoeGateUpArgs {
            hidden: hidden.address(),
            shared_hidden: shared_hidden.address(),
            x: x.address(),
            experts: table,
            groups: groups.address(),
            rows: rows as u32,
            top_k: self.top_k as u32,
            inputs: self.hidden as u32,
            inner: self.inner as u32,
            shared: self.weights.len() as u32 - 1,
            shared_inner: self.shared as u32,
            shared_q8_0: u32::from(self.weights.shared_q8_0),
            unused: 0,
        };
        let grid = pairs.len() * self.inner.div_ceil(16) + self.shared.div_ceil(16);
        bench.launch(&self.kernel("gate_up", kernel_rows), grid, &arguments)?;
        let (mix, scale) = (bench.upload(&self.mix[pairs])?, bench.upload(&self.scale[from..])?);
        let y = bench.output::<f32>(rows * self.hidden)?;
        let arguments = MoeDownArgs {
            y: y.address(),
            hidden: hidden.address(),
            shared_hidden: shared_hidden.address(),
            weights: mix.address(),
            scale: scale.address(),
            experts: table,
            groups: groups.address(),
            rows: rows as u32,
            top_k: self.top_k as u32,
            outputs: self.hidden as u32,
            inner: self.inner as u32,
            shared: self.weights.len() as u32 - 1,
            shared_inner: self.shared as u32,
            scale_stride: 1,
            add: 0,
            shared_q8_0: u32::from(self.weights.shared_q8_0),
            unused: 0,
        };
        bench.launch(&self.kernel("down", kernel_rows), self.hidden.div_ceil(8), &arguments)?;
        let mut shared_hidden = bench.read::<f32>(&shared_hidden)?;
        shared_hidden.truncate(rows * self.shared);
        Ok([bench.read(&hidden)?, shared_hidden, bench.read(&y)?])
    }

    /// Hidden activations of one expert for one row.
    fn hidden(&self, row: usize, expert: usize) -> Vec<Expected> {
        let x: Vec<f64> = self.x[row * self.hidden..][..self.hidden].iter().map(|&x| x.into()).collect();
        let [gate, up, _] = self.weights.values(expert);
        let one = |w: &[f32]| product(w, &x, depth(self.hidden, self.weights.group(expert)));
        gate.chunks(self.hidden).zip(up.chunks(self.hidden)).map(|(g, u)| swiglu(one(g), one(u))).collect()
    }

    /// Sums of one row from the hidden activations that the first kernel left.
    fn sums(&self, row: usize, hidden: &[f32], shared: &[f32]) -> Vec<Expected> {
        let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| x.into()).collect() };
        (0..self.hidden)
            .map(|n| {
                let (mut value, mut bound, mut size) = (0.0, 0.0, 0.0);
                let mut add = |expert: usize, x: &[f64], factor: f64, relative: f64| {
                    let down = &self.weights.values(expert)[2][n * x.len()..][..x.len()];
                    let dot = product(down, x, depth(x.len(), self.weights.group(expert)));
                    value += factor * dot.value;
                    size += factor * (dot.value.abs() + dot.bound);
                    bound += factor * (dot.bound * (1.0 + relative) + relative * dot.value.abs());
                };
                for slot in 0..self.top_k {
                    let pair = row * self.top_k + slot;
                    let x = wide(&hidden[pair * self.inner..][..self.inner]);
                    add(self.ids[pair] as usize, &x, self.mix[pair] as f64, 0.0);
                }
                if self.shared != 0 {
                    let gate = 1.0 / (1.0 + (-self.scale[row] as f64).exp());
                    let x = wide(&shared[row * self.shared..][..self.shared]);
                    add(self.weights.len() - 1, &x, gate, SIGMOID);
                }
                Expected { value, bound: bound + gamma(self.top_k + 1) * size }
            })
            .collect()
    }
}

/// Few rows through both kernels, whose rows often share an expert; each row alone has the same bits.
pub fn few(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(62);
    for format in formats() {
        for (rows, experts, top_k, hidden, inner, shared) in
            [(1, 8, 3, 24, 24, 40), (8, 16, 4, 256, 32, 64), (5, 8, 3, 40, 24, 0)]
        {
            few_case(bench, format, [rows, experts, top_k], [hidden, inner, shared], false)?;
        }
        if format.0 != Format::Q8_0 {
            few_case(bench, format, [3, 8, 3], [64, 40, 96], true)?;
        }
    }
    let bf16 = (Format::Bf16, "bf16", 8);
    for (rows, experts, top_k, hidden, inner, shared) in
        [(1, 3, 2, 2560, 640, 640), (3, 10, 10, 72, 264, 8), (1, 16, 13, 4104, 1544, 800)]
    {
        few_case(bench, bf16, [rows, experts, top_k], [hidden, inner, shared], false)?;
    }
    few_case(bench, (Format::Q4_0, "q4_0", 32), [1, 10, 10], [2560, 640, 640], true)
}

/// One step of `rows` rows with `top_k` of `experts`; widths of model, expert and shared expert (0: none), which may be in
/// Q8_0 beside experts in another format.
fn few_case(
    bench: &mut Bench<'_>,
    format: (Format, &'static str, usize),
    [rows, experts, top_k]: [usize; 3],
    widths: [usize; 3],
    shared_q8_0: bool,
) -> Result<()> {
    let multiple = if shared_q8_0 { format.2.max(32) } else { format.2 };
    let [hidden, inner, shared] = widths.map(|width| width.next_multiple_of(multiple));
    let widths: Vec<usize> = (0..experts).map(|_| inner).chain([shared.max(multiple)]).collect();
    let weights = Weights::new(bench, format, hidden, &widths, shared_q8_0)?;
    let x: Vec<f32> = bench.signed(rows * hidden).into_iter().map(|x| x / 8.0).collect();
    let scale = bench.signed(rows);
    let ids = choose(bench, rows, experts, top_k, 2);
    let mix: Vec<f32> = (0..ids.len()).map(|_| bench.uniform()).collect();
    let (weights, x, ids) = (&weights, &x[..], &ids[..]);
    let step = Step { weights, x, scale: &scale, ids, mix: &mix, top_k, hidden, inner, shared };
    let kernel_rows = if rows == 1 { 1 } else { 8 };
    let got = step.run(bench, kernel_rows, 0, rows)?;
    let other = if shared_q8_0 { " in q8_0" } else { "" };
    let case = format!("{rows} rows, {top_k} of {experts}, {hidden} x {inner}, shared {shared}{other}");
    let (gate_up, down) = (step.kernel("gate_up", kernel_rows), step.kernel("down", kernel_rows));
    let want: Vec<_> = (0..ids.len()).flat_map(|pair| step.hidden(pair / top_k, ids[pair] as usize)).collect();
    bench.close(&gate_up, format!("{case}, routed"), Class::Ordered, &got[0], &want);
    if shared != 0 {
        let want: Vec<_> = (0..rows).flat_map(|row| step.hidden(row, experts)).collect();
        bench.close(&gate_up, format!("{case}, shared"), Class::Ordered, &got[1], &want);
    }
    let want: Vec<_> = (0..rows).flat_map(|row| step.sums(row, &got[0], &got[1])).collect();
    bench.close(&down, case.clone(), Class::Ordered, &got[2], &want);
    if rows > 1 {
        let mut alone: Results = Default::default();
        for row in 0..rows {
            for (all, own) in alone.iter_mut().zip(step.run(bench, 1, row, 1)?) {
                all.extend(own);
            }
        }
        bench.exact(&gate_up, format!("{case}, each row alone"), &got[0], &alone[0]);
        bench.exact(&down, format!("{case}, each row alone"), &got[2], &alone[2]);
    }
    Ok(())
}
