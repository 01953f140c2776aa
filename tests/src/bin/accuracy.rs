//! Scores planner against published measurements: `cargo xtask accuracy [--evidence DIR] [--json]`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use evidence::report::{BEGIN, END, is_of_all_rows, together, with_chief_figures, with_figures};
use evidence::step_time::{Group, groups, splits, unseen};
use evidence::winners::winners;
use evidence::{BUNDLED, Dataset, score};
use system_tests::unseen_table;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the scores are this program's data")]
fn run() -> Result<()> {
    let (mut evidence, mut json, mut search) = (None, false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--search" => search = true,
            "--evidence" => {
                evidence = Some(PathBuf::from(arguments.next().context("--evidence needs a folder")?));
            }
            other => bail!("`{other}` is not an option; there are --evidence DIR, --search and --json"),
        }
    }
    if search {
        return places(evidence, json);
    }
    let bundled = evidence.is_none();
    let mut datasets = Vec::new();
    for (name, text) in texts(evidence)? {
        datasets.extend(score(&name, &text).map_err(anyhow::Error::msg)?);
    }
    // Rules and constants were made with a part of the project's own rows; of another folder's rows all are alike.
    datasets.retain(|dataset| bundled || is_of_all_rows(dataset));
    let unseen = match bundled {
        true => groups(&unseen(&splits().map_err(anyhow::Error::msg)?).map_err(anyhow::Error::msg)?),
        false => Vec::new(),
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "datasets": datasets }))?);
    } else {
        print(&datasets);
        unseen_table::print(&unseen);
    }
    if bundled { write(&datasets, &unseen) } else { Ok(()) }
}

/// Prints where published layouts stand among all plans of their search.
#[expect(clippy::print_stdout, reason = "the places are this program's data")]
fn places(evidence: Option<PathBuf>, json: bool) -> Result<()> {
    let all = texts(evidence)?;
    let (_, text) = all
        .iter()
        .find(|(name, _)| name == "megatron_bridge_perf")
        .context("no megatron_bridge_perf.json")?;
    let found = winners(text).map_err(anyhow::Error::msg)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "winners": found }))?);
        return Ok(());
    }
    let mut placed = 0;
    let mut top = 0;
    for winner in &found {
        match (winner.place, winner.share(), &winner.reason) {
            (Some(place), Some(share), _) => {
                placed += 1;
                top += u64::from(share <= 0.05);
                let over = 100.0 * (winner.over_best.unwrap_or(1.0) - 1.0);
                println!(
                    "{:6.2} %  {place} of {}, {over:.1} % over the best  {}",
                    100.0 * share,
                    winner.fitting,
                    winner.row
                );
                for among in &winner.among {
                    let share = 100.0 * among.place as f64 / among.fitting.max(1) as f64;
                    println!("         {share:6.2} %  among the {} with {}", among.fitting, among.what);
                }
            }
            (.., reason) => println!("   none   {}  {}", reason.as_deref().unwrap_or_default(), winner.row),
        }
    }
    println!("{top} of {placed} placed layouts are in the top 5 %; {} have no place", found.len() - placed);
    Ok(())
}

/// Writes the figures into the checkout's documents; figures of other evidence are not the project's.
fn write(datasets: &[Dataset], unseen: &[Group]) -> Result<()> {
    type WithFigures = fn(&str, &[Dataset], &[Group]) -> Option<String>;
    let documents: [(&str, WithFigures); 2] =
        [("docs/accuracy.md", with_figures), ("README.md", with_chief_figures)];
    for (name, with_figures) in documents {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let document =
            std::fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?;
        let written = with_figures(&document, datasets, unseen).with_context(|| {
            format!("{name} has no place for figures between `{BEGIN}` and `{END}`, or one is missing")
        })?;
        if written != document {
            std::fs::write(&path, written).with_context(|| format!("can't write {}", path.display()))?;
            eprintln!("wrote the figures into {name}");
        }
    }
    Ok(())
}

/// Name and text of every dataset, by name.
fn texts(evidence: Option<PathBuf>) -> Result<Vec<(String, String)>> {
    let Some(folder) = evidence else {
        return Ok(BUNDLED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect());
    };
    let entries = std::fs::read_dir(&folder).with_context(|| format!("can't read {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?;
            found.push((stem, text));
        }
    }
    found.sort();
    Ok(found)
}

#[expect(clippy::print_stdout, reason = "the scores are this program's data")]
fn print(datasets: &[Dataset]) {
    for all in together(datasets) {
        println!(
            "all steps {}: {} of {} within, half the width {:.1} %, {} ({:.1} %) told `no` though they ran, tau of {} pairs {:.2}, first choice within 5 % in {} of {} groups",
            all.told,
            all.within,
            all.rows,
            100.0 * all.half_width,
            all.told_no,
            100.0 * all.told_no as f64 / all.rows.max(1) as f64,
            all.pairs.all,
            all.pairs.tau(),
            all.groups[1],
            all.groups[0]
        );
    }
    println!(
        "{:<28} {:<24} {:<10} {:>4} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "dataset", "quantity", "rows", "n", "equal", "median", "p90", "max", "bias", "unmapped"
    );
    for dataset in datasets {
        println!(
            "{:<28} {:<24} {:<10} {:>4} {:>6} {:>8.2}% {:>8.2}% {:>8.2}% {:>+8.2}% {:>9}",
            dataset.name,
            dataset.quantity,
            dataset.split,
            dataset.n,
            dataset.equal,
            100.0 * dataset.median_abs_err,
            100.0 * dataset.p90_abs_err,
            100.0 * dataset.max_abs_err,
            100.0 * dataset.bias,
            dataset.unmapped
        );
        let whole = dataset.split == "all";
        if let Some(half) = dataset.half_width {
            println!("  half the likely range's width: {:.1} % of the step in the median", 100.0 * half);
        }
        for row in dataset.worst.iter().filter(|_| whole) {
            println!("  {:>+8.2}% {}", 100.0 * row.error, row.row);
        }
        for note in dataset.notes.iter().filter(|_| whole) {
            println!("  {note}");
        }
    }
}
