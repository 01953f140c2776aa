//! The table of settings: each field of a plan file that holds a value is declared with its row, by `plan_part!` (`plan_part.rs`).
//!
//! What a field takes, what it is called and where a form has it stand there once. Ranges and words that a plan is held to, the form of
//! the page, the axes that a search may choose, docs/settings.md and the JSON Schema of plan files all read it.

use super::part::Part;
use super::{
    CheckpointFile, ClusterFile, DocumentsFile, EvaluationFile, FsdpFile, LayoutFile, LossScaleFile,
    ModelFile, MoeFile, OffloadFile, OptimizerFile, OverlapFile, PlanFile, RecomputeFile, RunFile,
    SoftwareFile, TrainingFile,
};
use serde_json::Value;

use crate::runtime::{Counted, Facts, Readers};
use crate::settings::{ForRow, OfRow, Usual, words};
use crate::units::Dtype;

/// Most GPUs of a plan, and so of an axis.
pub const MAX_WORLD: u64 = 1 << 20;
/// Largest batch, sequence and step counts.
pub(crate) const MAX_COUNT: u64 = 1 << 32;
/// Most steps between two things that a run does, and most things that it keeps.
pub(super) const MOST: u64 = 1_000_000_000;
/// Most tokens of an expert over the mean; more than any model has experts.
pub(super) const MAX_RATIO: f64 = 1e6;
/// Most words of a list; more than there are to name.
pub(crate) const MOST_WORDS: usize = 64;
/// The smallest number that a loss can be multiplied by.
pub(super) const LEAST_SCALE: f64 = 1e-6;

/// Types of whole values: what a GEMM computes and gradients are summed in.
pub(super) const WHOLE: [&str; 4] =
    [Dtype::Bf16.name(), Dtype::Fp16.name(), Dtype::Fp32.name(), Dtype::Fp64.name()];
/// Types of master weights.
pub(super) const MASTERS: [&str; 4] =
    [Dtype::Fp32.name(), Dtype::Fp16.name(), Dtype::Fp64.name(), Dtype::Bf16.name()];
/// Types of moments.
pub(super) const MOMENTS: [&str; 5] =
    [Dtype::Fp32.name(), Dtype::Bf16.name(), Dtype::Fp16.name(), Dtype::Fp8.name(), Dtype::Fp64.name()];

/// A field of a plan file that holds a value, and what is true of it whatever the plan.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Where it stands, such as `layout.tp`.
    pub path: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// An end of its range that it does not take; none where it takes both.
    pub but: Option<f64>,
    /// Which of its values make sense in a plan.
    pub values: Values,
    /// What holds where nothing is said.
    pub usual: Usual,
    /// Which runtimes read it.
    pub readers: Readers,
    /// Which runtimes' answers compute with it.
    pub counted: Counted,
    /// Whether a switch that follows from the runtime is usually on under it; none where something else decides.
    pub usual_under: Option<fn(&Facts) -> bool>,
    /// What else a plan says, without which it changes nothing.
    pub given: Option<Given>,
    /// Which of its values the executor trains with, where it is one of `training`.
    pub trained: Trained,
    /// Unit of its numbers; empty for what is counted, and for what is no number.
    pub unit: &'static str,
    /// Its name in a form.
    pub label: &'static str,
    /// Where a form has it.
    pub part: Part,
    /// Whether a form has buttons that step through the values that are valid in the plan.
    pub stepped: bool,
    /// Its axis, where a search may choose it.
    pub axis: Option<SearchAxis>,
    about: &'static str,
}

/// What values a setting takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A whole number between two, both included.
    Whole {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A number between two, both included.
    Real {
        /// The least.
        least: f64,
        /// The most; infinity for none.
        most: f64,
    },
    /// True or false.
    Switch,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of these words.
    Words(&'static [&'static str]),
    /// A text.
    Text,
    /// One of these words, or JSON of a form that is said in the second.
    Json(&'static [&'static str], &'static str),
}

/// Which values of a setting the executor trains with. What a row says nothing of is not known to be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trained {
    /// All. Kernels, overlap, graphs, buffers and types of state that it keeps wider are of bytes and of time alone.
    All,
    /// These words, and what is said of others.
    Words(&'static [&'static str], &'static str),
    /// The usual one, and what is said of others.
    Usual(&'static str),
}

/// Which values of a setting make sense in a plan, by its sizes: what the buttons of a form step through, a search chooses from, and
/// is tried in place of a value that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Any that its kind allows.
    Any,
    /// Numbers that divide an amount.
    Divisors(Amount),
    /// Multiples of the first amount, up to about the second.
    Multiples(Amount, Option<Amount>),
    /// From the first amount to the second.
    Between(Amount, Amount),
    /// An amount, or 0.
    NoneOr(Amount),
    /// The next ones, and those that are powers of two away.
    Near,
    /// Chunks that the layers of a stage can be cut into.
    Chunks,
    /// Words, of which each is more than the one before.
    Scale,
}

/// A number that follows from the rest of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// GPUs in all.
    World,
    /// Replicas (data parallel).
    Replicas,
    /// Ranks with other tokens of a batch: replicas, and the ranks that share a sequence.
    DataRanks,
    /// Ranks that parameters are sharded over.
    ShardingRanks,
    /// Stages of the pipeline.
    Stages,
    /// Layers of a stage.
    LayersOfStage,
    /// Layers of the model but one.
    LayersButOne,
    /// Experts of a layer.
    Experts,
    /// Parts of an expert's width that GPUs can hold.
    PartsOfExpert,
    /// Positions that the model has learned.
    Positions,
    /// Parts that a sequence is cut into.
    PartsOfSequence,
    /// Sequences of a step.
    GlobalBatch,
    /// Sequences of a micro batch of all replicas.
    SequencesAtOnce,
    /// Micro batches of a step.
    MicroBatches,
}

/// An axis that a search may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchAxis {
    /// Its name in `choose`.
    pub name: &'static str,
    /// Whether `all` opens it, too.
    pub in_all: bool,
}

words! {
    /// What else a plan says, without which a setting changes nothing.
    pub enum Given {
        Experts = "experts in the model",
        Flex = "dispatcher flex",
        Capacity = "training.moe.capacity_factor",
        LowPrecision = "a recipe of 8 or 4 bits in training.dtype",
        Graphs = "training.cuda_graphs",
        Selective = "granularity selective",
        Full = "granularity full",
        Moments = "optimizer adam or muon",
        Momentum = "optimizer sgd or muon",
        Scaled = "dtype fp16",
        ScaledAnew = "dtype fp16 and a loss scale that is not fixed",
        Chunks = "layout.vpp above 1",
        Evaluation = "run.evaluation.data",
        Documents = "documents in run.data",
    }
}

/// A row of a whole number between two, both included.
pub(super) const fn whole(least: u64, most: u64) -> Setting {
    of(Kind::Whole { least, most })
}

/// A row of a number that is at least so much.
pub(super) const fn real(least: f64) -> Setting {
    of(Kind::Real { least, most: f64::INFINITY })
}

/// A row of a number between two, both included.
pub(super) const fn between(least: f64, most: f64) -> Setting {
    of(Kind::Real { least, most })
}

/// A row of a switch.
pub(super) const fn switch() -> Setting {
    of(Kind::Switch)
}

/// A row of a switch that is usually off.
pub(super) const fn off() -> Setting {
    switch().usual(Usual::Switch(false))
}

/// A row of a switch that is usually on.
pub(super) const fn on() -> Setting {
    switch().usual(Usual::Switch(true))
}

/// A row of one of some words.
pub(super) const fn word(words: &'static [&'static str]) -> Setting {
    of(Kind::Word(words))
}

/// A row of a list of words.
pub(super) const fn words(words: &'static [&'static str]) -> Setting {
    of(Kind::Words(words)).usual(Usual::NoWords)
}

/// A row of a text.
pub(super) const fn text() -> Setting {
    of(Kind::Text)
}

/// A row of JSON of its own form, which is said, or one of some words.
pub(super) const fn json(words: &'static [&'static str], form: &'static str) -> Setting {
    of(Kind::Json(words, form))
}

/// What is told to people: a searcher, which tells them nothing, has no texts.
const fn told(text: &'static str) -> &'static str {
    if cfg!(feature = "data") { text } else { "" }
}

const fn of(kind: Kind) -> Setting {
    Setting {
        path: "",
        kind,
        but: None,
        values: Values::Any,
        usual: Usual::Nothing,
        usual_under: None,
        readers: Readers::All,
        counted: Counted::Everywhere,
        given: None,
        trained: Trained::Usual(told("the executor does not know this setting yet; leave it out")),
        unit: "",
        label: "",
        part: Part::Apart,
        stepped: false,
        axis: None,
        about: "",
    }
}

impl Setting {
    /// The same in a form.
    pub(super) const fn at(self, part: Part, label: &'static str) -> Setting {
        Setting { part, label: told(label), ..self }
    }

    /// The same that has this value where nothing is said.
    pub(super) const fn usual(self, usual: Usual) -> Setting {
        Setting { usual, ..self }
    }

    /// The same whose value follows from the rest of a plan where nothing is said.
    pub(super) const fn by_rule(self) -> Setting {
        self.usual(Usual::Rule)
    }

    /// The same switch, usually on where this is true of the runtime.
    pub(super) const fn usual_under(self, is_on: fn(&Facts) -> bool) -> Setting {
        Setting { usual: Usual::Rule, usual_under: Some(is_on), ..self }
    }

    /// The same that some runtimes alone read.
    pub(super) const fn read_by(self, readers: Readers) -> Setting {
        Setting { readers, ..self }
    }

    /// The same that some runtimes' answers alone compute with.
    pub(super) const fn counted_by(self, counted: Counted) -> Setting {
        Setting { counted, ..self }
    }

    /// The same that needs something else.
    pub(super) const fn given(self, given: Given) -> Setting {
        Setting { given: Some(given), ..self }
    }

    /// The same that the executor trains with, whatever its value.
    pub(super) const fn trained(self) -> Setting {
        Setting { trained: Trained::All, ..self }
    }

    /// The same of which the executor trains with these words; of others this is said.
    pub(super) const fn trained_as(self, words: &'static [&'static str], why: &'static str) -> Setting {
        Setting { trained: Trained::Words(words, told(why)), ..self }
    }

    /// The same of which the executor trains with the usual value; of others this is said.
    pub(super) const fn trained_if_usual(self, why: &'static str) -> Setting {
        Setting { trained: Trained::Usual(told(why)), ..self }
    }

    /// The same in a unit.
    pub(super) const fn in_unit(self, unit: &'static str) -> Setting {
        Setting { unit, ..self }
    }

    /// The same without an end of its range.
    pub(super) const fn but(self, end: f64) -> Setting {
        Setting { but: Some(end), ..self }
    }

    /// The same where the numbers that divide an amount alone make sense.
    pub(super) const fn divides(self, amount: Amount) -> Setting {
        self.among(Values::Divisors(amount))
    }

    /// The same where some values alone make sense.
    pub(super) const fn among(self, values: Values) -> Setting {
        Setting { values, ..self }
    }

    /// The same with buttons that step through valid values.
    pub(super) const fn stepped(self) -> Setting {
        Setting { stepped: true, ..self }
    }

    /// The same that a search may choose whenever anything is left open.
    pub(super) const fn open(self, name: &'static str) -> Setting {
        Setting { axis: Some(SearchAxis { name, in_all: true }), ..self }
    }

    /// The same that a search may choose where it is named.
    pub(super) const fn open_if_named(self, name: &'static str) -> Setting {
        Setting { axis: Some(SearchAxis { name, in_all: false }), ..self }
    }

    /// The same at its place in a plan file.
    pub(super) const fn placed(self, path: &'static str, about: &'static str) -> Setting {
        Setting { path, about: told(about), ..self }
    }

    /// The setting at a path of a plan file.
    pub fn at_path(path: &str) -> Option<&'static Setting> {
        let name = path.rfind('.').map_or(0, |dot| dot + 1);
        let (section, _) = path.split_at(name);
        let part = PARTS.iter().find(|(known, _)| *known == section)?.1;
        part.iter().copied().flatten().find(|setting| setting.path == path)
    }

    /// What the row of the setting at a path says is usual.
    pub fn usual_of<T: OfRow>(path: &str) -> T {
        let setting = Setting::at_path(path);
        debug_assert!(
            setting.is_some_and(|setting| !matches!(setting.usual, Usual::Nothing | Usual::Rule)),
            "{path} has no usual value"
        );
        T::of(setting.map_or(Usual::Nothing, |setting| setting.usual))
    }

    /// Whether a runtime reads the setting at a path.
    pub fn is_read(path: &str, by: &Facts) -> bool {
        Setting::at_path(path).is_none_or(|setting| by.reads(setting.readers))
    }

    /// Whether a runtime's answers compute with the setting at a path.
    pub fn is_counted(path: &str, by: &Facts) -> bool {
        Setting::at_path(path).is_none_or(|setting| by.counts(setting.counted))
    }

    /// All settings, in the order of a plan file.
    pub fn all() -> impl Iterator<Item = &'static Setting> {
        PARTS.iter().flat_map(|(_, part)| part.iter().copied().flatten())
    }

    /// Paths of the objects of a plan file, outer ones first; the first is empty, for the whole.
    pub fn objects() -> impl Iterator<Item = &'static str> {
        PARTS.iter().map(|(path, _)| path.trim_end_matches('.'))
    }

    /// Names of the fields of an object of a plan file: its settings, then the objects in it.
    pub(crate) fn fields_of(object: &str) -> impl Iterator<Item = &'static str> {
        let begins = if object.is_empty() { String::new() } else { format!("{object}.") };
        let rows = PARTS
            .iter()
            .filter(move |(path, _)| *path == begins)
            .flat_map(|(_, rows)| rows.iter().copied().flatten());
        let names = rows.filter_map(|setting| setting.path.rsplit('.').next());
        let parent = object.to_owned();
        let objects = Setting::objects().filter(|path| !path.is_empty()).filter_map(move |path| {
            let (above, name) = path.rsplit_once('.').unwrap_or(("", path));
            (above == parent).then_some(name)
        });
        names.chain(objects)
    }

    /// Those of a part of a form, in the order of a plan file.
    pub fn of_part(part: Part) -> impl Iterator<Item = &'static Setting> {
        Setting::all().filter(move |setting| setting.part == part)
    }

    /// What it is, and what holds where nothing is said, at the end of its first sentence.
    pub fn about(&self) -> String {
        let text = self.about.trim_start();
        let usual = match Value::of(self.usual) {
            Value::Null => return text.to_owned(),
            Value::Array(_) => "none".to_owned(),
            Value::String(word) => word,
            other => other.to_string(),
        };
        let end = text.find(". ").or_else(|| text.rfind('.')).unwrap_or(text.len());
        let (first, rest) = text.split_at(end);
        format!("{first}; {}{rest}", usual.trim_end_matches(".0"))
    }

    /// Whether a whole number is in its range.
    pub fn has(&self, value: u64) -> bool {
        matches!(self.kind, Kind::Whole { least, most } if (least..=most).contains(&value))
    }

    /// The number nearest to one that it does not take; none for what it takes, and for what is no number.
    pub(crate) fn nearest(&self, said: ForRow<'_>) -> Option<Usual> {
        match (self.kind, said) {
            (Kind::Whole { least, most }, ForRow::Whole(value)) => {
                let nearest = value.clamp(least, most);
                (nearest != value).then_some(Usual::Whole(nearest))
            }
            (Kind::Real { least, most }, ForRow::Real(value)) => {
                // Not a number is nothing.
                let nearest = if value.is_nan() { least } else { value.clamp(least, most.min(f64::MAX)) };
                (nearest != value).then_some(Usual::Real(nearest))
            }
            _ => None,
        }
    }

    /// The words that it takes; none where it takes no words.
    pub const fn words(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Word(words) | Kind::Words(words) | Kind::Json(words, _) => words,
            _ => &[],
        }
    }
}

/// Rows of the fields of a part of a plan file; a field that is a part itself has none.
pub(super) type Rows = &'static [&'static [Setting]];

/// Parts of a plan file with the beginning of their paths, in the order in which they stand there.
static PARTS: [(&str, Rows); 17] = [
    ("", PlanFile::ROWS),
    ("model.", ModelFile::ROWS),
    ("cluster.", ClusterFile::ROWS),
    ("layout.", LayoutFile::ROWS),
    ("layout.fsdp.", FsdpFile::ROWS),
    ("software.", SoftwareFile::ROWS),
    ("training.", TrainingFile::ROWS),
    ("training.recompute.", RecomputeFile::ROWS),
    ("training.optimizer.", OptimizerFile::ROWS),
    ("training.offload.", OffloadFile::ROWS),
    ("training.overlap.", OverlapFile::ROWS),
    ("training.moe.", MoeFile::ROWS),
    ("training.loss_scale.", LossScaleFile::ROWS),
    ("run.", RunFile::ROWS),
    ("run.evaluation.", EvaluationFile::ROWS),
    ("run.documents.", DocumentsFile::ROWS),
    ("run.checkpoint.", CheckpointFile::ROWS),
];

/// Paths of what torch's `fully_shard` and its trainers alone are told.
pub const OF_FULLY_SHARD: [&str; 12] = {
    let (mut paths, mut count, mut next) = ([""; 12], 0, 0);
    while next < FsdpFile::ROWS.len() {
        if let [Setting { path, readers: Readers::FullyShard, .. }] = FsdpFile::ROWS[next] {
            paths[count] = path;
            count += 1;
        }
        next += 1;
    }
    assert!(count == paths.len());
    paths
};
