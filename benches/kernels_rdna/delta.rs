//! Gated DeltaNet at the released geometry: a row through the recurrence, 512 rows through its chunked form.

use bytemuck::Zeroable;
use hipfire::backend::hip::abi::{GdnPlanes, GdnScanArgs, GdnSegment, GdnStepArgs};
use hipfire::error::Result;

use crate::device::{Case, Device};

const KEY_HEADS: usize = 16;
const VALUE_HEADS: usize = 48;
const STATE: usize = 128;
const CHANNELS: usize = (2 * KEY_HEADS + VALUE_HEADS) * STATE;

impl Device<'_> {
    pub fn delta(&mut self) -> Result<()> {
        self.delta_step()?;
        self.delta_scan()
    }

    /// One sequence: its planes with a window of 16 pending rows.
    fn planes(&mut self) -> Result<u64> {
        let rewind = 16;
        let planes = GdnPlanes {
            state: self.zeros(4 * VALUE_HEADS * STATE * STATE)?,
            window: self.zeros(4 * (3 + rewind) * CHANNELS)?,
            keys: self.zeros(4 * rewind * KEY_HEADS * STATE)?,
            values: self.zeros(4 * rewind * VALUE_HEADS * STATE)?,
            decay: self.zeros(4 * rewind * VALUE_HEADS)?,
            strength: self.zeros(4 * rewind * VALUE_HEADS)?,
        };
        self.put(&[planes])
    }

    fn delta_step(&mut self) -> Result<()> {
        let arguments = GdnStepArgs {
            out: self.zeros(4 * VALUE_HEADS * STATE)?,
            planes: self.planes()?,
            segments: self.put(&[GdnSegment { rows: 1, ..GdnSegment::zeroed() }])?,
            mixed: self.zeros(4 * CHANNELS)?,
            decay: self.zeros(4 * VALUE_HEADS)?,
            strength: self.zeros(4 * VALUE_HEADS)?,
            key_heads: KEY_HEADS as u32,
            value_heads: VALUE_HEADS as u32,
            key_dim: STATE as u32,
            value_dim: STATE as u32,
            rewind: 0,
            limit: 8,
            tiled: 0,
            unused: 0,
        };
        let state = 4 * VALUE_HEADS * STATE * STATE;
        let case = Case {
            kernel: format!("gdn_step_{STATE}"),
            geometry: format!("1 row, {VALUE_HEADS} heads of {STATE} x {STATE}"),
            grid: VALUE_HEADS * STATE / 32,
            run: 8,
            unit: "head".into(),
            units: VALUE_HEADS as f64,
            floor: (2 * state + 4 * (CHANNELS + VALUE_HEADS * STATE)) as f64,
            loads: None,
        };
        self.launch(case, &arguments)
    }

    fn delta_scan(&mut self) -> Result<()> {
        let rows = 512;
        let chunks = rows / 64;
        let [keys, pairs] = [chunks * KEY_HEADS * 3 * 64 * STATE * 2, chunks * VALUE_HEADS * 2 * 64 * 64 * 2];
        let (mixed, out) = (4 * rows * CHANNELS, 4 * rows * VALUE_HEADS * STATE);
        let packed = 4 * rows * 2 * KEY_HEADS * STATE + keys;
        for (kernel, grid, run, floor) in [
            ("gdn_scan_pack".to_string(), chunks * KEY_HEADS, 4, packed),
            (format!("gdn_scan_prepare_{STATE}"), chunks * VALUE_HEADS, 4, keys * 2 / 3 + pairs),
            (
                format!("gdn_scan_{STATE}"),
                VALUE_HEADS * STATE / 64,
                2,
                keys + pairs + mixed * 3 / 5 + out + 8 * VALUE_HEADS * STATE * STATE,
            ),
        ] {
            let arguments = GdnScanArgs {
                out: self.zeros(out)?,
                planes: self.planes()?,
                segments: self.put(&[GdnSegment { rows: rows as u32, ..GdnSegment::zeroed() }])?,
                mixed: self.zeros(mixed)?,
                decay: self.zeros(4 * rows * VALUE_HEADS)?,
                strength: self.zeros(4 * rows * VALUE_HEADS)?,
                keys: self.zeros(keys)?,
                pairs: self.zeros(pairs)?,
                growth: self.zeros(chunks * VALUE_HEADS * 2 * 64 * 4)?,
                chunks: chunks as u32,
                key_heads: KEY_HEADS as u32,
                value_heads: VALUE_HEADS as u32,
                key_dim: STATE as u32,
                value_dim: STATE as u32,
                limit: 8,
                tiled: 0,
                unused: 0,
            };
            let case = Case {
                kernel,
                geometry: format!("{rows} rows, {VALUE_HEADS} heads of {STATE} x {STATE}"),
                grid,
                run,
                unit: "row".into(),
                units: rows as f64,
                floor: floor as f64,
                loads: None,
            };
            self.launch(case, &arguments)?;
        }
        Ok(())
    }
}
