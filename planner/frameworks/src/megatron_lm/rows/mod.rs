//! Options of Megatron-LM, in the order in which a script has them.
//!
//! Defaults and meanings are those of `megatron/training/arguments.py` and of the dataclasses that it makes options of, at
//! d98e8a64ddf3; names are those of core_v0.19.0.

mod attention;
mod batch;
mod delta;
mod experts;
mod hybrid;
mod kernels;
mod layout;
mod model;
mod optimizer;
mod other;
mod positions;
mod recompute;
mod routing;

use crate::gap::UNDER_ALL;
use crate::kind::Options;
use crate::number::plain_digits;
use crate::{Effect, Kind, Row, Table};
use planner::model::Attention;
use planner::plan::Plan;

use super::gaps::{GAPS, OF_FSDP2};
use super::known::WITHOUT_EFFECT;
pub(super) use hybrid::{ENTRY as HYBRID_ENTRY, is_hybrid};
pub(crate) use layout::context_levels;
pub(super) use model::OFFSET;
pub(super) use other::{NOT_COUNTED, PARTS, REFUSED};
pub(super) use positions::read_scaling;
pub(super) use routing::BALANCES;

/// Fields of Megatron-Core's `TransformerConfig`.
const MODEL: &str = "megatron/core/transformer/transformer_config.py";
/// Fields of its base, `ModelParallelConfig`.
const PARALLEL: &str = "megatron/core/model_parallel_config.py";
/// Options that are written out, checks and what follows from them.
const ARGUMENTS: &str = "megatron/training/arguments.py";
const OPTIMIZER: &str = "megatron/core/optimizer/optimizer_config.py";
const TRAINING: &str = "megatron/training/config/training_config.py";
const DDP: &str = "megatron/core/distributed/distributed_data_parallel_config.py";

fn is_latent(plan: &Plan) -> bool {
    matches!(plan.model.attention, Attention::Mla { .. })
}

/// The table of every plan.
pub fn table() -> Table {
    Table {
        rows: &[
            model::SIZES,
            attention::ATTENTION,
            model::MLP,
            positions::POSITIONS,
            model::WORDS,
            experts::EXPERTS,
            routing::ROUTING,
            model::LAYERS,
            delta::ROWS,
            hybrid::HYBRID,
            layout::LAYOUT,
            layout::FSDP,
            batch::BATCH,
            batch::PRECISION,
            batch::GRADIENTS,
            optimizer::OPTIMIZER,
            recompute::RECOMPUTE,
            kernels::KERNELS,
            kernels::OVERLAPS,
            experts::TRAINING,
            kernels::RARE,
            optimizer::RUN,
            other::ENVIRONMENT,
        ],
        gaps: &[UNDER_ALL, GAPS, OF_FSDP2],
    }
}

/// What follows from an option of this name; none for one that nothing here knows.
pub(crate) fn effect_of(option: &str) -> Option<Effect> {
    let rows = REFUSED.iter().chain(NOT_COUNTED).chain(table().rows()).chain(PARTS);
    let effects = rows.filter(|row| row.option == option).map(|row| row.effect);
    // Of several rows for one option one says it.
    let said = effects.reduce(|first, next| if first == Effect::OfField { next } else { first });
    let family = || WITHOUT_EFFECT.iter().find(|family| family.has(option));
    said.or_else(|| family().map(|family| Effect::None(family.why)))
}

/// Whether an option that is no field of a plan changes what is trained: a script of the plan trains without it.
pub(crate) fn trains_otherwise(option: &str) -> bool {
    let is_row = table().rows().any(|row| row.option == option);
    let family = WITHOUT_EFFECT.iter().find(|family| family.has(option));
    !is_row && (family.is_some_and(|family| family.trains) || PARTS.iter().any(|part| part.option == option))
}

const fn row(option: &'static str, field: &'static str, kind: Kind, source: &'static str) -> Row {
    Row::new(option, field, kind, source)
}

/// A reason why a field can't be said, and nothing that is written.
const fn says(field: &'static str, why: fn(&Plan) -> Result<(), &'static str>, source: &'static str) -> Row {
    row("", field, Kind::Says(why), source)
}

/// An error where something is so.
fn unless(wrong: bool, why: &'static str) -> Result<(), &'static str> {
    if wrong { Err(why) } else { Ok(()) }
}

/// Whether a job has an option that stands alone.
pub(super) fn on(said: Options, option: &str) -> bool {
    said(option).is_some_and(|word| crate::kind::is_on(&word))
}

/// A whole number of a job; none where it is no such.
pub(super) fn whole(said: Options, option: &str) -> Option<u64> {
    let number: f64 = plain_digits(&said(option)?).parse().ok()?;
    (number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
}

/// Whether Megatron-FSDP shards the parameters of a job.
pub(super) fn shards(said: Options) -> bool {
    on(said, "use-megatron-fsdp") || on(said, "use-custom-fsdp")
}

fn is_fsdp(plan: &Plan) -> bool {
    plan.runtime.facts().flat_units
}

fn has_experts(plan: &Plan) -> bool {
    plan.model.moe.is_some()
}
