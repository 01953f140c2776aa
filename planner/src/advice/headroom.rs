//! Changes that take memory and shorten the step.

use serde_json::Value;

use super::splits;
use super::{Ladder, Step};
use crate::layout::Reshard;
use crate::plan::Plan;
use crate::settings::Granularity;
use crate::wire::PlanFile;

/// Everything worth trying, from the smallest step to the largest.
pub(super) fn ladders(plan: &Plan) -> Vec<Ladder> {
    let mut ladders = recompute(plan);
    ladders.push(micro_batch(plan));
    ladders.extend(splits::coarser(plan));
    if plan.training.optimizer.offload_fraction > 0.0 {
        ladders.push(Ladder::one("The optimizer's state on the GPU", |file| {
            file.training.optimizer.offload_fraction = Some(0.0);
        }));
    }
    if !plan.training.offload.modules.is_empty() {
        ladders.push(Ladder::one("All activations on the GPU", |file| {
            file.training.offload.modules = Some(Vec::new());
        }));
    }
    if plan.runtime.facts().shards_parameters && plan.layout.fsdp.reshard != Reshard::Never {
        ladders.push(Ladder::one("Parameters kept from forward to backward", |file| {
            file.layout.fsdp.reshard_after_forward = Some(Value::from("never"));
        }));
    }
    ladders
}

fn recompute(plan: &Plan) -> Vec<Ladder> {
    let training = &plan.training;
    let nothing = |file: &mut PlanFile| file.training.recompute = crate::wire::RecomputeFile::default();
    match training.recompute {
        Granularity::None => Vec::new(),
        Granularity::Selective => {
            let without = |module: &String| {
                let mut left = training.recompute_modules.clone();
                left.retain(|known| known != module);
                Ladder::one(format!("Keep what {module} saves"), move |file: &mut PlanFile| {
                    file.training.recompute.modules = Some(left.clone());
                    if left.is_empty() {
                        file.training.recompute = crate::wire::RecomputeFile::default();
                    }
                })
            };
            let mut ladders: Vec<Ladder> = training.recompute_modules.iter().map(without).collect();
            ladders.push(Ladder::one("Recompute nothing", nothing));
            ladders
        }
        Granularity::Full => {
            let layers = plan.model.num_layers.div_ceil((plan.layout.pp * plan.layout.vpp.max(1)).max(1));
            let most = match training.recompute_method.as_deref() {
                Some("block") => training.recompute_layers.unwrap_or(layers).min(layers),
                _ => layers,
            };
            let mut counts: Vec<u64> = (1..8).rev().map(|eighths| most * eighths / 8).collect();
            counts.retain(|&count| count > 0 && count < most);
            counts.dedup();
            let block = |count: u64| {
                let title = format!("Recompute {count} of {layers} whole layers of a chunk");
                Step::new(title, move |file: &mut PlanFile| {
                    file.training.recompute.method = Some("block".to_owned());
                    file.training.recompute.num_layers = Some(count);
                })
            };
            let mut steps: Vec<Step> = counts.into_iter().map(block).collect();
            steps.push(Step::new("Recompute nothing", nothing));
            let select = Ladder::one("Recompute core_attn only", |file: &mut PlanFile| {
                file.training.recompute = crate::wire::RecomputeFile {
                    granularity: Some(Granularity::Selective),
                    modules: Some(vec!["core_attn".to_owned()]),
                    ..crate::wire::RecomputeFile::default()
                };
            });
            vec![Ladder::new(steps), select]
        }
    }
}

fn micro_batch(plan: &Plan) -> Ladder {
    let at = plan.training.micro_batch_size;
    let step = |factor: u64| {
        let size = at.saturating_mul(factor);
        Step::new(format!("Micro batches of {size} instead of {at}"), move |file: &mut PlanFile| {
            file.training.micro_batch_size = Some(size);
        })
    };
    Ladder::new([2u64, 4, 8].into_iter().map(step).collect())
}
