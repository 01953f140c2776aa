//! The answer: what ended a run, how sure that is, and what was looked at.

use serde::{Deserialize, Serialize};

use super::against_plan::AgainstPlan;
use super::exits::ProcessEnd;
use super::oom::OutOfMemory;
use super::origin::Origin;
use super::standing::Standing;
use planner::units::thousands;

/// Everything that is said of the logs of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// `wire::VERSION`.
    pub version: u32,
    /// Whether something was found that ended the run.
    pub found: bool,
    /// What was found: causes first, the likeliest first; then what followed from them.
    pub verdicts: Vec<Verdict>,
    /// The first end of a process that launchers tell of; the first that was not told to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProcessEnd>,
    /// How attempts of the job before the last ended, where the logs have several; everything else is of the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Earlier>,
    /// How the run stands by its own folder, where one was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// What was looked at.
    pub looked_at: LookedAt,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sure {
    /// The log says so, and the process ended.
    Certain,
    /// The log says so; that it ended the run is likely.
    Likely,
    /// It may be.
    Possible,
}

impl Sure {
    /// The name used in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Sure::Certain => "certain",
            Sure::Likely => "likely",
            Sure::Possible => "possible",
        }
    }
}

/// What a verdict is to the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// It ended the run.
    Cause,
    /// It may have, beside a likelier cause.
    Also,
    /// It followed.
    Consequence,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Stable id, such as `cuda-oom` or `xid-79`.
    pub cause: String,
    /// Its family, such as `memory`.
    pub family: String,
    /// What it is to the end of the run.
    pub part: Part,
    /// What happened, as a sentence.
    pub title: String,
    /// What it means.
    pub meaning: String,
    /// How sure.
    pub sure: Sure,
    /// Why it is that sure.
    pub why: String,
    /// Where it began, as far as it is known.
    pub culprit: Origin,
    /// Ranks that report it, the first of them.
    pub ranks: Vec<u32>,
    /// How many ranks report it.
    pub rank_count: u64,
    /// Lines that say so.
    pub count: u64,
    /// Time of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Some of these lines, the first first.
    pub evidence: Vec<Evidence>,
    /// Figures of an out-of-memory message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<OutOfMemory>,
    /// Those figures beside the plan's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_plan: Option<AgainstPlan>,
    /// What to do, in order.
    pub next: Vec<String>,
}

/// How an earlier attempt of a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    /// Its number, from 1.
    pub attempt: u64,
    /// As in [`Verdict::cause`].
    pub cause: String,
    /// What happened, as a sentence.
    pub title: String,
    /// The line that says so, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Its file.
    pub file: String,
    /// Its number, from 1.
    pub line: u64,
    /// Its text: bounded, without control characters and secrets.
    pub text: String,
    /// The rank that wrote it, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

/// What was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookedAt {
    /// The files.
    pub files: Vec<LookedAtFile>,
    /// Files beyond those that are listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_files: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Lines in all.
    pub lines: u64,
    /// Lines that were read closely.
    pub lines_read: u64,
    /// Ranks seen.
    pub ranks: u64,
    /// Kinds of lines seen.
    pub formats: Vec<String>,
    /// The first and the last time seen.
    pub times: Vec<String>,
    /// Patterns that were looked for.
    pub patterns: u64,
}

impl LookedAt {
    /// It in words: files, bytes, lines, ranks, and kinds of lines.
    pub fn in_words(&self) -> String {
        let some = |count: u64, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{} {many}", thousands(count)),
        };
        let files = some((self.files.len() as u64).saturating_add(self.more_files), "file", "files");
        let ranks = match self.ranks {
            0 => "no marks of ranks".to_owned(),
            count => some(count, "rank", "ranks"),
        };
        let formats = match self.formats.is_empty() {
            true => "no known kind of line".to_owned(),
            false => self.formats.join(", "),
        };
        format!(
            "{files}, {}, {} ({} read closely for {} patterns), {ranks}; {formats}",
            some(self.bytes, "byte", "bytes"),
            some(self.lines, "line", "lines"),
            thousands(self.lines_read),
            thousands(self.patterns),
        )
    }
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookedAtFile {
    /// Its name as it was given.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Lines.
    pub lines: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
