//! What the time of a model's layers depends on, counted once for each model.

use std::ops::Range;

use super::matrices::{Matrix, MatrixCut, matrices};
use crate::model::{
    Architecture, Attention, Core, Experts, FeedForward, LayerKind, MixerRef, MlpOperations, Model, Module,
    Scan,
};

/// Most kinds of layers that a model may have here: mixers by feed-forward parts.
pub(super) const MAX_KINDS: usize = 16;

/// Sizes of a model, as seconds see them.
#[derive(Debug, Clone)]
pub struct ModelShape {
    /// Width of the residual stream.
    pub hidden: f64,
    /// Width of the output layer.
    pub vocabulary: f64,
    /// Kinds of layers, those in the compute type apart from those in fewer bits.
    pub kinds: Vec<KindShape>,
    /// Index into `kinds` of every layer, in order.
    pub layers: Vec<u8>,
    /// Multi-token-prediction modules.
    pub mtp_modules: f64,
    /// Indices into `kinds` of the layers of one such module.
    pub mtp_layers: Vec<u8>,
    /// Whether the output layer is the embedding.
    pub tied: bool,
}

/// One kind of layer.
#[derive(Debug, Clone)]
pub struct KindShape {
    /// Which.
    pub kind: LayerKind,
    /// Whether a recipe of low precision leaves it in the compute type.
    pub wide: bool,
    /// Whether something mixes tokens.
    pub mixes: bool,
    /// The attention in it.
    pub core: Option<Core>,
    /// The recurrence in it, alone or beside attention.
    pub scan: Option<Scan>,
    /// Its matrices.
    pub matrices: Vec<Matrix>,
    /// The feed-forward part.
    pub mlp: MlpShape,
    /// Elements that tensor parallelism cuts.
    pub cut_elements: f64,
    /// Elements that every tensor-parallel rank has.
    pub whole_elements: f64,
    /// Elements of all routed experts.
    pub expert_elements: f64,
    /// Tensors, without routed experts.
    pub tensors: f64,
    /// Tensors of all routed experts.
    pub expert_tensors: f64,
}

/// The feed-forward part, in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MlpShape {
    /// None.
    None,
    /// Dense.
    Dense(MlpOperations),
    /// Experts.
    Experts {
        /// Number.
        experts: f64,
        /// Experts of a token.
        top_k: f64,
        /// One of them.
        routed: MlpOperations,
        /// The shared experts together.
        shared: Option<MlpOperations>,
        /// Whether they have biases, which keeps their activation from being one fused pass.
        biased: bool,
    },
}

impl ModelShape {
    /// The shape of `model` with an output layer of `vocabulary` rows, whose layers outside `low` a recipe of low precision leaves in the
    /// compute type.
    pub fn of(model: &Model, vocabulary: u64, low: &Range<u64>) -> Self {
        let mut kinds: Vec<KindShape> = Vec::new();
        let mut known: Vec<(LayerKind, bool, u8)> = Vec::new();
        let mut index = |kind: LayerKind, wide: bool| {
            if let Some((_, _, at)) = known.iter().find(|(one, is, _)| (*one, *is) == (kind, wide)) {
                return *at;
            }
            let shape = KindShape { wide, ..kind_shape(model, kind) };
            let at = if kinds.len() < MAX_KINDS {
                kinds.push(shape);
                kinds.len() - 1
            } else {
                // A model with more kinds than there is room for counts the rest as those that they are most like.
                shape.most_like(&kinds)
            };
            known.push((kind, wide, at as u8));
            at as u8
        };
        let layers = (0..model.num_layers)
            .map(|layer| index(model.layer_kind(layer), !low.contains(&layer)))
            .collect();
        let mtp_layers = if model.mtp_layers > 0 {
            model.mtp_kinds().into_iter().map(|kind| index(kind, false)).collect()
        } else {
            Vec::new()
        };
        ModelShape {
            hidden: model.hidden_size as f64,
            vocabulary: vocabulary as f64,
            kinds,
            layers,
            mtp_modules: model.mtp_layers as f64,
            mtp_layers,
            tied: model.tied_embeddings,
        }
    }
}

impl KindShape {
    /// The place of the kind with nearly as many elements in its matrices, of those with experts and a mixer where this has them.
    fn most_like(&self, kinds: &[KindShape]) -> usize {
        let elements = |kind: &KindShape| kind.cut_elements + kind.whole_elements;
        let apart = |kind: &KindShape| {
            let other = [
                kind.mixes != self.mixes,
                (kind.expert_elements > 0.0) != (self.expert_elements > 0.0),
                kind.wide != self.wide,
            ];
            let unlike = other.into_iter().filter(|differs| *differs).count() as f64;
            let (one, least) = (elements(kind), elements(self).max(1.0));
            unlike * 10.0 + (one / least - 1.0).abs()
        };
        let places = (0..kinds.len()).filter_map(|at| Some((at, apart(kinds.get(at)?))));
        places.min_by(|one, other| one.1.total_cmp(&other.1)).map_or(0, |found| found.0)
    }
}

fn kind_shape(model: &Model, kind: LayerKind) -> KindShape {
    let (mut cut, mut whole, mut experts) = (0.0, 0.0, 0.0);
    let (mut tensors, mut expert_tensors) = (0.0, 0.0);
    let matrices = matrices(model, kind);
    let mixer = model.mixer(kind);
    for parameter in model.layer_parameters(kind) {
        let elements = parameter.elements() as f64 * parameter.per_layer as f64;
        if parameter.module == Module::Expert {
            experts += elements;
            expert_tensors += parameter.per_layer as f64;
        } else {
            whole += elements;
            tensors += parameter.per_layer as f64;
        }
    }
    for matrix in
        matrices.iter().filter(|matrix| matrix.cut != MatrixCut::None && matrix.module != Module::Expert)
    {
        cut += matrix.outputs as f64 * matrix.inputs as f64;
    }
    KindShape {
        kind,
        wide: false,
        mixes: mixer.is_some(),
        core: mixer.and_then(MixerRef::attention).map(Attention::core),
        scan: mixer.and_then(MixerRef::scan),
        matrices,
        mlp: mlp_shape(model, kind),
        cut_elements: cut,
        whole_elements: (whole - cut).max(0.0),
        expert_elements: experts,
        tensors,
        expert_tensors,
    }
}

fn mlp_shape(model: &Architecture, kind: LayerKind) -> MlpShape {
    match model.feed_forward(kind) {
        FeedForward::None => MlpShape::None,
        FeedForward::Experts(Experts { moe, routed, shared }) => MlpShape::Experts {
            experts: moe.experts as f64,
            top_k: moe.computed_top_k(),
            routed,
            shared,
            biased: model.mlp_bias,
        },
        // An activation is counted behind it, which it does not have: its seconds are those of an MLP of one first matrix.
        FeedForward::Linear => {
            let width = model.hidden_size;
            MlpShape::Dense(MlpOperations { stream: width, width, first: 1, between: 0 })
        }
        FeedForward::Dense(mlp) => MlpShape::Dense(mlp),
    }
}
