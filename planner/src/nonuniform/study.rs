//! Failure study: what a cluster loses to failed GPUs, by size, domain and rate.
//!
//! GPUs fail independently; `rate` is the share that is down at a time. Closed forms where there are some, and seeded
//! drawing where packing rounds.

use libm::{floor, log, pow};

/// What a cluster looks like to the study.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Study {
    /// GPUs of a domain, which is one tensor-parallel group.
    pub domain: u64,
    /// Domains of a replica.
    pub domains_per_replica: u64,
    /// Replicas.
    pub replicas: u64,
    /// Degrees to which a domain can be reduced, greatest first.
    pub allowed: Vec<u64>,
    /// How much faster the GPUs of a reduced domain can run for a while; 1 for no boost.
    pub boost: f64,
}

/// Share of domains of `size` GPUs without a failed one, when `rate` of all GPUs are down: (1 - rate)^size.
pub fn availability(rate: f64, size: u64) -> f64 {
    pow(1.0 - rate.clamp(0.0, 1.0), size as f64)
}

/// Shares of throughput lost.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
pub struct Losses {
    /// Replicas with a failed GPU are left out, where they stand.
    pub drop: f64,
    /// The same after failed domains were packed into the fewest replicas.
    pub drop_packed: f64,
    /// Nonuniform tensor parallelism, packed.
    pub nonuniform: f64,
    /// The same with power boost: nothing as long as the boost makes up for the slots that are gone.
    pub nonuniform_boosted: f64,
    /// Spare domains that would have to stand by for nothing to be lost.
    pub spare_domains: f64,
}

/// Losses of one draw: `failures` are the failed GPUs of each failed domain, `affected` the replicas that they stand
/// in now.
pub fn losses(study: &Study, failures: &[u64], affected: u64) -> Losses {
    let replicas = study.replicas.max(1) as f64;
    let per = study.domains_per_replica.max(1);
    let failed = failures.len() as u64;
    let share = |count: u64| (count as f64 / replicas).min(1.0);
    let mut best = share(failed.div_ceil(per));
    let mut boosted = best;
    let allowed = study.allowed.iter().copied();
    for reduced in allowed.filter(|&reduced| reduced > 0 && reduced < study.domain) {
        let within = failures.iter().filter(|&&count| count <= study.domain - reduced).count() as u64;
        let out = share((failed - within).div_ceil(per));
        let (slots, base) = (reduced as f64, study.domain as f64);
        let slower = |speed: f64| (1.0 - (slots * speed / base).min(1.0)) * share(within.div_ceil(per));
        best = best.min(out + slower(1.0));
        boosted = boosted.min(out + slower(study.boost.max(1.0)));
    }
    Losses {
        drop: share(affected),
        drop_packed: share(failed.div_ceil(per)),
        nonuniform: best,
        nonuniform_boosted: boosted,
        spare_domains: failed as f64,
    }
}

/// A point of the study's curves.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct StudyPoint {
    /// Share of GPUs that are down.
    pub rate: f64,
    /// Share of domains without a failed GPU, exact.
    pub availability: f64,
    /// Expected share lost when affected replicas are left out where they stand, exact.
    pub drop_exact: f64,
    /// Means over the draws.
    pub expected: Losses,
}

/// The most GPUs that one draw goes through, over all draws of a point.
const MOST_DRAWN: u64 = 1 << 28;

/// A point for every rate. The same seed gives the same figures on every platform.
pub fn study(study: &Study, rates: &[f64], draws: u64, seed: u64) -> Vec<StudyPoint> {
    let domains = study.domains_per_replica.saturating_mul(study.replicas);
    let gpus = domains.saturating_mul(study.domain).max(1);
    let draws = draws.clamp(1, (MOST_DRAWN / gpus).max(1));
    let point = |&rate: &f64| {
        let rate = if rate.is_finite() { rate.clamp(0.0, 1.0) } else { 0.0 };
        let mut random = SplitMix(seed);
        let mut sum = Losses::default();
        for _ in 0..draws {
            let (failures, affected) = draw(study, gpus, rate, &mut random);
            let one = losses(study, &failures, affected);
            sum.drop += one.drop;
            sum.drop_packed += one.drop_packed;
            sum.nonuniform += one.nonuniform;
            sum.nonuniform_boosted += one.nonuniform_boosted;
            sum.spare_domains += one.spare_domains;
        }
        let mean = |value: f64| value / draws as f64;
        StudyPoint {
            rate,
            availability: availability(rate, study.domain),
            drop_exact: 1.0 - availability(rate, study.domain.saturating_mul(study.domains_per_replica)),
            expected: Losses {
                drop: mean(sum.drop),
                drop_packed: mean(sum.drop_packed),
                nonuniform: mean(sum.nonuniform),
                nonuniform_boosted: mean(sum.nonuniform_boosted),
                spare_domains: mean(sum.spare_domains),
            },
        }
    };
    rates.iter().map(point).collect()
}

/// Failed GPUs of each failed domain, and how many replicas those stand in. Gaps between failed GPUs are geometric,
/// so the cost is that of the failures, not of the GPUs.
fn draw(study: &Study, gpus: u64, rate: f64, random: &mut SplitMix) -> (Vec<u64>, u64) {
    let mut failures: Vec<u64> = Vec::new();
    let (mut last_domain, mut last_replica, mut affected) = (u64::MAX, u64::MAX, 0);
    let mut gpu = 0u64;
    if rate <= 0.0 {
        return (failures, 0);
    }
    loop {
        let gap = if rate >= 1.0 { 0.0 } else { floor(log(1.0 - random.unit()) / log(1.0 - rate)) };
        if gap >= (gpus - gpu) as f64 {
            return (failures, affected);
        }
        gpu += gap as u64;
        let domain = gpu / study.domain.max(1);
        if domain == last_domain {
            if let Some(count) = failures.last_mut() {
                *count += 1;
            }
        } else {
            failures.push(1);
            last_domain = domain;
            let replica = domain / study.domains_per_replica.max(1);
            affected += u64::from(replica != last_replica);
            last_replica = replica;
        }
        gpu += 1;
        if gpu >= gpus {
            return (failures, affected);
        }
    }
}

/// Steele, Lea and Flood's generator: small, seedable, the same everywhere.
struct SplitMix(u64);

impl SplitMix {
    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rate: f64, expected: &[(u64, f64)]) {
        for &(size, percent) in expected {
            let found = (availability(rate, size) * 1e4).round() / 1e2;
            assert_eq!(found, percent, "{rate}, {size}");
        }
    }

    #[test]
    fn published_availabilities() {
        check(0.001, &[(8, 99.20), (16, 98.41), (32, 96.85), (64, 93.80), (72, 93.05)]);
        check(0.004, &[(8, 96.84), (16, 93.79), (32, 87.96), (64, 77.37), (72, 74.93)]);
    }

    /// 32,768 GPUs in domains of 32, 8 to a replica.
    fn paper(boost: f64) -> Study {
        Study {
            domain: 32,
            domains_per_replica: 8,
            replicas: 128,
            allowed: vec![30, 28, 16, 8, 4, 2, 1],
            boost,
        }
    }

    #[test]
    fn published_bounds_hold() {
        let points = study(&paper(32.0 / 28.0), &[0.001, 0.004], 200, 7);
        let most = points[1].expected;
        assert!(most.drop_packed > 0.10 && most.drop_packed < 0.13, "{most:?}");
        assert!(most.nonuniform <= 0.03 && most.nonuniform > 0.005, "{most:?}");
        assert!(most.nonuniform_boosted < 0.01, "{most:?}");
        // What is drawn agrees with what is exact.
        for point in &points {
            assert!((point.expected.drop - point.drop_exact).abs() < 0.01, "{point:?}");
            let failed = (1.0 - point.availability) * 1024.0;
            assert!((point.expected.spare_domains / failed - 1.0).abs() < 0.05, "{point:?}");
        }
    }

    #[test]
    fn one_replica_of_sixteen_reduced() {
        let eight =
            Study { domain: 8, domains_per_replica: 1, replicas: 16, allowed: vec![6, 4, 2, 1], boost: 1.0 };
        let found = losses(&eight, &[2], 1);
        assert_eq!((found.nonuniform, found.drop), (0.015_625, 0.0625));
    }

    #[test]
    fn odd_rates_are_taken_as_what_they_can_be() {
        let points = study(&paper(1.0), &[0.0, 1.0, -1.0, f64::NAN, 2.0], 2, 1);
        assert_eq!(points[0].expected.drop, 0.0);
        assert_eq!(points[1].expected.drop, 1.0);
        assert!(points.iter().all(|point| point.expected.nonuniform <= 1.0), "{points:?}");
    }
}
