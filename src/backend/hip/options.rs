//! What the HIP backend may be asked, and what it refuses.
//!
//! Owns: its options, the geometry that its kernels take.
//! Always true: what is refused is refused at load, with what to do instead.
//! Not here: formats of weights (`matrix`), the choice of a device (`engine`).

use crate::config::{AttentionMode, KvMode, RopePrecision, Shape};
use crate::error::{Error, Result};

/// Sizes and choices that scratch and launches are planned by.
#[derive(Debug, Clone, Copy)]
pub struct HipOptions {
    /// The most rows a step has.
    pub max_rows: usize,
    /// The most tokens a sequence has.
    pub max_sequence: usize,
    /// Rows of a step that can be taken back.
    pub rewind_rows: usize,
    /// Which keys a query reads.
    pub attention: AttentionMode,
    /// Precision of the rotary table.
    pub rope: RopePrecision,
    /// How the state is stored.
    pub kv_mode: KvMode,
    /// Whether long segments read F16 copies of the context.
    pub gather: bool,
    /// Layers whose experts lie in the host's memory.
    pub host_layers: Option<HostLayers>,
}

/// Layers whose experts lie in the host's memory: spread evenly, so that a copy has other layers' time to arrive in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLayers {
    /// How many.
    pub count: usize,
    /// Of how many; the MTP head's layer, which comes behind them, is not among them.
    pub of: usize,
    /// Bytes of the largest layer's experts as the device keeps them.
    pub slot_bytes: usize,
}

impl HostLayers {
    /// Whether layer `index` is one.
    pub fn contains(&self, index: usize) -> bool {
        index < self.of && (index + 1) * self.count / self.of > index * self.count / self.of
    }
}

/// The state that a target reads fastest: F32 on Strix Halo, whose memory is large; FP8 on an R9700, which converts it in
/// hardware and has little memory; F32 elsewhere.
pub fn auto_kv_mode(arch: &str) -> KvMode {
    if arch == "gfx1201" { KvMode::Fp8 } else { KvMode::F32 }
}

/// Refuses a geometry that a kernel does not take.
///
/// # Errors
/// `Model`, naming the setting of config.json.
pub fn check(shape: &Shape) -> Result<()> {
    let (a, i, g, moe) = (&shape.attention, &shape.indexer, &shape.gdn, &shape.moe);
    let (group, taps) = (a.query_heads / a.kv_heads, shape.ple.as_ref().map_or(0, |ple| ple.conv_kernel));
    let limits = [
        (shape.hidden.is_multiple_of(8), "hidden_size", shape.hidden, "a multiple of 8"),
        (shape.hyper.streams <= 4, "hc_count", shape.hyper.streams, "at most 4"),
        (shape.hyper.low_rank <= 512, "hc_lowrank", shape.hyper.low_rank, "at most 512"),
        (shape.hyper.low_rank.is_multiple_of(8), "hc_lowrank", shape.hyper.low_rank, "a multiple of 8"),
        (a.head_dim <= 256 && a.head_dim.is_multiple_of(4), "head_dim", a.head_dim, "a multiple of 4, at most 256"),
        (group <= 12, "num_attention_heads / num_key_value_heads", group, "at most 12"),
        (
            i.head_dim <= 256 && i.head_dim.is_multiple_of(16),
            "indexer_head_dim",
            i.head_dim,
            "a multiple of 16, at most 256",
        ),
        (i.heads <= 4, "indexer_n_heads", i.heads, "at most 4"),
        (i.budget_blocks() <= 512, "indexer_budget", i.budget, "at most 512 blocks"),
        (g.conv_kernel == 4, "linear_conv_kernel_dim", g.conv_kernel, "4"),
        (
            g.key_dim <= 256 && g.key_dim.is_multiple_of(4),
            "linear_key_head_dim",
            g.key_dim,
            "a multiple of 4, at most 256",
        ),
        (
            g.value_dim <= 256 && g.value_dim.is_multiple_of(4),
            "linear_value_head_dim",
            g.value_dim,
            "a multiple of 4, at most 256",
        ),
        (moe.experts <= 512, "num_experts", moe.experts, "at most 512"),
        (moe.top_k <= 16, "num_experts_per_tok", moe.top_k, "at most 16"),
        (moe.intermediate.is_multiple_of(8), "moe_intermediate_size", moe.intermediate, "a multiple of 8"),
        (taps <= 4, "ple_conv_kernel_size", taps, "at most 4"),
    ];
    match limits.iter().find(|(kept, ..)| !kept) {
        None => Ok(()),
        Some((_, name, value, limit)) => {
            Err(Error::model(format!("{name} is {value}, and the HIP kernels need it to be {limit}: use --device cpu")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_layers_as_asked_for_are_spread_over_all() {
        for of in 1..50 {
            for count in 0..=of {
                let layers = HostLayers { count, of, slot_bytes: 0 };
                let places: Vec<usize> = (0..2 * of).filter(|&index| layers.contains(index)).collect();
                assert_eq!(places.len(), count);
                let widest = places.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
                assert!(widest <= of.div_ceil(count.max(1)), "{count} of {of}: {places:?}");
            }
        }
    }
}
