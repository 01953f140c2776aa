//! Launch scripts: what a person pastes on a cluster to run a plan. Submitting is the user's; nothing here runs.
//!
//! A script is written in two languages. `#SBATCH` lines are read by Slurm, which knows no quoting, so their values
//! come from an allow-list; everything after them is shell, where every value is quoted. What a task runs before it
//! becomes the framework's command holds no value at all: values reach it as arguments. No value that looks like a
//! secret gets in: a script tests that a variable exists.

mod bodies;
mod checks;
mod cli;
mod environment;
mod examples;
mod expected;
mod failures;
mod folder;
pub(crate) mod footer;
pub(crate) mod frame;
mod further;
mod header;
pub(crate) mod images;
mod measure;
mod mounts;
mod options;
mod parts;
mod payload;
mod profile;
pub(crate) mod salloc;
mod saving;
mod signals;
mod site;
mod step;
pub(crate) mod text;
mod writer;

pub use cli::{as_command_line, command_line, command_words, read_site, site_toml, words};
pub use examples::{Example, examples};
pub use options::{Body, Mode, ScriptOptions, Task, TaskEnvironment};
pub use profile::Profile;
pub use site::{Container, Environment, GpuRequest, Site};
pub use text::is_variable;

pub(crate) use bodies::expandable_segments;
pub(crate) use environment::{of_hardware as environment_of_hardware, of_task as environment_of_task};
use further::Style;
pub(crate) use measure::END_OF_PLAN;
pub(crate) use payload::{Entry, Payload};
pub(crate) use writer::Writer;

use crate::finding::Finding;
use crate::frameworks::{automodel, bridge, megatron_lm, torchtitan, worker};
use crate::plan::{Framework, Plan};
use crate::wire::DataFile;

/// Writes the batch script that runs `plan` on a cluster described by `site`, or the steps of an interactive
/// allocation. Missing values stand as `<PLACEHOLDERS>` and are findings; a value that could break the script is an
/// error, and a placeholder stands in its place.
pub fn script(plan: &Plan, site: &Site, options: &ScriptOptions) -> (String, Vec<Finding>) {
    let (plan, without) = failures::goes_on(plan, options);
    let plan = plan.as_ref();
    let applied = site.profile.map(|profile| profile.apply(site));
    let site = applied.as_ref().unwrap_or(site);
    let with_data = data_of_plan(plan, site, options);
    let mut writer = Writer::new(plan, with_data.as_ref().unwrap_or(site), options);
    without.into_iter().for_each(|finding| writer.note(finding));
    let payload = match options.body {
        Body::Worker => None,
        Body::Bridge => Some(bridge::payload(&mut writer)),
        Body::Mlm => Some(megatron_lm::payload(&mut writer)),
        Body::Automodel => Some(automodel::payload(&mut writer)),
        Body::Torchtitan => Some(torchtitan::payload(&mut writer)),
        Body::Command => Some(bodies::command::payload(&mut writer)),
    };
    let payload = payload.map(|mut payload| {
        payload.arguments.extend(added(&mut writer));
        payload
    });
    if let Some(why) = takes_no_more(options.body) {
        writer.no_further(why);
    }
    let text = match (&payload, options.mode) {
        (None, _) => worker::script(&mut writer),
        (Some(payload), Mode::Salloc) => salloc::steps(&mut writer, payload),
        (Some(payload), _) => frame::batch(&mut writer, payload),
    };
    expected::check(&mut writer);
    let mut findings = writer.into_findings();
    crate::order::sort_by_key(&mut findings, |finding| finding.severity);
    (text, findings)
}

/// The site with the data that the plan names, where the framework reads the same and the site names none.
fn data_of_plan(plan: &Plan, site: &Site, options: &ScriptOptions) -> Option<Site> {
    match &plan.run.data {
        DataFile::Megatron { path }
            if site.data_path.is_none() && matches!(options.body, Body::Mlm | Body::Bridge) =>
        {
            let path = path.strip_suffix(".bin").or_else(|| path.strip_suffix(".idx")).unwrap_or(path);
            Some(Site { data_path: Some(path.to_owned()), ..site.clone() })
        }
        _ => None,
    }
}

/// What the site adds to the framework's command.
fn added(writer: &mut Writer<'_>) -> Vec<String> {
    match writer.options.body {
        Body::Mlm => writer.further(megatron_lm::table(), Style::Dashed),
        Body::Bridge if writer.options.task == Task::Train => {
            writer.further(bridge::table(), Style::Overrides)
        }
        Body::Bridge => writer.further_words(),
        Body::Automodel => writer.further(automodel::table(writer.plan.runtime), Style::Sections),
        Body::Torchtitan => {
            let version = writer.framework(Framework::Torchtitan03);
            writer.further(torchtitan::table(version), Style::Sections)
        }
        Body::Worker | Body::Command => Vec::new(),
    }
}

/// Why nothing takes the site's further arguments; none where something does.
fn takes_no_more(body: Body) -> Option<&'static str> {
    match body {
        Body::Worker => Some("shardplan-rank takes the plan and nothing else"),
        Body::Command => Some("the command's own words stand in the script as they are given"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
