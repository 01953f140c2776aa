//! What keeps experts busy alike: losses on how tokens are spread, and a bias on the choice that follows their number.

use std::cell::RefCell;

use planner::model::{Balance, Routing};
use tch::{Device, Kind, Tensor};

use super::dispatch::counted;
use super::router::Tokens;
use crate::collectives::{Collectives, GroupId, Reduce};
use crate::device::bring;

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

/// Counts of one layer; the planner counts no bytes for them. They are where tokens are until a step ends, as the host would
/// wait in every micro batch to read them.
pub struct Balancer {
    groups: TokenGroups,
    /// Added to scores when experts are chosen; none for a router without it.
    bias: RefCell<Option<Vec<f64>>>,
    /// Tokens of each expert in this step, on this rank.
    tokens: RefCell<Option<Tensor>>,
    /// Tokens of each expert in the micro batches of this step so far, on all ranks, and how many those are.
    so_far: RefCell<Option<(Tensor, u64)>>,
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
            tokens: RefCell::default(),
            so_far: RefCell::default(),
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
        Ok(Some(bring(&Tensor::f_from_slice(bias)?, like.device())?.f_to_kind(like.kind())?))
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
        let Some(experts) = self.bias.borrow().as_ref().map(Vec::len) else { return Ok(()) };
        let counts = counted(chosen, i64::try_from(experts)?)?;
        let mut tokens = self.tokens.borrow_mut();
        *tokens = Some(match tokens.take() {
            Some(sum) => sum.f_add(&counts)?,
            None => counts,
        });
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
        top_k: i64,
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
        let factor = experts as f64 * routing.aux_coefficient / (top_k as f64 * all * all * sequences);
        Ok(Some(Fractions { factors: counts.f_mul_scalar(factor)?, sequences: apart }))
    }

    /// The mean of these counts and those of the step's micro batches before.
    fn average(&self, counts: &Tensor) -> anyhow::Result<Tensor> {
        let mut so_far = self.so_far.borrow_mut();
        let here = counts.f_to_kind(Kind::Double)?;
        let (sum, number) = match so_far.take() {
            Some((sum, number)) => (sum.f_add(&here)?, number + 1),
            None => (here, 1),
        };
        let mean = sum.f_div_scalar(number as f64)?.f_to_kind(counts.kind())?;
        *so_far = Some((sum, number));
        Ok(mean)
    }

    /// Ends a step: moves the bias towards experts with fewer tokens than the mean (Megatron-Core
    /// `get_updated_expert_bias`), and forgets the step's counts.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn end_step(&self, world: &dyn Collectives, rate: f64) -> anyhow::Result<()> {
        *self.so_far.borrow_mut() = None;
        let tokens = self.tokens.borrow_mut().take();
        let mut bias = self.bias.borrow_mut();
        let Some(bias) = bias.as_mut() else { return Ok(()) };
        let mut counts = match tokens {
            Some(tokens) => tokens.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double)?,
            None => Tensor::f_zeros([i64::try_from(bias.len())?], (Kind::Double, Device::Cpu))?,
        };
        for group in self.groups.experts {
            world.all_reduce(group, Reduce::Sum, &mut counts)?;
        }
        let counts: Vec<f64> = Vec::try_from(&counts)?;
        let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
        for (bias, count) in bias.iter_mut().zip(counts) {
            if count != mean {
                *bias += rate * (mean - count).signum();
            }
        }
        Ok(())
    }
}
