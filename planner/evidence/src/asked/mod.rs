//! Published steps as plan files: what somebody who trained so could have asked, told in several ways.
//!
//! A reader of a source makes one plan file of a row, with all that the row says and a plan can. What a user types is a part of it, taken
//! in the same way of every source.

mod bridge;
mod megatron;
pub(super) mod nanotron;
pub(super) mod row;

use serde_json::{Map, Value, json};

use super::plan_of;
use super::{kempnerforge, llm_foundry, readme, scaling, tables, torchtitan};
use planner::recipes::Among;
use row::{Row, rows};

/// How much of a row a plan file gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Detail {
    /// What a user types: model, GPU, nodes, layout, precision, batch, sequence, software.
    Typed,
    /// The same, and the software's recipe for that model and GPU is not known.
    OthersRecipe,
    /// The same without the software.
    Unnamed,
    /// All that the row says and a plan can.
    Run,
}

impl Detail {
    /// Its name among splits.
    pub(super) const fn split(self) -> &'static str {
        match self {
            Detail::Typed => "as typed",
            Detail::OthersRecipe => "as typed, own recipe out",
            Detail::Unnamed => "as typed, unnamed",
            Detail::Run => "as run",
        }
    }

    /// Which recipes its plan is resolved among.
    pub(super) const fn among(self) -> Among {
        match self {
            Detail::OthersRecipe => Among::Others,
            _ => Among::All,
        }
    }

    /// The plan file that is told so of a row's whole one.
    fn of(self, run: &Value) -> Value {
        match self {
            Detail::Run => run.clone(),
            Detail::Typed | Detail::OthersRecipe => typed(run),
            Detail::Unnamed => {
                let mut file = typed(run);
                file["software"] = json!({});
                file
            }
        }
    }
}

/// A source of published steps.
pub(super) struct Source {
    /// Stem of its evidence file.
    pub(super) name: &'static str,
    /// What its rows can be told as.
    pub(super) details: &'static [Detail],
    /// Whether constants are fitted to its rows.
    pub(super) fitted: bool,
    /// Whether likely ranges stand on its rows, and they count among the runs of the software that they are told as.
    pub(super) stands: bool,
    read: fn(&Row, &Value) -> Option<Asked>,
}

const EVERY: &[Detail] = &[Detail::Typed, Detail::OthersRecipe, Detail::Unnamed, Detail::Run];
const NAMED: &[Detail] = &[Detail::Typed, Detail::Unnamed, Detail::Run];
/// Of programs that no framework stands for: without their profile nobody would ask for them.
const PROFILED: &[Detail] = &[Detail::Typed, Detail::Run];

/// The sources, by name.
pub(super) const SOURCES: [Source; 33] = [
    // Too few of each kind of model to say how far off others are, on kernels of which no other row says anything.
    Source {
        name: "automodel_h100",
        details: &[Detail::Typed, Detail::OthersRecipe, Detail::Run],
        fitted: false,
        stands: false,
        read: tables::asked,
    },
    // What is recomputed and how state is split is in its text for all rows.
    Source {
        name: "bigscience_a100",
        details: &[Detail::Run],
        fitted: false,
        stands: true,
        read: tables::asked,
    },
    // Megatron-LM has no recipes: with its name and without it a plan is the same. So of the sources below that name it.
    Source { name: "flagperf_megatron", details: PROFILED, fitted: false, stands: true, read: tables::asked },
    // Its framework is none of those that plans name, and what is recomputed is a column of its table.
    Source { name: "fms_fsdp", details: &[Detail::Run], fitted: false, stands: true, read: tables::asked },
    Source { name: "gpu_recipes_2024", details: NAMED, fitted: false, stands: true, read: tables::asked },
    // A program that no profile stands for: told as Megatron-Core, whose runs its rows are not.
    Source {
        name: "internevo_7b",
        details: &[Detail::Run],
        fitted: false,
        stands: false,
        read: tables::asked,
    },
    // Its framework is none of those that plans name.
    Source {
        name: "kempnerforge_h200",
        details: PROFILED,
        fitted: true,
        stands: true,
        read: kempnerforge::asked,
    },
    Source {
        name: "korthikanti_2022",
        details: PROFILED,
        fitted: true,
        stands: true,
        read: megatron::korthikanti,
    },
    // What is recomputed is a column of its table: who types a row without it asks for another run.
    Source {
        name: "llm_foundry_fsdp",
        details: &[Detail::Run],
        fitted: false,
        stands: true,
        read: llm_foundry::asked,
    },
    // Which release they had is not said.
    Source {
        name: "megatron_bridge_memory_studies",
        details: EVERY,
        fitted: false,
        stands: true,
        read: bridge::study,
    },
    Source {
        name: "megatron_bridge_model_cards",
        details: EVERY,
        fitted: true,
        stands: true,
        read: bridge::card,
    },
    Source {
        name: "megatron_bridge_perf",
        details: EVERY,
        fitted: true,
        stands: true,
        read: bridge::performance,
    },
    Source {
        name: "megatron_bridge_qwen3_235b",
        details: EVERY,
        fitted: false,
        stands: true,
        read: bridge::performance,
    },
    // Megatron-LM has no recipes: with its name and without it a plan is the same.
    Source {
        name: "megatron_lm_readme",
        details: &[Detail::Typed],
        fitted: false,
        stands: true,
        read: readme::asked,
    },
    // Micro batch, recomputation and network are assumed: its rows are an outside check.
    Source { name: "megascale_2024", details: PROFILED, fitted: false, stands: false, read: tables::asked },
    Source { name: "mlperf_training", details: NAMED, fitted: false, stands: true, read: tables::asked },
    Source { name: "moe_model_zoo", details: PROFILED, fitted: false, stands: true, read: tables::asked },
    Source {
        name: "moe_parallel_folding",
        details: PROFILED,
        fitted: false,
        stands: true,
        read: tables::asked,
    },
    Source {
        name: "nanotron_ultrascale_bench",
        details: PROFILED,
        fitted: true,
        stands: true,
        read: nanotron::asked,
    },
    // What was recomputed is in its formula for all rows.
    Source {
        name: "narayanan_2021",
        details: &[Detail::Run],
        fitted: false,
        stands: true,
        read: tables::asked,
    },
    Source { name: "nemo_2024", details: NAMED, fitted: false, stands: true, read: tables::asked },
    // A row prints no more than what is typed.
    Source {
        name: "nemo_2025",
        details: &[Detail::Typed, Detail::OthersRecipe, Detail::Unnamed],
        fitted: false,
        stands: true,
        read: tables::asked,
    },
    // Of what its script sets beside nothing is printed.
    Source {
        name: "nemo_dgxc_2024",
        details: &[Detail::Typed, Detail::Unnamed],
        fitted: false,
        stands: true,
        read: tables::asked,
    },
    Source { name: "nemo_dgxc_2025", details: NAMED, fitted: false, stands: true, read: tables::asked },
    // A row prints no more than what is typed.
    Source {
        name: "nemo_h100_scaling",
        details: &[Detail::Typed, Detail::Unnamed],
        fitted: false,
        stands: true,
        read: scaling::asked,
    },
    // How many GPUs a row had is read out of two columns that contradict each other.
    Source {
        name: "nemo_long_b200",
        details: &[Detail::Typed, Detail::Unnamed],
        fitted: false,
        stands: false,
        read: tables::asked,
    },
    // Programs that no profile stands for, and that recompute what nobody types.
    Source {
        name: "other_programs",
        details: &[Detail::Run],
        fitted: false,
        stands: false,
        read: tables::asked,
    },
    // A GPU of which no constant was ever measured, and batches that are assumed.
    Source {
        name: "primus_2026",
        details: &[Detail::Typed],
        fitted: false,
        stands: false,
        read: tables::asked,
    },
    Source { name: "simumax_results", details: NAMED, fitted: true, stands: true, read: megatron::simumax },
    // What is recomputed is a column of its tables.
    Source {
        name: "torchtitan_2024",
        details: &[Detail::Run],
        fitted: false,
        stands: true,
        read: tables::asked,
    },
    Source {
        name: "torchtitan_benchmarks",
        details: EVERY,
        fitted: true,
        stands: true,
        read: torchtitan::asked,
    },
    Source {
        name: "vtrain_ground_truth",
        details: PROFILED,
        fitted: true,
        stands: true,
        read: megatron::vtrain,
    },
    // Network and release are not said.
    Source { name: "xtuner_moe", details: PROFILED, fitted: false, stands: true, read: tables::asked },
];

/// The source of a name.
pub(super) fn source(name: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|source| source.name == name)
}

/// A row that becomes a plan file.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// The row's id.
    pub(super) id: String,
    /// Its name in reports.
    pub(super) label: String,
    /// Family of the model, for scores of families that a fit has not seen.
    pub(super) family: String,
    /// Everything that a split must not tear apart.
    pub(super) key: String,
    /// The plan file, or what no plan can say.
    pub(super) file: Result<Value, String>,
    /// Seconds of a step as published.
    pub(super) measured: f64,
    /// Whether the source prints tokens/s rather than seconds.
    pub(super) printed_tokens: bool,
    /// Why it is scored apart, if it is.
    pub(super) excluded: Option<&'static str>,
}

impl Asked {
    /// A row whose seconds are printed.
    pub(super) fn new(row: &Row, family: String, file: Result<Value, String>, measured: f64) -> Asked {
        Asked {
            id: row.id(),
            label: row.id(),
            family,
            key: row.key(),
            file,
            measured,
            printed_tokens: false,
            excluded: None,
        }
    }

    /// A row of which so many tokens a second are published, of all GPUs together; none where its file says no batch.
    pub(super) fn by_rate(
        row: &Row,
        family: String,
        file: Result<Value, String>,
        tokens_per_second: f64,
    ) -> Option<Asked> {
        let tokens = match &file {
            Ok(file) => {
                let training = &file["training"];
                training["global_batch_size"].as_f64()? * training["seq_len"].as_f64()?
            }
            Err(_) => 0.0,
        };
        let asked = Asked::new(row, family, file, tokens / tokens_per_second);
        Some(Asked { printed_tokens: true, ..asked })
    }

    /// Named so in reports.
    pub(super) fn labelled(self, label: String) -> Asked {
        Asked { label, ..self }
    }

    /// The plan file as it is told.
    pub(super) fn file_with(&self, detail: Detail) -> Result<Value, String> {
        self.file.as_ref().map(|run| detail.of(run)).map_err(String::clone)
    }
}

/// A list of rows, and how many rows beside them hold no time.
pub(super) struct List {
    /// Rows with a time. A reading that is printed again, to the digit, for the same plan, stands once.
    pub(super) rows: Vec<Asked>,
    /// Rows without one.
    pub(super) without: u64,
    /// Labels of rows that repeat a reading.
    pub(super) repeated: Vec<String>,
}

/// The rows of an evidence file.
///
/// # Errors
/// A sentence, when the text is not in its source's format.
pub(super) fn list(source: &Source, text: &str) -> Result<List, String> {
    let file: Value = serde_json::from_str(text)
        .map_err(|error| format!("{0}.json is not a file of rows: {error}", source.name))?;
    let mut list = List { rows: Vec::new(), without: 0, repeated: Vec::new() };
    for row in rows(source.name, text)? {
        let Some(asked) = (source.read)(&row, &file) else {
            list.without += 1;
            continue;
        };
        let same = |known: &Asked| known.file == asked.file && known.measured == asked.measured;
        if asked.file.is_ok() && list.rows.iter().any(same) {
            list.repeated.push(asked.label);
            continue;
        }
        list.rows.push(asked);
    }
    Ok(list)
}

/// What a user types of a plan file: model, cluster, runtime, layout by its axes, precision, batch, sequence, software by its name.
fn typed(run: &Value) -> Value {
    let part = |name: &str, fields: &[&str]| {
        let of = run.get(name).and_then(Value::as_object);
        let said = fields.iter().filter_map(|&field| Some((field.to_owned(), of?.get(field)?.clone())));
        said.filter(|(_, value)| !value.is_null()).collect::<Map<String, Value>>()
    };
    let mut file = json!({
        "version": 1, "model": run["model"], "cluster": run["cluster"],
        "layout": part("layout", &["tp", "cp", "pp", "vpp", "ep", "etp"]),
        "training": part("training", &["seq_len", "micro_batch_size", "global_batch_size", "dtype"]),
        "software": part("software", &["framework", "profile"])
    });
    for name in ["runtime", "choose"] {
        if let Some(value) = run.get(name) {
            file[name] = value.clone();
        }
    }
    file
}

/// Rows whose printed layout can't be what ran: a dense model whose parameters and gradients alone are more than the GPU has.
fn is_too_large(file: &Result<Value, String>) -> bool {
    let Some(plan) = file.as_ref().ok().and_then(|file| plan_of(file).ok()) else { return false };
    let (total, _) = planner::model::count(&plan.model);
    let held = 4.0 * total as f64 / (plan.layout.tp * plan.layout.pp) as f64;
    let room = plan.cluster.gpu.capacity_bytes.unwrap_or(u64::MAX) as f64;
    plan.model.moe.is_none() && !plan.runtime.facts().shards_parameters && held > 0.95 * room
}
