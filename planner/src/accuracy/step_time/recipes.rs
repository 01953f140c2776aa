//! What Megatron-Bridge's tables don't print: CUDA graphs, recomputation, dispatcher and overlap of the recipe that a
//! row's layout, GPU and release belong to. The file lists the recipes of all revisions of the repository.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::time::Numbers;
use crate::wire::CudaGraphs;

/// One recipe, in the order of the file's columns.
#[derive(Debug, Deserialize)]
struct Line(
    String,
    String,
    String,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    String,
    Vec<String>,
    bool,
    bool,
    u64,
    u64,
);

#[derive(Debug, Default, Deserialize)]
struct File {
    rows: Vec<Line>,
}

/// Settings of a recipe.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recipe {
    /// CUDA graphs.
    pub graphs: CudaGraphs,
    /// Modules that are computed again.
    pub recompute: &'static [String],
    /// Whether tokens go to experts by DeepEP or HybridEP.
    pub fused_dispatch: bool,
    /// Whether the all-to-all hides behind another micro batch.
    pub overlap_ep: bool,
}

/// What a row prints of its recipe.
pub(super) struct Wanted<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// GPU, as the tables print it.
    pub gpu: &'a str,
    /// Format of GEMMs.
    pub numbers: Numbers,
    /// GPUs, tp, pp, vpp, cp, ep, micro batch.
    pub layout: [u64; 7],
    /// Release: 26.04.01 is 260401.
    pub release: u64,
}

/// Days since the year 0, months counted as 31 days: good enough to compare.
const fn days(date: u64) -> i64 {
    (date / 10_000 * 372 + date / 100 % 100 * 31 + date % 100) as i64
}

/// The day on which a release's runs were made: tables appear in the middle of its month, those of point releases five
/// weeks later (history of the repository's performance summary).
fn day_of(release: u64) -> i64 {
    let month = days(20_000_000 + release / 100 * 100 + 11);
    month + if release.is_multiple_of(100) { 0 } else { 36 }
}

fn lines() -> &'static [Line] {
    static LINES: OnceLock<Vec<Line>> = OnceLock::new();
    LINES.get_or_init(|| {
        let text = include_str!("../evidence/megatron_bridge_recipes.json");
        serde_json::from_str::<File>(text).unwrap_or_default().rows
    })
}

/// The recipe of that layout whose time is nearest to the release, in the same precision where there is one.
pub(super) fn recipe(wanted: &Wanted<'_>) -> Option<Recipe> {
    let precision = match wanted.numbers {
        Numbers::Wide | Numbers::Bf16 => "BF16",
        Numbers::Fp8 => "FP8_CS",
        Numbers::Fp8Rows => "FP8_SC",
        Numbers::Mxfp8 => "FP8_MX",
        Numbers::Nvfp4 => "NVFP4",
    };
    let day = day_of(wanted.release);
    let fits = |line: &&Line| {
        let layout = [line.3, line.4, line.5, line.6, line.7, line.8, line.9];
        line.0 == wanted.model && line.1 == wanted.gpu && layout == wanted.layout
    };
    let rank = |line: &&Line| {
        let away = (days(line.14) - day).max(day - days(line.15)).max(0);
        (line.2 != precision, away, -days(line.14))
    };
    let line = lines().iter().filter(fits).min_by_key(rank)?;
    let graphs = match line.10.as_str() {
        "iteration" => CudaGraphs::Iteration,
        "scoped" => CudaGraphs::Scoped,
        _ => CudaGraphs::None,
    };
    Some(Recipe { graphs, recompute: &line.11, fused_dispatch: line.12, overlap_ep: line.13 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(gpu: &str, layout: [u64; 7], release: u64) -> Option<Recipe> {
        recipe(&Wanted { model: "deepseek_v3", gpu, numbers: Numbers::Mxfp8, layout, release })
    }

    #[test]
    fn a_recipe_is_the_one_of_its_layout_and_time() {
        let stages = [256, 1, 16, 1, 1, 8, 1];
        let early = found("B200", stages, 251_100).unwrap();
        let later = found("B200", stages, 260_400).unwrap();
        assert_eq!((early.graphs, early.fused_dispatch), (CudaGraphs::None, false));
        assert_eq!((later.graphs, later.fused_dispatch), (CudaGraphs::None, true));
        assert_eq!(later.recompute, ["mla_up_proj"]);
        let whole = found("GB300", [256, 1, 2, 8, 1, 32, 1], 260_600).unwrap();
        assert_eq!((whole.graphs, whole.overlap_ep), (CudaGraphs::Iteration, true));
        assert_eq!(found("B200", [256, 1, 3, 1, 1, 8, 1], 260_400), None);
    }
}
