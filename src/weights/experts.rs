//! The routed experts of one MoE layer, whichever way the checkpoint lays them out (spec 5.1, 5.2).
//!
//! Owns: telling the layouts apart and cutting one expert's matrices out of them.
//! Always true: gate and up are `[intermediate, hidden]`, down is `[hidden, intermediate]`; the bytes are the mapped
//! file's, except for the transposed layout, which is turned once into memory of its own.
//! Not here: the router and the shared expert (`model::bind`).

use std::sync::Arc;

use super::checkpoint::{SCALE_BLOCK, block_scales};
use super::{Bytes, Checkpoint, Format, Matrix, Tensor};
use crate::config::MoeShape;
use crate::error::{Error, Result};

/// One routed expert: `down @ (silu(gate @ x) * (up @ x))`.
#[derive(Clone)]
pub struct Expert {
    /// `[intermediate, hidden]`
    pub gate: Matrix,
    /// `[intermediate, hidden]`
    pub up: Matrix,
    /// `[hidden, intermediate]`
    pub down: Matrix,
}

/// Loads all routed experts of a layer.
pub struct Experts;

impl Experts {
    /// The experts under `prefix` (ends in `mlp.`), in order. Accepts packed, transposed packed and one tensor an
    /// expert; FP8 in the first and the last. Errors name the tensor and what was expected.
    pub fn load(checkpoint: &Checkpoint, prefix: &str, moe: &MoeShape, hidden: usize) -> Result<Vec<Expert>> {
        let shape = [moe.experts, moe.intermediate, hidden];
        let packed = format!("{prefix}experts.gate_up_proj");
        if checkpoint.contains(&packed) {
            return load_packed(checkpoint, &packed, &format!("{prefix}experts.down_proj"), shape);
        }
        let separate = |expert: usize| format!("{prefix}experts.{expert}");
        if !checkpoint.contains(&format!("{}.gate_proj.weight", separate(0))) {
            return Err(Error::model(format!(
                "{} has no experts under '{prefix}': expected '{packed}' or '{}.gate_proj.weight'",
                checkpoint.name(),
                separate(0)
            )));
        }
        let [experts, inner, hidden] = shape;
        if checkpoint.contains(&format!("{}.gate_proj.weight", separate(experts))) {
            return Err(Error::model(format!(
                "{} has more experts under '{prefix}' than the {experts} that config.json names",
                checkpoint.name()
            )));
        }
        (0..experts)
            .map(|expert| {
                let matrix = |part: &str, rows: usize, cols: usize| {
                    checkpoint.matrix(&format!("{}.{part}_proj.weight", separate(expert)), rows, cols)
                };
                Ok(Expert {
                    gate: matrix("gate", inner, hidden)?,
                    up: matrix("up", inner, hidden)?,
                    down: matrix("down", hidden, inner)?,
                })
            })
            .collect()
    }

    /// The experts of packed tensors: gate and up `[experts, intermediate, hidden]`, down `[experts, hidden,
    /// intermediate]`, without scales (GGUF, spec 5.4).
    pub fn apart(gate: &Tensor, up: &Tensor, down: &Tensor) -> Result<Vec<Expert>> {
        let expert =
            |i| Ok(Expert { gate: one_of(gate, None, i)?, up: one_of(up, None, i)?, down: one_of(down, None, i)? });
        (0..gate.shape[0]).map(expert).collect()
    }

    /// The same with gate above up in one tensor `[experts, 2 * intermediate, hidden]`.
    pub fn joint(gate_up: &Tensor, down: &Tensor) -> Result<Vec<Expert>> {
        split_joint(gate_up, None, down, None)
    }
}

fn load_packed(checkpoint: &Checkpoint, gate_up: &str, down: &str, shape: [usize; 3]) -> Result<Vec<Expert>> {
    let [experts, inner, hidden] = shape;
    let get = |name: &str| {
        let missing = || Error::model(format!("{} has no tensor '{name}'", checkpoint.name()));
        checkpoint.get(name)?.ok_or_else(missing)
    };
    let (mut first, mut second) = (get(gate_up)?, get(down)?);
    // Both tensors together never fit both layouts: a square gate_up (hidden = 2 * inner) leaves down oblong.
    let hub = first.shape == [experts, 2 * inner, hidden] && second.shape == [experts, hidden, inner];
    let transposed = first.shape == [experts, hidden, 2 * inner] && second.shape == [experts, inner, hidden];
    if !hub && !transposed {
        return Err(Error::model(format!(
            "tensors '{gate_up}' and '{down}' have shapes {:?} and {:?}; config.json asks for {:?} and {:?} (or both \
             with the last two dimensions exchanged)",
            first.shape,
            second.shape,
            [experts, 2 * inner, hidden],
            [experts, hidden, inner]
        )));
    }
    if transposed && !hub {
        (first, second) = (transpose(&first)?, transpose(&second)?);
    }
    let first_scales = packed_scales(checkpoint, &first)?;
    let second_scales = packed_scales(checkpoint, &second)?;
    split_joint(&first, first_scales.as_deref(), &second, second_scales.as_deref())
}

fn split_joint(
    first: &Tensor,
    first_scales: Option<&[f32]>,
    second: &Tensor,
    second_scales: Option<&[f32]>,
) -> Result<Vec<Expert>> {
    let inner = first.shape[1] / 2;
    let expert = |i| {
        let both = one_of(first, first_scales, i)?;
        let outside = || Error::model(format!("tensor '{}' is too short for expert {i}", first.name));
        Ok(Expert {
            gate: both.sub_rows(0..inner).ok_or_else(outside)?,
            up: both.sub_rows(inner..2 * inner).ok_or_else(outside)?,
            down: one_of(second, second_scales, i)?,
        })
    };
    (0..first.shape[0]).map(expert).collect()
}

/// Scales `[experts, rows / 128, cols / 128]` of a packed FP8 tensor of numbers, `None` for other formats. transformers writes
/// `gate_up_proj_scale_inv`; the spelling of separate experts is accepted too.
fn packed_scales(checkpoint: &Checkpoint, packed: &Tensor) -> Result<Option<Vec<f32>>> {
    if packed.format != Format::F8E4m3 {
        return Ok(None);
    }
    packed.format.check_numbers(&packed.name, &packed.data)?;
    let mut name = format!("{}_scale_inv", packed.name);
    let other = format!("{}.weight_scale_inv", packed.name);
    if checkpoint.contains(&other) {
        name = other;
    }
    let blocks = [packed.shape[0], packed.shape[1].div_ceil(SCALE_BLOCK), packed.shape[2].div_ceil(SCALE_BLOCK)];
    Ok(Some(checkpoint.expect(&name, &blocks)?.to_f32()?))
}

/// Matrix `expert` of a packed tensor `[experts, rows, cols]`.
fn one_of(packed: &Tensor, scales: Option<&[f32]>, expert: usize) -> Result<Matrix> {
    let (rows, cols) = (packed.shape[1], packed.shape[2]);
    let bytes = packed.format.row_bytes(rows * cols);
    let name = format!("{}[{expert}]", packed.name);
    let data = packed.data.slice(expert * bytes..(expert + 1) * bytes);
    let data = data.ok_or_else(|| Error::model(format!("tensor '{name}' does not lie inside its file")))?;
    let mut matrix = Tensor { name, format: packed.format, shape: vec![rows, cols], data }.to_matrix()?;
    matrix.scales = scales.map(|all| {
        let blocks = rows.div_ceil(SCALE_BLOCK) * cols.div_ceil(SCALE_BLOCK);
        Arc::new(block_scales(all[expert * blocks..(expert + 1) * blocks].to_vec(), cols))
    });
    Ok(matrix)
}

/// `[experts, a, b]` as `[experts, b, a]` in the same storage format.
fn transpose(packed: &Tensor) -> Result<Tensor> {
    let turned = match packed.format {
        Format::F32 => transpose_elements::<4>(packed),
        Format::F16 | Format::Bf16 => transpose_elements::<2>(packed),
        _ => {
            return Err(Error::model(format!(
                "tensor '{}' is {} in the transposed expert layout; only F32, F16 and BF16 are supported there",
                packed.name, packed.format
            )));
        }
    };
    let shape = vec![packed.shape[0], packed.shape[2], packed.shape[1]];
    Ok(Tensor { name: packed.name.clone(), format: packed.format, shape, data: Bytes::heap(turned) })
}

fn transpose_elements<const SIZE: usize>(packed: &Tensor) -> Vec<u8> {
    /// Side of a tile: 32 rows of up to 32 * 4 bytes stay in the first cache while both sides are walked.
    const TILE: usize = 32;
    let (from, _) = packed.data.as_chunks::<SIZE>();
    let (rows, cols) = (packed.shape[1], packed.shape[2]);
    let mut turned = vec![[0u8; SIZE]; from.len()];
    let size = (rows * cols).max(1);
    for (to, from) in turned.chunks_exact_mut(size).zip(from.chunks_exact(size)) {
        for top in (0..rows).step_by(TILE) {
            for left in (0..cols).step_by(TILE) {
                for c in left..(left + TILE).min(cols) {
                    for r in top..(top + TILE).min(rows) {
                        to[c * rows + r] = from[r * cols + c];
                    }
                }
            }
        }
    }
    turned.into_flattened()
}
