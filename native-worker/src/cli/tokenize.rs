//! `shardplan tokenize IN... --tokenizer FILE --to PREFIX`.

use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use planner::units::Bytes;
use serde_json::json;
use token_files::{Input, Summary, Tokenize, Vocabulary};

use crate::report::{self, Exit, Failure, notice, text};

/// Turn text into files of tokens: a Megatron data set, which the worker, Megatron-LM and Megatron Bridge train on
///
/// Writes PREFIX.bin and PREFIX.idx, a document after the other in the order of the text, which need no more memory the longer
/// it is. Both get their names when they are whole. Tokens have two bytes where the tokenizer knows fewer than 65,500, else four.
#[derive(Debug, clap::Args)]
pub struct TokenizeCommand {
    /// JSON lines, each a document; a file whose name ends in .txt is one document; `-` is JSON lines of standard input
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,
    /// The model's tokenizer.json, or the folder that it is in
    #[arg(long, value_name = "FILE")]
    tokenizer: PathBuf,
    /// Beginning of the files' names, such as data/web: run.data.path of a plan
    #[arg(long, value_name = "PREFIX")]
    to: PathBuf,
    /// The field of a JSON line that has the text
    #[arg(long, value_name = "NAME", default_value = "text")]
    field: String,
    /// A token behind each document, by its number or text, such as 2 or "<|endoftext|>"
    #[arg(long, value_name = "TOKEN")]
    append_eod: Option<String>,
    /// Add the tokens that the tokenizer itself puts around a text
    #[arg(long)]
    special_tokens: bool,
    /// Count lines that are no documents and go on, rather than end at the first
    #[arg(long)]
    skip_bad: bool,
    /// Threads that make tokens; one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl TokenizeCommand {
    /// Writes the files.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let failed = |error: anyhow::Error| Failure::environment(format!("{error:#}"));
        let of_file = |path: &Path, error| Failure::of_named(path, format!("{error:#}"));
        let vocabulary =
            Vocabulary::open(&self.tokenizer).map_err(|error| of_file(&self.tokenizer, error))?;
        let end = self.append_eod.as_deref().map(|named| vocabulary.token(named)).transpose();
        let end = end.map_err(|reason| Failure::usage(format!("--append-eod: {reason}")))?;
        let input = |path: &PathBuf| {
            if path == Path::new("-") { Input::Stdin } else { Input::File(path.clone()) }
        };
        let inputs: Vec<Input> = self.inputs.iter().map(input).collect();
        let wanted = Tokenize {
            inputs: &inputs,
            vocabulary: &vocabulary,
            to: &self.to,
            field: &self.field,
            end,
            special_tokens: self.special_tokens,
            skip_bad: self.skip_bad,
            threads: self.threads.map(usize::from),
        };
        let shown = Shown::new(self.sizes());
        let summary = token_files::tokenize(&wanted, |summary| shown.show(summary));
        shown.end();
        let is_gone = |path: &&PathBuf| *path != Path::new("-") && !path.exists();
        let summary = summary.map_err(|error| match self.inputs.iter().find(is_gone) {
            Some(path) => of_file(path, error),
            None => failed(error),
        })?;
        notice(&sentence(&summary));
        if json {
            report::print_json(&json!({
                "version": planner::wire::VERSION,
                "prefix": self.to.display().to_string(),
                "dtype": if vocabulary.is_narrow() { "uint16" } else { "int32" },
                "vocabulary": vocabulary.words(),
                "documents": summary.documents,
                "tokens": summary.tokens,
                "largest": summary.largest,
                "bytes": summary.bytes,
                "read": summary.read,
                "empty": summary.empty,
                "skipped": summary.skipped,
                "seconds": summary.seconds,
                "tokens_per_second": summary.speed(),
            }))?;
        } else {
            report::print(&format!("{}\n", self.to.display()))?;
        }
        Ok(Exit::Yes)
    }

    /// Bytes of all inputs, where that is known.
    fn sizes(&self) -> Option<u64> {
        let size =
            |path: &PathBuf| path.metadata().ok().filter(|about| about.is_file()).map(|about| about.len());
        self.inputs.iter().map(size).sum()
    }
}

fn sentence(summary: &Summary) -> String {
    let more = |count: u64, what: &str| match count {
        0 => String::new(),
        count => format!(", {} {what}", text::thousands(count)),
    };
    format!(
        "{} documents, {} tokens (the largest is {}), {} in {:.1} s: {} tokens/s{}{}",
        text::thousands(summary.documents),
        text::thousands(summary.tokens),
        summary.largest,
        Bytes(summary.bytes).in_words_by_1000(),
        summary.seconds,
        text::thousands(summary.speed() as u64),
        more(summary.empty, "empty ones left out"),
        more(summary.skipped, "lines skipped"),
    )
}

/// How far it is, for a person who looks on; nothing where nobody does.
struct Shown {
    bar: ProgressBar,
}

impl Shown {
    fn new(all: Option<u64>) -> Shown {
        let target = ProgressDrawTarget::stderr();
        let (bar, form) = match all.filter(|all| *all > 0) {
            Some(all) => (
                ProgressBar::with_draw_target(Some(all), target),
                "{msg}, {percent} %, {eta} left {wide_bar}",
            ),
            None => (ProgressBar::with_draw_target(None, target), "{msg}"),
        };
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style);
        }
        bar.set_message("reading");
        Shown { bar }
    }

    fn show(&self, summary: &Summary) {
        self.bar.set_position(summary.read);
        self.bar.set_message(format!(
            "{} documents, {} tokens, {} tokens/s",
            text::thousands(summary.documents),
            text::thousands(summary.tokens),
            text::thousands(summary.speed() as u64),
        ));
    }

    /// Takes it away: what is said next says how it went.
    fn end(&self) {
        self.bar.finish_and_clear();
    }
}
