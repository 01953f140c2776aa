//! Parts of a form, in which settings stand together.

/// A part of a form: settings that are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// What is trained.
    Model,
    /// What it is trained on.
    Cluster,
    /// What a cluster costs and how often it fails.
    Costs,
    /// Sizes of axes.
    Axes,
    /// What a runtime shards.
    Shards,
    /// How layers go to stages, and micro batches through them.
    Stages,
    /// How ranks stand and what they exchange.
    Ranks,
    /// How shards are kept and sent.
    ShardsMore,
    /// Runtime, batch and precision.
    Training,
    /// What is recomputed.
    Recompute,
    /// What runs in 8 and 4 bits.
    LowPrecision,
    /// State of the optimizer.
    OptimizerState,
    /// What a layer keeps and how it is computed.
    Activations,
    /// What hides behind compute.
    Overlap,
    /// Experts.
    Experts,
    /// CUDA graphs, and what is installed.
    Software,
    /// Steps, and how weights change in each.
    Run,
    /// Constants of the optimizer's update.
    Update,
    /// What losses are multiplied by.
    LossScale,
    /// What the worker begins with and trains on.
    Data,
    /// When the worker saves.
    Saving,
    /// No form: it is chosen elsewhere, or is for command lines alone.
    Apart,
}

impl Part {
    /// All of them, in the order of a form.
    pub const ALL: [Part; 22] = [
        Part::Model,
        Part::Cluster,
        Part::Costs,
        Part::Axes,
        Part::Shards,
        Part::Stages,
        Part::Ranks,
        Part::ShardsMore,
        Part::Training,
        Part::Recompute,
        Part::LowPrecision,
        Part::OptimizerState,
        Part::Activations,
        Part::Overlap,
        Part::Experts,
        Part::Software,
        Part::Run,
        Part::Update,
        Part::LossScale,
        Part::Data,
        Part::Saving,
        Part::Apart,
    ];

    /// What stands above it in a form; empty for nothing.
    pub const fn title(self) -> &'static str {
        match self {
            Part::Costs => "Costs and failures",
            Part::Stages => "Stages",
            Part::Ranks => "Ranks and vocabulary",
            Part::ShardsMore => "Shards",
            Part::LowPrecision => "Low precision",
            Part::OptimizerState => "Optimizer state",
            Part::Activations => "Activations and kernels",
            Part::Overlap => "Communication behind compute",
            Part::Experts => "Experts",
            Part::Software => "CUDA graphs and software",
            Part::Run => "When it is run here",
            _ => "",
        }
    }
}
