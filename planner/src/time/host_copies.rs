//! Copies between a GPU and its host: what tensors that wait on the host cost a step.
//!
//! Copies go both ways at once and beside computing, so a pass of a micro batch takes as long as the longer of the two; the
//! likely range of a step reaches to where nothing hides them.

use crate::memory;
use crate::plan::Plan;

/// Bytes that a rank copies to its host or back.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HostBytes {
    /// Saved activations of a micro batch, out in its forward and back in its backward.
    pub saved: f64,
    /// For an element of the rank's shard: in the forward and in the backward of each micro batch.
    pub passes: [f64; 2],
    /// For an element of the rank's optimizer state: once a step.
    pub once: f64,
    /// Share of the optimizer's state that the host updates.
    pub updated: f64,
}

impl HostBytes {
    /// Of a valid plan whose parameters are gathered so often for a micro batch, in elements of so many bytes; gradients
    /// have elements of their own. All but what activations take, which says nothing before memory is computed: [`saved_bytes`].
    pub fn of_state(plan: &Plan, gathers: f64, parameter_bytes: f64, gradient_bytes: f64) -> HostBytes {
        let (layout, training) = (&plan.layout, &plan.training);
        let mut found = HostBytes::default();
        let facts = plan.runtime.facts();
        if facts.offloads_state {
            // A gradient leaves, and a new weight comes.
            let share = training.optimizer.offload_fraction.clamp(0.0, 1.0);
            (found.once, found.updated) = (share * (gradient_bytes + parameter_bytes), share);
        } else if facts.shards_parameters && layout.fsdp.offload {
            found.updated = 1.0;
            if gathers > 0.0 {
                // Where parameters come again in backward, they do while gradients leave.
                let again = if gathers > 1.0 { parameter_bytes } else { 0.0 };
                found.passes = [parameter_bytes, gradient_bytes.max(again)];
            } else {
                found.once = parameter_bytes + gradient_bytes;
            }
        }
        found
    }
}

/// Bytes of saved activations that a rank of a valid plan copies out in a micro batch's forward.
pub(super) fn saved_bytes(plan: &Plan) -> f64 {
    let offload = &plan.training.offload;
    if offload.modules.is_empty() && offload.layers == 0 { 0.0 } else { memory::offloaded_bytes(plan) as f64 }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::answer::estimate;
    use crate::parse::parse_plan;
    use crate::wire::TimeAnswer;

    fn time(runtime: &str, layout: &Value, training: &Value) -> TimeAnswer {
        let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "runtime": runtime,
            "cluster": {"gpu": "h100-sxm", "nodes": 2}, "layout": layout, "training": training});
        let answer = estimate(&parse_plan(&file.to_string()).unwrap());
        answer.time.unwrap_or_else(|| panic!("{:?}", answer.findings))
    }

    /// The step of a plan with something on the host, beside that of the plan without.
    fn check(runtime: &str, layout: &Value, on_host: &Value, without: &Value) -> (TimeAnswer, TimeAnswer) {
        let (with, without) = (time(runtime, layout, on_host), time(runtime, layout, without));
        assert_eq!(without.breakdown.host_copies, 0.0);
        let parts: f64 = with.breakdown.parts().iter().map(|part| part.1).sum();
        assert!((parts / with.step_seconds - 1.0).abs() < 1e-7, "{parts} {}", with.step_seconds);
        // Whether or not compute hides them, the range reaches further.
        let reach = |time: &TimeAnswer| time.interval_seconds[1] / time.step_seconds;
        assert!(with.breakdown.host_copies > 0.0 || reach(&with) > reach(&without));
        (with, without)
    }

    #[test]
    fn an_optimizer_on_the_host_copies_gradients_and_weights_once_a_step() {
        let at = |share: f64| json!({"global_batch_size": 64, "optimizer": {"precision_aware": true, "offload_fraction": share}});
        let layout = json!({"tp": 2});
        let (all, none) = check("megatron", &layout, &at(1.0), &at(0.0));
        let (half, _) = check("megatron", &layout, &at(0.5), &at(0.0));
        let copies = all.breakdown.host_copies;
        assert!((half.breakdown.host_copies / copies - 0.5).abs() < 1e-7);
        // 4 bytes of a gradient and 2 of a weight for each of 8.03 billion parameters, over 16 ranks and 32 GB/s.
        assert!((copies / (6.0 * 8.03e9 / 16.0 / 32e9) - 1.0).abs() < 1e-3, "{copies}");
        // The host reads and writes 30 bytes of each at 50 GB/s, where the GPU does at its own memory's.
        let update = all.breakdown.optimizer - none.breakdown.optimizer;
        assert!(
            update > 0.8 * 30.0 * 8.03e9 / 16.0 / 50e9 && update < 30.0 * 8.03e9 / 16.0 / 50e9,
            "{update}"
        );
        assert!((all.step_seconds - none.step_seconds - copies - update).abs() < 1e-7);
    }

    /// What the executor does not do is told, and takes neither bytes nor seconds.
    #[test]
    fn the_executor_keeps_its_state_where_weights_are() {
        let answer = |share: f64| {
            let training = json!({"optimizer": {"offload_fraction": share}});
            let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "runtime": "native",
                "cluster": {"gpu": "h100-sxm", "nodes": 2}, "layout": {"tp": 2}, "training": training});
            estimate(&parse_plan(&file.to_string()).unwrap())
        };
        let (all, none) = (answer(1.0), answer(0.0));
        assert_eq!(all.time, none.time);
        assert_eq!(all.memory, none.memory);
        let said = |answer: &crate::wire::Answer| -> Vec<String> {
            let field = "training.optimizer.offload_fraction";
            answer
                .findings
                .iter()
                .map(|found| &found.message)
                .filter(|found| found.contains(field))
                .cloned()
                .collect()
        };
        assert_eq!(
            said(&all),
            ["training.optimizer.offload_fraction changes nothing: runtime native does not read it"]
        );
        assert_eq!(said(&none), [] as [String; 0]);
    }

    #[test]
    fn activations_cost_what_compute_does_not_hide() {
        let training = |modules: Value| json!({"global_batch_size": 64, "offload": {"modules": modules}});
        for layout in [json!({"tp": 2}), json!({"tp": 2, "pp": 4})] {
            let (few, none) =
                check("megatron", &layout, &training(json!(["attn_norm"])), &training(json!([])));
            let (more, _) = check(
                "megatron",
                &layout,
                &training(json!(["attn_norm", "qkv_linear", "core_attn", "attn_proj"])),
                &training(json!([])),
            );
            assert!(few.step_seconds >= none.step_seconds && more.step_seconds >= few.step_seconds);
            assert!(more.interval_seconds[1] > few.interval_seconds[1], "{layout}");
        }
    }

    #[test]
    fn shards_on_the_host_come_for_every_micro_batch() {
        let layout = |offload: &str| json!({"fsdp": {"offload": offload}});
        let training = |batch: u64| json!({"global_batch_size": batch});
        let copied = |batch: u64| {
            let (with, without) = (
                time("fsdp2", &layout("cpu"), &training(batch)),
                time("fsdp2", &layout("none"), &training(batch)),
            );
            let spread = without.interval_seconds[1] / without.step_seconds;
            let update = with.breakdown.optimizer - without.breakdown.optimizer;
            assert!(update > 0.0);
            // All copies, hidden or not.
            with.interval_seconds[1] / spread - without.step_seconds - update
        };
        let (one, four) = (copied(16), copied(64));
        assert!(one > 0.0 && (four / one - 4.0).abs() < 1e-6, "{one} {four}");
    }
}
