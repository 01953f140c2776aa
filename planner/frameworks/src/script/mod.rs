//! The batch script that runs a plan by a framework: what `batch` writes around what the framework starts.

mod further;
#[cfg(test)]
mod tests;

use batch::launch::{Body, ScriptOptions, Site, Started, Task, Writer, command_payload};
use planner::finding::Finding;
use planner::plan::Plan;
use planner::software::Framework;

use crate::{automodel, bridge, megatron_lm, torchtitan, worker};
use further::{Style, further};

/// Writes the batch script that runs `plan` on a cluster described by `site`, or the steps of an interactive
/// allocation. Missing values stand as `<PLACEHOLDERS>` and are findings; a value that could break the script is an
/// error, and a placeholder stands in its place.
pub fn script(plan: &Plan, site: &Site, options: &ScriptOptions) -> (String, Vec<Finding>) {
    batch::launch::script_around(plan, site, options, start)
}

/// What the script starts.
fn start(writer: &mut Writer<'_>) -> Started {
    let body = writer.options.body;
    let payload = match body {
        Body::Worker => None,
        Body::Bridge => Some(bridge::payload(writer)),
        Body::Mlm => Some(megatron_lm::payload(writer)),
        Body::Automodel => Some(automodel::payload(writer)),
        Body::Torchtitan => Some(torchtitan::payload(writer)),
        Body::Command => Some(command_payload(writer)),
    };
    let payload = payload.map(|mut payload| {
        payload.arguments.extend(added(writer));
        payload
    });
    if let Some(why) = takes_no_more(body) {
        writer.no_further(why);
    }
    match payload {
        Some(payload) => Started::Payload(Box::new(payload)),
        None => Started::Text(worker::script(writer)),
    }
}

/// What the site adds to the framework's command.
fn added(writer: &mut Writer<'_>) -> Vec<String> {
    match writer.options.body {
        Body::Mlm => further(writer, megatron_lm::table(), Style::Dashed),
        Body::Bridge if writer.options.task == Task::Train => {
            further(writer, bridge::table(), Style::Overrides)
        }
        Body::Bridge => writer.further_words(),
        Body::Automodel => further(writer, automodel::table(writer.plan.runtime), Style::Sections),
        Body::Torchtitan => {
            let version = writer.framework(Framework::Torchtitan03);
            further(writer, torchtitan::table(version), Style::Sections)
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
