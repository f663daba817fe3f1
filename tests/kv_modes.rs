//! The three KV modes: sizes, exact encodings, error bounds, and what a fork shares.

use half::{bf16, f16};
use hipfire::arena::{Arena, KvBackend, Limits};
use hipfire::config::{AttentionShape, IndexerShape, KvMode};
use hipfire::e4m3::{E4M3, encode_e4m3};
use hipfire::error::Error;
use hipfire::state::kv::codec;
use hipfire::state::kv::{KvCache, KvLayout, PLANES, Plane};
use proptest::prelude::*;

const MODES: [KvMode; 3] = [KvMode::F32, KvMode::Q8, KvMode::Fp8];

fn layout(mode: KvMode, kv_heads: usize, head_dim: usize, index_dim: usize, ratio: usize) -> KvLayout {
    let attention = AttentionShape { query_heads: kv_heads, kv_heads, head_dim };
    let indexer = IndexerShape { heads: 1, head_dim: index_dim, budget: 8 * ratio, ratio };
    KvLayout::new(mode, attention, indexer).unwrap()
}

fn cache(mode: KvMode, tokens: usize) -> KvCache {
    KvCache::new(&Arena::host(KvBackend::Vmm), "layer 3", layout(mode, 2, 64, 16, 4), tokens).unwrap()
}

/// Numbers in (-1, 1), the same on every run.
fn noise(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

#[test]
fn a_token_takes_the_published_bytes_at_the_released_geometry() {
    for (mode, bytes) in [(KvMode::F32, 4736), (KvMode::Q8, 1408), (KvMode::Fp8, 1352)] {
        let layout = layout(mode, 2, 256, 128, 4);
        assert_eq!(layout.bytes_per_token(), bytes, "{mode}");
        let whole: usize = PLANES.iter().map(|&p| layout.rows(p, 262_144) * layout.row_bytes(p)).sum();
        assert_eq!(whole, bytes * 262_144, "{mode}");
    }
}

#[test]
fn heads_that_do_not_split_into_q8_blocks_are_refused_at_load_and_other_modes_offered() {
    let attention = AttentionShape { query_heads: 4, kv_heads: 2, head_dim: 48 };
    let indexer = IndexerShape { heads: 1, head_dim: 16, budget: 8, ratio: 4 };
    let error = KvLayout::new(KvMode::Q8, attention, indexer).unwrap_err();
    assert!(matches!(&error, Error::Model(text) if text.contains("48") && text.contains("--kv-mode")), "{error}");
    KvLayout::new(KvMode::Fp8, attention, indexer).unwrap();
    KvLayout::new(KvMode::F32, attention, IndexerShape { ratio: 0, ..indexer }).unwrap_err();
}

/// E4M3 as its definition reads: sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinity.
fn e4m3(code: u8) -> f64 {
    let (sign, exponent, mantissa) = (code >> 7, i32::from(code >> 3 & 15), f64::from(code & 7));
    let magnitude = match (exponent, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa / 8.0 * 2f64.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

#[test]
fn every_e4m3_code_decodes_to_its_definition_and_encodes_back_to_itself() {
    for code in 0..=255u8 {
        let value = E4M3[usize::from(code)];
        if code & 0x7f == 0x7f {
            assert!(value.is_nan());
            assert_eq!(encode_e4m3(f32::from_bits(f32::NAN.to_bits() | u32::from(code & 0x80) << 24)), code);
        } else {
            assert_eq!(f64::from(value).to_bits(), e4m3(code).to_bits(), "{code:#x}");
            assert_eq!(encode_e4m3(value), code, "{code:#x} = {value}");
        }
    }
}

#[test]
fn e4m3_rounds_to_nearest_with_ties_to_even_and_saturates() {
    for code in 0..0x7eu8 {
        let (low, high) = (E4M3[usize::from(code)], E4M3[usize::from(code + 1)]);
        let middle = (low + high) / 2.0;
        let even = if code % 2 == 0 { code } else { code + 1 };
        for (x, expected) in [(middle.next_down(), code), (middle, even), (middle.next_up(), code + 1)] {
            assert_eq!(encode_e4m3(x), expected, "{x} between {low} and {high}");
            assert_eq!(encode_e4m3(-x), expected | 0x80, "{} between {} and {}", -x, -high, -low);
        }
    }
    for x in [448.0, 463.9, 464.0, 1e30, f32::MAX, f32::INFINITY] {
        assert_eq!((encode_e4m3(x), encode_e4m3(-x)), (0x7e, 0xfe), "{x}");
    }
    for x in [0.0, 1e-45, f32::MIN_POSITIVE, 2f32.powi(-10)] {
        assert_eq!((encode_e4m3(x), encode_e4m3(-x)), (0, 0x80), "{x}");
    }
}

#[test]
fn half_and_bfloat_rounding_is_that_of_ieee_754() {
    // Ties to even on the last kept bit: 1 + 2^-11 and 1 + 3 * 2^-11 in f16; 1 + 2^-8 and 1 + 3 * 2^-8 in bf16.
    assert_eq!(f16::from_f32(1.0 + 2f32.powi(-11)).to_bits(), 0x3c00);
    assert_eq!(f16::from_f32(1.0 + 3.0 * 2f32.powi(-11)).to_bits(), 0x3c02);
    let mut bytes = [0; 10];
    let values = [1.0 + 2f32.powi(-8), 1.0 + 3.0 * 2f32.powi(-8), -0.0, f32::INFINITY, f32::NAN];
    codec::encode_bf16(&values, &mut bytes);
    let mut back = [0f32; 5];
    codec::decode_bf16(&bytes, &mut back);
    assert_eq!(back.map(f32::to_bits)[..4], [0x3f80_0000, 0x3f82_0000, 0x8000_0000, 0x7f80_0000]);
    assert!(back[4].is_nan());
    for bits in 0..=u16::MAX {
        let mut out = [0f32];
        codec::decode_bf16(&bits.to_le_bytes(), &mut out);
        let expected = bf16::from_bits(bits).to_f32();
        assert!(out[0].to_bits() == expected.to_bits() || (out[0].is_nan() && expected.is_nan()), "{bits:#x}");
    }
}

fn fp8(head: &[f32]) -> (f32, Vec<u8>, Vec<f32>) {
    let (mut codes, mut out) = (vec![0; head.len()], vec![f32::MAX; head.len()]);
    let scale = codec::encode_fp8(head, &mut codes);
    codec::decode_fp8(&codes, scale, &mut out);
    (scale.to_f32(), codes, out)
}

fn q8(block: &[f32]) -> (f32, Vec<f32>) {
    let (mut codes, mut scales) = (vec![0; block.len()], vec![0; block.len() / 16]);
    let mut out = vec![f32::MAX; block.len()];
    codec::encode_q8(block, &mut codes, &mut scales);
    codec::decode_q8(&codes, &scales, &mut out);
    (f16::from_le_bytes([scales[0], scales[1]]).to_f32(), out)
}

/// A row whose values spread over many magnitudes around `2^exponent`.
fn row(length: usize, exponent: i32, seed: u64) -> Vec<f32> {
    let mut next = noise(seed);
    (0..length).map(|_| (next() * 2f32.powf(next() * 6.0)) * 2f32.powi(exponent)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fp8_stays_within_half_a_step_of_e4m3(exponent in -40i32..17, seed in any::<u64>()) {
        let head = row(64, exponent, seed);
        let most = head.iter().fold(0f32, |m, x| m.max(x.abs()));
        let (scale, codes, out) = fp8(&head);
        // The smallest f16 that is not below amax / 448.
        let needed = most / 448.0;
        prop_assert!(scale >= needed);
        prop_assert!(f16::from_bits(f16::from_f32(scale).to_bits() - 1).to_f32() < needed);
        for ((&x, &y), &code) in head.iter().zip(&out).zip(&codes) {
            let (x, y, scale) = (f64::from(x), f64::from(y), f64::from(scale));
            let bound = (x.abs() * 2f64.powi(-4)).max(scale * 2f64.powi(-10)) * (1.0 + 2f64.powi(-20));
            prop_assert!((x - y).abs() <= bound, "{x} became {y}, scale {scale}");
            // Nearest: neither neighbour of the code is nearer, but for the rounding of the division.
            for other in [code.wrapping_sub(1), code.wrapping_add(1)] {
                if other & 0x80 == code & 0x80 && other & 0x7f != 0x7f {
                    let there = (x - e4m3(other) * scale).abs();
                    prop_assert!((x - y).abs() <= there + x.abs() * 2f64.powi(-22));
                }
            }
        }
    }

    #[test]
    fn q8_stays_within_half_a_step_of_its_scale(exponent in -40i32..17, seed in any::<u64>()) {
        let block = row(32, exponent, seed);
        let most = block.iter().fold(0f32, |m, x| m.max(x.abs()));
        let (d, out) = q8(&block);
        prop_assert_eq!(d.to_bits(), f16::from_f32(most / 127.0).to_f32().to_bits());
        let coarse = if d < 2f32.powi(-14) { 127.0 * 2f64.powi(-25) } else { 0.0 };
        let bound = f64::from(d) / 2.0 * (1.0 + 2f64.powi(-16)) + coarse;
        let halves_away = block.iter().map(|&x| if d == 0.0 { 0.0 } else { (x / d).round().clamp(-127.0, 127.0) * d });
        prop_assert!(out.iter().copied().eq(halves_away));
        for (&x, &y) in block.iter().zip(&out) {
            prop_assert!((f64::from(x) - f64::from(y)).abs() <= bound, "{x} became {y}, d {d}");
        }
    }

    #[test]
    fn bf16_stays_within_half_a_step(bits in 0x0080_0000u32..0x7f00_0000) {
        let x = f32::from_bits(bits);
        let (mut bytes, mut out) = ([0; 2], [0f32]);
        codec::encode_bf16(&[x], &mut bytes);
        codec::decode_bf16(&bytes, &mut out);
        prop_assert!((f64::from(out[0]) - f64::from(x)).abs() <= f64::from(x) * 2f64.powi(-8));
    }
}

#[test]
fn q8_rounds_halves_away_from_zero() {
    let mut block = [0f32; 32];
    block[..5].copy_from_slice(&[127.0, 2.5, -2.5, 0.5, -0.49]);
    let (d, out) = q8(&block);
    assert_eq!((d, &out[..6]), (1.0, &[127.0, 3.0, -3.0, 1.0, 0.0, 0.0][..]));
}

#[test]
fn rows_at_the_edges_of_f16_decode_as_documented() {
    // Zeros, of either sign.
    assert_eq!(fp8(&[0.0; 64]).2, [0.0; 64]);
    assert_eq!(fp8(&[-0.0; 64]).0, 0.0);
    assert_eq!(q8(&[0.0; 32]).1, [0.0; 32]);
    // Smaller than any scale: fp8 takes the smallest f16, q8 a zero block.
    let tiny = [1e-9f32; 32];
    let (scale, _, out) = fp8(&tiny);
    assert_eq!(scale, 2f32.powi(-24));
    assert!(out.iter().all(|y| (y - 1e-9).abs() <= 2f32.powi(-34)));
    assert_eq!(q8(&tiny).1, [0.0; 32]);
    // Larger than any scale: both saturate at their largest number, finite.
    let huge = [f32::MAX, -f32::MAX, 1.0].repeat(32);
    let (scale, _, out) = fp8(&huge);
    assert_eq!((scale, out[0], out[1]), (65504.0, 448.0 * 65504.0, -448.0 * 65504.0));
    let (d, out) = q8(&huge);
    assert_eq!((d, out[0], out[1]), (65504.0, 127.0 * 65504.0, -127.0 * 65504.0));
}

#[test]
fn what_is_not_finite_is_seen_after_decoding() {
    let mut values = [1.0f32; 64];
    values[40] = f32::NAN;
    assert!(fp8(&values).2.iter().all(|y| y.is_nan()));
    assert!(fp8(&[f32::NAN; 32]).2.iter().all(|y| y.is_nan()));
    let out = q8(&values).1;
    assert!((out[0] - 1.0).abs() < 0.01 && out[32..].iter().all(|y| y.is_nan()));
    values[40] = f32::NEG_INFINITY;
    assert!(fp8(&values).2.iter().chain(&q8(&values).1[32..]).all(|y| y.is_nan()));
}

/// Fills `tokens` rows and every complete block.
fn fill(cache: &mut KvCache, tokens: usize, seed: u64) {
    let mut next = noise(seed);
    let mut values = |n: usize| -> Vec<f32> { (0..n).map(|_| next()).collect() };
    let KvLayoutSizes { row, index, ratio } = sizes(cache);
    cache.ensure(tokens).unwrap();
    for token in 0..tokens {
        cache.write(token, &values(row), &values(row));
        cache.write_index(token, &values(index));
    }
    (0..tokens / ratio).for_each(|block| cache.write_block(block, &values(index)));
}

struct KvLayoutSizes {
    row: usize,
    index: usize,
    ratio: usize,
}

fn sizes(cache: &KvCache) -> KvLayoutSizes {
    let layout = cache.layout();
    KvLayoutSizes { row: layout.kv_heads() * layout.head_dim(), index: layout.index_dim(), ratio: layout.ratio() }
}

#[test]
fn every_plane_gives_back_what_was_written_within_its_bound() {
    for mode in MODES {
        let mut cache = cache(mode, 40);
        cache.ensure(9).unwrap();
        let mut next = noise(7);
        let rows: Vec<Vec<f32>> = (0..9 * 4).map(|_| (0..128).map(|_| next()).collect()).collect();
        for token in 0..9 {
            cache.write(token, &rows[4 * token], &rows[4 * token + 1]);
            cache.write_index(token, &rows[4 * token + 2][..16]);
        }
        cache.write_block(0, &rows[3][..16]);
        cache.write_block(1, &rows[7][..16]);
        // Values are below 1: half a step of E4M3, of 1/127 (f16), of BF16.
        let (kv, index) = match mode {
            KvMode::F32 => (0.0, 0.0),
            KvMode::Q8 => (0.5 / 127.0 * (1.0 + 2f32.powi(-10)), 2f32.powi(-8)),
            KvMode::Fp8 => (2f32.powi(-4) * (1.0 + 2f32.powi(-20)), 2f32.powi(-8)),
        };
        let near = |a: &[f32], b: &[f32], bound: f32| {
            assert_eq!(a.len(), b.len());
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= bound), "{mode}: {a:?} {b:?}");
        };
        let (mut head, mut key) = ([0f32; 64], [0f32; 16]);
        for token in 0..9 {
            for h in 0..2 {
                cache.key(token, h, &mut head);
                near(&head, &rows[4 * token][h * 64..][..64], kv);
                let mut scratch = [9f32; 64];
                assert_eq!(cache.keys().get(token, h, &mut scratch), head);
                cache.value(token, h, &mut head);
                near(&head, &rows[4 * token + 1][h * 64..][..64], kv);
                assert_eq!(cache.values().get(token, h, &mut scratch), head);
            }
            cache.raw_index(token, &mut key);
            near(&key, &rows[4 * token + 2][..16], index);
        }
        let mut both = [0f32; 32];
        cache.block_keys(0..2, &mut both);
        near(&both[..16], &rows[3][..16], index);
        near(&both[16..], &rows[7][..16], index);
        cache.block_key(1, &mut key);
        assert_eq!(key, both[16..]);
        assert_eq!(cache.block_keys_f32().map(|all| all[..32] == both), (mode == KvMode::F32).then_some(true));
        assert_eq!(cache.keys().as_f32().is_some(), mode == KvMode::F32);
        // The open block's row and a head of an unwritten token are zeros.
        cache.block_key(2, &mut key);
        assert_eq!(key, [0.0; 16]);
        cache.ensure(10).unwrap();
        cache.key(9, 1, &mut head);
        assert_eq!(head, [0.0; 64]);
    }
}

#[test]
fn a_fork_has_the_same_bits_then_goes_its_own_way_and_reads_zeros_beyond() {
    for mode in MODES {
        let mut parent = cache(mode, 64);
        fill(&mut parent, 30, 3);
        let arena = Arena::host(KvBackend::Vmm);
        let mut fork = KvCache::new(&arena, "fork", *parent.layout(), 48).unwrap();
        fork.copy_from(&parent, 22).unwrap();
        for plane in PLANES {
            let rows = if plane == Plane::BlockKeys { 5 } else { 22 };
            let bytes = rows * parent.layout().row_bytes(plane);
            assert_eq!(fork.plane(plane).bytes()[..bytes], parent.plane(plane).bytes()[..bytes], "{mode} {plane:?}");
            assert!(fork.plane(plane).bytes()[bytes..].iter().all(|&byte| byte == 0), "{mode} {plane:?}");
        }
        let before: Vec<u8> = parent.plane(Plane::Keys).bytes().to_vec();
        fork.write(3, &[0.5; 128], &[0.5; 128]);
        assert_eq!(parent.plane(Plane::Keys).bytes(), before);
        fork.copy_from(&parent, 49).unwrap_err();
        fork.copy_from(&parent, 65).unwrap_err();
        let other = MODES.into_iter().find(|&m| m != mode).unwrap();
        assert!(fork.copy_from(&cache(other, 64), 4).unwrap_err().to_string().contains("cannot be filled"));
    }
}

#[test]
fn a_cache_that_cannot_grow_is_unchanged_in_every_plane() {
    // Room for the first segment (2 MiB) of three planes.
    let limits = Limits { committed: Some(7 << 20), ..Limits::default() };
    let arena = Arena::new(Box::new(hipfire::arena::host::HostMemory::new()), KvBackend::Vmm, limits);
    let mut cache = KvCache::new(&arena, "layer 3", layout(KvMode::F32, 2, 256, 128, 4), 262_144).unwrap();
    let error = cache.ensure(1).unwrap_err();
    assert!(matches!(&error, Error::InsufficientMemory(text) if text.contains("layer 3 block keys")), "{error}");
    assert_eq!(arena.usage().committed, 0);
    assert!(PLANES.iter().all(|&plane| cache.plane(plane).committed() == 0));
    assert!(matches!(cache.ensure(262_145), Err(Error::Invalid(text)) if text.contains("--max-seq")));
    assert!(KvCache::new(&arena, "layer 3", *cache.layout(), usize::MAX / 8).is_err());
    assert!(KvCache::new(&arena, "layer 3", *cache.layout(), 0).is_err());
    assert_eq!(arena.usage().ranges, 4);
}

#[test]
fn a_cache_that_gave_its_memory_back_starts_from_zeros_at_the_same_addresses() {
    for backend in [KvBackend::Vmm, KvBackend::Legacy] {
        let arena = Arena::host(backend);
        let mut cache = KvCache::new(&arena, "layer 3", layout(KvMode::Fp8, 2, 64, 16, 4), 100).unwrap();
        let addresses = |cache: &KvCache| PLANES.map(|plane| cache.plane(plane).base());
        let before = addresses(&cache);
        fill(&mut cache, 40, 1);
        assert!(cache.give_back(), "the host's addresses can get memory again");
        let usage = arena.usage();
        assert_eq!((usage.committed, usage.retired_ranges, usage.ranges), (0, 0, 4));
        assert!(PLANES.iter().all(|&plane| cache.plane(plane).bytes().is_empty()));
        cache.ensure(60).unwrap();
        assert_eq!(addresses(&cache), before);
        assert!(PLANES.iter().all(|&plane| cache.plane(plane).bytes().iter().all(|&byte| byte == 0)));
        fill(&mut cache, 60, 2);
    }
}
