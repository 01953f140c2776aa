//! A script as the command line that writes the same bytes.

use serde_json::Value;

use super::options::{ScriptOptions, Task};
use super::site::Site;
use planner::finding::{Finding, has_error};
use planner::json::indented;
use planner::wire::PlanFile;

/// The files that the command reads and writes.
const PLAN: &str = "plan.json";
const SITE: &str = "site.toml";
const SCRIPT: &str = "job.sbatch";

/// Words of the command that writes this kind of script from `plan.json` and, with a site, `site.toml`.
pub fn command_words(options: &ScriptOptions, with_site: bool) -> Vec<String> {
    let mut words: Vec<String> =
        ["shardplan", "script", PLAN, "--mode", options.mode.name(), "--body", options.body.name()]
            .map(str::to_owned)
            .to_vec();
    if options.task != Task::Train {
        words.extend(["--task".to_owned(), options.task.name().to_owned()]);
    }
    for (name, value) in [("array", &options.array), ("het", &options.het)] {
        words.extend(value.as_ref().map(|value| format!("--{name}={value}")));
    }
    if with_site {
        words.extend(["--site".to_owned(), SITE.to_owned()]);
    }
    if options.strict {
        words.push("--strict".to_owned());
    }
    if !options.body.facts().trains && !options.command.is_empty() {
        words.push("--".to_owned());
        words.extend(options.command.iter().cloned());
    }
    words
}

/// Words of a command as a person types it, quotes and all; what is not words yet is one word.
pub fn words(command: &str) -> Vec<String> {
    match shlex::split(command) {
        Some(words) => words,
        None => vec![command.to_owned()],
    }
}

/// Words as a person types them, each quoted where it must be; what can't be typed is left out.
pub fn command_line(words: &[String]) -> String {
    let quoted = words.iter().filter_map(|word| shlex::try_quote(word).ok());
    quoted.map(|word| word.into_owned()).collect::<Vec<_>>().join(" ")
}

/// A text to paste: it writes the plan and the site to files and calls the command, whose output is the script that
/// [`super::script_around`] gave with these `findings`. None where one is an error, which may be a secret that must not be
/// copied.
pub fn as_command_line(
    file: &PlanFile,
    site: &Site,
    options: &ScriptOptions,
    findings: &[Finding],
) -> Option<String> {
    if has_error(findings) {
        return None;
    }
    let json = indented(file).ok()?;
    let toml = site_toml(site);
    let words = command_words(options, !toml.is_empty());
    let command = shlex::try_join(words.iter().map(String::as_str)).ok()?;
    // Neither text has such a line: strings of JSON and TOML hold no line breaks.
    let mut out = format!("cat > {PLAN} <<'END_OF_PLAN'\n{json}\nEND_OF_PLAN\n");
    if !toml.is_empty() {
        out.push_str(&format!("cat > {SITE} <<'END_OF_SITE'\n{toml}END_OF_SITE\n"));
    }
    out.push_str(&format!("{command} > {SCRIPT}\n"));
    Some(out)
}

/// A site as its file: what differs from a site of which nothing is known.
pub fn site_toml(site: &Site) -> String {
    let fields = |site: &Site| match serde_json::to_value(site) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let usual = fields(&Site::default());
    let mut out = String::new();
    let mut tables = String::new();
    for (name, value) in fields(site) {
        if usual.get(&name) == Some(&value) {
            continue;
        }
        if let Value::Object(entries) = &value {
            tables.push_str(&format!("\n[{name}]\n"));
            for (key, value) in entries {
                tables.push_str(&format!("{} = {}\n", string(key), plain(value)));
            }
        } else {
            out.push_str(&format!("{name} = {}\n", plain(&value)));
        }
    }
    out + &tables
}

/// Reads a site's file.
///
/// # Errors
/// What is not TOML or no site's field, with its line.
pub fn read_site(text: &str) -> Result<Site, Box<Finding>> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or_else(String::new, |span| {
            let line = text.get(..span.start).map_or(1, |before| before.matches('\n').count() + 1);
            format!("line {line} of the site file")
        });
        Box::new(
            Finding::error("site", serde_json::Value::Null, format!("not a site file: {}", error.message()))
                .rule(line),
        )
    })
}

/// A value without a name in it. JSON and TOML write these alike.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => string(text),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// A string as JSON writes it; TOML wants one character more to be escaped.
fn string(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default().replace('\u{7f}', "\\u007f")
}
