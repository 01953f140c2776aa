//! What failed GPUs cost a cluster like the plan's, against their share, the size of the cluster and of its domains.

use std::sync::Arc;

use leptos::prelude::*;
use planner::Plan;
use planner::nonuniform::{Against, Boost, DRAWS, MOST_POWER, RATE, SEED, StudyPoint, sweep};
use planner::units::decimal;

use crate::chart::{ChartView, Curves, Drawing, Ink, Legend};
use crate::format;
use crate::kit::{Column, Line, Lines, Table};
use crate::testid;

const HEIGHT: u32 = 260;

const LEGEND: &[(Ink, &str)] = &[
    (Ink::Capacity, "Replicas dropped"),
    (Ink::Activations, "Dropped, packed"),
    (Ink::Curve, "Nonuniform"),
    (Ink::Gradients, "Nonuniform, boosted"),
];

const CHOICES: [(Against, &str, &str); 3] = [
    (Against::Rate, "share of GPUs that are down", "GPUs that are down, %"),
    (Against::Gpus, "GPUs of the cluster", "GPUs"),
    (Against::Domain, "GPUs of a tensor-parallel group", "GPUs of a group"),
];

fn losses(point: &StudyPoint) -> [f64; 4] {
    let lost = point.expected;
    [lost.drop, lost.drop_packed, lost.nonuniform, lost.nonuniform_boosted]
}

fn spares(point: &StudyPoint) -> [f64; 3] {
    let lost = point.expected;
    [lost.spare_domains, lost.spare_domains_nonuniform, lost.spare_domains_boosted]
}

/// A number from a range; what is none, or beyond it, is put back to what it was or to the nearest that is in it. What is counted is
/// whole.
#[component]
fn Entry(
    label: &'static str,
    hook: &'static str,
    value: RwSignal<f64>,
    range: [f64; 2],
    #[prop(optional)] whole: bool,
) -> impl IntoView {
    let write = move |event| {
        let typed = decimal(&event_target_value(&event)).unwrap_or_else(|| value.get_untracked());
        value.set(if whole { typed.round() } else { typed }.clamp(range[0], range[1]));
    };
    view! {
        <label>{label}" "
            <input type="number" step="any" min=range[0].to_string() max=range[1].to_string() data-testid=hook
                prop:value=move || value.get().to_string() on:change=write/>
        </label>
    }
}

fn place(against: Against, point: &StudyPoint) -> String {
    match against {
        Against::Rate => format::tick(point.rate * 100.0),
        Against::Gpus => format::exact(point.gpus),
        Against::Domain => point.domain.to_string(),
    }
}

/// The study; figures are drawn when it is opened.
#[component]
pub fn FailureStudy(
    /// The plan that is studied.
    shown: Memo<Option<Arc<Plan>>>,
) -> impl IntoView {
    let open = RwSignal::new(false);
    view! {
        <details on:toggle=move |event| open.set(is_open(&event))>
            <summary data-testid=testid::STUDY>"What failed GPUs cost a cluster like this one"</summary>
            <Show when=move || open.get()><Study shown=shown/></Show>
        </details>
    }
}

fn is_open(event: &web_sys::Event) -> bool {
    event_target::<web_sys::Element>(event).has_attribute("open")
}

#[component]
fn Study(shown: Memo<Option<Arc<Plan>>>) -> impl IntoView {
    let chosen = RwSignal::new(0usize);
    let (rate, power, draws) =
        (RwSignal::new(RATE * 100.0), RwSignal::new(MOST_POWER), RwSignal::new(DRAWS as f64));
    let points = Memo::new(move |_| {
        let (against, ..) = CHOICES[chosen.get()];
        shown.with(|plan| match plan {
            Some(plan) => {
                let at = (rate.get() / 100.0, Boost::of_power(power.get()));
                sweep(plan, against, &against.values(plan), at, (draws.get() as u64, SEED))
            }
            None => Vec::new(),
        })
    });
    let title = Signal::derive(move || {
        points.with(|points| match points.iter().max_by(|a, b| a.expected.drop.total_cmp(&b.expected.drop)) {
            Some(worst) => {
                let [dropped, _, nonuniform, _] = losses(worst).map(|share| share * 100.0);
                format!(
                    "Up to {dropped:.1} % is lost by leaving replicas out, {nonuniform:.1} % by nonuniform tensor parallelism"
                )
            }
            None => "Nothing to study".to_owned(),
        })
    });
    let alternative =
        Signal::derive(move || format!("Four curves over {}. {}", CHOICES[chosen.get()].1, title.get()));
    let draw = Signal::derive(move || {
        let (against, _, axis) = CHOICES[chosen.get()];
        let curves = points.with(|points| Curves {
            places: points.iter().map(|point| place(against, point)).collect(),
            curves: LEGEND
                .iter()
                .enumerate()
                .map(|(at, &(ink, _))| (ink, points.iter().map(|point| losses(point)[at]).collect()))
                .collect(),
            axis: axis.to_owned(),
        });
        Arc::new(move |width| curves.draw(width, HEIGHT)) as Arc<dyn Fn(u32) -> Drawing + Send + Sync>
    });
    let lines = Signal::derive(move || {
        let percent = |line: Line, share: f64| line.number(share, format!("{:.2} %", share * 100.0));
        let line = |point: &StudyPoint| {
            let line =
                percent(Line::new().exact(point.gpus).exact(point.domain).exact(point.draws), point.rate);
            let line = losses(point).into_iter().fold(percent(line, point.whole_domains()), percent);
            let energy = point.expected.boosted_energy - 1.0;
            let line = line.number(energy, format!("{:+.2} %", energy * 100.0));
            spares(point).into_iter().fold(line, |line, spares| {
                line.number(spares, format!("{spares:.1} ({:.1} %)", point.idle(spares) * 100.0))
            })
        };
        let heads = ["GPUs", "Group", "Draws", "Down", "Whole groups"].into_iter();
        let heads = heads.chain(LEGEND.iter().map(|(_, name)| *name));
        let heads =
            heads.chain(["Energy, boosted", "Spares, dropped", "Spares, nonuniform", "Spares, boosted"]);
        let columns: Vec<Column> = heads.map(Column::new).collect();
        points.with(|points| Lines::of(columns, points.iter().map(line).collect()))
    });
    let caption = format!(
        "Expected loss of what a step does, not counting that it may take longer, which is counted above for GPUs that have failed; means over draws with seed {SEED}, the same for all curves. Spares are groups that stand by so that a step keeps its batch, and the share of all GPUs that are idle for it"
    );
    let table = Table::new("Failure study", testid::STUDY_TABLE).caption(caption).over(lines);
    view! {
        <label>"Against "
            <select data-testid=testid::STUDY_AGAINST
                on:change=move |event| chosen.set(event_target_value(&event).parse().unwrap_or(0).min(CHOICES.len() - 1))>
                {CHOICES.iter().enumerate().map(|(at, (_, name, _))| view! { <option value=at.to_string()>{*name}</option> }).collect_view()}
            </select>
        </label>
        <div class="row">
            // Against it, every share is looked at.
            {move || (CHOICES[chosen.get()].0 != Against::Rate).then(|| view! {
                <Entry label="GPUs down, %" hook=testid::STUDY_RATE value=rate range=[0.0, 100.0]/>
            })}
            <Entry label="Power of a boosted GPU, times" hook=testid::STUDY_POWER value=power range=[1.0, MOST_POWER]/>
            <Entry label="Draws" hook=testid::STUDY_DRAWS value=draws range=[1.0, 10_000.0] whole=true/>
        </div>
        <Legend items=LEGEND/>
        <ChartView id="failure-curves" title=title alternative=alternative draw=draw export=true/>
        {table}
    }
}
