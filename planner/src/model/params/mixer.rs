//! Parameters of what mixes tokens.
//!
//! A projection that yields several things at once is cut by its groups of heads, the first dim, so that every rank
//! gets whole groups with all they need.

use super::{List, Role};
use crate::model::{
    Attention, DeltaNet, Indexer, Init, KimiDelta, Listed, ListedCut, ListedParameter, Mamba2, MixerRef,
    Module, Norm, Parallel, QkNorm,
};

pub(super) fn mixer_parameters(list: &mut List<'_>, mixer: MixerRef<'_>) {
    match mixer {
        MixerRef::Attention(attention) => attention_parameters(list, attention),
        MixerRef::DeltaNet(delta) => delta_net(list, delta),
        MixerRef::KimiDelta(delta) => kimi_delta(list, delta),
        MixerRef::Mamba2(mamba) => mamba2(list, mamba),
        MixerRef::Parallel(Parallel { attention, mamba }) => {
            attention_parameters(list, attention);
            let first = list.found.len();
            mamba2(list, mamba);
            for parameter in list.found.iter_mut().skip(first) {
                parameter.name = parameter.name.replacen("{layer}.attention.", "{layer}.mamba.", 1);
            }
        }
        // Cut by its outputs, which are gathered (Megatron-Core heterogeneous_layer_specs).
        MixerRef::Linear => {
            let hidden = list.architecture.hidden_size;
            list.column("linear.weight", &[hidden, hidden]);
        }
        MixerRef::Listed(listed) => listed_parameters(list, listed),
    }
}

/// Matrices, and vectors of channels or heads that go with them.
fn listed_parameters(list: &mut List<'_>, listed: &Listed) {
    for ListedParameter { name: part, cut, shape } in &listed.parameters {
        let matrix = shape.len() > 1;
        match cut {
            ListedCut::Outputs if matrix => list.column(part, shape),
            ListedCut::Outputs => list.per_head(part, shape, Init::Ones),
            ListedCut::Inputs => list.out(part, shape),
            ListedCut::Whole if matrix => list.whole(part, shape),
            ListedCut::Whole => list.bias(&name(part), Module::Attention, Role::Replicated, shape),
        }
    }
}

fn attention_parameters(list: &mut List<'_>, attention: &Attention) {
    match attention {
        Attention::Gqa { .. } => grouped(list, attention),
        Attention::Mla { .. } => latent(list, attention),
        Attention::Shared { .. } => shared(list, attention),
    }
}

fn name(part: &str) -> String {
    format!("layers.{{layer}}.attention.{part}")
}

impl List<'_> {
    fn column(&mut self, part: &str, shape: &[u64]) {
        self.matrix(&name(part), Module::Attention, Role::Column(0), shape);
    }

    fn whole(&mut self, part: &str, shape: &[u64]) {
        self.matrix(&name(part), Module::Attention, Role::Replicated, shape);
    }

    fn out(&mut self, part: &str, shape: &[u64]) {
        self.residual_matrix(&name(part), Module::Attention, Role::Row(1), shape);
    }

    /// A vector with an entry for each head, that a rank has for its own heads.
    fn per_head(&mut self, part: &str, shape: &[u64], init: Init) {
        self.push(&name(part), Module::Attention, Role::Column(0), shape, init, false);
    }
}

fn grouped(list: &mut List<'_>, attention: &Attention) {
    let &Attention::Gqa {
        heads,
        kv_heads,
        head_dim,
        qk_norm,
        qkv_bias,
        out_bias,
        sinks,
        output_gate,
        values_are_keys,
        shared_kv,
        value_dim,
        head_gate,
        ..
    } = attention
    else {
        return;
    };
    let hidden = list.architecture.hidden_size;
    if sinks {
        list.bias(&name("sinks"), Module::Attention, Role::Column(0), &[heads]);
    }
    // Of each kv head: its queries, their gates, a key, a value.
    let queries = heads / kv_heads.max(1) * (1 + u64::from(output_gate));
    let own = if shared_kv { 0 } else { 2 - u64::from(values_are_keys) };
    let rows = [kv_heads, queries + own, head_dim];
    let (part, role) = if shared_kv { ("q", Role::Column(0)) } else { ("qkv", Role::Qkv) };
    let matrix = name(&format!("{part}.weight"));
    let value_dim = value_dim.filter(|&width| width != head_dim && own > 1);
    if let Some(width) = value_dim {
        // Rows of different widths can't be a dim of their own; whole groups are cut all the same.
        let rows = [kv_heads, (queries + 1) * head_dim + width];
        list.matrix(&matrix, Module::Attention, Role::Column(0), &[rows[0], rows[1], hidden]);
        if qkv_bias {
            list.bias(&name("qkv.bias"), Module::Attention, Role::Column(0), &rows);
        }
    } else {
        list.matrix(&matrix, Module::Attention, role, &[rows[0], rows[1], rows[2], hidden]);
        if qkv_bias {
            list.bias(&name(&format!("{part}.bias")), Module::Attention, role, &rows);
        }
    }
    if head_gate {
        list.column("gate.weight", &[heads, hidden]);
    }
    for (part, heads) in
        [("q_norm", heads), ("k_norm", kv_heads)].into_iter().take(1 + usize::from(!shared_kv))
    {
        match qk_norm {
            QkNorm::None | QkNorm::Plain => {}
            QkNorm::PerHead => list.norm(&name(part), Role::SharedByHeads, &[head_dim], Norm::Rms),
            QkNorm::PerHeadLayer => list.norm(&name(part), Role::SharedByHeads, &[head_dim], Norm::Layer),
            QkNorm::Full => list.norm(&name(part), Role::Column(0), &[heads, head_dim], Norm::Rms),
            QkNorm::EachHead => {
                list.norm(&name(part), Role::Column(0), &[heads, head_dim], Norm::LayerWeight);
            }
        }
    }
    list.out("proj.weight", &[hidden, heads, value_dim.unwrap_or(head_dim)]);
    if out_bias {
        list.bias(&name("proj.bias"), Module::Attention, Role::Replicated, &[hidden]);
    }
}

fn latent(list: &mut List<'_>, attention: &Attention) {
    let &Attention::Mla {
        heads,
        q_lora_rank,
        kv_lora_rank,
        qk_nope_dim,
        qk_rope_dim,
        v_dim,
        qk_norm,
        ref indexer,
        output_gate,
        joint_gate,
        sinks,
        head_gate,
        scores: _,
    } = attention
    else {
        return;
    };
    let (hidden, query) = (list.architecture.hidden_size, qk_nope_dim + qk_rope_dim);
    let kind = list.architecture.norm;
    if sinks {
        list.bias(&name("sinks"), Module::Attention, Role::Column(0), &[heads]);
    }
    match q_lora_rank {
        Some(rank) => {
            list.whole("q_down.weight", &[rank, hidden]);
            if qk_norm {
                list.norm(&name("q_norm"), Role::Replicated, &[rank], kind);
            }
            if joint_gate {
                list.column("q_up.weight", &[heads, query + v_dim, 2 * rank]);
            } else {
                list.column("q_up.weight", &[heads, query, rank]);
            }
        }
        None => list.column("q.weight", &[heads, query, hidden]),
    }
    list.whole("kv_down.weight", &[kv_lora_rank + qk_rope_dim, hidden]);
    if qk_norm {
        list.norm(&name("kv_norm"), Role::Replicated, &[kv_lora_rank], kind);
    }
    list.column("kv_up.weight", &[heads, qk_nope_dim + v_dim, kv_lora_rank]);
    if let Some(Indexer { heads, head_dim }) = *indexer {
        // Megatron-Core keeps the indexer whole on every tensor-parallel rank.
        list.whole("indexer.q.weight", &[heads, head_dim, q_lora_rank.unwrap_or(hidden)]);
        list.whole("indexer.k.weight", &[head_dim, hidden]);
        list.norm(&name("indexer.k_norm"), Role::Replicated, &[head_dim], Norm::Layer);
        list.whole("indexer.scores.weight", &[heads, hidden]);
    }
    if output_gate && !joint_gate {
        list.column("gate.weight", &[heads, v_dim, hidden]);
    }
    if head_gate {
        list.column("gate.weight", &[heads, hidden]);
    }
    list.out("proj.weight", &[hidden, heads, v_dim]);
}

fn shared(list: &mut List<'_>, attention: &Attention) {
    let &Attention::Shared {
        heads,
        head_dim,
        q_lora_rank,
        out_groups,
        out_lora_rank,
        compressed,
        ref indexer,
        ..
    } = attention
    else {
        return;
    };
    let hidden = list.architecture.hidden_size;
    list.bias(&name("sinks"), Module::Attention, Role::Column(0), &[heads]);
    list.whole("q_down.weight", &[q_lora_rank, hidden]);
    list.norm(&name("q_norm"), Role::Replicated, &[q_lora_rank], Norm::Rms);
    list.column("q_up.weight", &[heads, head_dim, q_lora_rank]);
    list.whole("kv.weight", &[head_dim, hidden]);
    list.norm(&name("kv_norm"), Role::Replicated, &[head_dim], Norm::Rms);
    if let Some(tokens) = compressed {
        // With an indexer, compressed spans overlap: two keys are made of each.
        let spans = 1 + u64::from(indexer.is_some());
        compressor(list, "compressor", tokens, spans, head_dim);
        if let Some(Indexer { heads, head_dim }) = *indexer {
            compressor(list, "indexer", tokens, spans, head_dim);
            list.whole("indexer.q.weight", &[heads, head_dim, q_lora_rank]);
            list.whole("indexer.scores.weight", &[heads, hidden]);
        }
    }
    let group = heads * head_dim / out_groups.max(1);
    list.column("group_proj.weight", &[out_groups, out_lora_rank, group]);
    list.out("proj.weight", &[hidden, out_groups, out_lora_rank]);
}

fn compressor(list: &mut List<'_>, part: &str, tokens: u64, spans: u64, head_dim: u64) {
    let (hidden, name) = (list.architecture.hidden_size, name(part));
    for matrix in ["kv", "gate"] {
        list.whole(&format!("{part}.{matrix}.weight"), &[spans, head_dim, hidden]);
    }
    list.bias(&format!("{name}.positions"), Module::Attention, Role::Replicated, &[tokens, spans, head_dim]);
    list.norm(&format!("{name}.norm"), Role::Replicated, &[head_dim], Norm::Rms);
}

fn delta_net(list: &mut List<'_>, delta: &DeltaNet) {
    let &DeltaNet { key_heads, value_heads, key_dim, value_dim, conv_kernel } = delta;
    let hidden = list.architecture.hidden_size;
    let values = value_heads / key_heads.max(1);
    // Of each key head: query, key, its value heads, their gates, and two scalars of each value head.
    let rows = 2 * key_dim + 2 * values * value_dim + 2 * values;
    list.column("in_proj.weight", &[key_heads, rows, hidden]);
    list.column("conv.weight", &[key_heads, 2 * key_dim + values * value_dim, conv_kernel]);
    list.per_head("decay", &[value_heads], Init::Zeros);
    list.per_head("step_bias", &[value_heads], Init::Ones);
    list.norm(&name("out_norm"), Role::SharedByHeads, &[value_dim], Norm::Rms);
    list.out("proj.weight", &[hidden, value_heads, value_dim]);
}

fn kimi_delta(list: &mut List<'_>, delta: &KimiDelta) {
    let &KimiDelta { heads, head_dim, conv_kernel, full_rank_gate, full_rank_decay } = delta;
    let hidden = list.architecture.hidden_size;
    // Of each head: query, key, value.
    list.column("qkv.weight", &[heads, 3, head_dim, hidden]);
    list.column("conv.weight", &[heads, 3, head_dim, conv_kernel]);
    if full_rank_decay {
        list.column("decay_proj.weight", &[heads, head_dim, hidden]);
    } else {
        list.whole("decay_down.weight", &[head_dim, hidden]);
        list.column("decay_up.weight", &[heads, head_dim, head_dim]);
    }
    list.per_head("decay", &[heads], Init::Zeros);
    list.per_head("step_bias", &[heads, head_dim], Init::Ones);
    list.column("beta.weight", &[heads, hidden]);
    if full_rank_gate {
        list.column("gate.weight", &[heads, head_dim, hidden]);
    } else {
        list.whole("gate_down.weight", &[head_dim, hidden]);
        list.column("gate_up.weight", &[heads, head_dim, head_dim]);
    }
    list.norm(&name("out_norm"), Role::SharedByHeads, &[head_dim], Norm::Rms);
    list.out("proj.weight", &[hidden, heads, head_dim]);
}

fn mamba2(list: &mut List<'_>, mamba: &Mamba2) {
    let &Mamba2 { heads, head_dim, groups, state, conv_kernel, conv_bias, proj_bias, out_norm } = mamba;
    let hidden = list.architecture.hidden_size;
    let inner = heads / groups.max(1) * head_dim;
    // Of each group: gate and input of its heads, two state matrices, a step of each head.
    let rows = [groups, 2 * inner + 2 * state + heads / groups.max(1)];
    list.column("in_proj.weight", &[rows[0], rows[1], hidden]);
    if proj_bias {
        list.per_head("in_proj.bias", &rows, Init::Zeros);
    }
    list.column("conv.weight", &[groups, inner + 2 * state, conv_kernel]);
    if conv_bias {
        list.per_head("conv.bias", &[groups, inner + 2 * state], Init::Zeros);
    }
    list.per_head("step_bias", &[heads], Init::Ones);
    list.per_head("decay", &[heads], Init::Zeros);
    list.per_head("skip", &[heads], Init::Ones);
    if out_norm {
        list.norm(&name("out_norm"), Role::Column(0), &[groups, inner], Norm::Rms);
    }
    list.out("proj.weight", &[hidden, heads, head_dim]);
    if proj_bias {
        list.bias(&name("proj.bias"), Module::Attention, Role::Replicated, &[hidden]);
    }
}
