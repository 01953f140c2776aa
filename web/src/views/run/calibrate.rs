//! The measured step beside the predicted one, and the run as a calibration of the plan.

use leptos::prelude::*;
use planner::calibration::{Measured, as_it_ran, calibrate, typical_seconds};
use planner::finding::{Finding, Severity};
use planner::run::StepParts;
use planner::wire::{Calibration, PlanFile, RunSummary, TimeAnswer};

use crate::findings::FindingList;
use crate::format;
use crate::hub::hub;
use crate::kit::{Column, Line, Lines, ROWS, Table};
use crate::state::store;
use crate::testid;

const CALIBRATION: &str = "software.calibration";

/// The calibration, where the plan's seconds would be calibrated by it.
fn calibrated(plan: &PlanFile, calibration: Calibration) -> Result<Box<Calibration>, Finding> {
    let (name, calibration) = (calibration.name.clone(), Box::new(calibration));
    let mut tried = plan.clone();
    tried.software.calibration = Some(calibration.clone());
    let answer = planner::estimate(&tried);
    if answer.time.is_some_and(|time| time.calibration.is_some()) {
        return Ok(calibration);
    }
    // What planner has against it, or against the plan.
    let why = answer.findings.iter().filter(|found| found.severity != Severity::Info);
    let why = why.min_by_key(|found| found.field != CALIBRATION).map(|found| found.message.clone());
    let message = format!(
        "{}; take the run's GPU, runtime and precision",
        why.unwrap_or_else(|| "the plan has no seconds to calibrate".to_owned())
    );
    Err(Finding::warning(CALIBRATION, name, message))
}

/// What planner predicts of a plan's time.
fn predicted(file: &PlanFile) -> Option<TimeAnswer> {
    planner::estimate(file).time
}

/// What stands beside measured seconds: without the run's own calibration a prediction, with it what was fitted to them.
fn beside(fitted: bool) -> &'static str {
    if fitted { "Fitted to this run" } else { "Predicted" }
}

/// Where the last step went beside where it was predicted to go.
fn parts_table(measured: &StepParts, predicted: Option<&TimeAnswer>, fitted: bool) -> impl IntoView + use<> {
    let columns = ["Part of the step", "Measured", self::beside(fitted)].map(Column::new);
    let predicted = predicted.map(StepParts::predicted);
    let beside = |parts: &StepParts| ("collectives beside computing, no part of it", parts.hidden_seconds);
    let all = |parts: &StepParts| parts.named().into_iter().chain([beside(parts)]);
    let predicted: Vec<f64> =
        predicted.iter().flat_map(|parts| all(parts).map(|(_, seconds)| seconds)).collect();
    let line = |(number, (name, seconds)): (usize, (&str, f64))| {
        Line::new().head(name.to_owned()).number(seconds, format::seconds(seconds)).number_or(
            predicted.get(number).copied(),
            &format::seconds,
            "-",
        )
    };
    let lines = Lines::of(columns.to_vec(), all(measured).enumerate().map(line).collect());
    Table::new("Measured and predicted by part", testid::PARTS_TABLE)
        .caption("The last step of the rank that computed longest".to_owned())
        .pages("step-parts", ROWS)
        .of(lines)
}

/// The comparison and the button.
#[component]
pub fn StepCompare(summary: Memo<Option<RunSummary>>) -> impl IntoView {
    let (store, hub) = (store(), hub());
    let findings = RwSignal::new(Vec::<Finding>::new());
    let seconds = Memo::new(move |_| {
        hub.record
            .with(|known| typical_seconds(known.steps.iter().map(|(step, point)| (*step, point.seconds()))))
    });
    let parts = Memo::new(move |_| {
        hub.record.with(|known| {
            let ranks = known.ranks.values().filter_map(|rank| StepParts::measured(rank.last_step.as_ref()?));
            ranks.reduce(StepParts::longest)
        })
    });
    let ran = Memo::new(move |_| {
        let device = hub.record.with(|known| {
            known.ranks.values().find_map(|rank| rank.place.as_ref().map(|(_, device)| device.clone()))
        })?;
        summary.with(|summary| {
            let summary = summary.as_ref()?;
            let here = summary.info.slurm_job.is_none();
            Some((format!("run {}", summary.info.id), as_it_ran(&summary.plan, &device, here)))
        })
    });
    // Whether the plan's calibration is this run's own.
    let fitted = Memo::new(move |_| {
        let plan = store.plan();
        let own = plan.software.calibration.as_ref().map(|calibration| &calibration.name);
        own.is_some() && ran.with(|ran| ran.as_ref().map(|(name, _)| name) == own)
    });
    let expected = Memo::new(move |_| {
        // With the calibration that the plan has now, so that it can be seen at work.
        let calibration = store.plan().software.calibration.clone();
        ran.with(|ran| {
            let mut file = ran.as_ref().map(|(_, file)| file.clone())?;
            file.software.calibration = calibration;
            predicted(&file)
        })
    });
    let line = move || {
        let measured = seconds.get()?;
        let text = match expected.get() {
            Some(TimeAnswer { step_seconds: expected, .. }) => format!(
                "{} a step, the middle of those after the first ({} {}, {})",
                format::seconds(measured),
                beside(fitted.get()).to_lowercase(),
                format::seconds(expected),
                format::signed_percent(measured / expected - 1.0)
            ),
            None => format!("{} a step, the middle of those after the first", format::seconds(measured)),
        };
        Some(view! { <span data-testid=testid::STEP_COMPARE>{text}</span> })
    };
    let take = move |_| {
        let (Some(seconds), Some((name, file))) = (seconds.get_untracked(), ran.get_untracked()) else {
            return;
        };
        // The page does not know the cores of another machine: ranks are taken to have one each.
        let cores = file.cluster.gpus_per_node.unwrap_or(1);
        let runs = [Measured { name: name.clone(), file, seconds }];
        let profile = calibrate(&runs, &name, cores).map_err(|finding| *finding);
        match profile.and_then(|profile| calibrated(&store.plan_now(), profile.calibration)) {
            Ok(calibration) => {
                store.edit(CALIBRATION, |plan| plan.software.calibration = Some(calibration));
                findings.set(Vec::new());
                store.notify("The plan's seconds are calibrated by this run; undo takes it back");
            }
            Err(finding) => findings.set(vec![finding]),
        }
    };
    let present = Memo::new(move |_| seconds.with(Option::is_some) && ran.with(Option::is_some));
    view! {
        <div class="row" hidden=move || !present.get()>
            <p class="note">{line}</p>
            <button data-testid=testid::USE_CALIBRATION on:click=take>"Use as calibration"</button>
        </div>
        <FindingList findings=findings/>
        {move || parts.get().map(|parts| expected.with(|time| parts_table(&parts, time.as_ref(), fitted.get())))}
    }
}
