//! How layers are split over pipeline stages that nobody splits: evenly where they divide, else as evenly as the framework
//! can be told to, in the simplest way that is as even.
//!
//! Embedding, loss and each module of multi-token prediction count as a layer: a stage that holds one of them gets a layer
//! less where that can be said.

use std::ops::Range;
use std::sync::Arc;

use super::{Chunk, Layout, parse_layout_string, stage_layers};
use crate::model::Architecture;
use crate::runtime::Runtime;
use crate::software::{Framework, Program};

/// Who splits a model that does not divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Splitter {
    /// Megatron-Core: flags that count embedding and loss as layers, unless they are said to be off; layers of the first and
    /// the last stage, or a layout string.
    Megatron {
        /// Whether those flags may be set.
        flags: bool,
    },
    /// Megatron Bridge: the same, but for the models that its recipes split themselves.
    Bridge {
        /// Whether those flags may be set.
        flags: bool,
    },
    /// torchtitan: embedding and output count as a layer each, and what is over goes to the first stages.
    Torchtitan,
    /// NeMo Automodel: what is over goes to the first stages.
    Automodel,
    /// Programs that cut a model by what its blocks cost: nanotron.
    ByCost,
}

impl Splitter {
    /// The splitter of a runtime, and of the framework or the program that a plan names. `flags` says whether Megatron's flags are free.
    pub(crate) fn of(
        runtime: Runtime,
        framework: Option<Framework>,
        program: Option<&Program>,
        flags: bool,
    ) -> Splitter {
        if program.is_some_and(|program| program.cuts_by_cost) {
            return Splitter::ByCost;
        }
        match (runtime.facts().pipelines_by_torch, framework.map(Framework::product)) {
            (true, Some("torchtitan")) => Splitter::Torchtitan,
            (true, _) => Splitter::Automodel,
            (false, Some("bridge")) => Splitter::Bridge { flags },
            (false, _) => Splitter::Megatron { flags },
        }
    }
}

/// How the layers of a pipeline are split, in the words of a plan file. The default is evenly.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Split {
    /// The embedding counts as a layer.
    pub account_for_embedding: bool,
    /// The loss counts as a layer.
    pub account_for_loss: bool,
    /// Layers of the first stage.
    pub first_stage_layers: Option<u64>,
    /// Layers of the last stage.
    pub last_stage_layers: Option<u64>,
    /// A layout string, with its virtual stages.
    pub listed: Option<(String, Arc<[Chunk]>)>,
}

impl Split {
    /// The split of a layout that nobody split, such as `pp` and `vpp` stand there; evenly where nothing else is possible,
    /// which a rule then refuses, or where somebody did.
    pub fn usual(layout: &Layout, model: &Architecture) -> Split {
        let Some(splitter) = layout.splitter else { return Split::default() };
        let (layers, stages) = (model.num_layers, layout.pp.saturating_mul(layout.vpp));
        let even = match splitter {
            // Stages may be left without a layer.
            Splitter::ByCost => stages > layers.saturating_mul(2),
            _ => layers.is_multiple_of(stages) || stages > layers.saturating_add(2 + model.mtp_layers),
        };
        if stages <= 1 || even {
            return Split::default();
        }
        let counts = match splitter {
            Splitter::Bridge { flags } => match bridge(model, stages) {
                None => return megatron(layout, model, flags),
                counts => counts,
            },
            Splitter::Megatron { flags } => return megatron(layout, model, flags),
            Splitter::Torchtitan => torchtitan(layers, stages, 1, 1),
            Splitter::Automodel => Some(automodel(layers, stages)),
            Splitter::ByCost => Some(by_cost(model, stages)),
        };
        counts.map_or_else(Split::default, |counts| Split::listed(&counts, model.mtp_layers))
    }

    /// A split with so many layers on each virtual stage.
    fn listed(counts: &[u64], mtp: u64) -> Split {
        let text = layout_string(counts, mtp);
        let chunks = parse_layout_string(&text).ok();
        Split { listed: chunks.map(|chunks| (text, chunks.into())), ..Split::default() }
    }

    /// Puts the split into a layout.
    pub fn put(&self, layout: &mut Layout) {
        layout.pipeline = self.listed.as_ref().map(|(_, chunks)| chunks.clone());
        (layout.first_stage_layers, layout.last_stage_layers) =
            (self.first_stage_layers, self.last_stage_layers);
        (layout.account_for_embedding, layout.account_for_loss) =
            (self.account_for_embedding, self.account_for_loss);
    }
}

/// Layers of each virtual stage as Megatron Bridge's recipes split DeepSeek-V3 and Kimi K2 into 4, 8 or 16: as many on each,
/// and what is left on the last, beside prediction modules and loss (`recipes/deepseek/deepseek_v3.py`, `layout_map`).
fn bridge(model: &Architecture, stages: u64) -> Option<Vec<u64>> {
    let theirs = model.moe.is_some() && (model.num_layers, model.hidden_size) == (61, 7168);
    if !theirs || ![4, 8, 16].contains(&stages) {
        return None;
    }
    let each = model.num_layers.div_ceil(stages);
    let mut counts = vec![each; stages as usize - 1];
    counts.push(model.num_layers - each * (stages - 1));
    Some(counts)
}

/// Megatron-Core's ways, the simplest first.
fn megatron(layout: &Layout, model: &Architecture, flags: bool) -> Split {
    let mut tried = layout.clone();
    let mut best: Option<(u64, u64, Split)> = None;
    let accounted =
        [(true, true), (false, true), (true, false)].map(|(account_for_embedding, account_for_loss)| Split {
            account_for_embedding,
            account_for_loss,
            ..Split::default()
        });
    let listed = || most_even(model, layout.pp.saturating_mul(layout.vpp));
    let accounted = accounted.into_iter().filter(|_| flags);
    for split in accounted.chain(ends(layout, model)).chain(std::iter::once_with(listed).flatten()) {
        split.put(&mut tried);
        let Some(counts) = stage_layers(&tried, model.num_layers) else { continue };
        let (most, squares) = load(&counts, model.mtp_layers);
        // Of two that leave the longest stage as long, the simpler; of two ways to say the same, the more even.
        let simpler =
            |known: &Split| known.first_stage_layers.is_none() || split.first_stage_layers.is_none();
        let kept = |(known_most, known_squares, known): &(u64, u64, Split)| {
            *known_most < most || *known_most == most && (simpler(known) || *known_squares <= squares)
        };
        if !best.as_ref().is_some_and(kept) {
            best = Some((most, squares, split));
        }
    }
    best.map_or_else(Split::default, |(.., split)| split)
}

/// What the fullest virtual stage computes, in layers, and the sum of squares.
fn load(counts: &[u64], mtp: u64) -> (u64, u64) {
    let last = counts.len().saturating_sub(1);
    let loads = counts
        .iter()
        .enumerate()
        .map(|(stage, layers)| layers + u64::from(stage == 0) + if stage == last { 1 + mtp } else { 0 });
    loads.fold((0, 0), |(most, squares), load| (most.max(load), squares + load * load))
}

/// Splits by layers of the first and the last stage that leave the others as many each.
fn ends(layout: &Layout, model: &Architecture) -> Vec<Split> {
    let (layers, pp, vpp) = (model.num_layers, layout.pp, layout.vpp.max(1));
    if pp < 2 {
        return Vec::new();
    }
    let between = pp - 2;
    let around = layers / pp / vpp;
    let sizes = around.saturating_sub(1).max(1)..=around + 2;
    // Without stages between there is one way to read the sizes.
    let sizes: Range<u64> = if between == 0 { 1..2 } else { *sizes.start()..*sizes.end() + 1 };
    let mut found = Vec::new();
    for each in sizes {
        let Some(rest) = layers.checked_sub(each * vpp * between).filter(|rest| rest.is_multiple_of(vpp))
        else {
            continue;
        };
        // The last stage has the loss and the modules of multi-token prediction beside its layers, the first the embedding.
        let chunks = rest / vpp;
        let middle = (chunks + model.mtp_layers).div_ceil(2);
        for first in middle.saturating_sub(1)..=middle + 1 {
            if first >= 1 && first < chunks {
                found.push(Split {
                    first_stage_layers: Some(first * vpp),
                    last_stage_layers: Some((chunks - first) * vpp),
                    ..Split::default()
                });
            }
        }
    }
    found
}

/// The most even layout string: what is over goes to the last stages before the loss, which hold the fewest micro batches.
fn most_even(model: &Architecture, stages: u64) -> Option<Split> {
    let items = model.num_layers + 2 + model.mtp_layers;
    if stages < 2 || stages > items {
        return None;
    }
    let (each, over) = (items / stages, items % stages);
    let last = stages - 1;
    let mut counts: Vec<u64> = (0..stages)
        .map(|stage| each + u64::from(stage < last && stage + 1 + over >= stages))
        .map(|count| count.min(model.num_layers))
        .collect();
    *counts.first_mut()? -= 1;
    // Where the last stage can't give up as many layers as it has other work, those before it have fewer.
    let mut less = 1 + model.mtp_layers;
    for count in counts.iter_mut().rev() {
        let taken = less.min(*count);
        *count -= taken;
        less -= taken;
        if less == 0 {
            break;
        }
    }
    (counts.iter().sum::<u64>() == model.num_layers).then(|| Split::listed(&counts, model.mtp_layers))
}

/// Layers of each virtual stage as torchtitan splits them (`generate_llm_fqn_per_model_part`): the embedding counts as
/// `first` layers and the output as `last`, and what is over goes to the first stages. None where torchtitan refuses.
pub fn torchtitan(layers: u64, stages: u64, first: u64, last: u64) -> Option<Vec<u64>> {
    let all = layers.checked_add(first)?.checked_add(last)?;
    let (each, over) = (all.checked_div(stages)?, all.checked_rem(stages)?);
    if stages > layers || each < first.max(last) {
        return None;
    }
    let count = |stage: u64| {
        let less = [(0, first), (stages - 1, last)]
            .iter()
            .filter(|(at, _)| *at == stage)
            .map(|(_, less)| less)
            .sum();
        (each + u64::from(stage < over)).checked_sub(less)
    };
    (0..stages).map(count).collect()
}

/// Layers of each virtual stage as NeMo Automodel splits them: what is over goes to the first stages, one each.
pub fn automodel(layers: u64, stages: u64) -> Vec<u64> {
    let (each, over) = (layers / stages.max(1), layers % stages.max(1));
    (0..stages).map(|stage| each + u64::from(stage < over)).collect()
}

/// Layers of each stage where blocks go to a stage until their cost reaches its share (nanotron `models/base.py`; a layer costs
/// 4 h h + 3 f h, the output layer V h, the embedding nothing: `models/llama.py`, `get_block_compute_costs`). The loss is on the last
/// stage whatever its output layer would be on.
fn by_cost(model: &Architecture, stages: u64) -> Vec<u64> {
    let [hidden, width, words] = [model.hidden_size, model.ffn_hidden_size, model.vocab_size].map(u128::from);
    let layer = hidden * (4 * hidden + 3 * width);
    let total = u128::from(model.num_layers) * layer + words * hidden;
    let mut counts = vec![0; stages as usize];
    let (mut at, mut cost) = (0, 0);
    for _ in 0..model.num_layers {
        if let Some(count) = counts.get_mut(at) {
            *count += 1;
        }
        cost += layer;
        if cost * u128::from(stages) >= total * (at as u128 + 1) && at + 1 < counts.len() {
            at += 1;
        }
    }
    counts
}

/// The layout string of virtual stages with so many layers each. Equal stages are written once.
pub fn layout_string(counts: &[u64], mtp: u64) -> String {
    let last = counts.len().saturating_sub(1);
    let stage = |(number, layers): (usize, &u64)| {
        let mut text = if number == 0 { "E".to_owned() } else { String::new() };
        text.push_str(&repeated("t", *layers));
        if number == last {
            text.push_str(&repeated("m", mtp));
            text.push('L');
        }
        text
    };
    let found: Vec<String> = counts.iter().enumerate().map(stage).collect();
    let mut text = String::new();
    let mut at = 0;
    while let Some(stage) = found.get(at) {
        let run = found[at..].iter().take_while(|other| *other == stage).count();
        let ends = at + run == found.len();
        match (run, ends) {
            (1, true) => text.push_str(stage),
            (1, false) => text.push_str(&format!("{stage}|")),
            // The last stage has the loss, so a run of several never ends the string.
            _ => text.push_str(&format!("({stage}|)*{run}")),
        }
        at += run;
    }
    text
}

fn repeated(letter: &str, count: u64) -> String {
    match count {
        4.. => format!("{letter}*{count}"),
        _ => letter.repeat(usize::try_from(count).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests;
