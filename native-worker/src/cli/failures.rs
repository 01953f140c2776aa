//! `shardplan failures PLAN`.

use std::path::PathBuf;

use clap::ValueEnum;
use planner::nonuniform::{Against, Boost, DRAWS, MOST_POWER, RATE, SEED, Study, StudyPoint, sweep};
use serde::Serialize;

use super::numbers::whole;
use super::{estimate::resolved, source};
use crate::report::{self, Exit, Failure, text};

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
    #[arg(long, default_value_t = DRAWS, value_parser = whole(1..=MOST_DRAWS))]
    draws: u64,
    /// The most power that GPUs of a reduced group are given, over their design power: 1 for none, 1.3 at most, beyond which nothing was
    /// measured
    #[arg(long, value_name = "TIMES", default_value_t = MOST_POWER)]
    power: f64,
}

/// More make no figure that is shown more exact, and take hours.
const MOST_DRAWS: u64 = 10_000_000;

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
    /// Where a size was asked for that the plan's replicas can't have: which was taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

impl Failures {
    /// Prints the study.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let plan = resolved(&source::read(&self.plan)?)?;
        let by_rate = self.against == By::Rate;
        let rates = if by_rate && !self.values.is_empty() { &self.values } else { &self.rates };
        let shares = [
            ("--values", &self.values[..if by_rate { self.values.len() } else { 0 }]),
            ("--rate", &self.rates),
        ];
        for (option, shares) in shares {
            if let Some(share) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
                return Err(Failure::usage(format!("{option} {share}: a share of GPUs is from 0 to 1")));
            }
        }
        if !by_rate && self.rates.len() > 1 {
            return Err(Failure::usage(format!(
                "--rate was given {} times: with --against {}, one share of GPUs that are down is taken",
                self.rates.len(),
                self.against
                    .to_possible_value()
                    .map_or_else(String::new, |value| value.get_name().to_owned())
            )));
        }
        let odd = |value: &f64| !value.is_finite() || *value < 1.0;
        if let Some(value) = self.values.iter().find(|value| !by_rate && odd(value)) {
            return Err(Failure::usage(format!("--values {value}: a number of GPUs is 1 or more")));
        }
        if !(1.0..=MOST_POWER).contains(&self.power) {
            return Err(Failure::usage(format!(
                "--power {}: power over a GPU's design power is from 1 to {MOST_POWER}",
                self.power
            )));
        }
        let boost = Boost::of_power(self.power);
        let against = self.against.against();
        let asked = if by_rate { rates } else { &self.values };
        let values = if asked.is_empty() { against.values(&plan) } else { asked.clone() };
        let rate = self.rates.first().copied().unwrap_or(RATE);
        let points = sweep(&plan, against, &values, (rate, boost), (self.draws, SEED));
        let study = Study::of(&plan, boost);
        let notes = others_than_asked(against, &values, &points, &study);
        if json {
            let version = planner::wire::VERSION;
            report::print_json(&Report {
                version,
                study,
                against,
                draws: self.draws,
                seed: SEED,
                points,
                notes,
            })?;
        } else {
            notes.iter().for_each(|note| report::notice(note));
            report::print(&readable(&study, &points))?;
        }
        Ok(Exit::Yes)
    }
}

/// How many draws there were, in words.
fn drawn(points: &[StudyPoint]) -> String {
    let draws = || points.iter().map(|point| point.draws);
    match (draws().min(), draws().max()) {
        (Some(least), Some(most)) if least != most => {
            format!("{} to {}", text::thousands(least), text::thousands(most))
        }
        (_, most) => text::thousands(most.unwrap_or_default()),
    }
}

/// A sentence for each size that was asked for and is not the one that is answered for.
fn others_than_asked(against: Against, values: &[f64], points: &[StudyPoint], study: &Study) -> Vec<String> {
    let replica = study.domain * study.domains_per_replica;
    let said = values.iter().zip(points).filter_map(|(&value, point)| {
        let (taken, what) = match against {
            Against::Rate => return None,
            Against::Gpus => (
                point.gpus,
                format!(
                    "a cluster has whole {}, of {replica} GPUs each",
                    if study.sharing_experts > 1 { "sets of replicas" } else { "replicas" }
                ),
            ),
            Against::Domain => (point.domain, "a group has a whole number of GPUs".to_owned()),
        };
        (taken as f64 != value)
            .then(|| format!("{value} GPUs were asked for, and {taken} are answered for: {what}"))
    });
    said.collect()
}

fn readable(study: &Study, points: &[StudyPoint]) -> String {
    let allowed: Vec<String> = study.allowed.iter().map(u64::to_string).collect();
    let what = match study.sharing_experts {
        1 => "replicas".to_owned(),
        together => format!("sets of {together} replicas, which share experts and stop together,"),
    };
    let mut out = format!(
        "{} {what} of {} groups of {} GPUs; a group can go on with {}\n\n",
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
        "boosted energy",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    rows.extend(points.iter().map(|point| {
        let lost = &point.expected;
        vec![
            text::thousands(point.gpus),
            point.domain.to_string(),
            percent(point.rate),
            percent(point.whole_domains()),
            percent(lost.drop),
            percent(lost.drop_packed),
            percent(lost.nonuniform),
            percent(lost.nonuniform_boosted),
            format!("{:+.2} %", (lost.boosted_energy - 1.0) * 100.0),
        ]
    }));
    out.push_str(&text::table(&rows));
    out.push_str(&format!(
        "\nMeans of {} draws for each row, the same for all columns. Losses are of what a step does; what it takes longer is counted where\n\
         a plan says which GPUs failed, in cluster.failed\n\
         Boosted: up to {:.2} times the power for GPUs of reduced groups, which makes them {:.1} % faster; energy is of a token\n\n\
         For a step to keep its batch, spare groups that stand by, and the share of all GPUs that are idle for it\n\n",
        drawn(points),
        study.boost.power,
        (study.boost.speed - 1.0) * 100.0
    ));
    let header = ["GPUs", "group", "% down", "drop", "idle %", "nonuniform", "idle %", "boosted", "idle %"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(points.iter().map(|point| {
        let lost = &point.expected;
        let mut row = vec![text::thousands(point.gpus), point.domain.to_string(), percent(point.rate)];
        for spares in [lost.spare_domains, lost.spare_domains_nonuniform, lost.spare_domains_boosted] {
            row.extend([format!("{spares:.1}"), percent(point.idle(spares))]);
        }
        row
    }));
    out.push_str(&text::table(&rows));
    out
}
