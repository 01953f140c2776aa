//! Seconds of a micro batch in every kind of layer of a model under a split: what a search keeps over pipelines and batches.

use super::gemm::{Product, forward, input_gradient, weight_gradient};
use super::head::head_time;
use super::layer::{
    ComputeOptions, LayerSplit, LayerTime, LayerWork, MixerWork, Recompute, layer_work, mixer_work,
};
use super::machine::Machine;
use super::shape::{MAX_KINDS, ModelShape};
use super::stages::StageClass;

/// Seconds of a micro batch in every kind of layer, and the elements that each kind puts on a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// By kind.
    pub kinds: Vec<LayerTime>,
    /// Output layer and loss.
    pub head: LayerTime,
    /// A multi-token-prediction module, with its layers and its output layer.
    pub mtp: LayerTime,
    /// Forward and backward together of each kind, of such a module and of the output layer, and what of it are GEMMs and
    /// attention.
    pub(super) totals: ([[f64; 2]; MAX_KINDS], [f64; 2], [f64; 2]),
    /// Kinds that the model has.
    pub(super) known: usize,
    /// Elements of a rank by kind: dense.
    dense: [f64; MAX_KINDS],
    /// Elements of a rank by kind: experts.
    experts: [f64; MAX_KINDS],
    /// Tensors of a rank by kind.
    tensors: [f64; MAX_KINDS],
    /// Dense and expert elements of such a module.
    mtp_elements: [f64; 2],
    /// Elements of the embedding on a rank.
    pub(super) embedding: f64,
    /// Whether the output layer is the embedding.
    pub(super) tied: bool,
    /// Bytes of the stream of a micro batch on a rank.
    pub stream_bytes: f64,
}

/// What terms have in common whatever is computed again.
#[derive(Debug, Clone)]
pub struct WorkTables {
    kinds: Vec<LayerWork>,
    /// Layers of each kind in the model, and modules of multi-token prediction.
    counts: [f64; MAX_KINDS],
    modules: f64,
    /// Kinds of layers of a multi-token-prediction module.
    mtp_layers: Vec<u8>,
    /// Everything but the layers, which are still empty; in the module too. Boxed: it is large, and a search moves works about.
    terms: Box<Terms>,
}

/// What of work tables is the same however experts are split, so that a search keeps it over the axes of experts.
#[derive(Debug, Clone)]
pub struct DenseTables {
    /// By kind.
    mixers: Vec<MixerWork>,
    head: LayerTime,
}

impl DenseTables {
    /// Of a model under a split; what `options` computes again is not looked at.
    pub fn new(
        machine: &Machine,
        split: &LayerSplit,
        options: &ComputeOptions,
        shape: &ModelShape,
    ) -> DenseTables {
        let mixers = shape.kinds.iter().map(|kind| mixer_work(machine, split, options, shape, kind));
        DenseTables { mixers: mixers.collect(), head: head_time(machine, split, options, shape) }
    }
}

impl WorkTables {
    /// Of a model under a split; what `options` computes again is not looked at.
    pub fn new(
        machine: &Machine,
        split: &LayerSplit,
        options: &ComputeOptions,
        shape: &ModelShape,
    ) -> WorkTables {
        WorkTables::with(&DenseTables::new(machine, split, options, shape), machine, split, options, shape)
    }

    /// The same where the tables are known that do not depend on experts.
    #[inline(never)]
    pub fn with(
        dense: &DenseTables,
        machine: &Machine,
        split: &LayerSplit,
        options: &ComputeOptions,
        shape: &ModelShape,
    ) -> WorkTables {
        let mut terms = Terms {
            kinds: Vec::new(),
            head: dense.head,
            mtp: LayerTime::default(),
            totals: ([[0.0; 2]; MAX_KINDS], [0.0; 2], [0.0; 2]),
            known: shape.kinds.len(),
            dense: [0.0; MAX_KINDS],
            experts: [0.0; MAX_KINDS],
            tensors: [0.0; MAX_KINDS],
            mtp_elements: [0.0; 2],
            embedding: shape.vocabulary * shape.hidden / split.tp,
            tied: shape.tied,
            // Without sequence parallelism, each tensor-parallel rank sends its part.
            stream_bytes: 2.0 * split.gathered_tokens() / split.tp * shape.hidden,
        };
        for ((dense, experts), kind) in terms.dense.iter_mut().zip(&mut terms.experts).zip(&shape.kinds) {
            *dense = kind.cut_elements / split.tp + kind.whole_elements;
            *experts = kind.expert_elements / (split.ep * split.etp);
        }
        for (tensors, kind) in terms.tensors.iter_mut().zip(&shape.kinds) {
            *tensors = kind.tensors + kind.expert_tensors / split.ep;
        }
        if !shape.mtp_layers.is_empty() {
            terms.add_mtp(machine, split, options, shape);
        }
        let kinds = shape.kinds.iter().zip(&dense.mixers);
        let kinds = kinds.map(|kind| layer_work(machine, split, options, shape, kind));
        let mut counts = [0.0; MAX_KINDS];
        for &kind in &shape.layers {
            if let Some(count) = counts.get_mut(usize::from(kind)) {
                *count += 1.0;
            }
        }
        WorkTables {
            kinds: kinds.collect(),
            counts,
            modules: shape.mtp_modules,
            mtp_layers: shape.mtp_layers.clone(),
            terms: Box::new(terms),
        }
    }

    /// Terms without layers: what is looked at beside them is there.
    pub fn base(&self) -> &Terms {
        &self.terms
    }

    /// A micro batch in each kind of layer.
    pub(super) fn kinds(&self) -> &[LayerWork] {
        &self.kinds
    }

    /// Layers of each kind in the model.
    pub(super) fn counts(&self) -> &[f64] {
        &self.counts
    }

    /// Modules of multi-token prediction.
    pub(super) fn modules(&self) -> f64 {
        self.modules
    }

    /// Kinds of layers of such a module.
    pub(super) fn mtp_layers(&self) -> &[u8] {
        &self.mtp_layers
    }

    /// With what is computed again.
    pub fn terms(&self, again: &Recompute) -> Terms {
        let mut terms = Terms::clone(&self.terms);
        terms.kinds = self.kinds.iter().map(|work| work.time(again)).collect();
        for (time, total) in terms.kinds.iter().zip(&mut terms.totals.0) {
            *total = [time.total(), time.hot()];
        }
        for &kind in &self.mtp_layers {
            if let Some(time) = terms.kinds.get(usize::from(kind)) {
                terms.mtp.add(time, 1.0);
            }
        }
        terms.totals.1 = [terms.mtp.total(), terms.mtp.hot()];
        terms.totals.2 = [terms.head.total(), terms.head.hot()];
        terms
    }
}

impl Terms {
    /// The terms of a model under a split.
    pub fn new(machine: &Machine, split: &LayerSplit, options: &ComputeOptions, shape: &ModelShape) -> Terms {
        WorkTables::new(machine, split, options, shape).terms(&options.recompute)
    }

    /// A multi-token-prediction module without its layers, and the elements of all of it.
    fn add_mtp(
        &mut self,
        machine: &Machine,
        split: &LayerSplit,
        options: &ComputeOptions,
        shape: &ModelShape,
    ) {
        let hidden = shape.hidden;
        let product = Product {
            rows: split.gathered_tokens(),
            outputs: hidden / split.tp,
            inputs: 2.0 * hidden,
            groups: 1.0,
        };
        let weights = weight_gradient(machine, &machine.gemm, product, options.gradient_bytes);
        self.mtp = self.head;
        self.mtp.forward.gemm += forward(machine, &machine.gemm, product);
        self.mtp.backward.gemm += input_gradient(machine, &machine.gemm, product) + weights;
        self.mtp.weights += weights;
        self.mtp_elements = [2.0 * hidden * hidden / split.tp, 0.0];
        for &kind in &shape.mtp_layers {
            let at = usize::from(kind);
            if let (Some(dense), Some(experts)) = (self.dense.get(at), self.experts.get(at)) {
                self.mtp_elements[0] += dense;
                self.mtp_elements[1] += experts;
            }
        }
    }

    /// A micro batch in the layers of a stage.
    pub(super) fn stage(&self, class: &StageClass) -> LayerTime {
        let mut sum = LayerTime::default();
        for (time, &count) in self.kinds.iter().zip(&class.layers) {
            if count > 0.0 {
                sum.add(time, count);
            }
        }
        if class.mtp > 0.0 {
            sum.add(&self.mtp, class.mtp);
        }
        sum
    }

    /// Tensors of a rank of a stage.
    pub(super) fn tensors(&self, class: &StageClass) -> f64 {
        let layers: f64 = self.tensors.iter().zip(&class.layers).map(|(one, count)| one * count).sum();
        // The output layer has a norm before it.
        layers + class.embedding + 2.0 * class.head
    }

    /// Dense and expert elements of a rank of a stage.
    pub(super) fn elements(&self, class: &StageClass, stages: f64) -> [f64; 2] {
        let of = |each: &[f64; MAX_KINDS]| {
            each.iter().zip(&class.layers).map(|(one, count)| one * count).sum::<f64>()
        };
        // A tied output layer is the embedding itself where one stage holds both, else a copy.
        let head = if self.tied && stages <= 1.0 { 0.0 } else { class.head };
        let outer = self.embedding * (class.embedding + head);
        [
            of(&self.dense) + outer + class.mtp * self.mtp_elements[0],
            of(&self.experts) + class.mtp * self.mtp_elements[1],
        ]
    }
}

impl LayerTime {
    pub(super) fn add(&mut self, other: &LayerTime, times: f64) {
        self.forward += other.forward.times(times);
        self.backward += other.backward.times(times);
        self.again += other.again.times(times);
        self.weights += times * other.weights;
        self.host += times * other.host;
        self.gaps += times * other.gaps;
    }

    /// GEMMs and attention, forward and backward.
    pub(super) fn hot(&self) -> f64 {
        self.forward.gemm + self.forward.attention + self.backward.gemm + self.backward.attention
    }

    /// GEMMs and attention take `share` of their time.
    pub(super) fn quicken(&mut self, share: f64) {
        for parts in [&mut self.forward, &mut self.backward, &mut self.again] {
            parts.gemm *= share;
            parts.attention *= share;
        }
        self.weights *= share;
    }

    /// Forward and backward.
    pub fn total(&self) -> f64 {
        self.forward.total() + self.backward.total()
    }
}
