//! The ring of rows that a sequence keeps for its MTP head.

use super::super::abi::{GdnSegment, HiddenArgs};
use super::bench::Bench;
use crate::error::Result;

/// Segments shorter and longer than the ring, at places where it has wrapped around.
pub fn ring(bench: &mut Bench<'_>) -> Result<()> {
    bench.seed(71);
    for (width, slots, list) in
        [(4usize, 8usize, vec![(1usize, 0usize)]), (1028, 8, vec![(3, 6), (11, 21)]), (2560, 4, vec![(4, 2), (5, 3)])]
    {
        let rows: usize = list.iter().map(|(rows, _)| rows).sum();
        let (mut segments, mut sequence, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        for (i, &(count, position)) in list.iter().enumerate() {
            let first = positions.len() as u32;
            segments.push(GdnSegment { first, rows: count as u32, pending: 0, chunk: 0 });
            sequence.extend(std::iter::repeat_n(i as u32, count));
            positions.extend((position..position + count).map(|p| p as u32));
        }
        let wide = bench.signed(rows * width);
        let mut kept: Vec<Vec<f32>> = list.iter().map(|_| bench.signed(slots * width)).collect();
        let rings = kept.iter().map(|ring| bench.update(ring)).collect::<Result<Vec<_>>>()?;
        let table: Vec<u64> = rings.iter().map(|ring| ring.address()).collect();
        let (w, t, s) = (bench.update(&wide)?, bench.upload(&table)?, bench.upload(&segments)?);
        let (q, p) = (bench.upload(&sequence)?, bench.upload(&positions)?);
        let arguments = HiddenArgs {
            wide: w.address(),
            rings: t.address(),
            segments: s.address(),
            sequence: q.address(),
            positions: p.address(),
            width: width as u32,
            slots: slots as u32,
        };
        let grid = rows * width.div_ceil(1024);
        bench.launch("hidden_keep", grid, &arguments)?;
        for row in 0..rows {
            let slot = positions[row] as usize % slots;
            // Later rows of a segment come over earlier ones.
            kept[sequence[row] as usize][slot * width..][..width].copy_from_slice(&wide[row * width..][..width]);
        }
        let case = format!("{list:?} in {slots} slots of {width}");
        for (ring, want) in rings.iter().zip(&kept) {
            let got = bench.read::<f32>(ring)?;
            bench.exact("hidden_keep", case.clone(), &got, want);
        }
        let back = bench.output::<f32>(rows * width)?;
        bench.launch("hidden_load", grid, &HiddenArgs { wide: back.address(), ..arguments })?;
        let want: Vec<f32> = (0..rows)
            .flat_map(|row| kept[sequence[row] as usize][positions[row] as usize % slots * width..][..width].to_vec())
            .collect();
        let got = bench.read::<f32>(&back)?;
        bench.exact("hidden_load", case, &got, &want);
    }
    Ok(())
}
