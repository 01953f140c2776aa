//! Fits the constants of the time model to published measurements: `cargo xtask fit [--evidence DIR] [--write | --unseen]`.
//!
//! Bounded least squares on ln(predicted / measured), soft in its tails, with a Gaussian prior on the logarithm of
//! every constant. Fitted once on all rows (what ships), once on the train half, and once without each source, each family of
//! Megatron Bridge's models and each GPU, so that scores say how the formulas do on rows that their constants have not seen. Likely ranges
//! are derived from these, and `--unseen` writes both and leaves the constants that ship as they are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use evidence::step_time::{
    Case, DATASETS, LeftOut, Row as Unseen, Splits, cases, derive, groups, left_out, train_keys, unseen,
    values_of,
};
use planner::time::constants::table;
use serde_json::Value;
use system_tests::unseen_table;

/// Logarithm of a ratio from which a residual counts less than its square.
const SOFT: f64 = 0.10;
/// Standard deviation of a row's logarithm that the prior is weighed against.
const NOISE: f64 = 0.06;
/// Furthest that a constant goes from its prior, in widths.
const BOUND: f64 = 3.0;
/// Steps of the fit.
const STEPS: usize = 60;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the constants and scores are this program's data")]
fn run() -> Result<()> {
    let (mut evidence, mut write, mut show, mut fresh) = (None, false, false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--write" => write = true,
            "--unseen" => fresh = true,
            "--rows" => show = true,
            "--evidence" => {
                evidence = Some(PathBuf::from(arguments.next().context("--evidence needs a folder")?))
            }
            other => {
                bail!("`{other}` is not an option; there are --evidence DIR, --rows, --unseen and --write")
            }
        }
    }
    let all = read(evidence)?;
    // The layer benchmark is a short burst: an outside check, never fitted.
    let rows: Vec<&Case> = all
        .iter()
        .filter(|case| case.excluded.is_none() && case.dataset != "megatron_moe_layer_bench")
        .collect();
    let keys = train_keys(&all);
    let train: Vec<&Case> = rows.iter().copied().filter(|case| keys.contains(&case.key.as_str())).collect();
    let shipped = fit(&rows);
    let halved = fit(&train);
    println!("{:<28} {:>10} {:>10} {:>10} {:>7}", "constant", "prior", "all", "train", "+-");
    let spreads = posterior(&rows, &shipped);
    for (at, constant) in constants().iter().enumerate().filter(|(_, constant)| constant.width > 0.0) {
        println!(
            "{:<28} {:>10.4e} {:>10.4e} {:>10.4e} {:>6.0}%",
            constant.name,
            constant.prior,
            shipped[at],
            halved[at],
            100.0 * spreads[at]
        );
    }
    let rest: Vec<&Case> = rows.iter().copied().filter(|case| !keys.contains(&case.key.as_str())).collect();
    let mut splits =
        Splits::from([("validate".to_owned(), named(&halved)), ("train".to_owned(), named(&fit(&rest)))]);
    let mut names: Vec<String> = rows.iter().flat_map(|case| left_out(case)).map(|(_, name)| name).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let is_left_out = |case: &Case| left_out(case).iter().any(|(_, one)| *one == name);
        let others: Vec<&Case> = rows.iter().copied().filter(|case| !is_left_out(case)).collect();
        splits.insert(name, named(&fit(&others)));
    }
    let without = |what: LeftOut, case: &Case| {
        let name = left_out(case).into_iter().find(|(of, _)| *of == what).map(|found| found.1);
        name.and_then(|name| splits.get(&name)).map(|split| values_of(Some(split)))
    };
    println!(
        "\n{:<32} {:<10} {:>4} {:>8} {:>8} {:>8} {:>8}",
        "dataset", "rows", "n", "median", "p90", "max", "bias"
    );
    for &dataset in DATASETS {
        let of = |keep: &dyn Fn(&Case) -> bool| -> Vec<&Case> {
            all.iter()
                .filter(|case| case.dataset == dataset && case.excluded.is_none() && keep(case))
                .collect()
        };
        let is_train = |case: &Case| keys.contains(&case.key.as_str());
        print(dataset, "all", &of(&|_| true), &|_| shipped.clone());
        print(dataset, "train", &of(&is_train), &|_| halved.clone());
        print(dataset, "validate", &of(&|case| !is_train(case)), &|_| halved.clone());
        if dataset == "megatron_moe_layer_bench" {
            continue;
        }
        let out = |what: LeftOut| move |case: &Case| without(what, case).unwrap_or_default();
        print(dataset, "source_out", &of(&|_| true), &out(LeftOut::Source));
        print(dataset, "gpu_out", &of(&|_| true), &out(LeftOut::Gpu));
        if dataset == "megatron_bridge_perf" {
            print(dataset, "family_out", &of(&|_| true), &out(LeftOut::Family));
            for family in ["llama", "deepseek", "qwen", "nemotron"] {
                print(dataset, family, &of(&|case| case.family == family), &out(LeftOut::Family));
            }
        }
        if show {
            for case in of(&|_| true) {
                let of_family = without(LeftOut::Family, case)
                    .map_or(0.0, |values| case.predict(&values) / case.measured - 1.0);
                let step = case.step(&shipped);
                let total = step.total() / 100.0;
                println!(
                    "  {:>+6.1} {:>+6.1}  {:<12} gemm {:.0} att {:.0} mem {:.0} tp {:.0} cp {:.0} ep {:.0} rec {:.0} host {:.0} pp {:.0} bub {:.0} dp {:.0} opt {:.0} fix {:.0} | {} {}",
                    100.0 * (case.predict(&shipped) / case.measured - 1.0),
                    100.0 * of_family,
                    case.id,
                    step.parts.gemm / total,
                    step.parts.attention / total,
                    step.parts.memory / total,
                    step.parts.tp / total,
                    step.parts.cp / total,
                    step.parts.ep / total,
                    step.recompute / total,
                    step.host / total,
                    step.sends / total,
                    step.bubble / total,
                    step.data / total,
                    step.optimizer / total,
                    step.fixed / total,
                    case.gpu,
                    case.key
                );
            }
        }
    }
    if write {
        write_constants(&shipped, &rows)?;
    }
    // With ranges as they were when this program was built.
    let rows = unseen(&splits).map_err(anyhow::Error::msg)?;
    unseen_table::print(&groups(&rows));
    if show {
        print_each(&rows);
    }
    if write || fresh {
        write_unseen(&splits)?;
    }
    Ok(())
}

fn read(evidence: Option<PathBuf>) -> Result<Vec<Case>> {
    let mut all = Vec::new();
    for &name in DATASETS {
        let text = match &evidence {
            Some(folder) => {
                let path = folder.join(format!("{name}.json"));
                std::fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?
            }
            None => {
                let bundled = evidence::BUNDLED.iter().find(|(known, _)| *known == name);
                bundled.with_context(|| format!("{name} is not part of the project"))?.1.to_owned()
            }
        };
        let found = cases(name, &text).map_err(anyhow::Error::msg)?;
        for reason in &found.unmapped {
            eprintln!("{name}: {reason}");
        }
        all.extend(found.cases);
    }
    Ok(all)
}

/// A constant with where its fit begins.
struct Fitted {
    name: String,
    value: f64,
    prior: f64,
    /// Standard deviation of the logarithm of what the value may be; 0 for what is not fitted.
    width: f64,
}

#[derive(serde::Deserialize)]
struct Prior {
    name: String,
    prior: f64,
    width: f64,
}

/// All constants, in the order of the table.
fn constants() -> &'static [Fitted] {
    static CONSTANTS: LazyLock<Vec<Fitted>> = LazyLock::new(|| {
        let priors: Vec<Prior> =
            serde_json::from_str(include_str!("../../../planner/src/time/priors.json")).unwrap_or_default();
        let with = |constant: &planner::time::constants::Constant| {
            let prior = priors.iter().find(|prior| prior.name == constant.name);
            let (value, name) = (constant.value, constant.name.clone());
            let (prior, width) = prior.map_or((value, 0.0), |prior| (prior.prior, prior.width));
            Fitted { name, value, prior, width }
        };
        table().constants.iter().map(with).collect()
    });
    &CONSTANTS
}

/// Constants that are fitted and that some row reads.
fn free(rows: &[&Case]) -> Vec<usize> {
    let constants = constants().iter().enumerate();
    let fitted = constants.filter(|(_, constant)| constant.width > 0.0);
    fitted.map(|(at, _)| at).filter(|&at| rows.iter().any(|row| row.reads(at))).collect()
}

fn residual(row: &Case, values: &[f64]) -> f64 {
    (row.predict(values) / row.measured).ln()
}

/// Half the sum of squares: soft residuals over the noise, and distances from the prior over its width.
fn cost(rows: &[&Case], free: &[usize], values: &[f64]) -> f64 {
    let soft = |residual: f64| {
        let scaled = residual / SOFT;
        2.0 * SOFT * SOFT * ((1.0 + scaled * scaled).sqrt() - 1.0) / (NOISE * NOISE)
    };
    let data: f64 = rows.iter().map(|row| soft(residual(row, values))).sum();
    let prior: f64 = free.iter().map(|&at| distance(at, values).powi(2)).sum();
    0.5 * (data + prior)
}

fn distance(at: usize, values: &[f64]) -> f64 {
    let constant = &constants()[at];
    (values[at] / constant.prior).ln() / constant.width
}

/// The normal equations at `values`: matrix and right-hand side, row weights softened.
fn normal(rows: &[&Case], free: &[usize], values: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>) {
    const NUDGE: f64 = 1e-4;
    let n = free.len();
    let (mut matrix, mut right) = (vec![vec![0.0; n]; n], vec![0.0; n]);
    for row in rows {
        let here = residual(row, values);
        let weight = 1.0 / (1.0 + (here / SOFT).powi(2)).sqrt() / (NOISE * NOISE);
        let mut slopes = vec![0.0; n];
        let mut nudged = values.to_vec();
        for (slope, &at) in slopes.iter_mut().zip(free) {
            if row.reads(at) {
                nudged[at] = values[at] * (1.0 + NUDGE);
                *slope = (residual(row, &nudged) - here) / NUDGE;
                nudged[at] = values[at];
            }
        }
        for i in (0..n).filter(|&i| slopes[i] != 0.0) {
            right[i] -= weight * slopes[i] * here;
            for j in 0..n {
                matrix[i][j] += weight * slopes[i] * slopes[j];
            }
        }
    }
    for (place, &at) in free.iter().enumerate() {
        let width = constants()[at].width;
        matrix[place][place] += 1.0 / (width * width);
        right[place] -= distance(at, values) / width;
    }
    (matrix, right)
}

/// Levenberg-Marquardt on the logarithms.
fn fit(rows: &[&Case]) -> Vec<f64> {
    let mut values: Vec<f64> = constants()
        .iter()
        .map(|constant| if constant.width > 0.0 { constant.prior } else { constant.value })
        .collect();
    let free = free(rows);
    let mut damping = 1e-2;
    let mut best = cost(rows, &free, &values);
    for _ in 0..STEPS {
        let (matrix, right) = normal(rows, &free, &values);
        let mut improved = false;
        for _ in 0..8 {
            let mut damped = matrix.clone();
            for (place, row) in damped.iter_mut().enumerate() {
                row[place] *= 1.0 + damping;
            }
            let step = solve(damped, right.clone());
            let mut tried = values.clone();
            for (&at, change) in free.iter().zip(&step) {
                let constant = &constants()[at];
                let limit = BOUND * constant.width;
                let moved = (values[at] / constant.prior).ln() + change.clamp(-0.5, 0.5);
                tried[at] = constant.prior * moved.clamp(-limit, limit).exp();
            }
            let found = cost(rows, &free, &tried);
            if found < best {
                improved = best - found > 1e-6 * best;
                (values, best) = (tried, found);
                damping = (damping / 4.0_f64).max(1e-9);
                break;
            }
            damping *= 4.0;
        }
        if !improved {
            break;
        }
    }
    values
}

/// Standard deviation of every constant's logarithm after the fit; its width where no row reads it.
fn posterior(rows: &[&Case], values: &[f64]) -> Vec<f64> {
    let free = free(rows);
    let (matrix, _) = normal(rows, &free, values);
    let mut spread: Vec<f64> = constants().iter().map(|constant| constant.width).collect();
    for (place, &at) in free.iter().enumerate() {
        let mut unit = vec![0.0; free.len()];
        unit[place] = 1.0;
        spread[at] = solve(matrix.clone(), unit)[place].max(0.0).sqrt();
    }
    spread
}

/// Gauss elimination with the largest pivot.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let n = right.len();
    for column in 0..n {
        let pivot = (column..n).max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()));
        let Some(pivot) = pivot else { continue };
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let (above, below) = matrix.split_at_mut(column + 1);
        let pivot = &above[column];
        for (step, row) in below.iter_mut().enumerate() {
            let factor = row[column] / pivot[column];
            for (value, &of_pivot) in row.iter_mut().zip(pivot).skip(column) {
                *value -= factor * of_pivot;
            }
            right[column + 1 + step] -= factor * right[column];
        }
    }
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|at| matrix[row][at] * right[at]).sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
    right
}

fn named(values: &[f64]) -> BTreeMap<String, f64> {
    let constants = constants().iter().zip(values).filter(|(constant, _)| constant.width > 0.0);
    constants.map(|(constant, &value)| (constant.name.clone(), rounded(value))).collect()
}

fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

fn quantile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0.0)
}

#[expect(clippy::print_stdout, reason = "the scores are this program's data")]
fn print(dataset: &str, split: &str, rows: &[&Case], values: &dyn Fn(&Case) -> Vec<f64>) {
    if rows.is_empty() {
        return;
    }
    let signed: Vec<f64> =
        rows.iter().map(|row| 100.0 * (row.predict(&values(row)) / row.measured - 1.0)).collect();
    let mut sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    println!(
        "{:<32} {:<10} {:>4} {:>7.2}% {:>7.2}% {:>7.1}% {:>+7.2}%",
        dataset,
        split,
        rows.len(),
        quantile(&sizes, 50),
        quantile(&sizes, 90),
        quantile(&sizes, 100),
        signed.iter().sum::<f64>() / signed.len() as f64
    );
}

/// Errors of rows that likely ranges are derived from.
#[expect(clippy::print_stdout, reason = "the scores are this program's data")]
fn print_each(rows: &[Unseen]) {
    for row in rows.iter().filter(|row| row.stands_for.is_some()) {
        let error = 100.0 * ((-row.residual).exp() - 1.0);
        println!("  {error:>+7.1} % {:?} {} {} {}", row.stands_for, row.class, row.told, row.label);
    }
}

/// Where planner's sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../planner/src");

/// Where the constants of splits are.
const SPLITS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../planner/evidence/src/evidence/step_time_splits.json");

/// New values in the data files, line by line: of the table, and what decided them of the priors.
fn write_constants(shipped: &[f64], rows: &[&Case]) -> Result<()> {
    let paths = ["constants", "priors"].map(|name| format!("{SOURCES}/time/{name}.json"));
    let mut texts = [std::fs::read_to_string(&paths[0])?, std::fs::read_to_string(&paths[1])?];
    for (at, constant) in constants().iter().enumerate().filter(|(_, constant)| constant.width > 0.0) {
        let mut datasets: Vec<&str> =
            rows.iter().filter(|row| row.reads(at)).map(|row| row.dataset.as_str()).collect();
        datasets.sort_unstable();
        datasets.dedup();
        let [table, priors] = &mut texts;
        write_line(table, &constant.name, &["name", "value"], ("value", rounded(shipped[at]).into()))?;
        let order = ["name", "unit", "meaning", "source", "prior", "width", "rows"];
        write_line(priors, &constant.name, &order, ("rows", datasets.join(", ").into()))?;
    }
    for (path, text) in paths.iter().zip(texts) {
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// Gives a field of a constant's line another value.
fn write_line(text: &mut String, name: &str, order: &[&str], (field, value): (&str, Value)) -> Result<()> {
    let start = text.find(&format!("{{\"name\": \"{name}\"")).context("a constant without its line")?;
    let end = start + text[start..].find('\n').context("a line without an end")?;
    let comma = if text[start..end].ends_with(',') { "," } else { "" };
    let mut line: Value =
        serde_json::from_str(text[start..end].trim_end_matches(',')).context("a constant's line")?;
    line[field] = value;
    let fields: Vec<String> = order.iter().map(|name| format!("\"{name}\": {}", line[*name])).collect();
    text.replace_range(start..end, &format!("{{{}}}{comma}", fields.join(", ")));
    Ok(())
}

/// The constants of every split, and the likely ranges that follow from them: of the project's own rows, and with the constants that this
/// program was built with where a source was never fitted.
fn write_unseen(splits: &Splits) -> Result<()> {
    let lines: Vec<String> = splits
        .iter()
        .map(|(name, split)| Ok(format!("  \"{name}\": {}", serde_json::to_string(split)?)))
        .collect::<Result<_>>()?;
    let text = format!("{{\n{}\n}}\n", lines.join(",\n"));
    std::fs::write(SPLITS, text)?;
    let ranges = derive(splits).map_err(anyhow::Error::msg)?;
    let classes: Vec<String> = ranges.classes.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let text = format!(
        "{{\n\"other_gpu\": {},\n\"other_generation\": {},\n\"classes\": [\n  {}\n]\n}}\n",
        ranges.other_gpu,
        ranges.other_generation,
        classes.join(",\n  ")
    );
    Ok(std::fs::write(format!("{SOURCES}/time/ranges.json"), text)?)
}
