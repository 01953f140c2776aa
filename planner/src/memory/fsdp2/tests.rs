//! Rules of FSDP2 that no tracker's case shows: what each setting changes, worked out by hand.

use serde_json::{Value, json};

use super::layer::layer;
use super::{Moment, moments};
use crate::memory::stage::Terms;
use crate::memory::wide::Wide;
use crate::memory::{answer, live_chunks};
use crate::plan::{Plan, parse_plan};

/// A plan of eight layers, four micro batches on two stages, where `change` says nothing else.
fn plan(change: impl Fn(&mut Value)) -> Plan {
    let mut plan = json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": 8, "hidden_size": 512, "ffn_hidden_size": 2048, "vocab_size": 4096,
            "attention": {"kind": "gqa", "heads": 8, "kv_heads": 2, "head_dim": 64}
        }},
        "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
        "runtime": "fsdp2",
        "layout": {"pp": 2},
        "training": {"seq_len": 1024, "micro_batch_size": 1, "global_batch_size": 8},
    });
    change(&mut plan);
    let file = parse_plan(&plan.to_string()).unwrap();
    let resolved = Plan::resolve(&file);
    resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
}

fn layer_elements() -> u64 {
    // Queries, keys, values, output; both parts of the MLP; two norms.
    512 * (8 + 2 * 2) * 64 + 8 * 64 * 512 + 3 * 512 * 2048 + 2 * 512
}

/// The fullest moment of a phase.
fn fullest(plan: &Plan, phase: &str) -> Moment {
    let found = moments(&Terms::new(plan), 0).into_iter().filter(|moment| moment.phase == phase);
    found.max_by(|one, other| one.total().total_cmp(&other.total())).unwrap()
}

#[test]
fn an_interleaved_schedule_reduces_chunk_by_chunk() {
    let of = |vpp: u64, batch: u64| {
        let plan = plan(|plan| {
            plan["layout"]["vpp"] = vpp.into();
            plan["training"]["global_batch_size"] = batch.into();
        });
        assert_eq!(live_chunks(&plan, 0).1, vpp);
        let embedding = 4096 * 512;
        u64::from(fullest(&plan, "backward").gradients).saturating_sub(4 * embedding) / 4 / layer_elements()
    };
    // Four layers on a stage: all of their sums in fp32 are alive with one chunk, or with a second round of micro
    // batches, and those of two of them where each chunk's last micro batch comes before the next chunk's first.
    assert_eq!([of(1, 8), of(2, 8), of(2, 16)], [4, 2, 4]);
}

#[test]
fn linear_layers_are_gathered_in_8_bits() {
    let of = |gather: bool| {
        let plan = plan(|plan| {
            plan["training"]["dtype"] = "fp8_current".into();
            plan["training"]["fp8_param_gather"] = gather.into();
        });
        u64::from(fullest(&plan, "backward").unsharded)
    };
    // Norms, embedding and output layer stay as they are.
    assert_eq!(of(false) - of(true), 4 * (layer_elements() - 2 * 512));
}

#[test]
fn the_stream_of_reductions_keeps_last_steps_gradients() {
    let one = plan(|plan| plan["layout"]["pp"] = 1.into());
    let head = fullest(&one, "head");
    // None of this step's gradients are there yet, and all that the step before had are kept.
    assert_eq!((head.reduced_before, head.absent), (head.absent, head.absent));
    let absent = u64::from(head.absent);
    assert!(absent >= 8 * layer_elements() * 4 / 8);
    let class = answer(&one).rank_classes.pop().unwrap();
    assert!(class.peak_reserved_bytes >= class.peak_allocated_bytes + absent);
    // With one rank nothing is reduced.
    let alone = plan(|plan| {
        plan["layout"]["pp"] = 1.into();
        plan["cluster"]["gpus_per_node"] = 1.into();
    });
    assert_eq!(fullest(&alone, "head").reduced_before, Wide::ZERO);
}

#[test]
fn context_parallelism_gathers_keys_and_values() {
    let of = |cp: u64| {
        let plan = plan(|plan| {
            plan["layout"] = json!({"cp": cp});
            plan["training"]["seq_len"] = (65_536 * cp).into();
        });
        u64::from(layer(&Terms::new(&plan), plan.model.layer_kind(0)).forward)
    };
    // Keys and values of 65,536 tokens on a rank, in two bytes.
    let pair = 2 * 2 * 65_536 * 512;
    assert_eq!(of(8) - of(4), 4 * pair);
}

#[test]
fn tensor_parallel_matrices_keep_whole_inputs() {
    let of = |sp: bool| {
        let plan = plan(|plan| {
            plan["layout"] = json!({"tp": 2, "sp": sp});
        });
        u64::from(fullest(&plan, "forward").activations.total())
    };
    // Without sequence parallelism the norms' inputs and statistics are of the whole sequence too; their outputs, which
    // matrices read, always are.
    let more = 1024 - 1024 / 2;
    assert_eq!(of(false) - of(true), 8 * 2 * more * (2 * 512 + 4));
}
