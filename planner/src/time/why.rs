//! Where the numbers of the answer's `time` come from.

use super::constants::{ConstantRole, table};
use super::exchange::bucket;
use super::from_plan::{profile, setup};
use super::machine::Machine;
use super::setup::Setup;
use crate::plan::Plan;
use crate::wire::TimeAnswer;
use crate::wire::Why;

const SOURCE: &str = "the closed-form step time of planner/src/time; constants in planner/src/time/constants.json, with what each was fitted from in priors.json";

/// Explains `step_seconds`, `tokens_per_second`, `mfu`, `breakdown.PART` and so on of a plan's answer; none for an unknown
/// name.
pub fn explain(plan: &Plan, time: &TimeAnswer, name: &str) -> Option<Why> {
    let [low, high] = time.interval_seconds;
    let mut inputs = vec![input("value", String::new())];
    let step = ("step", format!("{} s", time.step_seconds));
    let tokens = plan.training.seq_len as f64 * plan.training.global_batch_size as f64;
    let world = ("GPUs", plan.world_size().to_string());
    let (title, value, formula, more) = match name {
        "step_seconds" => {
            let parts = time.breakdown.parts().into_iter().filter(|(_, seconds)| *seconds > 0.0);
            let mut more: Vec<(&str, String)> =
                parts.map(|(part, seconds)| (part, format!("{seconds} s"))).collect();
            more.push(("likely from", format!("{low} s")));
            more.push(("likely to", format!("{high} s")));
            let formula = if time.simulated {
                "the pipeline simulated action by action, and what a step takes besides; likely range: nine of ten steps by the spread of measured over predicted, which is that of the closed form"
            } else {
                "the sum of what the stage that takes longest spends, with its waiting; likely range: nine of ten steps by the spread of measured over predicted"
            };
            ("Seconds of a step", format!("{} s", time.step_seconds), formula, more)
        }
        "tokens_per_second" | "tokens_per_second_per_gpu" => {
            let per_gpu = name.ends_with("gpu");
            let value = if per_gpu { time.tokens_per_second_per_gpu } else { time.tokens_per_second };
            let formula = if per_gpu {
                "tokens of a step / seconds of a step / GPUs"
            } else {
                "tokens of a step / seconds of a step"
            };
            let title = if per_gpu { "Tokens per second and GPU" } else { "Tokens per second" };
            let more = vec![
                ("tokens of a step", tokens.to_string()),
                ("training.seq_len", plan.training.seq_len.to_string()),
                ("training.global_batch_size", plan.training.global_batch_size.to_string()),
                step,
                world,
            ];
            (title, value.to_string(), formula, more)
        }
        "model_tflops_per_gpu" => (
            "Model TFLOP/s per GPU",
            time.model_tflops_per_gpu.to_string(),
            "FLOPs of forward and backward as Megatron-Core's log counts them (causal attention half, no recomputation) / seconds / GPUs / 10^12",
            vec![step, world],
        ),
        "mfu" | "hfu" => {
            let (value, title, formula) = if name == "mfu" {
                (time.mfu?, "Model FLOPs utilisation", "model FLOP/s per GPU / peak of the compute type")
            } else {
                (
                    time.hfu?,
                    "Hardware FLOPs utilisation",
                    "(model FLOPs + recomputed FLOPs) / seconds / GPUs / peak of the compute type",
                )
            };
            let peak = super::answer::peak_flops(plan)?;
            let more = vec![
                ("peak", format!("{} TFLOP/s", peak / 1e12)),
                ("cluster.gpu", plan.cluster.gpu.title.to_owned()),
                ("training.dtype", plan.training.dtype.name().to_owned()),
                ("model TFLOP/s per GPU", time.model_tflops_per_gpu.to_string()),
            ];
            (title, format!("{} %", 100.0 * value), formula, more)
        }
        "bubble" => (
            "Share of the step that the longest stage waits for others",
            format!("{} %", 100.0 * time.bubble),
            "fill and drain of the pipeline / seconds of a step; the timeline shows each stage's own",
            vec![
                ("layout.pp", plan.layout.pp.to_string()),
                ("layout.vpp", plan.layout.vpp.to_string()),
                ("layout.schedule", plan.layout.schedule.name().to_owned()),
                ("micro batches", plan.microbatches().to_string()),
                step,
            ],
        ),
        "hidden_communication" => (
            "Seconds of collectives beside computing",
            format!("{} s", time.hidden_communication),
            "what tensor, context, expert and data parallelism would take with nothing beside it, without what of that the step waits for",
            vec![("exposed collectives", format!("{} s", time.breakdown.exposed_communication())), step],
        ),
        "days" => (
            "Days of training",
            time.days?.to_string(),
            "training.train_tokens / tokens per second / 86,400 / goodput",
            vec![
                ("training.train_tokens", plan.file.training.train_tokens?.to_string()),
                ("tokens per second", time.tokens_per_second.to_string()),
                (
                    "goodput",
                    time.goodput.as_ref().map_or_else(
                        || "1, no failure rate is given".to_owned(),
                        |goodput| goodput.share.to_string(),
                    ),
                ),
            ],
        ),
        "gpu_hours" => (
            "GPU hours",
            time.gpu_hours?.to_string(),
            "days x 24 x GPUs",
            vec![("days", time.days?.to_string()), world],
        ),
        "cost" => (
            "Cost of training",
            time.cost?.to_string(),
            "GPU hours x price",
            vec![
                ("GPU hours", time.gpu_hours?.to_string()),
                ("cluster.price_per_gpu_hour", plan.file.cluster.price_per_gpu_hour?.to_string()),
            ],
        ),
        "goodput" => {
            let goodput = time.goodput.as_ref()?;
            let more = vec![
                ("cluster.gpu_mtbf_hours", plan.file.cluster.gpu_mtbf_hours?.to_string()),
                ("seconds between failures of any GPU", goodput.cluster_mtbf_s.to_string()),
                ("cluster.checkpoint_interval_s", goodput.checkpoint_interval_s.to_string()),
                ("best interval", goodput.optimal_interval_s.to_string()),
                ("seconds that training waits for a checkpoint", goodput.checkpoint_write_s.to_string()),
                ("cluster.restart_s", goodput.restart_s.to_string()),
            ];
            (
                "Share of time that trains",
                format!("{} %", 100.0 * goodput.share),
                "interval / expected seconds until an interval and its checkpoint are done, with exponential failures",
                more,
            )
        }
        _ => return part(plan, time, name.strip_prefix("breakdown.")?),
    };
    inputs[0].1 = value;
    inputs.extend(more.into_iter().map(|(name, value)| input(name, value)));
    let source = match name {
        "goodput" | "days" => {
            "Young 1974, Daly 2006: optimum and expected run time with checkpoints; a GPU's checkpoint is taken to be written at 1 GB/s"
        }
        "mfu" => plan.cluster.gpu.speeds.map_or(SOURCE, |_| plan.cluster.gpu.source("bf16_tflops")),
        _ => SOURCE,
    };
    Some(finished(plan, title, formula, inputs, source))
}

/// A part of the breakdown, by its name with underscores.
fn part(plan: &Plan, time: &TimeAnswer, name: &str) -> Option<Why> {
    let (wanted, seconds) =
        time.breakdown.parts().into_iter().find(|(part, _)| part.replace([' ', '-'], "_") == name)?;
    let layout = &plan.layout;
    let setup = setup(plan).ok()?;
    let machine = setup.machine(&table().values());
    let (formula, fields): (&str, Vec<(&str, String)>) = match name {
        "matrix_products" => (
            "for every product of the longest stage, forward and both gradients: 2 m n k / sustained FLOP/s x (1 + fill of the k loop + unfilled last wave), or its bytes / bandwidth where those take longer",
            vec![("micro batches", plan.microbatches().to_string()), ("layout.tp", layout.tp.to_string())],
        ),
        "attention" => (
            "causal FLOPs of attention, and of scans, / FLOP/s that the kernel sustains; backward 2.5 times forward",
            vec![
                ("training.seq_len", plan.training.seq_len.to_string()),
                ("layout.tp", layout.tp.to_string()),
                ("layout.cp", layout.cp.to_string()),
            ],
        ),
        "memory_bound" => (
            "bytes that norms, activations, routing and loss move / sustained memory bandwidth",
            vec![("memory bandwidth, sustained", format!("{} GB/s", machine.memory / 1e9))],
        ),
        "recompute" => (
            "forward of what is computed again in backward, with its communication",
            vec![("training.recompute.granularity", plan.training.recompute.name().to_owned())],
        ),
        "tensor_parallel" => (
            "gathers and scatters of activations over the group, as far as no product hides them",
            vec![("layout.tp", layout.tp.to_string()), ("layout.sp", layout.sp.to_string())],
        ),
        "context_parallel" => (
            "keys and values passed around the group, as far as attention does not hide them",
            vec![("layout.cp", layout.cp.to_string()), ("layout.cp_kind", layout.cp_kind.name().to_owned())],
        ),
        "expert_parallel" => (
            "dispatch and combine of tokens, forward and backward, as far as nothing hides them",
            vec![("layout.ep", layout.ep.to_string()), ("layout.etp", layout.etp.to_string())],
        ),
        "host" => (
            "what launching a micro batch's work takes beyond the work itself",
            vec![("share that CUDA graphs leave", setup.pipe(&machine).host_share.to_string())],
        ),
        "pipeline_sends" => (
            "2 x seconds of a transfer x (micro batches x chunks x exposed share + stages - 1)",
            vec![
                ("layout.pp", layout.pp.to_string()),
                ("layout.vpp", layout.vpp.to_string()),
                ("micro batches", plan.microbatches().to_string()),
            ],
        ),
        "bubble" => (
            if time.simulated {
                "what the simulated pipeline takes beyond the work and the sends of the longest stage"
            } else {
                "seconds of a micro batch on all other stages / chunks: fill and drain"
            },
            vec![
                ("layout.pp", layout.pp.to_string()),
                ("layout.vpp", layout.vpp.to_string()),
                ("layout.schedule", layout.schedule.name().to_owned()),
            ],
        ),
        "data_parallel" => (
            "reduction of gradients and gathering of parameters, bucket by bucket, as far as backward and forward don't hide them; nothing hides the last bucket of backward and the first of forward",
            vec![
                ("data parallel", layout.dp.to_string()),
                ("data parallel of experts", layout.edp.to_string()),
                ("elements of a bucket of gradients", bucket_text(&setup, &machine)),
            ],
        ),
        "host_copies" => (
            "bytes of tensors that wait on the host / bytes/s of the link to it, as far as they take longer than the pass of the micro batch that they run beside; the optimizer's once a step, beside nothing",
            vec![
                ("link to the host", format!("{} GB/s", machine.of(ConstantRole::HostLink) / 1e9)),
                ("training.optimizer.offload_fraction", plan.training.optimizer.offload_fraction.to_string()),
                ("training.offload.modules", format!("[{}]", plan.training.offload.modules.join(", "))),
            ],
        ),
        "optimizer" => (
            "(30 bytes x elements of the rank's state + 6 bytes x elements of its parameters) / sustained memory bandwidth",
            vec![("memory bandwidth, sustained", format!("{} GB/s", machine.memory / 1e9))],
        ),
        "fixed" => ("what every step takes besides: logging, loss, data", Vec::new()),
        _ => return None,
    };
    let share = format!("{} % of the step", 100.0 * seconds / time.step_seconds);
    let mut inputs = vec![input("value", format!("{seconds} s")), input("share", share)];
    inputs.extend(fields.into_iter().map(|(name, value)| input(name, value)));
    let title = format!("Seconds of a step: {wanted}");
    Some(finished(plan, &title, formula, inputs, SOURCE))
}

fn bucket_text(setup: &Setup, machine: &Machine) -> String {
    match bucket(machine, ConstantRole::BucketElements, &setup.data) {
        Some(elements) => format!("{elements} or more"),
        None if setup.data.by_layer[0] => "those of a layer".to_owned(),
        None => "all, since nothing overlaps".to_owned(),
    }
}

fn input(name: &str, value: String) -> (String, String) {
    (name.to_owned(), value)
}

/// With the software profile, whose constants hold.
fn finished(plan: &Plan, title: &str, formula: &str, mut inputs: Vec<(String, String)>, source: &str) -> Why {
    let profile = profile(plan).map_or_else(String::new, |profile| profile.name.clone());
    inputs.push(input("software.profile", profile));
    Why {
        title: title.to_owned(),
        formula: formula.to_owned(),
        inputs,
        source: source.to_owned(),
        note: "A prediction: docs/accuracy.md says how far it is from measured steps".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::answer::estimate;
    use crate::parse::parse_plan;
    use crate::why::explain;

    #[test]
    fn every_number_of_the_answer_says_where_it_comes_from() {
        let file = parse_plan(
            r#"{"version": 1, "model": {"preset": "deepseek-v3"}, "cluster": {"gpu": "h100-sxm", "nodes": 128,
                "price_per_gpu_hour": 2.0, "gpu_mtbf_hours": 50000.0}, "layout": {"tp": 2, "pp": 8, "ep": 32,
                "first_stage_layers": 6, "last_stage_layers": 7},
                "training": {"global_batch_size": 4096, "train_tokens": 1e12, "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}}}"#,
        )
        .unwrap();
        let answer = estimate(&file);
        let time = answer.time.unwrap_or_else(|| panic!("{:?}", answer.findings));
        let names = [
            "step_seconds",
            "tokens_per_second",
            "tokens_per_second_per_gpu",
            "model_tflops_per_gpu",
            "mfu",
            "hfu",
            "bubble",
            "hidden_communication",
            "days",
            "gpu_hours",
            "cost",
            "goodput",
        ];
        let parts =
            time.breakdown.parts().map(|(part, _)| format!("breakdown.{}", part.replace([' ', '-'], "_")));
        for name in names.map(str::to_owned).into_iter().chain(parts) {
            let why = explain(&file, &format!("time.{name}")).unwrap_or_else(|| panic!("{name}"));
            assert!(!why.formula.is_empty() && !why.source.is_empty(), "{why:?}");
            assert!(why.inputs.iter().all(|(_, value)| !value.is_empty()), "{why:?}");
        }
        assert_eq!(explain(&file, "time.nonsense"), None);
    }
}
