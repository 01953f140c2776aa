//! `shardplan settings [WORD...]`.

use planner::reference::{json_schema, takes};
use planner::wire::Setting;

use crate::report::{self, Exit, Failure};

/// List the fields of a plan file: what each takes and what it is; with --json, the JSON Schema of plan files
#[derive(Debug, clap::Args)]
pub struct Settings {
    /// Only fields with this in their path or in what they are; of several words, all
    words: Vec<String>,
}

impl Settings {
    /// Prints the fields.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let words: Vec<String> = self.words.iter().map(|word| word.to_lowercase()).collect();
        if json {
            if !words.is_empty() {
                return Err(Failure::usage(
                    "--json prints the schema of all fields; leave the words out".to_owned(),
                ));
            }
            report::print_json(&json_schema())?;
            return Ok(Exit::Yes);
        }
        let is_meant = |setting: &&Setting| {
            let said = format!("{} {}", setting.path, setting.about()).to_lowercase();
            words.iter().all(|word| said.contains(word.as_str()))
        };
        let found: Vec<&Setting> = Setting::all().filter(is_meant).collect();
        if found.is_empty() {
            return Err(Failure::usage(format!(
                "no field of a plan file has `{}` in its path or in what it is; `shardplan settings` lists all of them",
                self.words.join(" ")
            )));
        }
        let told = found
            .into_iter()
            .map(|setting| format!("{}: {}\n    {}\n", setting.path, takes(setting), setting.about()));
        report::print(&told.collect::<String>())?;
        Ok(Exit::Yes)
    }
}
