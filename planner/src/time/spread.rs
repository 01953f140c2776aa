//! How far off a step may be: the spread of measured over predicted, wider where figures are assumed.

use super::calibrated::calibration;
use super::constants::{Constant, Role, residual_class, table};
use super::from_plan::{profile, setup};
use crate::finding::Finding;
use crate::plan::Plan;

/// Spread of the logarithm where no measured step stands behind the constants: half to twice.
const ASSUMED_SPREAD: f64 = 0.42;

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
    } else if table.gpus.get(gpu.id).is_none_or(|chip| chip.assumed) {
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
    spread
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

    #[test]
    fn the_figure_that_was_assumed_is_named() {
        let (_, said) = found("b200", json!({}), Some("nanotron-2024"), json!({}));
        insta::assert_snapshot!(said[0].message, @"no measured step stands behind a figure of `nanotron-2024` on B200, which is assumed to be 0.3: share of the bf16 peak of attention by kernel fa2 (blackwell); the likely range is wide");
    }
}
