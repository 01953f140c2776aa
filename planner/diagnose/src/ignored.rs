//! Exceptions that Python reports and ignores: what a `__del__`, a callback or a function at exit raises. Python prints them like
//! any other, below a line that says so, and the process goes on and ends as it would have.
//!
//! Lines of ranks stand between each other, so what is awaited is kept for each writer.

use std::collections::BTreeMap;

use super::origin::Origin;

/// Beginnings of the line above such a traceback. CPython's errors.c (`in`, `on`, `while`, by release) and atexitmodule.c.
pub(super) const HEADS: [&str; 2] = ["Exception ignored ", "Error in atexit._run_exitfuncs"];
/// What stands between the tracebacks of exceptions of which one caused the other. CPython's traceback.c.
pub(super) const CHAINS: [&str; 2] =
    ["During handling of the above exception", "The above exception was the direct cause"];
/// Lines below its head in which an exception is looked for; ranks that all end at once mix as many.
const REACH: u64 = 2000;
/// Writers that are told apart.
const MOST_WRITERS: usize = 1 << 16;

type Writer = (Option<u32>, Option<u32>, Option<String>, Option<u64>);

/// What one writer's lines have left open.
#[derive(Debug, Default)]
struct Open {
    /// The last such head.
    line: u64,
    /// Exceptions that are ignored and have not come.
    ignored: u64,
    /// Exceptions that end something and have not come.
    own: u64,
    /// Whether the next traceback is that of an ignored one.
    awaits: bool,
    /// Whether the last exception was ignored.
    was_ignored: bool,
}

/// What all writers of a file have left open.
#[derive(Debug, Default)]
pub(super) struct Ignored(BTreeMap<Writer, Open>);

impl Ignored {
    fn open(&mut self, number: u64, origin: &Origin) -> Option<&mut Open> {
        let writer = (origin.rank, origin.local_rank, origin.node.clone(), origin.pid);
        self.0.get_mut(&writer).filter(|open| number.saturating_sub(open.line) <= REACH)
    }

    /// Looks at a line for what announces an exception that is ignored.
    pub(super) fn line(&mut self, number: u64, origin: &Origin, message: &str) {
        if HEADS.iter().any(|head| message.starts_with(head)) {
            let writer = (origin.rank, origin.local_rank, origin.node.clone(), origin.pid);
            if self.0.len() >= MOST_WRITERS && !self.0.contains_key(&writer) {
                return;
            }
            let open = self.0.entry(writer).or_default();
            if number.saturating_sub(open.line) > REACH {
                *open = Open::default();
            }
            (open.line, open.awaits) = (number, true);
            open.ignored += 1;
        } else if CHAINS.iter().any(|chain| message.starts_with(chain))
            && let Some(open) = self.open(number, origin).filter(|open| open.was_ignored)
        {
            (open.line, open.awaits) = (number, true);
            open.ignored += 1;
        }
    }

    /// Looks at the head of a traceback: whether its exception is ignored.
    pub(super) fn traceback(&mut self, number: u64, origin: &Origin) -> bool {
        let Some(open) = self.open(number, origin) else { return false };
        let is_ignored = std::mem::take(&mut open.awaits);
        open.own += u64::from(!is_ignored);
        is_ignored
    }

    /// Looks at an exception: whether it is ignored. Where writers have no marks and both kinds are open, none is.
    pub(super) fn exception(&mut self, number: u64, origin: &Origin) -> bool {
        let Some(open) = self.open(number, origin) else { return false };
        open.was_ignored = open.ignored > 0 && open.own == 0;
        if open.was_ignored {
            open.ignored -= 1;
            open.awaits = false;
        } else {
            open.own = open.own.saturating_sub(1);
        }
        open.was_ignored
    }
}
