//! Groups that communicate in every layer and don't fit in an NVLink domain: what the network costs them, and what to change.

use crate::finding::Finding;
use crate::layout::Strides;
use crate::plan::Plan;
use crate::wire::TimeAnswer;

/// Share of a step from which it is said of groups of context- and expert-parallel ranks, which often go over the network.
const MUCH: f64 = 0.05;

/// What is said of a plan whose tensor-, context- or expert-parallel groups go over the network.
pub(crate) fn over_the_network(plan: &Plan, time: &TimeAnswer) -> Vec<Finding> {
    let (layout, cluster, parts) = (&plan.layout, &plan.cluster, &time.breakdown);
    let strides = Strides::of(layout);
    let domain = cluster.nvlink_domain.max(1);
    // Each with what of a step it waits for, and whether it is usual.
    let groups = [
        (
            "tp",
            layout.tp,
            strides.tp,
            parts.tensor_parallel,
            false,
            "share what is left by pp, cp or data parallelism",
        ),
        (
            "cp",
            layout.cp,
            strides.cp,
            parts.context_parallel,
            true,
            match layout.tp {
                1 => "recompute more in place of splitting sequences so far",
                _ => "take a smaller tp, or recompute more in place of splitting sequences so far",
            },
        ),
        ("etp", layout.etp, strides.etp, parts.expert_parallel, false, "split experts by ep instead"),
        (
            "ep",
            layout.ep,
            strides.ep,
            parts.expert_parallel,
            true,
            match layout.etp {
                1 => "hold more experts on a GPU, with more stages to share their memory",
                _ => {
                    "take a smaller etp, or hold more experts on a GPU, with more stages to share their memory"
                }
            },
        ),
    ];
    let mut findings = Vec::new();
    for (axis, size, stride, seconds, usual, otherwise) in groups {
        // Without experts etp is tp again.
        if axis.starts_with('e') && plan.model.moe.is_none() {
            continue;
        }
        let (inside, on_node) = ((domain / stride).max(1), cluster.gpus_per_node / stride);
        let share = seconds / time.step_seconds;
        if size <= inside || size <= on_node || cluster.gpu.speeds.is_none() || (usual && share < MUCH) {
            continue;
        }
        let message = format!(
            "{axis} {size} does not fit in an NVLink domain ({domain} GPUs, in which {inside} of a group stand), so it communicates \
             over the network: {seconds:.3} s of a step of {:.3} s wait for it; {axis} of at most {inside} would not, so {otherwise}",
            time.step_seconds
        );
        let field = format!("layout.{axis}");
        let finding = match usual {
            true => Finding::info(&field, size, message),
            false => Finding::warning(&field, size, message),
        };
        let smaller = (1..=inside).rev().filter(|fewer| size.is_multiple_of(*fewer)).take(3);
        findings.push(finding.rule("groups of every layer stand in one NVLink domain").nearest(smaller));
    }
    findings
}

#[cfg(test)]
mod tests {
    use crate::answer::estimate;
    use crate::finding::{Finding, Severity};
    use crate::parse::parse_plan;

    /// What is said of groups over the network, by field.
    fn told(plan: &str) -> Vec<Finding> {
        let file = parse_plan(&format!(r#"{{"version": 1, {plan}}}"#)).expect("a plan file");
        let answer = estimate(&file);
        assert!(answer.time.is_some(), "{:?}", answer.findings);
        answer.findings.into_iter().filter(|finding| finding.rule.contains("NVLink domain")).collect()
    }

    fn llama(gpu: &str, nodes: u64, per_node: u64, layout: &str) -> Vec<Finding> {
        told(&format!(
            r#""model": {{"preset": "llama-3-70b"}}, "layout": {{{layout}}},
               "cluster": {{"gpu": "{gpu}", "nodes": {nodes}, "gpus_per_node": {per_node}}}"#
        ))
    }

    #[test]
    fn tensor_parallelism_over_nodes_is_told_with_its_seconds() {
        assert_eq!(llama("h100-sxm", 4, 8, r#""tp": 8"#), []);
        let [found] = &llama("h100-sxm", 4, 8, r#""tp": 16"#)[..] else { panic!("one finding") };
        assert_eq!((found.severity, found.field.as_str()), (Severity::Warning, "layout.tp"));
        assert!(
            found.message.contains("8 GPUs") && found.message.contains("wait for it"),
            "{}",
            found.message
        );
        assert_eq!(found.nearest, [8, 4, 2]);
        // In a rack of 72 GPUs it stays in the domain, over whole nodes.
        assert_eq!(llama("gb200", 4, 4, r#""tp": 16"#), []);
        // An order in which replicas come first puts neighbours on other nodes.
        let apart = llama("h100-sxm", 4, 8, r#""tp": 4, "order": "dp-tp-cp-ep-pp""#);
        assert_eq!(apart.iter().map(|found| found.field.as_str()).collect::<Vec<_>>(), ["layout.tp"]);
        assert!(llama("h100-sxm", 4, 8, r#""tp": 4, "order": "tp-cp-ep-dp-pp""#).is_empty());
    }

    #[test]
    fn experts_and_contexts_are_told_where_they_take_much() {
        let experts = |ep: u64| {
            told(&format!(
                r#""model": {{"preset": "qwen3-30b-a3b"}}, "layout": {{"ep": {ep}}},
                   "cluster": {{"gpu": "h100-sxm", "nodes": 8}}"#
            ))
        };
        assert_eq!(experts(8), []);
        let [found] = &experts(64)[..] else { panic!("one finding") };
        assert_eq!((found.severity, found.field.as_str()), (Severity::Info, "layout.ep"));
        // Nothing is advised that the plan does already.
        assert!(!found.message.contains("etp"), "{}", found.message);
        // A dense model has no experts, whatever its etp is.
        assert!(llama("h100-sxm", 4, 8, r#""tp": 16"#).iter().all(|found| found.field != "layout.etp"));
    }
}
