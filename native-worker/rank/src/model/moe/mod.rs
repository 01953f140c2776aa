//! A mixture of experts: router, routed experts in the stream's width or in a latent one, shared experts or a dense branch.

pub mod balance;
mod branches;
mod dispatch;
mod experts;
mod products;
mod router;

use std::rc::Rc;

use anyhow::Context;
use planner::Plan;
use planner::layout::GroupKind;
use planner::model::Moe;

use super::activation::Unit;
use super::functions::row_linear;
use super::mlp::Mlp;
use super::names::Names;
use super::norm::Norm;
use super::settings::{Pass, Settings};
use crate::collectives::Collectives;
use crate::tape::{Flow, Tape};
use balance::{Balancer, Bias, TokenGroups};
use branches::Branches;
use dispatch::ExpertGrid;
use experts::{Doing, Expert, routed};
use router::{Router, Tokens};

/// Experts of a layer, as a rank has them.
pub struct Mixture {
    router: Rc<Router>,
    experts: Vec<Expert>,
    unit: Unit,
    weighs_inputs: bool,
    grid: ExpertGrid,
    latent_down: Option<usize>,
    latent_norm: Option<Norm>,
    latent_up: Option<usize>,
    shared_gate: Option<usize>,
    shared: Option<Mlp>,
    branches: Option<Branches>,
}

impl Mixture {
    /// Finds the parts of the layer with this name's prefix.
    ///
    /// # Errors
    /// When one is missing, or the planner made no expert groups.
    pub fn find(
        plan: &Plan,
        moe: &Moe,
        names: &Names<'_>,
        prefix: &str,
        world: &dyn Collectives,
    ) -> anyhow::Result<Mixture> {
        let named = |part: &str| names.take(&format!("{prefix}.moe.{part}"));
        let optional = |wanted: bool, part: &str| wanted.then(|| named(part)).transpose();
        let bias = plan.model.mlp_bias;
        let local = moe.experts / plan.layout.ep;
        let first = plan.place_of(world.rank() as u64).ep * local;
        let experts = (first..first + local)
            .map(|expert| {
                let part = |part: &str| format!("experts.{expert}.{part}");
                anyhow::Ok(Expert {
                    fc1: named(&part("fc1.weight"))?,
                    fc1_bias: optional(bias, &part("fc1.bias"))?,
                    fc2: named(&part("fc2.weight"))?,
                    fc2_bias: optional(bias, &part("fc2.bias"))?,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let groups = TokenGroups {
            tp: world.mine(GroupKind::Tp)?,
            cp: world.mine(GroupKind::Cp)?,
            dp_cp: world.mine(GroupKind::DpCp)?,
            experts: [world.mine(GroupKind::Etp)?, world.mine(GroupKind::Ep)?, world.mine(GroupKind::Edp)?],
        };
        let rate = moe.routing.bias_update_rate;
        let bias = (moe.router_bias_buffer > 0)
            .then(|| anyhow::Ok(Bias { values: names.buffer(i64::try_from(moe.experts)?)?, rate }));
        let bias = bias.transpose()?;
        let latent = moe.latent_size.is_some();
        let epsilon = plan.model.norm_eps;
        let latent_norm = (latent && moe.latent_norm).then(|| named("latent_norm.weight")).transpose()?;
        Ok(Mixture {
            router: Rc::new(Router {
                weight: named("router.weight")?,
                bias: optional(moe.router_bias, "router.bias")?,
                top_k: i64::try_from(moe.top_k)?,
                routing: moe.routing.clone(),
                balancer: Balancer::new(groups, bias),
            }),
            experts,
            unit: Unit::new(&plan.model),
            weighs_inputs: moe.weighs_inputs,
            grid: ExpertGrid { ep: world.mine(GroupKind::Ep)?, etp: world.mine(GroupKind::Etp)? },
            latent_down: optional(latent, "latent_down.weight")?,
            latent_norm: latent_norm.map(|weight| Norm::rms_of(weight, epsilon)),
            latent_up: optional(latent, "latent_up.weight")?,
            shared_gate: optional(moe.shared_gate, "shared.gate.weight")?,
            shared: (moe.shared_ffn_hidden_size > 0)
                .then(|| Mlp::find(plan, names, &format!("{prefix}.moe.shared")))
                .transpose()?,
            branches: moe.scaled_branches.then(|| Branches::find(plan, names, prefix)).transpose()?,
        })
    }

    /// What the experts add to the residual stream, whole on this rank's tokens, of the stream and what its norm made.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn forward<'a>(
        &'a self,
        tape: &mut Tape<'a>,
        settings: &'a Settings,
        pass: &Pass,
        stream: &Flow,
        normed: Flow,
    ) -> anyhow::Result<Flow> {
        let positions = pass.stream_places(settings, tape)?;
        let tokens = Tokens {
            positions,
            sequences: normed.data().size().get(1).copied().context("a stream without sequences")?,
            loss_scale: pass.balance_scale,
        };
        let (of_router, given) = match &self.branches {
            Some(branches) => branches.given(tape, stream)?,
            None => (normed.another(), normed.another()),
        };
        let mut routing = self.router.route(tape, &of_router, &tokens)?;
        drop(of_router);
        if let Some(branches) = &self.branches {
            routing.shares = branches.scaled(tape, &routing)?;
        }
        let again = settings.recompute.module("moe_act");
        let doing = Doing { unit: self.unit, weighs_inputs: self.weighs_inputs, again };
        let mut update = match self.latent_down {
            None => routed(tape, &self.experts, doing, &given, routing, self.grid)?,
            Some(down) => {
                let latent = row_linear(tape, &given, down)?;
                routed(tape, &self.experts, doing, &latent, routing, self.grid)?
            }
        };
        drop(given);
        if let Some(norm) = &self.latent_norm {
            update = norm.forward(tape, &update)?;
        }
        if let Some(up) = self.latent_up {
            update = row_linear(tape, &update, up)?;
        }
        if let Some(branches) = &self.branches {
            update = branches.experts_post_norm.forward(tape, &update)?;
        }
        let Some(shared) = &self.shared else { return Ok(update) };
        let gate = self.shared_gate.map(|gate| row_linear(tape, &normed, gate)).transpose()?;
        let mut beside = {
            let partial = if settings.recompute.module("shared_experts") {
                tape.checkpoint(&[&normed], move |tape, mut inputs| {
                    shared.partial(tape, settings, inputs.remove(0))
                })?
            } else {
                shared.partial(tape, settings, normed)?
            };
            shared.finish(tape, settings, partial)?
        };
        if let Some(gate) = gate {
            beside = tape
                .segment(&[&beside, &gate], &[], |inputs, _| Ok(inputs[0].f_mul(&inputs[1].f_sigmoid()?)?))?;
        }
        if let Some(branches) = &self.branches {
            beside = branches.shared_post_norm.forward(tape, &beside)?;
        }
        tape.add(&update, &beside)
    }

    /// What keeps its experts busy alike.
    pub fn balancer(&self) -> &Balancer {
        &self.router.balancer
    }

    /// The bias on the choice of experts, with the number of the router's weight; none where there is none.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn expert_bias(&self) -> anyhow::Result<Option<(usize, Vec<f64>)>> {
        Ok(self.router.balancer.values()?.map(|bias| (self.router.weight, bias)))
    }

    /// Sets it, if the router is the one with this weight.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn set_expert_bias(&self, weight: usize, bias: &[f64]) -> anyhow::Result<()> {
        if self.router.weight == weight {
            self.router.balancer.set(bias)?;
        }
        Ok(())
    }
}
