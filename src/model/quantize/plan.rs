//! Every tensor of the file, in order, and where its values come from.
//!
//! Owns: the list, shapes in GGUF's convention, and the order of value heads.
//! Always true: a source in grouped order is permuted to tiled order in every tensor that value heads touch, and a tiled
//! source in none (spec 5.4); the MTP head is written in upstream's dialect.
//! Not here: types (`recipe`), values (`stream`).

use crate::config::{HeadMap, Mixer, PleShape, Shape};
use crate::error::Result;
use crate::model::names::{MIXER, Parameters, Part, block_name};
use crate::weights::gguf::TABLE_NAMES;
use crate::weights::{Matrix, NgramTable};

/// How much a tensor's precision matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A vector or the taps of a convolution: F32, whatever was asked for.
    Exact,
    /// A small matrix that steers the model; below 8 bits it ignores its prompt (spec 5.4).
    Control,
    /// Everything else.
    Weight,
}

/// A tensor to write.
pub struct Output {
    /// GGUF's name.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// What it does, for the summary.
    pub group: &'static str,
    /// How much its precision matters.
    pub role: Role,
    /// Its values.
    pub content: Content,
}

/// Where values come from.
pub enum Content {
    /// Computed already.
    Values(Vec<f32>),
    /// Matrices of one width, one after another.
    Stack(Vec<Matrix>),
    /// A matrix whose rows are taken in this order.
    Rows(Matrix, Vec<usize>),
    /// A matrix whose columns are taken in this order.
    Columns(Matrix, Vec<usize>),
    /// Two matrices of equal height side by side.
    Beside(Matrix, Matrix),
    /// The n-gram table.
    Table(NgramTable),
}

const DENSE: &str = "embedding and head";
const HYPER: &str = "hyper-connections";
const GDN: &str = "GDN mixers";
const QSA: &str = "QSA attention";
const EXPERTS: &str = "routed experts";
const SHARED: &str = "shared experts and routers";
const PLE: &str = "n-gram embedding, dense part";
const TABLE: &str = "n-gram table";
const MTP: &str = "MTP head";

/// All tensors of a model.
///
/// # Errors
/// `Model`, naming the tensor that is missing or has another shape.
pub fn outputs(parameters: &dyn Parameters, shape: &Shape, mtp: bool) -> Result<Vec<Output>> {
    let mut list = List { parameters, shape, outputs: Vec::new() };
    let (vocab, hidden) = (shape.vocab, shape.hidden);
    list.matrix(Part::Trunk, "embed_tokens.weight", "token_embd.weight", vocab, hidden, DENSE)?;
    if !shape.tied_head {
        list.matrix(Part::Trunk, "lm_head.weight", "output.weight", vocab, hidden, DENSE)?;
    }
    list.mixer(Part::Trunk, "")?;
    for (i, &kind) in shape.layers.iter().enumerate() {
        let block = format!("blk.{i}.");
        if let Some(ple) = shape.ple.as_ref().filter(|ple| ple.layers.contains(&i)) {
            list.injection(Part::Layer(i), &block, ple)?;
        }
        list.layer(Part::Layer(i), &block, kind)?;
    }
    if mtp {
        list.head(&format!("blk.{}.", shape.layers.len()))?;
    }
    Ok(list.outputs)
}

struct List<'a> {
    parameters: &'a dyn Parameters,
    shape: &'a Shape,
    outputs: Vec<Output>,
}

impl List<'_> {
    fn push(&mut self, name: String, shape: Vec<usize>, group: &'static str, role: Role, content: Content) {
        self.outputs.push(Output { name, shape, group, role, content });
    }

    fn values(&mut self, name: String, values: Vec<f32>, group: &'static str) {
        self.push(name, vec![values.len()], group, Role::Exact, Content::Values(values));
    }

    fn matrix(
        &mut self,
        part: Part,
        hub: &str,
        name: &str,
        rows: usize,
        cols: usize,
        group: &'static str,
    ) -> Result<()> {
        let matrix = self.parameters.matrix(part, hub, rows, cols)?;
        self.push(name.into(), vec![rows, cols], group, Role::Weight, Content::Stack(vec![matrix]));
        Ok(())
    }

    fn control(&mut self, part: Part, hub: &str, name: String, shape: &[usize], group: &'static str) -> Result<()> {
        let (rows, cols) = if let &[rows, cols] = shape { (rows, cols) } else { (1, shape[0]) };
        let matrix = self.parameters.matrix(part, hub, rows, cols)?;
        self.push(name, shape.to_vec(), group, Role::Control, Content::Stack(vec![matrix]));
        Ok(())
    }

    fn norm(&mut self, part: Part, hub: &str, name: String, width: usize, group: &'static str) -> Result<()> {
        let values = self.parameters.norm(part, hub, width)?;
        self.values(name, values, group);
        Ok(())
    }

    /// Taps in GGUF's order, channel-major, with the channels in the order of `channels`.
    fn taps(
        &mut self,
        part: Part,
        hub: &str,
        name: String,
        channels: &[usize],
        kernel: usize,
        group: &'static str,
    ) -> Result<()> {
        let count = channels.len();
        let stored = self.parameters.taps(part, hub, count, kernel)?;
        let values = channels.iter().flat_map(|&c| (0..kernel).map(move |tap| (c, tap)));
        let values = values.map(|(c, tap)| stored[tap * count + c]).collect();
        self.push(name, vec![count, kernel], group, Role::Exact, Content::Values(values));
        Ok(())
    }

    /// The final mixer of the trunk, or of the head under `block`.
    fn mixer(&mut self, part: Part, block: &str) -> Result<()> {
        let (d, rank) = (self.shape.wide(), self.shape.hyper.low_rank);
        let group = if part == Part::Head { MTP } else { HYPER };
        let name = |i: usize| match part {
            Part::Head => format!("{block}{}", MIXER[i].2),
            _ => MIXER[i].1.to_owned(),
        };
        self.norm(part, MIXER[0].0, name(0), d, group)?;
        self.matrix(part, MIXER[1].0, &name(1), rank, d, group)?;
        self.matrix(part, MIXER[2].0, &name(2), d, rank, group)
    }

    fn layer(&mut self, part: Part, block: &str, kind: Mixer) -> Result<()> {
        let first = self.outputs.len();
        self.hyper(part, block, "attn_hyper_connection.")?;
        match kind {
            Mixer::Gdn => self.gdn(part, block)?,
            Mixer::Qsa => self.qsa(part, block)?,
        }
        self.hyper(part, block, "mlp_hyper_connection.")?;
        self.moe(part, block)?;
        if part == Part::HeadLayer {
            self.outputs[first..].iter_mut().for_each(|output| output.group = MTP);
        }
        Ok(())
    }

    fn hyper(&mut self, part: Part, block: &str, place: &str) -> Result<()> {
        let (d, rank, streams) = (self.shape.wide(), self.shape.hyper.low_rank, self.shape.hyper.streams);
        let names = |name: &str| {
            let hub = format!("{place}{name}.weight");
            let full = format!("{block}{}", block_name(&hub));
            (hub, full)
        };
        let (norm, down, up) = (names("hc_norm"), names("input_mix_weight_down"), names("input_mix_weight_up"));
        let inject = names("block_inject_weight");
        self.norm(part, &norm.0, norm.1, d, HYPER)?;
        self.matrix(part, &down.0, &down.1, rank, d, HYPER)?;
        self.matrix(part, &up.0, &up.1, d, rank, HYPER)?;
        self.control(part, &inject.0, inject.1, &[streams, d], HYPER)
    }

    fn gdn(&mut self, part: Part, block: &str) -> Result<()> {
        let (hidden, g) = (self.shape.hidden, self.shape.gdn);
        let heads = tiled(g.key_heads, g.value_heads, g.head_map);
        let values: Vec<usize> = heads.iter().flat_map(|&h| h * g.value_dim..(h + 1) * g.value_dim).collect();
        let channels: Vec<usize> = (0..2 * g.keys()).chain(values.iter().map(|&v| 2 * g.keys() + v)).collect();
        let projections = [
            ("in_proj_qkv", &channels, Role::Weight),
            ("in_proj_z", &values, Role::Weight),
            ("in_proj_b", &heads, Role::Weight),
            ("in_proj_a", &heads, Role::Weight),
        ];
        for (name, order, role) in projections {
            let hub = format!("linear_attn.{name}.weight");
            let matrix = self.parameters.matrix(part, &hub, order.len(), hidden)?;
            let content = Content::Rows(matrix, order.clone());
            self.push(format!("{block}{}", block_name(&hub)), vec![order.len(), hidden], GDN, role, content);
        }
        let decay = self.parameters.decay(part, g.value_heads)?;
        let bias = self.parameters.floats(part, "linear_attn.dt_bias", g.value_heads)?;
        let norm = self.parameters.floats(part, "linear_attn.norm.weight", g.value_dim)?;
        let ordered = |values: Vec<f32>| heads.iter().map(|&h| values[h]).collect();
        self.values(format!("{block}ssm_a"), ordered(decay), GDN);
        self.values(format!("{block}ssm_dt.bias"), ordered(bias), GDN);
        self.values(format!("{block}ssm_norm.weight"), norm, GDN);
        let conv = format!("{block}ssm_conv1d.weight");
        self.taps(part, "linear_attn.conv1d.weight", conv, &channels, g.conv_kernel, GDN)?;
        let out = self.parameters.matrix(part, "linear_attn.out_proj.weight", hidden, g.values())?;
        let content =
            if g.head_map == HeadMap::Tiled { Content::Stack(vec![out]) } else { Content::Columns(out, values) };
        self.push(format!("{block}ssm_out.weight"), vec![hidden, g.values()], GDN, Role::Weight, content);
        Ok(())
    }

    fn qsa(&mut self, part: Part, block: &str) -> Result<()> {
        let (hidden, a, i) = (self.shape.hidden, self.shape.attention, self.shape.indexer);
        let (keys, queries) = (a.kv_heads * a.head_dim, a.query_heads * a.head_dim);
        let projections =
            [("q", 2 * queries, hidden), ("k", keys, hidden), ("v", keys, hidden), ("o", hidden, queries)];
        for (name, rows, cols) in projections {
            let hub = format!("self_attn.{name}_proj.weight");
            self.matrix(part, &hub, &format!("{block}{}", block_name(&hub)), rows, cols, QSA)?;
        }
        let norms = [
            ("q_norm", a.head_dim),
            ("k_norm", a.head_dim),
            ("indexer.q_layernorm", i.head_dim),
            ("indexer.k_layernorm", i.head_dim),
        ];
        for (name, width) in norms {
            let hub = format!("self_attn.{name}.weight");
            self.norm(part, &hub, format!("{block}{}", block_name(&hub)), width, QSA)?;
        }
        let (q, k) = self.parameters.index_projections(part, i.heads * i.head_dim, i.head_dim, hidden)?;
        for (name, matrix) in [("q", q), ("k", k)] {
            let (full, shape) = (format!("{block}indexer.{name}_proj.weight"), vec![matrix.rows, hidden]);
            self.push(full, shape, QSA, Role::Weight, Content::Stack(vec![matrix]));
        }
        Ok(())
    }

    fn moe(&mut self, part: Part, block: &str) -> Result<()> {
        let (hidden, moe) = (self.shape.hidden, self.shape.moe);
        let (inner, shared) = (moe.intermediate, moe.shared_intermediate);
        self.control(part, "mlp.gate.weight", format!("{block}ffn_gate_inp.weight"), &[moe.experts, hidden], SHARED)?;
        let (mut gate, mut up, mut down) = (Vec::new(), Vec::new(), Vec::new());
        for expert in self.parameters.experts(part, &moe, hidden)? {
            gate.push(expert.gate);
            up.push(expert.up);
            down.push(expert.down);
        }
        for (name, matrices, rows, cols) in
            [("gate", gate, inner, hidden), ("up", up, inner, hidden), ("down", down, hidden, inner)]
        {
            let full = format!("{block}ffn_{name}_exps.weight");
            self.push(full, vec![moe.experts, rows, cols], EXPERTS, Role::Weight, Content::Stack(matrices));
        }
        let scale = format!("{block}ffn_gate_inp_shexp.weight");
        self.control(part, "mlp.shared_expert_gate.weight", scale, &[hidden], SHARED)?;
        for (name, rows, cols) in [("gate", shared, hidden), ("up", shared, hidden), ("down", hidden, shared)] {
            let hub = format!("mlp.shared_expert.{name}_proj.weight");
            self.matrix(part, &hub, &format!("{block}ffn_{name}_shexp.weight"), rows, cols, SHARED)?;
        }
        Ok(())
    }

    fn injection(&mut self, part: Part, block: &str, ple: &PleShape) -> Result<()> {
        let (hidden, d, embed) = (self.shape.hidden, self.shape.wide(), ple.embed_dim);
        let hash = self.parameters.hash(part, ple, &ple.hash[0])?;
        let table = self.parameters.table(part, ple, hash.table_rows)?;
        let shape = vec![hash.table_rows as usize, ple.row_dim()];
        self.push(TABLE_NAMES[0].into(), shape, TABLE, Role::Weight, Content::Table(table));
        self.matrix(part, "ple.key_proj.weight", &format!("{block}ple_key.weight"), d, embed, PLE)?;
        self.matrix(part, "ple.value_proj.weight", &format!("{block}ple_value.weight"), hidden, embed, PLE)?;
        for name in ["norm_key", "norm_query", "norm_conv"] {
            self.norm(part, &format!("ple.{name}.weight"), format!("{block}ple_{name}.weight"), d, PLE)?;
        }
        let channels: Vec<usize> = (0..d).collect();
        self.taps(part, "ple.conv1d.weight", format!("{block}ple_conv1d.weight"), &channels, ple.conv_kernel, PLE)
    }

    fn head(&mut self, block: &str) -> Result<()> {
        let (hidden, d) = (self.shape.hidden, self.shape.wide());
        let (embedding, state) = self.parameters.fusion(hidden)?;
        let full = |hub: &str| format!("{block}{}", block_name(hub));
        let content = Content::Beside(embedding, state);
        self.push(full("fc_embedding.weight"), vec![hidden, 2 * hidden], MTP, Role::Weight, content);
        for (hub, width) in [("pre_fc_norm_embedding.weight", hidden), ("pre_fc_norm_hidden.weight", d)] {
            self.norm(Part::Head, hub, full(hub), width, MTP)?;
        }
        self.mixer(Part::Head, block)?;
        self.layer(Part::HeadLayer, block, Mixer::Qsa)
    }
}

/// The source's value head at each place of GGUF's order: head g · r + i of key head g stands at place i · groups + g.
fn tiled(key_heads: usize, value_heads: usize, source: HeadMap) -> Vec<usize> {
    let each = value_heads / key_heads;
    match source {
        HeadMap::Tiled => (0..value_heads).collect(),
        HeadMap::Grouped => (0..value_heads).map(|place| place % key_heads * each + place / key_heads).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiled_order_puts_value_heads_under_the_key_head_of_their_remainder() {
        // Released: 16 key heads, 48 value heads; place j uses key head j mod 16 (spec 5.4).
        let order = tiled(16, 48, HeadMap::Grouped);
        for (place, &head) in order.iter().enumerate() {
            assert_eq!(head / 3, place % 16);
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..48).collect::<Vec<_>>());
        assert_eq!(order[..3], [0, 3, 6]);
        assert_eq!(tiled(16, 48, HeadMap::Tiled), (0..48).collect::<Vec<_>>());
    }
}
