//! How far off a step may be: what holds nine of ten published steps that the constants had not seen, wider with what is assumed and with
//! the distance from what was measured.

use super::calibrated::calibration;
use super::constants::{Constant, ConstantRole, RANGE, table};
use super::from_plan::{profile, setup};
use super::ranges::{
    ELSEWHERE, Ends, RunClass, Runs, Said, class_of, is_elsewhere, ranges, software_title, wider,
};
use super::setup::Setup;
use super::step::StepTime;
use crate::cluster::{Generation, gpu};
use crate::finding::Finding;
use crate::plan::Plan;
use crate::units::thousands;
use crate::wire::NearestRuns;

/// Half the width, as a logarithm, where no measured step stands behind the constants: half to twice.
const ASSUMED: f64 = 0.69;

/// Half the width that each doubling of the GPUs beyond the largest measured cluster adds, as a logarithm: what a network does
/// there is not known. Assumed; steps of one model with a constant batch for each GPU grew by at most 1.5 % from one doubling
/// to the next on up to 2,048 H100 (nemo_h100_scaling).
const DOUBLING: f64 = 0.08;

/// By how much the seconds of exposed communication may be off, as a logarithm, on a network that is not the one that comes with the
/// GPU. Assumed: its latency, oversubscription and routing are not known.
const OTHER_NETWORK: f64 = 0.5;

/// What the busiest ranks of experts add to a step where nothing balances the router and no load is said, as a logarithm. One pair of runs
/// with and without a forced router differs by 6 % (megatron_bridge_model_cards); all other measured mixtures were balanced.
const UNBALANCED: f64 = 0.06;

/// A likely range, as logarithms below and above the step, and the runs that it stands on.
#[derive(Debug, Clone)]
pub(super) struct Spread {
    /// Half the widths below and above.
    pub(super) half: [f64; 2],
    /// The measured runs that are nearest to the plan; none where a calibration stands in their place.
    pub(super) nearest: Option<NearestRuns>,
}

/// The likely range of a plan whose step is known, with findings where it was widened.
pub(super) fn spread(plan: &Plan, setup: &Setup, step: &StepTime, findings: &mut Vec<Finding>) -> Spread {
    if let Ok(Some(calibration)) = calibration(plan) {
        return Spread { half: [RANGE * calibration.spread; 2], nearest: None };
    }
    spread_as(plan, (setup, step), Said::of(plan), findings)
}

/// Half the widths of the likely range below and above a plan's step, as logarithms, if so much of it were said.
///
/// # Errors
/// What the data file lacks.
pub fn half_widths(plan: &Plan, said: Said) -> Result<[f64; 2], String> {
    let setup = setup(plan)?;
    let step = super::nonuniform::predict(plan, &setup, &table().values())?;
    Ok(spread_as(plan, (&setup, &step), said, &mut Vec::new()).half)
}

fn spread_as(
    plan: &Plan,
    (setup, step): (&Setup, &StepTime),
    said: Said,
    findings: &mut Vec<Finding>,
) -> Spread {
    let (gpu, name) = (plan.cluster.gpu, class_of(plan));
    let measured = |like: &dyn Fn(&Runs) -> bool| ranges().has(&name, like);
    let of_gpu = measured(&|runs| runs.gpu == gpu.id);
    let of_generation = measured(&|runs| generation(&runs.gpu) == Some(gpu.generation));
    let [own, elsewhere] = ends(&name, said);
    let mut half = own.or(elsewhere).unwrap_or([ASSUMED; 2]);
    let undecided = if of_generation { Vec::new() } else { unmeasured(setup) };
    let mut note = |field: &str, value: serde_json::Value, why: String| {
        findings.push(Finding::info(field, value, why).rule("time model"));
    };
    let mut assumed = |field: &str, value: &str, why: String| {
        half = wider(half, [ASSUMED; 2]);
        note(field, value.into(), why);
    };
    if gpu.speeds.is_none() {
        let why =
            "time on CPUs is a guess until this machine is measured: the likely range is wide".to_owned();
        assumed("cluster.gpu", gpu.id, why);
    } else if !gpu.measured {
        let why = format!(
            "no measured step of {} stands behind its efficiencies, which are assumed: the likely range is wide",
            gpu.title
        );
        assumed("cluster.gpu", gpu.id, why);
    } else if name.starts_with("native") {
        let why = "no measured step of the executor stands behind its host time, which is assumed: the likely range is wide";
        assumed("runtime", "native", why.to_owned());
    } else if let (false, Some(profile), [(role, _, constant), ..]) =
        (of_generation, profile(plan), &undecided[..])
    {
        let field = "software.profile";
        let what = format!(
            "no measured step stands behind a figure of `{}` on {}, which is assumed to be {}: {}",
            profile.name,
            gpu.title,
            format!("{} {}", constant.value, text_of(&constant.unit).trim_start_matches('1')).trim_end(),
            uncapitalized(text_of(&constant.meaning))
        );
        if *role == setup.numbers.role() {
            assumed(field, &profile.name, format!("{what}; the likely range is wide"));
        } else {
            let [below, above] = by_unmeasured(plan, (setup, step), &undecided);
            let known = measured(&|_| true);
            let other =
                if known { [ranges().other_generation; 2] } else { alike(&name).unwrap_or([ASSUMED; 2]) };
            half = wider(half, other);
            half = [half[0] + below, half[1] + above];
            let why =
                format!("{what}; the likely range is wider by what half and twice of it do to the step");
            note(field, profile.name.as_str().into(), why);
        }
    } else if !measured(&|_| true) {
        // Software that takes the same constants says how far off such models are, where there is some.
        let (ends, whose) = match alike(&name) {
            Some(ends) => {
                (ends, ": those of other software for Megatron-Core stand in, and the likely range is wider")
            }
            None => ([ASSUMED; 2], " stands behind this model's: the likely range is wide"),
        };
        half = wider(half, ends);
        let why = format!("no measured step of {}{whose}", models(&name));
        note("model", serde_json::Value::Null, why);
    } else if !of_gpu {
        half = wider(half, [if of_generation { ranges().other_gpu } else { ranges().other_generation }; 2]);
        let why =
            format!("no measured step of {} was on {}: the likely range is wider", models(&name), gpu.title);
        note("cluster.gpu", gpu.id.into(), why);
    }
    if gpu.speeds.is_some_and(|speeds| speeds.nvlink_gbs.is_none()) && plan.layout.tp > 1 {
        half = wider(half, [ASSUMED; 2]);
        let why =
            format!("{} has no links of its own: 32 GB/s of PCIe 4.0 are assumed inside a node", gpu.title);
        note("cluster.gpu", gpu.id.into(), why);
    }
    if is_elsewhere(plan) && (own.is_some() || elsewhere.is_none()) {
        let by_network = half.map(|end| end + exposed_share(step) * OTHER_NETWORK);
        // Runs on other networks, of which there are few, had such a network's part in how far they were off.
        let others = elsewhere.unwrap_or_default();
        if wider(half, others) != wider(by_network, others) {
            let why = format!(
                "measured steps had {} Gbit/s for each {}: the likely range is wider by what is communicated",
                gpu.nic_gbps, gpu.title
            );
            note("cluster.nic_gbps", plan.cluster.nic_gbps.into(), why);
        }
        half = wider(by_network, others);
    }
    if let Some((largest, doublings)) = beyond(&name, plan.world_size()) {
        half = half.map(|end| end + DOUBLING * doublings);
        let why = format!(
            "no measured step of {} models with such software had more than {} GPUs, and this plan has {}: the likely range is wider",
            kind(&name),
            thousands(largest),
            thousands(plan.world_size())
        );
        note("cluster.nodes", plan.cluster.nodes.into(), why);
    }
    half[0] = below(plan, step, said, half[0]);
    let busier = if plan.training.moe.load_may_grow && plan.model.moe.is_some() { UNBALANCED } else { 0.0 };
    Spread { half: [half[0], half[1] + busier], nearest: Some(nearest(&name, gpu.id)) }
}

/// How far below the step its range ends, as a logarithm, on the cluster's network, where it is so much if that network is left out of
/// sight. Rings of neighbours hardly leave a leaf switch, and others do at every hop: the step is that of the latter, and may be as short
/// as without oversubscription. It is not shorter than on the network that comes with the GPU, where this one is slower.
fn below(plan: &Plan, step: &StepTime, said: Said, below: f64) -> f64 {
    let Some(quicker) = quicker_network(plan) else { return below };
    let Ok(least) = least_seconds(&quicker, said) else { return below };
    let to_least = libm::log(step.total() / least).max(0.0);
    if plan.cluster.oversubscription > 1.0 { to_least } else { below.min(to_least) }
}

/// The plan without oversubscription, or on the network that comes with its GPU where its own is slower; none where neither is so.
pub(super) fn quicker_network(plan: &Plan) -> Option<Plan> {
    let (cluster, own) = (&plan.cluster, plan.cluster.gpu.nic_gbps);
    let (several, shared) = (cluster.nodes > 1, cluster.oversubscription > 1.0);
    (several && (shared || cluster.nic_gbps < own)).then(|| {
        let mut quicker = plan.clone();
        quicker.cluster.oversubscription = 1.0;
        quicker.cluster.nic_gbps = if shared { cluster.nic_gbps } else { own };
        quicker
    })
}

/// Where a plan's likely range begins, if so much of it is said.
fn least_seconds(plan: &Plan, said: Said) -> Result<f64, String> {
    let setup = setup(plan)?;
    let step = super::nonuniform::predict(plan, &setup, &table().values())?;
    let [below, _] = spread_as(plan, (&setup, &step), said, &mut Vec::new()).half;
    Ok(step.total() * libm::exp(-below))
}

/// The ends of a class where so much is said: those of runs on their GPUs' networks, or the widest of what is known of its software, and
/// those of runs on other networks.
fn ends(name: &str, said: Said) -> [Option<Ends>; 2] {
    // Of what is said less the range is no narrower.
    let less =
        || [Said::Known, Said::Own, Said::Others, Said::Nothing].into_iter().skip_while(|one| *one != said);
    let like = |said: Said| {
        let of = ranges().classes.iter().filter(|class| software(&class.name) == software(name));
        of.filter_map(|class| class.ends(said)).reduce(wider)
    };
    let mut found = [None; 2];
    for class in ranges().like(name).into_iter().flatten() {
        found[usize::from(class.name.ends_with(ELSEWHERE))] = less().find_map(|said| class.ends(said));
    }
    if found == [None; 2] {
        found[0] = less().find_map(like).or_else(|| like(Said::Own));
    }
    found
}

fn generation(id: &str) -> Option<Generation> {
    gpu(id).map(|gpu| gpu.generation)
}

fn software(class: &str) -> &str {
    class.split(' ').next().unwrap_or_default()
}

fn kind(class: &str) -> &str {
    class.split(' ').nth(1).unwrap_or_default()
}

/// The models of a class and their software, in words.
fn models(class: &str) -> String {
    format!("{} models with {}", kind(class), software_title(class))
}

/// Software that computes and exchanges alike, as all for Megatron-Core does.
fn family(class: &str) -> &str {
    let own = software(class);
    if own.starts_with("bridge") { "megatron" } else { own }
}

/// Classes of such models with software alike.
fn of_family(class: &str) -> impl Iterator<Item = &'static RunClass> {
    ranges()
        .classes
        .iter()
        .filter(move |of| family(&of.name) == family(class) && kind(&of.name) == kind(class))
}

/// The widest ends of plans that say little, of such models with software alike.
fn alike(class: &str) -> Option<Ends> {
    of_family(class).filter_map(|of| of.ends(Said::Nothing).or_else(|| of.ends(Said::Others))).reduce(wider)
}

/// Most GPUs of a measured step of such models, with software that exchanges alike, and how often their number doubles to the plan's, where
/// that is larger.
fn beyond(class: &str, world: u64) -> Option<(u64, f64)> {
    let runs = of_family(class).flat_map(|class| &class.runs);
    let largest = runs.map(|runs| runs.most_gpus).max()?;
    let doublings = libm::log2(world as f64 / largest as f64);
    (doublings > 0.0).then_some((largest, doublings))
}

/// Share of a step that is exposed communication.
fn exposed_share(step: &StepTime) -> f64 {
    let exposed = step.parts.tp + step.parts.cp + step.parts.ep + step.sends + step.data;
    (exposed / step.total()).clamp(0.0, 1.0)
}

/// The measured runs nearest to a plan of a class on a GPU: of that class on that GPU; of that class; of that software; of any.
fn nearest(class: &str, on: &str) -> NearestRuns {
    let all = ranges().classes.iter().flat_map(|class| class.runs.iter().map(move |runs| (class, runs)));
    let distance = |(of, runs): &(&RunClass, &Runs)| {
        (
            software(&of.name) != software(class),
            kind(&of.name) != kind(class),
            runs.gpu != on,
            of.name != class,
            generation(&runs.gpu) != generation(on),
            std::cmp::Reverse(runs.count),
        )
    };
    all.min_by_key(distance).map_or_else(NearestRuns::default, |(of, runs)| {
        let title = gpu(&runs.gpu).map_or(runs.gpu.as_str(), |gpu| gpu.title);
        let text = format!(
            "{} {} of {} on {title}{}, none above {} GPUs",
            thousands(runs.count),
            if runs.count == 1 { "run" } else { "runs" },
            models(&of.name),
            if of.name.ends_with(ELSEWHERE) { " with other networks" } else { "" },
            thousands(runs.most_gpus)
        );
        NearestRuns {
            runs: runs.count,
            class: of.name.clone(),
            gpu: runs.gpu.clone(),
            most_gpus: runs.most_gpus,
            text,
        }
    })
}

fn text_of(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

/// With a small first letter, to stand within a sentence.
fn uncapitalized(text: &str) -> String {
    let mut text = text.to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    text
}

/// A constant that no row decides: its role, its place in the table, itself.
type Undecided = (ConstantRole, usize, &'static Constant);

/// What a step of this plan rests on most, and was fitted to no row: of the rate of its GEMMs, its kernel of attention, the traffic of its
/// software and its time to launch layers, each with its place in the table.
fn unmeasured(setup: &Setup) -> Vec<Undecided> {
    let attention = if setup.options.unfused { ConstantRole::Bmm } else { ConstantRole::Attention };
    let roles = [setup.numbers.role(), attention, ConstantRole::Traffic, ConstantRole::HostLayer];
    let chosen = roles.into_iter().filter_map(|role| {
        let at = usize::from(*setup.chosen.get(role as usize)?);
        Some((role, at, table().constants.get(at)?))
    });
    chosen.filter(|(.., constant)| !constant.is_measured()).collect()
}

/// How much shorter and longer a step may be, as logarithms, where each constant of its that no row decides may be half or twice what is
/// assumed.
fn by_unmeasured(plan: &Plan, (setup, step): (&Setup, &StepTime), undecided: &[Undecided]) -> Ends {
    let mut ends = [0.0; 2];
    for &(_, at, constant) in undecided {
        let mut values = table().values();
        let both = [0.5, 2.0].map(|factor| {
            values[at] = factor * constant.value;
            let other = super::nonuniform::predict(plan, setup, &values);
            other.map_or(0.0, |other| libm::log(other.total() / step.total()))
        });
        let [one, other] = both;
        ends = [ends[0] - one.min(other).min(0.0), ends[1] + one.max(other).max(0.0)];
    }
    ends.map(|end: f64| end.min(ASSUMED))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::answer::estimate;
    use crate::parse::parse_plan;

    /// Upper end of the likely range over the step, and findings that something was assumed.
    fn found(
        gpu: &str,
        layout: serde_json::Value,
        profile: Option<&str>,
        training: serde_json::Value,
    ) -> (f64, Vec<Finding>) {
        let framework = if profile.is_none() { Some("bridge 26.08") } else { None };
        let file = json!({"version": 1, "model": {"preset": "qwen3-30b-a3b"}, "cluster": {"gpu": gpu, "nodes": 8},
            "layout": layout, "training": training, "software": {"profile": profile, "framework": framework}});
        let answer = estimate(&parse_plan(&file.to_string()).unwrap());
        let time = answer.time.unwrap();
        let said = |finding: &Finding| finding.rule == "time model" && finding.message.contains("assumed");
        (time.interval_seconds[1] / time.step_seconds, answer.findings.into_iter().filter(said).collect())
    }

    #[test]
    fn no_slower_network_makes_the_least_of_a_range_quicker() {
        for (model, layout) in [
            ("llama-3-8b", json!({"tp": 2})),
            ("llama-3-70b", json!({"tp": 8, "pp": 4})),
            ("mixtral-8x7b", json!({"ep": 8})),
        ] {
            for framework in ["bridge 26.08", "torchtitan 0.3"] {
                if framework.starts_with("torchtitan") && model != "llama-3-8b" {
                    continue;
                }
                let range = |oversubscription: f64, nic_gbps: f64| {
                    let file = json!({"version": 1, "model": {"preset": model}, "layout": layout,
                        "cluster": {"gpu": "h100-sxm", "nodes": 8, "oversubscription": oversubscription, "nic_gbps": nic_gbps},
                        "training": {"global_batch_size": 128}, "software": {"framework": framework}});
                    let time = estimate(&parse_plan(&file.to_string()).unwrap()).time.unwrap();
                    (time.interval_seconds, time.step_seconds)
                };
                let ([least, _], step) = range(1.0, 400.0);
                for (oversubscription, nic_gbps) in
                    [(2.0, 400.0), (32.0, 400.0), (1000.0, 400.0), (1.0, 100.0), (8.0, 50.0), (1.0, 10.0)]
                {
                    let ([low, high], slower) = range(oversubscription, nic_gbps);
                    let what = format!(
                        "{model} {framework} {oversubscription} {nic_gbps}: {low} of {slower}, {least} of {step}"
                    );
                    assert!(low >= least && low <= slower && slower <= high, "{what}");
                }
            }
        }
    }

    #[test]
    fn an_oversubscribed_network_makes_steps_longer() {
        let step = |oversubscription: f64| {
            let file = json!({"version": 1, "model": {"preset": "llama-3-70b"}, "layout": {"tp": 8, "pp": 2},
                "cluster": {"gpu": "h100-sxm", "nodes": 8, "oversubscription": oversubscription},
                "training": {"global_batch_size": 64, "overlap": {"grad_reduce": false, "param_gather": false}}});
            estimate(&parse_plan(&file.to_string()).unwrap()).time.unwrap().step_seconds
        };
        let steps = [1.0, 2.0, 4.0, 16.0].map(step);
        assert!(steps.is_sorted_by(|less, more| less < more), "{steps:?}");
    }

    #[test]
    fn what_is_assumed_is_said_and_widens_the_range() {
        let known = found("h100-sxm", json!({}), None, json!({}));
        assert!(known.1.is_empty(), "{:?}", known.1);
        let assumed = libm::exp(ASSUMED);
        for (gpu, layout, profile, training, fields) in [
            ("mi300x", json!({}), None, json!({}), &["cluster.gpu"][..]),
            ("l40s", json!({"tp": 2}), None, json!({}), &["cluster.gpu", "cluster.gpu"]),
            // Kernels and software of which no row says anything on that GPU.
            ("b200", json!({}), Some("nanotron-2024"), json!({}), &["software.profile"]),
            ("h100-sxm", json!({}), Some("torchtitan-2024-eager"), json!({}), &["software.profile"]),
        ] {
            let (range, said) = found(gpu, layout, profile, training);
            assert!(range > assumed - 1e-6 && range > 1.5 * known.0, "{gpu} {profile:?} {range} {}", known.0);
            let named: Vec<&str> = said.iter().map(|finding| finding.field.as_str()).collect();
            assert_eq!(named, fields, "{gpu} {profile:?}");
        }
        // A kernel that no row decides, on a GPU that other software ran on, is as much as it does to the step.
        let (range, said) = found("a100-80gb-sxm", json!({}), None, json!({"attention_backend": "fused"}));
        assert!((1.1 * known.0..assumed).contains(&range), "{range} {}", known.0);
        assert_eq!(
            said.iter().map(|finding| finding.field.as_str()).collect::<Vec<_>>(),
            ["software.profile"]
        );
    }

    /// The likely range's upper end over the step, and what is said of the number of GPUs.
    fn at(gpu: &str, runtime: &str, preset: &str, nodes: u64) -> (f64, Vec<String>) {
        let file = json!({"version": 1, "model": {"preset": preset}, "cluster": {"gpu": gpu, "nodes": nodes},
            "runtime": runtime, "layout": {"tp": 4}, "training": {"global_batch_size": 8 * nodes}});
        let answer = estimate(&parse_plan(&file.to_string()).unwrap());
        let said = answer.findings.into_iter().filter(|finding| finding.field == "cluster.nodes");
        let time = answer.time.unwrap();
        (time.interval_seconds[1] / time.step_seconds, said.map(|finding| finding.message).collect())
    }

    #[test]
    fn more_gpus_than_were_measured_are_said_and_widen_the_range() {
        for (gpu, runtime, preset) in [
            ("h100-sxm", "megatron", "llama-3-8b"),
            ("b200", "megatron", "qwen3-30b-a3b"),
            ("h100-sxm", "fsdp2", "llama-3-8b"),
            ("h200", "megatron", "llama-3-8b"),
        ] {
            let largest: u64 = match (runtime, preset) {
                ("fsdp2", _) => 512 / 8,
                (_, "qwen3-30b-a3b") => 2048 / 8,
                _ => 8192 / 8,
            };
            let (known, nothing) = at(gpu, runtime, preset, largest);
            assert!(nothing.is_empty(), "{gpu} {runtime}: {nothing:?}");
            let mut last = known;
            for times in [2, 8, 64] {
                let (wider, said) = at(gpu, runtime, preset, largest * times);
                assert!(said.len() == 1 && wider > last, "{gpu} {runtime} {times}: {wider} {last} {said:?}");
                last = wider;
            }
            let expected = known * libm::exp(6.0 * DOUBLING);
            assert!((last / expected - 1.0).abs() < 1e-6, "{gpu} {runtime}: {last} {expected}");
        }
        let (_, said) = at("h100-sxm", "megatron", "llama-3-8b", 2048);
        insta::assert_snapshot!(said[0], @"no measured step of dense models with such software had more than 8,192 GPUs, and this plan has 16,384: the likely range is wider");
    }

    #[test]
    fn on_another_network_a_range_is_no_narrower_than_on_the_gpus_own() {
        for (gpu, runtime, preset) in [
            ("h100-sxm", "megatron", "llama-3-8b"),
            ("h100-sxm", "fsdp2", "llama-3-8b"),
            ("a100-80gb-sxm", "fsdp2", "llama-3-8b"),
            ("a100-80gb-sxm", "megatron", "gpt-3-175b"),
            ("b200", "megatron", "qwen3-30b-a3b"),
        ] {
            let half = |nic_gbps: Option<u64>| {
                let file = json!({"version": 1, "model": {"preset": preset}, "runtime": runtime,
                    "cluster": {"gpu": gpu, "nodes": 16, "nic_gbps": nic_gbps}, "training": {"global_batch_size": 128}});
                let time = estimate(&parse_plan(&file.to_string()).unwrap()).time.unwrap();
                time.interval_seconds.map(|end| libm::log(end / time.step_seconds).abs())
            };
            let known = half(None);
            for nic_gbps in [50, 100, 1600] {
                let found = half(Some(nic_gbps));
                let no_narrower = found.iter().zip(known).all(|(found, known)| *found > known - 1e-9);
                assert!(no_narrower, "{gpu} {runtime} {preset} at {nic_gbps}: {found:?} {known:?}");
            }
        }
    }

    #[test]
    fn the_figure_that_was_assumed_is_named() {
        let (_, said) = found("b200", json!({}), Some("nanotron-2024"), json!({}));
        insta::assert_snapshot!(said[0].message, @"no measured step stands behind a figure of `nanotron-2024` on B200, which is assumed to be 0.3: share of the bf16 peak of attention by kernel fa2 (blackwell); the likely range is wider by what half and twice of it do to the step");
    }
}
