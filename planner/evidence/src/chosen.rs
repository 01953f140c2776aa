//! What would have been chosen where somebody published a layout: the plan of model, cluster, batch, sequence, precision and
//! software alone, against the published layout as it is typed. Both are predicted, so nothing here says which is faster on the
//! machine; it says how far a choice is from what somebody tuned, and whether the published one is told to fit.

use serde::Serialize;
use serde_json::{Value, json};

use super::asked::{Detail, list, source};
use planner::answer::estimate;
use planner::parse::parse_plan;
use planner::search::{Choice, Search};
use planner::wire::{PlanFile, Verdict};

/// A published layout and the plan that is chosen instead.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Against {
    /// The row.
    pub row: String,
    /// The published layout.
    pub published: String,
    /// Whether it is told to fit.
    pub verdict: Verdict,
    /// Seconds of its step as they are predicted.
    pub seconds: Option<f64>,
    /// Seconds that were published.
    pub measured: f64,
    /// The chosen layout; none where nothing fits.
    pub chosen: Option<String>,
    /// Seconds of its step as they are predicted.
    pub chosen_seconds: Option<f64>,
}

impl Against {
    /// Share by which the chosen plan's step is shorter than the published one's, below 0 where it is longer.
    pub fn shorter(&self) -> Option<f64> {
        Some(1.0 - self.chosen_seconds? / self.seconds?)
    }
}

/// Every row of a source of published steps that a plan file can say. Rows of the same question are asked once each.
///
/// # Errors
/// A sentence, when there is no such source or the text is not in its format.
pub fn against(name: &str, text: &str) -> Result<Vec<Against>, String> {
    let source = source(name).ok_or_else(|| format!("`{name}` is no source of published steps"))?;
    let rows = list(source, text)?.rows;
    Ok(rows.iter().filter(|row| row.excluded.is_none()).filter_map(one).collect())
}

fn one(row: &super::asked::Asked) -> Option<Against> {
    let typed = row.file_with(Detail::Typed).ok()?;
    let file = parse_plan(&typed.to_string()).ok()?;
    let answer = estimate(&file);
    let mut against = Against {
        row: row.label.clone(),
        published: in_words(&file),
        verdict: answer.memory.as_ref().map_or(Verdict::Invalid, |memory| memory.verdict),
        seconds: answer.time.map(|time| time.step_seconds),
        measured: row.measured,
        chosen: None,
        chosen_seconds: None,
    };
    let choice = Choice::of(&open(typed)?).ok()??;
    let answer = Search::new(&choice.request).ok()?.run();
    if let Some(row) = answer.rows.first() {
        against.chosen = choice.plan(&answer).as_ref().map(in_words);
        against.chosen_seconds = Some(row.step_seconds);
    }
    Some(against)
}

/// The question without its layout and micro batch.
fn open(mut typed: Value) -> Option<PlanFile> {
    typed["layout"] = json!({});
    typed["training"].as_object_mut()?.remove("micro_batch_size");
    typed["choose"] = json!("all");
    parse_plan(&typed.to_string()).ok()
}

/// A layout's sizes above 1, such as `tp 2 pp 4, 2 sequences`.
fn in_words(file: &PlanFile) -> String {
    let layout = &file.layout;
    let sizes = [
        ("tp", layout.tp),
        ("cp", layout.cp),
        ("pp", layout.pp),
        ("vpp", layout.vpp),
        ("ep", layout.ep),
        ("etp", layout.etp.filter(|_| layout.ep.is_some_and(|ep| ep > 1))),
    ];
    let sizes = sizes.into_iter().filter_map(|(name, size)| Some((name, size.filter(|size| *size > 1)?)));
    let mut words: Vec<String> = sizes.map(|(name, size)| format!("{name} {size}")).collect();
    words.push(format!("mbs {}", file.training.micro_batch_size.unwrap_or(1)));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_row_is_held_against_what_is_chosen() {
        let (_, text) = crate::BUNDLED.iter().find(|(name, _)| *name == "megatron_bridge_perf").unwrap();
        let mut file: Value = serde_json::from_str(text).unwrap();
        let rows = file["rows"].as_array_mut().unwrap();
        rows.retain(|row| row["model_key"] == "llama3_8b" && row["gpu"] == "H100");
        rows.truncate(1);
        let found = against("megatron_bridge_perf", &file.to_string()).unwrap();
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!(one.verdict, Verdict::Fits, "{one:?}");
        // What is chosen is at most as much slower as the time model can't tell.
        assert!(one.shorter().unwrap() > -0.02, "{one:?}");
        assert!(against("nobody", "{}").is_err());
    }
}
