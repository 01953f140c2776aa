//! Documents that are packed into sequences: what starts again at each, and of which predictions the loss is counted.

use serde_json::Value;

use super::Plan;
use crate::finding::clip;
use crate::json::value_of;
use crate::wire::DataFile;

/// What is made of documents' ends within a sequence. Nothing, and a sequence is read as if it were one text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Documents {
    /// Whether positions start again with each document.
    pub reset_positions: bool,
    /// Whether tokens see those of their own document alone.
    pub reset_attention: bool,
    /// Whether what is predicted from the end of a document counts for nothing.
    pub mask_eod_loss: bool,
    /// The token that ends a document; none where the data says which.
    pub eod_token: Option<u64>,
}

impl Documents {
    /// Whether anything is made of them.
    pub fn matter(&self) -> bool {
        self.reset_positions || self.reset_attention || self.mask_eod_loss
    }

    /// Whether the model's layers must know where documents begin.
    pub fn reset(&self) -> bool {
        self.reset_positions || self.reset_attention
    }

    /// Whether some predictions count and others don't: of modules that predict tokens further on those that would look into
    /// another document, too.
    pub fn mask(&self) -> bool {
        self.mask_eod_loss || self.reset_attention
    }
}

impl Plan {
    /// Why the worker can't tell documents apart that the plan wants apart, with the field and its value; none where it can.
    pub(crate) fn unknown_documents(&self) -> Option<(&'static str, Value, String)> {
        let documents = &self.run.documents;
        if !documents.matter() {
            return None;
        }
        let held_out = self.run.evaluation.as_ref().map(|one| ("run.evaluation.data", &one.data));
        let all = [Some(("run.data", &self.run.data)), held_out];
        all.into_iter().flatten().find_map(|(field, data)| {
            let why = unknown_of(data, documents.eod_token.is_some())?;
            let value = value_of(data);
            Some((field, Value::from(clip(&value.to_string())), why.to_owned()))
        })
    }
}

fn unknown_of(data: &DataFile, eod_is_known: bool) -> Option<&'static str> {
    match data {
        DataFile::Synthetic => Some(
            "made-up sequences have no documents, whose ends run.documents asks for; name data of your own, or leave run.documents out",
        ),
        DataFile::Text { .. } | DataFile::Tokens { .. } if !eod_is_known => Some(
            "a file of tokens does not say which of them ends a document; give it as run.documents.eod_token (an index of Megatron's says it)",
        ),
        DataFile::Text { .. } | DataFile::Tokens { .. } | DataFile::Megatron { .. } => None,
        DataFile::Blend { parts } => parts.iter().find_map(|part| unknown_of(&part.data, eod_is_known)),
    }
}
