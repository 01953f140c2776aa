//! The matrices of a layer that tokens are multiplied with, read off the list of parameters: FLOPs and seconds count
//! the same ones.

use crate::model::{LayerKind, Model, Module, Parameter, Role};

/// How tensor parallelism cuts a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixCut {
    /// Along its outputs.
    Outputs,
    /// Along its inputs.
    Inputs,
    /// Not at all.
    None,
}

/// A matrix of `outputs` by `inputs` that every token (or every token of an expert) is multiplied with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Matrix {
    /// What it belongs to.
    pub module: Module,
    /// Output features.
    pub outputs: u64,
    /// Input features.
    pub inputs: u64,
    /// How tensor parallelism (of experts: expert tensor parallelism) cuts it.
    pub cut: MatrixCut,
    /// Whether it undoes a low-rank projection of latent attention, and is recomputed with `mla_up_proj`.
    pub up_projection: bool,
    /// Whether it leads into or out of the latent stream of routed experts.
    pub latent: bool,
}

/// The matrices of a layer of `kind`, in the order of the forward pass.
pub fn matrices(model: &Model, kind: LayerKind) -> Vec<Matrix> {
    model.layer_parameters(kind).iter().filter_map(|parameter| matrix(parameter)).collect()
}

fn matrix(parameter: &Parameter) -> Option<Matrix> {
    let elements = parameter.elements();
    let (outputs, cut) = match parameter.role {
        Role::Row(_) | Role::ExpertRow(_) => (*parameter.shape.first()?, MatrixCut::Inputs),
        Role::Column(_) | Role::Qkv | Role::ExpertColumn(_) => {
            (elements / (*parameter.shape.last()?).max(1), MatrixCut::Outputs)
        }
        Role::Replicated => (elements / (*parameter.shape.last()?).max(1), MatrixCut::None),
        Role::Vocabulary | Role::SharedByHeads => return None,
    };
    // A convolution runs along the tokens of one channel.
    if !parameter.is_matrix() || parameter.module == Module::Norm {
        return None;
    }
    let name = parameter.name.as_str();
    Some(Matrix {
        module: parameter.module,
        outputs,
        inputs: elements / outputs.max(1),
        cut,
        up_projection: name.ends_with("attention.q_up.weight") || name.ends_with("attention.kv_up.weight"),
        latent: name.ends_with("latent_down.weight") || name.ends_with("latent_up.weight"),
    })
}
