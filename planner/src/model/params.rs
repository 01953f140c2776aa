//! The list of parameters of an architecture: name, shape, role, start. How each is cut is `crate::shard`'s matter.
//!
//! Shapes are logical: the fused query-key-value matrix is `[kv_heads, queries per kv head + 2, head_dim, hidden]`
//! and a gated first MLP matrix `[2, ffn, hidden]`, so that every tensor-parallel cut is one contiguous range of one
//! dim. In memory they are the frameworks' two-dimensional matrices.

use super::{Architecture, Attention, Norm, QkNorm};
use crate::shard::{Init, Module};

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
    /// The same on every tensor-parallel rank, but each sees only its own heads: its gradient is always a part.
    SharedByHeads,
    /// First expert matrix, cut along the dim given by expert tensor parallelism.
    ExpertColumn(usize),
    /// Second expert matrix, likewise.
    ExpertRow(usize),
}

/// Whether a layer's MLP is dense or a mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerKind {
    /// A dense MLP.
    Dense,
    /// Router and experts.
    Moe,
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
}

struct List<'a> {
    architecture: &'a Architecture,
    found: Vec<Parameter>,
}

impl List<'_> {
    fn push(&mut self, name: &str, module: Module, role: Role, shape: &[u64], init: Init, decays: bool) {
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

    fn matrix(&mut self, name: &str, module: Module, role: Role, shape: &[u64]) {
        self.push(name, module, role, shape, Init::Normal(0.02), true);
    }

    /// A matrix that writes into the residual stream: starts smaller, so that depth doesn't grow the stream (GPT-2).
    fn residual_matrix(&mut self, name: &str, module: Module, role: Role, shape: &[u64]) {
        let layers = self.architecture.num_layers.max(1) as f64;
        self.push(name, module, role, shape, Init::Normal(0.02 / libm::sqrt(2.0 * layers)), true);
    }

    fn bias(&mut self, name: &str, module: Module, role: Role, shape: &[u64]) {
        self.push(name, module, role, shape, Init::Zeros, false);
    }

    fn norm(&mut self, name: &str, role: Role, shape: &[u64], kind: Norm) {
        self.push(&format!("{name}.weight"), Module::Norm, role, shape, Init::Ones, false);
        if kind == Norm::Layer {
            self.push(&format!("{name}.bias"), Module::Norm, role, shape, Init::Zeros, false);
        }
    }
}

/// Parameters outside the layers: embedding, then final norm and (unless tied) output layer.
/// `vocabulary` is the number of rows, padded or not.
pub fn outer_parameters(architecture: &Architecture, vocabulary: u64) -> (Vec<Parameter>, Vec<Parameter>) {
    let hidden = architecture.hidden_size;
    let mut first = List { architecture, found: Vec::new() };
    first.matrix("embedding.weight", Module::Embedding, Role::Vocabulary, &[vocabulary, hidden]);
    if let Some(positions) = architecture.learned_positions {
        first.matrix("embedding.positions.weight", Module::Embedding, Role::Replicated, &[positions, hidden]);
    }
    let mut last = List { architecture, found: Vec::new() };
    last.norm("final_norm", Role::Replicated, &[hidden], architecture.norm);
    if !architecture.tied_embeddings {
        last.matrix("head.weight", Module::Head, Role::Vocabulary, &[vocabulary, hidden]);
    }
    (first.found, last.found)
}

/// Parameters of one layer of `kind`, in the order of the forward pass.
pub fn layer_parameters(architecture: &Architecture, kind: LayerKind) -> Vec<Parameter> {
    let mut list = List { architecture, found: Vec::new() };
    attention_parameters(&mut list);
    list.norm("layers.{layer}.mlp.norm", Role::Replicated, &[architecture.hidden_size], architecture.norm);
    match (kind, &architecture.moe) {
        (LayerKind::Moe, Some(moe)) => {
            let hidden = architecture.hidden_size;
            list.matrix(
                "layers.{layer}.moe.router.weight",
                Module::Router,
                Role::Replicated,
                &[moe.experts, hidden],
            );
            if moe.router_bias {
                list.bias("layers.{layer}.moe.router.bias", Module::Router, Role::Replicated, &[moe.experts]);
            }
            mlp_parameters(
                &mut list,
                "layers.{layer}.moe.experts.{expert}",
                Module::Expert,
                moe.ffn_hidden_size,
            );
            let experts = list.found.iter_mut().filter(|parameter| parameter.module == Module::Expert);
            experts.for_each(|parameter| parameter.per_layer = moe.experts);
            if moe.shared_gate {
                let gate = "layers.{layer}.moe.shared.gate.weight";
                list.matrix(gate, Module::SharedExpert, Role::Replicated, &[1, hidden]);
            }
            if moe.shared_ffn_hidden_size > 0 {
                mlp_parameters(
                    &mut list,
                    "layers.{layer}.moe.shared",
                    Module::SharedExpert,
                    moe.shared_ffn_hidden_size,
                );
            }
        }
        _ => mlp_parameters(&mut list, "layers.{layer}.mlp", Module::Mlp, architecture.ffn_hidden_size),
    }
    list.found
}

/// Parameters of one multi-token-prediction module: a projection of hidden state and next embedding, a whole layer of
/// the last layer's kind, three norms. Embedding and output layer are the model's.
pub fn mtp_parameters(architecture: &Architecture) -> Vec<Parameter> {
    let hidden = architecture.hidden_size;
    let mut list = List { architecture, found: Vec::new() };
    for name in ["embedding_norm", "hidden_norm"] {
        list.norm(&format!("mtp.{{layer}}.{name}"), Role::Replicated, &[hidden], architecture.norm);
    }
    list.matrix("mtp.{layer}.proj.weight", Module::Mtp, Role::Column(0), &[hidden, 2 * hidden]);
    let kind = architecture.layer_kind(architecture.num_layers.saturating_sub(1));
    for mut parameter in layer_parameters(architecture, kind) {
        parameter.name = parameter.name.replace("layers.{layer}", "mtp.{layer}");
        list.found.push(parameter);
    }
    list.norm("mtp.{layer}.final_norm", Role::Replicated, &[hidden], architecture.norm);
    list.found
}

fn mlp_parameters(list: &mut List<'_>, prefix: &str, module: Module, ffn: u64) {
    let (hidden, gated, bias) =
        (list.architecture.hidden_size, list.architecture.gated, list.architecture.mlp_bias);
    let (first, first_dim): (&[u64], usize) =
        if gated { (&[2, ffn, hidden], 1) } else { (&[ffn, hidden], 0) };
    let expert = module == Module::Expert;
    let column = if expert { Role::ExpertColumn(first_dim) } else { Role::Column(first_dim) };
    let row = if expert { Role::ExpertRow(1) } else { Role::Row(1) };
    list.matrix(&format!("{prefix}.fc1.weight"), module, column, first);
    if bias {
        list.bias(&format!("{prefix}.fc1.bias"), module, column, &first[..first.len() - 1]);
    }
    list.residual_matrix(&format!("{prefix}.fc2.weight"), module, row, &[hidden, ffn]);
    if bias {
        list.bias(&format!("{prefix}.fc2.bias"), module, Role::Replicated, &[hidden]);
    }
}

fn attention_parameters(list: &mut List<'_>) {
    let architecture = list.architecture;
    let hidden = architecture.hidden_size;
    let name = |part: &str| format!("layers.{{layer}}.attention.{part}");
    list.norm(&name("norm"), Role::Replicated, &[hidden], architecture.norm);
    match architecture.attention {
        Attention::Gqa { heads, kv_heads, head_dim, qk_norm, qkv_bias, out_bias, sinks, .. } => {
            if sinks {
                list.bias(&name("sinks"), Module::Attention, Role::Column(0), &[heads]);
            }
            let rows = [kv_heads, heads / kv_heads.max(1) + 2, head_dim];
            let shape = [rows[0], rows[1], rows[2], hidden];
            list.matrix(&name("qkv.weight"), Module::Attention, Role::Qkv, &shape);
            if qkv_bias {
                list.bias(&name("qkv.bias"), Module::Attention, Role::Qkv, &rows);
            }
            match qk_norm {
                QkNorm::None => {}
                QkNorm::PerHead => {
                    list.norm(&name("q_norm"), Role::SharedByHeads, &[head_dim], Norm::Rms);
                    list.norm(&name("k_norm"), Role::SharedByHeads, &[head_dim], Norm::Rms);
                }
                QkNorm::Full => {
                    list.norm(&name("q_norm"), Role::Column(0), &[heads, head_dim], Norm::Rms);
                    list.norm(&name("k_norm"), Role::Column(0), &[kv_heads, head_dim], Norm::Rms);
                }
            }
            list.residual_matrix(
                &name("proj.weight"),
                Module::Attention,
                Role::Row(1),
                &[hidden, heads, head_dim],
            );
            if out_bias {
                list.bias(&name("proj.bias"), Module::Attention, Role::Replicated, &[hidden]);
            }
        }
        Attention::Mla { heads, q_lora_rank, kv_lora_rank, qk_nope_dim, qk_rope_dim, v_dim } => {
            let query = qk_nope_dim + qk_rope_dim;
            match q_lora_rank {
                Some(rank) => {
                    list.matrix(&name("q_down.weight"), Module::Attention, Role::Replicated, &[rank, hidden]);
                    list.norm(&name("q_norm"), Role::Replicated, &[rank], Norm::Rms);
                    list.matrix(
                        &name("q_up.weight"),
                        Module::Attention,
                        Role::Column(0),
                        &[heads, query, rank],
                    );
                }
                None => list.matrix(
                    &name("q.weight"),
                    Module::Attention,
                    Role::Column(0),
                    &[heads, query, hidden],
                ),
            }
            let down = [kv_lora_rank + qk_rope_dim, hidden];
            list.matrix(&name("kv_down.weight"), Module::Attention, Role::Replicated, &down);
            list.norm(&name("kv_norm"), Role::Replicated, &[kv_lora_rank], Norm::Rms);
            let up = [heads, qk_nope_dim + v_dim, kv_lora_rank];
            list.matrix(&name("kv_up.weight"), Module::Attention, Role::Column(0), &up);
            list.residual_matrix(
                &name("proj.weight"),
                Module::Attention,
                Role::Row(1),
                &[hidden, heads, v_dim],
            );
        }
    }
}

/// Trainable parameters of the whole model, once (no vocabulary padding, no tied copy), and how many of them one
/// token uses.
pub fn count(architecture: &Architecture) -> (u64, u64) {
    let (first, last) = outer_parameters(architecture, architecture.vocab_size);
    let outer: u64 = first.iter().chain(&last).map(Parameter::elements).sum();
    let moe_layers = architecture.moe_layers();
    let layers = [(LayerKind::Dense, architecture.num_layers - moe_layers), (LayerKind::Moe, moe_layers)];
    let of_kind = |(kind, layers)| (layer_parameters(architecture, kind), layers);
    let modules = (mtp_parameters(architecture), architecture.mtp_layers);
    let (mut total, mut active) = (outer, outer);
    let top_k = architecture.moe.as_ref().map_or(0, |moe| moe.top_k);
    for (parameters, layers) in
        layers.into_iter().map(of_kind).chain([modules]).filter(|(_, layers)| *layers > 0)
    {
        for parameter in parameters {
            let used = if parameter.module == Module::Expert { top_k } else { parameter.per_layer };
            total += layers * parameter.per_layer * parameter.elements();
            active += layers * used * parameter.elements();
        }
    }
    (total, active)
}
