//! Findings for people, as compilers write them: the line, a mark under it, why, and what to do.

use super::{Report, Severity};
use planner::finding::one_line;

/// The report as text; `name` is the script's.
pub fn readable(report: &Report, name: &str) -> String {
    let name = one_line(name);
    let mut out = String::new();
    for finding in &report.findings {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "info",
        };
        let number = finding.line.to_string();
        let margin = " ".repeat(number.len());
        out.push_str(&format!("{severity}[{}]: {}\n", finding.rule, one_line(&finding.message)));
        out.push_str(&format!("{margin}--> {name}:{}:{}\n", finding.line, finding.column));
        out.push_str(&format!("{margin} |\n{number} | {}\n", finding.excerpt));
        let shown = finding.excerpt.chars().count() as u64;
        if finding.column <= shown.max(1) {
            let before = " ".repeat(usize::try_from(finding.column - 1).unwrap_or(0));
            let width = finding.width.min((shown + 1).saturating_sub(finding.column)).max(1);
            out.push_str(&format!(
                "{margin} | {before}{}\n",
                "^".repeat(usize::try_from(width).unwrap_or(1))
            ));
        }
        out.push_str(&format!("{margin} = why: {}\n", finding.why));
        out.push_str(&format!("{margin} = fix: {}\n", one_line(&finding.fix)));
        if let Some(line) = &finding.replacement {
            out.push_str(&format!("{margin} | {}\n", one_line(line)));
        }
        out.push('\n');
    }
    let infos = report.findings.len() as u64 - report.errors - report.warnings;
    let count = |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    out.push_str(&format!(
        "{name}: {}, {}, {}\n",
        count(report.errors, "error"),
        count(report.warnings, "warning"),
        count(infos, "remark")
    ));
    out
}
