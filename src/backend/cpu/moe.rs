//! temporary
use super::{
    activation,
    linear::{self, Rows},
};
use crate::weights::experts::Expert;
pub fn moe(experts: &[Expert], x: &[f32], rows: usize, top_k: usize, ids: &[u32], weights: &[f32], y: &mut [f32]) {
    let h = x.len() / rows;
    y.fill(0.0);
    for r in 0..rows {
        for k in 0..top_k {
            let e = &experts[ids[r * top_k + k] as usize];
            let xr = &x[r * h..(r + 1) * h];
            let mut g = vec![0.0; e.gate.rows];
            let mut u = vec![0.0; e.gate.rows];
            let mut d = vec![0.0; h];
            linear::linear_range(&e.gate, 0..e.gate.rows, Rows::consecutive(xr, h, 1), &mut g, e.gate.rows);
            linear::linear_range(&e.up, 0..e.up.rows, Rows::consecutive(xr, h, 1), &mut u, e.up.rows);
            activation::silu_multiply(&mut g, &u);
            linear::linear_range(&e.down, 0..h, Rows::consecutive(&g, e.gate.rows, 1), &mut d, h);
            let w = weights[r * top_k + k];
            y[r * h..(r + 1) * h].iter_mut().zip(&d).for_each(|(y, d)| *y = w.mul_add(*d, *y));
        }
    }
}
