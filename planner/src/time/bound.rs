//! What a step takes at least, from the sums over all layers of a model alone.
//!
//! The longest stage takes no less than the mean of all, so a few numbers for each set of what is recomputed bound the step
//! of every pipeline from below, and a search leaves out the step of a candidate that is beaten even so.
//!
//! The clock rises where a stage waits (`cooler`), by a power of the share of time that GEMMs and attention have. What a
//! stage takes is then convex in its work and in their share of it, so that all stages together take no less than one
//! stage would that did the work of all; waiting for the host only adds to that.

use super::constants::ConstantRole;
use super::layer::{LayerTime, Recompute};
use super::machine::Machine;
use super::shape::{MAX_KINDS, ModelShape};
use super::stage::cooler;
use super::stages::Stages;
use super::step::{Pipe, State, StepOverhead};
use super::terms::WorkTables;
use crate::settings::Schedule;

/// What rounding may make of a sum of some hundred terms.
const ROUNDING: f64 = 1e-9;

/// A micro batch in all stages of a model together, whatever the stages are.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ModelBound {
    /// Seconds at least.
    least: f64,
    /// Seconds at most, but for what the host adds to sends.
    most: f64,
}

/// Seconds of something: all, of them GEMMs and attention, gaps between kernels, the host's.
fn terms(time: &LayerTime) -> [f64; 4] {
    [time.total(), time.hot(), time.gaps, time.host]
}

fn add(sum: &mut [f64; 4], terms: &[f64; 4], times: f64) {
    for (sum, term) in sum.iter_mut().zip(terms) {
        *sum += times * term;
    }
}

impl ModelBound {
    /// Of a model of which each layer is computed once, with what is computed again.
    pub fn of(machine: &Machine, works: &WorkTables, again: &Recompute, host_share: f64) -> ModelBound {
        let power = machine.of(ConstantRole::PowerSlack);
        if !(0.0..=1.0).contains(&power) {
            return ModelBound { least: 0.0, most: f64::INFINITY };
        }
        let mut kinds = [[0.0; 4]; MAX_KINDS];
        let mut sum = [0.0; 4];
        for ((slot, work), &count) in kinds.iter_mut().zip(works.kinds()).zip(works.counts()) {
            *slot = terms(&work.time(again));
            add(&mut sum, slot, count);
        }
        let base = works.base();
        let mut module = terms(&base.mtp);
        for &kind in works.mtp_layers() {
            add(&mut module, kinds.get(usize::from(kind)).unwrap_or(&[0.0; 4]), 1.0);
        }
        add(&mut sum, &module, works.modules());
        add(&mut sum, &terms(&base.head), 1.0);
        let [work, hot, gaps, host] = sum;
        let (busy, host) = (work + host_share * gaps, host_share * host);
        let cooled = cooler(machine, hot / busy.max(1e-12));
        ModelBound { least: busy - (1.0 - cooled) * hot, most: busy + host }
    }

    /// Bounds for either of two.
    #[must_use]
    pub fn join(self, other: ModelBound) -> ModelBound {
        ModelBound { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// Seconds of a micro batch at least.
    pub fn least(&self) -> f64 {
        self.least * (1.0 - ROUNDING)
    }

    /// Seconds of a pipeline at least, whatever stands before and after it. Sharded parameters only lengthen stages.
    #[inline]
    pub(crate) fn least_of_pipe(&self, pipe: &Pipe) -> f64 {
        self.least_with_waits(pipe, waits_at_least(pipe.schedule, pipe.stages, pipe.chunks))
    }

    /// The same of any pipeline with as many stages and micro batches that waits for so many micro batches at least.
    #[inline]
    pub(crate) fn least_with_waits(&self, pipe: &Pipe, waits: f64) -> f64 {
        self.least / pipe.stages * (pipe.microbatches + waits) * (1.0 - ROUNDING)
    }

    /// What a step of a pipeline takes at least; 0 where nothing is known, or where it may be without end.
    #[inline]
    pub(crate) fn least_seconds(
        &self,
        machine: &Machine,
        pipe: &Pipe,
        state: &State,
        around: &StepOverhead,
    ) -> f64 {
        let launches =
            2.0 * machine.of(ConstantRole::P2pHost) * machine.of(ConstantRole::P2pLatency) * pipe.stages;
        let beside = around.least();
        let most = (pipe.microbatches + 1.0) * (self.most + launches) + around.most();
        // Sharded parameters lengthen stages.
        if !(most < MOST && state.is_whole()) {
            return 0.0;
        }
        self.least_of_pipe(pipe) + beside * (1.0 - ROUNDING)
    }
}

/// Micro batches of a stage that a pipeline stands still at least, as it fills and drains.
#[inline]
pub(crate) fn waits_at_least(schedule: Schedule, stages: f64, chunks: f64) -> f64 {
    let kind = schedule.kind();
    if kind.splits_backward { 0.0 } else { kind.waits_for(stages - 1.0, chunks) }
}

/// Seconds below which a step is known to end, whatever else is counted.
const MOST: f64 = 1e8;

impl Stages {
    /// Whether stages hold each layer of the model once, and so what [`ModelBound`] counts.
    pub(crate) fn are_whole(&self, shape: &ModelShape) -> bool {
        let mut layers = [0.0; MAX_KINDS];
        for &kind in &shape.layers {
            if let Some(count) = layers.get_mut(usize::from(kind)) {
                *count += 1.0;
            }
        }
        let (mut modules, mut heads) = (shape.mtp_modules, 1.0);
        for class in &self.classes {
            for (left, count) in layers.iter_mut().zip(&class.layers) {
                *left -= class.count * count;
            }
            modules -= class.count * class.mtp;
            heads -= class.count * class.head;
        }
        !self.spread && layers.iter().chain([&modules, &heads]).all(|left| *left == 0.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse_plan;
    use crate::plan::Plan;
    use crate::time::{constants, inputs_at_least, profile, recompute, setup, step_of};

    fn check(preset: &str, nodes: u64, layout: &serde_json::Value, micro: u64, again: &str) -> f64 {
        let mut training = json!({"global_batch_size": 16 * nodes, "micro_batch_size": micro});
        if again != "none" {
            training["recompute"] = json!({"granularity": "selective", "modules": [again]});
        }
        let file = json!({"version": 1, "model": {"preset": preset}, "runtime": "megatron",
            "cluster": {"gpu": "h100-sxm", "nodes": nodes}, "training": training, "layout": layout});
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        let plan = plan.plan.unwrap_or_else(|| panic!("{:?}", plan.findings));
        let (setup, inputs) = (setup(&plan).unwrap(), inputs_at_least(&plan, profile(&plan).unwrap()));
        let machine = setup.machine(&constants::table().values());
        let works = WorkTables::new(&machine, &inputs.split(), &inputs.options(), &setup.shape);
        let stages = Stages::of(&setup.shape, &plan.layout);
        assert!(stages.are_whole(&setup.shape), "{preset} {layout}");
        let (pipe, data) = (setup.pipe(&machine), inputs.data());
        let terms = works.terms(&recompute(&plan));
        let state = State::of(&machine, &terms, &stages, &pipe, &data);
        let around = StepOverhead::of(&machine, &terms, &pipe, &data, &state);
        let longest = crate::time::Longest::of(&machine, &terms, &stages, &pipe);
        let exact = step_of(&machine, &longest, &pipe, &state, &around).total();
        let whole = ModelBound::of(&machine, &works, &recompute(&plan), pipe.host_share);
        let least = whole.least_seconds(&machine, &pipe, &state, &around);
        assert!(0.0 < least && least <= exact, "{preset} {layout}: {least} {exact}");
        least / exact
    }

    /// What a sequence takes at least, over the ranks that share it; none where rules refuse that.
    fn of_a_sequence(file: &mut serde_json::Value, cp: u64, micro: u64) -> Option<f64> {
        file["layout"]["cp"] = cp.into();
        file["training"]["micro_batch_size"] = micro.into();
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan?;
        let (setup, inputs) = (setup(&plan).unwrap(), inputs_at_least(&plan, profile(&plan).unwrap()));
        let machine = setup.machine(&constants::table().values());
        let works = WorkTables::new(&machine, &inputs.split(), &inputs.options(), &setup.shape);
        let whole = ModelBound::of(&machine, &works, &recompute(&plan), setup.pipe(&machine).host_share);
        Some(whole.least() * cp as f64 / micro as f64)
    }

    #[test]
    fn a_sequence_takes_no_less_with_fewer_at_once_or_over_context_parallel_ranks() {
        let mut tried = 0;
        for (preset, gpu, dtype) in [
            ("llama-3-8b", "h200", "bf16"),
            ("llama-3-70b", "h100-sxm", "bf16"),
            ("deepseek-v3", "h100-sxm", "fp8_blockwise"),
            ("qwen3-30b-a3b", "b200", "mxfp8"),
            ("nemotron-3-nano", "a100-80gb-sxm", "bf16"),
            ("gemma-3-27b", "mi300x", "bf16"),
        ] {
            for (tp, ep, again) in [(1, 1, "none"), (2, 8, "full"), (8, 4, "none")] {
                for (dispatcher, overlap, cp_kind) in
                    [("alltoall", false, "p2p"), ("flex", true, "all_gather"), ("flex", false, "a2a")]
                {
                    let mut file = json!({"version": 1, "model": {"preset": preset}, "runtime": "megatron",
                        "cluster": {"gpu": gpu, "nodes": 16}, "layout": {"tp": tp, "cp_kind": cp_kind},
                        "training": {"global_batch_size": 1536, "dtype": dtype, "recompute": again}});
                    file["training"]["overlap"] = json!({"tp": overlap && tp > 1});
                    if ["deepseek-v3", "qwen3-30b-a3b", "nemotron-3-nano"].contains(&preset) {
                        file["layout"]["ep"] = ep.into();
                        file["layout"]["etp"] = 1.into();
                        let dispatcher = if ep > 1 { dispatcher } else { "alltoall" };
                        file["training"]["moe"] = json!({"dispatcher": dispatcher});
                    }
                    let Some(least) = of_a_sequence(&mut file, 1, 12) else { continue };
                    // Over how many ranks it is known, each half of the next.
                    let mut over = vec![least];
                    for cp in [1, 2, 4, 8, 16] {
                        let Some(whole) = of_a_sequence(&mut file, cp, 12) else { continue };
                        assert!(over.iter().all(|fewer| whole >= *fewer), "{file}: {over:?} {whole}");
                        over.push(whole);
                        for one in [1, 2, 3].iter().filter_map(|&micro| of_a_sequence(&mut file, cp, micro)) {
                            assert!(one >= whole && whole >= least, "{file}: {one} {whole} {least}");
                            tried += 1;
                        }
                    }
                }
            }
        }
        assert!(tried > 100, "{tried}");
    }

    #[test]
    fn no_step_takes_less_and_most_take_little_more() {
        let mut shares = Vec::new();
        for again in ["none", "core_attn", "mlp"] {
            for preset in ["llama-3-8b", "llama-3-70b"] {
                let sizes = [(1, 1, 1), (2, 1, 1), (8, 1, 1), (4, 4, 1), (2, 8, 2), (4, 2, 4), (1, 16, 1)];
                for (tp, pp, vpp) in sizes {
                    let schedule = if vpp > 1 { "interleaved" } else { "1f1b" };
                    let layout = json!({"tp": tp, "pp": pp, "vpp": vpp, "schedule": schedule});
                    shares.extend([1, 2].map(|micro| check(preset, 32, &layout, micro, again)));
                    // Where buckets are large, what nothing hides of them is much of the step.
                    shares.push(check(preset, 2048, &layout, 1, again));
                }
            }
        }
        for (pp, text) in [(16, "Et*3|(t*4|)*13t*6|L"), (8, "Et*7|(t*8|)*6t*6L")] {
            let layout = json!({"tp": 2, "pp": pp, "ep": 8, "pipeline_layout": text});
            shares.push(check("deepseek-v3", 32, &layout, 1, "none"));
        }
        shares.sort_by(f64::total_cmp);
        assert!(shares[shares.len() / 2] > 0.8, "{shares:?}");
    }
}
