//! The router: which experts a token is sent to, and with what shares. Computed in fp32 (fp64 for fp64).

use planner::model::{Balance, Routing, Score};
use tch::{Kind, Tensor, with_grad};

use super::balance::{Balancer, Fractions};
use crate::collectives::Collectives;
use crate::device::bring;
use crate::model::functions::{exact, flat};
use crate::sys;
use crate::tape::{Flow, Gradients, OfWeights, Tape};

/// What keeps a sum of scores from being zero (Megatron-Core moe_utils).
const LEAST_SUM: f64 = 1e-20;

/// A layer's router.
pub struct Router {
    /// Number of the parameter `[experts, hidden]`.
    pub weight: usize,
    /// Number of the bias.
    pub bias: Option<usize>,
    /// Experts that a token is sent to.
    pub top_k: i64,
    /// How.
    pub routing: Routing,
    /// Tokens counted and biases kept.
    pub balancer: Balancer,
}

/// Where the router sends the tokens of a micro batch.
pub struct Routed {
    /// Share of each chosen expert, `[tokens, top_k]`.
    pub shares: Flow,
    /// The chosen experts, `[tokens, top_k]`.
    pub chosen: Tensor,
}

/// What a router must know of a micro batch.
pub struct Tokens<'p> {
    /// Positions in the sequence of the tokens of this rank.
    pub positions: &'p [i64],
    /// Sequences.
    pub sequences: i64,
    /// What the gradients of the router's losses of one micro batch are multiplied by.
    pub loss_scale: f64,
}

fn take_top(scores: &Tensor, count: i64) -> anyhow::Result<(Tensor, Tensor)> {
    Ok(scores.f_topk(count, -1, true, true)?)
}

/// Scores for the balancing loss: shares of all experts, summing to 1 for each token.
fn all_shares(logits: &Tensor, score: Score) -> anyhow::Result<Tensor> {
    Ok(match score {
        Score::Softmax => logits.f_softmax(-1, logits.kind())?,
        Score::Sigmoid => {
            let scores = logits.f_sigmoid()?;
            let sum = scores.f_sum_dim_intlist([-1_i64].as_slice(), true, scores.kind())?;
            scores.f_div(&sum.f_add_scalar(LEAST_SUM)?)?
        }
        other @ (Score::SqrtSoftplus | Score::SparseMixer) => {
            anyhow::bail!("the executor has no router by {other:?} yet")
        }
    })
}

impl Router {
    /// Shares of the chosen experts.
    fn weigh(&self, logits: &Tensor, chosen: &Tensor) -> anyhow::Result<Tensor> {
        let of_chosen = |all: &Tensor| all.f_gather(1, chosen, false);
        let shares = match (self.routing.score, self.routing.normalize) {
            (Score::Softmax, true) => of_chosen(logits)?.f_softmax(-1, logits.kind())?,
            (Score::Softmax, false) => of_chosen(&logits.f_softmax(-1, logits.kind())?)?,
            (Score::Sigmoid, false) => of_chosen(logits)?.f_sigmoid()?,
            (Score::Sigmoid, true) => {
                let scores = of_chosen(logits)?.f_sigmoid()?;
                let sum = scores.f_sum_dim_intlist([-1_i64].as_slice(), true, scores.kind())?;
                scores.f_div(&sum.f_add_scalar(LEAST_SUM)?)?
            }
            (other @ (Score::SqrtSoftplus | Score::SparseMixer), _) => {
                anyhow::bail!("the executor has no router by {other:?} yet")
            }
        };
        Ok(shares.f_mul_scalar(self.routing.scale)?)
    }

    /// The experts of each token, `[tokens, top_k]`.
    fn choose(&self, logits: &Tensor, tokens: &Tokens<'_>) -> anyhow::Result<Tensor> {
        let experts = logits.size()[1];
        if self.routing.balance == Balance::Forced {
            return self.in_turn(experts, tokens, logits);
        }
        let mut scores = match (self.routing.score, self.routing.normalize) {
            (Score::Softmax, true) => logits.shallow_clone(),
            (Score::Softmax, false) => logits.f_softmax(-1, logits.kind())?,
            (Score::Sigmoid, _) => logits.f_sigmoid()?,
            (other @ (Score::SqrtSoftplus | Score::SparseMixer), _) => {
                anyhow::bail!("the executor has no router by {other:?} yet")
            }
        };
        if let Some(bias) = self.balancer.bias(logits.kind())? {
            scores = scores.f_add(&bias)?;
        }
        let groups = i64::try_from(self.routing.groups)?;
        if groups > 1 {
            let usable = i64::try_from(self.routing.group_top_k)?;
            let grouped = scores.f_view([-1, groups, experts / groups])?;
            let together = i64::try_from(self.routing.scored_together(u64::try_from(self.top_k)?))?;
            let best = take_top(&grouped, together)?.0;
            let of_group = best.f_sum_dim_intlist([-1_i64].as_slice(), false, scores.kind())?;
            let used = take_top(&of_group, usable)?.1;
            let closed =
                Tensor::f_ones_like(&of_group)?.f_to_kind(Kind::Bool)?.f_scatter_value(1, &used, 0)?;
            scores =
                grouped.f_masked_fill(&closed.f_unsqueeze(-1)?, f64::NEG_INFINITY)?.f_view([-1, experts])?;
        }
        Ok(take_top(&scores, self.top_k)?.1)
    }

    /// Experts in turn, by the tokens' positions.
    fn in_turn(&self, experts: i64, tokens: &Tokens<'_>, like: &Tensor) -> anyhow::Result<Tensor> {
        let mut turns = Vec::new();
        for &position in tokens.positions {
            for sequence in 0..tokens.sequences {
                let first = (position * tokens.sequences + sequence) * self.top_k;
                turns.extend((first..first + self.top_k).map(|turn| turn % experts));
            }
        }
        bring(&Tensor::f_from_slice(&turns)?.f_view([-1, self.top_k])?, like.device())
    }

    /// The experts that the balancing loss counts: the highest of all shares, without groups and bias (Megatron-Core
    /// `compute_routing_scores_for_aux_loss`).
    fn fractions(
        &self,
        world: &dyn Collectives,
        logits: &Tensor,
        tokens: &Tokens<'_>,
    ) -> anyhow::Result<Option<Fractions>> {
        if self.routing.aux_coefficient == 0.0 {
            return Ok(None);
        }
        let shares = all_shares(logits, self.routing.score)?;
        let chosen = take_top(&shares, self.top_k)?.1;
        let map = Tensor::f_zeros_like(&shares)?.f_scatter_value(1, &chosen, 1.0)?;
        self.balancer.fractions(world, &map, self.top_k, &self.routing, tokens)
    }

    /// The loss on the size of logits (Megatron-Core `z_loss_func`): over all ranks that share a sequence, the mean over its
    /// tokens of their squared log-sum-exp, times its coefficient.
    fn z_loss(&self, world: &dyn Collectives, logits: &Tensor) -> anyhow::Result<Option<Tensor>> {
        let coefficient = self.routing.z_coefficient;
        if coefficient == 0.0 {
            return Ok(None);
        }
        let squares = logits.f_logsumexp([-1_i64].as_slice(), false)?.f_square()?;
        let share = coefficient / self.balancer.ranks_of_a_sequence(world) as f64;
        Ok(Some(squares.f_mean(logits.kind())?.f_mul_scalar(share)?))
    }

    /// Routes the tokens of `normed`, `[s, b, hidden]`.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn route<'a>(
        self: &std::rc::Rc<Router>,
        tape: &mut Tape<'a>,
        normed: &Flow,
        tokens: &Tokens<'_>,
    ) -> anyhow::Result<Routed> {
        let world = tape.group().world;
        let size = normed.data().size();
        let width = size.last().copied().unwrap_or(1);
        let (kind, exact) = (normed.data().kind(), exact(normed.data().kind()));
        let kept = tape.keep(normed);
        let input = normed.data().f_reshape([-1, width])?;
        let weight = tape.weight(self.weight).f_detach()?;
        let bias = self.bias.map(|bias| tape.weight(bias).f_detach()?.f_to_kind(exact)).transpose()?;
        let logits = input.f_to_kind(exact)?.f_linear(&weight.f_to_kind(exact)?, bias.as_ref())?;
        let chosen = self.choose(&logits, tokens)?;
        let shares = self.weigh(&logits, &chosen)?;
        let fractions = if tape.evaluates() { None } else { self.fractions(world, &logits, tokens)? };
        if !tape.is_replay() && !tape.evaluates() {
            self.balancer.count(&chosen)?;
        }
        drop(input);
        let parameters: Vec<usize> = [Some(self.weight), self.bias].into_iter().flatten().collect();
        let (router, picked, loss_scale) = (self.clone(), chosen.shallow_clone(), tokens.loss_scale);
        let backward = move |gradient: Tensor| {
            let leaf = logits.f_detach()?.f_set_requires_grad(true)?;
            drop(logits);
            let (shares, losses) = with_grad(|| {
                let shares = router.weigh(&leaf, &picked)?;
                let loss = fractions
                    .as_ref()
                    .map(|fractions| fractions.loss(&all_shares(&leaf, router.routing.score)?))
                    .transpose()?;
                let losses: Vec<Tensor> = loss.into_iter().chain(router.z_loss(world, &leaf)?).collect();
                anyhow::Ok((shares, losses))
            })?;
            let mut ends = vec![&shares];
            let mut seeds = vec![gradient.shallow_clone()];
            for loss in &losses {
                ends.push(loss);
                seeds.push(Tensor::f_full_like(loss, loss_scale)?);
            }
            let found = sys::gradients(&ends, &seeds.iter().collect::<Vec<_>>(), &[&leaf])?;
            let of_logits = match found.into_iter().next().flatten() {
                Some(gradient) => gradient,
                None => Tensor::f_zeros_like(&leaf)?,
            };
            let mut of_weights = vec![of_logits.f_tr()?.f_matmul(&flat(&kept.get()?)?.f_to_kind(exact)?)?];
            if router.bias.is_some() {
                of_weights.push(of_logits.f_sum_dim_intlist([0_i64].as_slice(), false, exact)?);
            }
            let of_input = of_logits.f_matmul(&weight.f_to_kind(exact)?)?.f_to_kind(kind)?;
            Ok(Gradients {
                inputs: vec![of_input.f_view(size.as_slice())?],
                weights: OfWeights::Made(of_weights),
            })
        };
        let shares = tape.function(&[normed], &parameters, shares, Box::new(backward));
        Ok(Routed { shares, chosen })
    }
}
