//! What a site adds to a framework's command.

use planner::finding::Finding;

use super::writer::Writer;
use crate::shell;

/// Most further arguments.
const MOST: usize = 256;

impl Writer<'_> {
    /// The site's further arguments, quoted, an option and its values on a line; what can't be one is refused.
    pub fn further_words(&mut self) -> Vec<String> {
        let words = &self.site.extra_args;
        if words.len() > MOST {
            let why = format!("has more than {MOST} words; put them into a file of the framework's own");
            self.refuse("extra_args", &words.len().to_string(), &why);
            return Vec::new();
        }
        let mut lines: Vec<String> = Vec::new();
        for (word, gives_secret) in shell::with_secrets(words.iter().map(String::as_str)) {
            let quoted = if gives_secret {
                self.refuse_secret("extra_args");
                "'<SECRET>'".to_owned()
            } else {
                self.quoted("extra_args", word).unwrap_or_else(|| "'<ARGUMENT>'".to_owned())
            };
            let line = lines.last_mut().filter(|line| line.starts_with("--") && !word.starts_with("--"));
            match line {
                Some(line) => line.push_str(&format!(" {quoted}")),
                None => lines.push(quoted),
            }
        }
        lines
    }

    /// Says that nothing takes the site's further arguments.
    pub fn no_further(&mut self, why: &str) {
        if let Some(first) = self.site.extra_args.first() {
            let message = format!("extra_args of the site are left out: {why}");
            self.note(Finding::warning("site.extra_args", super::checks::clipped(first), message));
        }
    }
}
