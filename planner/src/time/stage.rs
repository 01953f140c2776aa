//! Seconds of a micro batch on a pipeline stage, and the stage that takes longest.

use super::constants::ConstantRole;
use super::layer::LayerTime;
use super::machine::{Machine, overlap};
use super::parts::Parts;
use super::stages::{StageClass, Stages};
use super::step::Pipe;
use super::terms::Terms;

/// Seconds of one micro batch on a stage, with what the host adds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StageTime {
    pub time: LayerTime,
    pub head: LayerTime,
    pub host: f64,
    pub seconds: f64,
}

/// Seconds of one micro batch on a stage without and with its output layer, the host's share among them.
fn stage_seconds(machine: &Machine, terms: &Terms, pipe: &Pipe, class: &StageClass) -> StageSeconds {
    let (totals, mtp, head) = &terms.totals;
    let (mut work, mut hot) = (class.mtp * mtp[0], class.mtp * mtp[1]);
    let (mut launch, mut gaps) = (class.mtp * terms.mtp.host, class.mtp * terms.mtp.gaps);
    for ((total, time), &count) in totals.iter().zip(&terms.kinds).zip(&class.layers).take(terms.known) {
        work += count * total[0];
        hot += count * total[1];
        launch += count * time.host;
        gaps += count * time.gaps;
    }
    (launch, gaps) = (launch * pipe.host_share, gaps * pipe.host_share);
    let [head, head_hot] = head.map(|seconds| class.head * seconds);
    // What runs while the host can't run ahead.
    let [mut apart, apart_hot] =
        [head, head_hot].map(|seconds| machine.of(ConstantRole::LossWaits) * seconds);
    work += head - apart;
    hot += head_hot - apart_hot;
    let cooler = cooler(machine, (hot + apart_hot) / (overlap(work + gaps, launch) + apart).max(1e-12));
    work -= (1.0 - cooler) * hot;
    apart -= (1.0 - cooler) * apart_hot;
    if pipe.stages > 1.0 {
        launch += 2.0 * machine.of(ConstantRole::P2pHost) * machine.of(ConstantRole::P2pLatency);
    }
    let beside = if machine.same_thread { work + launch } else { overlap(work + gaps, launch) };
    StageSeconds { cooler, host: beside - work, seconds: beside + apart }
}

struct StageSeconds {
    /// What GEMMs and attention take of their time under load.
    cooler: f64,
    host: f64,
    seconds: f64,
}

/// Least share of time under load from which the clock still rises: below, it is at its highest (1.45 times as high).
const LEAST_DUTY: f64 = 0.33;

/// Time of GEMMs and attention over that under load without a pause, when they have the share `duty` of all time: power
/// that waiting, communication and memory-bound work leave lets the clock rise.
pub(super) fn cooler(machine: &Machine, duty: f64) -> f64 {
    match machine.of(ConstantRole::PowerSlack) {
        0.0 => 1.0,
        power => libm::pow(duty.clamp(LEAST_DUTY, 1.0), power),
    }
}

/// Seconds of a layer by itself, which has no host's part: its GEMMs run at the clock that the rest of it leaves them.
pub fn alone(machine: &Machine, time: &LayerTime) -> f64 {
    let (all, hot) = (time.total(), time.hot());
    all - (1.0 - cooler(machine, hot / all.max(1e-12))) * hot
}

fn stage_time(machine: &Machine, terms: &Terms, pipe: &Pipe, class: &StageClass) -> StageTime {
    let StageSeconds { cooler, host, seconds } = stage_seconds(machine, terms, pipe, class);
    let (mut time, mut head) = (terms.stage(class), LayerTime::default());
    time.quicken(cooler);
    head.add(&terms.head, class.head);
    head.quicken(cooler);
    StageTime { time, head, host, seconds }
}

/// Forward, backward and, of the backward, weights' gradients of a micro batch in a `chunk` of what `class` holds; the
/// host's share lies on all chunks and both passes alike.
pub(super) fn chunk_time(
    machine: &Machine,
    terms: &Terms,
    pipe: &Pipe,
    class: &StageClass,
    chunk: &StageClass,
) -> [f64; 3] {
    let StageSeconds { cooler, host, seconds } = stage_seconds(machine, terms, pipe, class);
    let mut time = terms.stage(chunk);
    time.add(&terms.head, chunk.head);
    time.quicken(cooler);
    let slower = seconds / (seconds - host).max(1e-12);
    [time.forward.total(), time.backward.total(), time.weights].map(|seconds| slower * seconds)
}

/// The stage that takes longest, and what a step takes from it for every micro batch. It depends neither on the schedule nor
/// on the number of micro batches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Longest {
    /// Its first pass.
    pub(super) first: Parts,
    /// What it computes again.
    pub(super) again: f64,
    /// What the host adds.
    pub(super) host: f64,
    /// Forward, with the host's share.
    pub(super) forward: f64,
    /// Backward, with the host's share.
    pub(super) backward: f64,
    /// Of the backward, gradients of weights, as a share of all of it.
    pub(super) weights: f64,
    /// All of it.
    pub(super) seconds: f64,
    /// All stages together.
    pub(super) sum: f64,
}

impl Longest {
    /// Of stages.
    pub fn of(machine: &Machine, terms: &Terms, stages: &Stages, pipe: &Pipe) -> Longest {
        let mut longest = (None, 0.0);
        let (mut sum, mut shortest) = (0.0, f64::INFINITY);
        for class in &stages.classes {
            let seconds = stage_seconds(machine, terms, pipe, class).seconds;
            sum += class.count * seconds;
            shortest = if seconds < shortest { seconds } else { shortest };
            if seconds > longest.1 {
                longest = (Some(class), seconds);
            }
        }
        let mut longest =
            longest.0.map_or_else(StageTime::default, |class| stage_time(machine, terms, pipe, class));
        if stages.spread && pipe.stages > 1.0 {
            let layers: f64 =
                stages.classes.iter().map(|class| class.count * class.layers.iter().sum::<f64>()).sum();
            longest = even_out(longest, shortest, sum / pipe.stages, layers / (pipe.stages * pipe.chunks));
        }
        Longest::from_stage(&longest, sum)
    }

    /// Of a stage, with the seconds of all stages together.
    pub(super) fn from_stage(stage: &StageTime, sum: f64) -> Longest {
        let StageTime { time, head, host, seconds } = *stage;
        let work = time.forward + time.backward + head.forward + head.backward;
        // Exchanges hide behind waits for the host as behind computing. A third of its launches are the forward's, and what is computed
        // again is launched again.
        let again = time.again.total() / time.forward.total().max(1e-12);
        let forward = host / (3.0 + again);
        Longest {
            first: work + time.again.times(-1.0),
            again: time.again.total(),
            host,
            forward: time.forward.total() + head.forward.total() + forward,
            backward: time.backward.total() + head.backward.total() + host - forward,
            weights: (time.weights + head.weights) / seconds.max(1e-12),
            seconds,
            sum,
        }
    }

    /// Mean seconds of a micro batch over so many stages, as a share of the longest stage's.
    pub(super) fn mean_share(&self, stages: f64) -> f64 {
        (self.sum / stages.max(1.0) / self.seconds.max(1e-12)).min(1.0)
    }
}

/// Whoever cuts a model by hand puts fewer layers beside the output layer, so the longest stage is little over the mean:
/// as long as the output layer, or as whole layers of a stage of layers alone (`shortest`, with `each` to a chunk).
fn even_out(longest: StageTime, shortest: f64, mean: f64, each: f64) -> StageTime {
    let whole = shortest * (each.ceil() / each.max(1e-12));
    let share = (mean.max(longest.head.total()).max(whole) / longest.seconds.max(1e-12)).min(1.0);
    let scale = |time: &LayerTime| {
        let mut scaled = LayerTime::default();
        scaled.add(time, share);
        scaled
    };
    StageTime {
        time: scale(&longest.time),
        head: scale(&longest.head),
        host: share * longest.host,
        seconds: share * longest.seconds,
    }
}
