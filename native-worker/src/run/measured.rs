//! What the ranks of a run measured, read from their logs.

use std::path::Path;

use planner::wire::{Event, MeasuredMemory};
use run_folder::{LogReader, LogWriter};
use serde::Serialize;

/// What one rank measured in its last step.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Memory; activations and peak are the largest of all its steps.
    pub memory: MeasuredMemory,
    /// Seconds of the last step.
    pub seconds: f64,
    /// Tokens of the global batch.
    pub tokens: u64,
}

/// What a run's ranks took at most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeasuredRun {
    /// Bytes that the fullest rank had allocated; 0 where that is not measured.
    pub peak_bytes: u64,
    /// Seconds of the last step.
    pub step_seconds: f64,
}

impl MeasuredRun {
    /// Of a run; none of one that did no step.
    pub fn of(folder: &Path, world_size: u64) -> Option<MeasuredRun> {
        let all: Vec<Measured> = measured(folder, world_size).into_iter().flatten().collect();
        let step_seconds = all.iter().map(|one| one.seconds).reduce(f64::max)?;
        let peak_bytes = all.iter().map(|one| one.memory.peak_allocated_bytes).max().unwrap_or(0);
        Some(MeasuredRun { peak_bytes, step_seconds })
    }
}

/// What each rank measured; none for one that did no step.
pub fn measured(folder: &Path, world_size: u64) -> Vec<Option<Measured>> {
    (0..world_size).map(|rank| of_log(&folder.join(LogWriter::Rank(rank).log()))).collect()
}

fn of_log(path: &Path) -> Option<Measured> {
    let mut reader = LogReader::new(path.to_owned());
    let mut found: Option<Measured> = None;
    while let Ok(chunk) = reader.read() {
        for record in chunk.records {
            let Event::Step(step) = record.event else { continue };
            let mut memory = step.memory;
            if let Some(earlier) = &found {
                memory.activations_bytes = memory.activations_bytes.max(earlier.memory.activations_bytes);
                memory.peak_allocated_bytes =
                    memory.peak_allocated_bytes.max(earlier.memory.peak_allocated_bytes);
            }
            found = Some(Measured { memory, seconds: step.seconds, tokens: step.tokens });
        }
        if !chunk.more {
            break;
        }
    }
    found
}
