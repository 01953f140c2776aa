//! What NeMo Automodel sets: by its recipe file for a model where there is one, else by its defaults.
//!
//! The table, `automodel.txt`, has what changes memory or time, by model, GPU, count and precision.
//!
//! Source: NVIDIA-NeMo/Automodel 36044ad3d139, examples/llm_benchmark: of a model's files on one GPU the one without quack, torchmm or
//! torch in its name. A file's GPUs are benchmark.num_nodes or ci.nodes, of eight H100 or of four GB200 where its name says so. Left out are
//! those of LoRA, those of llm_finetune, which say no GPU and train on short texts, and those with dispatcher `mok`, which no plan has.
//! llm_pretrain's of Llama 3.1 70B recomputes as the benchmark's does.
//!
//! `= PRESET LAYERS HIDDEN EXPERTS`, then `GPU COUNT PRECISIONS LETTERS`. First what is recomputed: r whole layers, - nothing. Then
//! d, h: DeepEP or HybridEP sends tokens (model.backend.dispatcher); b: the loss in bf16 (loss_fn.fp32_upcast), or of no logits
//! (FusedLinearCrossEntropy); a: layers are gathered again for backward (reshard_after_forward); c: layers are compiled (enable_compile);
//! e: gradients are reduced each micro batch (defer_fsdp_grad_sync).

use std::sync::OnceLock;

use super::table::{Line, nearest, read};
use super::{Recipe, Recomputed, Wanted};
use crate::data::{File, text};
use crate::settings::{Dispatcher, FlexBackend};
use crate::units::Dtype;

/// The lines of the table, read once.
fn lines() -> impl Iterator<Item = Line<'static>> {
    static LINES: OnceLock<Vec<Line<'static>>> = OnceLock::new();
    LINES.get_or_init(|| read(text(File::Automodel))).iter().copied()
}

/// Automodel's defaults (36044ad3d139): models are made in bf16 and shards, gradients and moments stay so (`_transformers/auto_model.py`,
/// `torch_dtype`); gradients are reduced after the last micro batch (`components/distributed/config.py`, `defer_fsdp_grad_sync`). Its models
/// with experts keep layers gathered (`MoEParallelizerConfig`) and send tokens by DeepEP, which its container has
/// (`components/models/common/utils.py`, `BackendConfig`). Nothing is recomputed or compiled unless a recipe file says so.
fn defaults(experts: bool) -> Recipe {
    Recipe {
        name: "defaults".to_owned(),
        source: "NVIDIA-NeMo/Automodel, components/distributed/config.py and components/models/common/utils.py",
        sharded: Some(Dtype::Bf16),
        gradient_sync: Some("last"),
        // What is recomputed by parts are matrix products, and no modules by name.
        every_second: true,
        reshard: experts.then_some("never"),
        dispatcher: experts.then_some(Dispatcher::Flex),
        backend: experts.then_some(FlexBackend::DeepEp),
        ..Recipe::default()
    }
}

/// What the file for a model sets over the defaults; the defaults where it has none. Of files for other GPUs what is recomputed is left
/// out, which was chosen for their memory.
pub(crate) fn recipe(wanted: &Wanted<'_>) -> Recipe {
    let experts = wanted.sizes[2] > 0;
    let defaults = defaults(experts);
    let of_model = lines().filter(|line| line.model_apart(wanted) <= 0.0);
    let Some((line, [_, gpu, precision, count])) = nearest(of_model, wanted) else { return defaults };
    let own = gpu == 0.0;
    let has = |letter: char| line.settings.contains(letter);
    Recipe {
        name: line.name(wanted),
        source: "NVIDIA-NeMo/Automodel 36044ad3d139, examples/llm_benchmark",
        nearest: !own || precision > 0.0 || count > 0.0,
        others: !own,
        recompute: own.then_some(if has('r') { Recomputed::Full } else { Recomputed::Nothing }),
        compile: has('c').then_some(true),
        gradient_sync: if has('e') { Some("every") } else { defaults.gradient_sync },
        reshard: if has('a') { Some("always") } else { defaults.reshard },
        loss_dtype: has('b').then_some(Dtype::Bf16),
        backend: if has('h') { Some(FlexBackend::HybridEp) } else { defaults.backend },
        ..defaults
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::recipes::Among;

    fn found(among: Among, preset: &str, sizes: [u64; 3], gpu: &str, precision: &'static str) -> Recipe {
        let superchip = gpu.starts_with('g');
        let blackwell = gpu.contains('b');
        recipe(&Wanted {
            preset: Some(preset),
            sizes,
            gpu,
            blackwell,
            superchip,
            world: 64,
            precision,
            release: 0,
            among,
        })
    }

    #[test]
    fn every_line_is_read() {
        let text = text(File::Automodel);
        assert_eq!(lines().count(), text.lines().filter(|line| !line.starts_with(['#', '='])).count());
        let models: BTreeSet<&str> = lines().map(|line| line.model.preset).collect();
        assert_eq!(models.len(), text.lines().filter(|line| line.starts_with('=')).count());
        for line in lines() {
            assert!(line.settings.starts_with(['r', '-']), "{line:?}");
            assert!(line.settings[1..].chars().all(|letter| "dhbace".contains(letter)), "{line:?}");
            let experts = line.model.sizes[2] > 0;
            assert_eq!(experts, line.settings.contains(['d', 'h']), "{line:?}");
        }
    }

    #[test]
    fn a_file_is_found_by_model_gpu_and_precision_and_recomputes_for_its_own_gpu() {
        let of = |gpu, precision| found(Among::All, "gpt-oss-120b", [36, 2880, 128], gpu, precision);
        let own = of("h100", "bf16");
        assert_eq!((own.recompute.clone(), own.nearest), (Some(Recomputed::Nothing), false));
        assert_eq!(
            (own.name.as_str(), own.backend),
            ("gpt-oss-120b on 64 h100, bf16", Some(FlexBackend::HybridEp))
        );
        assert_eq!(
            (of("gb200", "bf16").recompute, of("gb200", "mx").recompute),
            (own.recompute, Some(Recomputed::Full))
        );
        let other_gpu = of("h200", "bf16");
        assert!(other_gpu.others && other_gpu.nearest && other_gpu.recompute.is_none(), "{other_gpu:?}");
        assert_eq!(other_gpu.loss_dtype, Some(Dtype::Bf16));
        // The same sizes under another name.
        let by_sizes = found(Among::All, "mine", [80, 8192, 0], "h100", "bf16");
        assert_eq!(
            (by_sizes.reshard, by_sizes.gradient_sync, by_sizes.compile),
            (Some("always"), Some("every"), Some(true))
        );
    }

    #[test]
    fn a_model_without_a_file_gets_the_defaults() {
        for (among, sizes) in [(Among::All, [40, 6000, 0]), (Among::Others, [80, 8192, 0])] {
            let found = found(among, "mine", sizes, "h100", "bf16");
            assert_eq!(
                (found.name.as_str(), found.recompute, found.nearest),
                ("defaults", None, false),
                "{sizes:?}"
            );
        }
    }
}
