//! Every parameter of a whole model, by its name.

use super::refused;
use crate::finding::Finding;
use crate::model::{
    Architecture, Attention, LayerKind, Mixer, Parameter, layer_parameters, mtp_parameters, outer_parameters,
};

/// Most parameters that are listed: those of 2,000 layers of 1,000 experts.
const MOST: u64 = 4_000_000;

/// A parameter and where in the model it is.
pub(super) struct Listed<'a> {
    /// Its name, with the numbers of layer and expert.
    pub name: String,
    /// Its name without list, layer and expert, such as `moe.experts.fc1.weight`.
    pub part: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The list that it is in.
    pub place: Place,
    /// Its expert, and how many there are.
    pub expert: Option<(u64, u64)>,
    /// The attention of its layer.
    pub attention: Option<&'a Attention>,
}

/// Where in a model a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Outside,
    Layer(u64),
    /// In a module of multi-token prediction.
    Prediction(u64),
}

/// Names and whole shapes of a model's parameters, vocabulary not padded, in the order of the forward pass: those that
/// `hf_tensors` maps.
///
/// # Errors
/// A finding where there are too many, or one is too large to be counted.
pub fn whole_parameters(model: &Architecture) -> Result<Vec<(String, Vec<u64>)>, Box<Finding>> {
    Ok(listed(model)?.into_iter().map(|parameter| (parameter.name, parameter.shape)).collect())
}

pub(super) fn listed(model: &Architecture) -> Result<Vec<Listed<'_>>, Box<Finding>> {
    let (first, last) = outer_parameters(model, model.vocab_size);
    let mut found = Vec::new();
    add(&mut found, &first, Place::Outside, None)?;
    for layer in 0..model.num_layers {
        let kind = model.layer_kind(layer);
        add(&mut found, &layer_parameters(model, kind), Place::Layer(layer), attention(model, kind))?;
    }
    add(&mut found, &last, Place::Outside, None)?;
    let kinds = model.mtp_kinds();
    // Of several layers of a module no file is known.
    let kind = kinds.first().filter(|_| kinds.len() == 1);
    for module in 0..model.mtp_modules() {
        let attention = kind.and_then(|&kind| attention(model, kind));
        add(&mut found, &mtp_parameters(model), Place::Prediction(module), attention)?;
    }
    Ok(found)
}

fn attention(model: &Architecture, kind: LayerKind) -> Option<&Attention> {
    match kind.mixer? {
        0 => Some(&model.attention),
        other => match model.other_mixers.get(usize::try_from(other - 1).ok()?)? {
            Mixer::Attention(attention) => Some(attention),
            _ => None,
        },
    }
}

fn add<'a>(
    found: &mut Vec<Listed<'a>>,
    parameters: &[Parameter],
    place: Place,
    attention: Option<&'a Attention>,
) -> Result<(), Box<Finding>> {
    for parameter in parameters {
        let elements = parameter.shape.iter().try_fold(1_u64, |all, &dim| all.checked_mul(dim));
        let all = elements.and_then(|elements| elements.checked_mul(parameter.per_layer.max(1)));
        let more = parameter.per_layer.saturating_add(found.len() as u64);
        if all.is_none_or(|all| all > i64::MAX as u64) || more > MOST {
            let message = format!("`{}` is too large, or there are too many, to be mapped", parameter.name);
            return Err(refused(parameter.name.clone(), message));
        }
        let (list, number) = match place {
            Place::Outside => ("", 0),
            Place::Layer(layer) => ("layers.{layer}.", layer),
            Place::Prediction(module) => ("mtp.{layer}.", module),
        };
        let part = parameter.name.strip_prefix(list).unwrap_or(&parameter.name);
        let experts = parameter.name.contains("{expert}").then_some(parameter.per_layer);
        for expert in 0..experts.unwrap_or(1) {
            let name = parameter.name.replace("{layer}", &number.to_string());
            found.push(Listed {
                name: name.replace("{expert}", &expert.to_string()),
                part: part.replace("{expert}.", ""),
                shape: parameter.shape.clone(),
                place,
                expert: experts.map(|experts| (expert, experts)),
                attention,
            });
        }
    }
    Ok(())
}
