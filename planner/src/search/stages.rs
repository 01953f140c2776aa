//! Pipelines worth trying: stages, chunks, schedules, and layout strings where layers don't divide.

use crate::finding::divisors;
use crate::layout::{Chunk, parse_layout_string};
use crate::model::Architecture;
use crate::schedule::Chunks;
use crate::wire::Schedule;

/// A pipeline, whatever the other axes are.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipe {
    /// Stages.
    pub pp: u64,
    /// Chunks of a stage.
    pub vpp: u64,
    /// Schedule.
    pub schedule: Schedule,
    /// The layout string of unequal stages, and what it says.
    pub uneven: Option<(String, Vec<Chunk>)>,
}

/// Numbers of chunks worth trying on `pp` stages: divisors of the layers, and with unequal stages all that leave each
/// chunk a layer, embedding or loss.
pub fn chunk_counts(layers: u64, pp: u64, uneven: bool) -> Vec<u64> {
    if pp <= 1 {
        return vec![1];
    }
    let mut found = divisors(layers);
    if uneven {
        found.extend(1..=(layers + 2) / pp);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Pipelines of `pp` stages of `vpp` chunks: one for each schedule that goes with so many chunks. Without stages all
/// schedules are one.
pub fn pipes(model: &Architecture, pp: u64, vpp: u64, schedules: &[Schedule], uneven: bool) -> Vec<Pipe> {
    let layers = model.num_layers;
    let stages = pp.saturating_mul(vpp);
    let even = stages > 0 && layers.is_multiple_of(stages);
    // Without stages all schedules of one chunk are one, and a V holds as many layers everywhere.
    let fits = |schedule: Schedule| {
        let kind = schedule.kind();
        let alone = pp == 1 && kind.chunks == Chunks::One && schedule != Schedule::usual(vpp);
        kind.chunks.allow(vpp) && !alone && (even || !kind.in_v)
    };
    let string = (!even && uneven).then(|| layout_string(model, stages)).flatten();
    let chunks = string.and_then(|text| Some((text.clone(), parse_layout_string(&text).ok()?)));
    schedules
        .iter()
        .copied()
        .filter(|schedule| fits(*schedule))
        .map(|schedule| Pipe { pp, vpp, schedule, uneven: chunks.clone() })
        .collect()
}

/// A layout string of `stages` virtual stages, as equal as they can be when embedding and loss count as a layer each; what
/// is over goes to the last stages before the loss, which hold the fewest micro batches. None where a stage would be
/// empty.
pub fn layout_string(model: &Architecture, stages: u64) -> Option<String> {
    let items = model.num_layers + 2;
    if stages < 2 || stages > items {
        return None;
    }
    let (each, over) = (items / stages, items % stages);
    let mut found: Vec<String> = Vec::with_capacity(stages as usize);
    for stage in 0..stages {
        let last = stage + 1 == stages;
        let more = !last && stage + 1 + over >= stages;
        let mut count = each + u64::from(more);
        let mut text = String::new();
        if stage == 0 {
            text.push('E');
            count -= 1;
        }
        if last {
            count = count.saturating_sub(1);
        }
        text.push_str(&repeated("t", count));
        if last {
            text.push_str(&repeated("m", model.mtp_layers));
            text.push('L');
        }
        found.push(text);
    }
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
    Some(text)
}

fn repeated(letter: &str, count: u64) -> String {
    match count {
        0..=3 => letter.repeat(count as usize),
        _ => format!("{letter}*{count}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{import_hf, presets};

    fn model(id: &str) -> Architecture {
        let preset = presets().iter().find(|preset| preset.id == id).unwrap();
        import_hf(preset.hf_config.as_ref().unwrap()).architecture.unwrap()
    }

    #[test]
    fn layout_strings_hold_every_layer_and_are_as_equal_as_they_can_be() {
        for id in ["llama-3.1-405b", "deepseek-v3", "qwen3-30b-a3b"] {
            let model = model(id);
            for stages in 2..=model.num_layers + 2 {
                let text = layout_string(&model, stages).unwrap();
                let chunks = parse_layout_string(&text).unwrap();
                assert_eq!(chunks.len() as u64, stages, "{text}");
                assert_eq!(chunks.last().unwrap().layers.end, model.num_layers, "{text}");
                let size = |chunk: &Chunk| {
                    chunk.layers.end - chunk.layers.start + u64::from(chunk.embedding) + u64::from(chunk.loss)
                };
                let most = chunks.iter().map(size).max().unwrap();
                assert!(most <= (model.num_layers + 2).div_ceil(stages), "{text}");
            }
            assert_eq!(layout_string(&model, model.num_layers + 3), None);
        }
    }

    #[test]
    fn the_string_of_llama_405b_is_the_published_split() {
        assert_eq!(layout_string(&model("llama-3.1-405b"), 16).unwrap(), "Et*7|(t*8|)*14t*7L");
    }
}
