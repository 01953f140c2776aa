//! Text to files of tokens: documents of JSON lines and plain text, by a Hugging Face tokenizer, as Megatron's indexed data sets.
//!
//! One thread reads, each core turns text into tokens, and one thread writes; between them are short queues, so memory does not
//! grow with the text. Documents stay in their order: texts go to the cores in turn and are taken back in turn.

#![warn(unreachable_pub)]
#![warn(missing_docs)]

mod documents;
mod megatron;
#[cfg(test)]
mod tests;
mod vocabulary;
mod workers;

pub use documents::Input;
pub use vocabulary::Vocabulary;

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use documents::{Batch, Documents};
use megatron::Writer;
use workers::{Done, work};

/// Batches that wait for a core, and for the writer.
const QUEUE: usize = 2;
/// How often progress is told.
const TOLD: Duration = Duration::from_millis(500);

/// What is to be done.
#[derive(Debug)]
pub struct Tokenize<'a> {
    /// The text, in this order.
    pub inputs: &'a [Input],
    /// What makes tokens of it.
    pub vocabulary: &'a Vocabulary,
    /// The common beginning of the names of both files, none of which may be there.
    pub to: &'a Path,
    /// The field of a JSON line that has the text.
    pub field: &'a str,
    /// A token behind each document.
    pub end: Option<u32>,
    /// Whether the tokens are added that the tokenizer puts around a text.
    pub special_tokens: bool,
    /// Whether what can't be read as a document is counted and left out, rather than ending all.
    pub skip_bad: bool,
    /// Threads that make tokens; none for as many as there are cores.
    pub threads: Option<usize>,
}

/// What was written so far, or in all.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Summary {
    /// Documents.
    pub documents: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Bytes of the files that were read.
    pub read: u64,
    /// Bytes of the file of tokens.
    pub bytes: u64,
    /// The largest token.
    pub largest: u32,
    /// Documents without a token, which are left out.
    pub empty: u64,
    /// What could not be read as a document and was left out.
    pub skipped: u64,
    /// How long it took.
    pub seconds: f64,
}

impl Summary {
    /// Tokens per second.
    pub fn speed(&self) -> f64 {
        if self.seconds > 0.0 { self.tokens as f64 / self.seconds } else { 0.0 }
    }
}

/// Writes `to.bin` and `to.idx`; `progress` is told from time to time how far it is. Files get their names when they are whole.
///
/// # Errors
/// When a file can't be read or written, is there already, something is no document (by file and line), or there is none.
pub fn tokenize(wanted: &Tokenize<'_>, mut progress: impl FnMut(&Summary)) -> anyhow::Result<Summary> {
    let began = Instant::now();
    let mut writer = Writer::new(wanted.to, wanted.vocabulary.is_narrow())?;
    let documents = Documents::open(wanted.inputs)?;
    let threads = wanted.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    let threads = threads.unwrap_or(1).max(1);
    let mut summary = Summary::default();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let (mut to_cores, mut from_cores, mut cores) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..threads {
            let (to_core, batches) = sync_channel::<Batch>(QUEUE);
            let (done, from_core) = sync_channel::<Done>(QUEUE);
            let thread = std::thread::Builder::new().name("tokens".to_owned());
            let spawned = thread.spawn_scoped(scope, move || {
                for batch in batches {
                    if done.send(work(wanted, batch)).is_err() {
                        break;
                    }
                }
            });
            cores.push(spawned.context("starting a thread")?);
            to_cores.push(to_core);
            from_cores.push(from_core);
        }
        let reader = std::thread::Builder::new().name("text".to_owned());
        let reader = reader.spawn_scoped(scope, move || {
            for (batch, to_core) in documents.zip(to_cores.iter().cycle()) {
                // Nobody listens any more: the writer knows why.
                let Ok(()) = to_core.send(batch?) else { break };
            }
            anyhow::Ok(())
        });
        let reader = reader.context("starting a thread")?;
        let written = write(&from_cores, &mut writer, wanted, &mut summary, &mut |summary| {
            summary.seconds = began.elapsed().as_secs_f64();
            progress(summary);
        });
        drop(from_cores);
        let read = reader.join();
        // Each is asked: a thread that panicked and that nobody asked ends the process.
        let broken = cores.into_iter().map(|core| core.join()).filter(Result::is_err).count();
        written?;
        match read {
            Ok(read) if broken == 0 => read,
            // Documents would be missing: what a core does not give is taken for the end.
            _ => bail!("a bug ended a thread, so nothing is written"),
        }
    })?;
    ensure!(summary.documents > 0, "there is no document with a token in the text, so nothing is written");
    summary.bytes = writer.finish()?;
    summary.seconds = began.elapsed().as_secs_f64();
    progress(&summary);
    Ok(summary)
}

/// Writes what comes from the cores, one batch of each in turn.
fn write(
    from_cores: &[Receiver<Done>],
    writer: &mut Writer,
    wanted: &Tokenize<'_>,
    summary: &mut Summary,
    progress: &mut impl FnMut(&mut Summary),
) -> anyhow::Result<()> {
    let mut told = Instant::now();
    for from_core in from_cores.iter().cycle() {
        // The first that has nothing more is behind the last batch.
        let Ok(done) = from_core.recv() else { break };
        for document in done.documents {
            match document {
                Err(_) if wanted.skip_bad => summary.skipped += 1,
                Err(reason) => bail!("{reason}"),
                Ok(tokens) if tokens.is_empty() => summary.empty += 1,
                Ok(tokens) => {
                    writer.document(&tokens)?;
                    summary.documents += 1;
                    summary.tokens += tokens.len() as u64;
                    summary.largest = tokens.iter().copied().fold(summary.largest, u32::max);
                }
            }
        }
        summary.read += done.read;
        if told.elapsed() >= TOLD {
            progress(summary);
            told = Instant::now();
        }
    }
    Ok(())
}
