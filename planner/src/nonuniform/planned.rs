//! What a plan with failed GPUs becomes: which replicas run reduced, which slots stop, what else could be done.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Boost, MOST_POWER, Study, losses};
use crate::cluster::FailedGpu;
use crate::finding::Finding;
use crate::layout::coordinates;
use crate::plan::Plan;
use crate::reduced::{
    Domain, ExpertSeat, Nonuniform, Refusal, Sharded, Shrunk, VOCABULARY, allowed_degrees, check_degree,
    degree_limits, failed_slots, fill_up, pack, reduced_batch, spares_with_parity,
};
use crate::rules::most_in_groups;
use crate::runtime::ReducedReplicas;
use crate::settings::Schedule;
use crate::shard::padded_vocabulary;
use crate::wire::{Alternative, NonuniformAnswer, RankRole};

const FIELD: &str = "cluster.failed";
const RULE: &str = "nonuniform tensor parallelism (Megatron-LM #2149, #4585)";

/// Which of a plan's replicas run reduced; nothing when no GPU failed. The greatest degree is taken that the model
/// allows and that no domain has too few GPUs for.
///
/// # Errors
/// A finding that says why these failures can't be planned around, and what can.
pub(crate) fn plan_failures(plan: &Plan) -> Result<Option<Nonuniform>, Box<Finding>> {
    let failed = &plan.cluster.failed;
    if failed.is_empty() {
        return Ok(None);
    }
    let count = failed.len() as u64;
    let refuse = |said: String| Box::new(Finding::error(FIELD, count, said).rule(RULE));
    let layout = &plan.layout;
    if plan.runtime.facts().reduced_replicas == ReducedReplicas::None {
        return Err(refuse(format!(
            "runtime {} can't go on with fewer GPUs in some replicas; leave out the nodes with failed GPUs, or take runtime megatron",
            plan.runtime.name()
        )));
    }
    let slots = failed_slots(layout, &plan.cluster, failed).map_err(refuse)?;
    let Some(limits) = limits(plan) else {
        return Err(refuse(
            "nonuniform tensor parallelism is known for models of attention and feed-forward layers only, and with routed experts for runtime native where etp x ep divides tp; leave out the replicas with failed GPUs by planning for fewer nodes".to_owned(),
        ));
    };
    let refuse = |refusal: Refusal| refuse(refusal.to_string());
    let cut = allowed_degrees(layout.tp, &limits);
    let allowed: Vec<u64> = cut.iter().copied().filter(|&degree| has_whole_blocks(plan, degree)).collect();
    let lost = lost_slots(failed, &slots).map_err(refuse)?;
    let spares = most_lost(layout.tp, &lost).map_err(refuse)?;
    let left = layout.tp - spares;
    let Some(&reduced) = allowed.iter().find(|&&degree| degree <= left) else {
        let refusal = match check_degree(layout.tp, left, &limits) {
            _ if cut.iter().any(|&degree| degree <= left) => {
                Refusal::NoGroupOfExperts { etp: layout.etp, ep: layout.ep, left }
            }
            Err(refusal) => refusal,
            Ok(()) => Refusal::NothingLeft { replica: 0, failed: spares, base: layout.tp },
        };
        return Err(refuse(refusal));
    };
    let mut replicas: Vec<u64> = lost.keys().map(|&(dp, _)| dp).collect();
    replicas.dedup();
    let inactive = fill(layout.tp, reduced, layout.pp, &lost);
    if replicas.len() as u64 == layout.dp {
        return Err(refuse(Refusal::AllReduced { replicas: layout.dp, reduced }));
    }
    let local_batch = plan.training.global_batch_size / layout.dp;
    let micro = plan.training.micro_batch_size;
    let mut smaller = reduced_batch(local_batch, micro, layout.tp, reduced);
    if smaller > 0 && layout.schedule == Schedule::Interleaved && layout.vpp > 1 {
        let group = layout.microbatch_group_size;
        smaller = most_in_groups(group, layout.pp, smaller / micro) * micro;
        if smaller == 0 {
            let said = format!(
                "a replica with {reduced} of {} slots should take {reduced}/{} of {local_batch} sequences, which are too few micro batches for groups of {group} on {} stages; make the global batch larger, or micro batches smaller",
                layout.tp, layout.tp, layout.pp
            );
            return Err(Box::new(
                Finding::error("training.global_batch_size", plan.training.global_batch_size, said)
                    .rule(RULE),
            ));
        }
    }
    if smaller == 0 {
        return Err(Box::new(
            Finding::error(
                "training.micro_batch_size",
                plan.training.micro_batch_size,
                format!(
                    "a replica with {reduced} of {} slots should take {reduced}/{} of {local_batch} sequences, which is less than one micro batch of {}; make micro batches smaller or the global batch larger",
                    layout.tp, layout.tp, plan.training.micro_batch_size
                ),
            )
            .rule(RULE)
            .nearest([1]),
        ));
    }
    Ok(Some(Nonuniform {
        shrunk: Shrunk { base: layout.tp, reduced, inactive },
        left,
        allowed,
        local_batch,
        reduced_batch: smaller,
        failures: crate::order::map(slots.iter().map(|(&domain, slots)| (domain, slots.len() as u64))),
    }))
}

/// What sequence parallelism cuts, and what a setting of the layout pads.
const TOKENS: &str = "a sequence's tokens";

/// All that the plan cuts by tensor parallelism; none where the model has something that is not known here.
fn limits(plan: &Plan) -> Option<Vec<Sharded>> {
    let mut limits = degree_limits(&plan.model, padded_vocabulary(plan), carries_experts(plan))?;
    // Sequence parallelism cuts what a context-parallel slice has of a sequence.
    if plan.layout.sp {
        limits.push(Sharded { what: TOKENS, count: plan.training.seq_len / plan.layout.cp });
    }
    Some(limits)
}

/// Why no more of the slots that are left are used, and what would change that, as a sentence; empty where all are. Of the degrees
/// between, it is about the one that the fewest things are against.
fn why_no_more(plan: &Plan, nonuniform: &Nonuniform) -> String {
    let limits = limits(plan).unwrap_or_default();
    let against = |degree: u64| limits.iter().filter(move |limit| !limit.count.is_multiple_of(degree));
    let degrees = (nonuniform.shrunk.reduced + 1..=nonuniform.left).rev();
    let Some(degree) = degrees.min_by_key(|&degree| against(degree).count()) else { return String::new() };
    let whole: Vec<String> =
        against(degree).map(|Sharded { what, count }| format!("{what} of {count}")).collect();
    let whole = match whole.is_empty() {
        true => "blocks of ranks that have every expert once".to_owned(),
        false => whole.join(", "),
    };
    let ways: Vec<&str> = against(degree)
        .map_while(|limit| match limit.what {
            TOKENS => Some("layout.sp false, or a training.seq_len that they divide"),
            VOCABULARY => Some("a layout.vocab_divisible_by that is a multiple of them"),
            _ => None,
        })
        .collect();
    // What is the model's own stays, whatever else is changed.
    let way = match !ways.is_empty() && ways.len() == against(degree).count() {
        true => format!("; they would with {}", ways.join(", and ")),
        false => String::new(),
    };
    format!(". {degree} slots can't go on, which do not divide {whole}{way}")
}

/// Whether experts are such that replicas may differ in tensor parallelism: the worker's, in blocks of neighbouring slots, cut alike in
/// all replicas.
pub(super) fn carries_experts(plan: &Plan) -> bool {
    plan.runtime.facts().reduced_replicas == ReducedReplicas::WithExperts
        && plan.layout.tp.is_multiple_of(ExpertSeat::ranks(&plan.layout))
}

/// Whether so many slots of a replica hold whole blocks of ranks that have every expert once.
pub(super) fn has_whole_blocks(plan: &Plan, slots: u64) -> bool {
    plan.model.moe.is_none() || slots.is_multiple_of(ExpertSeat::ranks(&plan.layout))
}

/// Slots that each stage of a replica loses, over its context-parallel slices. Slices must lose the same slots: where
/// failures are named by coordinates they must say so, where GPUs are named the slots are joined.
fn lost_slots(
    failed: &[FailedGpu],
    slots: &BTreeMap<Domain, Vec<u64>>,
) -> Result<BTreeMap<(u64, u64), Vec<u64>>, Refusal> {
    let named = failed.iter().all(|gpu| matches!(gpu, FailedGpu::Coordinates { .. }));
    let mut lost: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    let mut first: BTreeMap<(u64, u64), &Vec<u64>> = BTreeMap::new();
    for (&(dp, _, pp), slots) in slots {
        let union = lost.entry((dp, pp)).or_default();
        union.extend(slots);
        union.sort_unstable();
        union.dedup();
        let first = first.entry((dp, pp)).or_insert(slots);
        if named && *first != slots {
            return Err(Refusal::SlicesDiffer {
                replica: dp,
                first: first.to_vec(),
                second: slots.clone(),
                union: union.clone(),
            });
        }
    }
    Ok(lost)
}

/// The most slots that any stage of a replica loses, after each list was checked.
fn most_lost(base: u64, lost: &BTreeMap<(u64, u64), Vec<u64>>) -> Result<u64, Refusal> {
    let spares = |(&(dp, _), slots): (&(u64, u64), &Vec<u64>)| {
        spares_with_parity(base, &BTreeMap::from([(dp, slots.clone())])).map(|(spares, _)| spares)
    };
    lost.iter().map(spares).try_fold(0, |most, spares| spares.map(|spares| spares.max(most)))
}

/// Inactive slots of every stage of the replicas that lost some: what they lost, filled up with their highest healthy
/// slots.
fn fill(
    base: u64,
    reduced: u64,
    stages: u64,
    lost: &BTreeMap<(u64, u64), Vec<u64>>,
) -> BTreeMap<(u64, u64), Vec<u64>> {
    let mut inactive = BTreeMap::new();
    for &(dp, _) in lost.keys() {
        for stage in 0..stages {
            let mut slots = lost.get(&(dp, stage)).cloned().unwrap_or_default();
            fill_up(base, &mut slots, base - reduced);
            inactive.insert((dp, stage), slots);
        }
    }
    inactive
}

/// Ranks listed in an answer.
const MOST_LISTED: usize = 1024;

/// The answer for a plan with failed GPUs.
pub fn answer(plan: &Plan) -> Option<NonuniformAnswer> {
    let nonuniform = plan.nonuniform.as_ref()?;
    let (shrunk, layout) = (&nonuniform.shrunk, &plan.layout);
    let reduced_replicas = nonuniform.reduced_replicas();
    let (base, reduced, replicas) = (shrunk.base, shrunk.reduced, layout.dp);
    let is_inactive = |&rank: &u64| shrunk.role(&coordinates(layout, rank)) == RankRole::Inactive;
    let inactive = (0..plan.world_size()).filter(is_inactive);
    let stopped = reduced_replicas.len() as u64 * (base - reduced) * layout.cp * layout.pp;
    let share = |sequences: u64| sequences as f64 / (nonuniform.local_batch * replicas) as f64;
    let in_place = share((nonuniform.local_batch - nonuniform.reduced_batch) * reduced_replicas.len() as u64);

    let failures: Vec<u64> = nonuniform.failures.values().copied().collect();
    let domains = layout.cp * layout.pp;
    let batches = (nonuniform.local_batch, plan.training.micro_batch_size);
    let packed = pack(base, &nonuniform.allowed, &failures, domains, replicas, batches).ok();
    let study = Study::of(plan, Boost::of_power(MOST_POWER));
    let lost = losses(&study, &failures, reduced_replicas.len() as u64);
    let alternative = |name: &str, loss: f64, note: String| Alternative { name: name.to_owned(), loss, note };
    let boost = study.boost.for_slots(base, reduced);
    let percent = |share: f64| (share - 1.0) * 100.0;
    let mut alternatives = vec![alternative(
        "nonuniform",
        in_place,
        format!(
            "replicas stay where they are; {} of {replicas} run with {reduced} of {base} slots and {} of {} sequences",
            reduced_replicas.len(),
            nonuniform.reduced_batch,
            nonuniform.local_batch
        ),
    )];
    if let Some(packed) = packed {
        alternatives.push(alternative(
            "nonuniform_packed",
            1.0 - packed.throughput,
            format!(
                "after a restart with failed domains ({}) together; replicas with {} of {base} slots: {}, left out: {}",
                packed.failed_domains, packed.reduced, packed.reduced_replicas, packed.dropped_replicas
            ),
        ));
    }
    // Processes on CPUs have no power of their own that could be raised.
    if !plan.cluster.gpu.is_cpu() {
        alternatives.push(alternative(
            "nonuniform_boosted",
            lost.nonuniform_boosted,
            format!(
                "the same with up to {:.1}% more power for GPUs of reduced replicas, which makes them {:.1}% faster{}; a token takes {:.1}% more energy",
                percent(boost.power),
                percent(boost.speed),
                if boost.share(base, reduced) < 1.0 { ", less than they would have to be" } else { "" },
                percent(lost.boosted_energy)
            ),
        ));
    }
    let with_spares = (study.idle(lost.spare_domains_nonuniform), lost.spare_domains_nonuniform as u64);
    alternatives.push(alternative(
        "nonuniform_spares",
        with_spares.0,
        format!(
            "the whole batch, packed; spare domains of {base} GPUs that do what reduced replicas do not, or stand in for failed ones: {}",
            with_spares.1
        ),
    ));
    alternatives.push(alternative(
        "drop",
        lost.drop,
        format!("replicas left out where they are: {}", reduced_replicas.len()),
    ));
    alternatives.push(alternative(
        "drop_packed",
        lost.drop_packed,
        format!("replicas left out after a restart: {}", failures.len().div_ceil(domains as usize)),
    ));
    alternatives.push(alternative(
        "spares",
        study.idle(lost.spare_domains),
        format!(
            "the whole batch; spare domains of {base} GPUs that stand by, idle until they take over: {}",
            failures.len()
        ),
    ));
    Some(NonuniformAnswer {
        base,
        reduced,
        allowed: nonuniform.allowed.clone(),
        reduced_replicas,
        inactive_ranks: inactive.take(MOST_LISTED).collect(),
        inactive: stopped,
        local_batch: nonuniform.local_batch,
        reduced_batch: nonuniform.reduced_batch,
        extra_work: base as f64 / reduced as f64 - 1.0,
        alternatives,
    })
}

/// What to know about a plan that goes on with failed GPUs.
pub fn remarks(plan: &Plan) -> Vec<Finding> {
    let Some(nonuniform) = &plan.nonuniform else { return Vec::new() };
    let shrunk = &nonuniform.shrunk;
    let value: Value = json!(plan.cluster.failed.len());
    let text = format!(
        "replicas {:?} run with {} of {} tensor-parallel slots and {} of {} sequences; gradients are weighted by sequences. A step takes as long as the slower kind of replica; tokens/s count the sequences that are left, and figures per GPU the whole cluster. A run that leaves ranks out must not be ended for it: start it with srun --wait=0{}",
        nonuniform.reduced_replicas().iter().take(16).collect::<Vec<_>>(),
        shrunk.reduced,
        shrunk.base,
        nonuniform.reduced_batch,
        nonuniform.local_batch,
        why_no_more(plan, nonuniform)
    );
    vec![Finding::info(FIELD, value, text).rule(RULE)]
}
