//! What keeps experts busy alike: losses on how tokens are spread, and a bias on the choice that follows their number.

use std::cell::RefCell;

use planner::model::{Balance, Routing};
use tch::{Device, Kind, Tensor};

use super::router::Tokens;
use crate::collectives::{Collectives, GroupId, Reduce};

/// The groups over which the tokens of a layer are spread.
#[derive(Debug, Clone, Copy)]
pub struct TokenGroups {
    /// Tensor parallelism, which cuts the sequence where there are experts.
    pub tp: GroupId,
    /// Context parallelism, which cuts it too.
    pub cp: GroupId,
    /// Replicas and context parallelism together.
    pub dp_cp: GroupId,
    /// The grid of experts, which has each rank of a stage once.
    pub experts: [GroupId; 3],
}

/// Counts of one layer, kept on the host: the planner counts no bytes for them.
pub struct Balancer {
    groups: TokenGroups,
    /// Added to scores when experts are chosen; none for a router without it.
    bias: RefCell<Option<Vec<f64>>>,
    /// Tokens of each expert in this step, on this rank.
    tokens: RefCell<Vec<f64>>,
    /// Tokens of each expert in the micro batches of this step so far, on all ranks, and how many those are.
    so_far: RefCell<(Vec<f64>, u64)>,
}

/// What the balancing loss multiplies summed shares by: of each expert, or of each expert for each sequence.
pub struct Fractions {
    factors: Tensor,
    /// Sequences told apart, in tokens that alternate between them; none when all tokens count together.
    sequences: Option<i64>,
}

impl Fractions {
    /// The loss, from the shares of all experts, `[tokens, experts]`.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn loss(&self, shares: &Tensor) -> anyhow::Result<Tensor> {
        let kind = shares.kind();
        let sums = summed(shares, self.sequences)?;
        Ok(sums.f_mul(&self.factors)?.f_sum(kind)?)
    }
}

/// Sums over tokens: `[experts]`, or `[sequences, experts]` when they are told apart.
fn summed(values: &Tensor, sequences: Option<i64>) -> anyhow::Result<Tensor> {
    let experts = values.size()[1];
    let apart = match sequences {
        Some(sequences) => values.f_view([-1, sequences, experts])?,
        None => values.shallow_clone(),
    };
    Ok(apart.f_sum_dim_intlist([0_i64].as_slice(), false, values.kind())?)
}

impl Balancer {
    /// For `experts` experts, with a bias or without.
    pub fn new(groups: TokenGroups, experts: usize, biased: bool) -> Balancer {
        Balancer {
            groups,
            bias: RefCell::new(biased.then(|| vec![0.0; experts])),
            tokens: RefCell::new(vec![0.0; experts]),
            so_far: RefCell::new((vec![0.0; experts], 0)),
        }
    }

    /// Ranks over which the tokens of a sequence are spread.
    pub fn ranks_of_a_sequence(&self, world: &dyn Collectives) -> usize {
        world.size(self.groups.tp) * world.size(self.groups.cp)
    }

    /// The bias, as a tensor like `like`.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn bias(&self, like: &Tensor) -> anyhow::Result<Option<Tensor>> {
        let bias = self.bias.borrow();
        let Some(bias) = bias.as_ref() else { return Ok(None) };
        Ok(Some(Tensor::f_from_slice(bias)?.f_to_device(like.device())?.f_to_kind(like.kind())?))
    }

    /// The bias; none for a router without it.
    pub fn values(&self) -> Option<Vec<f64>> {
        self.bias.borrow().clone()
    }

    /// Sets the bias, where the router has one for as many experts.
    pub fn set(&self, bias: &[f64]) {
        if let Some(own) = self.bias.borrow_mut().as_mut()
            && own.len() == bias.len()
        {
            own.copy_from_slice(bias);
        }
    }

    /// Notes the experts that tokens chose.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn count(&self, chosen: &Tensor) -> anyhow::Result<()> {
        if self.bias.borrow().is_none() {
            return Ok(());
        }
        let mut tokens = self.tokens.borrow_mut();
        let counts = chosen.f_view([-1])?.f_bincount(None::<&Tensor>, i64::try_from(tokens.len())?)?;
        let counts: Vec<i64> = Vec::try_from(counts.f_to_device(Device::Cpu)?)?;
        tokens.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count as f64);
        Ok(())
    }

    /// Factors of the balancing loss, from which tokens count for which expert (`[tokens, experts]` of 0 and 1): as
    /// Megatron-Core's `switch_load_balancing_loss_func`, experts x coefficient / (top_k x tokens^2) times the tokens
    /// of each expert, over the ranks that hold the sequence, or over all replicas.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn fractions(
        &self,
        world: &dyn Collectives,
        map: &Tensor,
        routing: &Routing,
        tokens: &Tokens<'_>,
    ) -> anyhow::Result<Option<Fractions>> {
        let (local, experts) = (map.size()[0], map.size()[1]);
        let apart = (routing.balance == Balance::SeqAuxLoss).then_some(tokens.sequences);
        let over = match routing.balance {
            Balance::None | Balance::Forced => return Ok(None),
            Balance::AuxLoss | Balance::SeqAuxLoss => [self.groups.tp, self.groups.cp],
            Balance::GlobalAuxLoss => [self.groups.tp, self.groups.dp_cp],
        };
        let mut counts = summed(map, apart)?;
        let mut ranks = 1;
        for group in over {
            world.all_reduce(group, Reduce::Sum, &mut counts)?;
            ranks *= world.size(group);
        }
        if routing.balance == Balance::GlobalAuxLoss {
            counts = self.average(&counts)?;
        }
        let sequences = apart.unwrap_or(1) as f64;
        let all = local as f64 * ranks as f64 / sequences;
        let top_k = map.f_sum(Kind::Double)?.f_double_value(&[])? / local as f64;
        let factor = experts as f64 * routing.aux_coefficient / (top_k * all * all * sequences);
        Ok(Some(Fractions { factors: counts.f_mul_scalar(factor)?, sequences: apart }))
    }

    /// The mean of these counts and those of the step's micro batches before.
    fn average(&self, counts: &Tensor) -> anyhow::Result<Tensor> {
        let mut so_far = self.so_far.borrow_mut();
        let here: Vec<f64> = Vec::try_from(counts.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double)?)?;
        so_far.1 += 1;
        let number = so_far.1 as f64;
        so_far.0.iter_mut().zip(here).for_each(|(sum, count)| *sum += count);
        let mean: Vec<f64> = so_far.0.iter().map(|sum| sum / number).collect();
        Ok(Tensor::f_from_slice(&mean)?.f_to_device(counts.device())?.f_to_kind(counts.kind())?)
    }

    /// Ends a step: moves the bias towards experts with fewer tokens than the mean (Megatron-Core
    /// `get_updated_expert_bias`), and forgets the step's counts.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn end_step(&self, world: &dyn Collectives, rate: f64) -> anyhow::Result<()> {
        let mut so_far = self.so_far.borrow_mut();
        so_far.0.fill(0.0);
        so_far.1 = 0;
        let (mut bias, mut tokens) = (self.bias.borrow_mut(), self.tokens.borrow_mut());
        let Some(bias) = bias.as_mut() else { return Ok(()) };
        let mut counts = Tensor::f_from_slice(&tokens)?;
        for group in self.groups.experts {
            world.all_reduce(group, Reduce::Sum, &mut counts)?;
        }
        let counts: Vec<f64> = Vec::try_from(counts)?;
        let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
        for (bias, count) in bias.iter_mut().zip(counts) {
            if count != mean {
                *bias += rate * (mean - count).signum();
            }
        }
        tokens.fill(0.0);
        Ok(())
    }
}
