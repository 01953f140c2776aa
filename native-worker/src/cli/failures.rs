//! `shardplan failures PLAN`.

use std::path::PathBuf;

use planner::nonuniform::{Study, StudyPoint, allowed_degrees, degree_limits, study};
use planner::shard::padded_vocabulary;
use serde::Serialize;

use super::{Exit, Failure, estimate::resolved, exit, input, text};

/// Shares of GPUs that are down when none are asked for.
const RATES: [f64; 7] = [0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.01];
/// Seed of the draws.
const SEED: u64 = 1;

/// Study what failed GPUs cost: expected loss of throughput by share of GPUs that are down
#[derive(Debug, clap::Args)]
pub struct Failures {
    /// Plan file, or - for standard input
    plan: PathBuf,
    /// Share of GPUs that are down at a time, such as 0.001; may be given several times
    #[arg(long = "rate")]
    rates: Vec<f64>,
    /// Draws for each rate
    #[arg(long, default_value_t = 200)]
    draws: u64,
    /// How much faster GPUs of a reduced group can run, such as 1.15
    #[arg(long, default_value_t = 1.0)]
    boost: f64,
}

#[derive(Serialize)]
struct Report {
    version: u32,
    study: Study,
    draws: u64,
    seed: u64,
    points: Vec<StudyPoint>,
}

impl Failures {
    /// Prints the study.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let plan = resolved(&input::read_plan(&self.plan)?)?;
        if let Some(rate) = self.rates.iter().find(|rate| !(0.0..=1.0).contains(*rate)) {
            return Err(Failure::usage(format!("--rate {rate}: a share of GPUs is from 0 to 1")));
        }
        if !self.boost.is_finite() || self.boost < 1.0 {
            return Err(Failure::usage(format!("--boost {}: a boost is 1 or more", self.boost)));
        }
        let layout = &plan.layout;
        let limits = degree_limits(&plan.model, padded_vocabulary(&plan));
        let setting = Study {
            domain: layout.tp,
            domains_per_replica: layout.cp * layout.pp,
            replicas: layout.dp,
            allowed: limits.map(|limits| allowed_degrees(layout.tp, &limits)).unwrap_or_default(),
            boost: self.boost,
        };
        let rates = if self.rates.is_empty() { RATES.to_vec() } else { self.rates };
        let points = study(&setting, &rates, self.draws, SEED);
        if json {
            let version = planner::wire::VERSION;
            exit::print_json(&Report { version, study: setting, draws: self.draws, seed: SEED, points })?;
        } else {
            exit::print(&readable(&setting, &points))?;
        }
        Ok(Exit::Yes)
    }
}

fn readable(study: &Study, points: &[StudyPoint]) -> String {
    let allowed: Vec<String> = study.allowed.iter().map(u64::to_string).collect();
    let mut out = format!(
        "{} replicas of {} groups of {} GPUs; a group can go on with {}\n\n",
        study.replicas,
        study.domains_per_replica,
        study.domain,
        if allowed.is_empty() {
            "all its GPUs only".to_owned()
        } else {
            format!("{} of them", allowed.join(", "))
        }
    );
    let header =
        ["% down", "whole groups %", "drop %", "drop, packed %", "nonuniform %", "boosted %", "spare groups"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    rows.extend(points.iter().map(|point| {
        let lost = &point.expected;
        vec![
            percent(point.rate),
            percent(point.availability),
            percent(point.drop_exact),
            percent(lost.drop_packed),
            percent(lost.nonuniform),
            percent(lost.nonuniform_boosted),
            format!("{:.1}", lost.spare_domains),
        ]
    }));
    out.push_str(&text::table(&rows));
    out
}
