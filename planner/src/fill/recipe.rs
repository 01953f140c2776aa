//! What the framework that a plan names sets where the plan says nothing: its recipe's facts, written into the plan's file.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cluster::{Cluster, Generation};
use crate::model::Architecture;
use crate::plan::WherePossible;
use crate::recipes::{self, Among, Recipe, Recomputed, Wanted, bridge};
use crate::runtime::Runtime;
use crate::settings::{Dispatcher, Granularity, Precision};
use crate::software::{Named, Product};
use crate::units::Dtype;
use crate::wire::{FrameworkAnswer, FsdpFile, PlanFile, TrainingFile};

/// The recipe of a plan, and what of it the plan takes.
pub(super) struct Taken {
    named: Named,
    recipe: Recipe,
    /// Paths that were left out since the rest of the plan excludes them.
    left_out: Vec<&'static str>,
}

/// A fact: path, value, and how it is put into a file that says nothing there.
type Fact = (&'static str, Value, fn(&mut TrainingFile, &Recipe) -> bool);

impl Taken {
    /// The recipe of the framework that a plan names; none where the framework has none.
    pub(super) fn of(
        named: Named,
        file: &PlanFile,
        model: &Architecture,
        cluster: &Cluster,
        (runtime, among): (Runtime, Among),
    ) -> Option<Taken> {
        if !named.product.runtimes().contains(&runtime) {
            return None;
        }
        let precision = match file.training.dtype.unwrap_or(Precision::Bf16) {
            Precision::Fp8Delayed | Precision::Fp8Current => "cs",
            Precision::Fp8Blockwise => "sc",
            Precision::Mxfp8 => "mx",
            Precision::Nvfp4 => "nv",
            // What is computed exactly is nobody's recipe.
            Precision::Fp32 | Precision::Fp64 => return None,
            Precision::Bf16 | Precision::Fp16 => "bf16",
        };
        let wanted = Wanted {
            preset: file.model.preset.as_deref(),
            sizes: [model.num_layers, model.hidden_size, model.moe.as_ref().map_or(0, |moe| moe.experts)],
            gpu: cluster.gpu.id.split('-').next().unwrap_or_default(),
            blackwell: cluster.gpu.generation == Generation::Blackwell,
            superchip: cluster.gpu.host_link.is_some(),
            world: cluster.world_size(),
            precision,
            release: named.release(),
            among,
        };
        let recipe = match named.product {
            Product::Bridge => bridge::recipe(&wanted)?,
            Product::Nemo => recipes::nemo(model, &wanted, runtime.facts().flat_units),
            Product::Torchtitan => recipes::torchtitan(model, precision, among),
            Product::Automodel if !runtime.facts().flat_units => recipes::automodel(&wanted),
            Product::MegatronLm | Product::Automodel | Product::Worker => return None,
        };
        // Recipes say whether gradients are summed in fp32 or in the type of computing, and are bf16's.
        let computed = |gradients| match file.training.dtype {
            Some(Precision::Fp16) if gradients == Dtype::Bf16 => Dtype::Fp16,
            _ => gradients,
        };
        let recipe = Recipe { gradients: recipe.gradients.map(computed), ..recipe };
        Some(Taken { named, recipe, left_out: Vec::new() })
    }

    /// Modules that predict tokens ahead, where the recipe sets them.
    pub(super) fn mtp_layers(&self) -> Option<u64> {
        self.recipe.mtp_layers
    }

    /// Puts the recipe's facts on FSDP2 into a layout that says nothing there; the paths that were set. They go with any
    /// layout and any recomputation.
    pub(super) fn apply_fsdp(&self, fsdp: &mut FsdpFile) -> Vec<(&'static str, Value)> {
        let mut set = Vec::new();
        let selects = self.recipe.every_second.then(|| "matmuls".to_owned());
        if put(&mut fsdp.checkpoint_selects, selects) {
            set.push(("layout.fsdp.checkpoint_selects", "matmuls".into()));
        }
        if put(&mut fsdp.compile, self.recipe.compile) {
            set.push(("layout.fsdp.compile", self.recipe.compile.into()));
        }
        if put(&mut fsdp.sharded_dtype, self.recipe.sharded) {
            set.push(("layout.fsdp.sharded_dtype", self.recipe.sharded.map(Dtype::name).into()));
        }
        if put(&mut fsdp.gradient_sync, self.recipe.gradient_sync.map(str::to_owned)) {
            set.push(("layout.fsdp.gradient_sync", self.recipe.gradient_sync.into()));
        }
        if put(&mut fsdp.reshard_after_forward, self.recipe.reshard.map(Into::into)) {
            set.push(("layout.fsdp.reshard_after_forward", self.recipe.reshard.into()));
        }
        if put(&mut fsdp.loss_dtype, self.recipe.loss_dtype) {
            set.push(("layout.fsdp.loss_dtype", self.recipe.loss_dtype.map(Dtype::name).into()));
        }
        set
    }

    /// Puts the recipe's facts into a file where it says nothing; the paths that were set.
    pub(super) fn apply(&self, training: &mut TrainingFile, moe: bool) -> BTreeMap<&'static str, Value> {
        let mut set = BTreeMap::new();
        for (path, value, put) in facts(&self.recipe, moe) {
            if !self.left_out.contains(&path) && put(training, &self.recipe) {
                set.insert(path, value);
            }
        }
        set
    }

    /// Leaves out what is set at a path from now on; false where the recipe sets nothing there, or it was left out.
    pub(super) fn leave_out(&mut self, path: &'static str, set: &BTreeMap<&'static str, Value>) -> bool {
        // Modules go with the granularity that names them.
        let path =
            if path.starts_with("training.recompute.") { "training.recompute.granularity" } else { path };
        let new = set.contains_key(path) && !self.left_out.contains(&path);
        if new {
            self.left_out.push(path);
        }
        new
    }

    /// What holds where the layout leaves room for it. `pinned` is what the plan says itself.
    pub(super) fn where_possible(&self, pinned: &TrainingFile, moe: bool, ep: u64) -> WherePossible {
        let left_out = |path: &str| self.left_out.contains(&path);
        WherePossible {
            tp: self.recipe.overlap_tp && pinned.overlap.tp.is_none() && !same_bits(pinned),
            // Without experts on other ranks there is nothing to hide; what else excludes it holds for this plan.
            ep: self.recipe.overlap_ep
                && moe
                && pinned.overlap.ep.is_none()
                && !(ep > 1 && left_out("training.overlap.ep")),
            flex: moe && self.recipe.dispatcher == Some(Dispatcher::Flex) && pinned.moe.dispatcher.is_none(),
        }
    }

    /// Whether it was made for another model or GPU.
    pub(super) fn is_others(&self) -> bool {
        self.recipe.others
    }

    /// What an answer says of it.
    pub(super) fn answer(&self, set: BTreeMap<&'static str, Value>) -> FrameworkAnswer {
        FrameworkAnswer {
            name: self.named.text(),
            recipe: self.recipe.name.clone(),
            nearest: self.recipe.nearest,
            source: self.recipe.source.to_owned(),
            sets: crate::order::map(set.into_iter().map(|(path, value)| (path.to_owned(), value))),
        }
    }
}

/// Whether a plan asks for the same bits every time, which fused losses and hidden tensor-parallel communication do not give
/// (`rules/training/kernels.rs`).
fn same_bits(file: &TrainingFile) -> bool {
    file.deterministic == Some(true)
}

/// Puts a value where there is none; true where it was put.
fn put<T>(slot: &mut Option<T>, value: Option<T>) -> bool {
    let new = slot.is_none() && value.is_some();
    if new {
        *slot = value;
    }
    new
}

/// The facts of a recipe, each with its path.
fn facts(recipe: &Recipe, moe: bool) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    if let Some(graphs) = recipe.graphs {
        facts.push(("training.cuda_graphs", graphs.name().into(), |file, recipe| {
            put(&mut file.cuda_graphs, recipe.graphs)
        }));
    }
    if recipe.overlap_tp {
        facts.push(("training.overlap.tp", true.into(), |file, _| {
            !same_bits(file) && put(&mut file.overlap.tp, Some(true))
        }));
    }
    if moe && recipe.overlap_ep {
        facts.push(("training.overlap.ep", true.into(), |file, _| put(&mut file.overlap.ep, Some(true))));
    }
    if let (true, Some(dispatcher)) = (moe, recipe.dispatcher) {
        facts.push(("training.moe.dispatcher", dispatcher.name().into(), |file, recipe| {
            put(&mut file.moe.dispatcher, recipe.dispatcher)
        }));
    }
    if let (true, Some(backend)) = (moe, recipe.backend) {
        facts.push(("training.moe.backend", backend.name().into(), |file, recipe| {
            file.moe.dispatcher == Some(Dispatcher::Flex) && put(&mut file.moe.backend, recipe.backend)
        }));
    }
    if let (true, Some(capacity)) = (moe, recipe.capacity) {
        facts.push(("training.moe.capacity_factor", capacity.into(), |file, recipe| {
            file.moe.pad_to_capacity.is_none()
                && put(&mut file.moe.capacity_factor, recipe.capacity)
                && put(&mut file.moe.pad_to_capacity, Some(true))
        }));
    }
    if let Some(recomputed) = &recipe.recompute {
        let value = match recomputed {
            Recomputed::Nothing => json!("none"),
            Recomputed::Full => json!("full"),
            Recomputed::Block(layers) => json!(format!("full: {layers} layers")),
            Recomputed::Selective => json!("selective"),
            Recomputed::Modules(modules) => json!(format!("selective: {}", modules.join(", "))),
        };
        facts.push(("training.recompute.granularity", value, put_recompute));
    }
    if let Some(gradients) = recipe.gradients {
        facts.push(("training.grad_dtype", gradients.name().into(), |file, recipe| {
            put(&mut file.grad_dtype, recipe.gradients)
        }));
    }
    if let Some(loss) = recipe.loss {
        facts.push(("training.cross_entropy", loss.name().into(), |file, recipe| {
            !same_bits(file) && put(&mut file.cross_entropy, recipe.loss)
        }));
    }
    if let Some(attention) = recipe.attention {
        facts.push(("training.attention_backend", attention.name().into(), |file, recipe| {
            put(&mut file.attention_backend, recipe.attention)
        }));
    }
    if recipe.precision_aware {
        facts.push(("training.optimizer.precision_aware", true.into(), put_optimizer));
        if let Some(moments) = recipe.moments {
            facts.push(("training.optimizer.exp_avg_dtype", moments.name().into(), |file, recipe| {
                keeps_by_recipe(file) && put(&mut file.optimizer.exp_avg_dtype, recipe.moments)
            }));
            facts.push(("training.optimizer.exp_avg_sq_dtype", moments.name().into(), |file, recipe| {
                keeps_by_recipe(file) && put(&mut file.optimizer.exp_avg_sq_dtype, recipe.moments)
            }));
        }
        if let Some(masters) = recipe.masters {
            facts.push(("training.optimizer.master_dtype", masters.name().into(), |file, recipe| {
                keeps_by_recipe(file) && put(&mut file.optimizer.master_dtype, recipe.masters)
            }));
        }
    }
    if !recipe.precision_aware && recipe.masters.is_some() {
        // Its moments are kept alike, which needs no word.
        facts.push((
            "training.optimizer.master_dtype",
            recipe.masters.map(Dtype::name).into(),
            |file, recipe| plain_adam(file) && put(&mut file.optimizer.master_dtype, recipe.masters),
        ));
    }
    if recipe.low_gather {
        facts.push(("training.fp8_param_gather", true.into(), |file, _| {
            file.optimizer.distributed != Some(false) && put(&mut file.fp8_param_gather, Some(true))
        }));
    }
    if recipe.bf16_last > 0 {
        facts.push(("training.bf16_last_layers", recipe.bf16_last.into(), |file, recipe| {
            put(&mut file.bf16_last_layers, Some(recipe.bf16_last))
        }));
    }
    if recipe.low_attention {
        facts.push(("training.fp8_attention", true.into(), |file, _| {
            put(&mut file.fp8_attention, Some(true))
        }));
    }
    if recipe.low_output {
        facts.push(("training.fp8_output", true.into(), |file, _| put(&mut file.fp8_output, Some(true))));
    }
    if recipe.offloaded_layers > 0 {
        facts.push(("training.offload.layers", recipe.offloaded_layers.into(), |file, recipe| {
            file.offload.modules.is_none() && put(&mut file.offload.layers, Some(recipe.offloaded_layers))
        }));
    }
    facts
}

/// Takes back what a recipe set at these paths, but for what is recomputed, which is part of how a plan fits.
pub(crate) fn take_back(file: &mut TrainingFile, set: &[&'static str]) {
    for path in set {
        match *path {
            "training.cuda_graphs" => (file.cuda_graphs, file.cuda_graph_modules) = (None, None),
            "training.overlap.tp" => file.overlap.tp = None,
            "training.overlap.ep" => file.overlap.ep = None,
            "training.moe.dispatcher" => file.moe.dispatcher = None,
            "training.moe.backend" => file.moe.backend = None,
            "training.moe.capacity_factor" => {
                (file.moe.capacity_factor, file.moe.pad_to_capacity) = (None, None)
            }
            "training.grad_dtype" => file.grad_dtype = None,
            "training.cross_entropy" => file.cross_entropy = None,
            "training.attention_backend" => file.attention_backend = None,
            "training.optimizer.precision_aware" => {
                let optimizer = &mut file.optimizer;
                (optimizer.precision_aware, optimizer.core_master) = (None, None);
                (optimizer.master_dtype, optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype) =
                    (None, None, None);
            }
            "training.optimizer.master_dtype" => {
                let optimizer = &mut file.optimizer;
                (optimizer.master_dtype, optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype) =
                    (None, None, None);
            }
            "training.fp8_param_gather" => file.fp8_param_gather = None,
            "training.bf16_last_layers" => file.bf16_last_layers = None,
            "training.fp8_attention" => file.fp8_attention = None,
            "training.fp8_output" => file.fp8_output = None,
            _ => {}
        }
    }
}

fn put_recompute(file: &mut TrainingFile, recipe: &Recipe) -> bool {
    let recompute = &mut file.recompute;
    let said = recompute.modules.is_some() || recompute.method.is_some() || recompute.num_layers.is_some();
    let (granularity, modules) = match &recipe.recompute {
        None => return false,
        Some(Recomputed::Nothing) => (Granularity::None, None),
        Some(Recomputed::Full | Recomputed::Block(_)) => (Granularity::Full, None),
        Some(Recomputed::Selective) => (Granularity::Selective, None),
        Some(Recomputed::Modules(modules)) => (Granularity::Selective, Some(modules.clone())),
    };
    let new = !said && put(&mut recompute.granularity, Some(granularity));
    if let (true, Some(Recomputed::Block(layers))) = (new, &recipe.recompute) {
        (recompute.method, recompute.num_layers) = (Some("block".to_owned()), Some(*layers));
    }
    if new && modules.is_some() {
        recompute.modules = modules;
    }
    new
}

/// The optimizer's types go together. Bridge names its 8-bit recipe in bf16 runs too, so that Megatron-Core keeps its own master
/// weights beside a precision-aware optimizer (`training/mixed_precision.py`).
fn put_optimizer(file: &mut TrainingFile, _: &Recipe) -> bool {
    let plain = plain_adam(file);
    let optimizer = &mut file.optimizer;
    if !plain || !put(&mut optimizer.precision_aware, Some(true)) {
        return false;
    }
    put(&mut optimizer.core_master, Some(true));
    true
}

/// Whether a file says nothing against a distributed Adam, and nothing of the types of its state.
fn plain_adam(file: &TrainingFile) -> bool {
    let optimizer = &file.optimizer;
    let adam = matches!(optimizer.kind, None | Some(crate::settings::OptimizerKind::Adam));
    let own = optimizer.exp_avg_dtype.is_some()
        || optimizer.exp_avg_sq_dtype.is_some()
        || optimizer.master_dtype.is_some();
    adam && !own && optimizer.distributed != Some(false)
}

/// Whether [`put_optimizer`] has set how the optimizer keeps its state.
fn keeps_by_recipe(file: &TrainingFile) -> bool {
    file.optimizer.core_master == Some(true)
}

#[cfg(test)]
mod tests;
