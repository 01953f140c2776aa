//! What sbatch reads of a script: `#SBATCH` lines up to the first command.

use super::job::Job;
use super::notes::Notes;
use super::options;
use super::text::Text;
use super::walk::Field;

const MAGIC: &str = "#SBATCH";

/// Reads the directives as sbatch does, and notes what it would stumble over. In a here-document stand those of another
/// script, which this one writes.
pub(super) fn read(source: &str, documents: &[(usize, usize)], notes: &mut Notes<'_>) -> Job {
    let mut job = Job::default();
    let mut first_command = None;
    let mut late = 0;
    let mut at = 0;
    for line in source.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let text = line.trim_end_matches(['\n', '\r', ' ', '\t']);
        if let Some(rest) = text.strip_prefix(MAGIC) {
            if first_command.is_some() {
                let before = documents.partition_point(|(begins, _)| *begins <= start);
                let inside = before.checked_sub(1).and_then(|index| documents.get(index));
                late += 1;
                if late <= 20 && inside.is_none_or(|(_, ends)| start >= *ends) {
                    notes.note(
                        "directive-after-command",
                        place(start),
                        place(start + text.len()),
                        "sbatch does not read this directive: a command stands before it".to_owned(),
                        "move it above the first command".to_owned(),
                    );
                }
                continue;
            }
            directive(rest, start + MAGIC.len(), start, start + text.len(), &mut job, notes);
            continue;
        }
        let trimmed = text.trim_start();
        if first_command.is_none() {
            nearly(text, trimmed, start, notes);
        }
        if !trimmed.is_empty() && !trimmed.starts_with('#') && first_command.is_none() {
            first_command = Some(start);
        }
    }
    job.conclude();
    job
}

/// Lines that look like directives and are comments.
fn nearly(text: &str, trimmed: &str, start: usize, notes: &mut Notes<'_>) {
    let indented = trimmed.len() < text.len() && trimmed.starts_with(MAGIC);
    let lower = trimmed.get(..MAGIC.len()).is_some_and(|head| head.eq_ignore_ascii_case(MAGIC));
    if indented || (lower && !trimmed.starts_with(MAGIC)) {
        let rest = trimmed.get(MAGIC.len()..).unwrap_or_default();
        notes.replace(
            "directive-not-read",
            (place(start), place(start + text.len())),
            "to sbatch this line is a comment: a directive begins with #SBATCH, in capitals, at the start of a line".to_owned(),
            "write it so, or remove the line".to_owned(),
            format!("{MAGIC}{rest}"),
        );
    }
}

fn directive(rest: &str, at: usize, start: usize, end: usize, job: &mut Job, notes: &mut Notes<'_>) {
    let (words, hash) = words(rest, at);
    if let Some(hash) = hash {
        notes.note(
            "hash-in-directive",
            place(hash),
            place(end),
            "sbatch takes everything from this # on as a comment, in the middle of a value".to_owned(),
            "write \\# for a # of the value".to_owned(),
        );
    }
    if words.iter().any(|word| word.is("hetjob") || word.is("packjob")) {
        job.seams.push(job.given.len());
        return;
    }
    let (given, taken) = options::read(&words);
    if let Some(stray) = words.get(taken) {
        let text = stray.text.shown();
        let message = if text == "="
            || text.starts_with('=')
            || given.iter().any(|one| one.value.as_ref().is_some_and(|value| value.is("=")))
        {
            "sbatch refuses blanks around =".to_owned()
        } else {
            format!("sbatch refuses `{}`: it is not an option", short(&text))
        };
        notes.note(
            "directive-syntax",
            stray.at,
            stray.end,
            message,
            "write --name=value, without blanks".to_owned(),
        );
    } else if words.is_empty() {
        notes.note(
            "directive-syntax",
            place(start),
            place(end),
            "this directive says nothing".to_owned(),
            "remove it, or give it an option".to_owned(),
        );
    }
    job.given.extend(given);
}

/// Words of a directive as sbatch cuts them (slurm, sbatch/opt.c): blanks, quotes, backslashes, and # for comments.
/// Gives the place of a # that cuts a word short, too.
fn words(rest: &str, at: usize) -> (Vec<Field>, Option<usize>) {
    let mut words = Vec::new();
    let mut bytes = rest.bytes().enumerate().peekable();
    while let Some(&(index, byte)) = bytes.peek() {
        if byte.is_ascii_whitespace() {
            bytes.next();
            continue;
        }
        if byte == b'#' {
            return (words, None);
        }
        let mut word = Text::default();
        let mut quote = None;
        let mut quoted = false;
        let mut last = index;
        while let Some(&(index, byte)) = bytes.peek() {
            match (quote, byte) {
                (None, byte) if byte.is_ascii_whitespace() => break,
                (None, b'#') => {
                    let end = place(at + index);
                    words.push(Field { at: word.place(0), text: word, end, quoted, split: false });
                    return (words, Some(at + index));
                }
                (None, b'"' | b'\'') => {
                    quote = Some(byte);
                    quoted = true;
                }
                (Some(open), byte) if open == byte => quote = None,
                (_, b'\\') => {
                    bytes.next();
                    if let Some(&(index, byte)) = bytes.peek() {
                        word.push(byte, place(at + index));
                    }
                }
                (_, byte) => word.push(byte, place(at + index)),
            }
            last = index;
            bytes.next();
        }
        words.push(Field {
            at: place(at + index),
            text: word,
            end: place(at + last + 1),
            quoted,
            split: false,
        });
    }
    (words, None)
}

fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}
