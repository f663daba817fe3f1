//! The runtime's matrix products: every code of the small types, and every lane's place, in each layout.
#![cfg_attr(not(hip_fibers), allow(dead_code, unused_imports))]

mod support;

use half::{bf16, f16};
use hip_fibers::Layout;
use support::{Arguments, Device, launch, run};

/// A times twice a shift: D[row][column] = 2 A[row][(column + 3) % 16], so a lane's wrong place shows.
fn shifted<T: Copy>(kernel: &str, layout: Layout, a: &[T], zero: T, two: T) -> Result<Vec<u32>, String> {
    let mut b = [zero; 256];
    for column in 0..16 {
        b[16 * column + (column + 3) % 16] = two;
    }
    let device = Device::default();
    let out = device.upload(&[0_u32; 256]);
    let arguments = Arguments::default().u64(out).u64(device.upload(a)).u64(device.upload(&b));
    run(layout, &launch(kernel, 1, 32, &arguments), &device)?;
    Ok(device.download(out, 256))
}

/// Rows with an infinity or a NaN are left out: times zero they spread over their row.
fn check(got: &[u32], values: &[f32]) {
    let mut rows = 0;
    for (row, values) in
        values.chunks(16).enumerate().filter(|(_, values)| values.iter().all(|value| value.is_finite()))
    {
        rows += 1;
        for column in 0..16 {
            assert_eq!(
                f32::from_bits(got[16 * row + column]),
                2.0 * values[(column + 3) % 16],
                "row {row} column {column}"
            );
        }
    }
    assert!(rows >= 14, "only {rows} rows were compared");
}

#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn products_of_16_bit_floats_are_in_their_places() {
    for layout in Layout::ALL {
        let values: Vec<f32> = (0..256).map(|i| i as f32 - 100.0).collect();
        let halves: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
        check(&shifted("matrix_f16", layout, &halves, f16::ZERO, f16::from_f32(2.0)).unwrap(), &values);
        let brains: Vec<bf16> = values.iter().map(|&value| bf16::from_f32(value)).collect();
        check(&shifted("matrix_bf16", layout, &brains, bf16::ZERO, bf16::from_f32(2.0)).unwrap(), &values);
    }
}

#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn products_of_bytes_are_exact_for_every_value() {
    let bytes: Vec<i8> = (0..=255_u8).map(|byte| byte as i8).collect();
    for layout in Layout::ALL {
        let got = shifted("matrix_i8", layout, &bytes, 0, 2).unwrap();
        for (at, &sum) in got.iter().enumerate() {
            assert_eq!(sum as i32, 2 * i32::from(bytes[at / 16 * 16 + (at + 3) % 16]));
        }
    }
}

#[test]
#[cfg_attr(not(hip_fibers), ignore = "no clang++ 19 or newer")]
fn products_of_fp8_are_exact_for_every_finite_value_where_the_card_has_them() {
    let codes: Vec<u8> = (0..=255).collect();
    // OCP 8-bit floating point: bias 7 and three mantissa bits, no infinity.
    let e4m3 = |code: u8| {
        let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7) / 8.0);
        let magnitude = if exponent == 0 { mantissa / 64.0 } else { (1.0 + mantissa) * 2_f32.powi(exponent - 7) };
        let value = if code & 0x7f == 0x7f { f32::NAN } else { magnitude };
        if code < 128 { value } else { -value }
    };
    let e5m2 = |code: u8| f16::from_bits(u16::from(code) << 8).to_f32();
    for layout in [Layout::Gfx12, Layout::Cuda] {
        let values: Vec<f32> = codes.iter().map(|&code| e4m3(code)).collect();
        check(&shifted("matrix_fp8", layout, &codes, 0, 0x40).unwrap(), &values);
        let values: Vec<f32> = codes.iter().map(|&code| e5m2(code)).collect();
        check(&shifted("matrix_bf8", layout, &codes, 0, 0x40).unwrap(), &values);
    }
    let error = shifted("matrix_fp8", Layout::Gfx11, &codes, 0, 0x40).unwrap_err();
    assert!(error.contains("gfx11 has no fp8 WMMA, at matrix_kernels.hip:"), "{error}");
}
