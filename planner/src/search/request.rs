//! What is searched: which axes are free within which bounds, what is best, how much is kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fewest::Fewest;
use super::room::Margin;
use super::sharding::Sharding;
use crate::fill;
use crate::finding::clip;
use crate::json::by_field::by_field;
use crate::model::Architecture;
use crate::runtime::Runtime;
use crate::settings::{Granularity, Precision, Schedule};
use crate::units::decimal;
use crate::wire::{Objective, PlanFile, RecomputeFile, VERSION};

/// A search request, version 1. Unknown fields are refused; what is absent is free or, where said, as in the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Format version: 1.
    #[serde(default = "version")]
    pub version: u32,
    /// Model, cluster, batch and every setting that is not an axis. Its own layout is not looked at.
    pub plan: PlanFile,
    /// What is best.
    #[serde(default)]
    pub objective: Objective,
    /// Days within which `training.train_tokens` must be done; for the objective `deadline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_days: Option<f64>,
    /// Axes that are fixed or bounded.
    #[serde(default)]
    pub axes: Axes,
    /// What must stay free beside a plan's peak for it to stand among those that fit. The upper end of its likely range must be
    /// within the GPU's memory in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<Margin>,
    /// Prices of a GPU for an hour by the GPU's id, where several are searched; else the plan's price.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prices: BTreeMap<String, f64>,
    /// How much is kept.
    #[serde(default)]
    pub limits: Limits,
    /// Whether only the first row is wanted, with what is looked at for it: then whatever can't be that row is dismissed as
    /// early as bounds allow. Counts and the front are of what was looked at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_first: bool,
    /// Whether what is too large says nothing: with `only_first`, whether anything fits is all that is asked.
    #[serde(skip)]
    pub only_fitting: bool,
    /// Whether nobody said the plan's global batch: then the one is meant that is assumed for the nodes, where steps on several
    /// numbers of nodes are not compared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub batch_is_assumed: bool,
    /// The least number of nodes on which a plan fits, once it was looked for.
    #[serde(skip)]
    pub fewest: Fewest,
}

const fn version() -> u32 {
    VERSION
}

impl Request {
    /// Everything free for a plan, the fastest wanted.
    pub fn new(plan: PlanFile) -> Request {
        Request {
            version: VERSION,
            plan,
            objective: Objective::default(),
            deadline_days: None,
            axes: Axes::default(),
            margin: None,
            prices: BTreeMap::new(),
            limits: Limits::default(),
            only_first: false,
            only_fitting: false,
            batch_is_assumed: false,
            fewest: Fewest::default(),
        }
    }

    /// The architecture of the model that the plan file names; none where it says it itself, or names none.
    pub fn architecture(&self) -> Option<Architecture> {
        fill::architecture(&self.plan)
    }

    /// The same request for a program without readers of models, with the architecture that another one has read. Programs that
    /// read models read it again.
    #[must_use]
    pub fn with_architecture(mut self, read: Option<Architecture>) -> Request {
        if let Some(read) = read
            && !cfg!(feature = "configs")
        {
            self.plan.model.architecture = Some(Box::new(read));
        }
        self
    }
}

/// Reads prices of a GPU for an hour by the GPU's id, such as `h100-sxm=2.5,b200=4`; none in an empty text.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_prices(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (gpu, price) = pair.split_once('=')?;
        Some((gpu.trim().to_owned(), decimal(price.trim())?))
    };
    let wrong = |pair| {
        format!("a price is a GPU's id and a number, such as h100-sxm=2.5, and this is `{}`", clip(pair))
    };
    let mut prices = BTreeMap::new();
    for pair in pairs {
        let (gpu, price) = read(pair).ok_or_else(|| wrong(pair))?;
        prices.insert(gpu, price);
    }
    Ok(prices)
}

/// Values that a number may take: one, some, or all within bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AxisValues {
    /// One value.
    Fixed(u64),
    /// Some values.
    Values(Vec<u64>),
    /// All that the rules allow within bounds, both included.
    Bounds(Bounds),
}

/// Bounds of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Least.
    #[serde(default)]
    pub min: u64,
    /// Most.
    #[serde(default = "no_bound")]
    pub max: u64,
}

const fn no_bound() -> u64 {
    u64::MAX
}

impl AxisValues {
    /// Those of `usual` within the bounds; named values as named, rising, each once.
    pub(super) fn values(of: Option<&AxisValues>, usual: Vec<u64>) -> Vec<u64> {
        let mut values = match of {
            None => usual,
            Some(AxisValues::Fixed(value)) => vec![*value],
            Some(AxisValues::Values(values)) => values.clone(),
            Some(AxisValues::Bounds(bounds)) => {
                usual.into_iter().filter(|value| (bounds.min..=bounds.max).contains(value)).collect()
            }
        };
        values.sort_unstable();
        values.dedup();
        values
    }
}

/// Axes of the space; none for free, or as in the plan where that is said.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Axes {
    /// Tensor parallel.
    pub tp: Option<AxisValues>,
    /// Context parallel.
    pub cp: Option<AxisValues>,
    /// Pipeline stages.
    pub pp: Option<AxisValues>,
    /// Model chunks of a stage.
    pub vpp: Option<AxisValues>,
    /// Expert parallel.
    pub ep: Option<AxisValues>,
    /// Expert tensor parallel.
    pub etp: Option<AxisValues>,
    /// Replicas of FSDP runtimes.
    pub dp_replicate: Option<AxisValues>,
    /// Sequences of a micro batch.
    pub micro_batch_size: Option<AxisValues>,
    /// Nodes; as in the plan when absent. Within bounds: both of them, every number up to 8, and four to each doubling above; where the
    /// fewest GPUs are wanted, the least number on which a plan fits, too, whichever that is.
    pub nodes: Option<AxisValues>,
    /// Pipeline schedules; those that the runtime has.
    pub schedule: Option<Vec<Schedule>>,
    /// What is recomputed; nothing, everything, each single module and what the plan says.
    pub recompute: Option<Vec<RecomputeWords>>,
    /// Sequence parallel; on where tp is above 1.
    pub sp: Option<Vec<bool>>,
    /// Whether the optimizer's state is split over data parallelism; as in the plan.
    pub distributed_optimizer: Option<Vec<bool>>,
    /// What FSDP runtimes split; as in the plan.
    pub fsdp_strategy: Option<Vec<Sharding>>,
    /// Precision; as in the plan.
    pub precision: Option<Vec<Precision>>,
    /// Runtime; as in the plan.
    pub runtime: Option<Vec<Runtime>>,
    /// GPUs by id; as in the plan.
    pub gpu: Option<Vec<String>>,
    /// Whether stages of unequal numbers of layers are made where layers don't divide; yes.
    pub uneven_stages: Option<bool>,
    /// Whether the plan's own split of layers over stages holds, where it says one; no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_stages: bool,
    /// Other settings by their path in the plan file, such as `training.moe.dispatcher`, each with the values to try; as in the
    /// plan.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Vec<Value>>,
}

by_field! { Axes {
    tp, cp, pp, vpp, ep, etp, dp_replicate, micro_batch_size, nodes, schedule, recompute, sp, distributed_optimizer,
    fsdp_strategy, precision, runtime, gpu, uneven_stages, own_stages, settings,
} }

/// What is recomputed: `none`, `full`, or modules joined by `+`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecomputeWords(pub String);

impl RecomputeWords {
    /// Nothing.
    pub fn none() -> RecomputeWords {
        RecomputeWords("none".to_owned())
    }

    /// ModelBound layers.
    pub fn full() -> RecomputeWords {
        RecomputeWords("full".to_owned())
    }

    /// What a plan file says.
    pub fn of(file: &RecomputeFile) -> RecomputeWords {
        match file.granularity {
            Some(Granularity::Full) => RecomputeWords::full(),
            Some(Granularity::Selective) => {
                RecomputeWords(file.modules.clone().unwrap_or_default().join("+"))
            }
            Some(Granularity::None) | None => RecomputeWords::none(),
        }
    }

    /// How much is recomputed.
    pub fn granularity(&self) -> Granularity {
        match self.0.as_str() {
            "none" => Granularity::None,
            "full" => Granularity::Full,
            _ => Granularity::Selective,
        }
    }

    /// The modules, where some are named.
    pub fn modules(&self) -> Vec<String> {
        match self.granularity() {
            Granularity::Selective => {
                self.0.split('+').filter(|name| !name.is_empty()).map(str::to_owned).collect()
            }
            Granularity::None | Granularity::Full => Vec::new(),
        }
    }

    /// The plan file's part. A plan that recomputes in full keeps its own method and number of layers.
    pub(super) fn apply(&self, file: &mut RecomputeFile) {
        let kept = std::mem::take(file);
        let granularity = self.granularity();
        *file = RecomputeFile { granularity: Some(granularity), ..RecomputeFile::default() };
        match granularity {
            Granularity::Full if kept.granularity == Some(Granularity::Full) => {
                (file.method, file.num_layers) = (kept.method, kept.num_layers);
                file.distribute_saved_activations = kept.distribute_saved_activations;
            }
            Granularity::Full => (file.method, file.num_layers) = (Some("uniform".to_owned()), Some(1)),
            Granularity::Selective => file.modules = Some(self.modules()),
            Granularity::None => {}
        }
    }
}

/// How much is kept and looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Rows of the answer that fit, and tight ones; 20 of each.
    pub rows: u64,
    /// Plans that are simulated, the best by the closed form; 200.
    pub simulated: u64,
    /// Candidates that are looked at, at most; 500 million. What is left out is named.
    pub candidates: u64,
}

/// Most rows, and most simulated plans, that a request may ask for.
pub(super) const MOST_KEPT: u64 = 10_000;

impl Default for Limits {
    fn default() -> Self {
        Limits { rows: 20, simulated: 200, candidates: 500_000_000 }
    }
}
