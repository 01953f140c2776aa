//! Open fields: the search whose first row they get.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::answer::SearchAnswer;
use super::request::{Axes, AxisValues, Bounds, RecomputeWords, Request};
use super::sharding::Sharding;
use crate::cluster::gpus;
use crate::fill;
use crate::fill::assumed_batch;
use crate::finding::{Finding, clip, has_error, nearest_names};
use crate::json::value_of;
use crate::order;
use crate::parse::place_of;
use crate::plan::Plan;
use crate::rules::{Shape, first_broken_alone};
use crate::runtime::Runtime;
use crate::search::releases;
use crate::settings::{Precision, Schedule};
use crate::software::Product;
use crate::wire::{AXES, Choose, OpenAxis, PlanFile};

/// A plan file with open fields, and the search that chooses them.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// What is searched: what the file says is fixed, what is open is free.
    pub request: Request,
    /// Paths of the fields that were assumed before anything was chosen, such as the global batch.
    pub assumed: Vec<String>,
    file: PlanFile,
}

impl Choice {
    /// The choice of a file; none for one that leaves nothing to choose.
    ///
    /// # Errors
    /// Findings, where model or cluster can't be read, or an axis has no such name.
    pub fn of(file: &PlanFile) -> Result<Option<Choice>, Vec<Finding>> {
        let Some(choose) = file.choose.as_ref().filter(|choose| !choose.names().is_empty()) else {
            return Ok(None);
        };
        let open = Open::of(choose)?;
        let mut base = file.clone();
        (base.choose, base.objective, base.deadline_days) = (None, None, None);
        let filled = fill::fill(&base);
        let Some(plan) = filled.plan.filter(|_| !has_error(&filled.findings)) else {
            return Err(filled.findings);
        };
        let mut assumed = Vec::new();
        if base.training.global_batch_size.is_none() {
            let preset = base.model.preset.as_deref();
            let batch = assumed_batch(
                preset,
                plan.training.seq_len,
                plan.world_size(),
                base.training.micro_batch_size,
            );
            base.training.global_batch_size = Some(batch);
            assumed.push("training.global_batch_size".to_owned());
        }
        let mut request = Request::new(base);
        request.objective = file.aim();
        request.deadline_days = file.deadline_days;
        request.axes = open.axes(file, &plan);
        request.only_first = true;
        request.batch_is_assumed = !assumed.is_empty();
        Ok(Some(Choice { request, assumed, file: file.clone() }))
    }

    /// The plan file with everything chosen; none where nothing is valid. Where nothing fits, the plan that lacks the least.
    pub fn plan(&self, answer: &SearchAnswer) -> Option<PlanFile> {
        let smallest = || answer.relief.as_ref()?.smallest.as_ref().map(|smallest| &smallest.settings);
        let settings = answer.rows.first().map(|row| &row.settings).or_else(smallest)?;
        let mut plan = settings.apply(&self.request.plan);
        plan.name.clone_from(&self.file.name);
        Some(plan)
    }
}

/// Tokens of a sequence up to which `all` leaves the kind of context parallelism alone: so short, few plans gain from context
/// parallelism, and three kinds of it are half of a search.
const SHORT: u64 = 8192;

/// Names of the axes that are open, and of those that are so by a word of their own.
struct Open(Vec<&'static str>, Vec<&'static str>);

impl Open {
    fn of(choose: &Choose) -> Result<Open, Vec<Finding>> {
        let (mut open, mut named) = (Vec::new(), Vec::new());
        let mut findings = Vec::new();
        for name in choose.names() {
            let known = open.len();
            open.extend(AXES.iter().filter(|axis| axis.is_meant(name)).map(|axis| axis.name));
            if name != "all" {
                named.extend(open.iter().skip(known));
            }
            if open.len() == known {
                let all = AXES.iter().map(|axis| axis.name).chain(["all"]);
                let message = format!(
                    "`{}` is nothing that can be chosen; there are all, {}",
                    clip(name),
                    AXES.iter().map(|axis| axis.name).collect::<Vec<_>>().join(", ")
                );
                // `offload` is the end of one name, and no letters of others.
                let within: Vec<&str> = AXES
                    .iter()
                    .map(|axis| axis.name)
                    .filter(|axis| name.len() > 2 && axis.contains(name))
                    .collect();
                let near = if within.is_empty() { nearest_names(name, all, 3) } else { within };
                findings.push(Finding::error("choose", clip(name), message).nearest(near));
            }
        }
        if findings.is_empty() { Ok(Open(open, named)) } else { Err(findings) }
    }

    fn is(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    /// What is said is fixed, and so is the default of what is not open.
    fn number(&self, name: &str, said: Option<u64>, default: u64) -> Option<AxisValues> {
        match said {
            Some(value) => Some(AxisValues::Fixed(value)),
            None if self.is(name) => None,
            None => Some(AxisValues::Fixed(default)),
        }
    }

    fn axes(&self, file: &PlanFile, plan: &Plan) -> Axes {
        let (layout, training) = (&file.layout, &file.training);
        let fsdp = plan.runtime.facts().shards_parameters;
        let schedule = match layout.schedule {
            Some(schedule) => Some(vec![schedule]),
            None if self.is("schedule") => None,
            None => Some(vec![Schedule::OneFOneB, Schedule::Interleaved]),
        };
        let recompute = match (training.recompute.granularity, self.is("recompute")) {
            (Some(_), _) => Some(vec![RecomputeWords::of(&training.recompute)]),
            (None, true) if training.recompute.modules.is_some() => {
                let named = RecomputeWords(training.recompute.modules.clone().unwrap_or_default().join("+"));
                Some(vec![named])
            }
            (None, true) => None,
            (None, false) => Some(vec![RecomputeWords::none()]),
        };
        let strategy = &layout.fsdp;
        let strategy_said = strategy.strategy.is_some() || strategy.reshard_after_forward.is_some();
        let strategies = Sharding::ALL.into_iter().filter(|one| one.runtime() == plan.runtime).collect();
        let own_stages = !layout.splits_itself() || !self.is("stages");
        let said = value_of(file);
        Axes {
            tp: self.number("tp", layout.tp, 1),
            cp: self.number("cp", layout.cp, 1),
            pp: self.number("pp", layout.pp, 1),
            vpp: self.number("vpp", layout.vpp, 1),
            ep: self.number("ep", layout.ep, 1),
            etp: match plan.model.moe {
                Some(_) => self.number("etp", layout.etp, 1),
                None => layout.etp.map(AxisValues::Fixed),
            },
            dp_replicate: match fsdp {
                true => self.number("dp_replicate", layout.dp_replicate, 1),
                false => layout.dp_replicate.map(AxisValues::Fixed),
            },
            micro_batch_size: self.number("micro_batch_size", training.micro_batch_size, 1),
            nodes: self.is("nodes").then(|| {
                let most = file.cluster.nodes.unwrap_or(1).max(1);
                AxisValues::Bounds(Bounds { min: 1, max: most })
            }),
            schedule,
            recompute,
            sp: layout.sp.map(|sp| vec![sp]),
            distributed_optimizer: match training.optimizer.distributed {
                Some(on) => Some(vec![on]),
                None => self.is("distributed_optimizer").then(|| vec![true]),
            },
            fsdp_strategy: (fsdp && !strategy_said && self.is("fsdp_strategy")).then_some(strategies),
            precision: self.is("precision").then(|| precisions(plan)),
            runtime: self.is("runtime").then(|| {
                // What others train with; the worker's own is for its runs.
                Runtime::ALL.into_iter().filter(|runtime| !runtime.facts().is_workers_own).collect()
            }),
            gpu: self.is("gpu").then(|| {
                let known = gpus().iter().filter(|gpu| gpu.capacity_bytes.is_some());
                known.map(|gpu| gpu.id.to_owned()).collect()
            }),
            uneven_stages: None,
            own_stages,
            settings: order::map(
                self.0
                    .iter()
                    .filter(|name| {
                        **name != "cp_kind" || plan.training.seq_len > SHORT || self.1.contains(*name)
                    })
                    .filter_map(|name| settings_of(name, plan))
                    .filter(|(path, _)| !says(&said, path))
                    .map(|(path, values)| (path.to_owned(), values)),
            ),
        }
    }
}

/// The axes that a plan file leaves to a search unless it says a value, by their paths, each with whether it does.
pub fn open_axes(file: &PlanFile) -> BTreeMap<&'static str, bool> {
    let Some(choose) = &file.choose else { return BTreeMap::new() };
    let said = value_of(file);
    let names = choose.names();
    let is_open = |axis: &&OpenAxis| names.iter().any(|name| axis.is_meant(name));
    order::map(AXES.iter().filter(is_open).map(|axis| (axis.path, says(&said, axis.path))))
}

/// A plan file with open fields as it stands until they are chosen anew: with what was chosen for an earlier file, as far as it
/// may still hold, and nothing left open. Of another model nothing of experts and stages is kept.
pub fn with_earlier(file: &PlanFile, earlier: &PlanFile, chosen: &PlanFile) -> PlanFile {
    const OF_EXPERTS: [&str; 4] =
        ["layout.ep", "layout.etp", "training.moe.dispatcher", "training.overlap.ep"];
    // These go with each other, and with what is read above them.
    const TOGETHER: [&str; 3] =
        ["layout.pipeline_layout", "layout.schedule", "training.recompute.granularity"];
    let same_model = file.model == earlier.model;
    let mut value = value_of(file);
    let known = value_of(chosen);
    let open = open_axes(file).into_iter().filter(|(path, said)| !said && !TOGETHER.contains(path));
    let held = open.map(|(path, _)| path).filter(|path| same_model || !OF_EXPERTS.contains(path));
    for path in held.chain(["training.global_batch_size"]) {
        if let (Some(slot), Some(known)) = (place_of(&mut value, path), value_at(&known, path))
            && slot.is_null()
        {
            slot.clone_from(known);
        }
    }
    let mut whole = PlanFile::read(value).unwrap_or_else(|_| file.clone());
    (whole.choose, whole.objective, whole.deadline_days) = (None, None, None);
    let (layout, old) = (&mut whole.layout, &chosen.layout);
    // Of a dense model it follows tensor parallelism.
    if file.layout.etp.is_none() && old.ep.is_none_or(|size| size == 1) {
        layout.etp = None;
    }
    if same_model && (layout.pp, layout.vpp) == (old.pp, old.vpp) && layout.splits_itself() {
        layout.take_split(old);
    }
    if layout.vpp == old.vpp {
        layout.schedule = layout.schedule.or(old.schedule);
    }
    // Another model may have none of the modules.
    let recompute = &chosen.training.recompute;
    if whole.training.recompute.granularity.is_none() && (same_model || recompute.modules.is_none()) {
        whole.training.recompute.clone_from(&chosen.training.recompute);
    }
    whole
}

/// The file with everything left to a search that `all` opens, but for one path.
pub fn open_everything(file: &PlanFile, but: &str) -> PlanFile {
    let mut value = value_of(file);
    for axis in AXES.iter().filter(|axis| axis.in_all && axis.path != but) {
        if let Some(slot) = place_of(&mut value, axis.path) {
            *slot = Value::Null;
        }
    }
    let but_is_said = says(&value, but);
    let mut open = PlanFile::read(value).unwrap_or_else(|_| file.clone());
    open.layout.microbatch_group_size = None;
    if !but.starts_with("layout.") || !but_is_said {
        open.layout.forget_split();
    }
    if but != "training.recompute.granularity" {
        open.training.recompute = crate::wire::RecomputeFile::default();
    }
    open.choose = Some(Choose::all());
    open
}

/// What a plan file's JSON has at a path.
fn value_at<'a>(file: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(file, |value, key| value.get(key))
}

/// Whether a plan file's JSON says something at a path.
fn says(file: &Value, path: &str) -> bool {
    value_at(file, path).is_some_and(|value| !value.is_null())
}

/// Precisions that a GPU has.
fn precisions(plan: &Plan) -> Vec<Precision> {
    let all = [Precision::Bf16, Precision::Fp8Current, Precision::Fp8Blockwise, Precision::Mxfp8];
    let has = |precision: &Precision| {
        let mut file = plan.file.clone();
        file.training.dtype = Some(*precision);
        fill::fill(&file).plan.is_some_and(|plan| first_broken_alone(&Shape::of(&plan)).is_none())
            && releases::has(plan, "training.dtype", &precision.name().into())
    };
    all.into_iter().filter(has).collect()
}

/// Values to try of an axis that is a setting by itself, for a plan in which it means something.
fn settings_of(name: &str, plan: &Plan) -> Option<(&'static str, Vec<Value>)> {
    let facts = plan.runtime.facts();
    let megatron = facts.trains_megatron_core && !facts.uses_device_mesh;
    let experts = plan.model.moe.is_some();
    let (wanted, path, values) = match name {
        "dispatcher" => {
            (megatron && experts, "training.moe.dispatcher", vec![json!("alltoall"), json!("flex")])
        }
        "cp_kind" => (megatron, "layout.cp_kind", vec![json!("p2p"), json!("all_gather"), json!("a2a")]),
        "order" => {
            // Megatron Bridge's recipes have no place for it.
            let takes = plan.software.named.is_some_and(|named| named.product == Product::MegatronLm);
            let both = vec![json!("tp-cp-ep-dp-pp"), json!("tp-cp-ep-pp-dp")];
            (megatron && takes, "layout.order", both)
        }
        "tp_overlap" => (megatron, "training.overlap.tp", vec![json!(false), json!(true)]),
        "ep_overlap" => (megatron && experts, "training.overlap.ep", vec![json!(false), json!(true)]),
        "cuda_graphs" => {
            // A graph of the whole iteration has fixed sizes, and experts without a capacity have none. What a recipe captures of their
            // layers goes without, too, as whole layers are not recomputed beside it.
            let fixed = plan.model.moe.is_none() || plan.training.moe.goes_into_a_graph();
            let values = if fixed { vec![json!("none"), json!("iteration")] } else { vec![json!("none")] };
            (megatron, "training.cuda_graphs", values)
        }
        // Gradients that wait whole for the last micro batch take the memory that sharding saves.
        "gradient_sync" => {
            let waits = plan.runtime.facts().pipelines_by_torch && plan.layout.fsdp.sync_last;
            (waits, "layout.fsdp.gradient_sync", vec![json!("every")])
        }
        "optimizer_offload" => {
            (megatron, "training.optimizer.offload_fraction", vec![json!(0.0), json!(0.5), json!(1.0)])
        }
        _ => return None,
    };
    // What a plan has by itself, or its framework's recipe sets, is the usual value and stands first.
    let filled = value_of(&plan.file);
    let mut ordered: Vec<Value> =
        value_at(&filled, path).cloned().into_iter().filter(|own| !own.is_null()).collect();
    let open = |value: &Value| !ordered.contains(value) && releases::has(plan, path, value);
    let others: Vec<Value> = values.into_iter().filter(open).collect();
    ordered.extend(others);
    wanted.then_some((path, ordered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_release_is_chosen_nothing_that_came_later() {
        let open = |axis: &str, framework: &str| {
            let file = json!({"version": 1, "model": {"preset": "mixtral-8x7b"}, "cluster": {"gpu": "h100-sxm", "nodes": 2},
                "layout": {"ep": 8}, "software": {"framework": framework},
                "training": {"moe": {"capacity_factor": 1.0, "pad_to_capacity": true}}});
            let plan = Plan::resolve(&crate::parse::parse_plan(&file.to_string()).unwrap()).plan.unwrap();
            settings_of(axis, &plan).unwrap().1.len()
        };
        for (axis, first, values) in
            [("cuda_graphs", 15, 2), ("dispatcher", 12, 2), ("ep_overlap", 14, 2), ("cp_kind", 10, 3)]
        {
            assert_eq!(open(axis, &format!("megatron-lm core_v0.{first}")), values, "{axis}");
            assert!(open(axis, &format!("megatron-lm core_v0.{}", first - 1)) < values, "{axis}");
        }
    }
}
