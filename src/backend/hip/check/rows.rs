//! Rows that move or are added as they are.

use super::super::abi::{CopyRowsArgs, StreamAddArgs};
use super::bench::Bench;
use crate::error::Result;

/// Copies with and without a list, between rows of different lengths; one addend for all streams.
pub fn rows(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(70);
    for (count, width, out_stride, input_stride) in
        [(1usize, 4usize, 4, 4), (3, 1028, 1032, 1040), (5, 2560, 2560, 10240)]
    {
        for listed in [false, true] {
            let input_rows = 2 * count;
            let input = bench.signed(input_rows * input_stride);
            let list: Vec<u32> = (0..count as u32).map(|i| (i * 5 + 1) % input_rows as u32).collect();
            let (from, ids) = (bench.upload(&input)?, bench.upload(&list)?);
            let before = bench.signed(count * out_stride);
            let out = bench.update(&before)?;
            let arguments = CopyRowsArgs {
                out: out.address(),
                input: from.address(),
                rows: if listed { ids.address() } else { 0 },
                width: width as u32,
                out_stride: out_stride as u32,
                input_stride: input_stride as u32,
                unused: 0,
            };
            bench.launch("copy_rows_f32", count * width.div_ceil(1024), &arguments)?;
            let mut want = before;
            for (i, row) in want.chunks_mut(out_stride).enumerate() {
                let source = if listed { list[i] as usize } else { i };
                row[..width].copy_from_slice(&input[source * input_stride..][..width]);
            }
            let got = bench.read::<f32>(&out)?;
            let how = if listed { "listed" } else { "in order" };
            bench.exact("copy_rows_f32", format!("{count} rows of {width}, {how}"), &got, &want);
        }
    }
    for (rows, streams, hidden) in [(1, 1, 4), (3, 4, 260), (2, 4, 2560)] {
        let (wide, shared) = (bench.signed(rows * streams * hidden), bench.signed(rows * hidden));
        let (updated, add) = (bench.update(&wide)?, bench.upload(&shared)?);
        let arguments = StreamAddArgs {
            wide: updated.address(),
            shared: add.address(),
            streams: streams as u32,
            hidden: hidden as u32,
        };
        bench.launch("stream_add", rows * streams, &arguments)?;
        let addend = |i: usize| shared[i / (streams * hidden) * hidden + i % hidden];
        let want: Vec<f32> = wide.iter().enumerate().map(|(i, v)| v + addend(i)).collect();
        let got = bench.read::<f32>(&updated)?;
        bench.exact("stream_add", format!("{rows} rows, {streams} streams of {hidden}"), &got, &want);
    }
    Ok(())
}
