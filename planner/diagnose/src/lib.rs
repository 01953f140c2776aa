//! Why a run ended, from its logs.
//!
//! Logs are given piece by piece, of any size and any bytes; what is held of them is bounded, and the answer does not
//! depend on how they are cut. `reader` finds the lines worth reading by one automaton over all patterns, `origin` and
//! `stamp` say who wrote them and when, `causes` has what they mean, `book` keeps what was seen, by `attempt` of the job, and `verdict` says
//! what ended the run, who began, and how sure that is.

#![warn(unreachable_pub)]

mod against_plan;
mod answer;
mod attempt;
mod book;
mod causes;
mod exception;
mod exits;
mod ignored;
mod missing;
mod oom;
mod origin;
mod pattern;
mod places;
mod progress;
mod reader;
mod redact;
mod restart;
#[cfg(test)]
mod run_tests;
mod scan;
mod stamp;
mod standing;
mod taken;
#[cfg(test)]
mod tests;
mod verdict;
mod xid;

pub use against_plan::AgainstPlan;
pub use answer::{Answer, Earlier, Evidence, LookedAt, LookedAtFile, Part, Sure, Verdict};
pub use book::last_word;
pub use exits::{ProcessEnd, first_end};
pub use oom::{OtherProcess, OutOfMemory};
pub use origin::Origin;
pub use standing::Standing;

use book::Book;
use reader::Reader;

use planner::plan::Plan;

/// A diagnosis that is being made: files begun with [`Diagnosis::file`], bytes given with [`Diagnosis::feed`], and the
/// answer at the end.
pub struct Diagnosis {
    plan: Option<Plan>,
    book: Book,
    reader: Option<Reader>,
    standing: Option<Standing>,
}

impl Diagnosis {
    /// Nothing was looked at yet. With a plan, out-of-memory errors are set against its prediction.
    pub fn new(plan: Option<&Plan>) -> Diagnosis {
        Diagnosis { plan: plan.cloned(), book: Book::default(), reader: None, standing: None }
    }

    /// Begins a file; its name stands in the answer, and may tell the rank.
    pub fn file(&mut self, name: &str) {
        self.close();
        self.book.open(name);
        self.reader = Some(Reader::new());
    }

    /// Says how the run stands whose logs these are, where its folder tells.
    pub fn stands(&mut self, standing: Standing) {
        self.standing = Some(standing);
    }

    /// Says how many bytes the file has on disk, where what is fed is made of its records.
    pub fn size(&mut self, bytes: u64) {
        self.book.size(bytes);
    }

    /// Takes the next bytes of the file, cut anywhere. Without a file before, one named `-` begins.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.reader.is_none() {
            self.file("-");
        }
        self.book.begin(bytes);
        if let Some(reader) = &mut self.reader {
            reader.feed(bytes, &mut self.book);
        }
    }

    /// What all of it says.
    pub fn finish(mut self) -> Answer {
        self.close();
        verdict::answer(self.book, self.plan.as_ref(), self.standing)
    }

    fn close(&mut self) {
        if let Some(reader) = self.reader.take() {
            let size = reader.finish(&mut self.book);
            self.book.close(size);
        }
    }
}

/// The literal texts that lines are found by, to compare the speed of finding them.
pub fn searched_texts() -> Vec<&'static str> {
    scan::SCANNER.texts().to_vec()
}
