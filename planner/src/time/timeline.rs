//! The timeline of a plan's step.

use super::chunk_costs::stage_costs;
use super::constants::table;
use super::from_plan::setup;
use super::setup::Setup;
use super::simulate::{SimulationError, Timeline, simulate, simulated_length};
use crate::finding::Finding;
use crate::plan::Plan;

/// The timeline of a valid plan's step, as planner predicts it.
///
/// # Errors
/// A finding: the time model lacks a figure, or the step has more actions than are simulated.
pub fn timeline(plan: &Plan) -> Result<Timeline, Box<Finding>> {
    let costs = setup(plan).and_then(|setup| stage_costs(plan, &setup)).map_err(|reason| {
        let message = format!("no timeline can be drawn: {reason}");
        Box::new(Finding::warning("time", serde_json::Value::Null, message).rule("time model"))
    });
    simulate(&plan.pipeline(), &costs?).map_err(|error| too_long(plan, &error))
}

fn too_long(plan: &Plan, error: &SimulationError) -> Box<Finding> {
    let sequences = plan.training.global_batch_size;
    let finding = Finding::error("training.global_batch_size", sequences, error.to_string());
    Box::new(finding.rule("simulation"))
}

/// Seconds of a valid plan's whole step with these numbers, its pipeline simulated by at most as many actions; none where it has
/// more, or its layers don't divide.
pub(super) fn simulated_seconds(plan: &Plan, setup: &Setup, most_actions: u64) -> Option<f64> {
    let costs = stage_costs(plan, setup).ok()?;
    let pipeline = simulated_length(&plan.pipeline(), &costs, most_actions).ok()?;
    Some(pipeline + setup.predict(&table().values()).outside_pipeline())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse_plan;

    /// Seconds of the simulated pipeline over those of the closed form without what follows the pipeline.
    fn check(layout: serde_json::Value, batch: u64, expected: std::ops::Range<f64>) {
        let file = json!({"version": 1, "model": {"preset": "llama-3-70b"}, "cluster": {"gpu": "h100-sxm", "nodes": 8},
            "layout": layout, "training": {"global_batch_size": batch}});
        let file = parse_plan(&file.to_string()).unwrap();
        let plan = Plan::resolve(&file).plan.unwrap();
        // Not the answer, which is rounded.
        let step = setup(&plan).unwrap().predict(&table().values());
        let pipeline = step.total() - step.outside_pipeline();
        let ratio = timeline(&plan).unwrap().seconds / pipeline;
        assert!(expected.contains(&ratio), "{ratio} of {:?}", plan.layout);
    }

    #[test]
    fn a_timeline_is_as_long_as_the_answer_says() {
        // One stage: no transfers and no bubble.
        check(json!({"tp": 8}), 64, 1.0 - 1e-9..1.0 + 1e-9);
        // Transfers: the closed form counts two for each micro batch on every stage, with each other's fill and drain.
        check(json!({"tp": 8, "pp": 4}), 64, 0.98..1.02);
        check(json!({"tp": 4, "pp": 4, "vpp": 5}), 64, 0.98..1.02);
        check(json!({"tp": 8, "pp": 8}), 32, 0.97..1.03);
    }

    #[test]
    fn a_step_that_is_too_long_is_a_finding() {
        let file = json!({"version": 1, "model": {"preset": "llama-3-70b"}, "cluster": {"gpu": "h100-sxm", "nodes": 8},
            "layout": {"tp": 8, "pp": 8}, "training": {"global_batch_size": 1_000_000_000u64}});
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
        let finding = timeline(&plan).unwrap_err();
        assert_eq!(finding.field, "training.global_batch_size");
        assert!(finding.message.contains("16000000000 actions"), "{}", finding.message);
    }
}
