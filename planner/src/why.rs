//! Where a number comes from: formula, inputs, source.

use crate::answer::estimate;
use crate::memory::{RESERVED_OVER_ALLOCATED, interval_in_words, live_chunks};
use crate::model;
use crate::plan::Plan;
use crate::runtime::Runtime;
use crate::shard::stage_families;
use crate::time;
use crate::units::{Bytes, thousands};
use crate::wire::{PlanFile, RankClass, Why};

fn bytes(value: u64) -> String {
    format!("{} bytes = {} = {}", thousands(value), Bytes(value).in_words(), Bytes(value).in_words_by_1000())
}

const EXACT: &str = "Exact: the sum over the same shards that the worker allocates";

/// How far an estimated number can be trusted.
fn estimate_note(plan: &Plan) -> &'static str {
    let runtime = if plan.is_computed_by_the_worker() { Runtime::OF_WORKER } else { plan.runtime };
    runtime.origins().estimate_note
}

/// Explains the number named `key`: `parameters.total`, `parameters.active`, `parameters.per_rank_max`,
/// `memory.peak_bytes`, `memory.capacity_bytes`, `memory.interval_bytes`, or `memory.CATEGORY@CLASS` with a category of
/// the answer's rank classes (such as `weights_bytes`) and the class's number, or `time.NAME` and `time.breakdown.PART`. None for an unknown key or a plan with
/// errors.
pub fn explain(file: &PlanFile, key: &str) -> Option<Why> {
    let plan = Plan::resolve(file).plan?;
    let (key, class) = match key.split_once('@') {
        Some((key, class)) => (key, class.parse::<usize>().ok()?),
        None => (key, 0),
    };
    if let Some(name) = key.strip_prefix("parameters.") {
        return parameters(&plan, name);
    }
    let answer = estimate(file);
    if let Some(name) = key.strip_prefix("time.") {
        return time::explain(&plan, &answer.time?, name);
    }
    let answer = answer.memory?;
    let input = |name: &str, value: String| (name.to_owned(), value);
    match key {
        "memory.capacity_bytes" => Some(Why {
            title: "Capacity of one GPU".to_owned(),
            formula: "what torch sees of one GPU".to_owned(),
            inputs: vec![
                input("cluster.gpu", plan.cluster.gpu.title.to_owned()),
                input("capacity", answer.capacity_bytes.map_or("none".to_owned(), bytes)),
            ],
            source: match plan.file.cluster.memory_gib {
                Some(gib) => format!(
                    "{gib} GiB that the plan says, of which torch sees as much as of this GPU's usual capacity"
                ),
                None => plan.cluster.gpu.source("capacity_bytes").to_owned(),
            },
            note: String::new(),
        }),
        "memory.peak_bytes" | "memory.interval_bytes" => {
            let fullest = answer
                .rank_classes
                .iter()
                .max_by_key(|class| class.peak_reserved_bytes + class.outside_bytes)?;
            Some(Why {
                title: format!("Peak of the fullest rank, stage {} in {}", fullest.stage, fullest.peak_phase),
                formula: format!(
                    "reserved by the allocator + outside it; likely range: {}",
                    interval_in_words(&plan)
                ),
                inputs: vec![
                    input("allocated", bytes(fullest.peak_allocated_bytes)),
                    input("reserved", bytes(fullest.peak_reserved_bytes)),
                    input("outside", bytes(fullest.outside_bytes)),
                    input("likely from", bytes(answer.interval_bytes[0])),
                    input("likely to", bytes(answer.interval_bytes[1])),
                ],
                source:
                    "Reserved over allocated: median 1.038, max 1.093 of 344 rank readings (SimuMax, B200)"
                        .to_owned(),
                note: estimate_note(&plan).to_owned(),
            })
        }
        _ => category(&plan, answer.rank_classes.get(class)?, key.strip_prefix("memory.")?),
    }
}

fn parameters(plan: &Plan, name: &str) -> Option<Why> {
    let (total, active) = model::count(&plan.model);
    let field = |name: &str, value: u64| (name.to_owned(), thousands(value));
    let (title, formula, value) = match name {
        "total" => (
            "Parameters of the whole model",
            "every trainable parameter once: no buffers, no vocabulary padding, no tied copy",
            total,
        ),
        "active" => ("Parameters that one token uses", "total, with top_k of each layer's experts", active),
        "per_rank_max" => (
            "Parameters on the fullest rank",
            "local slices of every parameter of its stage, vocabulary padded to 128 x tp",
            crate::shard::parameters_per_rank_max(plan),
        ),
        _ => return None,
    };
    Some(Why {
        title: title.to_owned(),
        formula: formula.to_owned(),
        inputs: vec![
            field("value", value),
            field("layers", plan.model.num_layers),
            field("hidden size", plan.model.hidden_size),
            field("vocabulary", plan.model.vocab_size),
            field("layout.tp", plan.layout.tp),
            field("layout.pp", plan.layout.pp),
            field("layout.ep", plan.layout.ep),
            field("layout.etp", plan.layout.etp),
        ],
        source: "the parameter list of planner/src/model and its cuts in planner/src/shard, equal to instantiated Megatron-Core models".to_owned(),
        note: "Exact".to_owned(),
    })
}

/// Formula and source of what a runtime counts in its own way, and of what the worker does where it gathers units.
fn own(plan: &Plan, name: &str) -> Option<(&'static str, &'static str)> {
    let facts = plan.runtime.facts();
    if name == "transient_bytes" && facts.shards_parameters && plan.is_computed_by_the_worker() {
        return Some((
            "units gathered and the next one's, their gradients until they are reduced, inputs and outputs of reductions, as layout.fsdp says; with the largest temporary beside them of a layer, of head and loss, or of the optimizer",
            "shardplan-rank: each moment of a step as it carries it out",
        ));
    }
    plan.runtime.origins().formula(name).map(|own| (own.formula, own.source))
}

fn category(plan: &Plan, class: &RankClass, name: &str) -> Option<Why> {
    let training = &plan.training;
    let mut found = crate::shard::holders(plan, class.stage).into_iter();
    let buffers = found.find(|holders| holders.first_rank == class.example_rank)?.buffers;
    let input = |name: &str, value: String| (name.to_owned(), value);
    let mut inputs = vec![input("stage", class.stage.to_string())];
    let (title, value, formula, source, note) = match name {
        "weights_bytes" => {
            for family in stage_families(plan, class.stage).iter().filter(|family| family.parameter.decays) {
                inputs.push(input(
                    &family.parameter.name,
                    format!(
                        "{} x {:?} = {} elements",
                        family.count,
                        family.local_shape,
                        thousands(family.count * family.local_elements())
                    ),
                ));
            }
            inputs.push(input("training.dtype", training.dtype.name().to_owned()));
            (
                "Weights",
                class.weights_bytes,
                "elements of the parameter buffers x bytes of the compute dtype",
                "Megatron-Core param_and_grad_buffer: parameters start at multiples of 64 elements, buffers end at multiples of lcm(dp, 128) with the distributed optimizer",
                EXACT,
            )
        }
        "gradients_bytes" => {
            inputs.push(input("training.grad_dtype", training.grad_dtype.name().to_owned()));
            inputs.push(input("elements", thousands(buffers.iter().map(|buffer| buffer.elements).sum())));
            (
                "Main gradients",
                class.gradients_bytes,
                "elements of the parameter buffers x bytes of grad_dtype, on every replica",
                "Megatron-Core param_and_grad_buffer",
                EXACT,
            )
        }
        "optimizer_bytes" => {
            for buffer in &buffers {
                let group = if buffer.expert { "expert elements / edp" } else { "dense elements / (dp cp)" };
                inputs.push(input(group, thousands(buffer.state_elements())));
            }
            inputs.push(input("training.optimizer.distributed", training.optimizer.distributed.to_string()));
            (
                "Optimizer state",
                class.optimizer_bytes,
                "local elements x (bytes of master weights and moments by their types), split over data parallelism and its instances when distributed, less what is on the host; fp32 and fp64 training keep no master copy; Muon keeps one moment for hidden matrices",
                "Megatron-Core distrib_optimizer",
                EXACT,
            )
        }
        "activations_bytes" => {
            let (live, chunks) = live_chunks(plan, class.stage);
            for part in class.parts.iter().filter(|part| part.category == "activations") {
                inputs.push(input(&part.name, bytes(part.bytes)));
            }
            inputs.push(input("live chunks", format!("{live} of 1/{chunks} stage")));
            inputs.push(input("training.seq_len", thousands(training.seq_len)));
            inputs.push(input("training.micro_batch_size", thousands(training.micro_batch_size)));
            (
                "Activations",
                class.activations_bytes,
                "bytes that all layers of the stage save for one micro batch x micro batches in flight",
                "tensors saved by Megatron-Core with TransformerEngine, layer by layer; in flight by its schedules",
                estimate_note(plan),
            )
        }
        "transient_bytes" => {
            for part in class.parts.iter().filter(|part| part.category == "transient") {
                inputs.push(input(&part.name, bytes(part.bytes)));
            }
            for phase in &class.phases {
                inputs.push(input(&format!("in {}", phase.name), bytes(phase.transient_bytes)));
            }
            (
                "Transient peak",
                class.transient_bytes,
                "what is held from step to step beside state (workspaces, gathered inputs, dummy weight gradients, copies of weights in low precision) + the largest temporary of the fullest phase",
                "Megatron-Core, TransformerEngine and PyTorch: cached dummy weight gradients, one gathered input, two cuBLAS workspaces, one of TransformerEngine and four of its grouped GEMM",
                estimate_note(plan),
            )
        }
        "outside_bytes" => (
            "Outside the allocator",
            class.outside_bytes,
            "CUDA context + one NCCL communicator for each kind of group with more than one rank",
            "NCCL issue 964 (544 MB for two ranks, 688 MB for more, A100); context recalled",
            "A first estimate",
        ),
        "peak_allocated_bytes" => (
            "Peak allocated",
            class.peak_allocated_bytes,
            "weights + gradients + optimizer + activations + transient",
            "sum of the categories",
            estimate_note(plan),
        ),
        "peak_reserved_bytes" => {
            inputs.push(input(
                "ratio",
                format!("{} / {}", RESERVED_OVER_ALLOCATED.0, RESERVED_OVER_ALLOCATED.1),
            ));
            (
                "Peak reserved",
                class.peak_reserved_bytes,
                "allocated x the median of reserved over allocated",
                "344 rank readings of SimuMax on B200: min 1.007, median 1.038, max 1.093",
                estimate_note(plan),
            )
        }
        _ => return None,
    };
    let (formula, source) = own(plan, name).unwrap_or((formula, source));
    inputs.insert(0, input("value", bytes(value)));
    Some(Why {
        title: title.to_owned(),
        formula: formula.to_owned(),
        inputs,
        source: source.to_owned(),
        note: note.to_owned(),
    })
}
