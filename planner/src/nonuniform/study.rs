//! Failure study: what a cluster loses to failed GPUs, by size, domain and rate.
//!
//! GPUs fail independently; `rate` is the share that is down at a time. Closed forms where there are some, and seeded
//! drawing where packing rounds.

use libm::{floor, log, pow};

use super::boost::Boost;
use super::planned::{carries_experts, has_whole_blocks};
use crate::plan::Plan;
use crate::reduced::{Failures, Gathered, allowed_degrees, degree_limits, gathered};
use crate::shard::padded_vocabulary;
use crate::units::common_divisor;

/// What a cluster looks like to the study.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Study {
    /// GPUs of a domain, which is one tensor-parallel group.
    pub domain: u64,
    /// Domains of a replica.
    pub domains_per_replica: u64,
    /// Replicas; where several share experts, sets of those that do, for one goes on without none of its set.
    pub replicas: u64,
    /// Replicas of such a set; 1 where each has all experts.
    pub sharing_experts: u64,
    /// Degrees to which a domain can be reduced, greatest first.
    pub allowed: Vec<u64>,
    /// The most that the GPUs of a reduced domain are boosted.
    pub boost: Boost,
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
    /// Energy of a token with that boost over what it takes when nothing failed.
    pub boosted_energy: f64,
    /// Domains that have to stand by so that a step keeps its batch when failed ones are replaced.
    pub spare_domains: f64,
    /// The same under nonuniform tensor parallelism, packed: whole replicas that do what the reduced ones do not, or the domains that replace
    /// failed ones where those are fewer.
    pub spare_domains_nonuniform: f64,
    /// The same with power boost.
    pub spare_domains_boosted: f64,
}

impl Losses {
    /// Adds to a sum.
    fn add(&mut self, other: &Losses) {
        for (sum, value) in self.fields().into_iter().zip({ *other }.fields()) {
            *sum += *value;
        }
    }

    fn fields(&mut self) -> [&mut f64; 8] {
        [
            &mut self.drop,
            &mut self.drop_packed,
            &mut self.nonuniform,
            &mut self.nonuniform_boosted,
            &mut self.boosted_energy,
            &mut self.spare_domains,
            &mut self.spare_domains_nonuniform,
            &mut self.spare_domains_boosted,
        ]
    }
}

/// Losses of one draw: `failures` are the failed GPUs of each failed domain, `affected` the replicas that they stand
/// in now.
pub fn losses(study: &Study, failures: &[u64], affected: u64) -> Losses {
    losses_of(study, &Failures::of(failures), affected)
}

fn losses_of(study: &Study, failures: &Failures, affected: u64) -> Losses {
    let (replicas, base, per) = (study.replicas, study.domain, study.domains_per_replica.max(1));
    let (mut nonuniform, mut boosted, mut energy) = (1.0_f64, 1.0_f64, 1.0);
    let (mut spare, mut spare_boosted) = (u64::MAX, u64::MAX);
    for found in gathered(base, &study.allowed, failures, per) {
        let plain = Boost::NONE.share(base, found.reduced);
        nonuniform = nonuniform.min(found.loss(replicas, plain));
        spare = spare.min(found.replicas_lost(plain));
        let faster = study.boost.for_slots(base, found.reduced).share(base, found.reduced);
        spare_boosted = spare_boosted.min(found.replicas_lost(faster));
        let lost = found.loss(replicas, faster);
        if lost < boosted {
            boosted = lost;
            energy = study.energy(&found);
        }
    }
    let left_out =
        Gathered { reduced: base, reduced_replicas: 0, dropped_replicas: failures.domains.div_ceil(per) };
    Losses {
        drop: Gathered { dropped_replicas: affected, ..left_out }.loss(replicas, 1.0),
        drop_packed: left_out.loss(replicas, 1.0),
        nonuniform,
        nonuniform_boosted: boosted,
        boosted_energy: energy,
        spare_domains: failures.domains as f64,
        spare_domains_nonuniform: spare.saturating_mul(per).min(failures.domains) as f64,
        spare_domains_boosted: spare_boosted.saturating_mul(per).min(failures.domains) as f64,
    }
}

/// A point of the study's curves.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct StudyPoint {
    /// Share of GPUs that are down.
    pub rate: f64,
    /// GPUs of the cluster.
    pub gpus: u64,
    /// GPUs of a domain.
    pub domain: u64,
    /// Share of domains without a failed GPU, exact.
    pub availability: f64,
    /// Expected share lost when affected replicas are left out where they stand, exact. To be held against what is drawn, not to
    /// stand in a row with it: the draws have it in [`Losses::drop`].
    pub drop_exact: f64,
    /// Draws: as many as were asked for, or as the size of the cluster allows.
    pub draws: u64,
    /// Means over the draws, all of the same.
    pub expected: Losses,
}

impl StudyPoint {
    /// Mean share of domains without a failed GPU, over the same draws as everything in [`StudyPoint::expected`].
    pub fn whole_domains(&self) -> f64 {
        let domains = (self.gpus / self.domain.max(1)).max(1);
        1.0 - self.expected.spare_domains / domains as f64
    }

    /// Share of all GPUs that stand idle where so many domains stand by.
    pub fn idle(&self, spare_domains: f64) -> f64 {
        idle(self.gpus, self.domain, spare_domains)
    }
}

fn idle(gpus: u64, domain: u64, spare_domains: f64) -> f64 {
    let spare = spare_domains.max(0.0) * domain as f64;
    spare / (gpus as f64 + spare).max(1.0)
}

/// The most GPUs that one draw goes through, over all draws of a point.
const MOST_DRAWN: u64 = 1 << 28;

/// What a study is drawn against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// The share of GPUs that are down.
    Rate,
    /// GPUs of the cluster.
    Gpus,
    /// GPUs of a domain, in replicas and a cluster of the same size.
    Domain,
}

/// Largest study of a sweep.
const MOST_GPUS: u64 = 1 << 24;

/// Draws of a point, when no other number is asked for.
pub const DRAWS: u64 = 200;
/// Seed of the draws.
pub const SEED: u64 = 1;
/// Share of GPUs that are down where something else is drawn against, when none is asked for.
pub const RATE: f64 = 0.001;
/// Shares of GPUs that are down, when none are asked for.
const RATES: [f64; 7] = [0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.01];
/// Sizes of domains: of NVLink domains that are sold, and of their halves.
const DOMAINS: [f64; 6] = [4.0, 8.0, 16.0, 32.0, 64.0, 72.0];
/// Sizes of a cluster, as multiples of the plan's.
const SIZES: [f64; 7] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

impl Against {
    /// What is drawn for a plan when no values are asked for.
    pub fn values(self, plan: &Plan) -> Vec<f64> {
        match self {
            Against::Rate => RATES.to_vec(),
            Against::Domain => DOMAINS.to_vec(),
            Against::Gpus => {
                let whole = Study::of(plan, Boost::NONE);
                let sizes =
                    SIZES.map(|size| whole.with_gpus((size * plan.world_size() as f64) as u64).gpus());
                let mut values: Vec<f64> = sizes.map(|gpus| gpus as f64).to_vec();
                values.dedup();
                values
            }
        }
    }
}

/// Points for `values` of what the study is drawn against, everything else as in the plan; `rate` is the share of GPUs
/// that are down where the values are not. Of a size that is not one of whole replicas the next smaller is taken, and at least
/// one replica: [`StudyPoint::gpus`] and [`StudyPoint::domain`] say which it was.
pub fn sweep(
    plan: &Plan,
    against: Against,
    values: &[f64],
    (rate, boost): (f64, Boost),
    (draws, seed): (u64, u64),
) -> Vec<StudyPoint> {
    let whole = Study::of(plan, boost);
    let points = values.iter().map(|&value| match against {
        Against::Rate => point(&whole, value, draws, seed),
        Against::Gpus => point(&whole.with_gpus(value as u64), rate, draws, seed),
        Against::Domain => {
            let domain = (value as u64).clamp(1, MOST_GPUS);
            point(&whole.with_domain(domain, degrees(plan, domain)), rate, draws, seed)
        }
    });
    points.collect()
}

/// Degrees to which a plan's model goes on when its groups have `domain` GPUs; none for models that can't.
fn degrees(plan: &Plan, domain: u64) -> Vec<u64> {
    let limits = degree_limits(&plan.model, padded_vocabulary(plan), carries_experts(plan));
    let cut = limits.map(|limits| allowed_degrees(domain, &limits)).unwrap_or_default();
    cut.into_iter().filter(|&degree| has_whole_blocks(plan, degree)).collect()
}

impl Study {
    /// The study of a plan: its tensor-parallel groups are the domains.
    pub fn of(plan: &Plan, boost: Boost) -> Study {
        let layout = &plan.layout;
        // What is left must be whole expert groups, too: Megatron-Core splits all ranks of a stage by both grids.
        let (replica, experts) = (layout.tp * layout.cp, layout.ep.saturating_mul(layout.etp).max(1));
        let sharing_experts = (experts / common_divisor(replica, experts)).clamp(1, layout.dp.max(1));
        Study {
            domain: layout.tp,
            domains_per_replica: layout.cp * layout.pp * sharing_experts,
            replicas: layout.dp / sharing_experts,
            sharing_experts,
            allowed: degrees(plan, layout.tp),
            boost,
        }
    }

    /// Energy of a token over that of the healthy cluster, of replicas that are boosted as far as makes up for their slots.
    fn energy(&self, found: &Gathered) -> f64 {
        let boost = self.boost.for_slots(self.domain, found.reduced);
        let reduced = found.reduced_replicas.min(self.replicas);
        let whole = self.replicas - reduced - found.dropped_replicas.min(self.replicas - reduced);
        if reduced + whole == 0 { 1.0 } else { boost.energy((self.domain, found.reduced), reduced, whole) }
    }

    /// Share of all GPUs that stand idle where so many domains stand by.
    pub fn idle(&self, spare_domains: f64) -> f64 {
        idle(self.gpus(), self.domain, spare_domains)
    }

    /// GPUs of the cluster.
    pub fn gpus(&self) -> u64 {
        self.domain.saturating_mul(self.domains_per_replica).saturating_mul(self.replicas)
    }

    /// The same replicas on more or fewer GPUs: as many as are whole in `gpus`, at least one.
    pub fn with_gpus(&self, gpus: u64) -> Study {
        let replica = self.domain.saturating_mul(self.domains_per_replica).max(1);
        Study { replicas: (gpus.min(MOST_GPUS) / replica).max(1), ..self.clone() }
    }

    /// The same cluster with domains of another size, whose degrees are `allowed`. A replica keeps its GPUs where they
    /// are whole domains, else it takes the next larger number of them.
    pub(crate) fn with_domain(&self, domain: u64, allowed: Vec<u64>) -> Study {
        let (domain, gpus) = (domain.clamp(1, MOST_GPUS), self.gpus());
        let per = self.domain.saturating_mul(self.domains_per_replica).div_ceil(domain).max(1);
        let replicas = (gpus / domain.saturating_mul(per)).max(1);
        Study { domain, domains_per_replica: per, replicas, allowed, ..self.clone() }
    }
}

/// One point: means over `draws` draws. The same seed gives the same figures on every platform.
pub fn point(study: &Study, rate: f64, draws: u64, seed: u64) -> StudyPoint {
    let gpus = study.gpus().max(1);
    let draws = draws.clamp(1, (MOST_DRAWN / gpus).max(1));
    let rate = if rate.is_finite() { rate.clamp(0.0, 1.0) } else { 0.0 };
    let mut random = SplitMix(seed);
    let (mut sum, mut failures) = (Losses::default(), Failures::default());
    for _ in 0..draws {
        let affected = draw(study, (gpus, rate), &mut random, &mut failures);
        sum.add(&losses_of(study, &failures, affected));
    }
    sum.fields().into_iter().for_each(|sum| *sum /= draws as f64);
    StudyPoint {
        rate,
        gpus,
        domain: study.domain,
        availability: availability(rate, study.domain),
        draws,
        drop_exact: 1.0 - availability(rate, study.domain.saturating_mul(study.domains_per_replica)),
        expected: sum,
    }
}

/// Draws failed domains into `failures`, and says how many replicas they stand in. Gaps between failed GPUs are geometric, so the cost is
/// that of the failures, not of the GPUs.
fn draw(study: &Study, (gpus, rate): (u64, f64), random: &mut SplitMix, failures: &mut Failures) -> u64 {
    failures.clear();
    if rate <= 0.0 {
        return 0;
    }
    let (domain, per) = (study.domain.max(1), study.domains_per_replica.max(1));
    let per_log = 1.0 / log(1.0 - rate);
    // The domain that is gone through, by its first GPU, and its failed GPUs; likewise the replica.
    let (mut first, mut count) = (u64::MAX, 0);
    let (mut replica, mut affected) = (u64::MAX, 0);
    let mut gpu = 0u64;
    loop {
        let gap = if rate >= 1.0 { 0.0 } else { floor(log(1.0 - random.unit()) * per_log) };
        if gap >= (gpus - gpu) as f64 {
            break;
        }
        gpu += gap as u64;
        if first != u64::MAX && gpu - first < domain {
            count += 1;
        } else {
            failures.add(count);
            let number = gpu / domain;
            (first, count) = (number * domain, 1);
            affected += u64::from(number / per != replica);
            replica = number / per;
        }
        gpu += 1;
        if gpu >= gpus {
            break;
        }
    }
    failures.add(count);
    affected
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
    use crate::nonuniform::MOST_POWER;

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
    fn paper(boost: Boost) -> Study {
        Study {
            domain: 32,
            domains_per_replica: 8,
            replicas: 128,
            sharing_experts: 1,
            allowed: vec![30, 28, 16, 8, 4, 2, 1],
            boost,
        }
    }

    #[test]
    fn published_bounds_hold() {
        let points = [0.001, 0.004].map(|rate| point(&paper(Boost::of_power(MOST_POWER)), rate, 200, 7));
        let most = points[1].expected;
        assert!(most.drop_packed > 0.10 && most.drop_packed < 0.13, "{most:?}");
        assert!(most.nonuniform <= 0.03 && most.nonuniform > 0.005, "{most:?}");
        assert!(most.nonuniform_boosted < 0.01, "{most:?}");
        // What is drawn agrees with what is exact.
        for point in &points {
            assert!((point.expected.drop - point.drop_exact).abs() < 0.01, "{point:?}");
            let failed = (1.0 - point.availability) * 1024.0;
            assert!((point.expected.spare_domains / failed - 1.0).abs() < 0.05, "{point:?}");
            let spares = &point.expected;
            assert!(spares.spare_domains_boosted < spares.spare_domains_nonuniform, "{point:?}");
            assert!(spares.spare_domains_nonuniform <= 24.0, "{point:?}");
            assert!(spares.boosted_energy > 1.0 && spares.boosted_energy < 1.02, "{point:?}");
        }
    }

    /// Of 1,024 domains 90 have failed, and the batch must stay: what was published needs 90 spare domains where replicas are dropped, two
    /// replicas of eight domains with 28 of 32 slots, and none with a boost.
    #[test]
    fn published_spares_of_a_fixed_batch() {
        let study = Study { allowed: vec![28], ..paper(Boost::of_power(MOST_POWER)) };
        let found = losses(&study, &[1; 90], 90);
        let spares = [found.spare_domains, found.spare_domains_nonuniform, found.spare_domains_boosted];
        assert_eq!(spares, [90.0, 16.0, 0.0]);
        assert!((study.idle(90.0) - 90.0 / 1114.0).abs() < 1e-12);
        // Without the power nothing is made up for.
        let plain = losses(&Study { boost: Boost::NONE, ..study.clone() }, &[1; 90], 90);
        assert_eq!((plain.spare_domains_boosted, plain.boosted_energy), (16.0, 1.0));
        // Twelve replicas of 128 take the boost's energy.
        let boost = study.boost.for_slots(32, 28);
        let more = 12.0 / 128.0 * (28.0 / 32.0 * boost.power - 1.0);
        assert!((found.boosted_energy - 1.0 - more).abs() < 1e-9, "{found:?}");
        // Where too much of a domain is gone, its replica is replaced like any other.
        let mixed = losses(&study, &[1, 1, 1, 1, 1, 1, 1, 1, 1, 9], 10);
        assert_eq!((mixed.spare_domains_nonuniform, mixed.spare_domains_boosted), (10.0, 8.0));
        // Nobody has to reduce what can be replaced by less.
        let one = losses(&study, &[1], 1);
        assert_eq!((one.spare_domains, one.spare_domains_nonuniform), (1.0, 1.0));
        assert_eq!(losses(&study, &[], 0).spare_domains_nonuniform, 0.0);
    }

    #[test]
    fn one_replica_of_sixteen_reduced() {
        let eight = Study {
            domain: 8,
            domains_per_replica: 1,
            replicas: 16,
            sharing_experts: 1,
            allowed: vec![6, 4, 2, 1],
            boost: Boost::NONE,
        };
        let found = losses(&eight, &[2], 1);
        assert_eq!((found.nonuniform, found.drop), (0.015_625, 0.0625));
    }

    /// One GPU that is gone takes all replicas with it that share experts: worlds of other sizes have no such groups.
    #[test]
    fn replicas_that_share_experts_are_left_out_together() {
        let file = |preset: &str, nodes: u64, layout: serde_json::Value| {
            let file = serde_json::json!({"version": 1, "model": {"preset": preset}, "layout": layout,
                "cluster": {"gpu": "h100-sxm", "nodes": nodes}, "training": {"global_batch_size": 5120}});
            crate::parse_plan(&file.to_string()).unwrap()
        };
        for (preset, nodes, layout, expected) in [
            ("deepseek-v3", 32, serde_json::json!({"tp": 1, "pp": 4, "ep": 64}), (1, 64)),
            ("mixtral-8x7b", 4, serde_json::json!({"tp": 4, "ep": 2, "etp": 4}), (4, 2)),
            ("mixtral-8x7b", 4, serde_json::json!({"tp": 4, "ep": 4, "etp": 1}), (8, 1)),
            ("mixtral-8x7b", 4, serde_json::json!({"tp": 2, "cp": 2, "ep": 8}), (4, 2)),
            ("llama-3-70b", 4, serde_json::json!({"tp": 8, "pp": 2}), (2, 1)),
        ] {
            let plan = Plan::resolve(&file(preset, nodes, layout.clone())).plan;
            let plan = plan.unwrap_or_else(|| panic!("{preset} {layout}"));
            let study = Study::of(&plan, Boost::NONE);
            assert_eq!((study.replicas, study.sharing_experts), expected, "{preset} {layout}");
            assert_eq!(study.gpus(), plan.world_size());
            let lost = losses(&study, &[1], 1);
            assert!((lost.drop - 1.0 / expected.0 as f64).abs() < 1e-12, "{preset} {layout}: {lost:?}");
            // What is left can be split, and a replica less can't.
            let gpus = plan.world_size();
            let fits = |gpus: u64| gpus.is_multiple_of(plan.layout.pp * plan.layout.ep * plan.layout.etp);
            let replica = plan.layout.tp * plan.layout.cp * plan.layout.pp;
            assert!(fits(gpus - replica * study.sharing_experts));
            assert_eq!(fits(gpus - replica), study.sharing_experts == 1, "{preset} {layout}");
        }
    }

    #[test]
    fn other_sizes_and_domains() {
        let smaller = paper(Boost::NONE).with_gpus(1000);
        assert_eq!((smaller.replicas, smaller.gpus()), (3, 768));
        assert_eq!(paper(Boost::NONE).with_gpus(1).replicas, 1);
        let eight = paper(Boost::NONE).with_domain(8, vec![4, 2, 1]);
        assert_eq!((eight.domains_per_replica, eight.replicas, eight.gpus()), (32, 128, 32_768));
        let odd = paper(Boost::NONE).with_domain(72, Vec::new());
        assert_eq!((odd.domains_per_replica, odd.replicas), (4, 113));
        // Larger domains lose more when replicas are dropped only for whole domains.
        let lost = |domain| {
            point(&paper(Boost::NONE).with_domain(domain, Vec::new()), 0.004, 100, 3).expected.drop_packed
        };
        assert!(lost(8) < lost(32) && lost(32) < lost(72), "{} {} {}", lost(8), lost(32), lost(72));
    }

    #[test]
    fn sweeps_of_a_plan() {
        let file = r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 16}, "layout": {"tp": 8}}"#;
        let plan = Plan::resolve(&crate::parse::parse_plan(file).unwrap()).plan.unwrap();
        for against in [Against::Rate, Against::Gpus, Against::Domain] {
            let values = against.values(&plan);
            let points = sweep(&plan, against, &values, (0.01, Boost::NONE), (50, 1));
            assert_eq!(points.len(), values.len());
            for (point, value) in points.iter().zip(&values) {
                let lost = point.expected;
                // What is chosen is what is answered for.
                if against == Against::Gpus {
                    assert_eq!(point.gpus as f64, *value);
                }
                // A replica of one domain is lost when that is.
                let one = plan.layout.cp * plan.layout.pp == 1 && against != Against::Domain;
                assert!(!one || (1.0 - point.whole_domains() - lost.drop).abs() < 1e-12, "{point:?}");
                assert!(lost.nonuniform <= lost.drop_packed && lost.drop_packed <= lost.drop, "{point:?}");
            }
            // More of each loses more, but for the size, whose shares stay about the same.
            if against != Against::Gpus {
                assert!(points.windows(2).all(|two| two[0].availability > two[1].availability), "{points:?}");
            }
        }
    }

    #[test]
    fn odd_rates_are_taken_as_what_they_can_be() {
        let points = [0.0, 1.0, -1.0, f64::NAN, 2.0].map(|rate| point(&paper(Boost::NONE), rate, 2, 1));
        assert_eq!(points[0].expected.drop, 0.0);
        assert_eq!(points[1].expected.drop, 1.0);
        assert!(points.iter().all(|point| point.expected.nonuniform <= 1.0), "{points:?}");
    }
}
