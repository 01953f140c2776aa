//! What data-parallel ranks exchange once a step: in how many calls, and what of it has no compute to hide behind.

use super::collectives::LL128_SHARE;
use super::constants::ConstantRole;
use super::machine::Machine;
use super::step::{DataParallel, Pipe};

/// Reduction of gradients and gathering of parameters over one group.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Exchange {
    /// Elements of a rank.
    pub elements: f64,
    /// Of them, those of the embedding: one tensor, the last to have its gradient and the first that is needed.
    pub embedding: f64,
    /// Units that FSDP exchanges: layers, and what is in none.
    pub units: f64,
    /// Seconds of the reduction and of the gathering, without what their calls wait for.
    pub seconds: [f64; 2],
    /// Seconds that a call of each waits for, by NCCL's protocol Simple.
    pub rounds: [f64; 2],
    /// Share of these that protocol LL128 leaves, at a lower bandwidth; 1 where no call goes by it.
    pub quicker: f64,
}

/// Seconds of reduction or gathering.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Exchanged {
    /// All.
    pub all: f64,
    /// Of its call that has nothing beside it: the last of backward, the first of forward.
    pub alone: f64,
}

impl Exchanged {
    /// What is left where `hidden` seconds of it go on beside compute.
    pub(super) fn exposed(&self, hidden: f64) -> f64 {
        larger(self.all - hidden, self.alone)
    }
}

/// Elements of a bucket at least; none where all are in one, or in units of layers.
///
/// Megatron-Core's rule (distributed_data_parallel.py and training.py, d98e8a64ddf3): 40 million, or a million for each
/// data-parallel rank where that is more, so that what a rank sends at each hop of a ring stays large; Megatron Bridge and NeMo ask for 128 Mi. Without
/// overlap there is one bucket. Experts have buckets of the same size, whatever their own group is, and parameters are gathered in the
/// buckets of their gradients.
pub(super) fn bucket(machine: &Machine, role: ConstantRole, data: &DataParallel) -> Option<f64> {
    let least = larger(machine.of(role), machine.of(ConstantRole::BucketPerRank) * data.dense.size);
    (data.overlap_reduce && !data.by_layer[0]).then_some(least)
}

impl Exchange {
    /// Adds its reduction and its gathering.
    pub(super) fn add_to(
        &self,
        sums: [&mut Exchanged; 2],
        machine: &Machine,
        pipe: &Pipe,
        data: &DataParallel,
    ) {
        if self.elements <= 0.0 {
            return;
        }
        let roles = [ConstantRole::BucketElements, ConstantRole::GatherElements];
        let each = sums.into_iter().zip(roles).zip(data.by_layer).zip(self.seconds).zip(self.rounds);
        for ((((sum, role), by_layer), seconds), round) in each {
            let (calls, alone) = self.calls(bucket(machine, role, data), pipe.chunks, by_layer);
            sum.all += calls * self.call(seconds / calls, round);
            sum.alone += self.call(seconds * alone / self.elements, round);
        }
    }

    /// Seconds of a call by the protocol that takes fewer, as NCCL chooses it.
    fn call(&self, seconds: f64, round: f64) -> f64 {
        let (simple, quick) = (seconds + round, seconds / LL128_SHARE + round * self.quicker);
        if quick < simple { quick } else { simple }
    }

    /// Calls that it takes in such buckets, and the elements of the one that has nothing beside it.
    ///
    /// Of a pipeline, Megatron-Core cuts the first chunk of the first stage alone: all others are done before it.
    fn calls(&self, bucket: Option<f64>, chunks: f64, by_layer: bool) -> (f64, f64) {
        let (whole, others) =
            if by_layer { (self.elements, 0.0) } else { (self.elements / chunks, chunks - 1.0) };
        let buckets = match bucket {
            _ if by_layer => self.units,
            Some(bucket) => larger((whole / bucket).ceil(), 1.0),
            None => 1.0,
        };
        let embedding = if self.embedding < whole { self.embedding } else { whole };
        (others + buckets, larger(whole / buckets, embedding))
    }
}

/// A comparison rather than `max`, which WebAssembly has no instruction for.
fn larger(one: f64, other: f64) -> f64 {
    if one > other { one } else { other }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::answer::estimate;
    use crate::parse::parse_plan;
    use crate::plan::Plan;
    use crate::time::{constants::table, setup};
    use crate::wire::TimeAnswer;

    fn file(preset: &str, nodes: u64, layout: &Value, training: &Value) -> Value {
        let mut training = training.clone();
        // As many sequences for each GPU, whatever their number.
        training["global_batch_size"] = json!(nodes * 32);
        json!({"version": 1, "model": {"preset": preset}, "cluster": {"gpu": "h100-sxm", "nodes": nodes},
            "layout": layout, "training": training})
    }

    fn time(file: &Value) -> TimeAnswer {
        let answer = estimate(&parse_plan(&file.to_string()).unwrap());
        answer.time.unwrap_or_else(|| panic!("{:?}", answer.findings))
    }

    /// Elements of a bucket of gradients and of a gather of a plan.
    fn buckets(file: &Value) -> [Option<f64>; 2] {
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
        let setup = setup(&plan).unwrap();
        let machine = setup.machine(&table().values());
        [ConstantRole::BucketElements, ConstantRole::GatherElements]
            .map(|role| bucket(&machine, role, &setup.data))
    }

    #[test]
    fn buckets_are_megatron_cores() {
        let of =
            |nodes, layout: Value, training: Value| buckets(&file("llama-3-8b", nodes, &layout, &training));
        // By data-parallel ranks, context parallelism among them.
        assert_eq!(of(4, json!({}), json!({})), [Some(40e6); 2]);
        assert_eq!(of(5, json!({}), json!({})), [Some(40e6); 2]);
        assert_eq!(of(16, json!({}), json!({})), [Some(128e6); 2]);
        assert_eq!(of(16, json!({"cp": 4}), json!({})), [Some(128e6); 2]);
        assert_eq!(of(256, json!({"tp": 2}), json!({})), [Some(1024e6); 2]);
        assert_eq!(of(256, json!({"tp": 2, "pp": 4}), json!({})), [Some(256e6); 2]);
        assert_eq!(of(256, json!({}), json!({"overlap": {"grad_reduce": false}})), [None; 2]);
        let mut sharded = file("llama-3-8b", 256, &json!({}), &json!({}));
        sharded["runtime"] = json!("megatron_fsdp");
        assert_eq!(buckets(&sharded), [None; 2]);
        sharded["layout"] = json!({"fsdp": {"strategy": "optim"}});
        assert_eq!(buckets(&sharded), [Some(2048e6); 2]);
        for framework in ["bridge 26.08", "nemo 25.02"] {
            for nodes in [4, 256] {
                let mut named = file("llama-3-8b", nodes, &json!({}), &json!({}));
                named["software"] = json!({"framework": framework});
                assert_eq!(buckets(&named), [Some(134_217_728.0); 2], "{framework} {nodes}");
            }
        }
    }

    /// Whatever a step waits for, more tokens in it take no less time: what they compute behind the host's launches hides no more of an
    /// exchange than the launches did.
    #[test]
    fn more_tokens_never_make_a_step_shorter() {
        let mut waits = 0;
        for (preset, gpu, nodes, layout, framework) in [
            ("kimi-linear-48b-a3b", "b200", 64, json!({"ep": 8}), "megatron-lm"),
            ("nemotron-3-nano", "h100-sxm", 32, json!({}), "megatron-lm"),
            ("gpt-oss-120b", "gb200", 32, json!({"tp": 2, "ep": 8}), "megatron-lm"),
            ("llama-4-maverick", "h100-sxm", 8, json!({"tp": 8, "ep": 16}), "nemo"),
            ("qwen3-235b-a22b", "b200", 32, json!({"tp": 2, "pp": 4, "ep": 16}), "bridge"),
            ("llama-3-8b", "h20", 8, json!({"tp": 2, "pp": 2, "vpp": 2}), "bridge"),
        ] {
            for dtype in ["bf16", "fp8_current"] {
                let mut before: f64 = 0.0;
                for seq_len in [512, 1024, 2048, 4096, 8192] {
                    let mut file = file(preset, nodes, &layout, &json!({"seq_len": seq_len, "dtype": dtype}));
                    file["cluster"] = json!({"gpu": gpu, "nodes": nodes, "gpus_per_node": 8});
                    file["software"] = json!({"framework": framework});
                    file["training"]["global_batch_size"] = json!(nodes * 8);
                    let TimeAnswer { step_seconds, breakdown, .. } = time(&file);
                    assert!(
                        step_seconds >= 0.999 * before,
                        "{preset} {dtype} {seq_len}: {step_seconds} {before}"
                    );
                    before = step_seconds;
                    waits += usize::from(breakdown.host.min(breakdown.data_parallel) > 0.05 * step_seconds);
                }
            }
        }
        assert!(waits > 5, "{waits}");
    }

    /// The setup of a plan of 2,048 GPUs, and its machine.
    fn large(software: &Value) -> (crate::time::setup::Setup, Machine) {
        let mut file = file("llama-3-8b", 256, &json!({"tp": 2}), &json!({}));
        file["software"] = software.clone();
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
        let setup = setup(&plan).unwrap();
        let machine = setup.machine(&table().values());
        (setup, machine)
    }

    #[test]
    fn a_bucket_goes_by_the_protocol_that_takes_less() {
        let (setup, machine) = large(&json!({"framework": "nemo 25.02"}));
        // Of 1,024 ranks on 256 nodes, 255 hops are between nodes and 768 inside.
        let quicker = machine.quicker(setup.data.dense);
        let (simple, quick) = (255.0 * 14.0 + 768.0 * 3.4, 255.0 * 4.0 + 768.0 * 1.9);
        assert!((quicker - quick / simple).abs() < 1e-9, "{quicker}");
        let exchange = Exchange { quicker, ..Exchange::default() };
        let (long, short) = (exchange.call(1.0, 6e-3), exchange.call(2e-3, 6e-3));
        assert!((long - 1.006).abs() < 1e-9, "{long}");
        assert!((short - (2e-3 / 0.92 + 6e-3 * quicker)).abs() < 1e-9, "{short}");
        // Hops of nanotron's network are its own, and in a domain there are none between domains.
        let (others, slow) = large(&json!({"profile": "nanotron-2024"}));
        assert_eq!(slow.quicker(others.data.dense), 1.0);
        assert_eq!(machine.quicker(setup.split.tp_group), 1.0);
    }

    #[test]
    fn a_pipelines_first_chunk_is_cut_and_the_outermost_bucket_holds_the_embedding() {
        let of = |embedding: f64, bucket, chunks, by_layer| {
            let exchange = Exchange { elements: 1000.0, embedding, units: 10.0, ..Exchange::default() };
            exchange.calls(bucket, chunks, by_layer)
        };
        assert_eq!(of(10.0, Some(40.0), 1.0, false), (25.0, 40.0));
        assert_eq!(of(90.0, Some(40.0), 1.0, false), (25.0, 90.0));
        assert_eq!(of(10.0, Some(4000.0), 1.0, false), (1.0, 1000.0));
        assert_eq!(of(10.0, None, 1.0, false), (1.0, 1000.0));
        assert_eq!(of(10.0, Some(40.0), 4.0, false), (3.0 + 7.0, 250.0 / 7.0));
        assert_eq!(of(300.0, None, 4.0, false), (4.0, 250.0));
        assert_eq!(of(10.0, None, 4.0, true), (10.0, 100.0));
    }

    #[test]
    fn one_reduction_a_step_is_no_slower_than_one_behind_each_micro_batch_on_any_network() {
        let mut shorter = 0;
        for pp in [1, 4] {
            for nic_gbps in [20, 100, 400] {
                for micro_batches in [1, 8] {
                    let seconds = ["last", "every"].map(|sync| {
                        let file = json!({"version": 1, "model": {"preset": "llama-3-70b"}, "runtime": "fsdp2",
                            "cluster": {"gpu": "h200", "nodes": 8, "nic_gbps": nic_gbps},
                            "layout": {"pp": pp, "fsdp": {"gradient_sync": sync}},
                            "training": {"micro_batch_size": 1, "global_batch_size": 64 / pp * micro_batches}});
                        let time = time(&file);
                        // What is added up whole takes memory traffic, which a fast network may not.
                        [time.step_seconds, time.breakdown.data_parallel]
                    });
                    let [last, every] = seconds;
                    let what = format!("pp {pp}, {nic_gbps} Gbit/s, {micro_batches}: {last:?} {every:?}");
                    match micro_batches {
                        // One micro batch's reduction is one a step, which a pipeline does after all of it.
                        1 => assert!(pp > 1 || (last[1] / every[1] - 1.0).abs() < 1e-9, "{what}"),
                        _ => assert!(last[1] <= every[1] && (pp == 1 || last[1] < every[1]), "{what}"),
                    }
                    shorter += usize::from(last[0] < 0.9 * every[0]);
                }
            }
        }
        assert!(shorter >= 2, "{shorter}");
    }

    #[test]
    fn the_worker_reduces_and_gathers_by_layer_beside_computing() {
        let of = |gpu: &str| {
            let mut plan = file("llama-3-8b", 4, &json!({}), &json!({"optimizer": {"distributed": true}}));
            plan["runtime"] = json!("native");
            plan["cluster"] = json!({"gpu": gpu, "nodes": 1, "gpus_per_node": 8});
            let plan = Plan::resolve(&parse_plan(&plan.to_string()).unwrap()).plan.unwrap();
            let data = setup(&plan).unwrap().data;
            (data.by_layer, [data.overlap_reduce, data.overlap_gather])
        };
        assert_eq!(of("h100-sxm"), ([true; 2], [true; 2]));
        // Over TCP nothing goes on beside computing.
        assert_eq!(of("cpu"), ([false, false], [false, false]));
        let exchange = Exchange { elements: 1000.0, embedding: 10.0, units: 10.0, ..Exchange::default() };
        assert_eq!(exchange.calls(None, 1.0, false), (1.0, 1000.0));
    }

    #[test]
    fn the_worker_gathers_and_reduces_units_beside_computing() {
        let of = |gpu: &str, runtime: &str, layout: Value| {
            let mut plan = file("llama-3-8b", 4, &layout, &json!({}));
            plan["runtime"] = json!(runtime);
            plan["cluster"] = json!({"gpu": gpu, "nodes": 1, "gpus_per_node": 8});
            let plan = Plan::resolve(&parse_plan(&plan.to_string()).unwrap()).plan.unwrap();
            let plan = Plan::resolve(&plan.executed()).plan.unwrap();
            let setup = setup(&plan).unwrap();
            let data = &setup.data;
            // Over TCP all of it is waited for.
            let step = setup.predict(&table().values());
            assert_eq!(
                step.hidden_gathering > 0.0,
                gpu != "cpu" && step.gathering > 0.0,
                "{gpu} {runtime} {layout}"
            );
            (data.by_layer, [data.overlap_reduce, data.overlap_gather])
        };
        for runtime in ["fsdp2", "megatron_fsdp"] {
            assert_eq!(of("h100-sxm", runtime, json!({})), ([true; 2], [true; 2]), "{runtime}");
            assert_eq!(of("cpu", runtime, json!({})), ([true; 2], [false; 2]), "{runtime}");
        }
        let flat = |strategy: &str| of("h100-sxm", "megatron_fsdp", json!({"fsdp": {"strategy": strategy}}));
        assert_eq!(flat("optim_grads"), ([true, false], [true, false]));
        assert_eq!(flat("optim"), ([false; 2], [false; 2]));
        // Of a pipeline, units are reduced in the last backward of each chunk.
        assert!(of("h100-sxm", "fsdp2", json!({"pp": 2})).1[0]);
    }

    #[test]
    fn replicas_of_shards_are_summed_beside_backward() {
        let seconds = |nodes: u64| {
            let mut plan = file("llama-3-8b", nodes, &json!({"dp_replicate": nodes}), &json!({}));
            plan["runtime"] = json!("fsdp2");
            time(&plan).step_seconds
        };
        // Shards of a node over 16 of them at 400 Gb/s for each GPU, in fp32, there and back.
        let all_reduce = 2.0 * (8.03e9 / 8.0) * 4.0 * (15.0 / 16.0) / 50e9;
        let more = seconds(16) - seconds(1);
        assert!(0.0 < more && more < 0.4 * all_reduce, "{more} of {all_reduce}");
    }

    /// With a constant batch for each GPU, eight times as many take little longer, and 64 times as many no less.
    #[test]
    fn steps_grow_little_with_gpus() {
        let separate = json!({"optimizer": {"distributed": false}});
        let cases = [
            ("llama-3-8b", json!({"tp": 2}), json!({})),
            ("llama-3-8b", json!({"tp": 2}), separate.clone()),
            ("llama-3-8b", json!({"tp": 4}), json!({"overlap": {"grad_reduce": false}})),
            ("llama-3-70b", json!({"tp": 8, "pp": 4}), json!({})),
            ("llama-3-70b", json!({"tp": 8, "pp": 4, "vpp": 5}), json!({})),
            ("qwen3-30b-a3b", json!({"ep": 8}), json!({})),
        ];
        for (preset, layout, training) in cases {
            let seconds =
                [256, 2048, 16_384].map(|nodes| time(&file(preset, nodes, &layout, &training)).step_seconds);
            let [few, more, most] = seconds;
            // But for the optimizer's state, of which each rank has less.
            assert!(few < 1.01 * more && more < 1.01 * most, "{preset} {layout} {training}: {seconds:?}");
            assert!(more < 1.35 * few, "{preset} {layout} {training}: {seconds:?}");
        }
    }
}
