//! The rules themselves: each once, against a shape.

use serde_json::Value;

use crate::layout::{Axis, Layout, chunks_of_stages, layers_of_stage};
use crate::model::Mlp;
use crate::plan::Software;
use crate::rules::mesh::mesh_rules;
use crate::rules::mixers::mixer_rules;
use crate::rules::shape::Shape;
use crate::rules::training;
use crate::settings::Schedule;
use crate::software::Product;

/// One broken rule.
pub(super) struct Violation {
    pub(super) field: &'static str,
    pub(super) value: Value,
    pub(super) message: String,
    pub(super) rule: &'static str,
    /// Values that would be right, where they can't be found by trying.
    pub(super) nearest: Vec<Value>,
}

/// The rules found broken so far.
#[derive(Default)]
pub(crate) struct Broken {
    found: Vec<Violation>,
    asked: Asked,
}

/// What is asked of broken rules.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// All, with what is wrong.
    #[default]
    All,
    /// The first one's name: a search tries thousands of layouts, and nobody reads what is wrong with each.
    First,
    /// Whether there is one of this field, for another value of which plans are tried.
    Of(&'static str),
}

impl Broken {
    /// For the name of the first broken rule alone.
    pub(super) fn first_only() -> Broken {
        Broken { found: Vec::new(), asked: Asked::First }
    }

    /// The first broken rule, with its field.
    pub(super) fn first(&self) -> Option<(&'static str, &'static str)> {
        self.found.first().map(|violation| (violation.rule, violation.field))
    }

    /// Notes a violation, of which nobody may want to know; apart from whoever is generic, of whom there are hundreds.
    #[inline(never)]
    fn note(&mut self, violation: Violation) {
        let wanted = match self.asked {
            Asked::All => true,
            Asked::First => self.found.is_empty(),
            Asked::Of(field) => violation.field == field,
        };
        if wanted {
            self.found.push(violation);
        }
    }

    /// Notes a broken rule unless it `holds`, and says whether it does.
    pub(crate) fn require(
        &mut self,
        holds: bool,
        field: &'static str,
        value: impl Into<Value>,
        rule: &'static str,
        message: impl FnOnce() -> String,
    ) -> bool {
        if !holds {
            let message = if self.asked == Asked::All { message() } else { String::new() };
            self.note(Violation { field, value: value.into(), message, rule, nearest: Vec::new() });
        }
        holds
    }

    /// Notes a broken rule with the values that would be right.
    pub(crate) fn refuse<V: Into<Value>>(
        &mut self,
        field: &'static str,
        value: impl Into<Value>,
        rule: &'static str,
        message: String,
        nearest: impl IntoIterator<Item = V>,
    ) {
        let nearest = nearest.into_iter().map(Into::into).collect();
        self.note(Violation { field, value: value.into(), message, rule, nearest });
    }
}

pub(super) const WORLD_RULE: &str = "world size is a multiple of tp x cp x pp (Megatron-Core parallel_state)";
const EXPERT_WORLD_RULE: &str = "world size is a multiple of etp x ep x pp (Megatron-Core parallel_state)";
const STAGE_RULE: &str = "layers divide over pipeline stages and chunks (Megatron-Core transformer_block)";
const BATCH_RULE: &str =
    "global batch is a multiple of micro batch x dp (Megatron-Core num_microbatches_calculator)";
/// Of torch and NeMo Automodel.
pub(crate) const FULL_RULE: &str =
    "a micro batch for each stage (torch pipelining Schedule1F1B, NeMo Automodel train_ft)";
const INTERLEAVED_RULE: &str = "interleaved schedule: pp <= microbatch_group_size <= micro batches, and the last group is empty or at least pp (Megatron-Core schedules)";

/// Every rule that the shape breaks, of those that look at the layout.
pub(super) fn broken(shape: &Shape<'_>) -> Vec<Violation> {
    let mut broken = Broken::default();
    layout_rules(shape, &mut broken);
    broken.found
}

/// Every rule that the shape breaks.
pub(super) fn all_broken(shape: &Shape<'_>) -> Vec<Violation> {
    let mut broken = Broken::default();
    layout_rules(shape, &mut broken);
    training::alone(shape, &mut broken);
    broken.found
}

/// Whether the shape breaks a rule of this field.
pub(crate) fn broken_at(shape: &Shape<'_>, field: &'static str) -> bool {
    let mut broken = Broken { found: Vec::new(), asked: Asked::Of(field) };
    layout_rules(shape, &mut broken);
    training::alone(shape, &mut broken);
    !broken.found.is_empty()
}

/// The first broken rule that holds or not whatever the layout is, with its field.
pub(crate) fn first_broken_alone(shape: &Shape<'_>) -> Option<(&'static str, &'static str)> {
    let mut broken = Broken::first_only();
    training::alone(shape, &mut broken);
    broken.first()
}

fn layout_rules(shape: &Shape<'_>, broken: &mut Broken) {
    rank_rules(shape, broken);
    stage_rules(shape, broken);
    batch_rules(shape, broken);
    training::with_layout(shape, broken);
}

/// What the rules look at, so that whoever tries many layouts asks each of them once for what it depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aspect {
    /// Axes of the rank grid, sequence parallelism, and the tokens of a micro batch.
    Grid,
    /// Stages, chunks and schedule.
    Pipeline,
    /// Stages and chunks with the axes and the communication that is to hide.
    Overlap,
    /// Numbers of micro batches.
    Batch,
}

/// The first rule of an aspect that the shape breaks, with its field. The aspects together are all rules of `broken`.
pub(crate) fn first_broken(shape: &Shape<'_>, aspect: Aspect) -> Option<(&'static str, &'static str)> {
    let mut broken = Broken::first_only();
    match aspect {
        Aspect::Grid => {
            rank_rules(shape, &mut broken);
            training::with_grid(shape, &mut broken);
        }
        Aspect::Pipeline => stage_rules(shape, &mut broken),
        Aspect::Overlap => training::with_pipeline(shape, &mut broken),
        Aspect::Batch => batch_rules(shape, &mut broken),
    }
    broken.first()
}

/// Rules of the rank grid: axes, experts, sequence, or the device mesh.
fn rank_rules(shape: &Shape<'_>, broken: &mut Broken) {
    if shape.runtime.facts().uses_device_mesh {
        world_rules(shape, broken);
        mesh_rules(shape, broken);
        sequence_rules(shape, broken);
    } else {
        axis_rules(shape, broken);
        expert_rules(shape, broken);
    }
}

/// Whole numbers of ranks on every axis.
fn world_rules(shape: &Shape<'_>, broken: &mut Broken) {
    let (layout, world) = (&shape.layout, shape.world);
    let mut product = 1u64;
    for (field, name, size) in
        [("layout.tp", "tp", layout.tp), ("layout.pp", "pp", layout.pp), ("layout.cp", "cp", layout.cp)]
    {
        let next = product.saturating_mul(size);
        let fits = next > 0 && world.is_multiple_of(next);
        let holds = broken.require(fits, field, size, WORLD_RULE, || {
            format!(
                "{world} GPUs can't be split by {name} {size} (tp {} x pp {} x cp {})",
                layout.tp, layout.pp, layout.cp
            )
        });
        if !holds {
            break;
        }
        product = next;
    }
}

fn axis_rules(shape: &Shape<'_>, broken: &mut Broken) {
    world_rules(shape, broken);
    let (layout, architecture) = (&shape.layout, shape.architecture);
    let tp = layout.tp;
    mixer_rules(shape, broken);
    let dense = architecture.dense_widths().into_iter().map(|width| ("the MLP's width", width));
    let linear =
        architecture.has_mlp(Mlp::Linear).then_some(("the MLP's one matrix", architecture.hidden_size));
    let shared =
        architecture.moe.as_ref().map(|moe| ("the shared experts' width", moe.shared_ffn_hidden_size));
    for (what, width) in dense.chain(linear).chain(shared) {
        let rule = "MLP width is a multiple of tp (Megatron-Core tensor_parallel)";
        broken.require(tp > 0 && width.is_multiple_of(tp), "layout.tp", tp, rule, || {
            format!("{what} of {width} can't be split over tp {tp}")
        });
    }
    sequence_rules(shape, broken);
    let rule = "order ends in pp, or pp is 1, or edp equals dp (Megatron-Core parallel_state)";
    let same = layout.tp.saturating_mul(layout.cp) == layout.etp.saturating_mul(layout.ep);
    let ends_in_pp = layout.order.last() == Some(&Axis::Pp);
    broken.require(ends_in_pp || layout.pp == 1 || same, "layout.order", "", rule, || {
        "the order must end in pp here, or the pipelines of dense and expert ranks would differ".to_owned()
    });
}

/// The sequence divides over the axes that split it.
fn sequence_rules(shape: &Shape<'_>, broken: &mut Broken) {
    let layout = &shape.layout;
    let tp = layout.tp;
    if layout.sp {
        broken.require(
            tp > 1,
            "layout.sp",
            true,
            "sequence parallel needs tp > 1 (Megatron-Core ModelParallelConfig)",
            || format!("sequence parallel needs tp above 1, and tp is {tp}; switch sp off or raise tp"),
        );
        let tokens = shape.seq_len / layout.cp.max(1);
        broken.require(
            tp == 0 || tokens.is_multiple_of(tp),
            "training.seq_len",
            shape.seq_len,
            "sequence parallel splits a rank's tokens over tp",
            || format!("a rank's {tokens} tokens can't be split over tp {tp} for sequence parallel"),
        );
    }
    if let Some(positions) = shape.architecture.learned_positions {
        broken.require(
            shape.seq_len <= positions,
            "training.seq_len",
            shape.seq_len,
            "a sequence is no longer than the model's learned positions",
            || {
                format!(
                    "the model has {positions} learned positions, and sequences have {} tokens",
                    shape.seq_len
                )
            },
        );
    }
    if layout.cp > 1 {
        let unit = layout.cp.saturating_mul(2);
        broken.require(shape.seq_len.is_multiple_of(unit), "training.seq_len", shape.seq_len, "seq_len is a multiple of 2 x cp (Megatron-LM validate_args)", || {
            format!("seq_len {} is not a multiple of 2 x cp = {unit}, the chunks of balanced context parallel", shape.seq_len)
        });
    }
}

fn expert_rules(shape: &Shape<'_>, broken: &mut Broken) {
    let layout = &shape.layout;
    let Some(moe) = &shape.architecture.moe else {
        let rule = "expert parallel needs experts (Megatron-Core arguments)";
        broken.require(layout.ep == 1, "layout.ep", layout.ep, rule, || {
            format!("ep {} needs a model with experts, and this one has none", layout.ep)
        });
        return;
    };
    let (ep, etp) = (layout.ep, layout.etp);
    let whole = ep > 0 && moe.experts.is_multiple_of(ep);
    broken.require(whole, "layout.ep", ep, "experts are a multiple of ep (Megatron-Core moe_layer)", || {
        format!(
            "{} experts can't be split over ep {ep}: {} are left over",
            moe.experts,
            moe.experts.checked_rem(ep).unwrap_or(0)
        )
    });
    let width = moe.ffn_hidden_size;
    broken.require(
        etp > 0 && width.is_multiple_of(etp),
        "layout.etp",
        etp,
        "expert width is a multiple of etp",
        || format!("an expert's width of {width} can't be split over etp {etp}"),
    );
    let product = etp.saturating_mul(layout.pp);
    let etp_fits = product > 0 && shape.world.is_multiple_of(product);
    if broken.require(etp_fits, "layout.etp", etp, EXPERT_WORLD_RULE, || {
        format!("{} GPUs can't be split by etp {etp} x pp {}", shape.world, layout.pp)
    }) {
        let product = product.saturating_mul(ep);
        broken.require(
            product > 0 && shape.world.is_multiple_of(product),
            "layout.ep",
            ep,
            EXPERT_WORLD_RULE,
            || format!("{} GPUs can't be split by etp {etp} x ep {ep} x pp {}", shape.world, layout.pp),
        );
    }
    let rule = "training experts with tp > 1 needs sequence parallel (Megatron-Core moe_layer)";
    broken.require(layout.tp <= 1 || layout.sp, "layout.sp", false, rule, || {
        format!("a model with experts needs sequence parallel when tp is {}; switch sp on", layout.tp)
    });
    if shape.architecture.mlp_bias {
        let rule = "expert biases need etp 1 (Megatron-Core transformer_config)";
        broken.require(etp == 1, "layout.etp", etp, rule, || {
            format!("experts with biases can't be split over etp {etp}")
        });
    }
    let top_k_fits = moe.top_k >= 1 && moe.top_k <= moe.experts;
    broken.require(top_k_fits, "model", moe.top_k, "1 <= top_k <= experts", || {
        format!("top_k {} must be between 1 and the {} experts", moe.top_k, moe.experts)
    });
}

fn stage_rules(shape: &Shape<'_>, broken: &mut Broken) {
    let layout = &shape.layout;
    let layers = shape.architecture.num_layers;
    if layout.pp == 0 || layout.vpp == 0 {
        return;
    }
    let overridden = layout.first_stage_layers.is_some() || layout.last_stage_layers.is_some();
    let accounted = layout.account_for_embedding || layout.account_for_loss;
    broken.require(!(overridden && accounted), "layout.first_stage_layers", layout.first_stage_layers, STAGE_RULE, || {
        "first_stage_layers and last_stage_layers exclude account_for_embedding and account_for_loss; use one or the other".to_owned()
    });
    for (field, value) in [
        ("layout.first_stage_layers", layout.first_stage_layers),
        ("layout.last_stage_layers", layout.last_stage_layers),
    ] {
        broken.require(value != Some(0), field, value, STAGE_RULE, || {
            "a stage needs at least one layer".to_owned()
        });
    }
    if layout.vpp > 1 {
        broken.require(
            layout.pp > 1,
            "layout.vpp",
            layout.vpp,
            "chunks need pp > 1 (Megatron-LM arguments)",
            || format!("vpp {} needs pp above 1, and pp is 1", layout.vpp),
        );
    }
    if let Some(stages) = &layout.pipeline {
        let whole = layout.pp.saturating_mul(layout.vpp) == stages.len() as u64;
        broken.require(whole, "layout.vpp", layout.vpp, STAGE_RULE, || {
            format!(
                "the layout string has {} virtual stages, which is not pp {} x vpp {}",
                stages.len(),
                layout.pp,
                layout.vpp
            )
        });
        broken.require(!overridden && !accounted, "layout.pipeline_layout", "", STAGE_RULE, || {
            "a layout string excludes first_stage_layers, last_stage_layers, account_for_embedding and account_for_loss".to_owned()
        });
    }
    if layout.pp > 1_048_576 {
        return; // already a broken world rule; the vectors below would be huge
    }
    let whole = Layout { vpp: 1, ..Layout::clone(layout) };
    let stages_fit = layout.pipeline.is_some() || layers_of_stage(&whole, layers, 0).is_some();
    broken.require(stages_fit, "layout.pp", layout.pp, STAGE_RULE, || {
        format!("{layers} layers{} can't be split evenly over pp {}", describe_extra(layout), layout.pp)
    });
    if stages_fit && layout.vpp > 1 && layout.pipeline.is_none() {
        broken.require(
            layers_of_stage(layout, layers, 0).is_some(),
            "layout.vpp",
            layout.vpp,
            STAGE_RULE,
            || {
                format!(
                    "the layers of a stage ({layers} layers{} over pp {}) can't be split evenly over vpp {}",
                    describe_extra(layout),
                    layout.pp,
                    layout.vpp
                )
            },
        );
    }
    let together = shape.architecture.layers_together;
    if stages_fit && together > 1 {
        let stages = chunks_of_stages(layout, layers).unwrap_or_default();
        let mut starts = stages.iter().flatten().map(|chunk| chunk.layers.start);
        let parted = starts.find(|start| !start.is_multiple_of(together));
        broken.require(parted.is_none(), "layout.pp", layout.pp, "layers that belong together are on one stage", || {
            format!(
                "a stage would start at layer {}, in the middle of {together} layers that are one of this family's; take a pp that cuts between them",
                parted.unwrap_or_default()
            )
        });
    }
    let fits = layout.schedule.kind().chunks.allow(layout.vpp);
    let name = layout.schedule.name();
    broken.require(
        fits,
        "layout.schedule",
        name,
        "interleaved needs vpp > 1; 1f1b, gpipe and zb-h1 vpp 1; zbv vpp 2",
        || format!("schedule {name} does not go with vpp {}", layout.vpp),
    );
}

fn describe_extra(layout: &Layout) -> String {
    let mut text = String::new();
    if let Some(first) = layout.first_stage_layers {
        text += &format!(" ({first} on the first stage)");
    }
    if let Some(last) = layout.last_stage_layers {
        text += &format!(" ({last} on the last stage)");
    }
    match (layout.account_for_embedding, layout.account_for_loss) {
        (true, true) => text += " plus embedding and loss",
        (true, false) => text += " plus embedding",
        (false, true) => text += " plus loss",
        (false, false) => {}
    }
    text
}

/// The most micro batches, up to so many, that the interleaved schedule takes in groups of `group`; 0 where it takes none.
pub(crate) fn most_in_groups(group: u64, stages: u64, microbatches: u64) -> u64 {
    let whole = microbatches - microbatches.checked_rem(group).unwrap_or(0);
    [microbatches, whole].into_iter().find(|&count| groups_fit(group, stages, count)).unwrap_or(0)
}

/// How many micro batches a layout's schedule takes at a time; none where it takes each by itself.
pub(crate) fn group_of(layout: &Layout) -> Option<u64> {
    let grouped = layout.schedule == Schedule::Interleaved && layout.vpp > 1;
    grouped.then_some(layout.microbatch_group_size)
}

/// Whether the interleaved schedule takes so many micro batches in groups of `group`.
pub(crate) fn groups_fit(group: u64, stages: u64, microbatches: u64) -> bool {
    let rest = microbatches.checked_rem(group).unwrap_or(0);
    group >= stages && group <= microbatches && (rest == 0 || rest >= stages)
}

/// The batch rule that a pipeline breaks whose micro batches come in groups of its stages; the same as `Aspect::Batch`,
/// from numbers alone.
pub(crate) fn broken_batch(
    (micro, global, dp): (u64, u64, u64),
    (schedule, stages, chunks): (Schedule, u64, u64),
) -> Option<&'static str> {
    let unit = micro.checked_mul(dp).filter(|unit| *unit > 0 && global.is_multiple_of(*unit));
    let Some(unit) = unit else { return Some(BATCH_RULE) };
    let grouped = schedule == Schedule::Interleaved && chunks > 1;
    (grouped && !groups_fit(stages, stages, global / unit)).then_some(INTERLEAVED_RULE)
}

/// Whether a framework's pipelines have at least a micro batch for each stage: torch's 1F1B, and whatever NeMo Automodel runs.
pub(crate) fn wants_full_stages(software: &Software, schedule: Schedule) -> bool {
    let torchtitan = software.named.is_some_and(|named| named.product == Product::Torchtitan);
    software.is_automodels() || torchtitan && schedule == Schedule::OneFOneB
}

fn batch_rules(shape: &Shape<'_>, broken: &mut Broken) {
    let Some(dp) = shape.dp() else { return };
    let (micro, global) = (shape.micro_batch_size, shape.global_batch_size);
    let microbatches = shape.microbatches();
    let holds =
        broken.require(microbatches.is_some(), "training.global_batch_size", global, BATCH_RULE, || {
            format!(
                "global batch {global} is not a multiple of micro batch {micro} x dp {dp} = {}",
                micro.saturating_mul(dp)
            )
        });
    let (true, Some(microbatches)) = (holds, microbatches) else { return };
    let (pp, schedule) = (shape.layout.pp, shape.layout.schedule);
    let full = microbatches >= pp || !wants_full_stages(shape.software, schedule);
    broken.require(full, "training.global_batch_size", global, FULL_RULE, || {
        format!("{microbatches} micro batches are fewer than the {pp} stages")
    });
    if let Some(group) = group_of(&shape.layout) {
        let stages = shape.layout.pp;
        let fits = groups_fit(group, stages, microbatches);
        let field =
            if group == stages { "training.global_batch_size" } else { "layout.microbatch_group_size" };
        let value = if group == stages { global } else { group };
        broken.require(fits, field, value, INTERLEAVED_RULE, || {
            format!("{microbatches} micro batches don't go with groups of {group} on {stages} stages")
        });
    }
}
