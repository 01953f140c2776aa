//! What failures and checkpoints leave of a run's time.

use super::answer::rounded;
use super::by_runtime;
use crate::finding::Finding;
use crate::plan::Plan;
use crate::settings::OptimizerKind;
use crate::units::Dtype;
use crate::wire::Goodput;

/// Bytes/s at which one GPU's part of a checkpoint is written; nothing was measured here.
const CHECKPOINT_BYTES_PER_SECOND: f64 = 1e9;
/// Bytes/s at which the worker copies a rank's part to the host while training waits: on CPUs 6.1 to 9.1 GB/s were measured
/// (docs/measurements/2026-11-25-checkpoints.md).
const COPIED_BYTES_PER_SECOND: f64 = 6e9;
/// Seconds from a failure to the first new step, where the plan says none.
const RESTART_SECONDS: f64 = 600.0;

/// Share of time that trains, by Daly's expected run time with exponential failures; none where no failure rate is
/// given, or where failures leave nothing.
pub fn goodput(plan: &Plan) -> Option<Goodput> {
    let cluster = &plan.file.cluster;
    let hours = cluster.gpu_mtbf_hours?;
    let mtbf = hours * 3600.0 / plan.world_size() as f64;
    let restart = cluster.restart_s.unwrap_or(RESTART_SECONDS);
    let write = saving(plan).waits_s;
    let optimum = optimal_interval(write, mtbf);
    let interval = cluster.checkpoint_interval_s.filter(|interval| *interval > 0.0).unwrap_or(optimum);
    let share = share(interval, write, restart, mtbf);
    share.is_finite().then(|| Goodput {
        share: rounded(share),
        cluster_mtbf_s: rounded(mtbf),
        checkpoint_write_s: rounded(write),
        checkpoint_interval_s: rounded(interval),
        optimal_interval_s: rounded(optimum),
        restart_s: rounded(restart),
    })
}

/// Bytes of a checkpoint, one copy of the model over all its ranks: weights in their type, master weights and moments. The
/// worker ([`Plan::executed`]) saves the weights once, as its optimizer updates them, and routers' balancing biases.
pub fn checkpoint_bytes(plan: &Plan) -> f64 {
    let (model, kind) = (&plan.model, plan.training.optimizer.kind);
    let (total, _) = crate::model::count(model);
    let matrices = match kind {
        OptimizerKind::Muon => crate::model::hidden_matrix_elements(model).min(total),
        OptimizerKind::Adam | OptimizerKind::Sgd => 0,
    };
    let by_worker = plan.is_computed_by_the_worker();
    // The worker keeps the same of an element under Megatron-FSDP as under its own rules.
    let computed = plan.computed_as_native();
    let of = computed.as_ref().unwrap_or(plan);
    let [weight, first, second] = (by_runtime::of(of).checkpoint)(of);
    let others = if kind == OptimizerKind::Sgd { first } else { first + second };
    let biases = if by_worker { crate::model::untrained_elements(model) * Dtype::Fp64.size() } else { 0 };
    total as f64 * weight as f64
        + matrices as f64 * first as f64
        + (total - matrices) as f64 * others as f64
        + biases as f64
}

/// What it is predicted to take to save a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saving {
    /// Bytes over all ranks.
    pub bytes: f64,
    /// Bytes of a rank that saves a part, which the worker keeps on the host meanwhile.
    pub rank_bytes: f64,
    /// Seconds that training waits: until all is written, or in the worker until it is copied.
    pub waits_s: f64,
    /// Seconds until all is written.
    pub seconds: f64,
}

/// What saving a checkpoint is predicted to take.
pub fn saving(plan: &Plan) -> Saving {
    let bytes = checkpoint_bytes(plan);
    // Of replicas that keep the same state, one saves it.
    let copies = (by_runtime::of(plan).copies)(plan);
    let rank_bytes = bytes * copies as f64 / plan.world_size() as f64;
    let written = rank_bytes / CHECKPOINT_BYTES_PER_SECOND;
    let copied = rank_bytes / COPIED_BYTES_PER_SECOND;
    if plan.is_computed_by_the_worker() {
        Saving { bytes, rank_bytes, waits_s: copied, seconds: copied + written }
    } else {
        Saving { bytes, rank_bytes, waits_s: written, seconds: written }
    }
}

/// What a goodput rests on that nobody gave.
pub(super) fn assumed(plan: &Plan) -> Vec<Finding> {
    let cluster = &plan.file.cluster;
    let rule = "goodput: Young and Daly";
    let rate = match plan.is_computed_by_the_worker() {
        true => format!(
            "goodput takes training to wait while checkpoints are copied to the host, at {:.0} GB/s; they are written beside it",
            COPIED_BYTES_PER_SECOND / 1e9
        ),
        false => format!(
            "goodput takes checkpoints to be written at {:.0} GB/s by each GPU while training waits: no rate was measured here, and a slower one lowers it",
            CHECKPOINT_BYTES_PER_SECOND / 1e9
        ),
    };
    let mut findings =
        vec![Finding::info("cluster.checkpoint_interval_s", cluster.checkpoint_interval_s, rate).rule(rule)];
    if cluster.restart_s.is_none() {
        let message = format!(
            "goodput takes {RESTART_SECONDS:.0} s from a failure to the first new step; give cluster.restart_s to be sure"
        );
        findings.push(Finding::info("cluster.restart_s", serde_json::Value::Null, message).rule(rule));
    }
    findings
}

/// Daly's higher-order optimum of the time between checkpoints (Young's is its first term).
pub(crate) fn optimal_interval(write: f64, mtbf: f64) -> f64 {
    if write >= 2.0 * mtbf {
        return mtbf;
    }
    let ratio = write / (2.0 * mtbf);
    (2.0 * write * mtbf).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - write
}

/// Useful seconds over elapsed ones.
fn share(interval: f64, write: f64, restart: f64, mtbf: f64) -> f64 {
    interval / (mtbf * libm::exp(restart / mtbf) * libm::expm1((interval + write) / mtbf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optimum_is_where_the_share_is_greatest() {
        for (write, mtbf) in [(10.0, 10_000.0), (60.0, 3_600.0), (1.0, 1e6)] {
            let best = optimal_interval(write, mtbf);
            let at = |factor: f64| share(best * factor, write, 300.0, mtbf);
            assert!(at(1.0) >= at(0.9) && at(1.0) >= at(1.1), "write {write}, mtbf {mtbf}: {best}");
            // Young's formula is close where failures are rare.
            assert!((best / (2.0 * write * mtbf).sqrt() - 1.0).abs() < 0.1, "{best}");
        }
    }

    #[test]
    fn what_a_plan_says_of_restarts_and_saves_counts() {
        let of = |said: &str| {
            let text = format!(
                r#"{{"version":1,"model":{{"preset":"llama-3-8b"}},"cluster":{{"gpu":"h100-sxm","nodes":64,"gpu_mtbf_hours":20000{said}}}}}"#
            );
            goodput(&Plan::resolve(&crate::parse_plan(&text).unwrap()).plan.unwrap()).unwrap()
        };
        let restart = |seconds: u32| of(&format!(r#","restart_s":{seconds}"#)).share;
        assert!(restart(60) > restart(600) && restart(600) > restart(6000));
        assert_eq!(of("").share, restart(RESTART_SECONDS as u32));
        let best = of("");
        for factor in [0.2, 5.0] {
            let seconds = best.optimal_interval_s * factor;
            let other = of(&format!(r#","checkpoint_interval_s":{seconds}"#));
            assert_eq!(other.checkpoint_interval_s, rounded(seconds));
            assert!(other.share < best.share, "{factor}: {} {}", other.share, best.share);
        }
    }

    #[test]
    fn training_waits_for_the_copy_alone_where_the_worker_saves() {
        let of = |runtime: &str, distributed: bool| {
            let text = format!(
                r#"{{"version":1,"model":{{"preset":"llama-3-8b"}},"cluster":{{"gpu":"h100-sxm","nodes":1}},"runtime":"{runtime}",
                   "training":{{"optimizer":{{"distributed":{distributed}}}}}}}"#
            );
            saving(&Plan::resolve(&crate::parse_plan(&text).unwrap()).plan.unwrap())
        };
        let (worker, other) = (of("native", true), of("megatron", true));
        assert_eq!(worker.bytes / 8.0, worker.rank_bytes);
        assert!(worker.waits_s < other.waits_s && worker.waits_s < worker.seconds);
        assert_eq!(other.waits_s, other.seconds);
        assert_eq!(of("megatron", false).rank_bytes, other.bytes);
    }

    #[test]
    fn of_replicas_that_keep_the_same_one_saves_it() {
        let of = |outer: &str| {
            let text = format!(
                r#"{{"version":1,"model":{{"preset":"llama-3-8b"}},"cluster":{{"gpu":"h100-sxm","nodes":1}},"runtime":"megatron_fsdp",
                   "layout":{{"dp_replicate":2,"fsdp":{{"outer_strategy":"{outer}"}}}}}}"#
            );
            let plan = Plan::resolve(&crate::parse_plan(&text).unwrap()).plan.unwrap();
            let saving = saving(&Plan::resolve(&plan.executed()).plan.unwrap());
            saving.rank_bytes / saving.bytes
        };
        assert_eq!((of("no_shard"), of("optim")), (2.0 / 8.0, 1.0 / 8.0));
    }

    #[test]
    fn no_failures_cost_only_the_writing() {
        assert!((share(990.0, 10.0, 300.0, 1e12) - 0.99).abs() < 1e-6);
    }
}
