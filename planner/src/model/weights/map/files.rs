//! Parameters in the tensors of one model's files: which way of keeping them is there, and by which names.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::dims::{as_neighbours, letters, placed, rotated, taken, usual_order};
use super::parameters::{Listed, Place};
use super::storage::{block_of, storage};
use super::table::{Chain, Source, Take, Way};
use super::{BoxPart, Mapped, Present, Storage, refused};
use crate::finding::{Finding, clip};
use crate::model::weights::compare;
use crate::model::{Architecture, Branches, Mlp};

/// How one model's files call what is planned.
pub(super) struct Names<'a> {
    model: &'a Architecture,
    present: Option<&'a Present>,
    kind: String,
    chain: Chain,
    prediction: Option<Chain>,
    base: String,
    /// What names of the output layer begin with.
    outer: &'static str,
    neighbours: bool,
    block: [u64; 2],
}

impl<'a> Names<'a> {
    pub(super) fn of(
        model: &'a Architecture,
        config: &Map<String, Value>,
        present: Option<&'a Present>,
    ) -> Result<Names<'a>, Box<Finding>> {
        let inner = crate::model::hf::TEXT_CONFIGS.iter().find_map(|name| config.get(*name)?.as_object());
        let said = |key: &str| inner.and_then(|inner| inner.get(key)).or_else(|| config.get(key));
        let kind = said("model_type").and_then(Value::as_str).unwrap_or_default();
        let kind = kind.strip_suffix("_text").unwrap_or(kind).to_owned();
        let two_norms = kind == "falcon" && model.branches == Branches::SideBySide;
        // Sections with a colon are no model types.
        let known = !kind.contains(':');
        let Some(chain) = Chain::of(if two_norms { "falcon:two_norms" } else { &kind }).filter(|_| known)
        else {
            let message = format!(
                "tensors of `{}` are not mapped to parameters, so its weights can't be read or written; train it from another start, or give a model of a type that is mapped",
                clip(&kind)
            );
            return Err(refused(clip(&kind), message));
        };
        let neighbours =
            chain.neighbours() && said("rope_interleave").and_then(Value::as_bool).unwrap_or(true);
        let mut names = Names {
            model,
            present,
            kind,
            prediction: chain.of_prediction(),
            base: chain.base().to_owned(),
            chain,
            outer: "",
            neighbours,
            block: block_of(config),
        };
        names.find_base();
        Ok(names)
    }

    /// Models of several modes keep their text part one level down, and files of a base model have nothing above it.
    fn find_base(&mut self) {
        let Some(present) = self.present else { return };
        let own = self.chain.base();
        let others = [
            (own.to_owned(), ""),
            (format!("{own}language_model."), ""),
            (format!("language_model.{own}"), "language_model."),
            ("language_model.".to_owned(), ""),
            (String::new(), ""),
        ];
        let embedding = self.chain.ways("embedding", "weight").and_then(|ways| ways.first()?.first());
        let Some(embedding) = embedding.map(|source| source.name) else { return };
        let there = |(base, _): &(String, &str)| present.contains_key(&format!("{base}{embedding}.weight"));
        if let Some((base, outer)) = others.into_iter().find(there) {
            (self.base, self.outer) = (base, outer);
        }
    }

    /// A tensor's name.
    fn name(&self, source: &Source, place: Place, expert: Option<u64>, end: &str) -> String {
        let layer = match place {
            Place::Outside => None,
            Place::Layer(layer) => Some(layer),
            Place::Prediction(module) => Some(self.model.num_layers.saturating_add(module)),
        };
        let mut name = match (source.name.strip_prefix('~'), source.name.strip_prefix('^'), layer) {
            (Some(name), _, Some(layer)) => format!("{}{}.{layer}.{name}", self.base, self.chain.layers()),
            (_, Some(name), _) => format!("{}{name}", self.outer),
            _ => format!("{}{}", self.base, source.name.trim_start_matches('~')),
        };
        if let Some(expert) = expert {
            name = name.replace("{e}", &expert.to_string());
        }
        if source.bare || end.is_empty() { name } else { format!("{name}.{end}") }
    }

    /// Where a parameter lies.
    pub(super) fn map(&self, parameter: &Listed<'_>) -> Result<Mapped, Box<Finding>> {
        let (stem, end) = match parameter.part.rsplit_once('.') {
            Some((stem, end @ ("weight" | "bias"))) => (stem, end),
            _ => (parameter.part.as_str(), ""),
        };
        let chain = match parameter.place {
            Place::Prediction(_) => self.prediction.as_ref(),
            _ => Some(&self.chain),
        };
        let known = chain.and_then(|chain| chain.ways(stem, end)).zip(letters(parameter));
        let unknown = || {
            let message = format!(
                "`{}` has no tensor that is known in files of `{}`, so its weights can't be read or written",
                clip(&parameter.name),
                clip(&self.kind)
            );
            refused(clip(&parameter.name), message)
        };
        let (ways, letters) = known.ok_or_else(unknown)?;
        let mut missing = None;
        for way in ways {
            // One tensor for weight and bias alike is of weights.
            if end == "bias" && way.iter().any(|source| source.bare && !source.name.contains("bias")) {
                continue;
            }
            let parts = self.parts(parameter, letters, stem, end, way);
            let elements: u64 = parts.iter().map(|part| part.extent.iter().product::<u64>()).sum();
            if parts.is_empty() || elements != parameter.shape.iter().product::<u64>() {
                return Err(unknown());
            }
            match parts.iter().find(|part| !self.is_there(&part.tensor)) {
                None => {
                    let mut parts = parts;
                    for part in &mut parts {
                        if let Some(present) = self.present {
                            part.storage = storage(part, present, self.block)?;
                        }
                    }
                    return Ok(Mapped {
                        name: parameter.name.clone(),
                        shape: parameter.shape.clone(),
                        parts,
                    });
                }
                Some(part) => missing = missing.or_else(|| Some(part.tensor.clone())),
            }
        }
        let Some(missing) = missing else { return Err(unknown()) };
        let message = format!(
            "tensor `{}`, which `{}` is read from, is in none of the model's files",
            clip(&missing),
            clip(&parameter.name)
        );
        Err(refused(clip(&missing), message))
    }

    fn is_there(&self, tensor: &str) -> bool {
        self.present.is_none_or(|present| match tensor.strip_suffix("_blocks") {
            Some(plain) => present.contains_key(tensor) && present.contains_key(&format!("{plain}_scales")),
            None => present.contains_key(tensor),
        })
    }

    fn parts(&self, parameter: &Listed<'_>, letters: &str, stem: &str, end: &str, way: &Way) -> Vec<BoxPart> {
        let add = if self.chain.zero() && stem.ends_with("norm") && end == "weight" { 1.0 } else { 0.0 };
        let expert = parameter.expert.map(|(expert, _)| expert);
        let mut found = Vec::new();
        for source in way {
            let name = self.name(source, parameter.place, expert, end);
            let order = source.order.unwrap_or_else(|| usual_order(letters));
            let rows = |take: Take| taken(take, parameter, letters).filter(|(_, range)| !range.is_empty());
            let mut pieces: Vec<(String, Option<Take>, _)> = Vec::new();
            if name.contains("{n}") {
                // Each head has a tensor of its own.
                let dim = letters.find('n').unwrap_or(0);
                for head in 0..parameter.shape.get(dim).copied().unwrap_or(0) {
                    let name = name.replace("{n}", &head.to_string());
                    pieces.push((name, None, Some((dim, head..head + 1))));
                }
            } else if source.takes.is_empty() {
                pieces.push((name, None, None));
            } else {
                let takes = source.takes.iter().filter_map(|&take| Some((take, rows(take)?)));
                pieces.extend(takes.map(|(take, range)| (name.clone(), Some(take), Some(range))));
            }
            // Several in one tensor follow each other along its first dim.
            let joined = source.takes.len() > 1;
            let laid: Vec<_> = pieces
                .into_iter()
                .map(|(name, take, range)| (name, take, placed(parameter, letters, order, range)))
                .collect();
            let all: u64 = laid.iter().filter_map(|(_, _, placed)| placed.hf_shape.first()).sum();
            let mut before = 0;
            for (name, take, placed) in laid {
                let mut hf_shape = placed.hf_shape.clone();
                let elements: u64 = hf_shape.iter().product();
                if let (true, Some(first)) = (joined, hf_shape.first_mut()) {
                    *first = all;
                }
                let part = placed.part(name, hf_shape, before, add, Storage::Plain);
                before += if joined { elements } else { 0 };
                match rotated(parameter, letters, take).filter(|_| self.neighbours) {
                    Some((dim, rows)) => found.extend(as_neighbours(&part, dim, &rows)),
                    None => found.push(part),
                }
            }
        }
        found
    }

    /// Routers' names and the tensors of their balancing biases.
    pub(super) fn router_biases(&self) -> Result<Vec<(String, String)>, Box<Finding>> {
        let model = self.model;
        if model.moe.as_ref().is_none_or(|moe| moe.router_bias_buffer == 0) {
            return Ok(Vec::new());
        }
        let layers = (0..model.num_layers).filter(|&layer| model.layer_kind(layer).mlp == Mlp::Moe);
        let places = layers.map(|layer| (format!("layers.{layer}"), Place::Layer(layer)));
        let experts = model.mtp_kinds().iter().any(|kind| kind.mlp == Mlp::Moe);
        let modules = (0..model.mtp_modules()).filter(|_| experts);
        let modules = modules.map(|module| (format!("mtp.{module}"), Place::Prediction(module)));
        let mut found = Vec::new();
        for (list, place) in places.chain(modules) {
            let ways = self.chain.ways("moe.router.balance", "").unwrap_or_default();
            let names: Vec<String> =
                ways.iter().flatten().map(|source| self.name(source, place, None, "")).collect();
            let Some(name) = names.iter().find(|name| self.is_there(name)) else {
                let first = names.first().map_or("", String::as_str);
                let message = format!(
                    "tensor `{}`, the balancing bias of `{list}.moe.router`, is in none of the model's files",
                    clip(first)
                );
                return Err(refused(clip(first), message));
            };
            found.push((format!("{list}.moe.router"), name.clone()));
        }
        Ok(found)
    }

    /// Tensors of the decoder's files that nothing is read from.
    pub(super) fn unused(&self, parameters: &[Mapped], biases: &[(String, String)]) -> Vec<String> {
        let Some(present) = self.present else { return Vec::new() };
        let mut used: BTreeSet<&str> = biases.iter().map(|(_, tensor)| tensor.as_str()).collect();
        for part in parameters.iter().flat_map(|mapped| &mapped.parts) {
            used.insert(&part.tensor);
            if let Storage::Fp8Blocks { scales, .. } | Storage::Mxfp4 { scales } = &part.storage {
                used.insert(scales);
            }
        }
        let heads = self.heads();
        let tied = |name: &String| self.model.tied_embeddings && heads.contains(name);
        present
            .keys()
            .filter(|name| !used.contains(name.as_str()) && !tied(name))
            .filter(|name| compare::belongs(name, self.model, self.prediction.is_some()))
            .cloned()
            .collect()
    }

    /// What the output layer may be called.
    fn heads(&self) -> Vec<String> {
        let ways = self.chain.ways("head", "weight").unwrap_or_default();
        ways.iter().flatten().map(|source| self.name(source, Place::Outside, None, "weight")).collect()
    }

    /// The embedding's tensor and the output layer's name, where they are one.
    pub(super) fn tied(&self, parameters: &[Mapped]) -> Option<(String, String)> {
        let embedding = parameters.iter().find(|mapped| mapped.name == "embedding.weight")?.parts.first()?;
        let head = self.heads().into_iter().next().filter(|_| self.model.tied_embeddings)?;
        Some((embedding.tensor.clone(), head))
    }
}
