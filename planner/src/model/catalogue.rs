//! Presets: models by the names that people use. The data file holds each one's config.json facts and their source.

use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Architecture;
use crate::wire::{ClusterFile, TrainingFile};

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
    /// The batch that it was trained with, where that is published.
    #[serde(default)]
    pub batch: Option<Batch>,
    /// Cluster and training that go with it, where the model alone makes no sensible plan.
    #[serde(default)]
    pub plan: Option<PresetPlan>,
    /// Hugging Face config.json fields.
    #[serde(default)]
    pub hf_config: Option<Map<String, Value>>,
    /// Or the architecture itself.
    #[serde(default)]
    pub architecture: Option<Architecture>,
}

/// What goes with a preset.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetPlan {
    /// What it is trained on.
    pub cluster: ClusterFile,
    /// How.
    pub training: TrainingFile,
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
    PRESETS.get_or_init(|| serde_json::from_str(include_str!("catalogue.json")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{count, import_hf};

    #[test]
    fn the_data_file_is_read_whole_and_every_config_is_importable() {
        let entries: Vec<Value> = serde_json::from_str(include_str!("catalogue.json")).unwrap();
        assert_eq!(presets().len(), entries.len());
        for preset in presets() {
            if let Some(config) = &preset.hf_config {
                let imported = import_hf(config);
                assert!(imported.architecture.is_some(), "{}: {:?}", preset.id, imported.findings);
            } else {
                assert!(preset.architecture.is_some(), "{}", preset.id);
            }
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
            ("llama-3-70b", 70_553_706_496),
            ("llama-3-8b", 8_030_261_248),
            ("llama-3.2-1b", 1_235_814_400),
            ("minimax-m2", 228_689_748_992),
            ("mixtral-8x7b", 46_702_792_704),
            ("qwen2.5-7b", 7_615_616_512),
            ("qwen3-0.6b", 596_049_920),
            ("qwen3-235b-a22b", 235_093_634_560),
            ("qwen3-30b-a3b", 30_532_122_624),
        ];
        for (id, total) in expected {
            let preset = presets().iter().find(|preset| preset.id == id).unwrap();
            let architecture = import_hf(preset.hf_config.as_ref().unwrap()).architecture.unwrap();
            assert_eq!(count(&architecture).0, total, "{id}");
        }
    }
}
