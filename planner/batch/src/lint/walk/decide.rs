//! Which branches a shell would take: tests of texts and numbers that the script itself gives, and patterns of a `case`.
//!
//! What a script never assigns, and neither Slurm nor a login sets, is empty where somebody submits it as it stands.

use super::super::job::is_ambient;
use super::super::shell_names::is_of_shell;
use super::super::syntax::Operator;
use super::super::text::{HoleKind, Text};
use super::{Field, Walker};
use planner::shard::tp_plan::glob;

/// Bytes of a text that is compared with a pattern.
const LONGEST: usize = 4096;

/// Commands joined by `&&` and `||`: what the last of them gave, where that is known.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chain {
    last: Option<bool>,
    joined: Option<Operator>,
    negated: bool,
}

impl Chain {
    /// What it gave in the end.
    pub(super) fn outcome(&self) -> Option<bool> {
        self.last
    }

    /// Whether the next command is passed over.
    pub(super) fn passes_over(&self) -> bool {
        matches!(
            (self.joined, self.last),
            (Some(Operator::And), Some(false)) | (Some(Operator::Or), Some(true))
        )
    }

    /// `!`.
    pub(super) fn negate(&mut self) {
        self.negated = !self.negated;
    }

    /// A command that ran, and what it gave.
    pub(super) fn ran(&mut self, outcome: Option<bool>) {
        let outcome = outcome.filter(|_| self.joined != Some(Operator::Pipe));
        self.last = outcome.map(|outcome| outcome != self.negated);
        self.negated = false;
    }

    /// What stands behind it.
    pub(super) fn join(&mut self, operator: Operator) {
        self.negated = false;
        match operator {
            Operator::And | Operator::Or | Operator::Pipe => self.joined = Some(operator),
            Operator::Then | Operator::Background => self.joined = None,
        }
    }
}

/// What is known of the parts of an `if` or a `case` that is walked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Choice {
    /// The part that is walked now is not taken.
    pub(super) skips: bool,
    /// A part before this one, or this one, is taken for certain.
    pub(super) settled: bool,
    /// Only a run knows whether this part is taken.
    pub(super) open: bool,
}

impl Choice {
    /// A part begins whose condition gave this.
    pub(super) fn begin(&mut self, holds: Option<bool>) {
        self.skips = self.settled || holds == Some(false);
        self.open = !self.skips && holds.is_none();
        self.settled |= holds == Some(true);
    }

    /// A part without a condition of its own begins, or the condition of one.
    pub(super) fn go_on(&mut self) {
        self.skips = self.settled;
    }
}

/// Whether something sets a variable that no script assigns: a login, Slurm, a launcher, or the shell itself.
fn is_set_elsewhere(name: &str) -> bool {
    let of_launchers = ["OMPI_", "PMI", "MPI", "CUDA", "NCCL", "LC_", "CONDA", "VIRTUAL_ENV", "MASTER_"];
    is_ambient(name)
        || is_of_shell(name)
        || super::is_rank(name)
        || of_launchers.iter().any(|start| name.starts_with(start))
        || matches!(name, "LOGNAME" | "WORLD_SIZE" | "LOCAL_WORLD_SIZE")
        // $?, $$, $! and $-; $# is a number, and $1 is empty where no argument is given.
        || name.chars().all(|sign| sign.is_ascii_punctuation() && sign != '_')
}

impl Walker<'_> {
    /// A word's text as the test of a shell gets it.
    pub(super) fn plain(&mut self, text: &Text) -> Option<String> {
        let mut out = String::new();
        let mut start = 0;
        let bytes = text.bytes();
        for (at, hole) in text.indexed_holes() {
            if hole.kind != HoleKind::Variable
                || self.facts.unknown.contains(&*hole.name)
                || is_set_elsewhere(&hole.name)
                || (self.again && self.set_somewhere.contains(&*hole.name))
            {
                return None;
            }
            self.facts.unset.insert(hole.name.to_string());
            out.push_str(std::str::from_utf8(bytes.get(start..at)?).ok()?);
            start = at + 1;
        }
        out.push_str(std::str::from_utf8(bytes.get(start..)?).ok()?);
        Some(out)
    }

    /// What a command gives as a condition, where that is known. `source` is how the script writes it.
    pub(super) fn outcome(&mut self, fields: &[Field], source: &[u8]) -> Option<bool> {
        let name = fields.first()?.text.known()?.to_owned();
        let (words, is_double) = match (name.as_str(), fields.last()?.text.known()) {
            ("[[", Some("]]")) => (fields.get(1..fields.len() - 1)?, true),
            ("[", Some("]")) => (fields.get(1..fields.len() - 1)?, false),
            ("test", _) => (fields.get(1..)?, false),
            ("true" | ":", _) => return Some(true),
            ("false", _) => return Some(false),
            _ => return None,
        };
        let (has_and, has_or) = (contains(source, b"&&"), contains(source, b"||"));
        if contains(source, b"=~") || (has_and && has_or) || source.contains(&b'(') && is_double {
            return None;
        }
        let mut rest = words;
        let mut found = None;
        while !rest.is_empty() {
            let (holds, taken) = self.primary(rest, is_double)?;
            found = match (found, has_and, has_or) {
                (None, ..) => Some(holds),
                (Some(before), true, _) => Some(before && holds),
                (Some(before), _, true) => Some(before || holds),
                // `-a`, `-o`, and what else there is.
                (Some(_), false, false) => return None,
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        // Of no words at all a test fails.
        Some(found.unwrap_or(false))
    }

    /// One test at the beginning of these words, and how many of them it has.
    fn primary(&mut self, words: &[Field], is_double: bool) -> Option<(bool, usize)> {
        let first = words.first()?;
        if first.is("!") {
            let (holds, taken) = self.primary(words.get(1..)?, is_double)?;
            return Some((!holds, taken + 1));
        }
        if let (false, Some(sign @ ("-z" | "-n"))) = (first.quoted, first.text.known()) {
            let empty = match words.get(1) {
                Some(word) => self.plain(&word.text)?.is_empty(),
                None => true,
            };
            return Some((empty == (sign == "-z"), 2.min(words.len())));
        }
        let (Some(operator), Some(right)) = (words.get(1).and_then(|word| word.text.known()), words.get(2))
        else {
            // Files, and what else only a machine knows.
            let is_sign = !first.quoted && first.text.beginning().starts_with('-');
            return (words.len() == 1 && !is_sign)
                .then(|| Some((!self.plain(&first.text)?.is_empty(), 1)))?;
        };
        let operator = operator.to_owned();
        let left = self.plain(&first.text)?;
        let right_text = self.plain(&right.text)?;
        let is_pattern = is_double && !right.quoted && right_text.contains(['*', '?', '[']);
        let equal = || if is_pattern { matches(&right_text, &left) } else { Some(left == right_text) };
        let number = |text: &str| text.trim().parse::<i64>().ok();
        let ordered = || Some(number(&left)?.cmp(&number(&right_text)?));
        let holds = match operator.as_str() {
            "=" | "==" => equal()?,
            "!=" => !equal()?,
            "-eq" => ordered()?.is_eq(),
            "-ne" => ordered()?.is_ne(),
            "-lt" => ordered()?.is_lt(),
            "-le" => ordered()?.is_le(),
            "-gt" => ordered()?.is_gt(),
            "-ge" => ordered()?.is_ge(),
            _ => return None,
        };
        Some((holds, 3))
    }

    /// Whether a word is one of the patterns of a `case`.
    pub(super) fn is_case(&mut self, word: Option<&str>, patterns: &[Field]) -> Option<bool> {
        let mut open = word.is_none();
        for pattern in patterns {
            if pattern.is("*") {
                return Some(true);
            }
            let text = self.plain(&pattern.text);
            match word.zip(text).and_then(|(word, text)| {
                let is_plain = pattern.quoted || !text.contains(['*', '?', '[']);
                if is_plain { Some(word == text) } else { matches(&text, word) }
            }) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => open = true,
            }
        }
        (!open).then_some(false)
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Whether a text is of a pattern with `*` and `?`; nothing of one with `[`.
fn matches(pattern: &str, text: &str) -> Option<bool> {
    let is_known = !pattern.contains(['[', '\\']) && pattern.len() <= LONGEST && text.len() <= LONGEST;
    is_known.then(|| glob(pattern.as_bytes(), text.as_bytes()))
}
