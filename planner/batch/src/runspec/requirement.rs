//! Requirements as Python packaging writes them (PEP 508), as far as they choose between two torches.

use super::stage::normalized;

/// What `dependencies` ask of the package `name`: versions such as `>=2.4,<3`, or `@ URL`, empty where any will do. None
/// where it is not among them.
pub fn requirement_of<'a>(dependencies: &'a [String], name: &str) -> Option<&'a str> {
    dependencies.iter().find_map(|line| {
        let line = line.split(';').next().unwrap_or_default().trim();
        let end =
            line.find(|character: char| !character.is_ascii_alphanumeric() && !"-_.".contains(character));
        let (found, rest) = line.split_at(end.unwrap_or(line.len()));
        let rest = rest.trim();
        let rest = match rest.strip_prefix('[') {
            Some(extras) => extras.split_once(']').map_or("", |(_, rest)| rest.trim()),
            None => rest,
        };
        let bare = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(rest);
        (normalized(found) == name).then_some(bare)
    })
}

/// Whether `version` is one of `versions`, such as `>=2.4,<3`. What can't be read is taken to allow it: the installer
/// has the last word. Only the release's numbers are compared, and a build's tag where one is asked for.
pub fn allows(versions: &str, version: &str) -> bool {
    // A file of its own is no version that lies here.
    if versions.trim_start().starts_with('@') {
        return false;
    }
    versions.split(',').all(|clause| clause_allows(clause.trim(), version).unwrap_or(true))
}

fn clause_allows(clause: &str, version: &str) -> Option<bool> {
    let end = clause.find(|character: char| !"=<>!~".contains(character))?;
    let (operator, wanted) = clause.split_at(end);
    let wanted = wanted.trim();
    let have = numbers(version)?;
    if let Some(prefix) = wanted.strip_suffix(".*") {
        let prefix = numbers(prefix)?;
        let same = (0..prefix.len()).all(|at| have.get(at).copied().unwrap_or(0) == prefix[at]);
        return match operator {
            "==" => Some(same),
            "!=" => Some(!same),
            _ => None,
        };
    }
    let need = numbers(wanted)?;
    let order = compare(&have, &need);
    let tag = |text: &str| text.split_once('+').map(|(_, tag)| tag.to_owned());
    let same = order.is_eq() && (tag(wanted).is_none() || tag(wanted) == tag(version));
    match operator {
        "==" | "===" => Some(same),
        "!=" => Some(!same),
        ">=" => Some(order.is_ge()),
        "<=" => Some(order.is_le()),
        ">" => Some(order.is_gt()),
        "<" => Some(order.is_lt()),
        "~=" => {
            let kept = need.get(..need.len().checked_sub(1)?)?;
            let starts = (0..kept.len()).all(|at| have.get(at).copied().unwrap_or(0) == kept[at]);
            Some(order.is_ge() && starts)
        }
        _ => None,
    }
}

/// The numbers of a release; none where it does not begin with one.
fn numbers(version: &str) -> Option<Vec<u64>> {
    let release = version.split('+').next()?.trim_start_matches('v');
    let mut numbers = Vec::new();
    for part in release.split('.') {
        let digits = part.len() - part.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        if digits == 0 {
            break;
        }
        numbers.push(part[..digits].parse().ok()?);
        // What follows digits is a candidate or a build for developers.
        if digits < part.len() {
            break;
        }
    }
    (!numbers.is_empty()).then_some(numbers)
}

fn compare(have: &[u64], need: &[u64]) -> std::cmp::Ordering {
    let at = |numbers: &[u64], at: usize| numbers.get(at).copied().unwrap_or(0);
    let pairs = 0..have.len().max(need.len());
    pairs
        .map(|index| at(have, index).cmp(&at(need, index)))
        .find(|order| order.is_ne())
        .unwrap_or(std::cmp::Ordering::Equal)
}
