//! What sbatch refuses before it reads a line.

use super::super::MAX_SCRIPT_BYTES;
use super::super::notes::Notes;

/// Looks at the bytes.
pub(crate) fn file(script: &[u8], notes: &mut Notes<'_>) {
    if script.len() > MAX_SCRIPT_BYTES {
        notes.note(
            "script-too-large",
            0,
            1,
            format!("the script has more than {MAX_SCRIPT_BYTES} bytes, and Slurm takes no more; it was not looked at"),
            "put data into files of its own".to_owned(),
        );
        return;
    }
    if script.iter().all(u8::is_ascii_whitespace) {
        notes.note(
            "empty-script",
            0,
            1,
            "there is nothing in this script".to_owned(),
            "write `#!/bin/bash` and commands".to_owned(),
        );
        return;
    }
    let source = notes.source();
    if !script.starts_with(b"#!") {
        let marked = source.starts_with('\u{feff}');
        let message = if marked {
            "an invisible byte order mark stands before #!, and sbatch refuses the script".to_owned()
        } else {
            "the first line does not begin with #!, and sbatch refuses the script".to_owned()
        };
        notes.note("no-shebang", 0, 1, message, "begin the script with `#!/bin/bash`".to_owned());
    }
    if let Some(at) = source.find('\r').filter(|_| source.contains("\r\n")) {
        notes.note(
            "dos-line-endings",
            at as u32,
            at as u32 + 1,
            "lines end in CR LF, as on Windows, and sbatch refuses the script".to_owned(),
            "run `sed -i 's/\\r$//'` on the file".to_owned(),
        );
    }
    if let Some(at) = source.find('\0') {
        notes.note(
            "nul-byte",
            at as u32,
            at as u32 + 1,
            "there is a NUL byte here, and Slurm refuses the script".to_owned(),
            "remove it; the file may not be a script at all".to_owned(),
        );
    }
    typographic(source, notes);
}

/// Characters that word processors and web pages put in place of plain ones.
fn typographic(source: &str, notes: &mut Notes<'_>) {
    let mut at = 0;
    for line in source.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let trimmed = line.trim_start();
        let comment = trimmed.starts_with('#') && !trimmed.starts_with("#SBATCH");
        if comment || line.is_ascii() {
            continue;
        }
        let mut blank_before = true;
        for (index, character) in line.char_indices() {
            let plain = match character {
                '\u{2018}' | '\u{2019}' => "'",
                '\u{201c}' | '\u{201d}' => "\"",
                '\u{2013}' | '\u{2014}' if blank_before => "--",
                '\u{00a0}' | '\u{2003}' | '\u{2009}' => " ",
                _ => {
                    blank_before = character == ' ' || character == '\t';
                    continue;
                }
            };
            // In the middle of text for people they are what they should be.
            let in_text = line.get(..index).is_some_and(|before| before.matches('"').count() % 2 == 1)
                && character != '\u{00a0}';
            if in_text {
                break;
            }
            let place = (start + index) as u32;
            notes.replace(
                "typographic-character",
                (place, place + character.len_utf8() as u32),
                format!(
                    "{} (U+{:04X}) is not the plain character that it looks like",
                    character,
                    u32::from(character)
                ),
                format!("write {plain:?}"),
                plain.to_owned(),
            );
            break;
        }
    }
}
