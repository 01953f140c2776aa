//! Defaults of a plan file (contract: the values shown in its example), each recorded as assumed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::documents::fill_documents;
use super::evaluation::fill_evaluation;
use crate::cluster::Gpu;
use crate::fill::checkpoints::fill_checkpoints;
use crate::fill::cluster::fill_cluster;
use crate::fill::filler::{Filler, Mark};
use crate::fill::fsdp::{fill_fsdp, fill_tp_plan};
use crate::fill::recipe::Taken;
use crate::fill::run::{refuse_wrong_blend, refuse_wrong_rate};
use crate::fill::training::{fill_software, fill_training};
use crate::finding::{Finding, clip};
use crate::layout::{Chunk, Layout, Split, Splitter, mtp_of_layout_string, parse_layout_string, parse_order};
use crate::model::{Architecture, Attention, Balance, MixerRef, Model};
use crate::plan::{Plan, RunSettings};
use crate::recipes::Among;
use crate::rules::{Aspect, Shape, first_broken, first_broken_alone, wants_full_stages};
use crate::runtime::Runtime;
use crate::settings::{CpKind, Schedule};
use crate::software::{Named, Program, program};
use crate::wire::{DataFile, FrameworkAnswer, LayoutFile, PlanFile, Setting, TrainingFile};

/// Paths of `training` that are part of the model.
const FORCE_BALANCE: &str = "training.moe.force_balance";
const MTP: &str = "training.mtp_layers";

/// Fills every field of `given`. None only when a size is so far out of range that nothing can be derived from it.
pub(crate) fn fill(
    (given, among): (&PlanFile, Among),
    mut model: Architecture,
    title: &str,
    gpu: &'static Gpu,
    findings: &mut Vec<Finding>,
    assumed: &mut Vec<String>,
) -> (Plan, Option<FrameworkAnswer>) {
    let mut file = given.clone();
    // A filled plan leaves nothing open.
    (file.choose, file.objective, file.deadline_days) = (None, None, None);
    let mut fill = Filler::new(findings, assumed);
    let cluster = fill_cluster(&mut fill, &mut file, gpu);
    // As many as are said, be they more than a plan can have: a title of other sizes would say that they were taken.
    let said = file.cluster.nodes.zip(file.cluster.gpus_per_node);
    let gpus = said.map_or(cluster.world_size(), |(nodes, per_node)| nodes.saturating_mul(per_node));
    let name = fill.or("name", &mut file.name, format!("{title} on {gpus} {}", gpu.id));
    if name.len() > 200 || name.chars().any(char::is_control) {
        fill.out_of_range = true;
        fill.findings.push(Finding::error(
            "name",
            clip(&name),
            "a plan's name is at most 200 bytes without control characters",
        ));
    }
    let runtime = fill.usual("runtime", &mut file.runtime);
    fill.facts = Some(runtime.facts());
    let named = file.software.framework.as_deref().and_then(Named::parse).map(|(named, _)| named);
    let other_gpu = |named: &Named| !named.product.trains_on(cluster.gpu.generation);
    if let Some(named) = named.filter(other_gpu) {
        fill.findings.push(named.without(runtime, cluster.gpu));
    }
    let recipe = named
        .filter(|named| !other_gpu(named))
        .and_then(|named| Taken::of(named, &file, &model, &cluster, (runtime, among)));
    let usual = recipe.as_ref().and_then(Taken::mtp_layers).unwrap_or(model.mtp_layers);
    let mtp_said = file.training.mtp_layers.is_some();
    let mtp = fill.number_or(MTP, &mut file.training.mtp_layers, usual);
    model.mtp_layers = mtp;
    fill_balance(&mut fill, &mut file, &mut model);
    let software = fill_software(&mut fill, &mut file.software, runtime);
    let flags = file.layout.account_for_embedding.is_none() && file.layout.account_for_loss.is_none();
    let program = program(software.profile.as_deref(), runtime.facts());
    let splitter = Splitter::of(runtime, software.framework, program, flags);
    let of_layout = recipe.as_ref().map_or_else(Vec::new, |recipe| recipe.apply_fsdp(&mut file.layout.fsdp));
    fill.assumed.extend(of_layout.iter().map(|(path, _)| (*path).to_owned()));
    let layout =
        fill_layout(&mut fill, &mut file, &model, (runtime, splitter, program), cluster.world_size());
    let mtp_sets = recipe.as_ref().and_then(Taken::mtp_layers).filter(|_| !mtp_said);
    let pinned = file.training.clone();
    let start = fill.mark();
    let set = recipe.as_ref().map(|recipe| recipe.apply(&mut file.training, model.moe.is_some()));
    let failed = cluster.failed.len() as u64;
    let full = if wants_full_stages(&software, layout.schedule) { layout.pp } else { 1 };
    let training = fill_training(&mut fill, &mut file.training, program, (&model, &layout), (failed, full));
    let end = fill.mark();
    let run = fill_run(&mut fill, &mut file, model.vocab_size);
    // With a size out of range the file is shown as given, and rules are checked on the nearest sane sizes.
    let mut plan = Plan {
        name,
        file,
        model: Arc::new(Model::new(model)),
        cluster,
        runtime,
        layout,
        training,
        software,
        run,
        nonuniform: None,
        role: None,
    };
    let framework = recipe.zip(set).map(|(recipe, set)| {
        // What was said of the run stays behind.
        let run = fill.after(end);
        let mut framework = settle(&mut fill, &mut plan, (&pinned, start), recipe, set);
        plan.software.set.extend(of_layout.iter().map(|(path, _)| *path));
        let mtp = mtp_sets.map(|layers| (MTP, Value::from(layers)));
        framework.sets.extend(of_layout.into_iter().chain(mtp).map(|(path, value)| (path.to_owned(), value)));
        fill.extend(run);
        if framework.nearest {
            let message = format!(
                "{} has no recipe for this model, GPU, number of GPUs and precision: what the nearest sets, that of {}, is taken instead",
                framework.name, framework.recipe
            );
            fill.findings.push(Finding::info("software.framework", framework.name.as_str(), message).rule(framework.source.as_str()));
        }
        framework
    });
    (plan, framework)
}

/// Leaves out what of a recipe a rule excludes in this plan, and fills training again, until nothing is excluded.
fn settle(
    fill: &mut Filler<'_>,
    plan: &mut Plan,
    (pinned, start): (&TrainingFile, Mark),
    mut recipe: Taken,
    mut set: BTreeMap<&'static str, Value>,
) -> FrameworkAnswer {
    let moe = plan.model.moe.is_some();
    let excluded = |plan: &Plan| {
        let shape = Shape::of(plan);
        let of_layout =
            || [Aspect::Grid, Aspect::Overlap].into_iter().find_map(|aspect| first_broken(&shape, aspect));
        first_broken_alone(&shape).or_else(of_layout)
    };
    plan.software.where_possible = recipe.where_possible(pinned, moe, plan.layout.ep);
    while let Some((_, field)) = excluded(plan)
        && recipe.leave_out(field, &set)
    {
        fill.after(start);
        let mut training = pinned.clone();
        set = recipe.apply(&mut training, moe);
        let failed = plan.cluster.failed.len() as u64;
        let full = if wants_full_stages(&plan.software, plan.layout.schedule) { plan.layout.pp } else { 1 };
        let of = (&**plan.model, &plan.layout);
        plan.training = fill_training(fill, &mut training, plan.program(), of, (failed, full));
        plan.file.training = training;
    }
    // Flat buffers are reduced in the type of their gradients.
    if plan.runtime.facts().flat_units {
        plan.layout.fsdp.reduce_dtype = plan.training.grad_dtype;
    }
    plan.software.where_possible = recipe.where_possible(pinned, moe, plan.layout.ep);
    plan.software.set = set.keys().copied().collect();
    plan.software.others_recipe |= recipe.is_others();
    fill.assumed.extend(set.keys().map(|path| (*path).to_owned()));
    recipe.answer(set)
}

/// A router that spreads tokens whatever it has learned is part of the model, and a plan can ask for one.
fn fill_balance(fill: &mut Filler<'_>, file: &mut PlanFile, model: &mut Architecture) {
    const FIELD: &str = FORCE_BALANCE;
    let moe = &mut file.training.moe;
    let routing = model.moe.as_mut().map(|moe| &mut moe.routing);
    let forced = routing.as_ref().is_some_and(|routing| routing.balance == Balance::Forced);
    let force = fill.or(FIELD, &mut moe.force_balance, forced);
    let wrong = match (force, moe.load_imbalance) {
        (true, Some(load)) if load > 1.0 => Some(format!(
            "tokens that are spread evenly have no load of {load} times the mean; leave training.moe.load_imbalance out, or {FIELD}"
        )),
        (true, _) if routing.is_none() => {
            Some("this model has no experts to balance; leave it out".to_owned())
        }
        (false, _) if forced => Some(
            "the model's own routing forces balance; change routing.balance in model.architecture".to_owned(),
        ),
        _ => None,
    };
    if let Some(message) = wrong {
        fill.findings
            .push(Finding::error(FIELD, force, message).rule("a forced router spreads tokens evenly"));
    } else if let (true, Some(routing)) = (force, routing) {
        routing.balance = Balance::Forced;
    }
}

fn fill_layout(
    fill: &mut Filler<'_>,
    file: &mut PlanFile,
    model: &Architecture,
    (runtime, splitter, program): (Runtime, Splitter, Option<&Program>),
    world: u64,
) -> Layout {
    let layout = &mut file.layout;
    let tp = fill.number("layout.tp", &mut layout.tp);
    // Plans of transformers do not split the sequence.
    let hf_plan =
        Setting::is_read("layout.tp_plan", runtime.facts()) && layout.tp_plan == Some(Value::from("hf"));
    let splits = program.is_none_or(|program| program.splits_sequences);
    let sp = fill.or("layout.sp", &mut layout.sp, tp > 1 && !hf_plan && splits);
    let cp = fill.number("layout.cp", &mut layout.cp);
    // Sparse attention chooses among all tokens, so they are gathered.
    let sparse =
        |mixer: &MixerRef<'_>| matches!(mixer, MixerRef::Attention(Attention::Mla { indexer: Some(_), .. }));
    let gathers = model.mixers().iter().any(sparse);
    let usual = if gathers { CpKind::AllGather } else { CpKind::P2p };
    let cp_kind = fill.or("layout.cp_kind", &mut layout.cp_kind, usual);
    let pp = fill.number("layout.pp", &mut layout.pp);
    let pipeline = layout.pipeline_layout.clone().and_then(|text| fill_pipeline(fill, &text, model, pp));
    let stages = pipeline.as_ref().map_or(1, |stages| stages.len() as u64);
    let vpp = fill.number_or("layout.vpp", &mut layout.vpp, (stages / pp).max(1));
    let usual = Schedule::usual(vpp);
    let schedule = fill.or("layout.schedule", &mut layout.schedule, usual);
    for (field, value) in [
        ("layout.first_stage_layers", layout.first_stage_layers),
        ("layout.last_stage_layers", layout.last_stage_layers),
    ] {
        if let Some(value) = value {
            fill.within(field, value, 1, model.num_layers);
        }
    }
    let microbatch_group_size = match layout.microbatch_group_size {
        Some(size) => fill.checked("layout.microbatch_group_size", size),
        None => pp,
    };
    let ep = fill.number("layout.ep", &mut layout.ep);
    let etp = fill.number_or("layout.etp", &mut layout.etp, if model.moe.is_some() { 1 } else { tp });
    let dp_replicate = fill.number("layout.dp_replicate", &mut layout.dp_replicate);
    let vocab_divisible_by = fill.number("layout.vocab_divisible_by", &mut layout.vocab_divisible_by);
    let usual: String = Setting::usual_of("layout.order");
    let text = fill.or("layout.order", &mut layout.order, usual.clone());
    let order = parse_order(&text).or_else(|| {
        fill.findings.push(
            Finding::error(
                "layout.order",
                clip(&text),
                format!(
                    "order is `{}`; it must name tp, cp, ep, dp and pp once each, joined by -",
                    clip(&text)
                ),
            )
            .rule("Megatron-Core order strings")
            .nearest([usual.as_str()]),
        );
        parse_order(&usual)
    });
    let settings = fill_fsdp(fill, layout, &file.training, runtime);
    let tp_plan = fill_tp_plan(fill, layout);
    let splitter = layout.splits_itself().then_some(splitter);
    let mut filled = Layout {
        tp,
        sp,
        cp,
        cp_kind,
        pp,
        vpp,
        schedule,
        pipeline,
        first_stage_layers: layout.first_stage_layers,
        last_stage_layers: layout.last_stage_layers,
        account_for_embedding: layout.account_for_embedding.unwrap_or(false),
        account_for_loss: layout.account_for_loss.unwrap_or(false),
        splitter,
        microbatch_group_size,
        ep,
        etp,
        // Whole numbers once the rules hold; at least 1 so that nothing divides by zero before they are checked.
        dp: (world / tp.saturating_mul(cp).saturating_mul(pp).max(1)).max(1),
        edp: (world / etp.saturating_mul(ep).saturating_mul(pp).max(1)).max(1),
        order: order.unwrap_or_default(),
        vocab_divisible_by,
        dp_replicate,
        fsdp: settings,
        tp_plan,
    };
    fill_split(fill, layout, &mut filled, model);
    filled
}

/// How layers are split over stages where nobody says: written into the file, and listed as assumed.
fn fill_split(fill: &mut Filler<'_>, file: &mut LayoutFile, layout: &mut Layout, model: &Architecture) {
    let split = Split::usual(layout, model);
    fill.or("layout.account_for_embedding", &mut file.account_for_embedding, split.account_for_embedding);
    fill.or("layout.account_for_loss", &mut file.account_for_loss, split.account_for_loss);
    if layout.splitter.is_none() {
        return;
    }
    for (field, slot, layers) in [
        ("layout.first_stage_layers", &mut file.first_stage_layers, split.first_stage_layers),
        ("layout.last_stage_layers", &mut file.last_stage_layers, split.last_stage_layers),
    ] {
        if let Some(layers) = layers {
            fill.or(field, slot, layers);
        }
    }
    if let Some((text, _)) = &split.listed {
        fill.or("layout.pipeline_layout", &mut file.pipeline_layout, text.clone());
    }
    split.put(layout);
}

/// The virtual stages of a layout string, unless it is against a rule.
fn fill_pipeline(fill: &mut Filler<'_>, text: &str, model: &Architecture, pp: u64) -> Option<Arc<[Chunk]>> {
    let wrong = match parse_layout_string(text) {
        Err(error) => error,
        Ok(stages) => {
            let layers = stages.last().map_or(0, |stage| stage.layers.end);
            let mtp = mtp_of_layout_string(text);
            let count = stages.len() as u64;
            let mtp_stage = stages.iter().position(|stage| stage.mtp).map(|stage| stage as u64);
            if layers != model.num_layers {
                format!("it has {layers} t, and the model {} layers", model.num_layers)
            } else if mtp != model.mtp_layers {
                format!("it has {mtp} m, and training.mtp_layers is {}", model.mtp_layers)
            } else if !count.is_multiple_of(pp) {
                format!("it has {count} virtual stages, which is not a multiple of pp {pp}")
            } else if mtp_stage.is_some_and(|stage| stage + pp < count || (pp > 1 && stage % pp == 0)) {
                "m must be in the last chunk of its rank, and not on the first rank of a pipeline".to_owned()
            } else {
                return Some(stages.into());
            }
        }
    };
    fill.findings.push(
        Finding::error(
            "layout.pipeline_layout",
            clip(text),
            format!("the layout string can't be used: {wrong}"),
        )
        .rule("Megatron-Core PipelineParallelLayerLayout"),
    );
    None
}

fn fill_run(fill: &mut Filler<'_>, file: &mut PlanFile, words: u64) -> RunSettings {
    let run = &mut file.run;
    let steps = fill.number("run.steps", &mut run.steps);
    let settings = RunSettings {
        steps,
        seed: fill.usual("run.seed", &mut run.seed),
        lr: fill.fraction("run.lr", &mut run.lr),
        weight_decay: fill.fraction("run.weight_decay", &mut run.weight_decay),
        clip_grad: fill.fraction("run.clip_grad", &mut run.clip_grad),
        warmup_steps: fill.number("run.warmup_steps", &mut run.warmup_steps),
        lr_schedule: fill.usual("run.lr_schedule", &mut run.lr_schedule),
        lr_decay_steps: fill.number_or("run.lr_decay_steps", &mut run.lr_decay_steps, steps),
        min_lr: fill.fraction("run.min_lr", &mut run.min_lr),
        data: fill.or("run.data", &mut run.data, DataFile::Synthetic),
        weights: run.weights.clone().filter(|folder| !folder.trim().is_empty()),
        checkpoint: None,
        evaluation: None,
        documents: fill_documents(fill, words, &mut run.documents),
    };
    refuse_wrong_blend(fill, "run.data", &settings.data);
    refuse_wrong_rate(fill, &settings);
    let own = settings.data != DataFile::Synthetic || settings.weights.is_some();
    let checkpoint = fill_checkpoints(fill, own, &file.cluster, &mut run.checkpoint);
    let batch = file.training.global_batch_size.unwrap_or(1);
    let evaluation = fill_evaluation(fill, &settings.data, batch, &mut run.evaluation);
    RunSettings { checkpoint, evaluation, ..settings }
}
