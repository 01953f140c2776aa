//! What NeMo's recipes set: by its performance recipe for a model, GPU, count, precision and release, the nearest where there is none.
//!
//! The table, `nemo.txt`, has what changes memory or time.
//!
//! Sources: NVIDIA/NeMo, scripts/llm/performance of v2.2.0 (25.02), scripts/performance of v2.3.0 (25.04) and v2.4.0 (25.07):
//! recommended_model_configs, and what a model's script says of graphs and dispatcher. Mixtral, Llama 4 and DeepSeek-V3 but on H100 drop
//! tokens beyond the mean and pad to it (MegatronTokenDropCallback).
//!
//! Lines are as those of `bridge.txt`. Settings, `letters[:recomputed modules]`, `letters:blockN` for the first N layers of a stage computed again, or
//! `letters:offloadN` for N layers whose activations wait on the host: graphs n none, s scoped; dispatcher a all-to-all, f flex; c experts padded
//! to the mean; z shards by Megatron-FSDP, whose memory graphs and what is recomputed were chosen for.

use std::sync::OnceLock;

use super::table::{Line, nearest, read};
use super::{Recipe, Recomputed, Wanted, number};
use crate::data::{File, text};
use crate::model::Architecture;
use crate::settings::{AttentionBackend, CrossEntropy, CudaGraphs, FlexBackend};
use crate::units::Dtype;

/// The lines of the table, read once.
fn lines() -> impl Iterator<Item = Line<'static>> {
    static LINES: OnceLock<Vec<Line<'static>>> = OnceLock::new();
    LINES.get_or_init(|| read(text(File::Nemo))).iter().copied()
}

/// The first release whose recipes name TransformerEngine's loss (`scripts/performance/utils.py`, v2.3.0). Those of v2.1.0 and v2.2.1, in the
/// containers 24.12 and 25.02, have Megatron-Core's (`GPTConfig.cross_entropy_loss_fusion`, whose kernel is its own unless another is
/// named).
const TE_LOSS: &str = "25.04";
/// The first release that gathers parameters in MXFP8 (`recipes/precision/mixed_precision.py`: off in v2.3.0, on in v2.4.0; of 8 bits in blocks
/// always off).
const MX_GATHERS: &str = "25.07";
/// The first release whose recipes are in the table.
const TABLED: &str = "25.02";
/// The first release with recipes of its own. What came before was configured by NeMo's launcher (NVIDIA/NeMo-Framework-Launcher to 24.09, 35e43939), whose
/// `conf/config.yaml` keeps cuDNN's attention off.
const OWN_RECIPES: &str = "24.12";
/// Rows of the output layer from which the launcher's configurations fuse the loss: Llama 3 and Nemotron, not Llama 2 and GPT-3.
const LARGE_VOCABULARY: u64 = 100_000;
/// Hidden size from which they hide no tensor-parallel communication: GPT-3 175B and Nemotron-4 340B, while Llama 2 70B does.
const LARGE_HIDDEN: u64 = 12_288;

/// Layers and hidden size of Nemotron-4 340B, whose configuration alone keeps the optimizer's state in bf16 and no masters
/// (`optim.dtype`), and recomputes core attention.
const NEMOTRON_340B: (u64, u64) = (96, 18_432);
/// The first release that has it.
const NEMOTRON_SINCE: &str = "24.07";

/// NeMo's performance recipes: gradients are summed in bf16, tensor-parallel communication hides. `sharded` where Megatron-FSDP shards the
/// plan's parameters, which gathers them in 16 bits.
pub(crate) fn recipe(model: &Architecture, wanted: &Wanted<'_>, sharded: bool) -> Recipe {
    let release = wanted.release;
    let recipe = Recipe {
        name: "performance recipes".to_owned(),
        source: "NVIDIA/NeMo, scripts/performance",
        graphs: Some(CudaGraphs::None),
        overlap_tp: true,
        gradients: Some(Dtype::Bf16),
        loss: Some(if release < number(TE_LOSS) { CrossEntropy::Native } else { CrossEntropy::Te }),
        low_gather: !sharded
            && match wanted.precision {
                "bf16" | "sc" => false,
                "mx" => release >= number(MX_GATHERS),
                _ => true,
            },
        ..Recipe::default()
    };
    if release >= number(TABLED) {
        return tabled(recipe, wanted, sharded);
    }
    if release >= number(OWN_RECIPES) {
        return recipe;
    }
    let nemotron =
        (model.num_layers, model.hidden_size) == NEMOTRON_340B && release >= number(NEMOTRON_SINCE);
    Recipe {
        name: if nemotron { "nemotron_340b" } else { "configurations of the launcher" }.to_owned(),
        source: "NVIDIA/NeMo-Framework-Launcher, launcher_scripts/conf",
        overlap_tp: model.hidden_size < LARGE_HIDDEN && model.moe.is_none(),
        loss: (model.vocab_size >= LARGE_VOCABULARY).then_some(CrossEntropy::Native),
        attention: Some(AttentionBackend::Flash),
        // No pretraining configuration sets `fp8_params`.
        low_gather: false,
        masters: nemotron.then_some(Dtype::Bf16),
        recompute: nemotron.then(|| Recomputed::Modules(vec!["core_attn".to_owned()])),
        ..recipe
    }
}

/// With what the nearest line sets over what all recipes have.
fn tabled(recipe: Recipe, wanted: &Wanted<'_>, sharded: bool) -> Recipe {
    let Some((line, [model, gpu, precision, count])) = nearest(lines(), wanted) else { return recipe };
    let same = model <= 0.0;
    let own = same && gpu == 0.0;
    let set = line.settings_of(wanted.release);
    // Graphs and what is recomputed or waits on the host were chosen for how the recipe shards.
    let alike = set.has('z') == sharded;
    Recipe {
        name: line.name(wanted),
        nearest: !own || precision > 0.0 || count > 0.0,
        others: !own,
        graphs: Some(if alike { set.graphs() } else { CudaGraphs::None }),
        dispatcher: set.dispatcher(line.model.sizes[2] > 0),
        backend: set.has('f').then_some(FlexBackend::DeepEp),
        // What changes the numbers that training computes is the model's own.
        capacity: (same && set.has('c')).then_some(1.0),
        recompute: (own && alike).then(|| set.recomputed()),
        offloaded_layers: set.offloaded().filter(|_| own && alike).unwrap_or(0),
        ..recipe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{import_hf, presets};
    use crate::recipes::Among;
    use crate::settings::Dispatcher;

    fn found(name: &str, gpu: &str, precision: &'static str, release: &str, sharded: bool) -> Recipe {
        let config = presets().iter().find(|preset| preset.id == name).unwrap().hf_config.as_ref().unwrap();
        let model = import_hf(config).architecture.unwrap();
        let experts = model.moe.as_ref().map_or(0, |moe| moe.experts);
        let wanted = Wanted {
            preset: Some(name),
            sizes: [model.num_layers, model.hidden_size, experts],
            gpu,
            blackwell: gpu.contains('b'),
            superchip: gpu.starts_with('g'),
            world: 64,
            precision,
            release: number(release),
            among: Among::All,
        };
        recipe(&model, &wanted, sharded)
    }

    #[test]
    fn every_line_is_read() {
        let text = text(File::Nemo);
        assert_eq!(lines().count(), text.lines().filter(|line| !line.starts_with(['#', '='])).count());
        for line in lines() {
            let letters = line.settings.split([' ', ':']).filter(|word| word.starts_with(['n', 's']));
            let known = |word: &str| word[1..].chars().all(|one| "afcz".contains(one));
            assert!(letters.clone().count() > 0 && letters.clone().all(known), "{line:?}");
            assert!(letters.clone().all(|word| (line.model.sizes[2] > 0) == word.contains(['a', 'f'])));
        }
    }

    #[test]
    fn a_recipe_is_that_of_its_release_and_of_how_it_shards() {
        let graphs = |release| found("llama-3-70b", "b200", "cs", release, false).graphs;
        assert_eq!(graphs("25.02"), Some(CudaGraphs::None));
        assert_eq!(graphs("25.04"), Some(CudaGraphs::Scoped));
        let sharded = found("llama-3-70b", "b200", "cs", "25.07", true);
        assert_eq!((sharded.recompute, sharded.low_gather), (Some(Recomputed::Block(10)), false));
        assert_eq!(found("llama-3-70b", "b200", "cs", "25.07", false).recompute, None);
        assert_eq!(found("llama-3.1-405b", "gb200", "cs", "25.07", true).offloaded_layers, 95);
        let mixture = found("deepseek-v3", "h100", "bf16", "25.07", false);
        assert_eq!((mixture.dispatcher, mixture.capacity), (Some(Dispatcher::Flex), None));
        assert_eq!(found("mixtral-8x7b", "gb200", "cs", "25.04", false).capacity, Some(1.0));
        let gathers = |precision, release| found("llama-3-8b", "b200", precision, release, false).low_gather;
        assert!(
            !gathers("mx", "25.04")
                && gathers("mx", "25.07")
                && gathers("cs", "25.04")
                && !gathers("sc", "25.07")
        );
    }

    #[test]
    fn another_models_recipe_sets_nothing_of_memory_or_numbers() {
        let other = found("glm-4.5-air", "gb200", "bf16", "25.07", false);
        assert!(other.others && other.nearest && other.recompute.is_none() && other.capacity.is_none());
        // Before there is a table all models have what all recipes set.
        let before = found("glm-4.5-air", "h100", "bf16", "24.12", false);
        assert!(!before.others && before.name == "performance recipes", "{before:?}");
    }
}
