//! Presets: models by the names that people use. The data file holds each one's config.json facts and their source.

use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Architecture, check_model, import_hf};
use crate::data::{File, text};
use crate::finding::Finding;
use crate::json::read_json;

/// A model of the catalogue.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Id for plan files, such as `llama-3-8b`.
    pub id: String,
    /// Name as people write it.
    pub title: String,
    /// Where the facts come from.
    pub source: String,
    /// Month in which its weights were published, or a paper with its sizes: `YYYY-MM`.
    #[serde(default)]
    pub released: Option<String>,
    /// The batch that it was trained with, where that is published.
    #[serde(default)]
    pub batch: Option<Batch>,
    /// Cluster and training that go with it, where the model alone makes no sensible plan.
    #[serde(default)]
    pub plan: Option<PresetPlan>,
    /// Rows, and columns, that share a scale, where its weights are published in 8 bits (`weight_block_size`).
    #[serde(default)]
    pub fp8_block: Option<u64>,
    /// Hugging Face config.json fields; a record without them has no model.
    #[serde(default)]
    pub hf_config: Option<Map<String, Value>>,
    #[serde(skip)]
    model: OnceLock<Option<Checked>>,
}

/// A model, and what is wrong with it.
pub(super) type Checked = (Architecture, Vec<Finding>);

impl Preset {
    /// Its model, which a search asks for thousands of times: it is read and checked once.
    pub fn model(&self) -> Option<&Checked> {
        let read = || {
            let architecture = import_hf(self.hf_config.as_ref()?).architecture?;
            let wrong = check_model(&architecture);
            Some((architecture, wrong))
        };
        self.model.get_or_init(read).as_ref()
    }
}

/// Cluster and training that go with a preset.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetPlan {
    /// Id of the GPU that it is trained on.
    pub gpu: String,
    /// Nodes.
    pub nodes: u64,
    /// GPUs of a node.
    pub gpus_per_node: u64,
    /// Tokens of a sequence.
    pub seq_len: u64,
    /// Sequences of a step.
    pub global_batch_size: u64,
}

/// A published global batch.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Tokens of a step, the largest where it grew.
    pub tokens: u64,
    /// Where that is said.
    pub source: String,
}

/// All presets, by id.
pub fn presets() -> &'static [Preset] {
    static PRESETS: OnceLock<Vec<Preset>> = OnceLock::new();
    PRESETS.get_or_init(|| read_json(text(File::Catalogue)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::count;

    #[test]
    fn the_data_file_is_read_whole_and_every_config_is_importable() {
        let entries: Vec<Value> = serde_json::from_str(include_str!("catalogue.json")).unwrap();
        assert_eq!(presets().len(), entries.len());
        for preset in presets() {
            // What is trained of it is saved by the names that go with this file.
            let imported = import_hf(preset.hf_config.as_ref().expect("a config.json"));
            assert!(imported.architecture.is_some(), "{}: {:?}", preset.id, imported.findings);
        }
    }

    #[test]
    fn totals_are_the_published_ones() {
        // Trainable parameters of the Hugging Face models, tied weights once, without MTP modules (transformers
        // 5.23.0, meta device).
        let expected = [
            ("deepseek-v2-lite", 15_706_484_224_u64),
            ("deepseek-v3", 671_026_404_352),
            ("glm-4.5", 352_797_814_784),
            ("gpt-oss-120b", 116_829_156_672),
            ("gpt-oss-20b", 20_914_757_184),
            ("kimi-k2", 1_026_408_209_408),
            // As the searched layers add up (no released transformers has the class); Hugging Face shows 49.9B, 253B.
            ("llama-nemotron-super-49b", 49_867_145_216),
            ("llama-nemotron-ultra-253b", 253_401_268_224),
            ("llama-2-7b", 6_738_415_616),
            ("llama-2-13b", 13_015_864_320),
            ("llama-2-70b", 68_976_648_192),
            ("llama-3-70b", 70_553_706_496),
            ("llama-3-8b", 8_030_261_248),
            ("llama-3.2-1b", 1_235_814_400),
            ("minimax-m2", 228_689_748_992),
            ("mixtral-8x7b", 46_702_792_704),
            ("qwen2.5-7b", 7_615_616_512),
            ("qwen3-0.6b", 596_049_920),
            ("qwen3-235b-a22b", 235_093_634_560),
            ("qwen3-30b-a3b", 30_532_122_624),
            ("apertus-70b", 70_599_864_480),
            ("apertus-8b", 8_053_338_176),
            ("cwm-32b", 32_581_097_472),
            ("deepseek-v4-pro", 1_572_997_179_491),
            ("exaone-4.0-32b", 32_003_216_384),
            ("gemma-3-12b", 11_766_034_176),
            ("gemma-3-4b", 3_880_263_168),
            ("gemma-4-31b", 30_697_345_280),
            ("glm-4.7-flash", 29_943_390_976),
            ("hunyuan-a13b", 80_393_183_232),
            ("ministral-3-8b", 8_489_553_920),
            ("mistral-small-24b", 23_572_403_200),
            ("olmo-2-32b", 32_234_279_936),
            ("olmo-3-32b", 32_233_522_176),
            ("olmo-3-7b", 7_298_011_136),
            ("qwen3-1.7b", 1_720_574_976),
            ("qwen3-4b", 4_022_468_096),
            ("qwen3-coder-480b-a35b", 480_154_875_392),
            ("qwen3.5-122b-a10b", 122_111_526_912),
            ("qwen3.5-397b-a17b", 396_346_350_336),
            ("qwen3.5-9b", 8_953_803_264),
            ("seed-oss-36b", 36_151_104_512),
            ("smollm3-3b", 3_075_098_624),
            ("trinity-mini", 26_123_970_560),
        ];
        for (id, total) in expected {
            let preset = presets().iter().find(|preset| preset.id == id).unwrap();
            let architecture = import_hf(preset.hf_config.as_ref().unwrap()).architecture.unwrap();
            assert_eq!(count(&architecture).0, total, "{id}");
        }
    }

    /// Their classes take no for an answer that was left out, and published files say yes or no.
    #[test]
    fn records_say_whether_weights_are_normalised_where_a_class_takes_them_not_to_be() {
        let silent = |kind: &str| ["qwen2_moe", "qwen3_moe", "deepseek_v2"].contains(&kind);
        let mut told = 0;
        for preset in presets() {
            let Some(config) = &preset.hf_config else { continue };
            if config["model_type"].as_str().is_some_and(silent) {
                let said = config["norm_topk_prob"].as_bool();
                let imported = import_hf(config).architecture.unwrap().moe.unwrap();
                assert_eq!(said, Some(imported.routing.normalize), "{}", preset.id);
                told += 1;
            }
        }
        assert_eq!(told, 6);
    }

    #[test]
    fn records_say_where_they_are_from_and_when() {
        let mut recent = 0;
        for preset in presets() {
            assert!(preset.source.len() > 10, "{}", preset.id);
            if let Some(batch) = &preset.batch {
                assert!(
                    (1 << 18..1 << 28).contains(&batch.tokens) && batch.source.len() > 10,
                    "{}",
                    preset.id
                );
            }
            let Some(released) = &preset.released else { continue };
            let (year, month) = released.split_once('-').unwrap();
            let (year, month): (u64, u64) = (year.parse().unwrap(), month.parse().unwrap());
            assert!(released.len() == 7 && year >= 2019 && (1..=12).contains(&month), "{}", preset.id);
            recent += u64::from(year >= 2025);
        }
        assert!(recent >= 50, "{recent} of 2025 and later");
        let sorted = presets()[2..].is_sorted_by_key(|preset| preset.title.to_lowercase());
        assert!(sorted, "records stand by title, which is how people look for them");
    }
}
