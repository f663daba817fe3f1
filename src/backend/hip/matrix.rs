//! Which kernel multiplies a matrix, and with how many workgroups.
//!
//! Owns: the names of the matrix kernels by format and row count, their grids, how waves share a product, how blocks are
//! parted for them.
//! Always true: a choice depends on format and shape alone. How a product's sum is cut depends on the matrix and never
//! on the number of rows, so that a row's bits are the same in any company of up to [`GEMV_ROWS`].
//! Not here: launching, memory; what the kernels compute (`hip/gemv.h`, `hip/gemm.h`, `hip/embed.hip`).

use std::ops::Range;

use crate::weights::Format;

/// The most rows that the GEMV kernels take.
pub const GEMV_ROWS: usize = 8;
/// The most matrices of a GEMV (GEMV_PARTS of hip/abi/dense.h).
pub const GEMV_PARTS: usize = 5;
/// Columns of the hyper-connections' gate that a workgroup owns.
pub const GATE_COLUMNS: usize = 8;
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

/// How the blocks of a format are parted for the kernels (hip/formats_block32.h): what a block begins with goes to a plane
/// of its own, behind it the codes. `None`: as they lie in a file.
pub fn planes(format: Format) -> Option<Planes> {
    let head = match format {
        Format::Q8_0 | Format::Q4_0 | Format::Iq4Nl => 2,
        Format::Q4_1 => 4,
        Format::Q5_0 => 6,
        Format::Q5_1 => 8,
        _ => return None,
    };
    Some(Planes { block: format.block_bytes(), head })
}

/// Bytes of a block, and of its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planes {
    /// Both parts.
    pub block: usize,
    /// The first part.
    pub head: usize,
}

impl Planes {
    /// The codes of blocks.
    pub fn codes<'a>(&self, bytes: &'a [u8]) -> Strided<'a> {
        Strided { bytes, stride: self.block, part: self.head..self.block }
    }
    /// The heads of blocks.
    pub fn heads<'a>(&self, bytes: &'a [u8]) -> Strided<'a> {
        Strided { bytes, stride: self.block, part: 0..self.head }
    }
}

/// A part of each of several blocks.
#[derive(Debug, Clone)]
pub struct Strided<'a> {
    bytes: &'a [u8],
    stride: usize,
    part: Range<usize>,
}

impl<'a> Strided<'a> {
    /// All bytes.
    pub fn whole(bytes: &'a [u8]) -> Strided<'a> {
        let stride = bytes.len().max(1);
        Strided { bytes, stride, part: 0..stride }
    }
    /// Bytes of all parts.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.stride * self.part.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies the parts' bytes from `from` on; `to` must not be longer than what is left.
    pub fn copy(&self, from: usize, to: &mut [u8]) {
        let length = self.part.len();
        let (mut block, mut skip, mut to) = (from / length, from % length, to);
        while !to.is_empty() {
            let part = &self.bytes[block * self.stride..][self.part.clone()][skip..];
            if skip == 0 && to.len() >= length && length <= 32 {
                // Whole short parts, as many as fit: copies whose length the compiler knows.
                let count = to.len() / length;
                let (now, rest) = to.split_at_mut(count * length);
                let blocks = self.bytes[block * self.stride..].chunks_exact(self.stride).map(|b| &b[self.part.clone()]);
                match length {
                    2 => each::<2>(now, blocks),
                    16 => each::<16>(now, blocks),
                    32 => each::<32>(now, blocks),
                    _ => now.chunks_exact_mut(length).zip(blocks).for_each(|(to, from)| to.copy_from_slice(from)),
                }
                (block, to) = (block + count, rest);
                continue;
            }
            let count = part.len().min(to.len());
            let (now, rest) = to.split_at_mut(count);
            now.copy_from_slice(&part[..count]);
            (block, skip, to) = (block + 1, 0, rest);
        }
    }
}

fn each<'a, const N: usize>(to: &mut [u8], parts: impl Iterator<Item = &'a [u8]>) {
    for (to, from) in to.as_chunks_mut::<N>().0.iter_mut().zip(parts) {
        if let Some(from) = from.first_chunk::<N>() {
            *to = *from;
        }
    }
}

/// Elements that a lane of a GEMV loads at a time (GROUP of hip/formats*.h).
fn group(format: Format) -> usize {
    match format {
        Format::Q8_0 => 16,
        _ => kernels(format).map_or(1, |(_, multiple)| multiple.min(32)),
    }
}

/// The GEMV for `rows` rows (1 to [`GEMV_ROWS`]). `None` if there is none.
pub fn gemv(format: Format, rows: usize) -> Option<String> {
    let (name, _) = kernels(format)?;
    (1..=GEMV_ROWS).contains(&rows).then(|| format!("gemv_{name}_r{}", rows.next_power_of_two()))
}

/// Workgroups of a matrix in a GEMV, and its `GemvPart::split`. `None` if its rows do not suit the kernels.
pub fn gemv_grid(format: Format, outputs: usize, inputs: usize) -> Option<(usize, u32)> {
    let (_, multiple) = kernels(format)?;
    let split = gemv_split(format, outputs, inputs);
    inputs.is_multiple_of(multiple).then(|| (outputs.div_ceil(GEMV_OUTPUTS * (GEMV_WAVES >> split)), split))
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
        let of = |outputs, inputs| gemv_grid(Format::Bf16, outputs, inputs);
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
    fn parts_of_blocks_are_the_same_however_they_are_cut() {
        let bytes: Vec<u8> = (0..34 * 9).map(|i| i as u8).collect();
        let planes = planes(Format::Q8_0).unwrap();
        for strided in [planes.codes(&bytes), planes.heads(&bytes), Strided::whole(&bytes)] {
            let want: Vec<u8> =
                bytes.chunks(strided.stride).flat_map(|block| &block[strided.part.clone()]).copied().collect();
            assert_eq!(strided.len(), want.len());
            for cut in 0..want.len() {
                let mut got = vec![0; want.len()];
                let (front, back) = got.split_at_mut(cut);
                strided.copy(0, front);
                strided.copy(cut, back);
                assert_eq!(got, want, "cut at {cut}");
            }
        }
    }

    #[test]
    fn rows_choose_the_kernel_alone() {
        assert_eq!(gemv(Format::Q4K, 1).as_deref(), Some("gemv_q4_k_r1"));
        assert_eq!(gemv(Format::Q4K, 5).as_deref(), Some("gemv_q4_k_r8"));
        assert_eq!(gemv(Format::Q4K, 9), None);
    }
}
