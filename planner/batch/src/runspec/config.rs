//! Which configuration file a script is started with.

use super::spec::{ConfigFormat, Runspec};
use planner::finding::{Finding, nearest_names};

/// The file that goes after `--config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigFile {
    /// This one.
    File(String),
    /// None: the script says nothing of configuration, and there is no file of the usual name.
    Absent,
}

/// Finds it. `named` is what a person asked for: a path, or a name in the script's folder of configurations
/// (`folder`); `files` are the names in that folder and `exists` says whether a path is a file.
///
/// # Errors
/// When the named or the default file is not there, with those that are.
pub fn config_file(
    spec: &Runspec,
    named: Option<&str>,
    folder: &str,
    files: &[String],
    exists: impl Fn(&str) -> bool,
) -> Result<ConfigFile, Box<Finding>> {
    let endings: &[&str] = match spec.config_format {
        ConfigFormat::Omegaconf | ConfigFormat::Yaml => &["yaml", "yml"],
        ConfigFormat::Json => &["json"],
    };
    if let Some(path) = named.filter(|path| exists(path)) {
        return Ok(ConfigFile::File(path.to_owned()));
    }
    let name = named.unwrap_or(&spec.config_default);
    let candidates = endings.iter().map(|ending| format!("{name}.{ending}")).chain([name.to_owned()]);
    if let Some(file) = candidates.into_iter().find(|candidate| files.contains(candidate)) {
        return Ok(ConfigFile::File(format!("{}/{file}", folder.trim_end_matches('/'))));
    }
    if named.is_none() && !spec.has_config {
        return Ok(ConfigFile::Absent);
    }
    let mut names: Vec<&str> = files
        .iter()
        .filter_map(|file| file.rsplit_once('.').filter(|(_, ending)| endings.contains(ending)))
        .map(|(name, _)| name)
        .collect();
    planner::order::sort(&mut names);
    let there = if names.is_empty() {
        "there is none".to_owned()
    } else {
        format!("there are: {}", names.join(", "))
    };
    let message = format!("there is no configuration {name}; in {folder} {there}");
    Err(Box::new(Finding::error("config", name, message).nearest(nearest_names(name, names, 2))))
}
