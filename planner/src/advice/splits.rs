//! Changes of how a model is split, finer and coarser.

use super::{Ladder, Step};
use crate::plan::Plan;
use crate::rules::LayoutChoice;
use crate::settings::Schedule;
use crate::wire::PlanFile;

/// Factors by which an axis may grow or shrink.
const FACTORS: [u64; 4] = [2, 4, 8, 16];

/// The plan's own layout as a choice.
fn own(plan: &Plan) -> LayoutChoice {
    let layout = &plan.layout;
    LayoutChoice {
        tp: layout.tp,
        cp: layout.cp,
        pp: layout.pp,
        vpp: layout.vpp,
        ep: layout.ep,
        etp: layout.etp,
        dp: layout.dp,
        edp: layout.edp,
    }
}

fn step(title: String, choice: LayoutChoice) -> Step {
    Step::new(title, move |file: &mut PlanFile| *file = choice.apply(file))
}

/// An axis by name: what it is called, how it is read and set.
type Axis = (&'static str, fn(&LayoutChoice) -> u64, fn(&mut LayoutChoice, u64));

const AXES: [Axis; 5] = [
    ("Tensor parallel", |choice| choice.tp, |choice, size| choice.tp = size),
    ("Context parallel", |choice| choice.cp, |choice, size| choice.cp = size),
    ("Pipeline stages", |choice| choice.pp, |choice, size| choice.pp = size),
    ("Expert parallel", |choice| choice.ep, |choice, size| choice.ep = size),
    ("Expert tensor parallel", |choice| choice.etp, |choice, size| choice.etp = size),
];

fn resized(plan: &Plan, axis: &Axis, size: u64) -> (String, LayoutChoice) {
    let (name, read, set) = axis;
    let mut choice = own(plan);
    set(&mut choice, size);
    // A dense model has one grid.
    if plan.model.moe.is_none() {
        choice.etp = choice.tp;
        choice.ep = 1;
    }
    if choice.pp == 1 {
        choice.vpp = 1;
    }
    (format!("{name} {size} instead of {}", read(&own(plan))), choice)
}

fn axes(plan: &Plan) -> impl Iterator<Item = Axis> + use<> {
    let dense = plan.model.moe.is_none();
    AXES.into_iter().filter(move |(name, ..)| !(dense && name.starts_with("Expert")))
}

/// Layouts that split finer, an axis at a time.
pub(super) fn finer(plan: &Plan) -> Vec<Ladder> {
    let world = plan.world_size();
    let layout = &plan.layout;
    let mut ladders = Vec::new();
    for axis in axes(plan) {
        let at = (axis.1)(&own(plan));
        let sizes = FACTORS.iter().map(|factor| at.saturating_mul(*factor)).filter(|&size| size <= world);
        let grown: Vec<(String, LayoutChoice)> = sizes.map(|size| resized(plan, &axis, size)).collect();
        if axis.0 == "Pipeline stages" && layout.vpp > 1 {
            let plain = |(title, choice): &(String, LayoutChoice)| {
                step(format!("{title}, one chunk each"), LayoutChoice { vpp: 1, ..*choice })
            };
            ladders.push(Ladder::new(grown.iter().map(plain).collect()));
        }
        ladders.push(Ladder::new(grown.into_iter().map(|(title, choice)| step(title, choice)).collect()));
    }
    if layout.vpp > 1 {
        let title = format!("One chunk a stage instead of {}", layout.vpp);
        ladders.push(Ladder::new(vec![step(title, LayoutChoice { vpp: 1, ..own(plan) })]));
    }
    if layout.tp > 1 && !layout.sp {
        ladders.push(Ladder::one("Sequence parallel", |file| file.layout.sp = Some(true)));
    }
    if layout.schedule == Schedule::Gpipe {
        ladders.push(Ladder::one("Schedule 1f1b instead of gpipe", |file| file.layout.schedule = None));
    }
    if layout.microbatch_group_size > layout.pp {
        ladders.push(Ladder::one("Groups of as many micro batches as stages", |file| {
            file.layout.microbatch_group_size = None;
        }));
    }
    if layout.pp > 1 && layout.pipeline.is_none() {
        ladders.extend(uneven(plan));
    }
    if layout.dp_replicate > 1 && plan.runtime.facts().shards_parameters {
        let sizes = FACTORS.iter().filter(|&&factor| layout.dp_replicate.is_multiple_of(factor));
        let fewer = |factor: &u64| {
            let size = layout.dp_replicate / factor;
            Step::new(format!("{size} replicas of shards instead of {}", layout.dp_replicate), move |file| {
                file.layout.dp_replicate = Some(size);
            })
        };
        ladders.push(Ladder::new(sizes.map(fewer).collect()));
    }
    ladders
}

/// Fewer layers on the first stage, where the most micro batches are in flight, or on the last beside the loss.
fn uneven(plan: &Plan) -> Vec<Ladder> {
    let even = plan.model.num_layers / (plan.layout.pp * plan.layout.vpp.max(1)).max(1);
    let first = plan.layout.first_stage_layers.unwrap_or(even * plan.layout.vpp);
    let last = plan.layout.last_stage_layers.unwrap_or(even * plan.layout.vpp);
    let fewer = |at: u64| (1..=at.saturating_sub(1).min(8)).map(move |less| at - less);
    let of_first = fewer(first).map(|count| {
        Step::new(format!("{count} layers on the first stage"), move |file| {
            file.layout.first_stage_layers = Some(count);
        })
    });
    let of_last = fewer(last).map(|count| {
        Step::new(format!("{count} layers on the last stage"), move |file| {
            file.layout.last_stage_layers = Some(count);
        })
    });
    let mut ladders = vec![Ladder::new(of_first.collect()), Ladder::new(of_last.collect())];
    if !plan.layout.account_for_embedding && !plan.layout.account_for_loss {
        ladders.push(Ladder::one("Count embedding and loss as layers of their stages", |file| {
            file.layout.account_for_embedding = Some(true);
            file.layout.account_for_loss = Some(true);
        }));
    }
    ladders
}

/// More nodes for the same batch.
pub(super) fn more_nodes(plan: &Plan) -> Ladder {
    let nodes = plan.cluster.nodes;
    let grown = |factor: &u64| {
        let count = nodes.saturating_mul(*factor);
        Step::new(format!("{count} nodes instead of {nodes}"), move |file| file.cluster.nodes = Some(count))
    };
    Ladder::new(FACTORS.iter().map(grown).collect())
}

/// Layouts that split coarser, an axis at a time: less to communicate.
pub(super) fn coarser(plan: &Plan) -> Vec<Ladder> {
    let mut ladders = Vec::new();
    for axis in axes(plan) {
        let at = (axis.1)(&own(plan));
        let sizes = FACTORS.iter().filter(|&&factor| at.is_multiple_of(factor)).map(|factor| at / factor);
        let steps = sizes.map(|size| {
            let (title, choice) = resized(plan, &axis, size);
            step(title, choice)
        });
        ladders.push(Ladder::new(steps.collect()));
    }
    if plan.layout.pp > 1 {
        let sizes = [2u64, 3, 4].into_iter().map(|factor| plan.layout.vpp.saturating_mul(factor));
        let steps = sizes.map(|vpp| {
            let title = format!("{vpp} chunks a stage instead of {}", plan.layout.vpp);
            step(title, LayoutChoice { vpp, ..own(plan) })
        });
        ladders.push(Ladder::new(steps.collect()));
    }
    ladders
}
