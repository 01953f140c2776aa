//! The recipe of Megatron Bridge for a model, GPU, count, precision and release: the nearest where there is none.
//!
//! The table, `bridge.txt`, has what changes memory or time.
//!
//! Sources: NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs of the release's own tag: graphs, dispatcher, overlap, recomputation, layers
//! on the host, 8-bit attention and output layer (25.11 v0.2.0, 26.02 v0.3.0, 26.02.01 v0.3.1, 26.04 v0.4.0, 26.06 v0.5.0, 26.06.01 and 26.08
//! v0.5.1, which v0.6.0's perf_recipes repeat); of 26.04.01 on B200 and B300, whose published layouts are not those of v0.4.1, as on the day
//! of its table (2026-05-27). Other models as on the day of a release: the middle of its month. Recipes and perf_recipes of 067f987df03b:
//! gradients, optimizer, loss, capacity. Of several variants the newest.
//!
//! `= model layers hidden experts [precision:what]...`, what being gather16 for parameters that are gathered in 16 bits, or lastN for N last
//! layers that stay in bf16 (perf_recipes/gpt_oss/common.py, perf_recipes/nemotronh/common.py); then lines of
//! `GPU count precisions settings [release:settings]...`. The first settings hold from the first known release, later ones from their release
//! on. Precisions: bf16, cs (fp8_current), sc (fp8_blockwise), mx (mxfp8), nv (nvfp4).
//! Settings, `letters[:recomputed modules]`, or `letters:offloadN` for N layers whose activations wait on the host: graphs n none, s scoped,
//! i iteration; dispatcher a all-to-all, f flex, neither where not known;
//! e expert all-to-all hidden; gradients 2 or 4 bytes; p precision-aware optimizer, b that with bf16 moments, h that with fp16 masters too;
//! n (not first) the loss kernel of Megatron-Core; c experts padded to 1.1 times the mean; d attention and o output layer in 8 bits.

use std::sync::OnceLock;

use super::table::{Line, nearest, read};
use super::{Recipe, Wanted};
use crate::data::{File, text};
use crate::settings::{CrossEntropy, FlexBackend};
use crate::units::Dtype;

const SOURCE: &str = "recipes of NVIDIA-NeMo/Megatron-Bridge to 067f987df03b";

/// The lines of the table, read once.
fn lines() -> impl Iterator<Item = Line<'static>> {
    static LINES: OnceLock<Vec<Line<'static>>> = OnceLock::new();
    LINES.get_or_init(|| read(text(File::Releases))).iter().copied()
}

/// The recipe for what is wanted.
pub(crate) fn recipe(wanted: &Wanted<'_>) -> Option<Recipe> {
    let (line, [model, gpu, precision, count]) = nearest(lines(), wanted)?;
    let same = model <= 0.0;
    let own = same && gpu == 0.0;
    let set = line.settings_of(wanted.release);
    let dense = line.model.sizes[2] == 0;
    let has = |letter: char| set.has(letter);
    let flex = has('f');
    let low = wanted.precision != "bf16";
    let of_model =
        |what: &'static str| line.model.of(wanted.precision).find_map(|word| word.strip_prefix(what));
    Some(Recipe {
        name: line.name(wanted),
        source: SOURCE,
        nearest: !own || precision > 0.0 || count > 0.0,
        others: !own,
        // `recipes/deepseek/deepseek_v3.py`
        mtp_layers: (model <= 0.0 && line.model.preset == "deepseek-v3").then_some(1),
        graphs: Some(set.graphs()),
        dispatcher: set.dispatcher(!dense),
        // DeepEP does not pad to capacity.
        backend: flex.then_some(if line.is_blackwell() || has('c') {
            FlexBackend::HybridEp
        } else {
            FlexBackend::DeepEp
        }),
        overlap_tp: dense,
        overlap_ep: has('e'),
        sharded: None,
        gradient_sync: None,
        reshard: None,
        loss_dtype: None,
        recompute: own.then(|| set.recomputed()),
        gradients: match () {
            () if has('2') => Some(Dtype::Bf16),
            () if has('4') => Some(Dtype::Fp32),
            () => None,
        },
        loss: Some(if has('n') { CrossEntropy::Native } else { CrossEntropy::Te }),
        attention: None,
        // What changes the numbers that training computes is the model's own.
        precision_aware: same && ['p', 'b', 'h'].into_iter().any(has),
        moments: (same && (has('b') || has('h'))).then_some(Dtype::Bf16),
        masters: (same && has('h')).then_some(Dtype::Fp16),
        capacity: (same && has('c')).then_some(PADDED),
        low_gather: low && !WIDE_GATHERS.contains(&wanted.precision) && of_model(GATHERS_WIDE).is_none(),
        bf16_last: of_model(BF16_LAST).filter(|_| same).and_then(|count| count.parse().ok()).unwrap_or(0),
        low_attention: low && has('d'),
        low_output: low && has('o'),
        offloaded_layers: set.offloaded().filter(|_| own).unwrap_or(0),
        every_second: false,
        compile: None,
    })
}

/// Precisions whose parameters are gathered in 16 bits: 8 bits in blocks, and 4 bits (`training/mixed_precision.py`).
const WIDE_GATHERS: [&str; 2] = ["sc", "nv"];

/// A model's word for the same.
const GATHERS_WIDE: &str = "gather16";

/// A model's word for its last layers that stay in bf16, before their number. Current scaling has none: what its mixed-precision recipe leaves
/// in bf16 is switched off for performance (`_perf_precision`; `get_precision_config` of earlier releases).
const BF16_LAST: &str = "last";

/// Tokens of an expert over the mean to which recipes pad.
const PADDED: f64 = 1.1;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::recipes::{Among, Recomputed, number};
    use crate::settings::{CudaGraphs, Dispatcher};

    fn found(preset: &str, gpu: &str, world: u64, precision: &'static str, release: &str) -> Recipe {
        found_among(Among::All, preset, gpu, world, precision, release)
    }

    fn found_among(
        among: Among,
        preset: &str,
        gpu: &str,
        world: u64,
        precision: &'static str,
        release: &str,
    ) -> Recipe {
        let line = lines().find(|line| line.model.preset == preset);
        let sizes = line.map_or([40, 6000, 0], |line| line.model.sizes);
        let blackwell = gpu.starts_with('b') || gpu.starts_with("gb");
        recipe(&Wanted {
            preset: Some(preset),
            sizes,
            gpu,
            blackwell,
            superchip: gpu.starts_with('g'),
            world,
            precision,
            release: number(release),
            among,
        })
        .unwrap()
    }

    #[test]
    fn every_line_is_read() {
        let text = text(File::Releases);
        assert_eq!(lines().count(), text.lines().filter(|line| !line.starts_with(['#', '='])).count());
        let models: BTreeSet<&str> = lines().map(|line| line.model.preset).collect();
        assert_eq!(models.len(), text.lines().filter(|line| line.starts_with('=')).count());
        for line in lines() {
            for word in line.settings.split(' ') {
                let settings = match word.split_once(':') {
                    Some((since, settings)) if since.contains('.') => settings,
                    _ => word,
                };
                let letters = settings.split(':').next().unwrap();
                assert!(letters.starts_with(['n', 's', 'i']), "{line:?}");
                assert!(letters[1..].chars().all(|one| "afe24pbhncdo".contains(one)), "{line:?}");
            }
        }
    }

    #[test]
    fn a_recipe_is_that_of_its_release() {
        let early = found("deepseek-v3", "b200", 256, "mx", "25.11");
        let later = found("deepseek-v3", "b200", 256, "mx", "26.04");
        let last = found("deepseek-v3", "b200", 256, "mx", "26.08");
        assert_eq!(
            (early.dispatcher, later.dispatcher),
            (Some(Dispatcher::AllToAll), Some(Dispatcher::Flex))
        );
        assert_eq!((later.graphs, later.overlap_ep), (Some(CudaGraphs::None), false));
        assert_eq!((last.graphs, last.overlap_ep), (Some(CudaGraphs::Scoped), true));
        let modules = ["mla_up_proj", "mlp"].map(str::to_owned).to_vec();
        assert_eq!(last.recompute, Some(Recomputed::Modules(modules)));
        assert!(!last.nearest && last.low_gather && last.gradients == Some(Dtype::Bf16), "{last:?}");
    }

    #[test]
    fn where_there_is_none_the_nearest_is_taken_and_named() {
        let other_count = found("llama-3-70b", "h100", 512, "bf16", "26.08");
        assert!(other_count.nearest && other_count.recompute.is_some(), "{other_count:?}");
        assert_eq!(other_count.name, "llama-3-70b on 64 h100, bf16");
        let other_gpu = found("llama-3-70b", "h200", 64, "bf16", "26.08");
        assert_eq!((other_gpu.name.as_str(), other_gpu.recompute), ("llama-3-70b on 64 h100, bf16", None));
        let other_model = found("phi-4", "b200", 64, "mx", "26.08");
        assert!(other_model.nearest && other_model.dispatcher.is_none(), "{other_model:?}");
        let other_precision = found("qwen3-30b-a3b", "h100", 16, "sc", "26.08");
        assert_eq!(other_precision.name, "qwen3-30b-a3b on 16 h100, fp8_current");
    }

    #[test]
    fn a_superchips_recipe_is_nearest_to_another_superchips_and_a_boards_to_a_boards() {
        for (gpu, nearest) in [("gb200", "gb300"), ("gb300", "gb200"), ("b200", "b300"), ("b300", "b200")] {
            let found = found_among(Among::Others, "deepseek-v3", gpu, 256, "mx", "26.04");
            assert_eq!(found.name, format!("deepseek-v3 on 256 {nearest}, mxfp8"));
        }
        // On another generation's GPU no board is nearer than another.
        let hopper = found_among(Among::Others, "deepseek-v3", "h100", 256, "bf16", "26.04");
        assert_eq!(hopper.name, "deepseek-v3 on 256 b200, bf16");
    }
}
