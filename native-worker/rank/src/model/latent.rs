//! Multi-head latent attention: queries, keys and values from low-rank streams, and one rotated key for all heads.

use std::rc::Rc;

use anyhow::ensure;
use planner::Plan;
use planner::model::{Architecture, Attention, Rotation};
use tch::Tensor;

use super::attention::gated;
use super::context::{Heads, attention};
use super::functions::{column_linear, row_linear};
use super::names::Names;
use super::norm::Norm;
use super::parallel::to_all_heads;
use super::scores::Rule;
use super::settings::{Pass, Settings};
use crate::tape::{Flow, Tape};

/// Numbers of the parameters, and the widths of a head.
pub struct Latent {
    query: Query,
    kv_down: usize,
    kv_norm: Norm,
    kv_up: usize,
    gate: Option<usize>,
    proj: usize,
    heads: i64,
    latent: i64,
    nope: i64,
    rope: i64,
    value: i64,
    rotation: Option<Rotation>,
    rule: Rule,
}

/// How queries are projected.
enum Query {
    /// At once.
    Full(usize),
    /// Down, normed, up.
    Low { down: usize, norm: Norm, up: usize },
}

/// Part of a model by which its low-rank norms have an epsilon of their own (transformers' DeepSeek).
const LOW_RANK_EPSILON: &str = "epsilon of low-rank norms";

fn rms(architecture: &Architecture, names: &Names<'_>, name: &str) -> anyhow::Result<Norm> {
    let own = architecture.parts.get(LOW_RANK_EPSILON).and_then(serde_json::Value::as_f64);
    let norm = Norm::rms(architecture, names, name)?;
    Ok(Norm { epsilon: own.unwrap_or(norm.epsilon), ..norm })
}

impl Latent {
    /// Finds the parts of the attention with this name.
    ///
    /// # Errors
    /// When one is missing.
    pub fn find(plan: &Plan, attention: &Attention, names: &Names<'_>, name: &str) -> anyhow::Result<Latent> {
        let Attention::Mla {
            heads,
            q_lora_rank,
            kv_lora_rank,
            qk_nope_dim,
            qk_rope_dim,
            v_dim,
            qk_norm,
            indexer,
            output_gate,
            // Whatever these would change is among the planner's limits of the executor.
            joint_gate: _,
            sinks: _,
            head_gate: _,
            scores,
        } = attention
        else {
            anyhow::bail!("not latent attention");
        };
        ensure!(qk_norm, "the executor has no latent attention without norms yet");
        ensure!(indexer.is_none(), "the executor has no sparse attention by an indexer yet");
        let part = |part: &str| format!("{name}.{part}");
        let query = match q_lora_rank {
            Some(_) => Query::Low {
                down: names.take(&part("q_down.weight"))?,
                norm: rms(&plan.model, names, &part("q_norm"))?,
                up: names.take(&part("q_up.weight"))?,
            },
            None => Query::Full(names.take(&part("q.weight"))?),
        };
        Ok(Latent {
            query,
            kv_down: names.take(&part("kv_down.weight"))?,
            kv_norm: rms(&plan.model, names, &part("kv_norm"))?,
            kv_up: names.take(&part("kv_up.weight"))?,
            gate: names.optional(*output_gate, &part("gate.weight"))?,
            proj: names.take(&part("proj.weight"))?,
            heads: i64::try_from(heads / plan.layout.tp)?,
            latent: i64::try_from(*kv_lora_rank)?,
            nope: i64::try_from(*qk_nope_dim)?,
            rope: i64::try_from(*qk_rope_dim)?,
            value: i64::try_from(*v_dim)?,
            rotation: plan.model.rotation(attention),
            rule: Rule::new(plan, scores)?,
        })
    }

    /// What attention adds to the residual stream.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn forward<'a>(
        &'a self,
        tape: &mut Tape<'a>,
        settings: &'a Settings,
        pass: &Rc<Pass>,
        normed: Flow,
    ) -> anyhow::Result<Flow> {
        let parallel = settings.sequence_parallel;
        let query = match &self.query {
            Query::Full(matrix) => column_linear(tape, &normed, &[*matrix], parallel)?,
            Query::Low { down, norm, .. } => {
                let low = row_linear(tape, &normed, *down)?;
                norm.forward(tape, &low)?
            }
        };
        let both = row_linear(tape, &normed, self.kv_down)?;
        let gate = self.gate.map(|gate| column_linear(tape, &normed, &[gate], parallel)).transpose()?;
        drop(normed);
        let (latent, rope) = (self.latent, self.rope);
        let low = tape
            .segment(&[&both], &[], |inputs, _| Ok(inputs[0].f_narrow(-1, 0, latent)?.f_contiguous()?))?;
        let turned = tape.segment(&[&both], &[], |inputs, _| {
            Ok(inputs[0].f_narrow(-1, latent, rope)?.f_contiguous()?)
        })?;
        drop(both);
        let turned = to_all_heads(tape, turned, parallel)?;
        let normed = self.kv_norm.forward(tape, &low)?;
        drop(low);
        let pass = pass.clone();
        let core = move |tape: &mut Tape<'a>, query: Flow, low: Flow, turned: Flow| {
            self.core(tape, settings, &pass, query, low, turned)
        };
        let mut heads = if ["mla_up_proj", "core_attn"].iter().any(|name| settings.recompute.module(name)) {
            tape.checkpoint(&[&query, &normed, &turned], move |tape, inputs| {
                let [query, low, turned] = <[Flow; 3]>::try_from(inputs)
                    .map_err(|inputs| anyhow::anyhow!("{} inputs instead of 3", inputs.len()))?;
                core(tape, query, low, turned)
            })?
        } else {
            core(tape, query, normed, turned)?
        };
        if let Some(gate) = gate {
            heads = gated(tape, &heads, &gate)?;
        }
        let partial = row_linear(tape, &heads, self.proj)?;
        drop(heads);
        settings.onto_stream(tape, partial, None)
    }

    /// Up projections, rotation and attention itself, from the low-rank streams.
    fn core(
        &self,
        tape: &mut Tape<'_>,
        settings: &Settings,
        pass: &Pass,
        query: Flow,
        low: Flow,
        turned: Flow,
    ) -> anyhow::Result<Flow> {
        let parallel = settings.sequence_parallel;
        let query = match &self.query {
            Query::Full(_) => query,
            Query::Low { up, .. } => column_linear(tape, &query, &[*up], parallel)?,
        };
        let both = column_linear(tape, &low, &[self.kv_up], parallel)?;
        drop(low);
        let (heads, nope, rope, value) = (self.heads, self.nope, self.rope, self.value);
        let tables = pass.tables(self.rotation.as_ref());
        let rotated = |heads: Tensor| match tables {
            Some(tables) => tables.rotate(&heads),
            None => Ok(heads),
        };
        let packed = tape.segment(&[&query, &both, &turned], &[], |inputs, _| {
            let size = inputs[0].size();
            let (s, b) = (size[0], size[1]);
            let query = inputs[0].f_view([s, b, heads, nope + rope])?;
            let both = inputs[1].f_view([s, b, heads, nope + value])?;
            let query = Tensor::f_cat(
                &[query.f_narrow(-1, 0, nope)?, rotated(query.f_narrow(-1, nope, rope)?)?],
                -1,
            )?;
            let query = self.rule.tempered(query, &pass.positions)?;
            let shared = rotated(inputs[2].f_unsqueeze(2)?)?.f_expand([s, b, heads, rope], false)?;
            let key = Tensor::f_cat(&[both.f_narrow(-1, 0, nope)?, shared], -1)?;
            let value = both.f_narrow(-1, nope, value)?;
            let flat = |heads: &Tensor| heads.f_reshape([s, b, -1]);
            Ok(Tensor::f_cat(&[flat(&query)?, flat(&key)?, flat(&value)?], -1)?)
        })?;
        drop((query, both, turned));
        let heads = Heads { queries: heads, keys: heads, key_dim: nope + rope, value_dim: value };
        attention(tape, settings, pass, &packed, heads, None, &self.rule)
    }
}
