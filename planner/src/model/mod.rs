//! What is trained: the architecture, where it can come from, and its list of parameters.

mod catalogue;
mod check;
mod fewer;
mod hf;
mod hub_name;
mod megatron;
mod mixer;
mod mlp;
mod parameter;
mod params;
mod pattern;
mod rotation;
mod routing;
mod scores;
#[cfg(test)]
mod tests;
pub mod weights;

pub use catalogue::{Preset, presets};
pub(crate) use check::check_model;
pub(crate) use fewer::with_layers;
pub use hf::{Imported, import_hf, supported_model_types};
pub use hub_name::preset_of_hub;
pub use megatron::{Beside, import_megatron};
pub use mixer::{
    Attention, CHUNK, Core, DeltaNet, Indexer, KimiDelta, Listed, ListedCut, ListedParameter, LowRanks,
    Mamba2, Mixer, MixerRef, Parallel, QkNorm, SavedElements, Scan,
};
pub use mlp::{Experts, FeedForward, MlpOperations};
pub use parameter::{Init, Module};
pub use params::{Model, Parameter, Role, count, untrained_elements};
pub(crate) use params::{hidden_matrix_elements, layer_parameters, mtp_parameters, outer_parameters};
pub use pattern::{LayerKind, LayerRun, Mlp, fold};
pub use rotation::Rotation;
pub use routing::{Balance, Routing, Score};
pub use scores::{Positions, Reach, Rope, RopeKind, RopeScaling, Scores, Temperature};
pub use weights::{
    HEADER_LENGTH, MOST_HEADER_BYTES, Tensor, WeightFiles, compare_text, compare_weights, header_bytes,
    read_header, read_index,
};

use std::collections::BTreeMap;

use crate::json::by_field::by_field;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most layers that a model may have.
pub const MAX_LAYERS: u64 = 4096;

/// A decoder-only transformer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    /// Transformer layers.
    pub num_layers: u64,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Width of a dense MLP.
    pub ffn_hidden_size: u64,
    /// Words, before padding.
    pub vocab_size: u64,
    /// Attention.
    pub attention: Attention,
    /// What mixes tokens in layers of other kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_mixers: Vec<Mixer>,
    /// Kinds of the layers, repeated until every layer has one; empty: attention everywhere, with experts where the
    /// model has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pattern: Vec<LayerRun>,
    /// Mixture of experts; none for a dense model.
    #[serde(default)]
    pub moe: Option<Moe>,
    /// Whether MLPs have a gate beside the up projection.
    #[serde(default = "yes")]
    pub gated: bool,
    /// The MLP's activation function.
    #[serde(default)]
    pub activation: Activation,
    /// Whether MLPs have biases.
    #[serde(default)]
    pub mlp_bias: bool,
    /// Kind of norm.
    #[serde(default)]
    pub norm: Norm,
    /// Epsilon of the norms.
    #[serde(default = "norm_eps")]
    pub norm_eps: f64,
    /// Base of the rotary position embedding.
    #[serde(default = "rope_theta")]
    pub rope_theta: f64,
    /// How rotary angles differ from those of the base; none for not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeScaling>,
    /// Whether the output layer is the embedding.
    #[serde(default)]
    pub tied_embeddings: bool,
    /// Positions with a learned embedding (GPT-2 and 3); none for rotary positions.
    #[serde(default)]
    pub learned_positions: Option<u64>,
    /// Multi-token-prediction modules after the last layer.
    #[serde(default)]
    pub mtp_layers: u64,
    /// Whether all of them are one module, run several times.
    #[serde(default, skip_serializing_if = "no")]
    pub mtp_shared: bool,
    /// Kinds of the layers of one such module; empty: one of the last layer's kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mtp_pattern: Vec<LayerRun>,
    /// Whether attention and MLP have a norm on their output too (Gemma).
    #[serde(default, skip_serializing_if = "no")]
    pub post_norms: bool,
    /// Whether they have none on their input, so that the one on their output is the only one (OLMo 2).
    #[serde(default, skip_serializing_if = "no")]
    pub no_pre_norms: bool,
    /// Whether there is no norm behind the last layer (GPT-1).
    #[serde(default, skip_serializing_if = "no")]
    pub no_final_norm: bool,
    /// Whether word embeddings have a norm (BLOOM).
    #[serde(default, skip_serializing_if = "no")]
    pub embedding_norm: bool,
    /// Whether attention and MLP work on the same input and are added together.
    #[serde(default, skip_serializing_if = "Branches::is_default")]
    pub branches: Branches,
    /// Whether the output layer has a bias.
    #[serde(default, skip_serializing_if = "no")]
    pub head_bias: bool,
    /// What word embeddings are multiplied by.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub embedding_multiplier: f64,
    /// What attention and MLP give is multiplied by before it is added to the stream.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub residual_multiplier: f64,
    /// What logits are multiplied by.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub logit_multiplier: f64,
    /// Cap c of logits, c tanh(logit / c); none for no cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logit_cap: Option<f64>,
    /// Bound of what the activation is given: of the gate from above, of the up projection on both sides (gpt-oss,
    /// DeepSeek-V4); none for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_limit: Option<f64>,
    /// Parameters beside all these, by what a family has and no other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extras: Vec<Extra>,
    /// Copies of the residual stream that learned hyper-connections mix (DeepSeek-V4); 0 for a plain stream.
    #[serde(default, skip_serializing_if = "zero")]
    pub hyper_connections: u64,
    /// Whether those connections read and write the copies, and mix none with another (Hunyuan V4).
    #[serde(default, skip_serializing_if = "no")]
    pub hyper_unmixed: bool,
    /// Layers in a row that no stage of a pipeline parts, as what the first of them adds comes behind the last
    /// (LongCat's pairs).
    #[serde(default = "single", skip_serializing_if = "is_single")]
    pub layers_together: u64,
    /// Whether layers attend over the outputs of earlier blocks instead of adding to one stream (Kimi-K3).
    #[serde(default, skip_serializing_if = "no")]
    pub attention_residuals: bool,
    /// An embedding of its own for every layer, all in one table (Gemma 3n).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_inputs: Option<LayerInputs>,
    /// Copies of the residual stream of which each layer works on one and predicts the others (AltUp); 0 for one
    /// plain stream.
    #[serde(default, skip_serializing_if = "zero")]
    pub alternating_updates: u64,
    /// Rank of a low-rank path around each layer's attention (LAuReL); 0 for none.
    #[serde(default, skip_serializing_if = "zero")]
    pub residual_rank: u64,
    /// What the model computes beside all this, by the names that its config.json has for it: windows, multipliers, caps,
    /// activations, noise. None of it changes a size; it is not planned, and the worker refuses what it can't run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, Value>,
}

/// Inputs that each layer has besides the residual stream, looked up by word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerInputs {
    /// Words of their table.
    pub vocab_size: u64,
    /// Width of one layer's.
    pub width: u64,
}

/// How attention and MLP of a layer meet the residual stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Branches {
    /// One after the other.
    #[default]
    InTurn,
    /// Side by side, each with a norm of its own on the same stream (GPT-NeoX).
    SideBySide,
    /// Side by side on one norm (GPT-J, Falcon, Cohere).
    OneNorm,
}

impl Branches {
    fn is_default(&self) -> bool {
        *self == Branches::default()
    }
}

/// A parameter that only one family has: it is kept, counted and trained, the same on every tensor-parallel rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extra {
    /// Its name, such as `attention.sub_norm`.
    pub name: String,
    /// What it goes with.
    pub at: ExtraAt,
    /// Its shape.
    pub shape: Vec<u64>,
}

/// What a parameter of one family goes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtraAt {
    /// Word embeddings.
    Embedding,
    /// The final norm and the output layer.
    Head,
    /// Every layer.
    Layer,
    /// Layers with attention of any kind, and whatever stands in its place.
    Mixer,
    /// Layers with the architecture's first attention alone.
    Attention,
    /// Layers with another mixer than that.
    OtherMixer,
    /// Layers with a dense MLP.
    Mlp,
    /// Layers with experts.
    Experts,
}

impl Architecture {
    /// A gated decoder with `attention` in every layer and everything else as `Architecture`'s fields have it where they
    /// are left out.
    pub fn of(
        num_layers: u64,
        hidden_size: u64,
        ffn_hidden_size: u64,
        vocab_size: u64,
        attention: Attention,
    ) -> Self {
        Architecture {
            num_layers,
            hidden_size,
            ffn_hidden_size,
            vocab_size,
            attention,
            other_mixers: Vec::new(),
            pattern: Vec::new(),
            moe: None,
            gated: true,
            activation: Activation::default(),
            mlp_bias: false,
            norm: Norm::default(),
            norm_eps: norm_eps(),
            rope_theta: rope_theta(),
            rope_scaling: None,
            tied_embeddings: false,
            learned_positions: None,
            mtp_layers: 0,
            mtp_shared: false,
            mtp_pattern: Vec::new(),
            post_norms: false,
            no_pre_norms: false,
            no_final_norm: false,
            embedding_norm: false,
            branches: Branches::default(),
            head_bias: false,
            embedding_multiplier: 1.0,
            residual_multiplier: 1.0,
            logit_multiplier: 1.0,
            logit_cap: None,
            activation_limit: None,
            extras: Vec::new(),
            hyper_connections: 0,
            hyper_unmixed: false,
            layers_together: 1,
            attention_residuals: false,
            layer_inputs: None,
            alternating_updates: 0,
            residual_rank: 0,
            parts: BTreeMap::new(),
        }
    }

    /// Multi-token-prediction modules with parameters of their own.
    pub(crate) fn mtp_modules(&self) -> u64 {
        if self.mtp_shared { self.mtp_layers.min(1) } else { self.mtp_layers }
    }
}

fn yes() -> bool {
    true
}

fn no(flag: &bool) -> bool {
    !flag
}

fn set(flag: &bool) -> bool {
    *flag
}

fn zero(number: &u64) -> bool {
    *number == 0
}

fn single() -> u64 {
    1
}

fn is_single(number: &u64) -> bool {
    *number == 1
}

fn one() -> f64 {
    1.0
}

fn is_one(number: &f64) -> bool {
    *number == 1.0
}

fn norm_eps() -> f64 {
    1e-5
}

fn rope_theta() -> f64 {
    10_000.0
}

/// Kind of norm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// RMSNorm: a weight.
    #[default]
    Rms,
    /// LayerNorm: a weight and a bias.
    Layer,
    /// LayerNorm with a weight alone (Cohere, MPT).
    LayerWeight,
    /// RMSNorm without a weight (nanochat).
    PlainRms,
    /// LayerNorm without weight and bias (OLMo).
    PlainLayer,
}

impl Norm {
    /// Whether it has a weight, and a bias.
    pub fn parameters(self) -> (bool, bool) {
        (!matches!(self, Norm::PlainRms | Norm::PlainLayer), self == Norm::Layer)
    }

    /// Whether it takes the mean away, so that it keeps two statistics of a token.
    pub fn centers(self) -> bool {
        matches!(self, Norm::Layer | Norm::LayerWeight | Norm::PlainLayer)
    }
}

/// The MLP's activation function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// SiLU (with a gate: SwiGLU).
    #[default]
    Silu,
    /// GELU by its tanh form.
    Gelu,
    /// ReLU, squared (Nemotron).
    SquaredRelu,
    /// GELU by the error function.
    GeluErf,
    /// GELU by a logistic function of 1.702 times its input.
    QuickGelu,
    /// ReLU.
    Relu,
    /// gpt-oss's: a gate by a logistic function of 1.702 times it, and one added to the up projection.
    GptOss,
    /// SiTU (Kimi-K3): scaled tangents on both sides.
    Situ,
    /// xIELU with two learned scalars (Apertus).
    Xielu,
    /// Another, which is planned as of the same sizes.
    Other,
}

/// Mixture of experts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Moe {
    /// Routed experts of a layer.
    pub experts: u64,
    /// Experts that a token is sent to.
    pub top_k: u64,
    /// Width of one expert's MLP.
    pub ffn_hidden_size: u64,
    /// Width of all shared experts together; 0 for none.
    pub shared_ffn_hidden_size: u64,
    /// Whether the shared experts' output has a learned gate.
    pub shared_gate: bool,
    /// Whether the router has a trained bias.
    pub router_bias: bool,
    /// Width of the stream that routed experts work in, between projections from and to the hidden size; none for
    /// the hidden size itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent_size: Option<u64>,
    /// Whether the experts' sum has a norm before it is projected back.
    #[serde(skip_serializing_if = "no")]
    pub latent_norm: bool,
    /// Whether dense and routed branch have norms of their own and the router learned scales (Gemma 4).
    #[serde(skip_serializing_if = "no")]
    pub scaled_branches: bool,
    /// Whether what experts are given is weighed instead of what they give (Llama 4).
    #[serde(skip_serializing_if = "no")]
    pub weighs_inputs: bool,
    /// Further choices of the router that hand a token on as it is (LongCat).
    #[serde(skip_serializing_if = "zero")]
    pub identity_experts: u64,
    /// Elements of the router's balancing bias per layer, a buffer that is not trained by gradients; 0 for none.
    pub router_bias_buffer: u64,
    /// How experts are chosen, weighed and balanced.
    #[serde(skip_serializing_if = "Routing::is_default")]
    pub routing: Routing,
}

by_field! { Moe { experts, top_k, ffn_hidden_size; shared_ffn_hidden_size, shared_gate, router_bias, latent_size, latent_norm, scaled_branches, weighs_inputs, identity_experts, router_bias_buffer, routing } }

impl Moe {
    /// Experts that a token is sent to on average: choices that hand it on as it is are as likely as others.
    pub(crate) fn computed_top_k(&self) -> f64 {
        match self.identity_experts {
            0 => self.top_k as f64,
            identity => self.top_k as f64 * self.experts as f64 / (self.experts as f64 + identity as f64),
        }
    }
}
