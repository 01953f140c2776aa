//! What the actions of a plan's pipeline cost, for the event simulation: the closed form's own seconds, chunk by chunk.

use super::constants::{ConstantRole, table};
use super::setup::Setup;
use super::simulate::{ChunkSeconds, StageCosts};
use super::stage::chunk_time;
use super::stages::StageClass;
use super::step::{send_seconds, slowdown};
use super::terms::Terms;
use crate::layout::chunks_of_stages;
use crate::plan::Plan;

/// Seconds of every chunk of every stage of a valid plan with these numbers.
///
/// # Errors
/// Layers that don't divide.
pub(super) fn stage_costs(plan: &Plan, setup: &Setup) -> Result<StageCosts, String> {
    let machine = setup.machine(&table().values());
    let terms = Terms::new(&machine, &setup.split, &setup.options, &setup.shape);
    let pipe = setup.pipe(&machine);
    let slower = slowdown(&machine, &terms, &setup.stages, &pipe, &setup.data);
    let mut chunks = Vec::new();
    let stages = chunks_of_stages(&plan.layout, plan.model.num_layers)
        .ok_or("the layers don't divide over stages and chunks")?;
    for held in stages {
        let class = StageClass::of_chunks(&setup.shape, &held);
        for chunk in &held {
            let chunk = StageClass::of_chunks(&setup.shape, std::slice::from_ref(chunk));
            let [forward, backward, weights] =
                chunk_time(&machine, &terms, &pipe, &class, &chunk).map(|seconds| slower * seconds);
            chunks.push(ChunkSeconds {
                forward,
                backward_input: (backward - weights).max(0.0),
                backward_weight: weights,
            });
        }
    }
    let transfer = if plan.layout.pp > 1 { send_seconds(&machine, &terms, &pipe).max(0.0) } else { 0.0 };
    let hidden = pipe.chunks > 1.0 && pipe.overlap_sends;
    let exposed = if hidden { machine.of(ConstantRole::ExposedP2p).clamp(0.0, 1.0) } else { 1.0 };
    Ok(StageCosts { chunks, transfer, exposed })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse_plan;
    use crate::time::setup;

    #[test]
    fn chunks_sum_to_the_closed_form_without_bubble() {
        let file = json!({"version": 1, "model": {"preset": "llama-3-70b"}, "cluster": {"gpu": "h100-sxm", "nodes": 8},
            "layout": {"tp": 4, "pp": 4, "vpp": 5}, "training": {"global_batch_size": 64}});
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
        let setup = setup(&plan).unwrap();
        let costs = stage_costs(&plan, &setup).unwrap();
        assert_eq!(costs.chunks.len(), 20);
        let last: f64 = costs.chunks[15..].iter().map(|chunk| chunk.forward + chunk.backward()).sum();
        let step = setup.predict(&table().values());
        let closed = step.parts.total() + step.host + step.recompute;
        assert!((16.0 * last / closed - 1.0).abs() < 1e-9, "{} {closed}", 16.0 * last);
    }
}
