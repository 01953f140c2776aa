//! What the page asks of the module `texts`, and what that answers: JSON. Both compile this file.

use batch::launch::{Body, Mode, ScriptOptions, Site, Task};
use batch::lint::Report;
use planner::finding::Finding;
use planner::wire::{PlanFile, Why};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A script that is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// For which plan.
    pub plan: PlanFile,
    /// On which site.
    pub site: Site,
    /// Of which kind.
    pub options: ScriptOptions,
}

/// A script, and what is to be said of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// The script.
    pub text: String,
    /// What is missing or wrong.
    pub findings: Vec<Finding>,
}

/// An example, on a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Filled {
    /// Its plan.
    pub plan: PlanFile,
    /// The site, with what it needs.
    pub site: Site,
    /// What its script runs.
    pub body: Body,
    /// How it is started.
    pub mode: Mode,
    /// What Megatron Bridge does in it.
    pub task: Task,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// What is wrong with a script.
    Lint(String),
    /// A script.
    Script(Box<Wanted>),
    /// The command line that prints the same script.
    CommandLine(Box<Wanted>),
    /// The example of this title, on a site.
    Example(String, Box<Site>),
    /// A site as its file, without what may be a secret.
    SiteFile(Box<Site>),
    /// The site of a file's text.
    ReadSite(String),
    /// A site without what may be a secret.
    Harmless(Box<Site>),
    /// What of an index of safetensors files, or of what one of them begins with, does not match a config.json.
    Weights(Box<(Map<String, Value>, String)>),
    /// Where a number of a plan's answer comes from.
    Why(Box<(PlanFile, String)>),
}

/// Its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Tell {
    /// Of `Ask::Lint`.
    Lint(Report),
    /// Of `Ask::Script`; none when the plan has errors.
    Script(Option<Written>),
    /// Of `Ask::CommandLine`; none when there is no such script.
    CommandLine(Option<String>),
    /// Of `Ask::SiteFile`.
    SiteFile(String),
    /// Of `Ask::Example`; none where no example has this title.
    Example(Option<Box<Filled>>),
    /// Of `Ask::ReadSite` and `Ask::Harmless`; a sentence where a text is no site's file.
    Site(Result<Box<Site>, String>),
    /// Of `Ask::Weights`.
    Weights(Vec<Finding>),
    /// Of `Ask::Why`; none where the plan has errors.
    Why(Option<Why>),
}
