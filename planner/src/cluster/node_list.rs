//! Slurm's lists of nodes, such as `rack[1-2]n[01-04],login1`, as `scontrol show hostnames` reads them.
//!
//! Brackets hold numbers and ascending ranges; a range counts with the width of its first number. A name may have
//! several brackets, of which the last turns fastest. Beyond Slurm 22.05, text may follow the last bracket.

/// The most names that a list may stand for: Slurm's own limit for one range (`MAX_RANGE` in its hostlist.c).
pub const MAX_NODES: usize = 65_536;

/// The longest name of a host in bytes, as POSIX has it.
const MAX_NAME_BYTES: usize = 255;
/// The digits of the largest number in a bracket: fewer than those of the largest u64.
const MAX_DIGITS: usize = 18;

/// Why a text is not a list of nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeListError {
    /// There is no name in it.
    #[error("the node list has no name in it")]
    Empty,
    /// A bracket is opened and not closed, or the other way round, or holds another.
    #[error("the brackets of {0:?} don't match")]
    Brackets(String),
    /// What stands in a bracket is neither a number nor an ascending range of such.
    #[error("{0:?} is no number and no ascending range such as 01-04")]
    Range(String),
    /// A name is longer than any host's.
    #[error("a name of the node list is longer than {MAX_NAME_BYTES} bytes")]
    TooLong,
    /// It stands for too many names.
    #[error("the node list stands for more than {MAX_NODES} nodes")]
    TooMany,
}

/// The nodes of a list, in its order; a node that is named twice comes twice.
///
/// # Errors
/// When it is malformed, empty, or stands for more than [`MAX_NODES`].
pub fn node_names(list: &str) -> Result<Vec<String>, NodeListError> {
    let mut all = Vec::new();
    for name in split(list)? {
        let pieces = pieces(name)?;
        let count = pieces.iter().try_fold(1usize, |count, piece| count.checked_mul(piece.len()));
        if count.is_none_or(|count| count > MAX_NODES - all.len()) {
            return Err(NodeListError::TooMany);
        }
        let mut names = vec![String::new()];
        for piece in &pieces {
            names = names
                .iter()
                .flat_map(|start| piece.texts().map(move |text| format!("{start}{text}")))
                .collect();
        }
        all.append(&mut names);
    }
    if all.is_empty() { Err(NodeListError::Empty) } else { Ok(all) }
}

/// The first node of a list: where rank 0 runs when tasks are spread in blocks. Only its name is looked at.
///
/// # Errors
/// When there is none, or its name is malformed.
pub fn first_node(list: &str) -> Result<String, NodeListError> {
    let name = split(list)?.into_iter().next().ok_or(NodeListError::Empty)?;
    Ok(pieces(name)?.iter().filter_map(|piece| piece.texts().next()).collect())
}

/// The names of a list, brackets and all: cut at commas outside brackets, empty ones left out.
fn split(list: &str) -> Result<Vec<&str>, NodeListError> {
    let (mut names, mut start, mut inside) = (Vec::new(), 0, false);
    let list = list.trim();
    for (at, character) in list.char_indices() {
        match character {
            '[' if inside => return Err(NodeListError::Brackets(list.to_owned())),
            ']' if !inside => return Err(NodeListError::Brackets(list.to_owned())),
            '[' => inside = true,
            ']' => inside = false,
            ',' if !inside => {
                names.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(NodeListError::Brackets(list.to_owned()));
    }
    names.push(&list[start..]);
    names.retain(|name| !name.is_empty());
    Ok(names)
}

/// A part of a name.
enum Piece<'a> {
    Text(&'a str),
    Ranges(Vec<Range>),
}

struct Range {
    first: u64,
    last: u64,
    width: usize,
}

impl Piece<'_> {
    fn len(&self) -> usize {
        match self {
            Piece::Text(_) => 1,
            // No range is longer than MAX_NODES, and no list has so many that their sum overflows.
            Piece::Ranges(ranges) => ranges.iter().map(Range::len).fold(0, usize::saturating_add),
        }
    }

    fn max_bytes(&self) -> usize {
        match self {
            Piece::Text(text) => text.len(),
            Piece::Ranges(ranges) => {
                ranges.iter().map(|range| range.last.to_string().len().max(range.width)).max().unwrap_or(0)
            }
        }
    }

    fn texts(&self) -> Box<dyn Iterator<Item = String> + '_> {
        match self {
            Piece::Text(text) => Box::new(std::iter::once((*text).to_owned())),
            Piece::Ranges(ranges) => Box::new(ranges.iter().flat_map(|range| {
                (range.first..=range.last).map(|number| format!("{number:0width$}", width = range.width))
            })),
        }
    }
}

impl Range {
    fn len(&self) -> usize {
        usize::try_from(self.last - self.first).map_or(usize::MAX, |steps| steps.saturating_add(1))
    }
}

/// The parts of one name, whose brackets match.
fn pieces(name: &str) -> Result<Vec<Piece<'_>>, NodeListError> {
    let mut pieces = Vec::new();
    let mut rest = name;
    while let Some((text, after)) = rest.split_once('[') {
        let (inside, after) =
            after.split_once(']').ok_or_else(|| NodeListError::Brackets(name.to_owned()))?;
        pieces.push(Piece::Text(text));
        pieces.push(Piece::Ranges(inside.split(',').map(range).collect::<Result<_, _>>()?));
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    let longest = pieces.iter().map(Piece::max_bytes).fold(0, usize::saturating_add);
    if longest > MAX_NAME_BYTES { Err(NodeListError::TooLong) } else { Ok(pieces) }
}

fn range(text: &str) -> Result<Range, NodeListError> {
    let wrong = || NodeListError::Range(text.to_owned());
    let number = |digits: &str| {
        let good =
            (1..=MAX_DIGITS).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        if good { digits.parse::<u64>().map_err(|_| wrong()) } else { Err(wrong()) }
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = Range { first: number(first)?, last: number(last)?, width: first.len() };
    if range.last < range.first {
        return Err(wrong());
    }
    if range.len() > MAX_NODES {
        return Err(NodeListError::TooMany);
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(list: &str, expected: &str) {
        let names = node_names(list).map(|names| names.join(" "));
        assert_eq!(names.as_deref(), Ok(expected), "{list}");
        let first = expected.split(' ').next().unwrap_or_default();
        assert_eq!(first_node(list).as_deref(), Ok(first), "{list}");
    }

    #[test]
    fn lists_as_slurm_reads_them() {
        check("node[001-004]", "node001 node002 node003 node004");
        check("node[001,003,005]", "node001 node003 node005");
        check("nodeA,nodeB[001,003]", "nodeA nodeB001 nodeB003");
        check("compute-gpu-[10-12]", "compute-gpu-10 compute-gpu-11 compute-gpu-12");
        check("a[1-3,7],b", "a1 a2 a3 a7 b");
        check("rack[1-2]n[01-02]", "rack1n01 rack1n02 rack2n01 rack2n02");
        check("a[1-2][3-4]", "a13 a14 a23 a24");
        check("a[001-3],a[1-003],a[09-11]", "a001 a002 a003 a1 a2 a3 a09 a10 a11");
        check(" ,a,,b, ", "a b");
        check("a,a", "a a");
        check("[1-3]", "1 2 3");
        check("node[07,09]-ib,other", "node07-ib node09-ib other");
        check("single", "single");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |list: &str, expected: &str| {
            let said = node_names(list).unwrap_err().to_string();
            assert!(said.contains(expected), "{list}: {said}");
        };
        check("", "no name");
        check(" , ", "no name");
        for list in ["a[", "a]", "a[1-2", "a[[1-2]]", "a[1-2]]"] {
            check(list, "don't match");
        }
        for list in
            ["a[3-1]", "a[]", "a[1,]", "a[,1]", "a[-1]", "a[1-]", "a[x-y]", "a[1_2]", "a[0x0]", "a[1 - 2]"]
        {
            check(list, "ascending range");
        }
        check(&format!("a[{}]", "9".repeat(30)), "ascending range");
        check(&"a".repeat(256), "longer than 255");
        check(&"a[1]".repeat(128), "longer than 255");
        for list in ["a[1-70000]", "a[1-60000],b[1-60000]", "a[1-999][1-999]", "a[0-999999999999999999]"] {
            check(list, "more than 65536");
        }
        assert_eq!(
            first_node("a[1-999][1-999]").as_deref(),
            Ok("a11"),
            "the first name can be told all the same"
        );
    }

    proptest! {
        #[test]
        fn any_text_gives_names_or_an_error(list in "[a-c0-3,\\[\\]-]{0,24}|\\PC{0,40}") {
            let first = first_node(&list);
            if let Ok(names) = node_names(&list) {
                prop_assert!(names.len() <= MAX_NODES);
                prop_assert_eq!(first.as_ref(), Ok(&names[0]));
            }
        }

        #[test]
        fn a_name_in_brackets_is_the_names_written_out(
            prefix in "[a-z][a-z-]{0,6}",
            ranges in prop::collection::vec((0u64..200, 0u64..6, 0usize..4), 1..5),
        ) {
            let mut inside = Vec::new();
            let mut expected = Vec::new();
            for (first, more, zeros) in ranges {
                let first_text = format!("{}{first}", "0".repeat(zeros));
                let width = first_text.len();
                inside.push(if more == 0 { first_text } else { format!("{first_text}-{}", first + more) });
                expected.extend((first..=first + more).map(|number| format!("{prefix}{number:0width$}")));
            }
            prop_assert_eq!(node_names(&format!("{prefix}[{}]", inside.join(","))), Ok(expected));
        }
    }
}
