//! To which degrees a model's tensor parallelism can be reduced.

use super::Refusal;
use crate::model::{Architecture, Attention, MixerRef};

/// Something of the model that tensor parallelism cuts, in whole pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharded {
    /// What it is, for people.
    pub what: &'static str,
    /// How many pieces there are.
    pub count: u64,
}

/// What a vocabulary is called, which is padded to what a plan says.
pub(crate) const VOCABULARY: &str = "a padded vocabulary";

/// All that tensor parallelism cuts of a model, with its vocabulary as padded for the base degree; `None` for a model with
/// something that nonuniform tensor parallelism does not know: recurrences, and routed experts but where `experts` says that
/// tensor parallelism does not cut them.
pub(crate) fn degree_limits(
    model: &Architecture,
    padded_vocabulary: u64,
    experts: bool,
) -> Option<Vec<Sharded>> {
    let mut found = Vec::new();
    if let Some(moe) = &model.moe {
        if !experts {
            return None;
        }
        if moe.shared_ffn_hidden_size > 0 {
            found.push(Sharded { what: "a shared expert's width", count: moe.shared_ffn_hidden_size });
        }
    }
    for mixer in model.mixers() {
        match mixer {
            MixerRef::Attention(&Attention::Gqa { heads, kv_heads, .. }) => {
                found.push(Sharded { what: "attention heads", count: heads });
                found.push(Sharded { what: "key-value heads", count: kv_heads });
            }
            MixerRef::Attention(&Attention::Mla { heads, .. }) => {
                found.push(Sharded { what: "attention heads", count: heads });
            }
            _ => return None,
        }
    }
    for width in model.dense_widths() {
        found.push(Sharded { what: "a feed-forward width", count: width });
    }
    found.push(Sharded { what: VOCABULARY, count: padded_vocabulary });
    found.dedup();
    Some(found)
}

/// Degrees below `base` into which everything can be cut, greatest first; none when not even `base` itself cuts it.
pub(crate) fn allowed_degrees(base: u64, limits: &[Sharded]) -> Vec<u64> {
    let cuts = |degree: u64| limits.iter().all(|limit| limit.count.is_multiple_of(degree));
    if base == 0 || !cuts(base) {
        return Vec::new();
    }
    (1..base).rev().filter(|&degree| cuts(degree)).collect()
}

/// Nothing when `reduced` is an allowed degree; else what stands against it.
///
/// # Errors
/// With the first thing that can't be cut, and the degrees that can be.
pub(crate) fn check_degree(base: u64, reduced: u64, limits: &[Sharded]) -> Result<(), Refusal> {
    for degree in [base, reduced] {
        let refused = limits.iter().find(|limit| degree == 0 || !limit.count.is_multiple_of(degree));
        if let Some(&Sharded { what, count }) = refused {
            return Err(Refusal::NotDivisible {
                what,
                count,
                degree,
                allowed: allowed_degrees(base, limits),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: u64, counts: &[u64], expected: &[u64]) {
        let limits: Vec<Sharded> =
            counts.iter().map(|&count| Sharded { what: "attention heads", count }).collect();
        assert_eq!(allowed_degrees(base, &limits), expected, "{counts:?} on {base}");
        for degree in 1..base {
            assert_eq!(check_degree(base, degree, &limits).is_ok(), expected.contains(&degree), "{degree}");
        }
    }

    #[test]
    fn degrees_divide_everything() {
        check(8, &[32], &[4, 2, 1]);
        check(8, &[24], &[6, 4, 3, 2, 1]);
        check(8, &[48], &[6, 4, 3, 2, 1]);
        check(8, &[96], &[6, 4, 3, 2, 1]);
        check(8, &[56], &[7, 4, 2, 1]);
        check(8, &[40], &[5, 4, 2, 1]);
        check(8, &[64], &[4, 2, 1]);
        check(8, &[24, 8], &[4, 2, 1]);
        check(8, &[12], &[]);
    }

    #[test]
    fn a_refusal_names_what_can_not_be_cut() {
        let limits = [Sharded { what: "attention heads", count: 32 }];
        let said = check_degree(8, 7, &limits).unwrap_err().to_string();
        assert_eq!(
            said,
            "attention heads of 32 can't be cut into 7 parts; reduced degrees that can be: 4, 2 and 1"
        );
    }
}
