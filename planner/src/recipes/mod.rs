//! What a framework's recipe for a model, GPU, count and precision sets: facts that a plan which names the framework gets
//! where it says nothing itself.

mod automodel;
pub(crate) mod bridge;
mod nemo;
mod table;
mod torchtitan;

pub(crate) use automodel::recipe as automodel;
pub(crate) use nemo::recipe as nemo;
pub(crate) use torchtitan::recipe as torchtitan;

use crate::settings::{AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, FlexBackend};
use crate::units::Dtype;

/// A release as a number: 26.04.01 is 260401.
pub(crate) fn number(release: &str) -> u32 {
    let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0).min(99));
    let mut next = || parts.next().unwrap_or(0);
    next() * 10_000 + next() * 100 + next()
}

/// What is looked up: never a layout, and no date.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Preset of the model, where the plan names one.
    pub preset: Option<&'a str>,
    /// Layers, hidden size and routed experts of the model: 0 experts for a dense one.
    pub sizes: [u64; 3],
    /// Id of the GPU.
    pub gpu: &'a str,
    /// Whether the GPU is of Blackwell's generation.
    pub blackwell: bool,
    /// Whether the GPU stands on a board with its own CPU: GH200, GB200, GB300.
    pub superchip: bool,
    /// GPUs.
    pub world: u64,
    /// Precision, as recipes name it: bf16, cs, sc, mx or nv.
    pub precision: &'static str,
    /// Release as a number: 26.04.01 is 260401.
    pub release: u32,
    /// Which recipes are looked through.
    pub among: Among,
}

/// Which recipes of a framework are looked through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Among {
    /// All.
    #[default]
    All,
    /// Those of other models or GPUs than the plan's, as if the framework had none for it. No plan asks so: it is how scores see what a
    /// plan without a recipe of its own gets.
    Others,
}

/// Facts of a recipe. What is none, or false, is not set by it, or not known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recipe {
    /// The recipe in words: model, GPUs, precision.
    pub name: String,
    /// Where it was read.
    pub source: &'static str,
    /// True where it is another model's, GPU's, count's or precision's than the plan's.
    pub nearest: bool,
    /// True where it was made for another model or GPU than the plan's.
    pub others: bool,
    /// Modules that predict tokens ahead.
    pub mtp_layers: Option<u64>,
    /// CUDA graphs.
    pub graphs: Option<CudaGraphs>,
    /// How tokens get to experts.
    pub dispatcher: Option<Dispatcher>,
    /// Library of the flex dispatcher.
    pub backend: Option<FlexBackend>,
    /// Tensor-parallel communication hides, where there is some.
    pub overlap_tp: bool,
    /// The all-to-all of experts hides, where there is one.
    pub overlap_ep: bool,
    /// What is recomputed; none where the recipe is another model's or GPU's, whose memory it was chosen for.
    pub recompute: Option<Recomputed>,
    /// Type that gradients are summed in.
    pub gradients: Option<Dtype>,
    /// Kernel of the loss.
    pub loss: Option<CrossEntropy>,
    /// Kernel of attention.
    pub attention: Option<AttentionBackend>,
    /// The optimizer keeps its state in the types that follow; no other model's recipe says so.
    pub precision_aware: bool,
    /// Type of both moments.
    pub moments: Option<Dtype>,
    /// Type of master weights. Without `precision_aware` that of all of NeMo's own optimizer's state.
    pub masters: Option<Dtype>,
    /// Tokens that an expert takes over the mean, to which it is padded; no other model's recipe says so, for the rest is dropped.
    pub capacity: Option<f64>,
    /// Parameters are gathered in 8 bits.
    pub low_gather: bool,
    /// FSDP2's selective checkpoints keep every second matrix product; otherwise modules are named.
    pub every_second: bool,
    /// Layers are compiled by torch.
    pub compile: Option<bool>,
    /// Type that FSDP2 shards parameters in.
    pub sharded: Option<Dtype>,
    /// When FSDP2 reduces gradients.
    pub gradient_sync: Option<&'static str>,
    /// When FSDP2 frees layers between forward and backward.
    pub reshard: Option<&'static str>,
    /// Type of the numbers that FSDP2's loss reads.
    pub loss_dtype: Option<Dtype>,
    /// Last layers that stay in bf16.
    pub bf16_last: u64,
    /// Attention multiplies in 8 bits.
    pub low_attention: bool,
    /// The output layer runs in the layers' precision.
    pub low_output: bool,
    /// Layers whose activations wait on the host; 0 where the recipe is another model's or GPU's, whose memory it was chosen for.
    pub offloaded_layers: u64,
}

/// What a recipe recomputes.
#[derive(Debug, Clone, PartialEq)]
pub enum Recomputed {
    /// Nothing.
    Nothing,
    /// Whole layers.
    Full,
    /// So many whole layers of each chunk.
    Block(u64),
    /// What the framework's selective checkpoints recompute, without names.
    Selective,
    /// These modules.
    Modules(Vec<String>),
}
