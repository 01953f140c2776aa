//! What keeps experts busy alike: losses on how tokens are spread, and a bias on the choice that follows their number.

use std::cell::RefCell;

use planner::model::{Balance, Routing};
use tch::{Device, Kind, Tensor};

use super::dispatch::counted;
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

/// Counts of one layer; the planner counts no bytes for them. They are where tokens are until a step ends, as the host would
/// wait in every micro batch to read them.
pub struct Balancer {
    groups: TokenGroups,
    /// What is added to scores when experts are chosen; none for a router without it.
    bias: Option<Bias>,
    /// Tokens of each expert in this step, on this rank.
    tokens: RefCell<Option<Tensor>>,
    /// Tokens of each expert in the micro batches of this step so far, on all ranks, and how many those are.
    so_far: RefCell<Option<(Tensor, u64)>>,
}

/// A bias on the choice of experts.
pub struct Bias {
    /// Of each expert, in fp64, where tokens are.
    pub values: Tensor,
    /// How far it moves in a step.
    pub rate: f64,
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
    /// With a bias or without.
    pub fn new(groups: TokenGroups, bias: Option<Bias>) -> Balancer {
        Balancer { groups, bias, tokens: RefCell::default(), so_far: RefCell::default() }
    }

    /// Ranks over which the tokens of a sequence are spread.
    pub fn ranks_of_a_sequence(&self, world: &dyn Collectives) -> usize {
        world.size(self.groups.tp) * world.size(self.groups.cp)
    }

    /// The bias, as a tensor of this type.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn bias(&self, kind: Kind) -> anyhow::Result<Option<Tensor>> {
        self.bias.as_ref().map(|bias| Ok(bias.values.f_to_kind(kind)?)).transpose()
    }

    /// The bias; none for a router without it. The host waits for it.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn values(&self) -> anyhow::Result<Option<Vec<f64>>> {
        let read = |bias: &Bias| Ok(Vec::try_from(bias.values.f_to_device(Device::Cpu)?)?);
        self.bias.as_ref().map(read).transpose()
    }

    /// Sets the bias, where the router has one for as many experts.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn set(&self, bias: &[f64]) -> anyhow::Result<()> {
        let given = Tensor::f_from_slice(bias)?;
        if let Some(Bias { values, .. }) = &self.bias
            && values.size() == given.size()
        {
            values.shallow_clone().f_copy_(&given)?;
        }
        Ok(())
    }

    /// Notes the experts that tokens chose.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn count(&self, chosen: &Tensor) -> anyhow::Result<()> {
        let Some(bias) = &self.bias else { return Ok(()) };
        let counts = counted(chosen, bias.values.size()[0])?;
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

    /// Ends a step: the tokens of each expert on this rank, and the bias that follows them; none for a router without it.
    fn take_step(&self) -> anyhow::Result<Option<(Tensor, &Bias)>> {
        *self.so_far.borrow_mut() = None;
        let tokens = self.tokens.borrow_mut().take();
        let Some(bias) = &self.bias else { return Ok(None) };
        let counts = match tokens {
            Some(tokens) => tokens.f_to_kind(Kind::Double)?,
            None => bias.values.f_zeros_like()?,
        };
        Ok(Some((counts, bias)))
    }
}

impl Bias {
    /// Moves it towards experts with fewer tokens than the mean (Megatron-Core `get_updated_expert_bias`).
    fn follow(&self, counts: &Tensor) -> anyhow::Result<()> {
        let step = counts.f_mean(Kind::Double)?.f_sub(counts)?.f_sign()?.f_mul_scalar(self.rate)?;
        let _ = self.values.shallow_clone().f_add_(&step)?;
        Ok(())
    }
}

/// Ends a step in all layers of a stage: biases follow how many tokens each expert got on all its ranks, and the step's counts
/// are forgotten. Counts of all layers are added up at once and where they are, so that the host waits for none of them.
///
/// # Errors
/// When a collective fails.
pub fn end_step<'a>(
    world: &dyn Collectives,
    balancers: impl IntoIterator<Item = &'a Balancer>,
) -> anyhow::Result<()> {
    let (mut groups, mut counts, mut biases) = (None, Vec::new(), Vec::new());
    for balancer in balancers {
        if let Some((tokens, bias)) = balancer.take_step()? {
            groups = Some(balancer.groups.experts);
            counts.push(tokens);
            biases.push(bias);
        }
    }
    let Some(groups) = groups else { return Ok(()) };
    let experts: Vec<i64> = counts.iter().map(|counts| counts.size()[0]).collect();
    let mut all = Tensor::f_cat(&counts, 0)?;
    for group in groups {
        world.all_reduce(group, Reduce::Sum, &mut all)?;
    }
    let counts = all.f_split_with_sizes(experts.as_slice(), 0)?;
    biases.into_iter().zip(&counts).try_for_each(|(bias, counts)| bias.follow(counts))
}
