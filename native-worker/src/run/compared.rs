//! Which prediction a run is compared with.

use planner::Finding;
use planner::finding::Severity;
use planner::layout::COMPARED_WITH;
use planner::wire::{PlanFile, Runtime, Verdict};
use serde::Serialize;

/// The prediction for what ranks execute: the plan's layout with runtime native, whatever runtime the plan names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The runtime that the plan names.
    pub plan_runtime: Runtime,
    /// The runtime whose prediction it is.
    pub runtime: Runtime,
    /// Bytes that the fullest rank is predicted to have allocated at most.
    pub peak_bytes: Option<u64>,
    /// Whether they fit on the plan's GPU.
    pub verdict: Option<Verdict>,
    /// Settings of the plan that the worker does not follow.
    pub not_followed: Vec<String>,
}

/// What a run of `native`, derived from a plan that names the runtime `asked`, is compared with; `findings` are those of `native`.
pub fn compared_with(asked: Runtime, native: &PlanFile, findings: &[Finding]) -> Compared {
    let memory = planner::estimate(native).memory;
    let warnings = findings.iter().filter(|finding| finding.severity == Severity::Warning);
    Compared {
        plan_runtime: asked,
        runtime: Runtime::Native,
        peak_bytes: memory.as_ref().map(|memory| memory.peak_bytes),
        verdict: memory.as_ref().map(|memory| memory.verdict),
        not_followed: warnings.map(|finding| finding.message.clone()).collect(),
    }
}

impl Compared {
    /// The same in sentences; none where the plan itself is native and all of it is followed.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.plan_runtime != Runtime::Native {
            let peak = self.peak_bytes.map_or_else(
                || "nothing".to_owned(),
                |bytes| format!("at most {:.2} GiB per rank", planner::units::Bytes(bytes).gib()),
            );
            lines.push(format!(
                "the plan names runtime {}. {COMPARED_WITH}: {peak}",
                self.plan_runtime.name()
            ));
        }
        lines.extend(self.not_followed.iter().cloned());
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use planner::Plan;

    fn compared(runtime: &str, training: Value) -> Compared {
        let plan = json!({"version": 1, "model": {"preset": "tiny-dense"}, "runtime": runtime, "training": training,
                          "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 2}});
        let file = planner::parse_plan(&plan.to_string()).unwrap();
        let plan = Plan::resolve(&file).plan.unwrap();
        let native = plan.executed();
        compared_with(plan.runtime, &native, &Plan::resolve(&native).findings)
    }

    #[test]
    fn the_prediction_is_named_for_every_other_runtime() {
        for runtime in ["megatron", "fsdp2", "megatron_fsdp"] {
            let compared = compared(runtime, json!({}));
            let said = compared.lines().join("; ");
            assert!(
                said.starts_with(&format!("the plan names runtime {runtime}. The worker runs")),
                "{said}"
            );
            assert!(said.contains("runtime native") && said.contains(" GiB per rank"), "{said}");
            let json = serde_json::to_value(&compared).unwrap();
            assert_eq!((&json["plan_runtime"], &json["runtime"]), (&runtime.into(), &"native".into()));
            assert!(json["peak_bytes"].as_u64().unwrap() > 0);
        }
        assert_eq!(compared("native", json!({})).lines(), Vec::<String>::new());
    }

    #[test]
    fn settings_that_are_not_followed_are_said() {
        let aware = json!({"optimizer": {"precision_aware": true}});
        let said = compared("megatron", aware).lines().join("; ");
        assert!(said.contains("training.optimizer.precision_aware"), "{said}");
    }
}
