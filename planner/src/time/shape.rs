//! What the time of a model's layers depends on, counted once for each model.

use super::matrices::{Matrix, MatrixCut, matrices};
use crate::model::{
    Architecture, Core, Experts, FeedForward, LayerKind, MixerRef, Module, Reach, Scan, layer_parameters,
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
    /// Kinds of layers, each with how many of it the model has.
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
    /// What mixes tokens, in numbers.
    pub mixer: MixerShape,
    /// What mixes them at the same time, in a layer with two.
    pub beside: MixerShape,
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

/// What mixes tokens beside its projections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MixerShape {
    /// Nothing.
    None,
    /// Softmax attention.
    Attention {
        /// Query heads.
        heads: f64,
        /// Heads with keys and values of their own.
        kv_heads: f64,
        /// Width of a query and key head.
        query_dim: f64,
        /// Width of a value head.
        value_dim: f64,
        /// Whether queries and keys have norms.
        query_norm: bool,
        /// What tensor parallelism gathers instead of the stream, where it gathers low ranks.
        gathered: Option<f64>,
        /// How far a token sees.
        span: Reach,
    },
    /// A state-space model or delta rule.
    Recurrence {
        /// Heads.
        heads: f64,
        /// Width of all heads together.
        inner: f64,
        /// FLOPs of the scan of one token, forward.
        flops: f64,
        /// Bytes of memory traffic of one token beside matrices, forward, per unit of inner width.
        forward_bytes: f64,
        /// The same backward.
        backward_bytes: f64,
    },
}

/// The feed-forward part, in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MlpShape {
    /// None.
    None,
    /// Dense.
    Dense {
        /// Width.
        ffn: f64,
        /// Tensors that its activation reads, each as wide; it writes one.
        inputs: f64,
    },
    /// Experts.
    Experts {
        /// Number.
        experts: f64,
        /// Experts of a token.
        top_k: f64,
        /// Width of one.
        ffn: f64,
        /// Tensors that its activation reads, each as wide; it writes one.
        inputs: f64,
        /// Width of the stream that they work in.
        width: f64,
        /// Width of the shared experts together.
        shared: f64,
        /// Whether they have biases, which keeps their activation from being one fused pass.
        biased: bool,
    },
}

impl ModelShape {
    /// The shape of `model` with an output layer of `vocabulary` rows.
    pub fn of(model: &Architecture, vocabulary: u64) -> Self {
        let mut kinds: Vec<KindShape> = Vec::new();
        let mut known: Vec<(LayerKind, u8)> = Vec::new();
        let mut index = |kind: LayerKind| {
            if let Some((_, at)) = known.iter().find(|(one, _)| *one == kind) {
                return *at;
            }
            let shape = kind_shape(model, kind);
            let at = if kinds.len() < MAX_KINDS {
                kinds.push(shape);
                kinds.len() - 1
            } else {
                // A model with more kinds than there is room for counts the rest as those that they are most like.
                shape.most_like(&kinds)
            };
            known.push((kind, at as u8));
            at as u8
        };
        let layers = (0..model.num_layers).map(|layer| index(model.layer_kind(layer))).collect();
        let mtp_layers = if model.mtp_layers > 0 {
            model.mtp_kinds().into_iter().map(index).collect()
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
                (kind.mixer == MixerShape::None) != (self.mixer == MixerShape::None),
                (kind.expert_elements > 0.0) != (self.expert_elements > 0.0),
            ];
            let unlike = other.into_iter().filter(|differs| *differs).count() as f64;
            let (one, least) = (elements(kind), elements(self).max(1.0));
            unlike * 10.0 + (one / least - 1.0).abs()
        };
        let places = (0..kinds.len()).filter_map(|at| Some((at, apart(kinds.get(at)?))));
        places.min_by(|one, other| one.1.total_cmp(&other.1)).map_or(0, |found| found.0)
    }
}

fn kind_shape(model: &Architecture, kind: LayerKind) -> KindShape {
    let (mut cut, mut whole, mut experts) = (0.0, 0.0, 0.0);
    let (mut tensors, mut expert_tensors) = (0.0, 0.0);
    let matrices = matrices(model, kind);
    let [mixer, beside] = MixerShape::both(model.mixer(kind));
    for parameter in layer_parameters(model, kind) {
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
        mixer,
        beside,
        matrices,
        mlp: mlp_shape(model, kind),
        cut_elements: cut,
        whole_elements: (whole - cut).max(0.0),
        expert_elements: experts,
        tensors,
        expert_tensors,
    }
}

impl MixerShape {
    /// Of attention.
    fn of_core(core: &Core) -> MixerShape {
        let &Core { heads, kv_heads, query_dim, value_dim, normed, gathered, span, .. } = core;
        MixerShape::Attention {
            heads: heads as f64,
            kv_heads: kv_heads as f64,
            query_dim: query_dim as f64,
            value_dim: value_dim as f64,
            query_norm: normed,
            gathered: gathered.map(|width| width as f64),
            span,
        }
    }

    /// Of a recurrence; where there is none but a matrix, which is among the layer's, nothing is added to it.
    fn of_scan(scan: Option<Scan>) -> MixerShape {
        let [forward_bytes, backward_bytes] = scan.map_or([0.0; 2], |scan| scan.traffic);
        MixerShape::Recurrence {
            heads: scan.map_or(0.0, |scan| scan.heads as f64),
            inner: scan.map_or(0.0, |scan| scan.channels as f64),
            flops: scan.map_or(0.0, |scan| scan.flops),
            forward_bytes,
            backward_bytes,
        }
    }

    /// Of a mixer, and of what it has beside that.
    fn both(mixer: Option<MixerRef<'_>>) -> [MixerShape; 2] {
        let Some(mixer) = mixer else { return [MixerShape::None; 2] };
        match (mixer.attention(), mixer.scan()) {
            (Some(attention), scan) => {
                let beside = scan.map_or(MixerShape::None, |scan| MixerShape::of_scan(Some(scan)));
                [MixerShape::of_core(&attention.core()), beside]
            }
            (None, scan) => [MixerShape::of_scan(scan), MixerShape::None],
        }
    }
}

fn mlp_shape(model: &Architecture, kind: LayerKind) -> MlpShape {
    match model.feed_forward(kind) {
        FeedForward::None => MlpShape::None,
        FeedForward::Experts(Experts { moe, routed, shared }) => MlpShape::Experts {
            experts: moe.experts as f64,
            top_k: moe.computed_top_k(),
            ffn: routed.width as f64,
            inputs: routed.first as f64,
            width: routed.stream as f64,
            shared: shared.map_or(0.0, |shared| shared.width as f64),
            biased: model.mlp_bias,
        },
        // An activation is counted behind it, which it does not have: its seconds are those of an MLP of one first matrix.
        FeedForward::Linear => MlpShape::Dense { ffn: model.hidden_size as f64, inputs: 1.0 },
        FeedForward::Dense(mlp) => MlpShape::Dense { ffn: mlp.width as f64, inputs: mlp.first as f64 },
    }
}
