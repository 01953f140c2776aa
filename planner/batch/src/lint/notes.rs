//! Collects findings: places become lines and columns, secrets become stars, and no rule floods the answer.

use std::collections::{HashMap, HashSet};

use super::Finding;
use super::table;

/// Findings of one rule that are shown.
const MOST_OF_A_RULE: usize = 25;
/// Characters of a line that are shown.
const LONGEST_LINE: usize = 240;

/// The collector.
pub(super) struct Notes<'a> {
    source: &'a str,
    starts: Vec<usize>,
    seen: HashSet<(&'static str, u32)>,
    of_rule: HashMap<&'static str, usize>,
    found: Vec<Finding>,
    secrets: Vec<(u32, u32)>,
    hidden: HashSet<u32>,
}

impl<'a> Notes<'a> {
    /// A collector with nothing in it.
    pub(super) fn new(source: &'a str) -> Self {
        let mut starts = vec![0];
        starts.extend(source.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1));
        Notes {
            source,
            starts,
            seen: HashSet::new(),
            of_rule: HashMap::new(),
            found: Vec::new(),
            secrets: Vec::new(),
            hidden: HashSet::new(),
        }
    }

    /// The script.
    pub(super) fn source(&self) -> &'a str {
        self.source
    }

    /// Hides a part of the script from everything that is said.
    pub(super) fn hide(&mut self, start: u32, end: u32) {
        if start < end {
            self.hidden.insert(start);
            self.secrets.push((start, end));
        }
    }

    /// Whether what begins at a place is hidden already.
    pub(super) fn is_hidden(&self, start: u32) -> bool {
        self.hidden.contains(&start)
    }

    /// Notes what is wrong and how to mend it.
    pub(super) fn note(&mut self, rule: &str, at: u32, end: u32, message: String, fix: String) {
        self.add(rule, (at, end), message, fix, None);
    }

    /// Notes what is wrong, and what should stand in its place.
    pub(super) fn replace(
        &mut self,
        rule: &str,
        place: (u32, u32),
        message: String,
        fix: String,
        instead: String,
    ) {
        self.add(rule, place, message, fix, Some((place, instead)));
    }

    /// Notes what is wrong at a place, and what should stand where more than that is: the place around it, and what instead.
    pub(super) fn replace_around(
        &mut self,
        rule: &str,
        place: (u32, u32),
        message: String,
        fix: String,
        instead: Option<((u32, u32), String)>,
    ) {
        self.add(rule, place, message, fix, instead);
    }

    fn add(
        &mut self,
        rule: &str,
        (at, end): (u32, u32),
        message: String,
        fix: String,
        instead: Option<((u32, u32), String)>,
    ) {
        let Some(entry) = table::find(rule) else { return };
        let of_rule = self.of_rule.entry(entry.id).or_default();
        if *of_rule >= MOST_OF_A_RULE || !self.seen.insert((entry.id, at)) {
            return;
        }
        *of_rule += 1;
        let at = self.floor(at as usize);
        let line = self.starts.partition_point(|start| *start <= at).saturating_sub(1);
        let start = self.starts.get(line).copied().unwrap_or(0);
        let stop = self.line_end(line);
        let end = self.floor(end as usize).clamp(at, stop.max(at));
        let characters =
            |from: usize, to: usize| self.source.get(from..to).map_or(0, |text| text.chars().count());
        let column = characters(start, at) + 1;
        let width = characters(at, end).max(1);
        let mut replacement = None;
        if let Some(((from, to), instead)) = instead
            && let (from, to) = (self.floor(from as usize), self.floor(to as usize).min(stop))
            && let (Some(before), Some(after)) = (self.source.get(start..from), self.source.get(to..stop))
        {
            replacement = Some(format!("{before}{instead}{after}"));
        }
        self.found.push(Finding {
            severity: entry.severity,
            rule: entry.id.into(),
            line: line as u64 + 1,
            column: column as u64,
            width: width as u64,
            message,
            why: entry.why.into(),
            fix,
            replacement,
            excerpt: String::new(),
        });
    }

    /// The nearest place before `at` where a character begins.
    fn floor(&self, at: usize) -> usize {
        let mut at = at.min(self.source.len());
        while !self.source.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    fn line_end(&self, line: usize) -> usize {
        let next = self.starts.get(line + 1).map_or(self.source.len(), |next| next - 1);
        let start = self.starts.get(line).copied().unwrap_or(0);
        let text = self.source.get(start..next).unwrap_or_default();
        start + text.trim_end_matches('\r').len()
    }

    /// The line of a place, from 1.
    pub(super) fn line_of(&self, at: u32) -> usize {
        self.starts.partition_point(|start| *start <= at as usize)
    }

    /// All findings, by place, with their lines; no secret is left in them.
    pub(super) fn into_findings(mut self) -> Vec<Finding> {
        self.secrets.sort_unstable();
        // Side by side and apart, so that one look tells whether a place is hidden.
        let mut apart: Vec<(u32, u32)> = Vec::new();
        for (start, end) in std::mem::take(&mut self.secrets) {
            match apart.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => apart.push((start, end)),
            }
        }
        self.secrets = apart;
        let mut values: Vec<String> = Vec::new();
        for (start, end) in &self.secrets {
            let value = self.source.get(*start as usize..*end as usize).unwrap_or_default();
            if value.len() >= 6 && values.len() < 100 && !values.iter().any(|known| known == value) {
                values.push(value.to_owned());
            }
        }
        // The longest first: one may be a part of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let hide = |text: &str| values.iter().fold(text.to_owned(), |text, value| text.replace(value, "***"));
        let mut found = std::mem::take(&mut self.found);
        for finding in &mut found {
            finding.excerpt = hide(&self.excerpt(finding.line as usize - 1));
            finding.message = hide(&finding.message);
            finding.fix = hide(&finding.fix);
            finding.replacement = finding.replacement.take().map(|text| hide(&text));
            // A short secret can't be told from other text: better no replacement than a secret.
            let line = finding.line as usize - 1;
            let start = self.starts.get(line).copied().unwrap_or(0);
            let end = self.line_end(line);
            let touched = self.secrets.partition_point(|(_, to)| *to as usize <= start);
            let touches = self.secrets.get(touched).is_some_and(|(from, _)| (*from as usize) < end);
            if touches || finding.replacement.as_ref().is_some_and(|text| text.len() > 2000) {
                finding.replacement = None;
            }
        }
        found.sort_by(|a, b| {
            (a.line, a.column, a.severity, &a.rule).cmp(&(b.line, b.column, b.severity, &b.rule))
        });
        found
    }

    /// A line as it may be shown: secrets as stars, one for each character, and nothing that disturbs a terminal.
    fn excerpt(&self, line: usize) -> String {
        let start = self.starts.get(line).copied().unwrap_or(0);
        let end = self.line_end(line);
        let text = self.source.get(start..end).unwrap_or_default();
        let mut out = String::new();
        for (index, character) in text.char_indices().take(LONGEST_LINE) {
            let at = (start + index) as u32;
            let next = self.secrets.partition_point(|(_, to)| *to <= at);
            let hidden = self.secrets.get(next).is_some_and(|(from, _)| *from <= at);
            out.push(match character {
                _ if hidden => '*',
                _ if character.is_control() => ' ',
                _ => character,
            });
        }
        out
    }
}
