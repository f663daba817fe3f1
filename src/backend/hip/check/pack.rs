//! Packing a sequence's stored keys and values for gathered attention.

use std::ops::Range;

use half::f16;

use super::super::abi::{KvPlanes, QsaPackArgs};
use super::bench::{Bench, Output};
use super::qsa_index::{decode, encode, layout, suffix};
use crate::config::KvMode;
use crate::error::Result;
use crate::state::kv::KvLayout;

/// What a packing kernel writes.
pub struct Packed {
    /// `[tokens, kv_heads · dim]`.
    pub keys: Output,
    /// `[tokens / 4, kv_heads · dim, 4]`.
    pub values: Output,
}

/// Runs the kernel of the layout's mode over a range of one sequence's tokens.
pub fn pack(
    bench: &Bench<'_>,
    l: &KvLayout,
    planes: &[KvPlanes],
    sequence: u32,
    tokens: Range<usize>,
) -> Result<Packed> {
    let width = l.kv_heads() * l.head_dim();
    let padded = tokens.end.next_multiple_of(4);
    let packed = Packed { keys: bench.output::<u16>(padded * width)?, values: bench.output::<u16>(padded * width)? };
    let table = bench.upload(planes)?;
    let arguments = QsaPackArgs {
        k_out: packed.keys.address(),
        v_out: packed.values.address(),
        planes: table.address(),
        sequence,
        first: tokens.start as u32,
        tokens: tokens.end as u32,
        kv_heads: l.kv_heads() as u32,
        dim: l.head_dim() as u32,
        unused: 0,
    };
    let columns = if l.mode() == KvMode::F32 { 8 } else { 16 };
    let threads = (padded - tokens.start) / 4 * (width / columns);
    bench.launch(&format!("qsa_pack_{}", suffix(l.mode())), 2 * threads.div_ceil(64), &arguments)?;
    Ok(packed)
}

/// One F16 for every NaN: its payload is no promise.
const NAN: u16 = 0x7e00;

/// The F16 of a number: what is finite stays finite.
fn rounded(x: f32) -> u16 {
    let nearest = f16::from_f32(x);
    match (x.is_nan(), x.is_finite() && nearest.is_infinite()) {
        (true, _) => NAN,
        (_, true) => f16::MAX.to_bits() | nearest.to_bits() & 0x8000,
        _ => nearest.to_bits(),
    }
}

/// Ranges that begin and end within a sequence, the second of two, in every mode; with numbers beyond F16.
pub fn packs(bench: &mut Bench<'_>) -> Result<()> {
    for mode in [KvMode::F32, KvMode::Fp8, KvMode::Q8] {
        for (kv_heads, dim, tokens) in
            [(2, 256, 0..7), (2, 64, 4..301), (1, 32, 0..18), (3, 32, 8..9), (2, 256, 512..513)]
        {
            bench.seed(60 + dim as u64);
            case(bench, mode, kv_heads, dim, tokens)?;
        }
    }
    Ok(())
}

fn case(bench: &mut Bench<'_>, mode: KvMode, kv_heads: usize, dim: usize, tokens: Range<usize>) -> Result<()> {
    let l = layout(mode, kv_heads, kv_heads, dim, 32)?;
    let width = kv_heads * dim;
    let mut numbers = bench.signed(2 * tokens.end * width);
    // Subnormals of F16, its largest number and its surroundings, what no F16 is near, and no numbers, each in a head
    // of its own: a scaled format makes a whole head NaN.
    let strange = [1e-6, 65504.0, 65519.9, -65520.0, 3e38, -1e6, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let heads = numbers.len() / dim;
    for (i, x) in strange.into_iter().enumerate() {
        numbers[(heads - 1 - 2 * i % heads) * dim + 5 * i % dim] = x;
    }
    let (keys, values) = numbers.split_at(tokens.end * width);
    let store = |x: &[f32]| x.chunks(width).flat_map(|row| encode(&l, row)).collect::<Vec<u8>>();
    let (keys, values) = (store(keys), store(values));
    let (k, v) = (bench.upload(&keys)?, bench.upload(&values)?);
    let planes = [KvPlanes::default(), KvPlanes { keys: k.address(), values: v.address(), raw: 0, blocks: 0 }];
    let packed = pack(bench, &l, &planes, 1, tokens.clone())?;
    let row_bytes = keys.len() / tokens.end;
    let padded = tokens.end.next_multiple_of(4);
    let bits = |bytes: &[u8]| -> Vec<u16> {
        let rows = bytes.chunks(row_bytes).flat_map(|row| decode(&l, row)).map(rounded);
        rows.chain(std::iter::repeat(0)).take(padded * width).collect()
    };
    let (keys, values) = (bits(&keys), bits(&values));
    let transposed: Vec<u16> =
        (0..padded * width).map(|i| values[(i / (4 * width) * 4 + i % 4) * width + i % (4 * width) / 4]).collect();
    let kernel = format!("qsa_pack_{}", suffix(mode));
    for (name, output, mut want) in [("keys", packed.keys, keys), ("values", packed.values, transposed)] {
        want[..tokens.start * width].fill(u16::MAX);
        let mut got = bench.read::<u16>(&output)?;
        for bits in &mut got[tokens.start * width..] {
            *bits = if f16::from_bits(*bits).is_nan() { NAN } else { *bits };
        }
        bench.exact(&kernel, format!("tokens {tokens:?}, {kv_heads} heads of {dim}, {name}"), &got, &want);
    }
    Ok(())
}
