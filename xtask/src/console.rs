//! What a person sees: lines on stderr, and how long things took. Results go to stdout.

use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Prints a line to stderr. A closed stderr is no reason to stop working.
pub fn notice(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Prints a line of the result to stdout.
pub fn result(line: impl Display) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Does a piece of work under a line that names it and a line that says how long it took.
pub fn timed<T>(what: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
    notice(format_args!("--> {what}"));
    let start = Instant::now();
    let outcome = work();
    let word = if outcome.is_ok() { "done" } else { "failed" };
    notice(format_args!("    {word} after {}", duration(start.elapsed())));
    outcome
}

/// A duration as people read it: `0.4 s`, `12 s`, `3 min 05 s`.
pub fn duration(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    if seconds < 9.95 {
        format!("{seconds:.1} s")
    } else if seconds < 59.5 {
        format!("{seconds:.0} s")
    } else {
        let whole = seconds.round() as u64;
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let check =
            |seconds: f64, expected: &str| assert_eq!(duration(Duration::from_secs_f64(seconds)), expected);
        check(0.04, "0.0 s");
        check(9.94, "9.9 s");
        check(12.4, "12 s");
        check(59.6, "1 min 00 s");
        check(185.0, "3 min 05 s");
        check(3600.0, "60 min 00 s");
    }
}
