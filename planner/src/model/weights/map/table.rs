//! `names.txt`: what model types call their tensors.

use std::sync::OnceLock;

const TABLE: &str = include_str!("names.txt");

/// Rows of some model types, and what holds for all their tensors.
#[derive(Debug, Default)]
pub(super) struct Section {
    kinds: Vec<&'static str>,
    like: Option<&'static str>,
    base: Option<&'static str>,
    layers: Option<&'static str>,
    neighbours: bool,
    zero: bool,
    prediction: bool,
    rows: Vec<(&'static str, Vec<Way>)>,
}

/// The tensors that hold a parameter together.
pub(super) type Way = Vec<Source>;

/// A tensor that holds a parameter or some of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// Its name, with `~`, `^`, `{e}` and `{n}` in it.
    pub name: &'static str,
    /// Whether nothing is put behind that name.
    pub bare: bool,
    /// What it holds, in turn; everything where empty.
    pub takes: Vec<Take>,
    /// The order of its dims; that of the parameter where absent.
    pub order: Option<&'static str>,
}

/// Some rows of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    Query,
    /// Gates of the output, one for each query.
    QueryGate,
    Key,
    Value,
    /// The first half of a gated MLP's first matrix.
    Gate,
    Up,
}

/// What is written of a model type, the nearest section first.
#[derive(Debug)]
pub(super) struct Chain(Vec<&'static Section>);

impl Chain {
    /// The sections of a model type; none where no section names it.
    pub(super) fn of(kind: &str) -> Option<Chain> {
        let mut found = vec![section(kind)?];
        while let Some(like) = found.last().and_then(|section| section.like) {
            found.push(section(like)?);
        }
        found.push(section(":usual")?);
        Some(Chain(found))
    }

    /// The same with what a module of multi-token prediction has; none where none is kept.
    pub(super) fn of_prediction(&self) -> Option<Chain> {
        self.0.iter().any(|section| section.prediction).then_some(())?;
        let first = section(":prediction")?;
        Some(Chain(std::iter::once(first).chain(self.0.iter().copied()).collect()))
    }

    /// Ways in which a parameter can be kept, by its name without numbers and what that ends in.
    pub(super) fn ways(&self, stem: &str, end: &str) -> Option<&'static [Way]> {
        let whole = format!("{stem}.{end}");
        self.0.iter().find_map(|section| {
            let row = |name: &str| section.rows.iter().find(|(own, _)| *own == name);
            row(&whole).or_else(|| row(stem)).map(|(_, ways)| ways.as_slice())
        })
    }

    /// What all names begin with but those of the output layer.
    pub(super) fn base(&self) -> &'static str {
        self.0.iter().find_map(|section| section.base).unwrap_or_default()
    }

    /// What the list of layers is called.
    pub(super) fn layers(&self) -> &'static str {
        self.0.iter().find_map(|section| section.layers).unwrap_or_default()
    }

    /// Whether rotation is of rows next to each other.
    pub(super) fn neighbours(&self) -> bool {
        self.0.iter().any(|section| section.neighbours)
    }

    /// Whether norms are kept as their distance from 1.
    pub(super) fn zero(&self) -> bool {
        self.0.iter().any(|section| section.zero)
    }
}

fn section(kind: &str) -> Option<&'static Section> {
    static SECTIONS: OnceLock<Vec<Section>> = OnceLock::new();
    SECTIONS.get_or_init(read).iter().find(|section| section.kinds.contains(&kind))
}

/// Model types that have a section.
#[cfg(test)]
pub(super) fn kinds() -> Vec<&'static str> {
    read().iter().flat_map(|section| section.kinds.clone()).filter(|kind| !kind.contains(':')).collect()
}

fn read() -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        if let Some((kinds, words)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            let mut section = Section { kinds: kinds.split(' ').collect(), ..Section::default() };
            for word in words.split_whitespace() {
                match word.split_once('=') {
                    Some(("like", like)) => section.like = Some(like),
                    Some(("base", base)) => section.base = Some(base),
                    Some(("layers", layers)) => section.layers = Some(layers),
                    _ => {
                        section.neighbours |= word == "neighbours";
                        section.zero |= word == "zero";
                        section.prediction |= word == "prediction";
                    }
                }
            }
            sections.push(section);
        } else if let (Some(section), Some((name, ways))) = (sections.last_mut(), line.split_once(' ')) {
            section.rows.push((name, ways.split(" | ").map(way).collect()));
        }
    }
    sections
}

fn way(text: &'static str) -> Way {
    let mut sources = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        // Numbers in a name stand in braces, too, and orders have spaces in them.
        let end = rest.find([' ', '[', '!']).unwrap_or(rest.len());
        let braces = rest.match_indices('{').map(|(at, _)| at);
        let order_at = braces
            .into_iter()
            .find(|&at| !["{e}", "{n}"].iter().any(|number| rest[at..].starts_with(number)));
        let end = end.min(order_at.unwrap_or(rest.len()));
        let (name, after) = rest.split_at(end);
        let (bare, after) = after.strip_prefix('!').map_or((false, after), |after| (true, after));
        let (takes, after) = bracketed(after, '[', ']');
        let (order, after) = bracketed(after, '{', '}');
        let takes = takes.unwrap_or_default().split('+').filter_map(take).collect();
        sources.push(Source { name, bare, takes, order });
        rest = after.trim_start();
    }
    sources
}

fn bracketed(text: &'static str, open: char, close: char) -> (Option<&'static str>, &'static str) {
    match text.strip_prefix(open).and_then(|text| text.split_once(close)) {
        Some((inside, after)) => (Some(inside), after),
        None => (None, text),
    }
}

fn take(word: &str) -> Option<Take> {
    Some(match word {
        "query" => Take::Query,
        "query_gate" => Take::QueryGate,
        "key" => Take::Key,
        "value" => Take::Value,
        "gate" => Take::Gate,
        "up" => Take::Up,
        _ => return None,
    })
}
