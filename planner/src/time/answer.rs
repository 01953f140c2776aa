//! The answer's `time`: seconds of a step, and what follows from them.

use super::constants::table;
use super::flops::{model_flops, recomputed_flops};
use super::from_plan::setup;
use super::goodput::{assumed, goodput};
use super::nonuniform::predict;
use super::rate::tokens_per_second;
use super::setup::Setup;
use super::spread::{Spread, quicker_network, spread};
use super::step::StepTime;
use super::timeline::simulated_seconds;
use crate::finding::{Finding, clip, nearest_names};
use crate::plan::Plan;
use crate::shard::padded_vocabulary;
use crate::units::{LowPrecision, decimal};
use crate::wire::{TimeAnswer, TimeBreakdown};

/// Most actions of a pipeline that is simulated for an answer: some milliseconds.
const MOST_ACTIONS: u64 = 1 << 18;
/// Seconds.
const DAY: f64 = 86_400.0;
/// Longest step that is an answer: more is a plan that nobody runs, or a link without bandwidth.
const MOST_SECONDS: f64 = 1e9;

/// What can be said against a plan's time settings, before its time is computed.
pub fn check(plan: &Plan) -> Vec<Finding> {
    let mut findings = super::calibrated::check(plan);
    if let Some(name) = &plan.software.profile
        && table().profile(name).is_none()
    {
        let names: Vec<&str> = table().profiles.iter().map(|profile| profile.name.as_str()).collect();
        let message = format!("`{}` is not a software profile; known are {}", clip(name), names.join(", "));
        findings.push(
            Finding::error("software.profile", clip(name), message)
                .rule("software profiles (time model)")
                .nearest(nearest_names(name, names, 3)),
        );
    }
    findings
}

/// Seconds of a step of a valid plan, and findings on what was assumed; none where a figure makes it endless.
pub fn answer(plan: &Plan) -> (Option<TimeAnswer>, Vec<Finding>) {
    let (found, findings) = answer_and_setup(plan);
    (found.map(|(answer, _)| answer), findings)
}

/// The same with the numbers that it is made of.
fn answer_and_setup(plan: &Plan) -> (Option<(TimeAnswer, Setup)>, Vec<Finding>) {
    let mut findings = Vec::new();
    let predicted = setup(plan).and_then(|setup| {
        let step = predict(plan, &setup, &table().values())?;
        Ok((setup, step))
    });
    let (setup, step) = match predicted {
        Ok(predicted) => predicted,
        Err(reason) => {
            findings.push(
                Finding::warning("time", serde_json::Value::Null, format!("no time can be told: {reason}"))
                    .rule("time model"),
            );
            return (None, findings);
        }
    };
    let seconds = step.total();
    if !(seconds.is_finite() && seconds > 0.0 && seconds < MOST_SECONDS) {
        let (field, value, what) = endless(plan);
        findings.push(
            Finding::warning(field, value, format!("a step would never end: {what}")).rule("time model"),
        );
        return (None, findings);
    }
    let spread = spread(plan, &setup, &step, &mut findings);
    let hidden = setup.hidden_communication(&table().values());
    let answer = put_together(plan, &step, hidden, spread);
    if answer.goodput.is_some() {
        findings.extend(assumed(plan));
    }
    findings.extend(absurd(plan, &answer));
    (Some((answer, setup)), findings)
}

/// Seconds at which the likely range begins on a network that is quicker than the plan's, its pipeline simulated; none where there is no
/// such network. What a simulation adds to the closed form differs with the network, and a slower one makes no step quicker.
pub(crate) fn least_on_quicker_network(plan: &Plan) -> Option<f64> {
    Some(simulated_answer(&quicker_network(plan)?).0?.interval_seconds[0])
}

/// A likely range that begins no earlier than on a quicker network, nor after the step itself.
pub(crate) fn not_before(least: Option<f64>, [low, high]: [f64; 2], step_seconds: f64) -> [f64; 2] {
    [least.map_or(low, |least| least.max(low).min(step_seconds)), high]
}

/// The same with the pipeline simulated, action by action, as a search simulates its best plans; by the closed form where
/// there is no pipeline, or one of more actions than are simulated here.
pub(crate) fn simulated_answer(plan: &Plan) -> (Option<TimeAnswer>, Vec<Finding>) {
    let (found, findings) = answer_and_setup(plan);
    let answer = found.map(|(mut answer, setup)| {
        if let Some(seconds) = simulated_with(plan, &setup, answer.step_seconds) {
            answer.simulate(seconds);
            answer.interval_seconds =
                not_before(least_on_quicker_network(plan), answer.interval_seconds, answer.step_seconds);
        }
        answer
    });
    (answer, findings)
}

/// Seconds of a step of a valid plan, its pipeline simulated; none where the closed form has the last word: without a
/// pipeline, with more actions than are simulated here, and where replicas are not alike or ranks share a CPU's cores, of
/// which a simulation knows nothing.
pub fn simulated(plan: &Plan) -> Option<f64> {
    let whole = || simulated_seconds(plan, &setup(plan).ok()?, MOST_ACTIONS);
    (plan.nonuniform.is_none() && is_simulated(plan)).then(whole).flatten()
}

/// The same of a step that takes `closed_form` seconds. With failed GPUs it is longer as much as the pipeline of the whole plan is, which
/// is what a search says of such plans.
fn simulated_with(plan: &Plan, setup: &Setup, closed_form: f64) -> Option<f64> {
    if !is_simulated(plan) {
        return None;
    }
    if plan.nonuniform.is_none() {
        return simulated_seconds(plan, setup, MOST_ACTIONS);
    }
    let whole = Plan { nonuniform: None, ..plan.clone() };
    let seconds = simulated_seconds(&whole, setup, MOST_ACTIONS)?;
    Some(closed_form * seconds / setup.predict(&table().values()).total())
}

fn is_simulated(plan: &Plan) -> bool {
    plan.layout.pp > 1 && plan.cluster.gpu.speeds.is_some()
}

impl TimeAnswer {
    /// Takes seconds of a simulation in place of the closed form's, and what follows from them. What differs is waiting, and
    /// where there is less of that sends.
    fn simulate(&mut self, seconds: f64) {
        let share = seconds / self.step_seconds;
        let parts = &mut self.breakdown;
        let mut more = seconds - self.step_seconds;
        for part in [&mut parts.bubble, &mut parts.pipeline_sends, &mut parts.host] {
            let taken = more.max(-*part);
            *part = rounded(*part + taken);
            more -= taken;
        }
        self.bubble = rounded(parts.bubble / seconds);
        self.step_seconds = rounded(seconds);
        self.simulated = true;
        self.interval_seconds = self.interval_seconds.map(|end| rounded(end * share));
        for rate in
            [&mut self.tokens_per_second, &mut self.tokens_per_second_per_gpu, &mut self.model_tflops_per_gpu]
        {
            *rate = rounded(*rate / share);
        }
        for rate in [&mut self.mfu, &mut self.hfu].into_iter().flatten() {
            *rate = rounded(*rate / share);
        }
        for sum in [&mut self.days, &mut self.gpu_hours, &mut self.cost].into_iter().flatten() {
            *sum = rounded(*sum * share);
        }
    }
}

/// Figures that no training has: a step longer than a day, and days or money without an end.
fn absurd(plan: &Plan, answer: &TimeAnswer) -> Option<Finding> {
    let warning = |field: &str, value: serde_json::Value, message: String| {
        Some(Finding::warning(field, value, message).rule("time model"))
    };
    let (training, cluster) = (&plan.training, &plan.file.cluster);
    if answer.step_seconds > DAY {
        let message = format!(
            "a step takes {:.0} days: {} sequences are more than these GPUs compute in one",
            (answer.step_seconds / DAY).ceil(),
            training.global_batch_size
        );
        return warning("training.global_batch_size", training.global_batch_size.into(), message);
    }
    if let (Some(tokens), None) = (plan.file.training.train_tokens, answer.days) {
        let message =
            format!("{tokens:e} tokens take more than {MOST:e} days, so neither days nor cost are told");
        return warning("training.train_tokens", tokens.into(), message);
    }
    let (Some(price), None, Some(_)) = (cluster.price_per_gpu_hour, answer.cost, answer.days) else {
        return None;
    };
    let message = format!("{price:e} for a GPU hour makes more than {MOST:e}, so no cost is told");
    warning("cluster.price_per_gpu_hour", price.into(), message)
}

fn endless(plan: &Plan) -> (&'static str, serde_json::Value, &'static str) {
    if plan.cluster.nic_gbps <= 0.0 {
        return (
            "cluster.nic_gbps",
            plan.cluster.nic_gbps.into(),
            "the network has no bandwidth; give what a GPU has",
        );
    }
    let batch = plan.training.global_batch_size.into();
    (
        "training.global_batch_size",
        batch,
        "there is more to compute than a billion seconds hold; make the batch smaller",
    )
}

/// Nine significant digits, and nothing below a picosecond: more is not known, and JSON then reads back to the same
/// number everywhere.
pub(crate) fn rounded(value: f64) -> f64 {
    if value.abs() < 1e-12 { 0.0 } else { decimal(&format!("{value:.8e}")).unwrap_or(value) }
}

/// Largest number of days, hours or money that is an answer.
const MOST: f64 = 1e18;

fn put_together(plan: &Plan, step: &StepTime, hidden: f64, spread: Spread) -> TimeAnswer {
    let (training, cluster) = (&plan.training, &plan.file.cluster);
    let (seconds, ranks) = (step.total(), plan.world_size() as f64);
    let [below, above] = spread.half.map(libm::exp);
    let sequences = match &plan.nonuniform {
        Some(nonuniform) => nonuniform.sequences(plan.layout.dp),
        None => training.global_batch_size,
    };
    let share_of_batch = sequences as f64 / training.global_batch_size.max(1) as f64;
    let tokens_per_second = tokens_per_second(plan, sequences, seconds);
    let flops = model_flops(&plan.model, padded_vocabulary(plan), training.seq_len, sequences);
    let peak = peak_flops(plan);
    let utilisation = |flops: f64| peak.map(|peak| rounded(flops / (seconds * ranks * peak)));
    let goodput = goodput(plan);
    let share = goodput.as_ref().map_or(1.0, |goodput| goodput.share);
    let train_tokens = plan.file.training.train_tokens;
    let finite = |value: f64| (value < MOST).then(|| rounded(value));
    let days = train_tokens.and_then(|tokens| finite(tokens / tokens_per_second / share / DAY));
    let gpu_hours = days.and_then(|days| finite(days * 24.0 * ranks));
    let cost = gpu_hours.zip(cluster.price_per_gpu_hour).and_then(|(hours, price)| finite(hours * price));
    TimeAnswer {
        step_seconds: rounded(seconds),
        simulated: false,
        // Copies to the host may be hidden less well than those of the model.
        interval_seconds: [rounded(seconds / below), rounded((seconds + step.hidden_copies) * above)],
        nearest: spread.nearest,
        breakdown: TimeBreakdown {
            matrix_products: rounded(step.parts.gemm),
            attention: rounded(step.parts.attention),
            memory_bound: rounded(step.parts.memory),
            recompute: rounded(step.recompute),
            tensor_parallel: rounded(step.parts.tp),
            context_parallel: rounded(step.parts.cp),
            expert_parallel: rounded(step.parts.ep),
            host: rounded(step.host),
            pipeline_sends: rounded(step.sends),
            bubble: rounded(step.bubble),
            data_parallel: rounded(step.data),
            host_copies: rounded(step.copies),
            optimizer: rounded(step.optimizer),
            fixed: rounded(step.fixed),
        },
        hidden_communication: rounded(hidden),
        tokens_per_second: rounded(tokens_per_second),
        tokens_per_second_per_gpu: rounded(tokens_per_second / ranks),
        model_tflops_per_gpu: rounded(flops / (seconds * ranks) / 1e12),
        mfu: utilisation(flops),
        hfu: utilisation(flops + recomputed_flops(plan) * share_of_batch),
        bubble: rounded(step.bubble / seconds),
        days,
        gpu_hours,
        cost,
        goodput,
        profile: super::from_plan::profile(plan).map(|profile| profile.name.clone()).unwrap_or_default(),
        calibration: super::calibrated::calibration(plan)
            .ok()
            .flatten()
            .map(|calibration| clip(&calibration.name)),
    }
}

/// Peak of the compute type, FLOP/s; none where the GPU has no figure.
pub(crate) fn peak_flops(plan: &Plan) -> Option<f64> {
    let speeds = plan.cluster.gpu.speeds?;
    let tflops = match plan.training.low_precision {
        Some(LowPrecision::Nvfp4) => speeds.fp4_tflops.or(speeds.fp8_tflops).unwrap_or(speeds.bf16_tflops),
        Some(_) => speeds.fp8_tflops.unwrap_or(speeds.bf16_tflops),
        None => speeds.bf16_tflops,
    };
    Some(tflops * 1e12)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::answer::estimate;
    use crate::finding::Finding;
    use crate::parse::parse_plan;
    use crate::wire::Answer;

    fn answer(file: &Value) -> Answer {
        estimate(&parse_plan(&file.to_string()).unwrap())
    }

    fn check(what: &str, file: Value, expected: impl Fn(&Answer) -> bool) {
        let answer = answer(&file);
        assert!(expected(&answer), "{what}: {:?} {:?}", answer.time, answer.findings);
    }

    fn plan(gpu: &str, cluster: Value, layout: Value, training: Value) -> Value {
        let mut all = json!({"gpu": gpu, "nodes": 8});
        all.as_object_mut().unwrap().extend(cluster.as_object().unwrap().clone());
        json!({"version": 1, "model": {"preset": "qwen3-30b-a3b"}, "cluster": all, "layout": layout,
               "training": training})
    }

    /// Tokens that experts are padded to are multiplied and sent, and those that are dropped are not.
    #[test]
    fn a_capacity_is_as_many_tokens_in_time_as_in_memory() {
        let of = |moe: Value| {
            let answer = answer(&plan(
                "h200",
                json!({}),
                json!({"ep": 8}),
                json!({"micro_batch_size": 2, "moe": moe}),
            ));
            let parts = answer.time.expect("seconds").breakdown;
            let peak = answer.memory.expect("bytes").rank_classes[0].peak_allocated_bytes;
            (parts.matrix_products, parts.expert_parallel, peak)
        };
        let padded = |capacity: f64| {
            of(json!({"capacity_factor": capacity, "pad_to_capacity": true, "load_imbalance": 1.0}))
        };
        let (plain, one, two, four) =
            (of(json!({"load_imbalance": 1.0})), padded(1.0), padded(2.0), padded(4.0));
        assert_eq!((plain.0, plain.1), (one.0, one.1));
        for (less, more) in [(&one, &two), (&two, &four)] {
            assert!(less.0 < more.0 && less.1 < more.1 && less.2 < more.2, "{less:?} {more:?}");
        }
        let loaded = of(json!({"load_imbalance": 2.0}));
        assert_eq!((loaded.0, loaded.1), (two.0, two.1));
        let dropped = of(json!({"capacity_factor": 0.5, "load_imbalance": 1.0}));
        assert!(dropped.0 < plain.0 && dropped.1 < plain.1 && dropped.2 < plain.2, "{dropped:?}");
    }

    #[test]
    fn what_is_hidden_is_what_would_be_exposed_without_overlap() {
        let of = |gpu: &str, preset: &str, layout: &Value, overlap: Value| {
            let file = json!({"version": 1, "model": {"preset": preset}, "cluster": {"gpu": gpu, "nodes": 8},
                "layout": layout, "training": {"global_batch_size": 512, "overlap": overlap}});
            let time = answer(&file).time.expect("seconds");
            (time.breakdown.exposed_communication(), time.hidden_communication)
        };
        let without = json!({"tp": false, "ep": false, "grad_reduce": false, "param_gather": false});
        let cases = [
            ("llama-3-8b", json!({"tp": 4}), "tp"),
            ("llama-3-70b", json!({"tp": 8, "pp": 4, "vpp": 5}), "tp"),
            ("qwen3-30b-a3b", json!({"ep": 8}), "ep"),
            ("mixtral-8x7b", json!({"ep": 8, "pp": 4, "vpp": 2}), "ep"),
        ];
        for gpu in ["h100-sxm", "a100-80gb-sxm", "gb200"] {
            for (preset, layout, what) in &cases {
                let none = of(gpu, preset, layout, without.clone());
                assert_eq!(none.1, 0.0, "{gpu} {preset}");
                let mut some = without.clone();
                some[*what] = json!(true);
                let some = of(gpu, preset, layout, some);
                assert!(some.1 > 0.0 && some.0 < none.0, "{gpu} {preset}: {some:?} {none:?}");
                assert!(
                    (some.0 + some.1 - none.0).abs() < 1e-6 * none.0,
                    "{gpu} {preset}: {some:?} {none:?}"
                );
                let beside = json!({"grad_reduce": true, "param_gather": true, "tp": false, "ep": false});
                let reduced = of(gpu, preset, layout, beside);
                assert!(reduced.1 > 0.0 && reduced.0 < none.0, "{gpu} {preset}: {reduced:?} {none:?}");
            }
        }
    }

    #[test]
    fn the_breakdown_sums_to_the_step_for_every_runtime_and_gpu() {
        for gpu in crate::cluster::gpus() {
            for runtime in ["megatron", "native", "fsdp2", "megatron_fsdp"] {
                for model in
                    ["llama-3-8b", "qwen3-30b-a3b", "nemotron-3-nano", "deepseek-v3", "qwen3-next-80b-a3b"]
                {
                    let file = json!({"version": 1, "model": {"preset": model}, "runtime": runtime,
                        "cluster": {"gpu": gpu.id, "nodes": 8}, "training": {"global_batch_size": 128}});
                    let answer = answer(&file);
                    let Some(time) = answer.time else {
                        assert!(
                            answer.memory.is_none(),
                            "{runtime} {model} {}: {:?}",
                            gpu.id,
                            answer.findings
                        );
                        continue;
                    };
                    let parts: Vec<f64> = time.breakdown.parts().iter().map(|part| part.1).collect();
                    assert!(parts.iter().all(|&part| part >= 0.0 && part.is_finite()), "{model} {parts:?}");
                    let sum: f64 = parts.iter().sum();
                    assert!((sum / time.step_seconds - 1.0).abs() < 1e-7, "{model} {}: {sum}", gpu.id);
                    let [low, high] = time.interval_seconds;
                    assert!(low < time.step_seconds && time.step_seconds < high);
                }
            }
        }
    }

    #[test]
    fn bad_input_gives_findings() {
        let has = |field: &'static str| {
            move |answer: &Answer| {
                answer.time.is_none() && answer.findings.iter().any(|finding| finding.field == field)
            }
        };
        check(
            "no bandwidth",
            plan("h100-sxm", json!({"nic_gbps": 0.0}), json!({}), json!({})),
            has("cluster.nic_gbps"),
        );
        let mut file = plan("h100-sxm", json!({}), json!({}), json!({}));
        file["software"] = json!({"profile": "bridge-dens"});
        check("unknown profile", file, |answer| {
            answer.findings.iter().any(|finding| finding.nearest.first() == Some(&json!("bridge-dense")))
        });
        check(
            "a thousand million micro batches",
            plan("h100-sxm", json!({}), json!({}), json!({"global_batch_size": 64_000_000_000_u64})),
            |answer| {
                let said = |finding: &Finding| finding.field == "training.global_batch_size";
                answer.findings.iter().any(said)
                    && answer.time.as_ref().is_none_or(|time| time.step_seconds.is_finite())
            },
        );
        check(
            "as many tokens as nobody has, at an absurd price, and failures every moment",
            plan(
                "h100-sxm",
                json!({"price_per_gpu_hour": 1e308, "gpu_mtbf_hours": 1e-300}),
                json!({}),
                json!({"train_tokens": 1e300}),
            ),
            |answer| {
                let said = |finding: &Finding| finding.field == "training.train_tokens";
                answer.findings.iter().any(said)
                    && answer.time.as_ref().is_some_and(|time| time.cost.is_none())
            },
        );
        check(
            "an absurd price",
            plan("h100-sxm", json!({"price_per_gpu_hour": 1e300}), json!({}), json!({"train_tokens": 1e12})),
            |answer| {
                let said = |finding: &Finding| finding.field == "cluster.price_per_gpu_hour";
                answer.findings.iter().any(said)
                    && answer.time.as_ref().is_some_and(|time| time.cost.is_none() && time.days.is_some())
            },
        );
    }

    #[test]
    fn more_tensor_parallelism_pays_more_communication() {
        let at = |tp: u64| {
            let file = json!({"version": 1, "model": {"preset": "llama-3-70b"},
                "cluster": {"gpu": "h100-sxm", "nodes": 8}, "layout": {"tp": tp}});
            answer(&file).time.unwrap().breakdown.tensor_parallel
        };
        assert!(at(1) == 0.0 && at(2) > 0.0 && at(16) > at(8), "{} {} {}", at(2), at(8), at(16));
    }

    #[test]
    fn days_hours_cost_and_goodput_follow() {
        let file = plan(
            "h100-sxm",
            json!({"price_per_gpu_hour": 2.0, "gpu_mtbf_hours": 50_000.0, "restart_s": 300.0}),
            json!({"ep": 8}),
            json!({"train_tokens": 1e12, "global_batch_size": 512}),
        );
        let time = answer(&file).time.unwrap();
        let goodput = time.goodput.unwrap();
        assert!(goodput.share > 0.9 && goodput.share < 1.0, "{goodput:?}");
        let mut unsaid = file.clone();
        unsaid["cluster"]["restart_s"] = json!(null);
        for (file, count) in [(&file, 1), (&unsaid, 2)] {
            let found =
                answer(file).findings.into_iter().filter(|finding| finding.rule.starts_with("goodput"));
            assert_eq!(found.count(), count);
        }
        let days = 1e12 / time.tokens_per_second / 86_400.0 / goodput.share;
        assert!((time.days.unwrap() / days - 1.0).abs() < 1e-7);
        assert!((time.gpu_hours.unwrap() / (days * 24.0 * 64.0) - 1.0).abs() < 1e-7);
        assert!((time.cost.unwrap() / (2.0 * time.gpu_hours.unwrap()) - 1.0).abs() < 1e-7);
    }
}
