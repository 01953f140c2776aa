//! Dense and routed branch with norms of their own, and a router with learned scales (Gemma 4): what a layer's norm made
//! is the dense branch's alone, and router and experts are given the residual stream behind norms of theirs.

use planner::Plan;
use tch::Tensor;

use super::router::Routed;
use crate::model::functions::multiplied;
use crate::model::names::Names;
use crate::model::norm::Norm;
use crate::tape::{Flow, Tape};

/// Norms and scales of a layer's two branches.
pub struct Branches {
    /// Of what the router is given; its weight is the router's scale.
    router_norm: Norm,
    /// What that is multiplied by besides: one over the root of the hidden size.
    router_multiplier: f64,
    /// Number of the vector with a scale for each expert's shares, `[experts]`.
    expert_scale: usize,
    /// Of what experts are given.
    experts_norm: Norm,
    /// Of what they give together.
    pub experts_post_norm: Norm,
    /// Of what the dense branch gives.
    pub shared_post_norm: Norm,
}

impl Branches {
    /// Finds them in the layer with this name's prefix.
    ///
    /// # Errors
    /// When one is missing.
    pub fn find(plan: &Plan, names: &Names<'_>, prefix: &str) -> anyhow::Result<Branches> {
        let (architecture, named) = (&plan.model, |part: &str| format!("{prefix}.moe.{part}"));
        let norm = |part: &str| Norm::of_stream(architecture, names, &named(part));
        let scale = names.take(&named("router.scale"))?;
        Ok(Branches {
            router_norm: Norm::rms_of(scale, architecture.norm_eps),
            router_multiplier: (architecture.hidden_size as f64).powf(-0.5),
            expert_scale: names.take(&named("router.expert_scale"))?,
            experts_norm: norm("experts_norm")?,
            experts_post_norm: norm("experts_post_norm")?,
            shared_post_norm: norm("shared_post_norm")?,
        })
    }

    /// What router and experts are given of the residual stream, in that order.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn given(&self, tape: &mut Tape<'_>, stream: &Flow) -> anyhow::Result<(Flow, Flow)> {
        let of_router = self.router_norm.forward(tape, stream)?;
        let of_router = multiplied(tape, of_router, self.router_multiplier)?;
        Ok((of_router, self.experts_norm.forward(tape, stream)?))
    }

    /// Shares of the chosen experts, `[tokens, top_k]`, times the scales of those.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn scaled(&self, tape: &mut Tape<'_>, routed: &Routed) -> anyhow::Result<Flow> {
        let chosen: &Tensor = &routed.chosen;
        tape.segment(&[&routed.shares], &[self.expert_scale], |inputs, weights| {
            let scales = weights[0].f_index_select(0, &chosen.f_reshape([-1])?)?.f_view_as(chosen)?;
            Ok(inputs[0].f_mul(&scales.f_to_kind(inputs[0].kind())?)?)
        })
    }
}
