//! A file that the `gguf` package of PyPI wrote (tests/peer/write_fixture.py): every key as it was given, every format
//! block by block as the package dequantises it.

use hipfire::weights::Bytes;
use hipfire::weights::format::Format;
use hipfire::weights::gguf::read::{Header, header};

fn fixture() -> (Header, Bytes) {
    let bytes = Bytes::heap(include_bytes!("data/gguf/writer.gguf").to_vec());
    (header("writer.gguf", &bytes).unwrap(), bytes)
}

#[test]
fn keys_of_every_kind_are_read_as_they_were_given() {
    let (header, _) = fixture();
    let metadata = &header.metadata;
    assert_eq!(metadata.text("general.architecture").unwrap(), Some("qwen4exp"));
    for (kind, value) in [("uint8", 200), ("uint16", 60000), ("uint32", 4_000_000_000), ("uint64", (1 << 63) + 1)] {
        assert_eq!(metadata.integer(&format!("test.{kind}")).unwrap(), Some(value), "{kind}");
    }
    for (kind, value) in [("int8", -100.0), ("int16", -30000.0), ("int32", -2e9), ("int64", -(2f64.powi(62)))] {
        let key = format!("test.{kind}");
        assert_eq!(metadata.float(&key).unwrap(), Some(value), "{kind}");
        assert!(metadata.integer(&key).unwrap_err().to_string().contains("cannot be negative"), "{kind}");
    }
    assert_eq!(metadata.float("test.float32").unwrap(), Some(f64::from(0.1f32)));
    assert_eq!(metadata.float("test.float64").unwrap(), Some(0.1));
    assert_eq!(metadata.integer("test.bool").unwrap(), Some(1));
    assert_eq!(metadata.text("test.string").unwrap(), Some("café 🐭"));
    assert_eq!(metadata.texts("test.texts").unwrap().unwrap(), ["", "a", "éé"]);
    assert_eq!(metadata.integers("test.numbers").unwrap().unwrap(), [1, 2, 3]);
    assert!(metadata.text("test.bool").is_err() && metadata.integer("test.texts").is_err());
}

#[test]
fn every_format_decodes_to_the_packages_values() {
    let (header, bytes) = fixture();
    let find = |name: &str| header.tensors.iter().find(|tensor| tensor.name == name).unwrap();
    let mut compared = 0;
    for format in Format::ALL.into_iter().filter(|format| !matches!(format, Format::F8E4m3 | Format::I64)) {
        let (stored, expected) = (find(&format.to_string()), find(&format!("{format}.f32")));
        assert_eq!((stored.kind.format, &stored.shape[..]), (Some(format), &[3, 512][..]));
        assert!(stored.start.is_multiple_of(64), "the file's own alignment");
        let mut values = vec![0.0; 3 * 512];
        format.decode_row(&bytes[stored.start..stored.end], &mut values);
        let expected = bytes[expected.start..expected.end].chunks_exact(4);
        for (i, (ours, theirs)) in values.iter().zip(expected).enumerate() {
            let theirs = f32::from_le_bytes(theirs.try_into().unwrap());
            // The package rounds a product and then a sum, we round once: at most 2 ulp of the larger term apart.
            let ulp = theirs.abs().max(ours.abs()).max(0.05) * 4.0 * f32::EPSILON;
            assert!((ours - theirs).abs() <= ulp, "{format} element {i}: {ours} and {theirs}");
        }
        compared += 1;
    }
    assert_eq!(compared, 15);
}
