//! The list of parameters of an architecture: name, shape, role, start. How each is cut is `crate::shard`'s matter.
//!
//! Shapes are logical: the fused query-key-value matrix is `[kv_heads, queries per kv head + 2, head_dim, hidden]`
//! and a gated first MLP matrix `[2, ffn, hidden]`, so that every tensor-parallel cut is one contiguous range of one
//! dim. In memory they are the frameworks' two-dimensional matrices.

mod mixer;
mod of_model;

use super::{Architecture, Branches, Extra, ExtraAt, LayerInputs, LayerKind, Mlp, Norm, mlp};
use crate::model::{Init, Module};
pub(super) use mixer::of_mixer;
pub use of_model::Model;

/// Which matrix a parameter is; decides how it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Rows are words.
    Vocabulary,
    /// Cut along its output features, which are dim `0`.
    Column(usize),
    /// Cut along its input features, which are the dim given.
    Row(usize),
    /// The same on every tensor-parallel rank.
    Replicated,
    /// Query-key-value, cut by kv groups (dim 0).
    Qkv,
    /// The same on every tensor-parallel rank, but each sees only its own heads or channels: its gradient is always a part.
    SharedByHeads,
    /// First expert matrix, cut along the dim given by expert tensor parallelism.
    ExpertColumn(usize),
    /// Second expert matrix, likewise.
    ExpertRow(usize),
}

/// One parameter, or all that look alike: name templates have `{layer}` and `{expert}` in them.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Name template.
    pub name: String,
    /// What it belongs to.
    pub module: Module,
    /// Which matrix it is.
    pub role: Role,
    /// Logical shape of one.
    pub shape: Vec<u64>,
    /// How it starts.
    pub init: Init,
    /// Whether weight decay applies.
    pub decays: bool,
    /// How many of them there are in the layer: the experts, else 1.
    pub per_layer: u64,
}

impl Parameter {
    /// Elements of one.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Whether it is the convolution of a recurrent mixer, which no matrix multiplication works with.
    pub(crate) fn is_convolution(&self) -> bool {
        is_convolution(&self.name)
    }

    /// Whether it is a matrix of a linear map.
    pub(crate) fn is_matrix(&self) -> bool {
        self.shape.len() >= 2 && self.decays && !self.is_convolution()
    }

    /// Whether it is such a matrix and neither embedding nor output layer: those are what Muon updates (Megatron-Core's muon).
    pub(crate) fn is_hidden_matrix(&self) -> bool {
        self.is_matrix() && !matches!(self.module, Module::Embedding | Module::Head)
    }

    /// Elements that a rank of the executor has for a while when it puts such a matrix together and makes it orthogonal: its own, and
    /// beside them as many again, or two squares of its shorter side (shardplan-rank `train/muon.rs`).
    pub(crate) fn made_orthogonal(&self) -> u64 {
        let all = self.elements();
        // What writes into the residual stream lists its outputs first, all others their inputs last.
        let side = match self.role {
            Role::Row(_) => self.shape.first(),
            _ => self.shape.last(),
        };
        let side = side.copied().unwrap_or(1).max(1);
        let short = side.min(all / side);
        all + all.max(2 * short * short)
    }
}

/// Whether a parameter of this name is a convolution.
pub(super) fn is_convolution(name: &str) -> bool {
    name.ends_with("conv.weight")
}

/// A list that parameters are put into, one after the other.
pub(super) struct List<'a> {
    /// Whose they are.
    pub architecture: &'a Architecture,
    /// Those that are in it.
    pub found: Vec<Parameter>,
}

impl List<'_> {
    pub(super) fn push(
        &mut self,
        name: &str,
        module: Module,
        role: Role,
        shape: &[u64],
        init: Init,
        decays: bool,
    ) {
        self.found.push(Parameter {
            name: name.to_owned(),
            module,
            role,
            shape: shape.to_vec(),
            init,
            decays,
            per_layer: 1,
        });
    }

    pub(super) fn matrix(&mut self, name: &str, module: Module, role: Role, shape: &[u64]) {
        self.push(name, module, role, shape, Init::Normal(0.02), true);
    }

    /// A matrix that writes into the residual stream: starts smaller, so that depth doesn't grow the stream (GPT-2).
    pub(super) fn residual_matrix(&mut self, name: &str, module: Module, role: Role, shape: &[u64]) {
        let layers = self.architecture.num_layers.max(1) as f64;
        self.push(name, module, role, shape, Init::Normal(0.02 / libm::sqrt(2.0 * layers)), true);
    }

    pub(super) fn bias(&mut self, name: &str, module: Module, role: Role, shape: &[u64]) {
        self.push(name, module, role, shape, Init::Zeros, false);
    }

    /// Parameters that the architecture's family has there and no other.
    fn extras(&mut self, prefix: &str, at: ExtraAt) {
        for Extra { name, shape, .. } in self.architecture.extras.iter().filter(|extra| extra.at == at) {
            let name = format!("{prefix}{name}");
            match shape.as_slice() {
                [_, _, ..] => self.matrix(&name, Module::Norm, Role::Replicated, shape),
                _ => self.push(&name, Module::Norm, Role::Replicated, shape, Init::Ones, false),
            }
        }
    }

    /// A norm of the residual stream, by the architecture's kind.
    pub(super) fn stream_norm(&mut self, name: &str) {
        let (hidden, kind) = (self.architecture.hidden_size, self.architecture.norm);
        self.norm(name, Role::Replicated, &[hidden], kind);
    }

    pub(super) fn norm(&mut self, name: &str, role: Role, shape: &[u64], kind: Norm) {
        let (weight, bias) = kind.parameters();
        if weight {
            self.push(&format!("{name}.weight"), Module::Norm, role, shape, Init::Ones, false);
        }
        if bias {
            self.push(&format!("{name}.bias"), Module::Norm, role, shape, Init::Zeros, false);
        }
    }
}

/// Parameters outside the layers: embedding, then final norm and (unless tied) output layer.
/// `vocabulary` is the number of rows, padded or not.
pub(crate) fn outer_parameters(
    architecture: &Architecture,
    vocabulary: u64,
) -> (Vec<Parameter>, Vec<Parameter>) {
    let hidden = architecture.hidden_size;
    let mut first = List { architecture, found: Vec::new() };
    first.matrix("embedding.weight", Module::Embedding, Role::Vocabulary, &[vocabulary, hidden]);
    if let Some(positions) = architecture.learned_positions {
        first.matrix("embedding.positions.weight", Module::Embedding, Role::Replicated, &[positions, hidden]);
    }
    if architecture.embedding_norm {
        first.stream_norm("embedding.norm");
    }
    first.extras("embedding.", ExtraAt::Embedding);
    layer_input_tables(&mut first);
    let mut last = List { architecture, found: Vec::new() };
    let copies = architecture.hyper_connections;
    if copies > 0 {
        hyper_connection(&mut last, "final", copies, copies, 1);
    }
    if architecture.attention_residuals {
        attention_residual(&mut last, "final");
    }
    for copy in 1..architecture.alternating_updates {
        for (list, what) in [(&mut first, "embedding"), (&mut last, "final")] {
            let name = format!("{what}.alternating.{copy}.weight");
            list.matrix(&name, Module::Norm, Role::Replicated, &[hidden, hidden]);
        }
    }
    if !architecture.no_final_norm {
        last.stream_norm("final_norm");
    }
    last.extras("final.", ExtraAt::Head);
    if !architecture.tied_embeddings {
        last.matrix("head.weight", Module::Head, Role::Vocabulary, &[vocabulary, hidden]);
    }
    if architecture.head_bias {
        last.bias("head.bias", Module::Head, Role::Vocabulary, &[vocabulary]);
    }
    (first.found, last.found)
}

/// Parameters of one layer of `kind`, in the order of the forward pass.
pub(crate) fn layer_parameters(architecture: &Architecture, kind: LayerKind) -> Vec<Parameter> {
    let mut list = List { architecture, found: Vec::new() };
    if let Some(mixer) = architecture.mixer(kind) {
        stream_parameters(&mut list, "layers.{layer}.attention");
        if !(architecture.no_pre_norms || kind.unnormed) {
            list.stream_norm("layers.{layer}.attention.norm");
        }
        mixer.parameters(&mut list);
        list.extras("layers.{layer}.", ExtraAt::Mixer);
        let first = kind.mixer == Some(0);
        list.extras("layers.{layer}.", if first { ExtraAt::Attention } else { ExtraAt::OtherMixer });
        residual_path(&mut list);
        if architecture.post_norms {
            list.stream_norm("layers.{layer}.attention.post_norm");
        }
    }
    if kind.mlp != Mlp::None {
        feed_forward(&mut list, kind);
    }
    layer_input(&mut list);
    list.extras("layers.{layer}.", ExtraAt::Layer);
    list.found
}

fn feed_forward(list: &mut List<'_>, kind: LayerKind) {
    let architecture = list.architecture;
    stream_parameters(list, "layers.{layer}.mlp");
    let shared_norm = architecture.branches == Branches::OneNorm && kind.mixer.is_some();
    if !(architecture.no_pre_norms || shared_norm) {
        list.stream_norm("layers.{layer}.mlp.norm");
    }
    let experts = kind.mlp == Mlp::Moe && architecture.moe.is_some();
    list.extras("layers.{layer}.", if experts { ExtraAt::Experts } else { ExtraAt::Mlp });
    mlp::parameters(list, kind);
    if architecture.post_norms {
        list.stream_norm("layers.{layer}.mlp.post_norm");
    }
}

/// Tables of what each layer gets by word, and the projection that adds to it what the stream says.
fn layer_input_tables(list: &mut List<'_>) {
    let architecture = list.architecture;
    let Some(LayerInputs { vocab_size, width }) = architecture.layer_inputs else { return };
    let all = architecture.num_layers.saturating_mul(width);
    let name = |what: &str| format!("embedding.per_layer{what}.weight");
    list.matrix(&name(""), Module::Embedding, Role::Replicated, &[vocab_size, all]);
    list.matrix(&name("_projection"), Module::Embedding, Role::Replicated, &[all, architecture.hidden_size]);
    list.norm("embedding.per_layer_norm", Role::Replicated, &[width], Norm::Rms);
}

/// How a layer's own input enters the stream, and how the copies of the stream follow from one.
fn layer_input(list: &mut List<'_>) {
    let (hidden, copies) = (list.architecture.hidden_size, list.architecture.alternating_updates);
    let name = |what: &str| format!("layers.{{layer}}.{what}");
    if let Some(LayerInputs { width, .. }) = list.architecture.layer_inputs {
        list.matrix(&name("input_gate.weight"), Module::Mlp, Role::Replicated, &[width, hidden]);
        list.residual_matrix(&name("input_proj.weight"), Module::Mlp, Role::Replicated, &[hidden, width]);
        list.norm(&name("input_post_norm"), Role::Replicated, &[hidden], Norm::Rms);
    }
    if copies > 0 {
        list.bias(&name("alternating.scale"), Module::Norm, Role::Replicated, &[hidden]);
        for (what, outputs, inputs) in
            [("correct", copies, copies), ("predict", copies * copies, copies), ("router", copies, hidden)]
        {
            let name = name(&format!("alternating.{what}.weight"));
            list.matrix(&name, Module::Norm, Role::Replicated, &[outputs, inputs]);
        }
        list.norm(&name("alternating.norm"), Role::Replicated, &[hidden], Norm::Rms);
    }
}

/// A low-rank path around attention.
fn residual_path(list: &mut List<'_>) {
    let (hidden, rank) = (list.architecture.hidden_size, list.architecture.residual_rank);
    if rank > 0 {
        let name = |what: &str| format!("layers.{{layer}}.attention.residual_{what}");
        list.matrix(&name("down.weight"), Module::Attention, Role::Replicated, &[rank, hidden]);
        list.matrix(&name("up.weight"), Module::Attention, Role::Replicated, &[hidden, rank]);
        list.norm(&name("norm"), Role::Replicated, &[hidden], Norm::Rms);
    }
}

/// What connects a part of a layer to the residual stream, where it is more than a sum.
fn stream_parameters(list: &mut List<'_>, part: &str) {
    let (copies, unmixed) = (list.architecture.hyper_connections, list.architecture.hyper_unmixed);
    if copies > 0 {
        // Weights to read the copies, weights to write them, and a matrix between them.
        let (between, scales) = if unmixed { (0, 2) } else { (copies, 3) };
        hyper_connection(list, part, copies, (2 + between) * copies, scales);
    }
    if list.architecture.attention_residuals {
        attention_residual(list, part);
    }
}

fn hyper_connection(list: &mut List<'_>, part: &str, copies: u64, outputs: u64, scales: u64) {
    let hidden = list.architecture.hidden_size;
    let name = |what: &str| format!("{part}.hyper_connection.{what}");
    list.matrix(&name("weight"), Module::Norm, Role::Replicated, &[outputs, copies * hidden]);
    list.bias(&name("bias"), Module::Norm, Role::Replicated, &[outputs]);
    list.push(&name("scale"), Module::Norm, Role::Replicated, &[scales], Init::Ones, false);
}

fn attention_residual(list: &mut List<'_>, part: &str) {
    let hidden = list.architecture.hidden_size;
    list.norm(&format!("{part}.residual.norm"), Role::Replicated, &[hidden], Norm::Rms);
    list.matrix(&format!("{part}.residual.query"), Module::Norm, Role::Replicated, &[1, hidden]);
}

/// Parameters of one multi-token-prediction module: a projection of hidden state and next embedding, whole layers
/// (one of the last layer's kind, unless the architecture says more), three norms. Embedding and output layer are the
/// model's.
pub(crate) fn mtp_parameters(architecture: &Architecture) -> Vec<Parameter> {
    let hidden = architecture.hidden_size;
    let mut list = List { architecture, found: Vec::new() };
    for name in ["embedding_norm", "hidden_norm"] {
        list.stream_norm(&format!("mtp.{{layer}}.{name}"));
    }
    list.matrix("mtp.{layer}.proj.weight", Module::Mtp, Role::Column(0), &[hidden, 2 * hidden]);
    let kinds = architecture.mtp_kinds();
    for (place, &kind) in kinds.iter().enumerate() {
        let prefix =
            if kinds.len() == 1 { "mtp.{layer}".to_owned() } else { format!("mtp.{{layer}}.{place}") };
        for mut parameter in layer_parameters(architecture, kind) {
            parameter.name = parameter.name.replace("layers.{layer}", &prefix);
            list.found.push(parameter);
        }
    }
    list.stream_norm("mtp.{layer}.final_norm");
    list.found
}

/// Trainable parameters of the whole model, once (no vocabulary padding, no tied copy), and how many of them one
/// token uses.
pub fn count(architecture: &Architecture) -> (u64, u64) {
    let (total, active) = total(architecture);
    let fits = |parameters: u128| u64::try_from(parameters).unwrap_or(u64::MAX);
    (fits(total), fits(active))
}

/// How many of the whole model's parameters are in hidden matrices ([`Parameter::is_hidden_matrix`]).
pub(crate) fn hidden_matrix_elements(architecture: &Architecture) -> u64 {
    let layers = architecture
        .layer_kinds()
        .into_iter()
        .map(|(kind, layers)| (layer_parameters(architecture, kind), layers));
    let modules =
        (architecture.mtp_layers > 0).then(|| (mtp_parameters(architecture), architecture.mtp_modules()));
    let of_one = |(parameters, layers): (Vec<Parameter>, u64)| {
        let matrices = parameters.iter().filter(|parameter| parameter.is_hidden_matrix());
        let elements: u128 = matrices.map(|one| u128::from(one.per_layer) * u128::from(one.elements())).sum();
        elements * u128::from(layers)
    };
    u64::try_from(layers.chain(modules).map(of_one).sum::<u128>()).unwrap_or(u64::MAX)
}

/// Elements that are in the model but not trained by gradients: the routers' balancing biases, without prediction modules.
pub fn untrained_elements(architecture: &Architecture) -> u64 {
    let each = architecture.moe.as_ref().map_or(0, |moe| moe.router_bias_buffer);
    let kinds = architecture.layer_kinds().into_iter().filter(|(kind, _)| kind.mlp == Mlp::Moe);
    each.saturating_mul(kinds.map(|(_, layers)| layers).sum())
}

/// `count` in wide arithmetic, for sizes that are not checked yet.
pub(super) fn total(architecture: &Architecture) -> (u128, u128) {
    let (first, last) = outer_parameters(architecture, architecture.vocab_size);
    let elements = |parameter: &Parameter| u128::from(parameter.elements());
    let outer: u128 = first.iter().chain(&last).map(elements).sum();
    let of_kind = |(kind, layers)| (layer_parameters(architecture, kind), layers);
    let modules =
        (architecture.mtp_layers > 0).then(|| (mtp_parameters(architecture), architecture.mtp_modules()));
    let (mut total, mut active) = (outer, outer);
    let (top_k, choices, experts) = architecture.moe.as_ref().map_or((0, 1, 1), |moe| {
        (moe.top_k, moe.experts.saturating_add(moe.identity_experts).max(1), moe.experts.max(1))
    });
    for (parameters, layers) in architecture.layer_kinds().into_iter().map(of_kind).chain(modules) {
        for parameter in parameters {
            let expert = parameter.module == Module::Expert;
            total += u128::from(layers) * u128::from(parameter.per_layer) * elements(&parameter);
            let used = u128::from(layers) * elements(&parameter);
            // Choices without an expert are as likely as others.
            active += match expert {
                true => used * u128::from(top_k) * u128::from(experts) / u128::from(choices),
                false => used * u128::from(parameter.per_layer),
            };
        }
    }
    (total, active)
}
