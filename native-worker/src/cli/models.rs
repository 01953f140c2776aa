//! `shardplan models [WORD...]`.

use planner::finding::nearest_names;
use planner::model::{count, presets};
use serde::Serialize;

use crate::report::{self, Exit, Failure, text};

/// List the models that a plan can name: presets for --model and model.preset
#[derive(Debug, clap::Args)]
pub struct Models {
    /// Only models with this in their name; of several words, all
    words: Vec<String>,
}

/// A preset as it is printed.
#[derive(Serialize)]
struct Listed {
    /// Its id.
    preset: &'static str,
    /// Its name as people write it.
    model: &'static str,
    /// Trainable parameters.
    parameters: u64,
    /// Those of them that a token uses.
    active: u64,
    /// Where its facts come from.
    source: &'static str,
}

#[derive(Serialize)]
struct Report {
    version: u32,
    presets: Vec<Listed>,
}

impl Models {
    /// Prints the presets.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let plain = |text: &str| -> String {
            let letters = text.chars().filter(|letter| letter.is_alphanumeric());
            letters.flat_map(char::to_lowercase).collect()
        };
        let words: Vec<String> = self.words.iter().map(|word| plain(word)).collect();
        let presets: Vec<Listed> = presets()
            .iter()
            .filter(|preset| words.iter().all(|word| plain(&preset.id).contains(word.as_str())))
            .filter_map(|preset| {
                let (parameters, active) = count(&preset.model()?.0);
                let (model, source) = (preset.title.as_str(), preset.source.as_str());
                Some(Listed { preset: &preset.id, model, parameters, active, source })
            })
            .collect();
        if presets.is_empty() {
            return Err(none(&self.words.join(" ")));
        }
        if json {
            report::print_json(&Report { version: planner::wire::VERSION, presets })?;
            return Ok(Exit::Yes);
        }
        let billions = |parameters: u64| format!("{:.2}", parameters as f64 / 1e9);
        let mut rows = vec![["preset", "billions", "active", "model"].map(str::to_owned).to_vec()];
        rows.extend(presets.iter().map(|one| {
            vec![one.preset.to_owned(), billions(one.parameters), billions(one.active), one.model.to_owned()]
        }));
        report::print(&text::table(&rows))?;
        Ok(Exit::Yes)
    }
}

fn none(words: &str) -> anyhow::Error {
    let near = nearest_names(words, presets().iter().map(|preset| preset.id.as_str()), 3).join(", ");
    Failure::usage(format!(
        "no preset has `{words}` in its name; most like it are {near}, and `shardplan models` lists all of them"
    ))
}
