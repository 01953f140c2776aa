//! `shardplan calibrate [FOLDER...]`.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use planner::calibration::{Measured, Probe, as_it_ran, calibrate, mean_seconds, probes, unseen};
use planner::time::PARTS;
use planner::wire::{CalibrationFile, Outcome, PlanFile};
use serde::Serialize;

use super::input;
use super::numbers::whole;
use crate::probe;
use crate::report::{self, Exit, Failure, notice, text};
use crate::run::{MAX_RANKS_HERE, Place, Programs, Request, history, run};

/// Measure this machine, or take measured runs, and write a profile that `estimate --profile` and the page take
///
/// Without folders, probes are run here: some fifteen tiny plans, each three times, that make different parts of the machine weigh.
#[derive(Debug, clap::Args)]
pub struct Calibrate {
    /// Run folders to fit to, instead of running probes; of several, those without a step are named and left out
    folders: Vec<PathBuf>,
    /// Run folders that are not fitted to but predicted, to see how far the profile carries
    #[arg(long, value_name = "FOLDER")]
    score: Vec<PathBuf>,
    /// Run ten more shapes, of one rank each, that no probe has, in turn with the probes, and predict them too
    #[arg(long)]
    check: bool,
    /// Write the profile to FILE
    #[arg(long, value_name = "FILE", default_value = "calibration.json")]
    output: PathBuf,
    /// Most ranks of a probe; by default as many as there are GPUs, or cores, at most 4
    #[arg(long, value_name = "N", value_parser = whole(1..=MAX_RANKS_HERE))]
    ranks: Option<u64>,
    /// Times that every probe is run
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = whole(1..=20))]
    rounds: u64,
    /// GPU of the catalogue that this machine has, for probes; by default as its driver names it
    #[arg(long, value_name = "ID")]
    gpu: Option<String>,
    /// Keep the probes' run folders in DIR
    #[arg(long, value_name = "DIR", env = "SHARDPLAN_RUNS", hide_env_values = true)]
    runs: Option<PathBuf>,
    /// The rank binary; by default the one beside this program, or on PATH
    #[arg(long, value_name = "FILE", env = "SHARDPLAN_RANK", hide_env_values = true)]
    rank_binary: Option<PathBuf>,
    /// A Python that has torch 2.11; by default the one that `cargo xtask` installed, or python3
    #[arg(long, value_name = "PYTHON", env = "SHARDPLAN_TORCH", hide_env_values = true)]
    torch: Option<PathBuf>,
}

/// Times that every probe is run: with two, unseen shapes are once 4% off and once 10, of a fourth they gain little
/// (docs/measurements/2026-11-22-calibration.md).
const ROUNDS: u64 = 3;

/// What is printed.
#[derive(Debug, Serialize)]
struct Calibrated {
    version: u32,
    #[serde(serialize_with = "report::path")]
    profile: PathBuf,
    #[serde(flatten)]
    file: CalibrationFile,
    scored: Vec<Scored>,
}

/// A run that the fit had no part in.
#[derive(Debug, Serialize)]
struct Scored {
    name: String,
    measured: f64,
    before: Option<f64>,
    predicted: Option<f64>,
}

/// Tries whether the profile can be written, and leaves what is there as it is.
fn may_write(path: &Path) -> anyhow::Result<()> {
    let is_new = !path.exists();
    OpenOptions::new().append(true).create(true).open(path).map_err(|error| {
        Failure::environment(format!("the profile can't be written: {error}: {}", path.display()))
    })?;
    if is_new {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

impl Calibrate {
    /// Writes the profile and prints how well it fits.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        // First of all, so that a wrong folder is not found out after minutes of probes.
        let mut more = all(&self.score)?;
        may_write(&self.output)?;
        let unseen = if self.check { unseen(&self.gpu()?) } else { Vec::new() };
        let (measured, checked) = match self.folders.as_slice() {
            [] => {
                let ranks = self.ranks.unwrap_or(match probe::gpu_count() as u64 {
                    0 => cores.clamp(2, 4),
                    gpus => gpus,
                });
                let mut plans = probes(&self.gpu()?, ranks);
                let count = plans.len();
                plans.extend(unseen);
                let mut measured = self.measure(&plans)?;
                let checked = measured.split_off(count);
                (measured, checked)
            }
            folders => (all(folders)?, self.measure(&unseen)?),
        };
        let name = match measured.as_slice() {
            probes if self.folders.is_empty() => format!("{} probes", probes.len()),
            [run] => format!("run {}", run.name),
            runs => format!("{} runs", runs.len()),
        };
        let file = calibrate(&measured, &name, cores).map_err(|finding| Failure::finding(*finding))?;
        more.extend(checked);
        let scored = more.iter().map(|run| scored(run, &file)).collect();
        let written = serde_json::to_string_pretty(&file)? + "\n";
        std::fs::write(&self.output, written).map_err(|error| {
            Failure::environment(format!("the profile can't be written: {error}: {}", self.output.display()))
        })?;
        let calibrated = Calibrated { version: planner::wire::VERSION, profile: self.output, file, scored };
        if json {
            report::print_json(&calibrated)?;
        } else {
            report::print(&readable(&calibrated))?;
        }
        Ok(Exit::Yes)
    }

    /// The GPU that plans are measured on.
    fn gpu(&self) -> anyhow::Result<String> {
        if let Some(gpu) = &self.gpu {
            return input::gpu_id(gpu);
        }
        if probe::gpu_count() == 0 {
            return Ok("cpu".to_owned());
        }
        let unknown = || {
            Failure::usage(
                "this machine's GPU is not in the catalogue by its driver's name; name it with --gpu, such as h100-sxm",
            )
        };
        Ok(probe::catalogue_gpu().ok_or_else(unknown)?.to_owned())
    }

    /// Runs plans one after the other, in rounds: a machine is slower for a minute and faster for the next, and no plan shall
    /// have all of its runs in one of them, nor the probes in another than what is predicted from them.
    fn measure(&self, plans: &[Probe]) -> anyhow::Result<Vec<Measured>> {
        let (folder, _temporary) = match &self.runs {
            Some(folder) => (folder.clone(), None),
            None => {
                let folder = tempfile::tempdir()
                    .map_err(|error| Failure::environment(format!("no folder for the probes: {error}")))?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let programs = Programs::new(self.rank_binary.clone(), self.torch.clone());
        let rounds = usize::try_from(self.rounds).unwrap_or(1);
        let count = rounds * plans.len();
        let mut measured: Vec<Measured> = Vec::new();
        let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); plans.len()];
        for (at, probe) in (0..rounds).flat_map(|_| plans).enumerate() {
            notice(&format!("probe {} of {count}: {}", at + 1, probe.name));
            let request = Request {
                plan: probe.file.clone(),
                runs: folder.clone(),
                place: Place::New { id: None, resume: None },
                ranks_per_gpu: 1,
                going_on: planner::wire::GoingOn::STOP,
                slurm: false,
            };
            let finished = run(request, &programs)?;
            if finished.outcome != Outcome::Completed {
                return Err(Failure::environment(format!("this probe did not run: {}", finished.reason)));
            }
            let found = Measured { name: probe.name.to_owned(), ..history(&finished.folder)? };
            seconds[at % plans.len()].push(found.seconds);
            if at < plans.len() {
                measured.push(found);
            }
        }
        for (run, rounds) in measured.iter_mut().zip(&seconds) {
            run.seconds = mean_seconds(rounds).unwrap_or(run.seconds);
        }
        Ok(measured)
    }
}

/// The runs of folders. Of several, such as `runs/*`, those that say no step of a plan are named and left out.
fn all(folders: &[PathBuf]) -> anyhow::Result<Vec<Measured>> {
    let (mut found, mut last) = (Vec::new(), None);
    for folder in folders {
        match history(folder) {
            Ok(measured) => found.push(measured),
            // A name that is not there is a slip of whoever typed it.
            Err(failure) if folders.len() == 1 || !folder.exists() => return Err(failure),
            Err(failure) => {
                notice(&format!("left out: {failure:#}"));
                last = Some(failure);
            }
        }
    }
    match last {
        Some(failure) if found.is_empty() => Err(failure),
        _ => Ok(found),
    }
}

/// The seconds that planner says without and with a profile.
fn scored(run: &Measured, profile: &CalibrationFile) -> Scored {
    let seconds = |file: &PlanFile| planner::estimate(file).time.map(|time| time.step_seconds);
    let plain = as_it_ran(&run.file, "", false);
    let mut calibrated = plain.clone();
    calibrated.software.calibration = Some(Box::new(profile.calibration.clone()));
    Scored {
        name: run.name.clone(),
        measured: run.seconds,
        before: seconds(&plain),
        predicted: seconds(&calibrated),
    }
}

fn readable(calibrated: &Calibrated) -> String {
    let CalibrationFile { calibration, fit, points, .. } = &calibrated.file;
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let error = |predicted: Option<f64>, measured: f64| {
        predicted.map_or_else(
            || "-".to_owned(),
            |predicted| format!("{:+.1} %", 100.0 * (predicted / measured - 1.0)),
        )
    };
    let mut rows =
        vec![["measured", "ranks", "seconds", "before", "fitted", "left out"].map(str::to_owned).to_vec()];
    rows.extend(points.iter().map(|point| {
        vec![
            text::one_line(&point.name),
            point.ranks.to_string(),
            text::seconds(point.measured),
            error(Some(point.before), point.measured),
            error(Some(point.fitted), point.measured),
            error(point.held_out, point.measured),
        ]
    }));
    let mut out = text::table(&rows);
    out.push('\n');
    let mut rows = vec![["factor", "value", "on the"].map(str::to_owned).to_vec()];
    for part in &PARTS {
        if let Some(factor) = calibration.factors.get(part.name) {
            rows.push(vec![part.name.to_owned(), format!("{factor:.4}"), part.meaning.to_owned()]);
        }
    }
    out.push_str(&text::table(&rows));
    let held_out = fit.median_held_out.zip(fit.max_held_out).map_or_else(
        || "one point: no error of steps that were left out; the likely range stays wide".to_owned(),
        |(median, most)| format!("left out: median {}, worst {}", percent(median), percent(most)),
    );
    out.push_str(&format!(
        "\nfit         {} points, {} before, {} after (worst {}); {held_out}\n",
        fit.points,
        percent(fit.median_before),
        percent(fit.median),
        percent(fit.max)
    ));
    for run in &calibrated.scored {
        out.push_str(&format!(
            "scored      {}: {} s, {} before, {} with the profile\n",
            text::one_line(&run.name),
            text::seconds(run.measured),
            error(run.before, run.measured),
            error(run.predicted, run.measured)
        ));
    }
    if let Some(line) = in_sum(&calibrated.scored) {
        out.push_str(&line);
    }
    out.push_str(&format!(
        "profile     {}: for {}, {}, {}\n",
        calibrated.profile.display(),
        calibration.gpu,
        calibration.profile,
        calibration.dtype.name()
    ));
    out
}

/// How far off predictions of runs are that the fit had no part in: median, ninth of ten, worst, and their mean with its sign.
fn in_sum(scored: &[Scored]) -> Option<String> {
    let signed: Vec<f64> =
        scored.iter().filter_map(|run| Some(run.predicted? / run.measured - 1.0)).collect();
    let mut sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let at = |percent: usize| sizes.get((sizes.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    let middle = planner::units::median(sizes.clone())?;
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let mean = signed.iter().sum::<f64>() / signed.len() as f64;
    Some(format!(
        "            {} runs: median {}, p90 {}, worst {}, bias {:+.1} %\n",
        sizes.len(),
        percent(middle),
        percent(at(90)?),
        percent(at(100)?),
        100.0 * mean
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(errors: &[f64], expected: Option<&str>) {
        let run = |error: &f64| Scored {
            name: String::new(),
            measured: 2.0,
            before: None,
            predicted: Some(2.0 * (1.0 + error)),
        };
        let found = in_sum(&errors.iter().map(run).collect::<Vec<_>>());
        assert_eq!(found.as_deref().map(str::trim), expected);
    }

    #[test]
    fn errors_are_summed_up_with_their_sign() {
        check(&[], None);
        check(&[0.1], Some("1 runs: median 10.0 %, p90 10.0 %, worst 10.0 %, bias +10.0 %"));
        check(
            &[0.1, -0.2, 0.3, -0.4, 0.5, -0.6, 0.7, -0.8, 0.9, -1.0],
            Some("10 runs: median 55.0 %, p90 90.0 %, worst 100.0 %, bias -5.0 %"),
        );
    }
}
