//! The hash of the n-gram embedding: which rows of the table a token reads (spec 2.6).
//!
//! Owns: the constants' derivation, the context rule and the rows.
//! Always true: integers only, no float anywhere. For ids below the vocabulary size no product reaches 2^63, so
//! unsigned arithmetic equals the reference's signed arithmetic.
//! Not here: reading rows (`ngram`), rejecting ids outside the vocabulary (whoever accepts a prompt).

use crate::config::{NgramHash, PleShape};
use crate::error::{Error, Result};

/// The longest n-gram that can be hashed: the released model has 3.
pub const MAX_NGRAM: usize = 8;

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The constants of PLE layer `ple_index` (its position in the sorted `ple_layer_ids`): `ngram` multipliers, and for
/// every n-gram length from 2 to `ngram` its `heads_per_ngram` primes, the first ones from `base` on that no earlier
/// PLE layer took. Errors name the config key.
pub fn derive(
    vocab: usize,
    seed: u64,
    ple_index: usize,
    ngram: usize,
    heads_per_ngram: usize,
    base: u64,
    divisible_by: u64,
) -> Result<NgramHash> {
    let check = |good: bool, key: &str, value: u64, range: &str| match good {
        true => Ok(()),
        false => Err(Error::model(format!("{key} of config.json is {value}, and must be {range}"))),
    };
    check((1..=1 << 32).contains(&vocab), "vocab_size", vocab as u64, "from 1 to 2^32")?;
    check((2..=MAX_NGRAM).contains(&ngram), "ngram_size", ngram as u64, "from 2 to 8")?;
    check((1..=1024).contains(&heads_per_ngram), "heads_per_ngram", heads_per_ngram as u64, "from 1 to 1024")?;
    check((1..=1 << 20).contains(&divisible_by), "make_ngram_vocab_size_divisible_by", divisible_by, "from 1 to 2^20")?;
    // 2^36 rows of one head are beyond any disk, and primes up to there are found in milliseconds by division.
    check(base <= 1 << 36, "ngram_vocab_size_base", base, "at most 2^36")?;
    check(ple_index < 64, "the number of ple_layer_ids", ple_index as u64, "at most 64")?;

    let half = ((i64::MAX as u64 / vocab as u64) / 2).max(1);
    let start = seed.wrapping_add(10007 * ple_index as u64);
    let multipliers =
        (1..=ngram as u64).map(|i| 2 * (splitmix64(start.wrapping_add(GAMMA.wrapping_mul(i))) % half) + 1).collect();
    let heads = (ngram - 1) * heads_per_ngram;
    let head_sizes: Vec<u64> = (base..).filter(|&n| is_prime(n)).skip(ple_index * heads).take(heads).collect();
    let mut rows = 0;
    let mut head_offsets = Vec::with_capacity(heads);
    for size in &head_sizes {
        head_offsets.push(rows);
        rows += size;
    }
    Ok(NgramHash { multipliers, head_sizes, head_offsets, table_rows: rows.next_multiple_of(divisible_by) })
}

fn splitmix64(seed: u64) -> u64 {
    let v = seed.wrapping_add(GAMMA);
    let v = (v ^ (v >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    v ^ (v >> 31)
}

fn is_prime(n: u64) -> bool {
    n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

/// The ids that are hashed for token `t` of `ids`, newest first: its own, then `ngram - 1` predecessors. A missing
/// predecessor, or an `eos` among them, makes that place and all older ones `eos`; the token's own `eos` does not. Places
/// from `ngram` on are `eos`. `t < ids.len()`, `ngram <= MAX_NGRAM`.
pub fn context(ids: &[u32], t: usize, eos: u32, ngram: usize) -> [u32; MAX_NGRAM] {
    let mut context = [eos; MAX_NGRAM];
    context[0] = ids[t];
    for (place, &id) in context[1..ngram].iter_mut().zip(ids[..t].iter().rev()) {
        if id == eos {
            break;
        }
        *place = id;
    }
    context
}

/// The rows one token reads, one a head, in head order. `context` is [`context`]'s answer (at least `ple.ngram` ids, each
/// below the vocabulary size), `out` is `[ple.heads()]`. Every row is below `hash.table_rows`.
pub fn rows(hash: &NgramHash, ple: &PleShape, context: &[u32], out: &mut [u64]) {
    let heads = out.iter_mut().zip(hash.head_sizes.iter().zip(&hash.head_offsets));
    let mut mix = 0;
    let mut hashed = 0;
    for (head, (row, (size, offset))) in heads.enumerate() {
        // The heads of n-gram length n hash the first n ids.
        let length = 2 + head / ple.heads_per_ngram;
        while hashed < length {
            mix ^= u64::from(context[hashed]).wrapping_mul(hash.multipliers[hashed]);
            hashed += 1;
        }
        *row = mix % size + offset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `<|endoftext|>` of the released vocabulary.
    const E: u32 = 248044;

    fn released() -> PleShape {
        let hash = derive(248320, 1234, 0, 3, 8, 20_000_000, 128).unwrap();
        PleShape { layers: vec![1], embed_dim: 2560, conv_kernel: 4, ngram: 3, heads_per_ngram: 8, hash: vec![hash] }
    }

    #[test]
    fn derivation_reproduces_the_released_constants() {
        let hash = &released().hash[0];
        assert_eq!(hash.multipliers, [23703573157769, 20109073645365, 8052911324071]);
        let tails = [3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171];
        assert_eq!(hash.head_sizes, tails.map(|tail| 20_000_000 + tail));
        let offsets = [
            0, 20000003, 40000026, 60000059, 80000106, 100000165, 120000228, 140000297, 160000374, 180000455,
            200000548, 220000655, 240000802, 260000955, 280001114, 300001275,
        ];
        assert_eq!(hash.head_offsets, offsets);
        assert_eq!(hash.table_rows, 320001536);
    }

    #[test]
    fn derivation_reproduces_the_golden_models_constants() {
        let golden: serde_json::Value =
            serde_json::from_slice(include_bytes!("../../tests/data/tiny/golden.json")).unwrap();
        let numbers = |key: &str| -> Vec<u64> { serde_json::from_value(golden[key].clone()).unwrap() };
        let hash = derive(96, 1234, 0, 3, 2, 50, 8).unwrap();
        assert_eq!(hash.multipliers, numbers("layer_multipliers"));
        assert_eq!(hash.head_sizes, numbers("head_vocab_sizes"));
        assert_eq!(hash.head_offsets, numbers("head_offsets"));
        assert_eq!(hash.table_rows, golden["table_rows"].as_u64().unwrap());
    }

    /// Spec 8.4: token, context, both hashes, rows of heads 0, 7, 8 and 15.
    type Vector = (u32, [u32; 3], u64, u64, [u64; 4]);
    const VECTORS: [Vector; 10] = [
        (248045, [248045, E, E], 1486445836820823305, 1087791632351906045, [13981229, 146384625, 173637879, 312970430]),
        (846, [846, 248045, E], 5007994545863977647, 6829584197594292059, [4908448, 159207155, 170314019, 308659387]),
        (198, [198, 846, 248045], 12626907238617808, 1987390781643842379, [4582007, 145212418, 163775156, 317942745]),
        (E, [E, 198, 846], 5879006955007760562, 5876732998444317008, [16849591, 158125394, 172066454, 306781843]),
        (100, [100, E, E], 4985730324805164376, 6811880758547703980, [5727835, 157314943, 162363667, 305180972]),
        (E, [E, 100, E], 5881538901214956280, 5343268469932916492, [4253433, 157365741, 163256257, 318102939]),
        (E, [E, E, E], 1486465038159386256, 1087771276705882980, [9663979, 151022725, 170054832, 300986548]),
        (7, [7, E, E], 4987774430928980067, 6809535331594288535, [2927653, 151352333, 167888935, 304994522]),
        (8, [8, 7, E], 48865304659515, 1997445752859276239, [17329723, 156529177, 176740572, 304107632]),
        (9, [9, 8, 7], 88331673299577, 108931417164776, [49828, 153224292, 175994762, 305810447]),
    ];

    #[test]
    fn contexts_are_cut_at_the_start_and_after_an_eos() {
        let ids = VECTORS.map(|vector| vector.0);
        for (t, vector) in VECTORS.iter().enumerate() {
            assert_eq!(context(&ids, t, E, 3)[..3], vector.1, "token {t}");
        }
    }

    #[test]
    fn rows_reproduce_the_released_vectors() {
        let ple = released();
        let hash = &ple.hash[0];
        for (t, (_, ids, m2, m3, expected)) in VECTORS.iter().enumerate() {
            let mut out = [0; 16];
            rows(hash, &ple, ids, &mut out);
            assert_eq!([out[0], out[7], out[8], out[15]], *expected, "token {t}");
            // The hashes themselves, through every head's remainder.
            for (head, row) in out.iter().enumerate() {
                let mix = if head < 8 { m2 } else { m3 };
                assert_eq!(*row, mix % hash.head_sizes[head] + hash.head_offsets[head], "token {t}, head {head}");
            }
        }
    }

    #[test]
    fn a_second_ple_layer_takes_the_primes_after_the_first() {
        let both = derive(96, 1234, 0, 3, 4, 50, 8).unwrap();
        let second = derive(96, 1234, 1, 3, 2, 50, 8).unwrap();
        assert_eq!(both.head_sizes[4..], second.head_sizes);
    }

    #[test]
    fn products_of_valid_ids_never_reach_the_sign_bit() {
        for vocab in [1, 2, 96, 4096, 248320, 1 << 32] {
            for multiplier in derive(vocab, 1234, 0, 8, 1, 50, 8).unwrap().multipliers {
                assert!(u128::from(multiplier) * (vocab as u128 - 1) < 1 << 63, "{vocab}");
            }
        }
    }

    #[test]
    fn senseless_constants_are_named_and_refused() {
        for (result, key) in [
            (derive(0, 1, 0, 3, 2, 50, 8), "vocab_size"),
            (derive(96, 1, 0, 1, 2, 50, 8), "ngram_size"),
            (derive(96, 1, 0, 9, 2, 50, 8), "ngram_size"),
            (derive(96, 1, 0, 3, 0, 50, 8), "heads_per_ngram"),
            (derive(96, 1, 0, 3, 2, u64::MAX, 8), "ngram_vocab_size_base"),
            (derive(96, 1, 0, 3, 2, 50, 0), "divisible_by"),
        ] {
            assert!(result.unwrap_err().to_string().contains(key));
        }
    }
}
