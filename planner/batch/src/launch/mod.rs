//! Launch scripts: what a person pastes on a cluster to run a plan. Submitting is the user's; nothing here runs.
//!
//! A script is written in two languages. `#SBATCH` lines are read by Slurm, which knows no quoting, so their values
//! come from an allow-list; everything after them is shell, where every value is quoted. What a task runs before it
//! becomes the framework's command holds no value at all: values reach it as arguments. No value that looks like a
//! secret gets in: a script tests that a variable exists.

mod bodies;
mod body;
mod checks;
mod cli;
mod environment;
mod examples;
mod expected;
mod failures;
mod folder;
pub mod footer;
pub mod frame;
mod further;
mod given;
mod header;
mod images;
mod measure;
mod mounts;
mod options;
mod parts;
mod payload;
mod profile;
pub mod salloc;
mod saving;
mod signals;
mod site;
mod step;
mod writer;

pub use crate::shell::is_variable;
pub use body::{Body, Hears, Program};
pub use cli::{as_command_line, command_line, command_words, read_site, site_toml, words};
pub use examples::{EXAMPLE_TITLES, Example, examples};
pub use options::{Mode, ScriptOptions, Task, TaskEnvironment};
pub use profile::Profile;
pub use site::{Container, Environment, GpuRequest, Site};

pub use bodies::command::payload as command_payload;
pub use bodies::expandable_segments;
pub use environment::{
    of_allocator as environment_of_allocator, of_hardware as environment_of_hardware,
    of_task as environment_of_task, of_training as environment_of_training,
};
pub use measure::END_OF_PLAN;
pub use payload::{Entry, Payload};
pub use writer::Writer;

use planner::finding::Finding;
use planner::plan::Plan;
use planner::wire::DataFile;

/// What a script starts.
#[derive(Debug, Clone, PartialEq)]
pub enum Started {
    /// A framework's command, which the frame stands around.
    Payload(Box<Payload>),
    /// The whole script, where it is no command in a frame.
    Text(String),
}

/// Writes the batch script that runs `plan` on a cluster described by `site`, or the steps of an interactive
/// allocation, around what `start` gives. Missing values stand as `<PLACEHOLDERS>` and are findings; a value that could
/// break the script is an error, and a placeholder stands in its place.
pub fn script_around(
    plan: &Plan,
    site: &Site,
    options: &ScriptOptions,
    start: fn(&mut Writer<'_>) -> Started,
) -> (String, Vec<Finding>) {
    let (plan, without) = failures::goes_on(plan, options);
    let plan = plan.as_ref();
    let applied = site.profile.map(|profile| profile.apply(site));
    let site = applied.as_ref().unwrap_or(site);
    let with_data = data_of_plan(plan, site, options);
    let mut writer = Writer::new(plan, with_data.as_ref().unwrap_or(site), options);
    without.into_iter().for_each(|finding| writer.note(finding));
    let text = match start(&mut writer) {
        Started::Text(text) => text,
        Started::Payload(payload) => {
            let payload = given::without_sites(&mut writer, *payload);
            match options.mode {
                Mode::Salloc => salloc::steps(&mut writer, &payload),
                Mode::Srun | Mode::Torchrun => frame::batch(&mut writer, &payload),
            }
        }
    };
    given::check(&mut writer, &text);
    expected::check(&mut writer);
    let mut findings = writer.into_findings();
    planner::order::sort_by_key(&mut findings, |finding| finding.severity);
    (text, findings)
}

/// The site with the data that the plan names, where the framework reads the same and the site names none.
fn data_of_plan(plan: &Plan, site: &Site, options: &ScriptOptions) -> Option<Site> {
    match &plan.run.data {
        DataFile::Megatron { path }
            if site.data_path.is_none() && options.body.facts().reads_megatron_data =>
        {
            let path = path.strip_suffix(".bin").or_else(|| path.strip_suffix(".idx")).unwrap_or(path);
            Some(Site { data_path: Some(path.to_owned()), ..site.clone() })
        }
        _ => None,
    }
}
