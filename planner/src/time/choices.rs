//! In how many places the experts lie that a token chooses.

use crate::units;

/// Which experts tokens choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choices {
    /// Any, one as likely as another.
    #[default]
    Any,
    /// Neighbours: each token those behind the ones of the token before.
    Neighbours,
}

impl Choices {
    /// Of `places` that hold as many of `experts` each, the mean number in which a token's `chosen` lie.
    pub(super) fn places(self, places: f64, experts: f64, chosen: f64) -> f64 {
        let places = places.max(1.0);
        match self {
            Choices::Any => places * (1.0 - libm::pow(1.0 - 1.0 / places, chosen)),
            Choices::Neighbours => {
                let held = experts / places;
                // First ones lie at multiples of this within a place, each as often as another.
                let apart = common_divisor(common_divisor(chosen, experts), held);
                ((chosen + held - apart) / held).clamp(1.0, places.min(chosen.max(1.0)))
            }
        }
    }
}

/// Of two whole numbers; 1 where one is none, as for a gate that chooses fewer than a whole expert.
fn common_divisor(one: f64, other: f64) -> f64 {
    if one.fract() != 0.0 || other.fract() != 0.0 {
        return 1.0;
    }
    (units::common_divisor(one as u64, other as u64) as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The mean over as many tokens as there are experts, counted.
    fn counted(places: u64, experts: u64, chosen: u64) -> f64 {
        let held = experts / places;
        let of_token = |token: u64| {
            let first = token * chosen;
            let mut found: Vec<u64> = (first..first + chosen).map(|one| one % experts / held).collect();
            found.sort_unstable();
            found.dedup();
            found.len() as f64
        };
        (0..experts).map(of_token).sum::<f64>() / experts as f64
    }

    proptest! {
        #[test]
        fn neighbours_lie_where_they_are_counted(places in 1u64..20, held in 1u64..20, chosen in 1u64..30) {
            let experts = places * held;
            let chosen = chosen.min(experts - experts / places + 1).max(1);
            let said = Choices::Neighbours.places(places as f64, experts as f64, chosen as f64);
            let found = counted(places, experts, chosen);
            prop_assert!((said / found - 1.0).abs() < 1e-9, "{places} {experts} {chosen}: {said} {found}");
        }
    }

    #[test]
    fn neighbours_lie_closer_than_any() {
        // Eight of 128 experts on eight ranks lie on one; 22 of 512 on 64 ranks of eight nodes.
        assert_eq!(Choices::Neighbours.places(8.0, 128.0, 8.0), 1.0);
        assert!((Choices::Any.places(8.0, 128.0, 8.0) - 5.25).abs() < 0.01);
        assert_eq!(Choices::Neighbours.places(64.0, 512.0, 22.0), 3.5);
        assert_eq!(Choices::Neighbours.places(8.0, 512.0, 22.0), 1.3125);
    }
}
