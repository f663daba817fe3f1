//! Quantised formats: every bit where the published package reads it, and encoders that are as good as a block allows.
//!
//! Owns: equality with the values of `tests/data/formats` (made by `make.py` there), encoder error bounds that follow
//! from the formats, what survives a second encoding.
//! Not here: E4M3 and the plain floats (`weights::format`), products (`linear_quantised`).

use hipfire::weights::{Bytes, Format, Tensor};

/// Every quantised format.
fn quantised() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| format.is_quantised())
}

fn data(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/data/formats/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn encode(format: Format, values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    format.encode_row(values, &mut bytes);
    assert_eq!(bytes.len(), format.row_bytes(values.len()), "{format}");
    bytes
}

fn decode(format: Format, bytes: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; bytes.len() / format.block_bytes() * format.block()];
    format.decode_row(bytes, &mut values);
    values
}

fn normal(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    // The sum of twelve uniforms has the variance 1.
    (0..count).map(|_| (0..12).map(|_| uniform()).sum()).collect()
}

fn squared_error(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
}

fn rms(a: &[f32], b: &[f32]) -> f64 {
    (squared_error(a, b) / a.len() as f64).sqrt()
}

fn greatest(values: &[f32]) -> f64 {
    values.iter().fold(0.0, |g, v| f64::max(g, f64::from(v.abs())))
}

#[test]
fn every_block_decodes_to_the_values_of_the_published_package() {
    for format in quantised() {
        let (bytes, expected) = (data(&format!("{format}.bin")), floats(&data(&format!("{format}.f32"))));
        assert_eq!(bytes.len(), format.row_bytes(expected.len()), "{format}");
        let values = decode(format, &bytes);
        for (i, (ours, theirs)) in values.iter().zip(&expected).enumerate() {
            assert!(ours == theirs, "{format}: element {i} is {ours:e}, expected {theirs:e}");
        }
        assert!(values.iter().any(|v| *v != 0.0) && values[..format.block()].iter().all(|v| *v == 0.0));
    }
}

#[test]
fn a_row_that_ends_inside_a_block_is_refused_with_the_name_of_its_tensor() {
    for format in quantised() {
        assert_eq!(format.row_bytes(512), 512 / format.block() * format.block_bytes());
        assert!(format.check_columns("w", 3 * format.block()).is_ok());
        let cols = format.block() + 16;
        let message = format.check_columns("blk.0.w", cols).unwrap_err().to_string();
        assert!(message.contains("'blk.0.w'") && message.contains(&format.to_string()), "{message}");
        let data = Bytes::heap(vec![0; 2 * format.row_bytes(cols)]);
        let tensor = Tensor { name: "blk.1.w".into(), format, shape: vec![2, cols], data };
        assert!(tensor.to_matrix().err().unwrap().to_string().contains("'blk.1.w'"));
        assert!(tensor.to_f32().err().unwrap().to_string().contains("'blk.1.w'"));
    }
}

/// The root-mean-square error that plain rounding stays below, as a share of a block's greatest magnitude `g`. The
/// search never does worse than plain rounding, but for rounding its scale to F16 (2^-11 of the value).
fn bound(format: Format) -> f64 {
    let half = |levels: f64| 0.5 / levels;
    // Codes with an offset: the span is at most 2g, and its offset is rounded to F16 as well.
    let span = |levels: f64| 2.0 * half(levels);
    // A sub-block's scale is off by at most half of the greatest scale / `scales`, times the greatest code.
    let (f16, scales) = (2f64.powi(-10), |scales: f64| 0.5 / scales);
    f16 + match format {
        Format::Q8_0 => half(127.0),
        // The extreme is -8 steps, so that +8 steps is cut to 7: up to a whole step is lost.
        Format::Q4_0 => 1.0 / 8.0,
        Format::Q5_0 => 1.0 / 16.0,
        Format::Q4_1 => span(15.0),
        Format::Q5_1 => span(31.0),
        // The widest gap of the codebook is 24; an extreme of -127 cuts +127 to 113.
        Format::Iq4Nl => 14.0 / 127.0,
        // `span` with codes up to n, scales and minima in `s` steps each; the search takes scales up to 2g / (n - 0.8).
        Format::Q2K => span(2.2) + 2.0 * 3.0 / 2.2 * scales(15.0) + scales(15.0),
        Format::Q4K => span(14.2) + 2.0 * 15.0 / 14.2 * scales(63.0) + scales(63.0),
        Format::Q5K => span(30.2) + 2.0 * 31.0 / 30.2 * scales(63.0) + scales(63.0),
        // Scales in 32 or 128 steps; the search takes scales up to g / 1 for Q3_K (least word -4 + 4 * 0.25 * 2).
        Format::Q3K => 1.0 / 4.0 + 2.0 * scales(32.0),
        Format::Q6K => 1.0 / 32.0 + 32.0 / 28.0 * scales(128.0),
        Format::Iq4Xs => 14.0 / 127.0 + 127.0 / 87.0 * scales(32.0),
        _ => unreachable!(),
    }
}

#[test]
fn encoders_stay_within_the_error_of_their_grid() {
    let mut rows = vec![("normal", normal(1, 4096)), ("shifted", normal(2, 512).iter().map(|v| v + 3.0).collect())];
    rows.push(("ramp", (0..512).map(|i| i as f32 / 100.0 - 2.5).collect()));
    rows.push(("constant", vec![0.37; 256]));
    rows.push(("negative constant", vec![-0.37; 256]));
    rows.push(("two values", (0..256).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect()));
    rows.push(("one", (0..256).map(|i| if i == 77 { -5.0 } else { 0.0 }).collect()));
    rows.push(("outlier", normal(3, 256).iter().enumerate().map(|(i, v)| if i == 40 { 60.0 } else { *v }).collect()));
    rows.push(("large", normal(4, 256).iter().map(|v| v * 1e4).collect()));
    for format in quantised() {
        for (name, values) in &rows {
            let decoded = decode(format, &encode(format, values));
            for (values, decoded) in values.chunks(format.block()).zip(decoded.chunks(format.block())) {
                let (error, most) = (rms(values, decoded), bound(format) * greatest(values));
                assert!(error <= most, "{format}, {name}: {error:e} of at most {most:e}");
            }
        }
    }
}

#[test]
fn encoders_are_no_worse_than_the_reference() {
    // The input and the squared errors of the published package's own quantiser, where it has one.
    let values = floats(&data("normal.f32"));
    for line in String::from_utf8(data("reference.txt")).unwrap().lines() {
        let (name, error) = line.split_once(' ').unwrap();
        let format = quantised().find(|format| format.to_string() == name).unwrap();
        let ours = squared_error(&values, &decode(format, &encode(format, &values)));
        // One part in a thousand for scales that round to another F16.
        assert!(ours <= 1.001 * error.parse::<f64>().unwrap(), "{format}: {ours} and {error}");
    }
}

#[test]
fn more_bits_leave_less_error() {
    let values = normal(5, 8192);
    let error = |format| rms(&values, &decode(format, &encode(format, &values)));
    let order = [Format::Q8_0, Format::Q6K, Format::Q5K, Format::Q4K, Format::Q3K, Format::Q2K];
    let errors: Vec<f64> = order.into_iter().map(error).collect();
    assert!(errors.windows(2).all(|pair| pair[0] < pair[1]), "{errors:?}");
    // Per bit the error halves at best: Q8_0 at its 127 steps of a greatest value of about 3, the others from there.
    assert!(errors[0] < 3.0 / 127.0 / 12f64.sqrt() && errors[3] < 0.085 && errors[5] < 0.35, "{errors:?}");
    assert!(error(Format::Iq4Nl) < error(Format::Q4_0) && error(Format::Iq4Xs) < error(Format::Q4_0));
}

#[test]
fn values_that_a_block_holds_survive_a_second_encoding() {
    for format in [Format::Q8_0, Format::Q4_0, Format::Q5_0] {
        let once = decode(format, &encode(format, &normal(6, 4096)));
        assert_eq!(decode(format, &encode(format, &once)), once, "{format}");
    }
    // Elsewhere scales are searched among others than the stored ones; a second pass adds less than the first.
    for format in quantised() {
        let values = normal(7, 4096);
        let once = decode(format, &encode(format, &values));
        let twice = decode(format, &encode(format, &once));
        assert!(rms(&once, &twice) < rms(&values, &once), "{format}");
    }
}

#[test]
fn zeros_and_tiny_values_encode_to_numbers() {
    for format in quantised() {
        assert!(decode(format, &encode(format, &[0.0; 256])).iter().all(|v| *v == 0.0), "{format}");
        for tiny in [f32::MIN_POSITIVE, 1e-40, 3e-8, 1e-6] {
            let values: Vec<f32> = (0..256).map(|i| tiny * (i as f32 / 128.0 - 1.0)).collect();
            let decoded = decode(format, &encode(format, &values));
            // F16 scales end at 2^-24: below, values become multiples of that at most.
            let most = f64::from(tiny) + 128.0 * 2f64.powi(-24);
            assert!(decoded.iter().all(|v| f64::from(v.abs()) <= most), "{format}, {tiny:e}");
        }
        let decoded = decode(format, &encode(format, &[f32::MAX; 256]));
        assert!(decoded.iter().all(|v| v.is_finite()), "{format}");
    }
}
