//! Profiles of `env.toml`: where a person runs scripts. A profile may extend another.

use toml::{Table, Value};

use super::document::{self, Fields};
use planner::finding::{Finding, nearest_names};

/// Tables at the top of `env.toml` that are settings of other tools, not profiles.
pub(crate) const RESERVED: [&str; 4] = ["wandb", "cli", "cache", "artifacts"];
/// The most profiles in one chain of `extends`.
const MAX_DEPTH: usize = 64;

/// A profile, with everything that it extends laid under it.
#[derive(Debug, Clone, PartialEq)]
pub struct LaidProfile {
    /// Its name.
    pub name: String,
    pub(super) table: Table,
}

impl LaidProfile {
    pub(super) fn fields(&self) -> Fields<'_> {
        Fields::new(&self.table, "profile")
    }
}

/// The profile `name` of the `env.toml` that holds `text`; `path` is for messages.
///
/// # Errors
/// When the file is not TOML, the profile or one that it extends is not there (with those that are), or profiles
/// extend one another in a circle.
pub fn profile(path: &str, text: &str, name: &str) -> Result<LaidProfile, Box<Finding>> {
    let document = document::parse_file(path, text)?;
    let names: Vec<&str> = document
        .iter()
        .filter(|(name, value)| value.is_table() && !RESERVED.contains(&name.as_str()))
        .map(|(name, _)| name.as_str())
        .collect();
    let available =
        if names.is_empty() { "it has none".to_owned() } else { format!("it has: {}", names.join(", ")) };
    let find = |wanted: &str| match document.get(wanted) {
        Some(Value::Table(table)) if !RESERVED.contains(&wanted) => Some(table),
        _ => None,
    };

    let mut chain: Vec<(&str, &Table)> = Vec::new();
    let mut wanted = name;
    loop {
        if let Some(start) = chain.iter().position(|(seen, _)| *seen == wanted) {
            let circle: Vec<&str> = chain[start..].iter().map(|(name, _)| *name).chain([wanted]).collect();
            let message = format!(
                "profiles extend one another in a circle, {}; {available}: {path}",
                circle.join(" -> ")
            );
            return Err(Box::new(Finding::error("profile", name, message)));
        }
        let Some(table) = find(wanted) else {
            let message = match chain.last() {
                None => format!("there is no profile {wanted}; {available}: {path}"),
                Some((child, _)) => {
                    format!("profile {child} extends {wanted}, which is not there; {available}: {path}")
                }
            };
            return Err(Box::new(Finding::error("profile", wanted, message).nearest(nearest_names(
                wanted,
                names.iter().copied(),
                2,
            ))));
        };
        if chain.len() == MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} profiles extend one another: {path}");
            return Err(Box::new(Finding::error("profile", name, message)));
        }
        chain.push((wanted, table));
        match table.get("extends") {
            None => break,
            Some(Value::String(parent)) => wanted = parent,
            Some(other) => {
                return Err(Fields::new(table, wanted).wrong("extends", other, "a profile's name"));
            }
        }
    }
    let mut merged = Table::new();
    for (_, table) in chain.iter().rev() {
        merge(&mut merged, table);
    }
    merged.remove("extends");
    Ok(LaidProfile { name: name.to_owned(), table: merged })
}

/// Lays `over` onto `under`: tables are merged, everything else is replaced.
fn merge(under: &mut Table, over: &Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}
