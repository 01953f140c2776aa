//! One transformer layer on the tape.

use std::rc::Rc;

use anyhow::ensure;
use tch::Tensor;

use super::functions::{column_linear, rms_norm, row_linear, swiglu};
use super::parts::Layer;
use super::{Model, Tables};
use crate::tape::{Flow, Tape};

impl Model {
    /// The residual stream behind a layer.
    pub(super) fn layer<'a>(
        &'a self,
        tape: &mut Tape<'a>,
        layer: &'a Layer,
        stream: Flow,
        tables: &Rc<Tables>,
    ) -> anyhow::Result<Flow> {
        let normed = rms_norm(tape, &stream, layer.attention_norm, self.norm_eps)?;
        let partial = self.attention(tape, layer, normed, tables)?;
        let stream = self.residual(tape, stream, partial)?;
        let mlp = move |tape: &mut Tape<'a>, stream: &Flow| {
            let normed = rms_norm(tape, stream, layer.mlp_norm, self.norm_eps)?;
            self.mlp(tape, layer, normed)
        };
        let partial = if self.recompute.module("mlp") {
            // The norm too: its input is kept anyway.
            tape.checkpoint(&[&stream], move |tape, inputs| mlp(tape, &inputs[0]))?
        } else {
            mlp(tape, &stream)?
        };
        self.residual(tape, stream, partial)
    }

    fn residual(&self, tape: &mut Tape<'_>, stream: Flow, partial: Flow) -> anyhow::Result<Flow> {
        let update = tape.exchange(self.onto_stream(), partial)?;
        tape.add(&stream, &update)
    }

    fn attention<'a>(
        &'a self,
        tape: &mut Tape<'a>,
        layer: &'a Layer,
        normed: Flow,
        tables: &Rc<Tables>,
    ) -> anyhow::Result<Flow> {
        let matrix: Vec<usize> = [Some(layer.qkv), layer.qkv_bias].into_iter().flatten().collect();
        // For each kv head: its query heads, then key, then value.
        let size = tape.weight(layer.qkv).size();
        let (kv_heads, rows) = (size[0], size[1]);
        ensure!(rows > 2, "the planner gives {rows} rows for each key-value head, with no query head in it");
        let mixed = column_linear(tape, &normed, &matrix, self.sequence_parallel)?;
        drop(normed);
        let tables = tables.clone();
        let core = move |tape: &mut Tape<'a>, mixed: &Flow| {
            self.core_attention(tape, layer, mixed, (kv_heads, rows), &tables)
        };
        let heads = if self.recompute.module("core_attn") {
            tape.checkpoint(&[&mixed], move |tape, inputs| core(tape, &inputs[0]))?
        } else {
            core(tape, &mixed)?
        };
        drop(mixed);
        row_linear(tape, &heads, layer.proj)
    }

    /// Query-key norm, rotation and attention itself.
    fn core_attention(
        &self,
        tape: &mut Tape<'_>,
        layer: &Layer,
        mixed: &Flow,
        (kv_heads, rows): (i64, i64),
        tables: &Tables,
    ) -> anyhow::Result<Flow> {
        let (shared, Tables { cos, sin }) = (rows - 2, tables);
        let norms: Vec<usize> = [layer.q_norm, layer.k_norm].into_iter().flatten().collect();
        tape.segment(&[mixed], &norms, |inputs, weights| {
            let size = inputs[0].size();
            let (s, b, d) = (size[0], size[1], self.head_dim);
            let mixed = inputs[0].f_view([s, b, kv_heads, rows, d])?;
            let query = mixed.f_narrow(3, 0, shared)?.f_reshape([s, b, kv_heads * shared, d])?;
            let key = mixed.f_select(3, shared)?;
            // Copied, so that what is kept for backward is the values, not all that was mixed with them.
            let value = mixed.f_select(3, shared + 1)?.f_contiguous()?;
            let normed = |heads: Tensor, weight: Option<&Tensor>| match weight {
                Some(weight) => heads.f_rms_norm([d], Some(weight), self.norm_eps),
                None => Ok(heads),
            };
            let query = self.rotary.rotate(&normed(query, weights.first())?, cos, sin)?;
            let key = self.rotary.rotate(&normed(key, weights.get(1))?, cos, sin)?;
            let heads_first = |heads: &Tensor| heads.f_permute([1, 2, 0, 3]);
            let heads = Tensor::f_scaled_dot_product_attention(
                &heads_first(&query)?,
                &heads_first(&key)?,
                &heads_first(&value)?,
                None::<&Tensor>,
                0.0,
                true,
                None,
                shared > 1,
            )?;
            Ok(heads.f_permute([2, 0, 1, 3])?.f_reshape([s, b, kv_heads * shared * d])?)
        })
    }

    fn mlp(&self, tape: &mut Tape<'_>, layer: &Layer, normed: Flow) -> anyhow::Result<Flow> {
        let both = column_linear(tape, &normed, &[layer.fc1], self.sequence_parallel)?;
        drop(normed);
        let activated = swiglu(tape, &both)?;
        drop(both);
        row_linear(tape, &activated, layer.fc2)
    }
}
