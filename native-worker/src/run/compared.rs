//! Which prediction a run is compared with.

use planner::calibration::{PeakBeside, StepBeside};
use planner::finding::Severity;
use planner::run::StepParts;
use planner::runtime::Runtime;
use planner::wire::{PlanFile, Verdict};
use planner::{Finding, Plan};
use serde::Serialize;

/// The prediction for what ranks execute: the plan where the worker knows its runtime, else its layout with runtime native.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The runtime that the plan names.
    pub plan_runtime: Runtime,
    /// The runtime whose prediction it is.
    pub runtime: Runtime,
    /// Bytes that the fullest rank is predicted to have allocated at most.
    pub peak_bytes: Option<u64>,
    /// Within which nine of ten are.
    pub peak_interval_bytes: Option<[u64; 2]>,
    /// Seconds that a step is predicted to take; none where its time is not known.
    pub step_seconds: Option<f64>,
    /// Within which nine of ten steps are.
    pub interval_seconds: Option<[f64; 2]>,
    /// Seconds of a step that ranks' collectives are predicted to take while nothing is computed beside them; none where a step's time
    /// is not known.
    pub exposed_communication_seconds: Option<f64>,
    /// Where a step's time is predicted to go; none where it is not known.
    pub parts: Option<StepParts>,
    /// Whether they fit on the plan's GPU.
    pub verdict: Option<Verdict>,
    /// Whether ranks compute on the CPU.
    #[serde(skip)]
    on_cpu: bool,
    /// What is run instead of the plan's own runtime, in a sentence.
    #[serde(skip)]
    says: String,
    /// Settings of the plan that the worker does not follow.
    pub not_followed: Vec<String>,
}

/// What a run of `executed`, derived from the plan `asked`, is compared with; `findings` are those of `executed`.
pub fn compared_with(asked: &Plan, executed: &PlanFile, findings: &[Finding]) -> Compared {
    let planner::wire::Answer { memory, time, .. } = planner::estimate(executed);
    let warnings = findings.iter().filter(|finding| finding.severity == Severity::Warning);
    Compared {
        plan_runtime: asked.runtime,
        runtime: executed.runtime.unwrap_or(Runtime::OF_WORKER),
        on_cpu: planner::cluster::is_cpu(&executed.cluster.gpu),
        says: asked.compared_with(),
        peak_bytes: memory.as_ref().map(|memory| memory.peak_bytes),
        peak_interval_bytes: memory.as_ref().map(|memory| memory.interval_bytes),
        step_seconds: time.as_ref().map(|time| time.step_seconds),
        interval_seconds: time.as_ref().map(|time| time.interval_seconds),
        exposed_communication_seconds: time.as_ref().map(|time| time.breakdown.exposed_communication()),
        parts: time.as_ref().map(StepParts::predicted),
        verdict: memory.as_ref().map(|memory| memory.verdict),
        not_followed: warnings.map(|finding| finding.message.clone()).collect(),
    }
}

impl Compared {
    /// What is to be said of a step that took so many seconds; none where that is likely, or nothing was predicted.
    pub fn step_finding(&self, measured: f64) -> Option<Finding> {
        let (predicted, likely) = self.step_seconds.zip(self.interval_seconds)?;
        StepBeside { measured, predicted, likely, on_cpu: self.on_cpu }.finding()
    }

    /// What is to be said of so many bytes that the fullest rank had allocated; none where that is likely.
    pub fn peak_finding(&self, measured: u64) -> Option<Finding> {
        let (predicted, likely) = self.peak_bytes.zip(self.peak_interval_bytes)?;
        PeakBeside { measured, predicted, likely, on_cpu: self.on_cpu }.finding()
    }

    /// What the plan and the run are, in sentences; none where the plan itself is native and all of it is followed.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.plan_runtime.facts().is_workers_own {
            let peak = self.peak_bytes.map_or_else(
                || "nothing".to_owned(),
                |bytes| format!("at most {} per rank", planner::units::Bytes(bytes).in_words()),
            );
            lines.push(format!("the plan names runtime {}. {}: {peak}", self.plan_runtime.name(), self.says));
        }
        lines.extend(self.not_followed.iter().cloned());
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn compared(runtime: &str, training: Value) -> Compared {
        compared_in(runtime, json!({}), training)
    }

    fn compared_in(runtime: &str, layout: Value, training: Value) -> Compared {
        let plan = json!({"version": 1, "model": {"preset": "tiny-dense"}, "runtime": runtime, "layout": layout, "training": training,
                          "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 2}});
        let file = planner::parse_plan(&plan.to_string()).unwrap();
        let plan = Plan::resolve(&file).plan.unwrap();
        let executed = plan.executed();
        compared_with(&plan, &executed, &Plan::resolve(&executed).findings)
    }

    #[test]
    fn the_prediction_is_named_for_every_other_runtime() {
        for (runtime, run) in [("megatron", "native"), ("fsdp2", "fsdp2"), ("megatron_fsdp", "megatron_fsdp")]
        {
            let compared = compared(runtime, json!({}));
            let said = compared.lines().join("; ");
            assert!(
                said.starts_with(&format!("the plan names runtime {runtime}. The worker runs")),
                "{said}"
            );
            assert_eq!(said.contains("runtime native"), run == "native", "{said}");
            assert!(said.contains("iB per rank") && !said.contains("0.00 "), "{said}");
            let json = serde_json::to_value(&compared).unwrap();
            assert_eq!((&json["plan_runtime"], &json["runtime"]), (&runtime.into(), &run.into()));
            assert!(json["peak_bytes"].as_u64().unwrap() > 0);
        }
        // What can't be run as such says why.
        let in_two_bytes = json!({"fsdp": {"preserve_fp32_weights": false}});
        let other = compared_in("megatron_fsdp", in_two_bytes, json!({"dtype": "bf16"}));
        assert!(other.lines()[0].contains("preserve_fp32_weights"), "{:?}", other.lines());
        assert_eq!(other.runtime, Runtime::OF_WORKER);
        assert_eq!(compared("native", json!({})).lines(), Vec::<String>::new());
    }

    #[test]
    fn settings_that_are_not_followed_are_said() {
        let aware = json!({"optimizer": {"precision_aware": true}});
        let said = compared("megatron", aware).lines().join("; ");
        assert!(said.contains("training.optimizer.precision_aware"), "{said}");
    }
}
