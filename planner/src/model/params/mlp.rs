//! Parameters of a layer's feed-forward part.

use super::{List, Role};
use crate::model::{Activation, Init, Module, Moe, Norm};

/// What xIELU's two scalars are before their softplus when it starts (transformers `XIELUActivation`): 0.8 on the positive
/// side, and on the negative one 0.8 less the 0.5 that is added.
const XIELU_STARTS: [(&str, f64); 2] = [("alpha_p", 0.8), ("alpha_n", 0.3)];

/// A dense MLP, or one expert, on a stream of `width`.
pub(super) fn mlp_parameters(list: &mut List<'_>, prefix: &str, module: Module, width: u64, ffn: u64) {
    let (gated, bias) = (list.architecture.gated, list.architecture.mlp_bias);
    let (first, first_dim): (&[u64], usize) = if gated { (&[2, ffn, width], 1) } else { (&[ffn, width], 0) };
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
pub(super) fn moe_parameters(list: &mut List<'_>, moe: &Moe) {
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
    let width = moe.latent_size.unwrap_or(hidden);
    if let Some(latent) = moe.latent_size {
        list.matrix(&name("latent_down.weight"), Module::Router, Role::Replicated, &[latent, hidden]);
    }
    mlp_parameters(list, &name("experts.{expert}"), Module::Expert, width, moe.ffn_hidden_size);
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
    if moe.shared_ffn_hidden_size > 0 {
        mlp_parameters(list, &name("shared"), Module::SharedExpert, hidden, moe.shared_ffn_hidden_size);
    }
}
