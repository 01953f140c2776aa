//! AdamW and SGD with momentum, on the owned range of each buffer.

use planner::wire::OptimizerKind;
use tch::{Kind, Tensor};

use crate::state::{Buffer, Parameter, State, view};

const BETA_1: f64 = 0.9;
const BETA_2: f64 = 0.95;
const EPSILON: f64 = 1e-8;
const MOMENTUM: f64 = 0.9;

/// Elements updated at a time, so that an update's temporaries stay small beside the state.
const CHUNK: u64 = 1 << 22;

/// Settings of one update.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    /// Kind of optimizer.
    pub kind: OptimizerKind,
    /// Counts from 1.
    pub step: u64,
    /// Learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// What gradients are multiplied by: 1, or less when clipped.
    pub gradient_scale: f64,
}

/// Learning rate of a step (from 1): linear warm-up, then constant.
pub fn learning_rate(lr: f64, warmup_steps: u64, step: u64) -> f64 {
    if step < warmup_steps { lr * step as f64 / warmup_steps as f64 } else { lr }
}

/// The part of a parameter whose state this rank keeps: first element and count, counted in the buffer.
pub fn owned_part(parameter: &Parameter, buffer: &Buffer) -> Option<(u64, u64)> {
    let (shard, owner) = (&parameter.shard, &buffer.shard);
    let start = shard.buffer_offset.max(owner.state_offset);
    let end = (shard.buffer_offset + shard.elements()).min(owner.state_offset + owner.state_elements);
    (start < end).then(|| (start, end - start))
}

/// Updates weights (or masters, and weights from them) of everything that this rank owns.
///
/// # Errors
/// When libtorch fails.
pub fn update(state: &State, settings: Update) -> anyhow::Result<()> {
    for (index, buffer) in state.buffers.iter().enumerate() {
        for parameter in state.parameters.iter().filter(|parameter| parameter.shard.buffer == index) {
            let Some((start, elements)) = owned_part(parameter, buffer) else { continue };
            let mut done = 0;
            while done < elements {
                let count = CHUNK.min(elements - done);
                update_part(buffer, start + done, count, parameter.shard.decays, settings)?;
                done += count;
            }
        }
        if let Some(master) = &buffer.master {
            buffer.owned(&buffer.weights)?.f_copy_(master)?;
        }
    }
    Ok(())
}

fn update_part(
    buffer: &Buffer,
    start: u64,
    elements: u64,
    decays: bool,
    settings: Update,
) -> anyhow::Result<()> {
    let state_start = start - buffer.shard.state_offset;
    let mut weights = match &buffer.master {
        Some(master) => view(master, state_start, elements)?,
        None => view(&buffer.weights, start, elements)?,
    };
    let exact = if weights.kind() == Kind::Double { Kind::Double } else { Kind::Float };
    let gradient = view(&buffer.gradients, start, elements)?
        .f_to_dtype(exact, false, false)?
        .f_mul_scalar(settings.gradient_scale)?;
    let mut moments = buffer
        .moments
        .iter()
        .map(|moment| view(moment, state_start, elements))
        .collect::<Result<Vec<_>, _>>()?;
    if decays && settings.weight_decay != 0.0 {
        let _ = weights.f_mul_scalar_(1.0 - settings.lr * settings.weight_decay)?;
    }
    let change = match (settings.kind, moments.as_mut_slice()) {
        (OptimizerKind::Adam, [first, second]) => adam(first, second, gradient, settings)?,
        (OptimizerKind::Sgd, [velocity]) => {
            let _ = velocity.f_mul_scalar_(MOMENTUM)?.f_add_(&gradient)?;
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
    settings: Update,
) -> anyhow::Result<Tensor> {
    let steps = i32::try_from(settings.step).unwrap_or(i32::MAX);
    let _ = first.f_lerp_(&gradient, 1.0 - BETA_1)?;
    let _ = second.f_mul_scalar_(BETA_2)?.f_add_(&gradient.f_square()?.f_mul_scalar_(1.0 - BETA_2)?)?;
    drop(gradient);
    let mut denominator = second.f_div_scalar(1.0 - BETA_2.powi(steps))?;
    let _ = denominator.f_sqrt_()?.f_add_scalar_(EPSILON)?;
    let mut change = first.f_div(&denominator)?;
    let _ = change.f_mul_scalar_(settings.lr / (1.0 - BETA_1.powi(steps)))?;
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::learning_rate;

    #[test]
    fn warm_up_is_linear_and_ends() {
        let rates: Vec<f64> = (1..=6).map(|step| learning_rate(1.0, 4, step)).collect();
        assert_eq!(rates, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
        assert_eq!(learning_rate(0.5, 0, 1), 0.5);
    }
}
