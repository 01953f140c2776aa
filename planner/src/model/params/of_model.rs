//! A plan's model: an architecture whose parameters are listed once for all who ask.

use std::ops::Deref;
use std::sync::Arc;

use super::{Parameter, layer_parameters, mtp_parameters};
use crate::model::{Architecture, LayerKind};

/// An architecture with the list of its parameters. It can be read as the architecture, and not be changed: another architecture
/// has another list.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    architecture: Architecture,
    /// Of one layer of each kind.
    layers: Vec<(LayerKind, Vec<Arc<Parameter>>)>,
    /// Of one module of multi-token prediction; none where the model has no such modules.
    prediction: Vec<Arc<Parameter>>,
}

impl Model {
    /// Lists the parameters of an architecture.
    pub fn new(architecture: Architecture) -> Model {
        let shared = |parameters: Vec<Parameter>| parameters.into_iter().map(Arc::new).collect();
        let predicts = architecture.mtp_layers > 0;
        let mut layers: Vec<(LayerKind, Vec<Arc<Parameter>>)> = Vec::new();
        let of_layers = architecture.layer_kinds().into_iter().map(|(kind, _)| kind);
        for kind in of_layers.chain(if predicts { architecture.mtp_kinds() } else { Vec::new() }) {
            if layers.iter().all(|(known, _)| *known != kind) {
                layers.push((kind, shared(layer_parameters(&architecture, kind))));
            }
        }
        let prediction = if predicts { shared(mtp_parameters(&architecture)) } else { Vec::new() };
        Model { architecture, layers, prediction }
    }

    /// The same without modules of multi-token prediction.
    pub(crate) fn without_prediction(&self) -> Model {
        let architecture = Architecture { mtp_layers: 0, ..self.architecture.clone() };
        Model { architecture, layers: self.layers.clone(), prediction: Vec::new() }
    }

    /// Parameters of one of its layers of `kind`, in the order of the forward pass; none of a kind that it does not have.
    pub(crate) fn layer_parameters(&self, kind: LayerKind) -> &[Arc<Parameter>] {
        self.layers.iter().find(|(known, _)| *known == kind).map_or(&[], |(_, parameters)| parameters)
    }

    /// Parameters of one module of multi-token prediction.
    pub(crate) fn mtp_parameters(&self) -> &[Arc<Parameter>] {
        &self.prediction
    }
}

impl Deref for Model {
    type Target = Architecture;

    fn deref(&self) -> &Architecture {
        &self.architecture
    }
}
