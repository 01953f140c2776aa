//! Tensors of files against the parameters that are planned, layer by layer.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::WeightFiles;
use crate::finding::{Finding, clip};
use crate::model::{Architecture, LayerKind, layer_parameters, outer_parameters};

const FIELD: &str = "model.weights";
const RULE: &str = "tensors of the model's files are those that are planned";

/// Parts of a name that say that a tensor reads images or sound.
const BESIDE: &[&str] =
    &["vision", "visual", "image", "audio", "speech", "projector", "aligner", "vpm", "resampler"];

/// Ends of names of what is no parameter: masks, angles, and scales of 8-bit and 4-bit weights.
const NO_PARAMETERS: &[&str] = &[
    "_scale",
    "_scale_inv",
    ".scales",
    ".qzeros",
    ".g_idx",
    "_zero_point",
    "_scale_2",
    "_global_scale",
    "_shape",
    "inv_freq",
    "e_score_correction_bias",
    "expert_bias",
    ".masked_bias",
    ".attn.bias",
    "input_amax",
    "weight_quantizer._amax",
];

/// Where a tensor belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Layer(u64),
    Outside,
    Beside,
    Prediction,
}

/// What differs between a model's files and what is planned: how many tensors and parameters there are, and of each layer
/// that differs the tensors that account for it. Empty `config` says nothing of types and quantisation.
pub fn compare_weights(
    config: &Map<String, Value>,
    model: &Architecture,
    weights: &WeightFiles,
) -> Vec<Finding> {
    let mut places: BTreeMap<Place, Vec<(&str, Option<u64>)>> = BTreeMap::new();
    let mut packed = config.contains_key("quantization_config");
    let modules = ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"]
        .iter()
        .any(|key| config.get(*key).and_then(Value::as_u64).is_some_and(|modules| modules > 0));
    for tensor in &weights.tensors {
        if NO_PARAMETERS.iter().any(|end| tensor.name.ends_with(end)) || is_unused(&tensor.name, model) {
            continue;
        }
        packed |= tensor.packed;
        let place = place(&tensor.name, model, modules);
        places.entry(place).or_default().push((&tensor.name, tensor.elements));
    }
    let mut findings = Vec::new();
    missing_and_strange(model, &places, &mut findings);
    let shapes = weights.tensors.iter().all(|tensor| tensor.elements.is_some());
    match (packed, shapes) {
        (true, _) => findings.push(
            Finding::info(
                FIELD,
                weights.tensors.len(),
                "the weights are quantised, several to one element: names of tensors were compared, and not their sizes; training starts from weights in the training's type",
            )
            .rule(RULE),
        ),
        (false, true) => sizes(model, &places, &mut findings),
        (false, false) => total(config, model, &places, weights, &mut findings),
    }
    for (place, what) in
        [(Place::Beside, "what reads images or sound"), (Place::Prediction, "multi-token prediction")]
    {
        let Some(tensors) = places.get(&place) else { continue };
        let elements: Option<u64> = tensors.iter().map(|(_, elements)| *elements).sum();
        let parameters =
            elements.map_or(String::new(), |elements| format!(", {:.2} B parameters", elements as f64 / 1e9));
        let message = format!(
            "{what}: {} tensors{parameters}; not planned (`{}` is the first)",
            tensors.len(),
            clip(tensors.first().map_or("", |(name, _)| name))
        );
        findings.push(Finding::info(FIELD, tensors.len(), message).rule(RULE));
    }
    if findings.iter().all(|finding| finding.severity == crate::finding::Severity::Info) && !packed {
        let counted = crate::model::count(model).0;
        let message =
            format!("{} tensors are those that are planned: {counted} parameters", weights.tensors.len());
        findings.push(Finding::info(FIELD, weights.tensors.len(), message).rule(RULE));
    }
    findings
}

/// The same of a file's text: an index, or what a file of weights begins with. One part of several files says that layers
/// are missing.
pub fn compare_text(config: &Map<String, Value>, text: &str) -> Vec<Finding> {
    let imported = crate::model::import_hf(config);
    match (super::read::read_start(text), imported.architecture) {
        (Err(finding), _) => vec![*finding],
        (Ok(weights), Some(model)) => compare_weights(config, &model, &weights),
        (Ok(_), None) => imported.findings,
    }
}

/// Whether a tensor is of a choice that hands tokens on as they are, which transformers saves and nobody uses.
fn is_unused(name: &str, model: &Architecture) -> bool {
    let Some(moe) = model.moe.as_ref().filter(|moe| moe.identity_experts > 0) else { return false };
    let number = name.split(".experts.").nth(1).and_then(|rest| rest.split('.').next());
    number.and_then(|number| number.parse::<u64>().ok()).is_some_and(|number| number >= moe.experts)
}

/// Whether a tensor is of the decoder that is planned, and a parameter. `modules` is whether the model's files may have modules
/// of prediction behind their last layer.
pub(super) fn belongs(name: &str, model: &Architecture, modules: bool) -> bool {
    !NO_PARAMETERS.iter().any(|end| name.ends_with(end))
        && !is_unused(name, model)
        && matches!(place(name, model, modules), Place::Layer(_) | Place::Outside)
}

fn place(name: &str, model: &Architecture, modules: bool) -> Place {
    let lower = name.to_ascii_lowercase();
    if BESIDE.iter().any(|word| lower.contains(word)) {
        return Place::Beside;
    }
    if lower.split('.').any(|part| part == "mtp" || part == "mtp_layers") {
        return Place::Prediction;
    }
    let mut parts = name.split('.').peekable();
    while let Some(part) = parts.next() {
        let listed = matches!(part, "layers" | "h" | "blocks" | "block" | "layer");
        if let (true, Some(Ok(layer))) = (listed, parts.peek().map(|next| next.parse::<u64>())) {
            // Some keep modules of prediction behind their last layer.
            let behind = layer >= model.num_layers / model.layers_together.max(1);
            return if behind && modules { Place::Prediction } else { Place::Layer(layer) };
        }
    }
    Place::Outside
}

/// Layers without tensors, layers that are not planned, and an output layer where there should be none or one.
fn missing_and_strange(
    model: &Architecture,
    places: &BTreeMap<Place, Vec<(&str, Option<u64>)>>,
    findings: &mut Vec<Finding>,
) {
    let layers = model.num_layers / model.layers_together.max(1);
    let absent: Vec<u64> = (0..layers).filter(|&layer| !places.contains_key(&Place::Layer(layer))).collect();
    if let [first, ..] = absent.as_slice() {
        let message = format!(
            "no tensor is of layer {first}, nor of {} others: the files are a part of the model's, or their names are others",
            absent.len() - 1
        );
        findings.push(Finding::warning(FIELD, absent.len(), message).rule(RULE));
    }
    let strange = places.range(Place::Layer(layers)..Place::Outside).next();
    if let Some((_, tensors)) = strange {
        let message = format!(
            "`{}` is of a layer that is not planned: config.json has {layers} layers",
            clip(tensors.first().map_or("", |(name, _)| name))
        );
        findings.push(Finding::warning(FIELD, layers, message).rule(RULE));
    }
    let outside = places.get(&Place::Outside).map_or(&[][..], Vec::as_slice);
    let heads = outside.iter().any(|(name, _)| {
        name.ends_with("lm_head.weight") || name.ends_with("embed_out.weight") || *name == "output.weight"
    });
    if !(heads || model.tied_embeddings || outside.is_empty()) {
        let message = "no tensor is an output layer of its own, such as lm_head.weight, and config.json does not tie it to the embedding";
        findings.push(Finding::warning(FIELD, Value::Null, message).rule(RULE));
    }
}

/// Elements of each layer as planned, and of all that is outside of them.
fn planned(model: &Architecture) -> (Vec<(String, u64)>, Vec<LayerKind>) {
    let (first, last) = outer_parameters(model, model.vocab_size);
    let outer =
        first.iter().chain(&last).map(|parameter| (parameter.name.clone(), parameter.elements())).collect();
    (outer, (0..model.num_layers).map(|layer| model.layer_kind(layer)).collect())
}

/// Sums of layers from shapes.
fn sizes(
    model: &Architecture,
    places: &BTreeMap<Place, Vec<(&str, Option<u64>)>>,
    findings: &mut Vec<Finding>,
) {
    let (outer, kinds) = planned(model);
    let together = model.layers_together.max(1) as usize;
    let mut known: BTreeMap<&[LayerKind], Vec<(String, u64)>> = BTreeMap::new();
    let mut different = 0_usize;
    for (layer, kinds) in (0..).zip(kinds.chunks(together)) {
        let Some(tensors) = places.get(&Place::Layer(layer)) else { continue };
        let parameters = known.entry(kinds).or_insert_with(|| {
            let of = kinds.iter().flat_map(|&kind| layer_parameters(model, kind));
            of.map(|parameter| (parameter.name.clone(), parameter.elements() * parameter.per_layer)).collect()
        });
        if let Some(message) = differs(&format!("layer {layer}"), tensors, parameters) {
            different += 1;
            // One of each kind says it of all.
            if different <= 3 {
                findings.push(Finding::warning(FIELD, layer, message).rule(RULE));
            }
        }
    }
    if different > 3 {
        let message = format!("{} more layers differ likewise", different - 3);
        findings.push(Finding::warning(FIELD, different, message).rule(RULE));
    }
    let tensors: Vec<(&str, Option<u64>)> = places.get(&Place::Outside).cloned().unwrap_or_default();
    // A tied output layer may have been saved all the same.
    let saved = |name: &str| !(model.tied_embeddings && name.ends_with("lm_head.weight"));
    let tensors: Vec<_> = tensors.into_iter().filter(|(name, _)| saved(name)).collect();
    if let Some(message) = differs("what is outside of layers", &tensors, &outer) {
        findings.push(Finding::warning(FIELD, Value::Null, message).rule(RULE));
    }
}

/// How tensors of a place differ from the parameters that are planned there, in a sentence; none where their sum is the same.
fn differs(what: &str, tensors: &[(&str, Option<u64>)], parameters: &[(String, u64)]) -> Option<String> {
    let found: u64 = tensors.iter().filter_map(|(_, elements)| *elements).sum();
    let wanted: u64 = parameters.iter().map(|(_, elements)| elements).sum();
    if found == wanted {
        return None;
    }
    // Those whose size is planned nowhere there, or what is planned and nowhere found.
    let sizes: Vec<u64> = parameters.iter().map(|(_, elements)| *elements).collect();
    let more: Vec<&str> = tensors
        .iter()
        .filter(|(_, elements)| elements.is_some_and(|elements| !sizes.contains(&elements)))
        .map(|(name, _)| *name)
        .collect();
    let exactly = |difference: u64| {
        tensors.iter().find(|(_, elements)| *elements == Some(difference)).map(|(name, _)| *name)
    };
    let less = |difference: u64| {
        parameters.iter().find(|(_, elements)| *elements == difference).map(|(name, _)| name.clone())
    };
    let said = match found.checked_sub(wanted) {
        Some(more_than) => exactly(more_than).map(|name| format!("`{}` is as large as that", clip(name))),
        None => less(wanted - found).map(|name| format!("`{}` is planned and not there", clip(&name))),
    };
    let said = said.unwrap_or_else(|| match more.as_slice() {
        [] => format!(
            "`{}` is the first of its {} tensors",
            clip(tensors.first().map_or("", |(name, _)| name)),
            tensors.len()
        ),
        names => {
            let names: Vec<String> = names.iter().take(4).map(|name| format!("`{}`", clip(name))).collect();
            format!("of other sizes than planned are {}", names.join(", "))
        }
    });
    Some(format!("{what} has {found} parameters in the files, and {wanted} are planned: {said}"))
}

/// The sum of bytes that an index says, where there are no shapes.
fn total(
    config: &Map<String, Value>,
    model: &Architecture,
    places: &BTreeMap<Place, Vec<(&str, Option<u64>)>>,
    weights: &WeightFiles,
    findings: &mut Vec<Finding>,
) {
    let size = match config.get("torch_dtype").or(config.get("dtype")).and_then(Value::as_str) {
        Some("float32") => 4,
        Some("bfloat16" | "float16") => 2,
        _ => return,
    };
    // What is beside the text part has no sizes here.
    let whole = !places.contains_key(&Place::Beside) && !places.contains_key(&Place::Prediction);
    let Some(bytes) = weights.total_bytes.filter(|_| whole) else { return };
    let wanted = crate::model::count(model).0.saturating_add(crate::model::untrained_elements(model));
    let found = bytes / size;
    // Buffers such as masks are a little of it, and a tied output layer may have been saved twice.
    let twice = wanted.saturating_add(if model.tied_embeddings {
        model.vocab_size.saturating_mul(model.hidden_size)
    } else {
        0
    });
    let near = |wanted: u64| found.abs_diff(wanted) <= wanted / 1000;
    if !(near(wanted) || near(twice)) {
        let message = format!(
            "the index says {bytes} bytes, {found} parameters of {size} bytes, and {wanted} are planned: the index, `torch_dtype` or config.json is another model's; a header with shapes (a .safetensors file) says which tensors"
        );
        findings.push(Finding::warning(FIELD, bytes, message).rule(RULE));
    }
}
