//! Variables that a site gives, beside those that the script and Slurm have: the site's value of what a framework runs under holds, and
//! what is the script's own is refused.

use std::collections::BTreeSet;

use super::frame::CACHES;
use super::payload::Payload;
use super::writer::Writer;
use crate::lint::sets;
use crate::shell;
use planner::finding::Finding;

/// Variables by which shells find and read what they run.
const OF_SHELLS: [&str; 8] = ["BASH_ENV", "BASHOPTS", "CDPATH", "ENV", "IFS", "PATH", "PS4", "SHELLOPTS"];
/// How names of variables begin that Slurm sets for a job and its tasks.
const OF_SLURM: [&str; 3] = ["SLURM_", "SLURMD_", "SBATCH_"];

/// Exports of a payload without those that the site gives itself, which is said where the values differ.
pub(super) fn without_sites(writer: &mut Writer<'_>, mut payload: Payload) -> Payload {
    for exports in [&mut payload.exports, &mut payload.task_exports] {
        exports.retain(|(name, value)| {
            // What names another of the script's variables is its own.
            let Some(given) = writer.site.env.get(*name).filter(|_| !value.contains('$')) else { return true };
            if given != value {
                let message = format!(
                    "the site's env gives {name} the value {given}, where this plan's script would set {value}: the site's holds; leave it \
                     out unless that is meant"
                );
                writer.note(Finding::warning("site.env", *name, message).rule("the site's env"));
            }
            false
        });
    }
    payload
}

/// Refuses names in the site's env that the finished script, Slurm or the shell itself has values for: the script would go on with
/// another folder, rank or job than it has checked.
pub(super) fn check(writer: &mut Writer<'_>, script: &str) {
    let site = writer.site;
    let exported = |name: &String| {
        let value = site.env.get(name).and_then(|value| shell::quoted(value))?;
        Some(format!("export {name}={value}"))
    };
    let sites: BTreeSet<String> =
        site.env.keys().filter_map(exported).chain(site.prologue.iter().cloned()).collect();
    let lines: Vec<&str> = script.lines().filter(|line| !sites.contains(*line)).collect();
    let own = sets(lines.join("\n").as_bytes());
    for name in site.env.keys().filter(|name| shell::is_variable(name)) {
        let others =
            OF_SHELLS.contains(&name.as_str()) || OF_SLURM.iter().any(|begins| name.starts_with(begins));
        if others || (own(name) && !CACHES.contains(&name.as_str())) {
            let why = match others {
                true => {
                    "names a variable of Slurm or of the shell, without whose own value the script does something else; change it in prologue, \
                         where it can be added to"
                }
                false => {
                    "names a variable that the script sets itself; give it another name, or leave it out"
                }
            };
            writer.refuse("env", name, why);
        }
    }
}
