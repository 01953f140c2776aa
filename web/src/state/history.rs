//! Undo and redo: a stack of whole values. Plans are immutable and small, so a step back is the value itself.

use std::sync::Arc;

/// Steps that are kept.
const DEPTH: usize = 200;
/// Edits of one field that follow each other within this time are one step: typing `8192` is not four.
const JOIN_MS: f64 = 1000.0;

/// What can be taken back, and what was.
#[derive(Debug)]
pub struct History<T> {
    past: Vec<Arc<T>>,
    future: Vec<Arc<T>>,
    last_edit: Option<(String, f64)>,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        History { past: Vec::new(), future: Vec::new(), last_edit: None }
    }
}

impl<T> History<T> {
    /// Notes that `before` is about to be replaced by an edit of `field` at `now_ms`.
    pub fn record(&mut self, before: Arc<T>, field: &str, now_ms: f64) {
        let joins = self
            .last_edit
            .as_ref()
            .is_some_and(|(last, at)| last == field && now_ms - at < JOIN_MS && self.future.is_empty());
        if !joins {
            self.past.push(before);
            if self.past.len() > DEPTH {
                self.past.remove(0);
            }
        }
        self.future.clear();
        self.last_edit = Some((field.to_owned(), now_ms));
    }

    /// The value before `current`, if there is one.
    pub fn undo(&mut self, current: Arc<T>) -> Option<Arc<T>> {
        let before = self.past.pop()?;
        self.future.push(current);
        self.last_edit = None;
        Some(before)
    }

    /// The value that was last taken back.
    pub fn redo(&mut self, current: Arc<T>) -> Option<Arc<T>> {
        let after = self.future.pop()?;
        self.past.push(current);
        self.last_edit = None;
        Some(after)
    }

    /// Whether there is anything to undo and to redo.
    pub fn can(&self) -> (bool, bool) {
        (!self.past.is_empty(), !self.future.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_and_redo_walk_the_same_values() {
        let mut history = History::default();
        history.record(Arc::new(1), "a", 0.0);
        history.record(Arc::new(2), "b", 1.0);
        assert_eq!(history.undo(Arc::new(3)).as_deref(), Some(&2));
        assert_eq!(history.undo(Arc::new(2)).as_deref(), Some(&1));
        assert_eq!(history.undo(Arc::new(1)), None);
        assert_eq!(history.redo(Arc::new(1)).as_deref(), Some(&2));
        assert_eq!(history.redo(Arc::new(2)).as_deref(), Some(&3));
        assert_eq!(history.can(), (true, false));
    }

    #[test]
    fn typing_in_one_field_is_one_step() {
        let mut history = History::default();
        history.record(Arc::new(1), "a", 0.0);
        history.record(Arc::new(2), "a", 500.0);
        history.record(Arc::new(3), "a", 1400.0);
        assert_eq!(history.undo(Arc::new(4)).as_deref(), Some(&1));
        history.record(Arc::new(1), "a", 1500.0);
        assert_eq!(
            history.can(),
            (true, false),
            "an edit after an undo is a step of its own and drops the redo"
        );
    }

    #[test]
    fn the_stack_is_bounded() {
        let mut history = History::default();
        for value in 0..1000 {
            history.record(Arc::new(value), "a", f64::from(value) * 10_000.0);
        }
        let mut steps = 0;
        let mut current = Arc::new(1000);
        while let Some(before) = history.undo(current.clone()) {
            current = before;
            steps += 1;
        }
        assert_eq!(steps, DEPTH);
    }
}
