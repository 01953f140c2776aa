//! How the worker evaluates, where a plan file leaves that open.

use super::filler::Filler;
use super::run::refuse_wrong_blend;
use crate::finding::Finding;
use crate::json::value_of;
use crate::plan::Evaluation;
use crate::wire::{DataFile, EvaluationFile};

const DATA: &str = "run.evaluation.data";
const RULE: &str = "evaluation on data that is held out";

/// Nothing is evaluated without data; of an evaluation there are as many sequences as of a step, a `batch`.
pub(super) fn fill_evaluation(
    fill: &mut Filler<'_>,
    trained: &DataFile,
    batch: u64,
    file: &mut EvaluationFile,
) -> Option<Evaluation> {
    let Some(data) = file.data.clone() else {
        if *file != EvaluationFile::default() {
            let message = "nothing is evaluated, since no data is named; name what is held out, or leave run.evaluation out";
            fill.findings.push(Finding::warning(DATA, serde_json::Value::Null, message).rule(RULE));
        }
        return None;
    };
    // Made-up sequences of another seed are none that were trained on.
    if data == *trained && data != DataFile::Synthetic {
        let value = value_of(&data);
        let message =
            "this is what is trained on, so its loss says nothing of other data; name data that is held out";
        fill.findings.push(Finding::warning(DATA, value, message).rule(RULE));
    }
    refuse_wrong_blend(fill, DATA, &data);
    Some(Evaluation {
        data,
        every_steps: fill.number("run.evaluation.every_steps", &mut file.every_steps),
        sequences: fill.number_or("run.evaluation.sequences", &mut file.sequences, batch),
    })
}
