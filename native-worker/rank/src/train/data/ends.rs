//! Ends of documents in the tokens that are read: which token is one, and which predictions count.

use anyhow::{Context, ensure};
use planner::plan::Documents;
use planner::wire::DataFile;

use super::megatron;

/// The end of a document, and what is asked of it.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// The token that ends a document.
    pub token: i64,
    /// What is made of it.
    pub asked: Documents,
}

impl Ends {
    /// Those of some data; none where nothing is made of them.
    ///
    /// # Errors
    /// When the plan does not say which token ends a document, and the data neither.
    pub fn of(data: &DataFile, asked: Documents) -> anyhow::Result<Option<Ends>> {
        if !asked.matter() {
            return Ok(None);
        }
        let token = match asked.eod_token {
            Some(token) => i64::try_from(token).context("run.documents.eod_token")?,
            None => said_by(data)?,
        };
        Ok(Some(Ends { token, asked }))
    }

    /// Whether each prediction counts that is made from a place of a sequence with a look at the `by` tokens behind that.
    /// `tokens` are those of the sequence and the one behind it.
    pub fn counted(&self, tokens: &[i64], by: usize) -> Vec<bool> {
        let places = tokens.len().saturating_sub(1);
        let mut counted = vec![false; places];
        // The first end of a document from a place on.
        let mut end = usize::MAX;
        for place in (0..places).rev() {
            if tokens[place] == self.token {
                end = place;
            }
            let last = place + by;
            let looks_at_one = end > last || !self.asked.mask() || (end == last && !self.asked.mask_eod_loss);
            counted[place] = last < places && looks_at_one;
        }
        counted
    }
}

/// The token that the indices of some data say to end documents.
fn said_by(data: &DataFile) -> anyhow::Result<i64> {
    match data {
        DataFile::Megatron { path } => megatron::end_of_documents(path),
        DataFile::Blend { parts } => {
            let mut known: Option<(usize, i64)> = None;
            for (number, part) in parts.iter().enumerate() {
                let token = said_by(&part.data).with_context(|| format!("run.data.parts[{number}]"))?;
                let (first, other) = *known.get_or_insert((number, token));
                ensure!(
                    token == other,
                    "documents of run.data.parts[{first}] end with token {other}, and those of run.data.parts[{number}] with {token}; they must end alike, or run.documents.eod_token must say which is meant"
                );
            }
            Ok(known.context("run.data.parts is empty; give at least one source")?.1)
        }
        DataFile::Synthetic | DataFile::Text { .. } | DataFile::Tokens { .. } => {
            anyhow::bail!("nothing says which token ends a document; give it as run.documents.eod_token")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(asked: Documents, by: usize) -> Vec<u8> {
        let ends = Ends { token: 0, asked };
        ends.counted(&[5, 0, 6, 7, 8, 0, 9], by).into_iter().map(u8::from).collect()
    }

    #[test]
    fn what_looks_beyond_a_document_does_not_count() {
        let positions = Documents { reset_positions: true, ..Documents::default() };
        let attention = Documents { reset_attention: true, ..positions };
        let masked = Documents { mask_eod_loss: true, ..Documents::default() };
        let all = Documents { mask_eod_loss: true, ..attention };
        // The model's own predictions, then those of modules that read one and two tokens more.
        assert_eq!(counted(positions, 0), [1, 1, 1, 1, 1, 1]);
        assert_eq!(counted(positions, 1), [1, 1, 1, 1, 1, 0]);
        assert_eq!(counted(attention, 0), [1, 1, 1, 1, 1, 1]);
        assert_eq!(counted(attention, 1), [1, 0, 1, 1, 1, 0]);
        assert_eq!(counted(attention, 2), [0, 0, 1, 1, 0, 0]);
        for asked in [masked, all] {
            assert_eq!(counted(asked, 0), [1, 0, 1, 1, 1, 0]);
            assert_eq!(counted(asked, 1), [0, 0, 1, 1, 0, 0]);
            assert_eq!(counted(asked, 2), [0, 0, 1, 0, 0, 0]);
        }
    }
}
