//! What is asked of a runtime.

use crate::units::LowPrecision;

/// What is true of a runtime. Each is an idea of its own, though several hold for the same runtimes today.
#[derive(Debug)]
pub struct Facts {
    /// Whether ranks stand in a device mesh of torch, with one order of axes, and groups are those of its axes. Else they stand in
    /// Megatron-Core's grid, whose order a plan says and whose experts are folded anew.
    pub uses_device_mesh: bool,
    /// Whether a rank keeps shards of parameters, whose units are gathered for their forward and backward and reduced behind it. Else it
    /// keeps its parameters whole, and at most the optimizer's state is split.
    pub shards_parameters: bool,
    /// Whether the parameters of a unit lie in one flat buffer, which is cut wherever tensors end (Megatron-FSDP). Else each parameter is
    /// cut by itself along a dim (torch `fully_shard`).
    pub flat_units: bool,
    /// Whether a plan says how far gathered parameters are given back between forward and backward (torch `fully_shard`). Megatron-FSDP
    /// gives them back.
    pub reshards_as_said: bool,
    /// Whether experts are split over the ranks of one replica of shards alone (Megatron-Core `mcore_fsdp_adapter.py`), not over all
    /// of a stage.
    pub experts_within_replica: bool,
    /// Whether groups of an axis are made only where it is split, not whenever there is such an axis.
    pub groups_as_needed: bool,
    /// Whether ranks make groups of tensor and context parallelism together: for losses that balance experts, and scales of 8-bit tensors.
    pub joins_tensor_and_context: bool,
    /// Whether the distributed optimizer can have several instances, each over a part of the data-parallel ranks.
    pub optimizer_instances: bool,
    /// Whether torch's pipelining runs the stages, which trainers split as they like. Else Megatron-Core's settings split them.
    pub pipelines_by_torch: bool,
    /// Whether the final norm stands where the last layer is, though modules of multi-token prediction put the output layer elsewhere
    /// (Megatron-Core `transformer_block.py`).
    pub norm_at_last_layer: bool,
    /// Whether the vocabulary is padded, so that each rank's part has a round number of rows.
    pub pads_vocabulary: bool,
    /// Whether all models have the same tensor-parallel plan, where a plan names none. Else each class has its own.
    pub one_tensor_plan: bool,
    /// Whether Megatron-Core's modules and optimizer train, with their settings and the rules between these, and TransformerEngine keeps
    /// what backward needs.
    pub trains_megatron_core: bool,
    /// Whether its rules are the worker's own, so that the worker's operators compute every plan.
    pub is_workers_own: bool,
    /// Whether 8-bit matrices are torchao's, which gathers one input of two of them in 8 bits.
    pub low_precision_by_torchao: bool,
    /// Recipes of 8 and 4 bits that it has multiplications for.
    pub low_precision: &'static [LowPrecision],
    /// Whether masters and moments have the types that a plan names. Else sharded parameters have moments of their own type, and others masters in
    /// fp32 and moments in the gradients' type or wider.
    pub state_as_said: bool,
    /// Whether Muon's optimizer deals whole tensors to ranks (Megatron-Core `layer_wise_optimizer.py`).
    pub deals_tensors: bool,
    /// Whether optimizer state of what a rank keeps whole can wait on the host.
    pub offloads_state: bool,
    /// Whether multiplications add to main gradients themselves unless a plan says otherwise. FSDP reduces the gradients that autograd makes.
    pub fuses_gradient_accumulation: bool,
    /// Whether tensor-parallel collectives hide behind compute where the plan says so, whatever a software profile took.
    pub overlaps_tensor_parallel_as_said: bool,
    /// Units that are gathered ahead in forward and in backward, where that is set and not the library's own choice.
    pub explicit_prefetch: Option<[u64; 2]>,
    /// Whether kernels have to start in the order in which they were queued, by one connection, as overlap behind tensor and context
    /// parallelism relies on. Megatron-FSDP wants the opposite.
    pub one_connection: bool,
    /// Whether replicas can go on with fewer tensor-parallel ranks beside whole ones.
    pub reduced_replicas: ReducedReplicas,
    /// Whether, beside such replicas, the cores of a whole one keep weights and state of extras' rows too, so that extras send
    /// gradients and get weights. Else they get their gradients back.
    pub cores_keep_rows: bool,
    /// Settings that it does not read or that its trainers choose, besides those that follow from the facts above: a form leaves
    /// them out, and they change nothing.
    pub lacks: &'static [Readers],
    /// Settings that are recorded and that nothing computes with yet: answers are those of their defaults.
    pub not_counted: &'static [Counted],
    /// What of a memory answer is exact, and what is an estimate.
    pub how_exact: &'static str,
}

/// Whose a setting is, and so which runtimes read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Anybody's.
    All,
    /// That of torch's `fully_shard` and its trainers.
    FullyShard,
    /// Megatron-FSDP's.
    FlatUnits,
    /// That of sharded parameters, whatever shards them.
    Sharded,
    /// That of tensor-parallel plans by patterns of modules.
    TensorPlans,
    /// That of Megatron-Core's grid of ranks and its vocabulary.
    Grid,
    /// That of pipelines.
    Pipelines,
    /// That of Megatron-Core's modules and its optimizer, and of who works as they do.
    MegatronCore,
    /// A type of masters or moments.
    StateTypes,
}

/// Which answers compute with a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// All.
    Everywhere,
    /// Those of Megatron-Core's runtime.
    MegatronCore,
    /// Those of frameworks, not of the worker.
    Frameworks,
    /// Those in which each kernel of attention keeps tensors of its own.
    AttentionKernels,
    /// Those with copies of weights in 8 bits beside those in the compute type.
    EightBits,
    /// Those with tensor-parallel collectives behind compute.
    TensorOverlap,
}

/// Which plans can go on with replicas of fewer tensor-parallel ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReducedReplicas {
    /// None.
    None,
    /// Those of models without routed experts.
    WithoutExperts,
    /// Those with experts, too, where blocks of ranks that have every expert once fill a replica's slots.
    WithExperts,
}

/// Where a runtime's numbers come from: apart from its facts, so that a search is not sent what it never says.
#[derive(Debug)]
pub struct Origins {
    /// How far an estimated number can be trusted.
    pub estimate_note: &'static str,
    /// What it counts in its own way.
    pub formulas: &'static [Formula],
}

/// How a category of memory is counted.
#[derive(Debug)]
pub struct Formula {
    /// Names of categories in answers.
    pub of: &'static [&'static str],
    /// In words and symbols.
    pub formula: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

impl Facts {
    /// Whether it reads settings of these.
    pub fn reads(&self, readers: Readers) -> bool {
        match readers {
            Readers::Sharded => self.shards_parameters,
            Readers::FlatUnits => self.flat_units,
            Readers::FullyShard => self.shards_parameters && !self.flat_units,
            Readers::StateTypes => self.state_as_said,
            _ => !self.lacks.contains(&readers),
        }
    }

    /// Whether its answers compute with settings that these compute with.
    pub fn counts(&self, counted: Counted) -> bool {
        !self.not_counted.contains(&counted)
    }
}

impl Origins {
    /// Its own formula of a category.
    pub fn formula(&self, category: &str) -> Option<&'static Formula> {
        self.formulas.iter().find(|formula| formula.of.contains(&category))
    }
}
