//! How far off a step may be: the spread of measured over predicted, wider where figures are assumed.

use super::calibrated::calibration;
use super::constants::{Constant, Role, residual_class, table};
use super::from_plan::{profile, setup};
use crate::finding::Finding;
use crate::plan::Plan;
use crate::units::thousands;

/// Spread of the logarithm where no measured step stands behind the constants: half to twice.
const ASSUMED_SPREAD: f64 = 0.42;

/// Spread of the logarithm that each doubling of the GPUs beyond the largest measured cluster adds: what a network does
/// there is not known. Assumed; steps of one model with a constant batch for each GPU grew by at most 1.5 % from one doubling
/// to the next on up to 2,048 H100 (nemo_h100_scaling).
const DOUBLING_SPREAD: f64 = 0.05;

/// Spread of the logarithm of measured over predicted, with a finding where it was widened.
pub(super) fn spread(plan: &Plan, findings: &mut Vec<Finding>) -> f64 {
    if let Ok(Some(calibration)) = calibration(plan) {
        return calibration.spread;
    }
    let (table, gpu) = (table(), plan.cluster.gpu);
    let mixture = plan.model.moe.is_some() || !plan.model.other_mixers.is_empty();
    let class = profile(plan).map_or("native", |profile| residual_class(profile, mixture));
    let mut spread = table.spreads.get(class).copied().unwrap_or(ASSUMED_SPREAD);
    let mut widen = |field: &str, value: &str, why: String| {
        spread = spread.max(ASSUMED_SPREAD);
        findings.push(Finding::info(field, value, why).rule("time model"));
    };
    if gpu.speeds.is_none() {
        let why =
            "time on CPUs is a guess until this machine is measured: the likely range is wide".to_owned();
        widen("cluster.gpu", gpu.id, why);
    } else if !gpu.measured {
        let why = format!(
            "no measured step of {} stands behind its efficiencies, which are assumed: the likely range is wide",
            gpu.title
        );
        widen("cluster.gpu", gpu.id, why);
    } else if class == "native" {
        let why = "no measured step of the executor stands behind its host time, which is assumed: the likely range is wide";
        widen("runtime", "native", why.to_owned());
    } else if let Some((profile, constant)) = unmeasured(plan) {
        let why = format!(
            "no measured step stands behind a figure of `{profile}` on {}, which is assumed to be {}: {}; the likely range is wide",
            gpu.title,
            format!("{} {}", constant.value, constant.unit.trim_start_matches('1')).trim_end(),
            uncapitalized(&constant.meaning)
        );
        widen("software.profile", profile, why);
    }
    if gpu.speeds.is_some_and(|speeds| speeds.nvlink_gbs.is_none()) && plan.layout.tp > 1 {
        let why =
            format!("{} has no links of its own: 32 GB/s of PCIe 4.0 are assumed inside a node", gpu.title);
        widen("cluster.gpu", gpu.id, why);
    }
    let beyond = beyond(plan, class);
    if let Some((largest, doublings)) = beyond {
        spread += DOUBLING_SPREAD * doublings;
        let why = format!(
            "no measured step of such software had more than {} GPUs, and this plan has {}: the likely range is wider",
            thousands(largest),
            thousands(plan.world_size())
        );
        findings.push(Finding::info("cluster.nodes", plan.cluster.nodes, why).rule("time model"));
    }
    spread
}

/// Most GPUs of a measured step of this kind, and how often their number doubles to the plan's, where that is larger.
fn beyond(plan: &Plan, class: &str) -> Option<(u64, f64)> {
    let largest = *table().largest.get(class)?;
    let doublings = libm::log2(plan.world_size() as f64 / largest as f64);
    (doublings > 0.0).then_some((largest, doublings))
}

/// With a small first letter, to stand within a sentence.
fn uncapitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// What a step of this plan rests on most, and was fitted to no row: the rate of its GEMMs, its kernel of attention, the
/// traffic of its software and its time to launch layers.
fn unmeasured(plan: &Plan) -> Option<(&'static str, &'static Constant)> {
    let setup = setup(plan).ok()?;
    let attention = if setup.manner.unfused { Role::Bmm } else { Role::Attention };
    let roles = [setup.numbers.role(), attention, Role::Traffic, Role::HostLayer];
    let chosen = roles.iter().filter_map(|&role| {
        let at = setup.chosen.get(role as usize)?;
        table().constants.get(usize::from(*at))
    });
    // What is not fitted has no width.
    let mut assumed = chosen.filter(|constant| constant.width <= 0.0);
    Some((profile(plan)?.name.as_str(), assumed.next()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::{estimate, parse_plan};
    use crate::time::constants::RANGE;

    /// Upper end of the likely range over the step, and findings that something was assumed.
    fn found(
        gpu: &str,
        layout: serde_json::Value,
        profile: Option<&str>,
        training: serde_json::Value,
    ) -> (f64, Vec<Finding>) {
        let file = json!({"version": 1, "model": {"preset": "qwen3-30b-a3b"}, "cluster": {"gpu": gpu, "nodes": 8},
            "layout": layout, "training": training, "software": {"profile": profile}});
        let answer = estimate(&parse_plan(&file.to_string()).unwrap());
        let time = answer.time.unwrap();
        let said = |finding: &Finding| finding.rule == "time model" && finding.message.contains("assumed");
        (time.interval_seconds[1] / time.step_seconds, answer.findings.into_iter().filter(said).collect())
    }

    #[test]
    fn what_is_assumed_is_said_and_widens_the_range() {
        let known = found("h100-sxm", json!({}), None, json!({}));
        assert!(known.1.is_empty(), "{:?}", known.1);
        let assumed = libm::exp(RANGE * ASSUMED_SPREAD);
        for (gpu, layout, profile, training, fields) in [
            ("mi300x", json!({}), None, json!({}), &["cluster.gpu"][..]),
            ("l40s", json!({"tp": 2}), None, json!({}), &["cluster.gpu", "cluster.gpu"]),
            // Kernels and software of which no row says anything on that GPU.
            ("b200", json!({}), Some("nanotron-2024"), json!({}), &["software.profile"]),
            ("a100-80gb-sxm", json!({}), None, json!({}), &["software.profile"]),
            ("h100-sxm", json!({}), Some("torchtitan-2024-eager"), json!({}), &["software.profile"]),
        ] {
            let (range, said) = found(gpu, layout, profile, training);
            assert!(range > assumed - 1e-6 && range > 1.5 * known.0, "{gpu} {profile:?} {range} {}", known.0);
            let named: Vec<&str> = said.iter().map(|finding| finding.field.as_str()).collect();
            assert_eq!(named, fields, "{gpu} {profile:?}");
        }
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
            let profile = if runtime == "fsdp2" { "fsdp" } else { "megatron" };
            let class = if preset.starts_with("qwen3") { "moe" } else { profile };
            let largest = table().largest[class] / 8;
            let (known, nothing) = at(gpu, runtime, preset, largest);
            assert!(nothing.is_empty(), "{gpu} {runtime}: {nothing:?}");
            let mut last = known;
            for times in [2, 8, 64] {
                let (wider, said) = at(gpu, runtime, preset, largest * times);
                assert!(said.len() == 1 && wider > last, "{gpu} {runtime} {times}: {wider} {last} {said:?}");
                last = wider;
            }
            let expected = known * libm::exp(RANGE * 6.0 * DOUBLING_SPREAD);
            assert!((last / expected - 1.0).abs() < 1e-6, "{gpu} {runtime}: {last} {expected}");
        }
        let (_, said) = at("h100-sxm", "megatron", "llama-3-8b", 2048);
        insta::assert_snapshot!(said[0], @"no measured step of such software had more than 6,144 GPUs, and this plan has 16,384: the likely range is wider");
    }

    #[test]
    fn the_figure_that_was_assumed_is_named() {
        let (_, said) = found("b200", json!({}), Some("nanotron-2024"), json!({}));
        insta::assert_snapshot!(said[0].message, @"no measured step stands behind a figure of `nanotron-2024` on B200, which is assumed to be 0.3: share of the bf16 peak of attention by kernel fa2 (blackwell); the likely range is wide");
    }
}
