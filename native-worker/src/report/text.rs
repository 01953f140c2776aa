//! Text for people: aligned tables, units, findings.

use std::io::Write;

use planner::Finding;
use planner::finding::Severity;
pub use planner::finding::one_line;
use planner::units::Bytes;
pub use planner::units::thousands;

/// Bytes as GiB with two decimals; three significant digits when small.
pub fn gib(bytes: u64) -> String {
    if bytes == 0 { "0".to_owned() } else { Bytes(bytes).gib_figure(2) }
}

/// The same of so many, where that is known: with as many decimals as tell both apart.
pub fn gib_of(bytes: u64, all: Option<u64>) -> String {
    let Some(all) = all else { return gib(bytes) };
    let [part, all] = Bytes(bytes).gib_figures_apart(Bytes(all));
    format!("{part} of {all}")
}

/// Seconds with four significant digits.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        long if long >= 1000.0 => format!("{long:.0}"),
        long if long >= 1.0 => format!("{long:.3}"),
        short if short >= 0.001 => format!("{short:.5}"),
        tiny => format!("{tiny:.7}"),
    }
}

/// Rows as aligned columns: the first left, numbers right, everything else left. Ends with a newline.
pub fn table(rows: &[Vec<String>]) -> String {
    let mut out = Vec::new();
    // Memory takes everything.
    let _ = write_table(&mut out, || rows.iter());
    String::from_utf8(out).unwrap_or_default()
}

/// Writes rows as [`table`] has them. They are asked for twice, first for their widths, and none is kept: a table may have millions.
///
/// # Errors
/// When `out` takes no more.
pub fn write_table<R: AsRef<[String]>, I: Iterator<Item = R>>(
    out: &mut dyn Write,
    rows: impl Fn() -> I,
) -> std::io::Result<()> {
    let mut columns: Vec<Column> = Vec::new();
    for (index, row) in rows().enumerate() {
        let row = row.as_ref();
        for (place, cell) in row.iter().enumerate() {
            if place == columns.len() {
                columns.push(Column { width: 0, are_numbers: place > 0 });
            }
            let column = &mut columns[place];
            column.width = column.width.max(cell.chars().count());
            // The first row has names of columns.
            column.are_numbers &= index == 0 || is_number(cell);
        }
    }
    for row in rows() {
        let row = row.as_ref();
        let cells: Vec<String> = row
            .iter()
            .zip(&columns)
            .enumerate()
            .map(|(place, (cell, &Column { width, are_numbers }))| match are_numbers {
                true => format!("{cell:>width$}"),
                // What ends a line is not filled up: a list of all ranks may stand in one line of thousands.
                false if place + 1 == row.len() => cell.clone(),
                false => format!("{cell:<width$}"),
            })
            .collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// What is known of a column when all rows were looked at.
struct Column {
    width: usize,
    are_numbers: bool,
}

fn is_number(cell: &str) -> bool {
    !cell.is_empty() && cell.chars().all(|digit| digit.is_ascii_digit() || ".,-".contains(digit))
}

/// Findings, worst first, one a line with hints below.
pub fn findings(findings: &[Finding]) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.severity);
    let mut out = String::new();
    for finding in sorted {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "info",
        };
        let place = match (finding.field.is_empty() || says_both(finding), finding.value.is_null()) {
            (true, _) => String::new(),
            (false, true) => format!(" {}:", one_line(&finding.field)),
            (false, false) => {
                format!(" {} = {}:", one_line(&finding.field), shorten(&finding.value.to_string()))
            }
        };
        out.push_str(&format!("{severity}:{place} {}\n", one_line(&finding.message)));
        if !finding.nearest.is_empty() {
            let nearest: Vec<String> = finding.nearest.iter().map(ToString::to_string).collect();
            out.push_str(&format!("  nearest: {}\n", nearest.join(", ")));
        }
        if !finding.rule.is_empty() {
            out.push_str(&format!("  rule: {}\n", one_line(&finding.rule)));
        }
    }
    out
}

/// Whether a message begins with the finding's field and says its value, if there is one: "layout.tp is 0; it must be 1 or more".
fn says_both(finding: &Finding) -> bool {
    let behind = |text: &str, word: &str| {
        let rest = text.trim_start_matches('`').strip_prefix(word)?;
        Some(rest.trim_start_matches('`').to_owned())
    };
    let Some(rest) = behind(&finding.message, &finding.field) else { return false };
    if finding.value.is_null() {
        return rest.starts_with(' ');
    }
    let value = finding.value.as_str().map_or_else(|| finding.value.to_string(), str::to_owned);
    rest.strip_prefix(" is ").is_some_and(|said| behind(said, &value).is_some())
}

fn shorten(text: &str) -> String {
    const LIMIT: usize = 80;
    if text.chars().count() <= LIMIT {
        return one_line(text);
    }
    one_line(&text.chars().take(LIMIT).collect::<String>()) + "..."
}

/// A serde enum's name as files write it.
pub fn snake(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(228_689_748_992), "228,689,748,992");
        assert_eq!(gib(1 << 30), "1.00");
        assert_eq!(gib(1 << 20), "0.000977");
        assert_eq!(gib_of(3 << 30, Some(80 << 30)), "3.00 of 80.00");
        assert_eq!(gib_of((80 << 30) + (30 << 10), Some(80 << 30)), "80.00003 of 80.00000");
        assert_eq!(gib_of(1 << 30, None), "1.00");
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["name".into(), "n".into()],
            vec!["a".into(), "10".into()],
            vec!["bcdef".into(), "7".into()],
        ];
        assert_eq!(table(&rows), "name    n\na      10\nbcdef   7\n");
    }

    #[test]
    fn a_field_and_its_value_are_said_once() {
        let said = |message: &str| findings(&[Finding::error("layout.tp", 0, message)]);
        assert_eq!(
            said("layout.tp is 0; it must be 1 or more"),
            "error: layout.tp is 0; it must be 1 or more\n"
        );
        assert_eq!(said("`layout.tp` is `0`; write another"), "error: `layout.tp` is `0`; write another\n");
        assert_eq!(said("no heads are left"), "error: layout.tp = 0: no heads are left\n");
        assert_eq!(said("layout.tp fits"), "error: layout.tp = 0: layout.tp fits\n");
        assert_eq!(
            said("layout.tp is recorded"),
            "error: layout.tp = 0: layout.tp is recorded\n",
            "which says no value"
        );
        let idle = Finding::error("layout.tp", serde_json::Value::Null, "layout.tp changes nothing");
        assert_eq!(findings(&[idle]), "error: layout.tp changes nothing\n");
    }

    #[test]
    fn a_hostile_value_stays_on_its_line() {
        let finding = Finding::error("name", "x\u{1b}[2J\ny", "bad\nvalue");
        assert_eq!(findings(&[finding]).lines().count(), 1);
    }
}
