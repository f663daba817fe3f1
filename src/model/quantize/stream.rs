//! Values of an output in its type, piece by piece.
//!
//! Owns: decode, permute, encode; and what a value must be to be stored.
//! Always true: a piece is some megabytes; bytes are copied where type and order stay the same, so a file rewritten in
//! its own types keeps its bits; pages of the source are given back as soon as they were used.
//! Not here: order and names (`plan`), types (`recipe`).

use rayon::prelude::*;

use super::plan::{Content, Output};
use crate::error::{Error, Result};
use crate::weights::{Format, Matrix};

/// Values of a piece: 16 MB as F32.
const PIECE: usize = 4 << 20;
/// The largest F16.
const F16_MAX: f32 = 65504.0;

/// Calls `sink` with the encoded bytes of `output`, in order.
///
/// # Errors
/// `Numeric`, naming the tensor, if a value is not a finite number in `format`; what `sink` returns.
pub fn encode(output: &Output, format: Format, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let cols = output.shape.last().copied().unwrap_or(1).max(1);
    let piece = (PIECE / cols).max(1);
    let out = Encoder { name: &output.name, format, cols };
    match &output.content {
        Content::Values(values) => {
            let rows = values.len() / cols;
            out.rows(0..rows, &|r, row: &mut [f32]| row.copy_from_slice(&values[r * cols..(r + 1) * cols]), sink)
        }
        Content::Stack(matrices) => matrices.iter().try_for_each(|matrix| {
            pieces(matrix.rows, piece, |rows| match matrix.format == format && matrix.scales.is_none() {
                true => {
                    let row = format.row_bytes(cols);
                    sink(&matrix.data[rows.start * row..rows.end * row])
                }
                false => out.rows(rows, &|r, row: &mut [f32]| matrix.decode_row(r, row), sink),
            })?;
            release(matrix);
            Ok(())
        }),
        Content::Rows(matrix, order) => {
            pieces(order.len(), piece, |rows| match matrix.format == format && matrix.scales.is_none() {
                true => sink(&order[rows].iter().flat_map(|&r| matrix.row(r)).copied().collect::<Vec<u8>>()),
                false => out.rows(rows, &|r, row: &mut [f32]| matrix.decode_row(order[r], row), sink),
            })?;
            release(matrix);
            Ok(())
        }
        Content::Columns(matrix, order) => {
            let fill = |r: usize, row: &mut [f32]| {
                let mut stored = vec![0.0; cols];
                matrix.decode_row(r, &mut stored);
                row.iter_mut().zip(order).for_each(|(to, &from)| *to = stored[from]);
            };
            pieces(matrix.rows, piece, |rows| out.rows(rows, &fill, sink))?;
            release(matrix);
            Ok(())
        }
        Content::Beside(left, right) => {
            let fill = |r: usize, row: &mut [f32]| {
                let (a, b) = row.split_at_mut(left.cols);
                left.decode_row(r, a);
                right.decode_row(r, b);
            };
            // The halves of a joined matrix were copied by whole blocks, so their bytes can be joined again.
            let same = |matrix: &Matrix| matrix.format == format && matrix.scales.is_none();
            let whole = format.row_bytes(left.cols) + format.row_bytes(right.cols) == format.row_bytes(cols);
            pieces(left.rows, piece, |rows| match same(left) && same(right) && whole {
                true => {
                    let bytes = rows.flat_map(|r| left.row(r).iter().chain(right.row(r))).copied();
                    sink(&bytes.collect::<Vec<u8>>())
                }
                false => out.rows(rows, &fill, sink),
            })
        }
        Content::Table(table) => pieces(table.rows() as usize, piece, |rows| {
            // FP8 is not a GGUF type, so equal formats have no scale.
            let stored = |r: usize| table.stored_row(r as u64);
            if table.format() == format {
                let mut bytes = Vec::with_capacity(rows.len() * format.row_bytes(cols));
                for r in rows {
                    bytes.extend_from_slice(stored(r)?);
                }
                sink(&bytes)?;
            } else {
                // Rows below `rows()` are inside; the check is made once more for its error.
                let fill = |r: usize, row: &mut [f32]| match stored(r) {
                    Ok(bytes) => table.decode(bytes, row),
                    Err(_) => row.fill(f32::NAN),
                };
                out.rows(rows, &fill, sink)?;
            }
            table.release();
            Ok(())
        }),
    }
}

fn pieces(rows: usize, piece: usize, mut each: impl FnMut(std::ops::Range<usize>) -> Result<()>) -> Result<()> {
    (0..rows).step_by(piece).try_for_each(|first| each(first..(first + piece).min(rows)))
}

fn release(matrix: &Matrix) {
    matrix.data.release();
}

struct Encoder<'a> {
    name: &'a str,
    format: Format,
    cols: usize,
}

impl Encoder<'_> {
    /// Encodes rows that `fill` gives, in parallel.
    fn rows(
        &self,
        rows: std::ops::Range<usize>,
        fill: &(dyn Fn(usize, &mut [f32]) + Sync),
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let first = rows.start;
        let size = self.format.row_bytes(self.cols).max(1);
        let mut bytes = vec![0u8; rows.len() * size];
        let each = |(row, to): (usize, &mut [u8])| {
            let mut values = vec![0.0; self.cols];
            fill(first + row, &mut values);
            let limit = if self.format == Format::F16 { F16_MAX } else { f32::MAX };
            if let Some(value) = values.iter().find(|value| value.is_nan() || value.abs() > limit) {
                return Err(Error::Numeric(format!(
                    "tensor '{}' holds {value} in row {}, which {} cannot store",
                    self.name,
                    first + row,
                    self.format
                )));
            }
            let mut encoded = Vec::with_capacity(size);
            self.format.encode_row(&values, &mut encoded);
            to.copy_from_slice(&encoded);
            Ok(())
        };
        bytes.par_chunks_mut(size).enumerate().try_for_each(each)?;
        sink(&bytes)
    }
}
