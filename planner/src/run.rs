//! What holds of a run wherever it is looked at: by ranks, launcher, hub, page or a comparison.

/// Who writes a log of a run: its file's name says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogWriter<'a> {
    /// The rank of this number, or the process that watches a framework's.
    Rank(u64),
    /// The launcher on this host.
    Launcher(&'a str),
}

impl<'a> LogWriter<'a> {
    /// Name of the log.
    pub fn log(self) -> String {
        match self {
            LogWriter::Rank(rank) => format!("rank-{rank:05}.log"),
            LogWriter::Launcher(host) => format!("launcher-{host}.log"),
        }
    }

    /// Who writes the log of this name; none when it is no log of a run.
    pub fn of(log: &'a str) -> Option<LogWriter<'a>> {
        let name = log.strip_suffix(".log")?;
        if let Some(host) = name.strip_prefix("launcher-") {
            return Some(LogWriter::Launcher(host));
        }
        name.strip_prefix("rank-")?.parse().ok().map(LogWriter::Rank)
    }

    /// Whether it is a launcher.
    pub fn is_launcher(self) -> bool {
        matches!(self, LogWriter::Launcher(_))
    }

    /// The rank, where it is one.
    pub fn rank(self) -> Option<u64> {
        match self {
            LogWriter::Rank(rank) => Some(rank),
            LogWriter::Launcher(_) => None,
        }
    }
}

/// Tokens a second over steps of so many tokens that took so long; none where nothing is said of either.
pub fn tokens_per_second(tokens: f64, seconds: f64) -> Option<f64> {
    (tokens > 0.0 && seconds > 0.0).then(|| tokens / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logs_name_says_who_writes_it() {
        for (writer, log) in [
            (LogWriter::Rank(0), "rank-00000.log"),
            (LogWriter::Rank(131_071), "rank-131071.log"),
            (LogWriter::Launcher("node.1"), "launcher-node.1.log"),
        ] {
            assert_eq!(writer.log(), log);
            assert_eq!(LogWriter::of(log), Some(writer));
        }
        for other in
            ["plan.json", "rank-.log", "rank-a.log", "rank-1", "launcher-a", "my-rank-1.log", "-1.log", ""]
        {
            assert_eq!(LogWriter::of(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_rate_needs_tokens_and_time() {
        assert_eq!(tokens_per_second(4096.0, 2.0), Some(2048.0));
        for (tokens, seconds) in [(0.0, 2.0), (4096.0, 0.0), (4096.0, -1.0), (f64::NAN, 1.0), (1.0, f64::NAN)]
        {
            assert_eq!(tokens_per_second(tokens, seconds), None, "{tokens} {seconds}");
        }
    }
}
