//! GPUs of reduced replicas that are given more power, so that they do the work of the slots that are gone.
//!
//! A node that lost GPUs has their power to spare, and a GPU takes more than its design power for a while. What that brings was
//! measured and published with nonuniform tensor parallelism (arXiv 2504.06095): at 1.1 and 1.2 times the power a watt does 2.8 % and
//! 6.5 % less, and nothing beyond 1.3 times was tried.

/// The most power that is given, over a GPU's design power.
pub const MOST_POWER: f64 = 1.3;

/// What a watt does less, of power above the design power and of its square: through both published points.
const LOST_PER_WATT: [f64; 2] = [0.235, 0.45];

/// How a reduced replica is boosted.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Boost {
    /// The power of its GPUs over their design power.
    pub power: f64,
    /// How much faster they run with it.
    pub speed: f64,
}

impl Boost {
    /// None.
    pub const NONE: Boost = Boost { power: 1.0, speed: 1.0 };

    /// By this much power, as far as that was measured.
    pub fn of_power(power: f64) -> Boost {
        let power = if power.is_nan() { 1.0 } else { power.clamp(1.0, MOST_POWER) };
        Boost { power, speed: speed(power) }
    }

    /// The least of this boost that makes up for `base - reduced` slots; all of it where that is not enough.
    pub(crate) fn for_slots(self, base: u64, reduced: u64) -> Boost {
        let wanted = base as f64 / reduced.max(1) as f64;
        if wanted >= self.speed {
            return self;
        }
        let (mut low, mut high) = (1.0, self.power);
        // Far below what can be told apart, and the same on every platform.
        for _ in 0..48 {
            let middle = 0.5 * (low + high);
            if speed(middle) < wanted { low = middle } else { high = middle }
        }
        Boost { power: high, speed: wanted }
    }

    /// Share of a healthy replica's work that a reduced one does.
    pub fn share(self, base: u64, reduced: u64) -> f64 {
        (reduced as f64 / base.max(1) as f64 * self.speed).min(1.0)
    }

    /// Energy of a token over that of the healthy cluster's, where `reduced_replicas` of those that train run with `reduced` of `base`
    /// slots and this boost, and `whole` others. GPUs that stand idle are not counted.
    pub fn energy(self, (base, reduced): (u64, u64), reduced_replicas: u64, whole: u64) -> f64 {
        let (some, whole) = (reduced_replicas as f64, whole as f64);
        let used = whole + some * reduced as f64 / base.max(1) as f64 * self.power;
        used / (whole + some * self.share(base, reduced)).max(1e-12)
    }
}

/// How fast a GPU runs at this power, over its speed at its design power.
fn speed(power: f64) -> f64 {
    let more = power - 1.0;
    power * (1.0 - LOST_PER_WATT[0] * more - LOST_PER_WATT[1] * more * more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_points() {
        for (power, per_watt) in [(1.0, 1.0), (1.1, 1.0 - 0.028), (1.2, 1.0 - 0.065)] {
            assert!((speed(power) / power - per_watt).abs() < 1e-12, "{power}");
        }
        // Thirty and 28 of 32 slots can be made up for within 1.3 times the power; half of the slots can't.
        let most = Boost::of_power(MOST_POWER);
        for (reduced, from, to) in [(30, 1.08, 1.12), (28, 1.2, 1.3)] {
            let boost = most.for_slots(32, reduced);
            assert_eq!(boost.share(32, reduced), 1.0);
            assert!(boost.power > from && boost.power < to, "{reduced}: {boost:?}");
            assert!((speed(boost.power) - 32.0 / reduced as f64).abs() < 1e-9);
            let less = Boost::of_power(boost.power - 0.01);
            assert!(less.share(32, reduced) < 1.0, "{reduced}: less power would do");
        }
        let half = most.for_slots(8, 4);
        assert_eq!(half, most);
        assert!((half.share(8, 4) - 0.5 * speed(1.3)).abs() < 1e-12);
    }

    #[test]
    fn more_power_is_faster_as_far_as_it_is_known() {
        let speeds: Vec<f64> =
            (0..=30).map(|step| Boost::of_power(1.0 + f64::from(step) * 0.01).speed).collect();
        assert!(speeds.windows(2).all(|two| two[0] < two[1]), "{speeds:?}");
        for odd in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0, 1.0] {
            assert_eq!(Boost::of_power(odd), Boost::NONE, "{odd}");
        }
        assert_eq!(Boost::of_power(f64::INFINITY), Boost::of_power(MOST_POWER));
        assert_eq!(Boost::NONE.for_slots(8, 6), Boost::NONE);
    }

    #[test]
    fn energy_is_that_of_the_work_that_is_done() {
        // Without a boost a token takes what it took: fewer GPUs do less.
        assert!((Boost::NONE.energy((8, 6), 2, 14) - 1.0).abs() < 1e-12);
        let boost = Boost::of_power(MOST_POWER).for_slots(32, 28);
        let more = boost.energy((32, 28), 1, 0) - 1.0;
        assert!(
            (more - (28.0 / 32.0 * boost.power - 1.0)).abs() < 1e-12 && more > 0.05 && more < 0.14,
            "{more}"
        );
        assert!(boost.energy((32, 28), 1, 127) - 1.0 < more / 100.0);
    }
}
