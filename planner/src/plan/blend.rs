//! A blend of data: how many of so many sequences each source has.

use crate::wire::{DataFile, DataPart};

/// Sequences of which each source of a blend has its share.
pub const BLOCK: u64 = 1 << 16;

/// Places of a block by weight: rounded down, and what is left to those that lost most.
///
/// # Errors
/// The field within the blend, such as `parts[1].weight`, and what is wrong with it: there is no source, or a weight is no positive number
/// or so small that its source would never be read.
pub fn shares(parts: &[DataPart]) -> Result<Vec<u64>, (String, String)> {
    if parts.is_empty() {
        return Err(("parts".to_owned(), "is empty; give at least one source".to_owned()));
    }
    let field = |number: usize| format!("parts[{number}].weight");
    let weights = || parts.iter().map(|part| part.weight);
    if let Some(wrong) = weights().position(|weight| !(weight.is_finite() && weight > 0.0)) {
        return Err((field(wrong), format!("is {}; it must be above 0", parts[wrong].weight)));
    }
    // Of weights whose sum is no number any more smaller ones say the same.
    let sum: f64 = weights().sum();
    let unit = if sum.is_finite() { 1.0 } else { weights().fold(0.0, f64::max) };
    let sum = if sum.is_finite() { sum } else { weights().map(|weight| weight / unit).sum() };
    let exact: Vec<f64> = weights().map(|weight| weight / unit / sum * BLOCK as f64).collect();
    let mut shares: Vec<u64> = exact.iter().map(|share| *share as u64).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    let lost = |number: usize| exact[number] - exact[number].floor();
    crate::order::sort_by(&mut order, |&one, &other| lost(other).total_cmp(&lost(one)));
    let left = BLOCK.saturating_sub(shares.iter().sum()) as usize;
    order.iter().cycle().take(left).for_each(|&number| shares[number] += 1);
    match shares.iter().position(|&share| share == 0) {
        Some(none) => {
            let weight = parts[none].weight;
            let why = format!("is {weight}, less than one sequence in {BLOCK}; leave it out or raise it");
            Err((field(none), why))
        }
        None => Ok(shares),
    }
}

/// What is wrong with the first blend that can't be made among this data, which stands at `path`: the field, and why.
pub(crate) fn wrong_blend(data: &DataFile, path: &str) -> Option<(String, String)> {
    let DataFile::Blend { parts } = data else { return None };
    if let Err((field, why)) = shares(parts) {
        return Some((format!("{path}.{field}"), why));
    }
    let mut numbered = parts.iter().enumerate();
    numbered.find_map(|(number, part)| wrong_blend(&part.data, &format!("{path}.parts[{number}].data")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(weights: &[f64]) -> Result<Vec<u64>, (String, String)> {
        let part = |&weight: &f64| DataPart { weight, data: DataFile::Synthetic };
        shares(&weights.iter().map(part).collect::<Vec<_>>())
    }

    #[test]
    fn shares_fill_a_block() {
        assert_eq!(of(&[1.0, 1.0]), Ok(vec![BLOCK / 2, BLOCK / 2]));
        assert_eq!(of(&[f64::MAX, f64::MAX]), Ok(vec![BLOCK / 2, BLOCK / 2]));
        let three = of(&[0.7, 0.2, 0.1]).unwrap();
        assert_eq!(three.iter().sum::<u64>(), BLOCK);
        assert!((three[0] as f64 / BLOCK as f64 - 0.7).abs() < 1e-4);
    }

    #[test]
    fn what_would_never_be_read_is_named() {
        for (weights, field, why) in [
            (&[][..], "parts", "at least one"),
            (&[1.0, 0.0], "parts[1].weight", "above 0"),
            (&[-1.0], "parts[0].weight", "above 0"),
            (&[1.0, f64::NAN], "parts[1].weight", "above 0"),
            (&[f64::INFINITY], "parts[0].weight", "above 0"),
            (&[1.0, 1e-9], "parts[1].weight", "less than one sequence in 65536"),
            (&[f64::MAX, f64::MAX, 1.0], "parts[2].weight", "less than one sequence"),
        ] {
            let (found, said) = of(weights).unwrap_err();
            assert!(found == field && said.contains(why), "{weights:?}: {found} {said}");
        }
    }
}
