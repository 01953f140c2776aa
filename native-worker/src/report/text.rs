//! Text for people: aligned tables, units, findings.

use planner::Finding;
use planner::finding::Severity;
pub use planner::finding::one_line;
use planner::units::Bytes;
pub use planner::units::thousands;

/// Bytes as GiB with two decimals; three significant digits when small.
pub fn gib(bytes: u64) -> String {
    if bytes == 0 { "0".to_owned() } else { Bytes(bytes).gib_figure(2) }
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
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let is_number = |column: usize| {
        column > 0
            && rows.iter().skip(1).filter_map(|row| row.get(column)).all(|cell| {
                !cell.is_empty() && cell.chars().all(|digit| digit.is_ascii_digit() || ".,-".contains(digit))
            })
    };
    // Once for each column: a table may have tens of thousands of rows.
    let are_numbers: Vec<bool> = (0..columns).map(is_number).collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(column, cell)| {
                let width = widths[column];
                match are_numbers[column] {
                    true => format!("{cell:>width$}"),
                    // What ends a line is not filled up: a list of all ranks may stand in one line of thousands.
                    false if column + 1 == row.len() => cell.clone(),
                    false => format!("{cell:<width$}"),
                }
            })
            .collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
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
