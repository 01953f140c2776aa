//! A layer's feed-forward part: what its MLPs do, in numbers, and their parameters.

use super::params::{List, Role};
use super::{Activation, Architecture, Init, LayerKind, Mlp, Module, Moe, Norm};

/// The operations of an MLP, dense or one expert, whole: matrices that read the stream, joined in one; an activation of what they
/// give; a matrix that reads what that gives. Each keeps what it reads. Parameters, FLOPs, saved tensors, seconds and workspaces
/// follow from this one list; all tensors but the stream are as wide as the MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MlpOperations {
    /// Width of the stream.
    pub stream: u64,
    /// Its own.
    pub width: u64,
    /// Matrices that read the stream, each of which gives the activation a tensor: gate and up projection, or one.
    pub first: u64,
    /// Tensors that operators of the activation hand to one another, and keep where they are not one kernel: the activated gate.
    pub between: u64,
}

impl MlpOperations {
    /// Matrices, each with as many elements.
    pub fn matrices(&self) -> u64 {
        self.first + 1
    }
}

/// A layer's feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FeedForward<'a> {
    /// None.
    None,
    /// One square matrix, which is among the layer's and keeps nothing but what is kept anyway.
    Linear,
    /// A dense MLP.
    Dense(MlpOperations),
    /// Experts.
    Experts(Experts<'a>),
}

/// Router and experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts<'a> {
    /// The mixture.
    pub moe: &'a Moe,
    /// One of those that tokens are sent to.
    pub routed: MlpOperations,
    /// Those that all tokens go to, together.
    pub shared: Option<MlpOperations>,
}

impl Architecture {
    /// The feed-forward part of layers of `kind`.
    pub fn feed_forward(&self, kind: LayerKind) -> FeedForward<'_> {
        match (kind.mlp, self.experts()) {
            (Mlp::None, _) => FeedForward::None,
            (Mlp::Linear, _) => FeedForward::Linear,
            (Mlp::Moe, Some(experts)) => FeedForward::Experts(experts),
            (Mlp::Dense | Mlp::Moe, _) => FeedForward::Dense(self.mlp(self.hidden_size, self.ffn(kind))),
        }
    }

    /// Its experts.
    pub fn experts(&self) -> Option<Experts<'_>> {
        let moe = self.moe.as_ref()?;
        let shared = moe.shared_ffn_hidden_size;
        Some(Experts {
            moe,
            routed: self.mlp(moe.latent_size.unwrap_or(self.hidden_size), moe.ffn_hidden_size),
            shared: (shared > 0).then(|| self.mlp(self.hidden_size, shared)),
        })
    }

    /// An MLP of the model's kind.
    fn mlp(&self, stream: u64, width: u64) -> MlpOperations {
        let (first, between) = if self.gated { (2, 1) } else { (1, 0) };
        MlpOperations { stream, width, first, between }
    }
}

/// What xIELU's two scalars are before their softplus when it starts (transformers `XIELUActivation`): 0.8 on the positive
/// side, and on the negative one 0.8 less the 0.5 that is added.
const XIELU_STARTS: [(&str, f64); 2] = [("alpha_p", 0.8), ("alpha_n", 0.3)];

/// The feed-forward part of layers of `kind`, without its norms.
pub(super) fn parameters(list: &mut List<'_>, kind: LayerKind) {
    match list.architecture.feed_forward(kind) {
        FeedForward::None => {}
        FeedForward::Linear => {
            let shape = [list.architecture.hidden_size; 2];
            list.matrix("layers.{layer}.mlp.linear.weight", Module::Mlp, Role::Column(0), &shape);
        }
        FeedForward::Dense(mlp) => mlp_parameters(list, "layers.{layer}.mlp", Module::Mlp, &mlp),
        FeedForward::Experts(experts) => moe_parameters(list, &experts),
    }
}

/// A dense MLP, or one expert.
fn mlp_parameters(list: &mut List<'_>, prefix: &str, module: Module, mlp: &MlpOperations) {
    let &MlpOperations { stream: width, width: ffn, first, .. } = mlp;
    let bias = list.architecture.mlp_bias;
    let (first, first_dim): (&[u64], usize) =
        if first > 1 { (&[first, ffn, width], 1) } else { (&[ffn, width], 0) };
    let expert = module == Module::Expert;
    let column = if expert { Role::ExpertColumn(first_dim) } else { Role::Column(first_dim) };
    let row = if expert { Role::ExpertRow(1) } else { Role::Row(1) };
    list.matrix(&format!("{prefix}.fc1.weight"), module, column, first);
    if bias {
        list.bias(&format!("{prefix}.fc1.bias"), module, column, &first[..first.len() - 1]);
    }
    if list.architecture.activation == Activation::Xielu && !expert {
        for (part, slope) in XIELU_STARTS {
            // Each rank sees its own channels.
            let start = Init::Constant(libm::log(libm::expm1(slope)));
            list.push(&format!("{prefix}.{part}"), module, Role::SharedByHeads, &[1], start, false);
        }
    }
    list.residual_matrix(&format!("{prefix}.fc2.weight"), module, row, &[width, ffn]);
    if bias {
        list.bias(&format!("{prefix}.fc2.bias"), module, Role::Replicated, &[width]);
    }
}

/// Router, experts, shared experts.
fn moe_parameters(list: &mut List<'_>, experts: &Experts<'_>) {
    let Experts { moe, routed, shared } = experts;
    let hidden = list.architecture.hidden_size;
    let name = |part: &str| format!("layers.{{layer}}.moe.{part}");
    let choices = moe.experts.saturating_add(moe.identity_experts);
    list.matrix(&name("router.weight"), Module::Router, Role::Replicated, &[choices, hidden]);
    if moe.router_bias {
        list.bias(&name("router.bias"), Module::Router, Role::Replicated, &[choices]);
    }
    if moe.scaled_branches {
        list.push(&name("router.scale"), Module::Router, Role::Replicated, &[hidden], Init::Ones, false);
        let each = &name("router.expert_scale");
        list.push(each, Module::Router, Role::Replicated, &[moe.experts], Init::Ones, false);
        for norm in ["experts_norm", "experts_post_norm", "shared_post_norm"] {
            list.stream_norm(&name(norm));
        }
    }
    if let Some(latent) = moe.latent_size {
        list.matrix(&name("latent_down.weight"), Module::Router, Role::Replicated, &[latent, hidden]);
    }
    mlp_parameters(list, &name("experts.{expert}"), Module::Expert, routed);
    let experts = list.found.iter_mut().filter(|parameter| parameter.module == Module::Expert);
    experts.for_each(|parameter| parameter.per_layer = moe.experts);
    if let Some(latent) = moe.latent_size {
        if moe.latent_norm {
            list.norm(&name("latent_norm"), Role::Replicated, &[latent], Norm::Rms);
        }
        list.residual_matrix(&name("latent_up.weight"), Module::Router, Role::Replicated, &[hidden, latent]);
    }
    if moe.shared_gate {
        list.matrix(&name("shared.gate.weight"), Module::SharedExpert, Role::Replicated, &[1, hidden]);
    }
    if let Some(shared) = shared {
        mlp_parameters(list, &name("shared"), Module::SharedExpert, shared);
    }
}
