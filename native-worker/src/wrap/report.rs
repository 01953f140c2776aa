//! A comparison for people.

use planner::run::{Compared, Comparison};

use crate::report::text;

/// The comparison as a table.
pub fn readable(comparison: &Comparison) -> String {
    let mut rows = vec![["quantity", "predicted", "measured", "error", "from"].map(str::to_owned).to_vec()];
    for row in &comparison.rows {
        let error = row.error.map_or("-".to_owned(), |error| format!("{:+.1}%", 100.0 * error));
        rows.push(vec![
            name(row),
            shown(row, row.predicted),
            shown(row, row.measured),
            error,
            row.from.clone(),
        ]);
    }
    let mut out = match comparison.iterations {
        0 => "no iteration was recognised in the output\n".to_owned(),
        count => format!("{} of {count} iterations counted ({})\n", comparison.counted, comparison.framework),
    };
    if let Some(sentence) = comparison.of_other_batch() {
        out.push_str(&sentence);
        out.push('\n');
    }
    if !comparison.rows.is_empty() {
        out.push_str(&text::table(&rows));
    }
    out
}

fn name(row: &Compared) -> String {
    let unit = if row.quantity.ends_with("_bytes") { " (GiB)" } else { "" };
    row.quantity.trim_end_matches("_bytes").replace('_', " ") + unit
}

fn shown(row: &Compared, value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(bytes) if row.quantity.ends_with("_bytes") => text::gib(bytes.max(0.0) as u64),
        Some(value) => text::seconds(value),
    }
}
