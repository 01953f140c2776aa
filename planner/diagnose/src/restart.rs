//! Signs that a run was started again: what only a start prints, the number of another job, and steps that begin anew.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::book::clean;
use super::origin;
use super::pattern::Pattern;
use super::progress;

/// Lines that launchers, trainers and Slurm print when a run starts, from their sources and from public logs.
const STARTS: [&str; 16] = [
    // torchrun
    "Setting OMP_NUM_THREADS environment variable for each process",
    "Starting elastic_operator with launch configs",
    "starting workers for entrypoint",
    // NCCL; its errors name the version within the line.
    "^NCCL version #",
    // Megatron-LM and Bridge
    "using world size: #",
    "-------- arguments --------",
    "> initializing torch distributed",
    "> initialized tensor model parallel with size",
    "loading checkpoint from",
    // Lightning, transformers, DeepSpeed, torchtitan
    "Initializing distributed: GLOBAL_RANK: #",
    "All distributed processes registered",
    "***** Running training *****",
    "Initializing TorchBackend in DeepSpeed",
    "Starting job: ",
    // Slurm
    "has been allocated resources",
    "SLURM_RESTART_COUNT",
];
/// Words that say that a job was put back into the queue.
const QUEUED_AGAIN: [&str; 4] = ["DUE TO JOB REQUEUE", "REQUEUED AT", "equeued", "equeuing"];
/// Steps with numbers of their own that no job does which has ended.
const MOST_LAST_STEPS: usize = 2;

static PATTERNS: LazyLock<Vec<Pattern>> =
    LazyLock::new(|| STARTS.iter().map(|text| Pattern::new(text)).collect());

/// The texts by which lines are found that are such signs.
pub(super) fn anchors() -> impl Iterator<Item = &'static str> {
    PATTERNS.iter().map(Pattern::anchor).chain(QUEUED_AGAIN)
}

/// Whether only a start prints the line; `message` is where its message starts.
pub(super) fn is_start(text: &str, message: usize) -> bool {
    PATTERNS.iter().any(|pattern| pattern.matches(text, message))
}

/// Whether the line says that the job was put back into the queue.
pub(super) fn is_queued_again(text: &str) -> bool {
    QUEUED_AGAIN.iter().any(|words| text.contains(words))
}

/// The job that a line of Slurm's is about.
pub(super) fn job_of(text: &str) -> Option<u64> {
    [" JOB ", " STEP ", "JobId="]
        .iter()
        .find_map(|word| origin::long_digits(text.split_once(word)?.1))
        .map(|(job, _)| job)
}

/// The number of the last step in what stands above a line.
pub(super) fn last_step(before: &[u8]) -> Option<u64> {
    steps(before).find_map(|line| progress::number(&line))
}

/// Whether the last lines of `before` have steps of another attempt, where the one that ended had come to step `last`: such as
/// went before it, or more than what was under way.
pub(super) fn has_steps_again(before: &[u8], lines: usize, last: Option<u64>) -> bool {
    let Some(last) = last else { return has_steps(before, lines) };
    let mut beyond = BTreeSet::new();
    newest(before).take(lines).filter(|line| progress::is_step(line)).any(|line| {
        let number = progress::number(&line);
        beyond.extend(number.filter(|number| *number > last));
        number.is_none_or(|number| number < last) || beyond.len() > MOST_LAST_STEPS
    })
}

/// Whether the last lines of `before` have steps.
pub(super) fn has_steps(before: &[u8], lines: usize) -> bool {
    newest(before).take(lines).any(|line| progress::is_step(&line))
}

fn steps(before: &[u8]) -> impl Iterator<Item = String> {
    newest(before).filter(|line| progress::is_step(line))
}

/// The lines above, the newest first.
fn newest(before: &[u8]) -> impl Iterator<Item = String> {
    let lines = before.trim_ascii_end().rsplit(|&byte| byte == b'\n');
    lines.map(|line| clean(&line[..line.len().min(1024)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_told_from_errors() {
        for line in [
            "NCCL version 2.21.5+cuda12.4",
            "using world size: 8, data-parallel size: 2",
            "------------------------ arguments ------------------------",
            "srun: job 77 has been allocated resources",
        ] {
            assert!(is_start(line, 0), "{line}");
        }
        for line in [
            "NCCL error in: x.cpp:1, unhandled system error, NCCL version 2.21.5",
            "iteration 5/ 100 | lm loss: 2.0",
            "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-11-03T08:05:30 DUE TO NODE FAILURE ***",
        ] {
            assert!(!is_start(line, 0), "{line}");
        }
    }

    #[test]
    fn steps_begin_anew() {
        let log = |steps: &[u64]| -> String {
            steps.iter().map(|step| format!("iteration {step}/ 1000 | lm loss: 2.0\n")).collect()
        };
        let again = |steps: &[u64]| has_steps_again(log(steps).as_bytes(), steps.len(), Some(100));
        assert!(again(&[1]) && again(&[61, 62]) && again(&[101, 102, 103]) && again(&[480, 490, 500]));
        assert!(!again(&[100]) && !again(&[100, 101, 101]) && !again(&[101, 102]) && !again(&[]));
        assert_eq!(last_step(log(&[7, 8]).as_bytes()), Some(8));
    }
}
