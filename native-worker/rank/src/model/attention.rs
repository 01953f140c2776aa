//! Grouped-query attention: fused projections, norms of queries, keys and values, rotation, sinks, a gate on the output.

use std::rc::Rc;

use anyhow::{Context, ensure};
use planner::Plan;
use planner::model::{Attention, Rotation};
use tch::Tensor;

use super::context::{Heads, attention};
use super::functions::{column_linear, row_linear};
use super::names::Names;
use super::parallel::gather_columns;
use super::qk_norm::HeadNorms;
use super::scores::Rule;
use super::settings::{Pass, Settings};
use crate::collectives::Collectives;
use crate::tape::{Flow, Tape};

/// Numbers of the parameters, and how this rank's heads lie in what the fused matrix makes.
pub struct Grouped {
    /// Fused query, key and value matrix, and bias.
    mixed: Vec<usize>,
    norms: HeadNorms,
    /// Epsilon of the norm of values, where they have one.
    value_norm: Option<f64>,
    sinks: Option<usize>,
    proj: usize,
    proj_bias: Option<usize>,
    rows: Rows,
    rotation: Option<Rotation>,
    rule: Rule,
}

/// Rows of the fused matrix: of each kv head its query heads, their gates, a key, and a value where that is another.
#[derive(Debug, Clone, Copy)]
struct Rows {
    kv_heads: i64,
    queries: i64,
    gated: bool,
    values_are_keys: bool,
    dim: i64,
    /// Where the fused matrix is cut through kv heads: this rank's kv head, and its first query head and their number.
    own: Option<[i64; 3]>,
}

/// What a token's heads are made of, `[s, b, heads, d]` each.
struct Parts {
    query: Tensor,
    gate: Option<Tensor>,
    key: Tensor,
    value: Tensor,
}

impl Rows {
    fn heads(&self) -> Heads {
        let (queries, keys) = match self.own {
            Some([_, _, queries]) => (queries, 1),
            None => (self.queries * self.kv_heads, self.kv_heads),
        };
        Heads { queries, keys, key_dim: self.dim, value_dim: self.dim }
    }

    fn apart(&self, mixed: &Tensor) -> anyhow::Result<Parts> {
        let (size, d) = (mixed.size(), self.dim);
        let (s, b) = (size[0], size[1]);
        let gates = if self.gated { self.queries } else { 0 };
        let key = self.queries + gates;
        let value = key + i64::from(!self.values_are_keys);
        let rows = value + 1;
        let all = mixed.f_view([s, b, self.kv_heads, rows, d])?;
        let (all, first, count) = match self.own {
            Some([kv_head, first, count]) => (all.f_narrow(2, kv_head, 1)?, first, count),
            None => (all, 0, self.queries),
        };
        let flat = |start: i64| -> anyhow::Result<Tensor> {
            Ok(all.f_narrow(3, start + first, count)?.f_reshape([s, b, -1, d])?)
        };
        Ok(Parts {
            query: flat(0)?,
            gate: self.gated.then(|| flat(self.queries)).transpose()?,
            key: all.f_select(3, key)?,
            value: all.f_select(3, value)?,
        })
    }
}

/// Heads one after the other in a token.
fn pack(heads: &[Tensor]) -> anyhow::Result<Tensor> {
    let flat = |heads: &Tensor| -> anyhow::Result<Tensor> {
        let size = heads.size();
        Ok(heads.f_reshape([size[0], size[1], size[2] * size[3]])?)
    };
    Ok(Tensor::f_cat(&heads.iter().map(flat).collect::<Result<Vec<_>, _>>()?, -1)?)
}

impl Grouped {
    /// Finds the parts of the attention with this name.
    ///
    /// # Errors
    /// When one is missing, or is cut as the executor can't use it.
    pub fn find(
        plan: &Plan,
        attention: &Attention,
        names: &Names<'_>,
        name: &str,
        world: &dyn Collectives,
    ) -> anyhow::Result<Grouped> {
        let &Attention::Gqa {
            heads,
            kv_heads,
            head_dim,
            rotary_dim: _,
            qk_norm,
            qkv_bias,
            out_bias,
            sinks,
            output_gate,
            values_are_keys,
            value_norm,
            shared_kv,
            // Whatever these would change is among the planner's limits of the executor.
            value_dim: _,
            head_gate: _,
            ref scores,
        } = attention
        else {
            anyhow::bail!("not grouped-query attention");
        };
        ensure!(!shared_kv, "the executor has no keys and values of an earlier layer yet");
        let part = |part: &str| format!("{name}.{part}");
        let matrix = names.take(&part("qkv.weight"))?;
        let shard = names.shard(matrix);
        let (tp, index) = (plan.layout.tp, plan.place_of(world.rank() as u64).tp);
        let queries = heads / kv_heads;
        // The planner cuts whole kv heads, or a plain matrix of rows where there are fewer of them than ranks.
        let own = (shard.shape.len() == 2).then(|| {
            let ranks = tp / kv_heads;
            [index / ranks, index % ranks * (heads / tp), heads / tp].map(|number| number as i64)
        });
        let local =
            if own.is_some() { kv_heads } else { *shard.computed_shape().first().context("a shape")? };
        Ok(Grouped {
            mixed: [Some(matrix), names.optional(qkv_bias, &part("qkv.bias"))?]
                .into_iter()
                .flatten()
                .collect(),
            norms: HeadNorms::find(&plan.model, qk_norm, scores.norm_after_rotation, names, name)?,
            value_norm: value_norm.then_some(plan.model.norm_eps),
            sinks: names.optional(sinks, &part("sinks"))?,
            proj: names.take(&part("proj.weight"))?,
            proj_bias: names.optional(out_bias, &part("proj.bias"))?,
            rows: Rows {
                kv_heads: i64::try_from(local)?,
                queries: i64::try_from(queries)?,
                gated: output_gate,
                values_are_keys,
                dim: i64::try_from(head_dim)?,
                own,
            },
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
        let mut mixed = column_linear(tape, &normed, &self.mixed, settings.sequence_parallel)?;
        drop(normed);
        if self.rows.own.is_some() {
            mixed = gather_columns(tape, mixed)?;
        }
        let gate = match self.rows.gated {
            true => Some(tape.segment(&[&mixed], &[], |inputs, _| {
                let parts = self.rows.apart(&inputs[0])?;
                pack(&[parts.gate.context("a gate")?])
            })?),
            false => None,
        };
        let pass = pass.clone();
        let core = move |tape: &mut Tape<'a>, mixed: Flow| self.core(tape, settings, &pass, mixed);
        let mut heads = if settings.recompute.module("core_attn") {
            tape.checkpoint(&[&mixed], move |tape, mut inputs| core(tape, inputs.remove(0)))?
        } else {
            core(tape, mixed)?
        };
        if let Some(gate) = gate {
            heads = gated(tape, &heads, &gate)?;
        }
        let partial = row_linear(tape, &heads, self.proj)?;
        drop(heads);
        settings.onto_stream(tape, partial, self.proj_bias)
    }

    /// Query-key norm, rotation and attention itself.
    fn core(
        &self,
        tape: &mut Tape<'_>,
        settings: &Settings,
        pass: &Pass,
        mixed: Flow,
    ) -> anyhow::Result<Flow> {
        let (rows, heads) = (self.rows, self.rows.heads());
        let tables = pass.tables(self.rotation.as_ref());
        let rotated = |heads: Tensor| match tables {
            Some(tables) => tables.rotate(&heads),
            None => Ok(heads),
        };
        let valued = |value: Tensor| match self.value_norm {
            Some(epsilon) => anyhow::Ok(value.f_rms_norm([rows.dim], None::<&Tensor>, epsilon)?),
            None => Ok(value),
        };
        let tempered = |query: Tensor| self.rule.tempered(query, &pass.positions);
        let packed = if self.norms.is_over_all_heads() {
            let plain = tape.segment(&[&mixed], &[], |inputs, _| {
                let Parts { query, key, value, .. } = rows.apart(&inputs[0])?;
                pack(&[query, key, value])
            })?;
            drop(mixed);
            let normed = self.norms.over_all_heads(tape, &plain, heads)?;
            drop(plain);
            tape.segment(&[&normed], &[], |inputs, _| {
                let [query, key, value] = heads.parts(&inputs[0])?;
                pack(&[tempered(rotated(query)?)?, rotated(key)?, valued(value)?])
            })?
        } else {
            tape.segment(&[&mixed], self.norms.parameters(), |inputs, weights| {
                let Parts { query, key, value, .. } = rows.apart(&inputs[0])?;
                let [of_query, of_key] = self.norms.weights(weights);
                let turned = |heads: Tensor, weights: &[Tensor]| match self.norms.behind_rotation {
                    false => rotated(self.norms.normed(heads, weights)?),
                    true => self.norms.normed(rotated(heads)?, weights),
                };
                pack(&[tempered(turned(query, of_query)?)?, turned(key, of_key)?, valued(value)?])
            })?
        };
        attention(tape, settings, pass, &packed, heads, self.sinks, &self.rule)
    }
}

/// Heads behind a gate: `heads * sigmoid(gate)`.
///
/// # Errors
/// When libtorch fails.
pub fn gated(tape: &mut Tape<'_>, heads: &Flow, gate: &Flow) -> anyhow::Result<Flow> {
    tape.segment(&[heads, gate], &[], |inputs, _| Ok(inputs[0].f_mul(&inputs[1].f_sigmoid()?)?))
}
