//! The scores as Markdown, for docs/accuracy.md and, the chief ones, README.

use super::step_time::Group;
use super::typed::middle;
use super::{Covered, Dataset, Pairs};

/// Where the figures stand in the document.
pub const BEGIN: &str = "<!-- figures written by `cargo xtask accuracy` -->";
/// Where they end.
pub const END: &str = "<!-- end of figures -->";

/// The document with its figures replaced by those of `datasets`; none when it has no place for them.
pub fn with_figures(document: &str, datasets: &[Dataset], unseen: &[Group]) -> Option<String> {
    between(document, &figures(datasets, unseen))
}

/// The same for the chief figures.
pub fn with_chief_figures(document: &str, datasets: &[Dataset], _: &[Group]) -> Option<String> {
    between(document, &chief_figures(datasets)?)
}

fn between(document: &str, text: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{text}\n{END}{after}"))
}

/// What README shows, in words: dataset, quantity, rows. Of datasets in two halves the one that constants were not fitted to.
const CHIEF: [(&str, &str, &str, &str); 22] = [
    ("Parameters on a rank: Megatron-Core's own count", "param_counts", "parameters", "all"),
    ("Peak memory: Megatron-LM's CI", "megatron_ci_golden", "peak_bytes", "validate"),
    ("Peak memory: torchtitan's benchmarks", "torchtitan_benchmarks", "peak_bytes", "all"),
    ("Peak memory: KempnerForge's FSDP2 runs", "kempnerforge_h200", "peak_bytes", "all"),
    ("Step: Megatron Bridge, as a user types it", "megatron_bridge_perf", "step_seconds", "as typed"),
    (
        "Step: Megatron Bridge as typed, its own recipe not known",
        "megatron_bridge_perf",
        "step_seconds",
        "as typed, own recipe out",
    ),
    (
        "Step: Megatron Bridge, Qwen3-235B as typed, which no constant saw",
        "megatron_bridge_qwen3_235b",
        "step_seconds",
        "as typed",
    ),
    ("Step: Megatron Bridge, each model family unseen", "megatron_bridge_perf", "step_seconds", "family_out"),
    ("Step: NeMo on up to 2,048 H100, as typed", "nemo_h100_scaling", "step_seconds", "as typed"),
    (
        "Step: Megatron-LM's own table, up to 6,144 H100, as typed",
        "megatron_lm_readme",
        "step_seconds",
        "as typed",
    ),
    (
        "Step: torch's FSDP on 8 to 512 A100 and H100, which no constant saw",
        "llm_foundry_fsdp",
        "step_seconds",
        "as run",
    ),
    (
        "Step: Llama 3.1, Nemotron-4 and Grok-1 on up to 2,304 H100, as typed, which no constant saw",
        "nemo_dgxc_2025",
        "step_seconds",
        "as typed",
    ),
    (
        "Step: mixtures under Megatron-Core on 64 to 1,024 H100, as typed, which no constant saw",
        "moe_parallel_folding",
        "step_seconds",
        "as typed",
    ),
    (
        "Step: MLPerf Training's GPT-3, Llama 3.1 405B and 8B, 12 submitters on 8 to 8,192 GPUs, as typed, which no constant saw",
        "mlperf_training",
        "step_seconds",
        "as typed",
    ),
    (
        "Step: NeMo 24.03 and 24.07 with up to a million tokens on up to 1,024 H100, as typed, which no constant saw",
        "nemo_2024",
        "step_seconds",
        "as typed",
    ),
    (
        "Step: NeMo 25.02 to 25.07 on 8 to 512 B200, GB200 and H100, as typed, which no constant saw",
        "nemo_2025",
        "step_seconds",
        "as typed",
    ),
    (
        "Step: NeMo 24.05 to 24.11 on 8 to 2,304 H100, as typed, which no constant saw",
        "nemo_dgxc_2024",
        "step_seconds",
        "as typed",
    ),
    (
        "Step: programs that no profile stands for (MaxText, Pax, XTuner, PaddleNLP), which no constant saw",
        "other_programs",
        "step_seconds",
        "as run",
    ),
    (
        "Step: GPT of 177B to 206B on 80 to 384 A100, which no constant saw",
        "bigscience_a100",
        "step_seconds",
        "as run",
    ),
    ("Step: NeMo Automodel's own table, which no constant saw", "automodel_h100", "step_seconds", "as run"),
    ("Step: vTrain's runs", "vtrain_ground_truth", "step_seconds", "validate"),
    ("Step: torchtitan's benchmarks", "torchtitan_benchmarks", "step_seconds", "validate"),
];

/// A table of the chief scores; none when one of them is not among the datasets.
fn chief_figures(datasets: &[Dataset]) -> Option<String> {
    let mut text = String::from(
        "| predicted against published | rows | median error | 90 % within |\n|---|--:|--:|--:|\n",
    );
    for (words, name, quantity, split) in CHIEF {
        let is_it = |one: &&Dataset| one.name == name && one.quantity == quantity && one.split == split;
        let found = datasets.iter().find(is_it)?;
        text.push_str(&format!(
            "| {words} | {} | {} | {} |\n",
            found.n,
            percent(found.median_abs_err),
            percent(found.p90_abs_err)
        ));
    }
    Some(text)
}

fn percent(fraction: f64) -> String {
    format!("{:.2}%", 100.0 * fraction)
}

fn signed(fraction: f64) -> String {
    format!("{:+.2}%", 100.0 * fraction)
}

/// How many rows are in the likely range of their prediction.
fn ranges(datasets: &[Dataset]) -> String {
    let mut text = String::new();
    for dataset in datasets {
        let Some(Covered { below, within, above }) = dataset.range else { continue };
        let all = (below + within + above).max(1) as f64;
        text.push_str(&format!(
            "| {} | {} | {} | {below} | {within} | {above} | {} |\n",
            dataset.name,
            dataset.quantity,
            dataset.split,
            percent(within as f64 / all)
        ));
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "\nRows below, within and above the likely range of their peak:\n\n| dataset | quantity | rows | below | within | above | within |\n|---|---|---|--:|--:|--:|--:|\n{text}"
    )
}

/// Whether a score is of all rows, by whatever path they were planned, and not of a half that constants were fitted without.
pub fn is_of_all_rows(dataset: &Dataset) -> bool {
    dataset.split == "all" || dataset.split.starts_with("as ")
}

/// How many rows are in the likely range of their step, and how wide that is.
fn step_ranges(datasets: &[Dataset]) -> String {
    let mut text = String::from(
        "\nLikely ranges of steps, of rows that most constants were fitted to:\n\n| dataset | told | rows | within | half the width |\n|---|---|--:|--:|--:|\n",
    );
    for dataset in datasets {
        let Some(half) = dataset.half_width else { continue };
        let share = dataset.equal as f64 / dataset.n.max(1) as f64;
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} |\n",
            dataset.name,
            dataset.split,
            dataset.n,
            percent(share),
            percent(half)
        ));
    }
    text
}

/// Published steps of all sources that are told alike.
#[derive(Debug, Clone)]
pub struct Together<'a> {
    /// How they are told.
    pub told: &'a str,
    /// Rows.
    pub rows: u64,
    /// Rows in their likely range.
    pub within: u64,
    /// Median of half the range's width over the step.
    pub half_width: f64,
    /// Rows that are told that they do not fit though they ran.
    pub told_no: u64,
    /// Pairs of layouts that somebody could choose between.
    pub pairs: Pairs,
    /// Groups of such layouts, and those whose first choice takes at most 5 % longer than the best.
    pub groups: [u64; 2],
}

/// All sources' steps, by how they are told.
pub fn together(datasets: &[Dataset]) -> Vec<Together<'_>> {
    let mut all: Vec<Together<'_>> = Vec::new();
    let mut told: Vec<&str> = Vec::new();
    for dataset in datasets.iter().filter(|dataset| dataset.told_no.is_some()) {
        if !told.contains(&dataset.split.as_str()) {
            told.push(&dataset.split);
        }
    }
    for told in told {
        let like = || datasets.iter().filter(|dataset| dataset.split == told);
        let ranges = || like().filter(|dataset| dataset.half_width.is_some());
        let rankings = || like().filter(|dataset| dataset.pairs.is_some());
        let widths = ranges().flat_map(|dataset| dataset.half_widths.iter().copied()).collect();
        all.push(Together {
            told,
            rows: ranges().map(|dataset| dataset.n).sum(),
            within: ranges().map(|dataset| dataset.equal).sum(),
            half_width: middle(widths).unwrap_or(0.0),
            told_no: like().filter_map(|dataset| dataset.told_no).sum(),
            pairs: rankings()
                .filter_map(|dataset| dataset.pairs)
                .fold(Pairs::default(), |all, one| all + one),
            groups: [
                rankings().map(|dataset| dataset.n).sum(),
                rankings().map(|dataset| dataset.equal).sum(),
            ],
        });
    }
    all
}

/// The same, as a table.
fn all_together(datasets: &[Dataset]) -> String {
    let mut text = String::from(
        "\nAll of them together; rows that ran and are told `no`; pairs of layouts of one model, cluster, batch and sequence, Kendall's tau of them, and in how many groups of them the first choice takes at most 5% longer than the best:\n\n| told | rows | within | half the width | told `no` | | pairs | tau | first choice |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for Together { told, rows, within, half_width, told_no, pairs, groups: [groups, as_good] } in
        together(datasets)
    {
        let share = |count: u64| percent(count as f64 / rows.max(1) as f64);
        text.push_str(&format!(
            "| {told} | {rows} | {} | {} | {told_no} | {} | {} | {:.2} | {as_good} of {groups} |\n",
            share(within),
            percent(half_width),
            share(told_no),
            pairs.all,
            pairs.tau()
        ));
    }
    text
}

/// The same of rows that the constants had not seen.
fn unseen_ranges(unseen: &[Group]) -> String {
    let mut text = String::from(
        "\nSteps whose constants had not seen them, each source, family of models and GPU left out in turn and all constants fitted again; ranges are derived from those with a star:\n\n| dataset | told | left out | rows | median | p90 | within | half the width | |\n|---|---|---|--:|--:|--:|--:|--:|---|\n",
    );
    for group in unseen {
        let (dataset, told, left_out) = group.of;
        text.push_str(&format!(
            "| {dataset} | {told} | {} | {} | {} | {} | {} | {} | {} |\n",
            left_out.name(),
            group.n,
            percent(group.errors[0]),
            percent(group.errors[1]),
            percent(group.within as f64 / group.n.max(1) as f64),
            percent(group.half_width),
            if group.counts { "*" } else { "" }
        ));
    }
    text
}

/// Tables of all scores, of the worst rows, and of what could not be planned.
pub fn figures(datasets: &[Dataset], unseen: &[Group]) -> String {
    let mut text = String::from(
        "| dataset | quantity | rows | n | equal | mean | median | p90 | max | bias | unmapped | without it |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for dataset in datasets {
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            dataset.name,
            dataset.quantity,
            dataset.split,
            dataset.n,
            dataset.equal,
            percent(dataset.mean_abs_err),
            percent(dataset.median_abs_err),
            percent(dataset.p90_abs_err),
            percent(dataset.max_abs_err),
            signed(dataset.bias),
            dataset.unmapped,
            dataset.excluded
        ));
    }
    text.push_str(&ranges(datasets));
    text.push_str(&step_ranges(datasets));
    text.push_str(&all_together(datasets));
    text.push_str(&unseen_ranges(unseen));
    for dataset in datasets.iter().filter(|dataset| is_of_all_rows(dataset)) {
        if !dataset.worst.is_empty() {
            let split = if dataset.split == "all" { String::new() } else { format!(", {}", dataset.split) };
            text.push_str(&format!("\nWorst rows of {}, {}{split}:\n\n", dataset.name, dataset.quantity));
            for row in &dataset.worst {
                text.push_str(&format!("- {} {}\n", signed(row.error), row.row));
            }
        }
    }
    let mut named: Vec<&str> = Vec::new();
    let mut notes = String::new();
    for dataset in datasets.iter().filter(|dataset| is_of_all_rows(dataset)) {
        for note in dataset.notes.iter().filter(|note| !named.contains(&note.as_str())).collect::<Vec<_>>() {
            notes.push_str(&format!("- {}: {note}\n", dataset.name));
            named.push(note);
        }
    }
    if !notes.is_empty() {
        text.push_str(&format!(
            "\nRows that could not be planned, or are not equal where equality is asked:\n\n{notes}"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_replace_figures_and_nothing_else() {
        let document = format!("before\n{BEGIN}\nfigures of before\n{END}\nafter\n");
        let dataset =
            super::super::score("param_counts", include_str!("evidence/param_counts.json")).unwrap();
        let written = with_figures(&document, &dataset, &[]).unwrap();
        assert!(written.starts_with("before\n") && written.ends_with("after\n"), "{written}");
        assert!(written.contains("| param_counts | parameters | all | 22 | 22 |"), "{written}");
        assert!(!written.contains("figures of before"));
        assert_eq!(with_figures(&written, &dataset, &[]).unwrap(), written);
        assert_eq!(with_figures("no place", &dataset, &[]), None);
    }
}
