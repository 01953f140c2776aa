//! What a site adds to a framework's command, held against what the plan says in it.

use serde_json::Value;

use batch::launch::Writer;
use batch::shell;
use planner::finding::Finding;

use crate::import::Arguments;
use crate::path::at;
use crate::table::Table;

/// How a framework takes its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `--name value...` or `--name=value`, dashes as underscores (Megatron-LM).
    Dashed,
    /// `--section.name value`, `--section.name` and `--section.no-name` (torchtitan, NeMo Automodel).
    Sections,
    /// `section.name=value` (Megatron Bridge).
    Overrides,
}

/// The site's further arguments, each quoted, to be written behind the plan's own options so that they win. An
/// argument that makes of the plan another than was predicted is a finding; `table` has the framework's options.
pub(super) fn further(writer: &mut Writer<'_>, table: Table, style: Style) -> Vec<String> {
    let arguments = writer.further_words();
    if !arguments.is_empty() {
        contradictions(writer, table, style);
    }
    arguments
}

/// Reads the options of the plan with and without the site's arguments, as a job of the framework is read, and
/// says which fields differ.
fn contradictions(writer: &mut Writer<'_>, table: Table, style: Style) {
    let written = table.write(writer.plan).options;
    let own = |option: &str| {
        let (_, word) = written.iter().rev().find(|(row, _)| row.option == option)?;
        Some(word.clone())
    };
    let added = options(&writer.site.extra_args, style);
    let said = |option: &str| {
        let (_, word) = added.iter().rev().find(|(name, _)| name == option)?;
        Some(word.clone())
    };
    let mut before = Value::Object(serde_json::Map::new());
    let mut after = before.clone();
    if table.read(&own, &mut before).is_err() {
        return;
    }
    if let Err(wrong) = table.read(&|option: &str| said(option).or_else(|| own(option)), &mut after) {
        let message = format!("the framework may refuse extra_args of the site: {wrong}");
        return writer.note(Finding::warning("site.extra_args", wrong, message));
    }
    let mut fields: Vec<&str> = Vec::new();
    for row in table.rows().filter(|row| !row.field.is_empty()) {
        if !fields.contains(&row.field) && at(&before, row.field) != at(&after, row.field) {
            fields.push(row.field);
        }
    }
    for field in fields {
        let (planned, given) = (at(&before, field), at(&after, field));
        let message = format!(
            "extra_args of the site make it {}, and the plan says {}: the script runs the first, and the prediction \
             is of the second; change the plan instead",
            shown(given),
            shown(planned)
        );
        writer.note(Finding::warning(field, given.clone(), message).rule("the plan is what runs"));
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "what the framework has by itself".to_owned(),
        Value::String(text) => shell::comment(text),
        other => shell::comment(&other.to_string()),
    }
}

/// Names and values of options as the framework's rows have them; empty for one that stands alone.
fn options(words: &[String], style: Style) -> Vec<(String, String)> {
    if style == Style::Dashed {
        let read = Arguments::of_words(words.iter().map(String::as_str));
        let value = |name: &str| read.values(name).unwrap_or_default().join(" ");
        return read.names().map(|name| (name.to_owned(), value(name))).collect();
    }
    let mut found: Vec<(String, String)> = Vec::new();
    for word in words {
        if style == Style::Overrides {
            let Some((name, value)) = word.split_once('=') else { continue };
            let value = value.trim_matches(['\'', '"']);
            found.push((name.trim_start_matches('+').to_owned(), value.to_owned()));
            continue;
        }
        // A number below zero is a value.
        let option =
            word.strip_prefix("--").filter(|name| name.starts_with(|first: char| first.is_alphabetic()));
        if let Some(option) = option {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let name = name.replace('-', "_");
            found.push((name, value.to_owned()));
        } else if let Some((_, value)) = found.last_mut() {
            if !value.is_empty() {
                value.push(' ');
            }
            value.push_str(word);
        }
    }
    if style == Style::Sections {
        for (name, value) in &mut found {
            if !value.is_empty() {
                continue;
            }
            *value = "true".to_owned();
            if let Some((section, off)) =
                name.rsplit_once('.').and_then(|(section, last)| Some((section, last.strip_prefix("no_")?)))
            {
                (*name, *value) = (format!("{section}.{off}"), "false".to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, style: Style) -> Vec<(String, String)> {
        options(&shlex::split(line).expect("words"), style)
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn options_are_read_as_each_framework_takes_them() {
        assert_eq!(
            read("--micro_batch_size=2 --bf16 --data-path 0.3 /a 0.7 /b --x -1", Style::Dashed),
            pairs(&[("bf16", ""), ("data-path", "0.3 /a 0.7 /b"), ("micro-batch-size", "2"), ("x", "-1")])
        );
        assert_eq!(
            read("--training.steps 10 --debug.no-deterministic --compile.enable", Style::Sections),
            pairs(&[("training.steps", "10"), ("debug.deterministic", "false"), ("compile.enable", "true")])
        );
        assert_eq!(
            read("+model.x=1 'a.b=\"c\"' alone", Style::Overrides),
            pairs(&[("model.x", "1"), ("a.b", "c")])
        );
    }
}
