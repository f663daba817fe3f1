//! State of fixed size: the recurrent matrices and convolution windows of GDN layers, the windows of PLE layers, and the
//! trunk's last hidden rows where an MTP head reads them.
//!
//! Owns: where each part lies in one arena range, and how far the last step can be taken back.
//! Always true: with n rows pending, `state` is the recurrent matrix *before* those rows and their keys, values, decays
//! and strengths lie beside it; a window holds its history, then the pending columns. So taking rows back is arithmetic
//! on one number, and re-applying the kept ones happens inside the next step (spec 3.2, third way). A part that a step
//! has folded its pending rows into stands at the same token as one that it has not reached, as long as the step's own
//! rows stay revocable: a step that fails between two of them leaves the sequence as it was.
//! Not here: the recurrence itself (`backend`).

use std::ops::Range as Span;

use bytemuck::cast_slice;

use crate::arena::{Arena, Range};
use crate::config::{Mixer, Shape};
use crate::error::Result;
use crate::state::head::HIDDEN_ROWS;

/// Every part starts at a multiple of this many floats.
const ALIGN: usize = 16;

/// Offsets, in floats, of every part.
#[derive(Debug, Clone, PartialEq)]
pub struct RecurrentLayout {
    gdn: Vec<GdnParts>,
    ple: Vec<Span<usize>>,
    hidden: Span<usize>,
    floats: usize,
    /// Rows of one step that can be taken back.
    pub rewind_rows: usize,
    /// Columns of history of a GDN window: taps minus one.
    pub conv_history: usize,
    /// Columns of history of a PLE window.
    pub ple_history: usize,
}

#[derive(Debug, Clone, PartialEq)]
struct GdnParts {
    state: Span<usize>,
    window: Span<usize>,
    keys: Span<usize>,
    values: Span<usize>,
    decay: Span<usize>,
    strength: Span<usize>,
}

impl RecurrentLayout {
    /// Lays out the state of a model; `rewind_rows` rows of a step stay revocable. Hidden rows are kept for an MTP head
    /// only.
    pub fn new(shape: &Shape, rewind_rows: usize, mtp: bool) -> RecurrentLayout {
        let mut floats = 0;
        let mut take = |count: usize| {
            let start = floats;
            floats += count.next_multiple_of(ALIGN);
            start..start + count
        };
        let g = &shape.gdn;
        let conv_history = g.conv_kernel - 1;
        let gdn = (0..shape.count(Mixer::Gdn))
            .map(|_| GdnParts {
                state: take(g.value_heads * g.key_dim * g.value_dim),
                window: take((conv_history + rewind_rows) * g.channels()),
                keys: take(rewind_rows * g.keys()),
                values: take(rewind_rows * g.values()),
                decay: take(rewind_rows * g.value_heads),
                strength: take(rewind_rows * g.value_heads),
            })
            .collect();
        let ple_history = shape.ple.as_ref().map_or(0, |p| p.conv_history());
        let ple_layers = shape.ple.as_ref().map_or(0, |p| p.layers.len());
        let ple = (0..ple_layers).map(|_| take((ple_history + rewind_rows) * shape.wide())).collect();
        let hidden = take(if mtp { HIDDEN_ROWS * shape.wide() } else { 0 });
        // A model of QSA layers only keeps a token of a range: an arena has no empty ones.
        RecurrentLayout { gdn, ple, hidden, floats: floats.max(ALIGN), rewind_rows, conv_history, ple_history }
    }

    /// Bytes of the whole state, independent of the context.
    pub fn bytes(&self) -> usize {
        self.floats * size_of::<f32>()
    }

    fn place(&self, part: Part) -> usize {
        match part {
            Part::Window(layer) => layer,
            Part::State(layer) => self.gdn.len() + layer,
            Part::Ple(layer) => 2 * self.gdn.len() + layer,
        }
    }
}

/// What has pending rows of its own; numbers count GDN or PLE layers.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    /// Columns of a GDN layer's window.
    Window(usize),
    /// Rows behind a GDN layer's recurrent matrices.
    State(usize),
    /// Columns of a PLE layer's window.
    Ple(usize),
}

/// Rows that are not folded in yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pending {
    /// Of these rows every part could still do without.
    pub revocable: usize,
    /// Behind every part: equal, unless a step failed between two of them.
    pub parts: Vec<usize>,
}

/// The state of fixed size of one sequence.
pub struct Recurrent {
    layout: RecurrentLayout,
    range: Range,
    pending: Pending,
    /// A part is ahead of the others, and for good.
    torn: bool,
}

/// Mutable parts of one GDN layer. `R` is the layout's `rewind_rows`.
pub struct GdnState<'a> {
    /// Recurrent matrices before the pending rows, `[value_heads, key_dim, value_dim]`.
    pub state: &'a mut [f32],
    /// Columns before the convolution, oldest first, `[history + R, channels]`.
    pub window: &'a mut [f32],
    /// Normalised keys of the pending rows, `[R, key_heads · key_dim]`.
    pub keys: &'a mut [f32],
    /// Values of the pending rows, `[R, value_heads · value_dim]`.
    pub values: &'a mut [f32],
    /// g of the pending rows (log of the decay), `[R, value_heads]`.
    pub decay: &'a mut [f32],
    /// β of the pending rows, `[R, value_heads]`.
    pub strength: &'a mut [f32],
}

impl Recurrent {
    /// A zeroed state.
    pub fn new(arena: &Arena, layout: &RecurrentLayout) -> Result<Recurrent> {
        let mut range = arena.reserve("recurrent state", layout.bytes())?;
        range.ensure(layout.bytes())?;
        let parts = vec![0; 2 * layout.gdn.len() + layout.ple.len()];
        Ok(Recurrent { layout: layout.clone(), range, pending: Pending { revocable: 0, parts }, torn: false })
    }

    /// Rows behind `part` that the next step folds in.
    pub fn pending(&self, part: Part) -> usize {
        self.pending.parts[self.layout.place(part)]
    }
    /// Records that a step of `rows` rows has folded in what was pending behind `part`. Its own rows are pending once it has
    /// run whole ([`Recurrent::settle`]); where there are too many of them for that, the part has left the others behind.
    pub fn fold(&mut self, part: Part, rows: usize) {
        let place = self.layout.place(part);
        self.pending.parts[place] = 0;
        self.pending.revocable = 0;
        self.torn |= rows > self.layout.rewind_rows;
    }
    /// Records that `rows` rows are pending behind every part.
    pub(super) fn settle(&mut self, rows: usize) {
        self.pending.revocable = rows;
        self.pending.parts.fill(rows);
        self.torn = false;
    }
    /// Whether a step failed that had more rows than can be taken back, so that the parts are those of different tokens.
    pub fn is_torn(&self) -> bool {
        self.torn
    }
    /// Rows that can be taken back.
    pub(super) fn revocable(&self) -> usize {
        self.pending.revocable
    }
    pub(super) fn rows_pending(&self) -> &Pending {
        &self.pending
    }
    /// Whether [`Recurrent::load`] takes it.
    pub(super) fn fits(&self, floats: &[f32], pending: &Pending) -> bool {
        floats.len() == self.layout.floats
            && pending.parts.len() == self.pending.parts.len()
            && pending.parts.iter().chain([&pending.revocable]).all(|&rows| rows <= self.layout.rewind_rows)
    }

    /// Where each part lies.
    pub fn layout(&self) -> &RecurrentLayout {
        &self.layout
    }

    /// Addresses of a GDN layer's parts, in the order of [`GdnState`]'s fields; `layer` counts GDN layers.
    pub fn gdn_addresses(&self, layer: usize) -> [u64; 6] {
        let GdnParts { state, window, keys, values, decay, strength } = &self.layout.gdn[layer];
        [state, window, keys, values, decay, strength].map(|part| self.address(part))
    }
    /// Address of the ring of hidden rows; it has none without an MTP head.
    pub fn hidden_address(&self) -> u64 {
        self.address(&self.layout.hidden)
    }
    /// Address of a PLE layer's window; `layer` counts PLE layers.
    pub fn ple_address(&self, layer: usize) -> u64 {
        self.address(&self.layout.ple[layer])
    }
    fn address(&self, part: &Span<usize>) -> u64 {
        self.range.base() + (part.start * size_of::<f32>()) as u64
    }

    /// A copy of all floats, from wherever they lie.
    ///
    /// # Errors
    /// `Device`; the same for the three below.
    pub fn save(&self) -> Result<Vec<f32>> {
        let mut floats = vec![0.0; self.layout.floats];
        self.range.read(0, bytemuck::cast_slice_mut(&mut floats))?;
        Ok(floats)
    }
    /// Takes a copy that was saved and fits.
    pub(super) fn load(&mut self, floats: &[f32], pending: &Pending) -> Result<()> {
        self.range.write(0, cast_slice(floats))?;
        self.take_pending(pending, false);
        Ok(())
    }
    /// Becomes equal to another state of the same layout.
    pub fn copy_from(&mut self, other: &Recurrent) -> Result<()> {
        self.range.copy_from(&other.range, self.layout.bytes())?;
        self.take_pending(&other.pending, other.torn);
        Ok(())
    }
    /// Becomes the state of an empty sequence.
    pub fn clear(&mut self) -> Result<()> {
        self.range.zero(self.layout.bytes())?;
        self.settle(0);
        Ok(())
    }
    fn take_pending(&mut self, pending: &Pending, torn: bool) {
        self.pending.clone_from(pending);
        self.torn = torn;
    }
    /// Floats of the whole state.
    pub fn len(&self) -> usize {
        self.layout.floats
    }
    /// Never: an arena has no empty ranges.
    pub fn is_empty(&self) -> bool {
        self.layout.floats == 0
    }

    /// All floats, for comparisons. Host memory only, like the parts below.
    pub fn floats(&self) -> &[f32] {
        cast_slice(&self.range.bytes()[..self.layout.bytes()])
    }

    /// All floats, to be overwritten. Host memory only.
    pub fn floats_mut(&mut self) -> &mut [f32] {
        let bytes = self.layout.bytes();
        bytemuck::cast_slice_mut(&mut self.range.bytes_mut()[..bytes])
    }

    /// One GDN layer's parts; `layer` counts GDN layers.
    pub fn gdn(&mut self, layer: usize) -> GdnState<'_> {
        let parts = self.layout.gdn[layer].clone();
        let mut rest = Carver { floats: self.floats_mut(), taken: 0 };
        GdnState {
            state: rest.carve(parts.state),
            window: rest.carve(parts.window),
            keys: rest.carve(parts.keys),
            values: rest.carve(parts.values),
            decay: rest.carve(parts.decay),
            strength: rest.carve(parts.strength),
        }
    }

    /// One PLE layer's window, oldest column first, `[history + R, D]`; `layer` counts PLE layers.
    pub fn ple(&mut self, layer: usize) -> &mut [f32] {
        let span = self.layout.ple[layer].clone();
        &mut self.floats_mut()[span]
    }

    /// The ring of hidden rows, `[HIDDEN_ROWS, D]`; empty without an MTP head. The streams before the final mixer of
    /// position p lie in slot p mod [`HIDDEN_ROWS`].
    pub fn hidden(&self) -> &[f32] {
        &self.floats()[self.layout.hidden.clone()]
    }

    /// The ring, to be written.
    pub fn hidden_mut(&mut self) -> &mut [f32] {
        let span = self.layout.hidden.clone();
        &mut self.floats_mut()[span]
    }

    /// Recurrent matrices and the valid columns of the window of a GDN layer, given how many rows are pending.
    pub fn gdn_view(&self, layer: usize, pending: usize, channels: usize) -> (&[f32], &[f32]) {
        let parts = &self.layout.gdn[layer];
        let window = &self.floats()[parts.window.clone()];
        let valid = pending * channels..(pending + self.layout.conv_history) * channels;
        (&self.floats()[parts.state.clone()], &window[valid])
    }

    /// The valid columns of a PLE layer's window.
    pub fn ple_view(&self, layer: usize, pending: usize, wide: usize) -> &[f32] {
        let window = &self.floats()[self.layout.ple[layer].clone()];
        &window[pending * wide..(pending + self.layout.ple_history) * wide]
    }
}

/// Cuts ascending spans out of one slice, so that several can be borrowed mutably at once.
struct Carver<'a> {
    floats: &'a mut [f32],
    taken: usize,
}

impl<'a> Carver<'a> {
    fn carve(&mut self, span: Span<usize>) -> &'a mut [f32] {
        let floats = std::mem::take(&mut self.floats);
        let (head, tail) = floats.split_at_mut(span.end - self.taken);
        self.floats = tail;
        let skip = span.start - self.taken;
        self.taken = span.end;
        &mut head[skip..]
    }
}

/// Slides a window before a step: moves the history in front of `pending` columns' end to the start, appends what
/// fits of the step's columns, and returns how many of them stay revocable.
///
/// `window` is `[history + R, width]`; `columns` is `[rows, width]`. A step of more than R rows leaves only history.
pub fn slide(window: &mut [f32], width: usize, history: usize, pending: usize, columns: &[f32]) -> usize {
    let capacity = window.len() / width;
    let rewind = capacity - history;
    let rows = columns.len() / width;
    window.copy_within(pending * width..(pending + history) * width, 0);
    if rows <= rewind {
        window[history * width..(history + rows) * width].copy_from_slice(columns);
        return rows;
    }
    let kept = rows.min(history);
    window.copy_within(kept * width..history * width, 0);
    window[(history - kept) * width..history * width].copy_from_slice(&columns[(rows - kept) * width..]);
    0
}
