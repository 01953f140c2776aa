//! Models by what frameworks' recipes and configurations are called.

use batch::launch::Writer;
use planner::model::{Preset, count, presets};
use planner::wire::{ModelFile, PlanFile};

/// Names of families that are another one's text model with something that sees before it, and how that text model is called. A name
/// with sizes stands for a model of these sizes alone.
const VISION: [(&str, &str); 7] = [
    ("gemma3vl", "gemma3"),
    ("gemma4vl26b", "gemma426ba4b"),
    ("glm45v", "glm45air"),
    ("kimik25vl", "kimik2"),
    ("qwen25vl", "qwen25"),
    ("qwen3vl", "qwen3"),
    ("qwen35vl", "qwen35"),
];

/// Names of models with the architecture of another, which stands in the catalogue.
const SAME: [(&str, &str); 3] = [("glm51", "glm5"), ("glm52", "glm5"), ("qwen3827b", "qwen3527b")];

/// Letters and digits of a name in lower case, with marks where others stand.
struct Name {
    plain: String,
    /// Whether something else than a letter or digit, or the name's end, is before the letter at a place.
    apart: Vec<bool>,
}

impl Name {
    fn of(text: &str) -> Name {
        let mut name = Name { plain: String::new(), apart: Vec::new() };
        let mut apart = true;
        for letter in text.chars() {
            if letter.is_ascii_alphanumeric() {
                name.plain.push(letter.to_ascii_lowercase());
                name.apart.push(apart);
            }
            apart = !letter.is_ascii_alphanumeric();
        }
        name.apart.push(true);
        name
    }

    /// The name with another word in the place of one that stands apart from what is around it; none where it has no such word.
    fn with(&self, from: &str, to: &str) -> Option<Name> {
        let at = self.find(from)?;
        let (before, after) = (self.plain.get(..at)?, self.plain.get(at + from.len()..)?);
        let inner = to.bytes().enumerate().map(|(place, _)| place == 0);
        let apart = self.apart.iter().take(at).copied().chain(inner);
        let apart = apart.chain(self.apart.iter().skip(at + from.len()).copied()).collect();
        Some(Name { plain: format!("{before}{to}{after}"), apart })
    }

    /// Where a word stands apart from what is around it: `glm45` is none of `glm_45v`.
    fn find(&self, word: &str) -> Option<usize> {
        let is_apart = |at: usize| self.apart.get(at) == Some(&true);
        self.plain.match_indices(word).map(|(at, _)| at).find(|&at| is_apart(at) && is_apart(at + word.len()))
    }

    /// The preset whose letters and digits are a part of the name that stands apart; the longest of them.
    fn preset(&self) -> Option<&'static Preset> {
        let named = |preset: &&'static Preset| {
            let id = Name::of(&preset.id).plain;
            self.find(&id).is_some_and(|at| self.has_size_of(preset, at + id.len()))
        };
        presets().iter().filter(named).max_by_key(|preset| preset.id.len())
    }

    /// Whether parameters that are named next, such as `106b`, are about a preset's: `nemotron_3_nano_4b` is not the Nemotron 3 Nano of 30B.
    fn has_size_of(&self, preset: &Preset, from: usize) -> bool {
        let word = |from: usize| -> &str {
            let rest = self.plain.get(from..).unwrap_or_default();
            let length = (1..rest.len()).find(|&more| self.apart.get(from + more) == Some(&true));
            rest.get(..length.unwrap_or(rest.len())).unwrap_or_default()
        };
        let size = word(from);
        let Some((number, unit)) = size
            .strip_suffix('b')
            .map(|number| (number, 1e9))
            .or_else(|| size.strip_suffix('m').map(|number| (number, 1e6)))
        else {
            return true;
        };
        let Ok(number) = number.replace('p', ".").parse::<f64>() else { return true };
        // Before a number of experts it is what a token uses: `17b_16e`.
        let experts =
            word(from + size.len()).strip_suffix('e').is_some_and(|number| number.parse::<u64>().is_ok());
        let all = preset.model().map_or(0, |(architecture, _)| count(architecture).0) as f64;
        experts || (number * unit / all - 1.0).abs() < 0.25
    }
}

/// The preset whose letters and digits a model's or a recipe's name contains; the longest of them.
pub fn preset_of(name: &str) -> Option<&'static str> {
    let name = Name::of(name);
    let same = SAME.iter().find_map(|(other, same)| name.with(other, same));
    same.unwrap_or(name).preset().map(|preset| preset.id.as_str())
}

/// The preset that is the text model of a vision-language model's or its recipe's name.
pub(crate) fn text_model_of(name: &str) -> Option<&'static str> {
    let name = Name::of(name);
    let text = VISION.iter().find_map(|(vision, text)| name.with(vision, text))?;
    text.preset().map(|preset| preset.id.as_str())
}

/// Says that a recipe or a configuration has the name of another model than the plan's; `what` names it.
pub(crate) fn other_model(writer: &mut Writer<'_>, name: Option<&str>, what: &str) {
    let (Some(name), Some(planned)) = (name, &writer.plan.file.model.preset) else { return };
    let Some(named) = preset_of(name).filter(|named| named != planned) else { return };
    let file = PlanFile {
        model: ModelFile { preset: Some(named.to_owned()), ..ModelFile::default() },
        ..writer.plan.file.clone()
    };
    // Versions of one model have names of their own.
    let other =
        planner::fill::fill(&file).plan.is_some_and(|other| count(&other.model) != count(&writer.plan.model));
    if other {
        let value = planned.clone();
        writer.differs(
            "model",
            value,
            &format!("{what} names the model, and by its name this one is another"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_name_is_no_shorter_ones() {
        for (name, expected) in [
            ("glm45_355b_sft_128gpu_h100_bf16_config", Some("glm-4.5")),
            ("glm45_air_106b_pretrain_32gpu_h100_bf16_config", Some("glm-4.5-air")),
            ("glm52_pretrain_416gpu_h100_bf16_config", Some("glm-5")),
            ("glm_45v_sft_128gpu_h100_bf16_config", None),
            ("kimi_k25_vl_sft_512gpu_h100_bf16_config", None),
            ("kimi_k2_pretrain_512gpu_h100_bf16_config", Some("kimi-k2")),
            ("nemotron_3_nano_4b_sft_8gpu_h100_bf16_config", None),
            ("nemotron_3_nano_30b_a3b", Some("nemotron-3-nano")),
            ("nemotron_3_nano_sft_8gpu_h100_bf16_config", Some("nemotron-3-nano")),
            ("qwen3_vl_8b_sft_2gpu_h100_bf16_config", None),
            ("meta-llama/Llama-4-Scout-17B-16E-Instruct", Some("llama-4-scout")),
            ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", Some("nemotron-3-super")),
            ("qwen38_27b_config", Some("qwen3.5-27b")),
        ] {
            assert_eq!(preset_of(name), expected, "{name}");
        }
        assert!(presets().iter().all(|preset| preset_of(&preset.id) == Some(&preset.id)));
    }

    #[test]
    fn text_models_of_those_that_see() {
        for (name, expected) in [
            ("glm_45v_sft_128gpu_h100_bf16_config", Some("glm-4.5-air")),
            ("gemma3_vl_12b_sft_4gpu_h100_bf16_config", Some("gemma-3-12b")),
            ("gemma4_vl_26b_sft_8gpu_h100_bf16_config", Some("gemma-4-26b-a4b")),
            ("kimi_k25_vl_sft_512gpu_h100_bf16_config", Some("kimi-k2")),
            ("qwen3_vl_30b_a3b_sft_8gpu_h100_bf16_config", Some("qwen3-30b-a3b")),
            ("qwen35_vl_9b_sft_4gpu_h100_bf16_config", Some("qwen3.5-9b")),
            ("qwen25_vl_32b_sft_16gpu_h100_bf16_config", None),
            ("nemotron_nano_v2_vl_12b_sft_4gpu_h100_bf16_config", None),
            ("qwen3_8b_sft_4gpu_h100_bf16_config", None),
        ] {
            assert_eq!(text_model_of(name), expected, "{name}");
        }
    }
}
