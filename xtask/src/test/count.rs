//! Counting tests from what Rust's test harness prints.

use std::fmt;

/// How many passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
}

impl Count {
    /// One check that passed.
    pub const PASSED: Count = Count { passed: 1, failed: 0 };
    /// One check that failed.
    pub const FAILED: Count = Count { passed: 0, failed: 1 };

    /// Adds what a line such as `test result: ok. 12 passed; 0 failed; 0 ignored; ...` says; other lines say nothing.
    pub fn see(&mut self, line: &str) {
        let Some(result) = line.trim_start().strip_prefix("test result: ") else { return };
        for part in result.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(word)) =
                (words.next().and_then(|word| word.parse::<u64>().ok()), words.next())
            else {
                continue;
            };
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                _ => {}
            }
        }
    }

    /// The count of a test command that has ended: one that failed without a failed test (it did not compile, it
    /// was killed) counts as one failure, and one without any test as well, because such a step tests nothing.
    #[must_use]
    pub fn of_command(self, succeeded: bool) -> Count {
        let silent_failure = self.failed == 0 && (!succeeded || self.passed == 0);
        Count { failed: self.failed + u64::from(silent_failure), ..self }
    }
}

impl std::iter::Sum for Count {
    fn sum<I: Iterator<Item = Count>>(counts: I) -> Count {
        counts.fold(Count::default(), |sum, count| Count {
            passed: sum.passed + count.passed,
            failed: sum.failed + count.failed,
        })
    }
}

impl fmt::Display for Count {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{} passed, {} failed", self.passed, self.failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str, succeeded: bool, passed: u64, failed: u64) {
        let mut count = Count::default();
        output.lines().for_each(|line| count.see(line));
        assert_eq!(count.of_command(succeeded), Count { passed, failed }, "{output}");
    }

    #[test]
    fn results_of_all_binaries_are_summed() {
        let good =
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s";
        let bad = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s";
        check(good, true, 12, 0);
        check(&format!("running 5 tests\n{good}\n{bad}"), false, 15, 2);
    }

    #[test]
    fn a_command_that_fails_without_a_failed_test_counts() {
        check("", false, 0, 1);
        check("test result: ok. 4 passed; 0 failed; 0 ignored", false, 4, 1);
    }

    #[test]
    fn a_command_without_tests_is_a_failure() {
        check("test result: ok. 0 passed; 0 failed; 0 ignored", true, 0, 1);
    }

    #[test]
    fn other_lines_say_nothing() {
        check(
            "test planner::passed ... ok\n7 passed; 1 failed\ntest result: ok. 1 passed; 0 failed",
            true,
            1,
            0,
        );
    }
}
