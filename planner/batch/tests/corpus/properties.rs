//! What holds for any bytes: the fuzz target and the replay of its corpus both include this file.

/// Any bytes have a report, the same each time, whose places lie in the script and which repeats no token.
pub fn lint(bytes: &[u8]) {
    let report = batch::lint::lint(bytes);
    let lines = String::from_utf8_lossy(bytes).split('\n').count() as u64;
    for finding in &report.findings {
        assert!((1..=lines).contains(&finding.line) && finding.column >= 1, "{finding:?}");
        assert!(!finding.excerpt.contains(char::is_control), "{finding:?}");
        assert!(!finding.message.is_empty() && !finding.fix.is_empty(), "{finding:?}");
    }
    assert!(!batch::lint::readable(&report, "script").is_empty());
    assert_eq!(report, batch::lint::lint(bytes));
}
