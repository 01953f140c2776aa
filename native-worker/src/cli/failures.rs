//! `shardplan failures PLAN`.

use std::path::PathBuf;

use clap::ValueEnum;
use planner::nonuniform::{Against, DRAWS, RATE, SEED, Study, StudyPoint, sweep};
use serde::Serialize;

use super::{Exit, Failure, estimate::resolved, exit, source, text};

/// Study what failed GPUs cost: expected loss of throughput by share of GPUs that are down, size or domain
#[derive(Debug, clap::Args)]
pub struct Failures {
    /// Plan file, or - for standard input
    plan: PathBuf,
    /// What changes from row to row
    #[arg(long, value_enum, default_value_t = By::Rate)]
    against: By,
    /// Its values, such as 8,16,32; chosen for the plan when not given
    #[arg(long, value_delimiter = ',')]
    values: Vec<f64>,
    /// Share of GPUs that are down at a time, such as 0.001; several times for several rows
    #[arg(long = "rate")]
    rates: Vec<f64>,
    /// Draws for each row
    #[arg(long, default_value_t = DRAWS)]
    draws: u64,
    /// How much faster GPUs of a reduced group can run, such as 1.15
    #[arg(long, default_value_t = 1.0)]
    boost: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum By {
    /// The share of GPUs that are down
    Rate,
    /// GPUs of the cluster
    Gpus,
    /// GPUs of a tensor-parallel group, which stand in one NVLink domain
    Domain,
}

impl By {
    fn against(self) -> Against {
        match self {
            By::Rate => Against::Rate,
            By::Gpus => Against::Gpus,
            By::Domain => Against::Domain,
        }
    }
}

#[derive(Serialize)]
struct Report {
    version: u32,
    study: Study,
    against: Against,
    draws: u64,
    seed: u64,
    points: Vec<StudyPoint>,
}

impl Failures {
    /// Prints the study.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let plan = resolved(&source::read(&self.plan)?)?;
        let by_rate = self.against == By::Rate;
        let rates = if by_rate && !self.values.is_empty() { &self.values } else { &self.rates };
        if let Some(rate) = rates.iter().chain(&self.rates).find(|rate| !(0.0..=1.0).contains(*rate)) {
            return Err(Failure::usage(format!("--rate {rate}: a share of GPUs is from 0 to 1")));
        }
        if !by_rate && self.rates.len() > 1 {
            return Err(Failure::usage(format!(
                "--rate was given {} times: against {:?}, one share of GPUs that are down is taken",
                self.rates.len(),
                self.against
            )));
        }
        let odd = |value: &f64| !value.is_finite() || *value < 1.0;
        if let Some(value) = self.values.iter().find(|value| !by_rate && odd(value)) {
            return Err(Failure::usage(format!("--values {value}: a number of GPUs is 1 or more")));
        }
        if !self.boost.is_finite() || self.boost < 1.0 {
            return Err(Failure::usage(format!("--boost {}: a boost is 1 or more", self.boost)));
        }
        let against = self.against.against();
        let asked = if by_rate { rates } else { &self.values };
        let values = if asked.is_empty() { against.values(&plan) } else { asked.clone() };
        let rate = self.rates.first().copied().unwrap_or(RATE);
        let points = sweep(&plan, against, &values, (rate, self.boost), (self.draws, SEED));
        let study = Study::of(&plan, self.boost);
        if json {
            let version = planner::wire::VERSION;
            exit::print_json(&Report { version, study, against, draws: self.draws, seed: SEED, points })?;
        } else {
            exit::print(&readable(&study, &points))?;
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
    let header = [
        "GPUs",
        "group",
        "% down",
        "whole groups %",
        "drop %",
        "drop, packed %",
        "nonuniform %",
        "boosted %",
        "spare groups",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    rows.extend(points.iter().map(|point| {
        let lost = &point.expected;
        vec![
            text::thousands(point.gpus),
            point.domain.to_string(),
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
