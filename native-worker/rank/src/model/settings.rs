//! What all parts of a rank's model share: settings of the plan, and what is known of one micro batch.

use std::collections::BTreeMap;

use anyhow::Context;
use planner::Plan;
use planner::layout::GroupKind;
use tch::{Device, Kind, Tensor};

use super::functions::add_bias;
use super::recompute::Recompute;
use super::rotary::Rotary;
use crate::collectives::{Collectives, GroupId};
use crate::state::kind_of;
use crate::tape::{Exchange, Flow, Tape};

/// Settings of the plan.
pub struct Settings {
    /// Whether the residual stream is cut along the sequence over tensor parallelism.
    pub sequence_parallel: bool,
    /// Type of activations.
    pub compute: Kind,
    /// What is recomputed.
    pub recompute: Recompute,
    /// The context-parallel group.
    pub cp: GroupId,
    theta: f64,
    rotary_dims: Vec<u64>,
    balance_scale: f64,
}

impl Settings {
    /// The plan's; `rotary_dims` are the widths of heads that are rotated.
    ///
    /// # Errors
    /// When the planner made no context-parallel group with this rank.
    pub fn new(plan: &Plan, world: &dyn Collectives, rotary_dims: Vec<u64>) -> anyhow::Result<Settings> {
        let training = &plan.training;
        Ok(Settings {
            sequence_parallel: plan.layout.sp && plan.layout.tp > 1,
            compute: kind_of(training.dtype),
            recompute: Recompute::of(plan),
            cp: world.mine(GroupKind::Cp)?,
            theta: plan.model.rope_theta,
            rotary_dims,
            // The balancing loss is a mean over the micro batches of all replicas.
            balance_scale: training.micro_batch_size as f64 / training.global_batch_size as f64,
        })
    }

    /// From a row-parallel sum to the residual stream.
    fn exchange(&self) -> Exchange {
        if self.sequence_parallel { Exchange::SumScatter } else { Exchange::Sum }
    }

    /// Brings a part of a sum onto the residual stream; a bias is added to the sum.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn onto_stream(
        &self,
        tape: &mut Tape<'_>,
        partial: Flow,
        bias: Option<usize>,
    ) -> anyhow::Result<Flow> {
        let whole = tape.exchange(self.exchange(), partial)?;
        match bias {
            Some(bias) => add_bias(tape, &whole, bias),
            None => Ok(whole),
        }
    }

    /// What is known of a micro batch of `sequences` sequences before it is run.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn pass(&self, positions: Vec<i64>, device: Device) -> anyhow::Result<Pass> {
        let mut tables = BTreeMap::new();
        for &dim in &self.rotary_dims {
            let rotary = Rotary::new(dim, self.theta)?;
            let (cos, sin) = rotary.tables(&positions, self.compute, device)?;
            tables.insert(dim, Tables { rotary, cos, sin });
        }
        Ok(Pass { tables, positions, balance_scale: self.balance_scale })
    }
}

/// Cosines and sines of the positions that a rank holds.
pub struct Tables {
    rotary: Rotary,
    cos: Tensor,
    sin: Tensor,
}

impl Tables {
    /// Rotates `heads`, `[s, b, heads, d]`.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn rotate(&self, heads: &Tensor) -> anyhow::Result<Tensor> {
        self.rotary.rotate(heads, &self.cos, &self.sin)
    }
}

/// What is known of a micro batch before it is run.
pub struct Pass {
    tables: BTreeMap<u64, Tables>,
    /// Positions in the sequence that this rank attends from: all, or its chunks under context parallelism.
    pub positions: Vec<i64>,
    /// What the gradient of the balancing loss of one micro batch is multiplied by.
    pub balance_scale: f64,
}

impl Pass {
    /// Cosines and sines for heads of which `dim` elements are rotated; none for a model with learned positions.
    pub fn tables(&self, dim: u64) -> Option<&Tables> {
        self.tables.get(&dim)
    }

    /// Positions of the residual stream's tokens on this rank.
    ///
    /// # Errors
    /// When this rank is in no tensor-parallel group.
    pub fn stream_positions(&self, settings: &Settings, tape: &Tape<'_>) -> anyhow::Result<&[i64]> {
        if !settings.sequence_parallel {
            return Ok(&self.positions);
        }
        let group = tape.group();
        let (size, index) = (group.size(), group.world.index(group.group)?);
        let each = self.positions.len() / size.max(1);
        self.positions.get(index * each..(index + 1) * each).context("a slice of the sequence")
    }
}
