//! AdamW and SGD with momentum, on the owned range of each buffer; Muon for buffers of matrices. AdamW is one kernel over runs of
//! parameters that decay alike, where all that it reads and writes has one type.

use planner::Plan;
use planner::settings::OptimizerKind;
use planner::shard::{ParamShard, UPDATED_AT_ONCE};
use tch::{Device, Kind, Tensor};

use super::muon;
use crate::collectives::Collectives;
use crate::state::{Buffer, Owned, State, view};
use crate::sys;

/// Settings of one update.
#[derive(Debug)]
pub struct Update {
    /// Counts from 1.
    pub step: u64,
    /// Learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// What gradients are multiplied by, one fp64 number; none where they stay as they are.
    pub gradient_scale: Option<Tensor>,
    /// Decay of Adam's first moment.
    pub beta1: f64,
    /// Decay of Adam's second moment.
    pub beta2: f64,
    /// What Adam adds to the root of the second moment.
    pub eps: f64,
    /// Momentum of SGD or of Muon.
    pub momentum: f64,
}

/// Updates weights (or masters, and weights from them) of everything that this rank owns.
///
/// # Errors
/// When libtorch fails, or a collective of Muon.
pub fn update(state: &State, settings: &Update, plan: &Plan, world: &dyn Collectives) -> anyhow::Result<()> {
    for (index, buffer) in state.buffers.iter().enumerate() {
        if buffer.kept.optimizer == OptimizerKind::Muon {
            muon::update(state, index, settings, plan, world)?;
        } else {
            update_buffer(state, index, settings)?;
        }
        if let Some(master) = &buffer.master {
            buffer.owned(&buffer.weights)?.f_copy_(master)?;
        }
    }
    Ok(())
}

/// Element by element.
fn update_buffer(state: &State, index: usize, settings: &Update) -> anyhow::Result<()> {
    let buffer = &state.buffers[index];
    if is_fused(buffer) {
        return runs(state, index).into_iter().try_for_each(|run| fused_adam(buffer, run, settings));
    }
    for parameter in state.parameters.iter().filter(|parameter| parameter.shard.buffer == index) {
        let Some(owned) = parameter.owned else { continue };
        let mut done = 0;
        while done < owned.elements {
            let elements = UPDATED_AT_ONCE.min(owned.elements - done);
            let part = Owned { start: owned.start + done, state: owned.state + done, elements };
            update_part(buffer, part, &parameter.shard, settings)?;
            done += elements;
        }
    }
    Ok(())
}

/// Elements of a buffer that are updated alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    part: Owned,
    decays: bool,
}

/// What this rank owns of a buffer, in as few runs as there are changes of decay.
fn runs(state: &State, index: usize) -> Vec<Run> {
    let mut parts: Vec<Run> = state
        .parameters
        .iter()
        .filter(|parameter| parameter.shard.buffer == index)
        .filter_map(|parameter| Some(Run { part: parameter.owned?, decays: parameter.shard.decays }))
        .collect();
    parts.sort_by_key(|run| run.part.start);
    joined(&parts)
}

fn joined(parts: &[Run]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for run in parts {
        match runs.last_mut() {
            Some(last)
                if last.decays == run.decays
                    && last.part.start + last.part.elements == run.part.start
                    && last.part.state + last.part.elements == run.part.state =>
            {
                last.part.elements += run.part.elements;
            }
            _ => runs.push(*run),
        }
    }
    runs
}

/// Whether one kernel updates the buffer: it takes tensors of one type.
fn is_fused(buffer: &Buffer) -> bool {
    let exact = buffer.master.as_ref().unwrap_or(&buffer.weights).kind();
    buffer.kept.optimizer == OptimizerKind::Adam
        && buffer.gradients.kind() == exact
        && buffer.moments.len() == 2
        && buffer.moments.iter().all(|moment| moment.kind() == exact)
}

/// AdamW of a run by one kernel. Gradients are clipped in place: nobody reads them again. On a GPU the kernel does it, as it reads
/// them anyway, by an fp32 number, which is enough for what is no wider.
fn fused_adam(buffer: &Buffer, run: Run, settings: &Update) -> anyhow::Result<()> {
    let part = run.part;
    let weights = buffer.exact_weights(part)?;
    let mut gradients = buffer.gradients_of(part.start, part.elements)?;
    let in_kernel = gradients.device() != Device::Cpu && gradients.kind() != Kind::Double;
    let divisor = match &settings.gradient_scale {
        Some(scale) if in_kernel => Some(scale.f_reciprocal()?.f_to_kind(Kind::Float)?),
        Some(scale) => {
            let _ = gradients.f_mul_(scale)?;
            None
        }
        None => None,
    };
    let first = view(&buffer.moments[0], part.state, part.elements)?;
    let second = view(&buffer.moments[1], part.state, part.elements)?;
    let step = Tensor::f_full([1], settings.step as f64, (Kind::Float, weights.device()))?;
    let by = sys::Adamw {
        lr: settings.lr,
        beta1: settings.beta1,
        beta2: settings.beta2,
        weight_decay: if run.decays { settings.weight_decay } else { 0.0 },
        epsilon: settings.eps,
    };
    sys::fused_adamw(&weights, &gradients, [&first, &second], &step, divisor.as_ref(), by)
}

/// Decoupled weight decay.
pub(super) fn decay(weights: &mut Tensor, shard: &ParamShard, settings: &Update) -> anyhow::Result<()> {
    if shard.decays && settings.weight_decay != 0.0 {
        let _ = weights.f_mul_scalar_(1.0 - settings.lr * settings.weight_decay)?;
    }
    Ok(())
}

impl Buffer {
    /// Owned elements of the weights as the optimizer updates them: of the masters, where there are any.
    ///
    /// # Errors
    /// When they are not this rank's.
    pub fn exact_weights(&self, part: Owned) -> anyhow::Result<Tensor> {
        match &self.master {
            Some(master) => view(master, part.state, part.elements),
            None => view(&self.weights, part.start, part.elements),
        }
    }

    /// Puts elements of the gradient, clipped, into a tensor of as many, in its type.
    pub(super) fn put_exact_gradient(
        &self,
        start: u64,
        into: &mut Tensor,
        settings: &Update,
    ) -> anyhow::Result<()> {
        into.f_copy_(&self.gradients_of(start, into.numel() as u64)?)?;
        if let Some(scale) = &settings.gradient_scale {
            let _ = into.f_mul_(scale)?;
        }
        Ok(())
    }

    /// Elements of the gradient, clipped, in fp32 (fp64 for fp64).
    fn exact_gradient(&self, part: Owned, settings: &Update) -> anyhow::Result<Tensor> {
        let double = self.gradients.kind() == Kind::Double;
        let exact = if double { Kind::Double } else { Kind::Float };
        let mut gradient =
            Tensor::f_empty([i64::try_from(part.elements)?], (exact, self.gradients.device()))?;
        self.put_exact_gradient(part.start, &mut gradient, settings)?;
        Ok(gradient)
    }
}

fn update_part(buffer: &Buffer, part: Owned, shard: &ParamShard, settings: &Update) -> anyhow::Result<()> {
    let mut weights = buffer.exact_weights(part)?;
    let gradient = buffer.exact_gradient(part, settings)?;
    let mut moments = buffer
        .moments
        .iter()
        .map(|moment| view(moment, part.state, part.elements))
        .collect::<Result<Vec<_>, _>>()?;
    decay(&mut weights, shard, settings)?;
    let change = match (buffer.kept.optimizer, moments.as_mut_slice()) {
        (OptimizerKind::Adam, [first, second]) => adam(first, second, gradient, settings)?,
        (OptimizerKind::Sgd, [velocity]) => {
            let _ = velocity.f_mul_scalar_(settings.momentum)?.f_add_(&gradient)?;
            velocity.f_mul_scalar(settings.lr)?
        }
        (kind, moments) => anyhow::bail!("the planner gives {} moments for {kind:?}", moments.len()),
    };
    let _ = weights.f_sub_(&change)?;
    Ok(())
}

/// What to subtract from the weights.
fn adam(
    first: &mut Tensor,
    second: &mut Tensor,
    gradient: Tensor,
    settings: &Update,
) -> anyhow::Result<Tensor> {
    let steps = i32::try_from(settings.step).unwrap_or(i32::MAX);
    let _ = first.f_lerp_(&gradient, 1.0 - settings.beta1)?;
    let _ = second
        .f_mul_scalar_(settings.beta2)?
        .f_add_(&gradient.f_square()?.f_mul_scalar_(1.0 - settings.beta2)?)?;
    drop(gradient);
    let mut denominator = second.f_div_scalar(1.0 - settings.beta2.powi(steps))?;
    let _ = denominator.f_sqrt_()?.f_add_scalar_(settings.eps)?;
    let mut change = first.f_div(&denominator)?;
    let _ = change.f_mul_scalar_(settings.lr / (1.0 - settings.beta1.powi(steps)))?;
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_neighbours_that_decay_alike() {
        let part = |start, elements, decays| Run { part: Owned { start, state: start, elements }, decays };
        let parts =
            [part(0, 4, true), part(4, 6, true), part(10, 2, false), part(12, 3, true), part(16, 1, true)];
        let expected = [part(0, 10, true), part(10, 2, false), part(12, 3, true), part(16, 1, true)];
        assert_eq!(joined(&parts), expected);
        assert_eq!(joined(&[]), []);
        // Padding lies between them in the buffer, but not in the state.
        let apart = Run { part: Owned { start: 6, state: 4, elements: 2 }, decays: true };
        assert_eq!(joined(&[part(0, 4, true), apart]), [part(0, 4, true), apart]);
    }
}
