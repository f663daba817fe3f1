//! Which kernel multiplies a matrix, and with how many workgroups.
//!
//! Owns: the names of the matrix kernels by format and row count, their grids, how waves share a product.
//! Always true: a choice depends on format and shape alone. How a product's sum is cut depends on the matrix and never
//! on the number of rows, so that a row's bits are the same in any company of up to [`GEMV_ROWS`].
//! Not here: launching, memory; what the kernels compute (`hip/gemv.h`, `hip/gemm.h`, `hip/embed.hip`).

use crate::weights::Format;

/// The most rows that the GEMV kernels take.
pub const GEMV_ROWS: usize = 8;
/// Rows of the activations that `gemm_rows` writes are this much or a multiple of it long.
pub const GEMM_DEPTH: usize = 64;
/// Outputs that a wave, or the waves that share them, own.
const GEMV_OUTPUTS: usize = 4;
/// Waves of a workgroup.
const GEMV_WAVES: usize = 8;
/// Waves that fill the larger of the two devices: 128 SIMDs (HARDWARE.md) times 12.
const FULL: usize = 1536;
/// Workgroups of eight waves that fill the larger of the two devices: two for each of 64 compute units.
const GEMM_FULL: usize = 128;

/// What the names of a format's kernels end in, and the number of elements that a row must be a multiple of. `None` if
/// there are no kernels for it.
pub fn kernels(format: Format) -> Option<(&'static str, usize)> {
    Some(match format {
        Format::F32 => ("f32", 8),
        Format::F16 => ("f16", 8),
        Format::Bf16 => ("bf16", 8),
        Format::F8E4m3 => ("fp8", 16),
        Format::Q8_0 => ("q8_0", 32),
        Format::Q4_0 => ("q4_0", 32),
        Format::Q4_1 => ("q4_1", 32),
        Format::Q5_0 => ("q5_0", 32),
        Format::Q5_1 => ("q5_1", 32),
        Format::Q2K => ("q2_k", 256),
        Format::Q3K => ("q3_k", 256),
        Format::Q4K => ("q4_k", 256),
        Format::Q5K => ("q5_k", 256),
        Format::Q6K => ("q6_k", 256),
        Format::Iq4Nl => ("iq4_nl", 32),
        Format::Iq4Xs => ("iq4_xs", 256),
        Format::I64 => return None,
    })
}

/// Elements that a lane of a GEMV loads at a time.
fn group(format: Format) -> usize {
    kernels(format).map_or(1, |(_, multiple)| multiple.min(32))
}

/// A launch of a GEMV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gemv {
    /// Name of the kernel.
    pub kernel: String,
    /// Workgroups.
    pub grid: usize,
    /// `GemvArgs::split`.
    pub split: u32,
}

/// The GEMV for `rows` rows (1 to [`GEMV_ROWS`]) of a matrix. `None` if there is none.
pub fn gemv(format: Format, rows: usize, outputs: usize, inputs: usize) -> Option<Gemv> {
    let (name, multiple) = kernels(format)?;
    if !(1..=GEMV_ROWS).contains(&rows) || !inputs.is_multiple_of(multiple) {
        return None;
    }
    let split = gemv_split(format, outputs, inputs);
    let grid = outputs.div_ceil(GEMV_OUTPUTS * (GEMV_WAVES >> split));
    Some(Gemv { kernel: format!("gemv_{name}_r{}", rows.next_power_of_two()), grid, split })
}

/// Doubles the waves of an output until the device is full or a lane would be left without work.
fn gemv_split(format: Format, outputs: usize, inputs: usize) -> u32 {
    let (waves, groups) = (outputs.div_ceil(GEMV_OUTPUTS), inputs / group(format));
    (0..3).find(|&split| waves << split >= FULL || groups <= 32 << split).unwrap_or(3)
}

/// A launch of a GEMM, after `gemm_rows`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gemm {
    /// Name of the kernel.
    pub kernel: String,
    /// Workgroups.
    pub grid: usize,
}

/// The GEMM for `rows` rows of a matrix. `None` if there is none.
pub fn gemm(format: Format, rows: usize, outputs: usize, inputs: usize) -> Option<Gemm> {
    let (name, multiple) = kernels(format)?;
    if rows == 0 || !inputs.is_multiple_of(multiple) {
        return None;
    }
    let tiles = |size: usize| rows.div_ceil(size) * outputs.div_ceil(size);
    // Large tiles load a quarter less for each product; they pay as soon as they fill the device, and their padding of
    // the rows is no larger.
    let large = tiles(128) >= GEMM_FULL && rows.div_ceil(128) * 2 == rows.div_ceil(64);
    let size = if large { 128 } else { 64 };
    Some(Gemm { kernel: format!("gemm_{name}_{size}"), grid: tiles(size) })
}

/// Elements of a row that `gemm_rows` writes.
pub fn gemm_stride(inputs: usize) -> usize {
    inputs.next_multiple_of(GEMM_DEPTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_outputs_of_many_inputs_share_a_workgroup_and_the_vocabulary_does_not() {
        let of = |outputs, inputs| gemv(Format::Bf16, 1, outputs, inputs).map(|g| (g.grid, g.split));
        assert_eq!(of(320, 10240), Some((80, 3)));
        assert_eq!(of(248_320, 2560), Some((7760, 0)));
        assert_eq!(of(4, 8), Some((1, 0)));
        assert_eq!(of(4, 12), None);
    }

    #[test]
    fn many_rows_take_large_tiles_and_few_rows_or_outputs_small_ones() {
        let of = |rows, outputs| gemm(Format::Bf16, rows, outputs, 2560).map(|g| (g.kernel, g.grid));
        assert_eq!(of(512, 10240), Some(("gemm_bf16_128".into(), 320)));
        assert_eq!(of(16, 2560), Some(("gemm_bf16_64".into(), 40)));
        assert_eq!(of(512, 320), Some(("gemm_bf16_64".into(), 40)));
        assert_eq!(of(0, 320), None);
    }

    #[test]
    fn the_split_does_not_depend_on_the_rows() {
        for rows in 1..=GEMV_ROWS {
            let one = gemv(Format::Q4K, rows, 2560, 2560).unwrap();
            assert_eq!((one.split, one.kernel), (2, format!("gemv_q4_k_r{}", rows.next_power_of_two())));
        }
    }
}
