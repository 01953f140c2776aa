//! Calibration: factors on the constants of the time model, fitted to steps that were measured on a machine.
//!
//! Few factors, each with a meaning: a part of the machine is so much faster or slower than its constants say. They are
//! drawn towards 1 by what is known beforehand, so that one measured run moves little and several runs of different
//! shapes tell the parts apart. Held-out errors come from leaving each point out.

mod fit;
mod probes;
mod remark;
#[cfg(test)]
mod tests;

pub use probes::{Probe, probes, unseen};
pub use remark::{PeakBeside, StepBeside};

use crate::finding::{Finding, clip};
use crate::order;
use crate::plan::Plan;
use crate::settings::Precision;
use crate::time::{PARTS, Setup, default_profile, rounded, setup};
use crate::units::median;
use crate::wire::{Calibration, CalibrationFile, CalibrationFit, CalibrationPoint, PlanFile, VERSION};
use fit::{Case, fit};

/// Most measured layouts of a calibration.
pub(crate) const MOST_POINTS: usize = 256;
/// Largest calibration profile that is read, in bytes.
pub const MAX_BYTES: u64 = 1 << 20;
/// Least spread that is claimed: machines vary by as much from hour to hour.
const LEAST_SPREAD: f64 = 0.05;
/// Spread where nothing was left out, because there is one point.
const ONE_POINT_SPREAD: f64 = 0.3;

/// Steps of one layout that were measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Which.
    pub name: String,
    /// The plan that ran.
    pub file: PlanFile,
    /// Seconds of a step.
    pub seconds: f64,
}

/// The median of a run's later half of steps, given by number and seconds: the first pay for what happens once, and while
/// routers learn, kernels are made for ever new sizes of experts' products. Of a single step, that one.
pub fn typical_seconds(steps: impl IntoIterator<Item = (u64, f64)>) -> Option<f64> {
    let mut steps: Vec<(u64, f64)> =
        steps.into_iter().filter(|(_, seconds)| seconds.is_finite() && *seconds > 0.0).collect();
    order::sort_by_key(&mut steps, |(step, _)| *step);
    let later = steps.get(steps.len() / 2..)?;
    median(later.iter().map(|(_, seconds)| *seconds).collect())
}

/// What one plan takes, of several runs of it: their geometric mean. Processes of one program differ by a sixth, up as well as
/// down, by where their memory lies and what else the machine does, so the shortest says less than all together.
pub fn mean_seconds(rounds: &[f64]) -> Option<f64> {
    let logarithms: f64 = rounds.iter().map(|seconds| libm::log(*seconds)).sum();
    (!rounds.is_empty()).then(|| libm::exp(logarithms / rounds.len() as f64))
}

/// The plan of a run as it ran: on `device`, as a rank named it, and where `here` says so on one machine.
pub fn as_it_ran(file: &PlanFile, device: &str, here: bool) -> PlanFile {
    let mut file = file.clone();
    if device == "cpu" {
        file.cluster.gpu = "cpu".to_owned();
    }
    if here && let (Some(nodes), Some(each)) = (file.cluster.nodes, file.cluster.gpus_per_node) {
        file.cluster.nodes = Some(1);
        file.cluster.gpus_per_node = Some(nodes.saturating_mul(each));
    }
    file.software.calibration = None;
    file
}

/// Reads a calibration profile.
///
/// # Errors
/// When the text is not one, or is of another version.
pub fn parse(text: &str) -> Result<CalibrationFile, Box<Finding>> {
    let wrong = |message: String| {
        Box::new(
            Finding::error("software.calibration", serde_json::Value::Null, message)
                .rule("calibration profile"),
        )
    };
    if text.len() as u64 > MAX_BYTES {
        return Err(wrong(format!(
            "a calibration profile has at most {MAX_BYTES} bytes, and this text has {}",
            text.len()
        )));
    }
    let file: CalibrationFile = crate::json::read_json(text).map_err(|error| {
        wrong(format!("this is not a calibration profile: {error}; `shardplan calibrate` writes one"))
    })?;
    if file.version != VERSION {
        return Err(wrong(format!(
            "calibration profiles are of version {VERSION}, and this one says {}",
            file.version
        )));
    }
    Ok(file)
}

/// What all points have in common.
struct Common {
    gpu: &'static str,
    profile: String,
    dtype: Precision,
}

/// Factors for measured runs of one kind of GPU, software profile and compute type. `cores` are those of a node, where
/// ranks are CPU processes.
///
/// # Errors
/// When there are no points, too many, points that can't be predicted, or points that have not all in common.
pub fn calibrate(runs: &[Measured], name: &str, cores: u64) -> Result<CalibrationFile, Box<Finding>> {
    let refused =
        |message: String| Box::new(Finding::error("", serde_json::Value::Null, message).rule("calibration"));
    if runs.is_empty() {
        return Err(refused("no measured step: give run folders that have steps".to_owned()));
    }
    if runs.len() > MOST_POINTS {
        return Err(refused(format!("{} runs are given; at most {MOST_POINTS} are fitted", runs.len())));
    }
    let mut common: Option<Common> = None;
    let mut cases = Vec::new();
    for run in runs {
        let resolved = Plan::resolve(&run.file);
        let plan = resolved.plan.ok_or_else(|| {
            let first = resolved.findings.first().map(|finding| finding.message.clone()).unwrap_or_default();
            refused(format!("the plan of {} has errors: {first}", clip(&run.name)))
        })?;
        if !(run.seconds.is_finite() && run.seconds > 0.0) {
            return Err(refused(format!("{} took {} s a step", clip(&run.name), run.seconds)));
        }
        let here = common_of(&plan);
        match &common {
            None => common = Some(here),
            Some(first)
                if (first.gpu, &first.profile, first.dtype) == (here.gpu, &here.profile, here.dtype) => {}
            Some(first) => {
                return Err(refused(format!(
                    "{} ran on {} with profile {} in {}, and {} on {} with {} in {}: calibrate each apart",
                    clip(&run.name),
                    here.gpu,
                    here.profile,
                    here.dtype.name(),
                    clip(&runs[0].name),
                    first.gpu,
                    first.profile,
                    first.dtype.name()
                )));
            }
        }
        cases.push(
            case(&plan, run.seconds, cores)
                .map_err(|reason| refused(format!("{}: {reason}", clip(&run.name))))?,
        );
    }
    let Some(common) = common else { return Err(refused("no measured step".to_owned())) };
    Ok(put_together(runs, &cases, common, name, cores))
}

fn common_of(plan: &Plan) -> Common {
    let profile = plan.software.profile.clone().unwrap_or_else(|| default_profile(plan).to_owned());
    let dtype = plan.file.training.dtype.unwrap_or(Precision::Bf16);
    Common { gpu: plan.cluster.gpu.id, profile, dtype }
}

fn case(plan: &Plan, seconds: f64, cores: u64) -> Result<Case, String> {
    let mut setup: Setup = setup(plan)?;
    let ranks = plan.world_size().min(plan.cluster.gpus_per_node);
    setup.share_host(ranks, cores);
    Ok(Case { setup, seconds, assumed: plan.cluster.gpu.speeds.is_none() })
}

fn put_together(
    runs: &[Measured],
    cases: &[Case],
    common: Common,
    name: &str,
    cores: u64,
) -> CalibrationFile {
    let all: Vec<&Case> = cases.iter().collect();
    let factors = fit(&all);
    let none = [1.0; PARTS.len()];
    let held_out = |at: usize| {
        let others: Vec<&Case> =
            cases.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, case)| case).collect();
        (!others.is_empty()).then(|| cases[at].predict(&fit(&others)))
    };
    let points: Vec<CalibrationPoint> = runs
        .iter()
        .zip(cases)
        .enumerate()
        .map(|(at, (run, case))| CalibrationPoint {
            name: clip(&run.name),
            ranks: case.ranks(),
            measured: rounded(run.seconds),
            before: rounded(case.predict(&none)),
            fitted: rounded(case.predict(&factors)),
            held_out: held_out(at).map(rounded),
        })
        .collect();
    let error = |predicted: f64, measured: f64| (predicted / measured - 1.0).abs();
    let errors = |read: &dyn Fn(&CalibrationPoint) -> Option<f64>| -> Vec<f64> {
        points.iter().filter_map(|point| Some(error(read(point)?, point.measured))).collect()
    };
    let most = |errors: Vec<f64>| errors.into_iter().reduce(f64::max);
    let fitted = errors(&|point| Some(point.fitted));
    let spread = points
        .iter()
        .filter_map(|point| Some(libm::log(point.held_out? / point.measured).abs()))
        .collect::<Vec<f64>>();
    let spread = median(spread).map_or(ONE_POINT_SPREAD, |middle| (1.48 * middle).max(LEAST_SPREAD));
    let fit = CalibrationFit {
        points: points.len() as u64,
        median_before: rounded(median(errors(&|point| Some(point.before))).unwrap_or(0.0)),
        median: rounded(median(fitted.clone()).unwrap_or(0.0)),
        max: rounded(most(fitted).unwrap_or(0.0)),
        median_held_out: median(errors(&|point| point.held_out)).map(rounded),
        max_held_out: most(errors(&|point| point.held_out)).map(rounded),
    };
    let named =
        order::map(PARTS.iter().zip(factors).map(|(part, factor)| (part.name.to_owned(), rounded(factor))));
    let calibration = Calibration {
        name: clip(name),
        gpu: common.gpu.to_owned(),
        profile: common.profile,
        dtype: common.dtype,
        cores: if cases.iter().any(|case| case.assumed) { cores } else { 0 },
        factors: named,
        spread: rounded(spread),
    };
    CalibrationFile { version: VERSION, calibration, fit, points }
}
