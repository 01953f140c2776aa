//! Pipelines train the same model: every schedule, uneven stages, tied embeddings, recomputation, with other axes.

use planner::schedule;
use planner::wire::Event;
use serde_json::{Value, json};

use crate::harness::{Run, set, tiny};
use crate::parity::{check, same};

/// `layers` layers and 8 sequences a step.
fn model(layers: u64) -> impl Fn(&mut Value) {
    move |plan| {
        plan["model"]["architecture"]["num_layers"] = layers.into();
        plan["training"]["global_batch_size"] = 8.into();
    }
}

/// Fields of `layout` besides tp.
fn layout(fields: Value) -> impl Fn(&mut Value) {
    move |plan| {
        for (name, value) in fields.as_object().unwrap() {
            plan["layout"][name] = value.clone();
        }
    }
}

#[test]
fn one_forward_one_backward() {
    check(2, 1, same, layout(json!({"pp": 2})));
    check(4, 1, model(4), layout(json!({"pp": 4})));
    check(4, 2, same, layout(json!({"pp": 2})));
    check(4, 1, model(3), layout(json!({"pp": 2, "first_stage_layers": 1})));
}

#[test]
fn gpipe() {
    check(2, 1, same, layout(json!({"pp": 2, "schedule": "gpipe"})));
}

#[test]
fn interleaved() {
    check(2, 1, model(4), layout(json!({"pp": 2, "vpp": 2})));
    // Groups of 3, then the 5 - 3 = 2 that are left over.
    let five = |plan: &mut Value| {
        model(4)(plan);
        plan["training"]["global_batch_size"] = 5.into();
    };
    check(2, 1, five, layout(json!({"pp": 2, "vpp": 2, "microbatch_group_size": 3})));
    check(4, 2, model(4), layout(json!({"pp": 2, "vpp": 2})));
}

#[test]
fn layout_strings() {
    check(2, 1, model(3), layout(json!({"pp": 2, "pipeline_layout": "Ettt|L"})));
    check(2, 1, model(4), layout(json!({"pp": 2, "vpp": 2, "pipeline_layout": "E|tt|t|tL"})));
}

#[test]
fn zero_bubble() {
    check(4, 1, model(4), layout(json!({"pp": 4, "schedule": "zb-h1"})));
    check(4, 2, same, layout(json!({"pp": 2, "schedule": "zb-h1"})));
    check(2, 1, model(4), layout(json!({"pp": 2, "vpp": 2, "schedule": "zbv"})));
    check(4, 2, model(4), layout(json!({"pp": 2, "vpp": 2, "schedule": "zbv"})));
}

#[test]
fn tied_embeddings_across_stages() {
    let tied = |plan: &mut Value| {
        model(4)(plan);
        plan["model"]["architecture"]["tied_embeddings"] = true.into();
    };
    check(4, 2, tied, layout(json!({"pp": 2})));
    check(4, 1, tied, layout(json!({"pp": 2, "schedule": "zb-h1"})));
    check(2, 1, tied, layout(json!({"pp": 2, "vpp": 2, "schedule": "zbv"})));
}

/// Recomputation changes no number, with a pipeline or without.
fn check_recompute(recompute: Value) {
    let again = move |plan: &mut Value| plan["training"]["recompute"] = recompute.clone();
    check(2, 2, model(3), &again);
    check(2, 1, model(4), |plan| {
        again(plan);
        layout(json!({"pp": 2, "vpp": 2, "schedule": "zbv"}))(plan);
    });
}

#[test]
fn full_recomputation() {
    check_recompute(json!({"granularity": "full", "method": "uniform", "num_layers": 2}));
    check_recompute(json!({"granularity": "full", "method": "block", "num_layers": 1}));
}

#[test]
fn selective_recomputation() {
    check_recompute(json!({"granularity": "selective", "modules": ["core_attn", "mlp", "layernorm"]}));
}

#[test]
fn the_schedule_is_executed_as_planned_and_recorded() {
    let mut plan = tiny(2, 1);
    model(4)(&mut plan);
    layout(json!({"pp": 2, "vpp": 2, "schedule": "zbv"}))(&mut plan);
    set(&mut plan, "run.steps", 4);
    let run = Run::complete(&plan);
    let file = planner::parse_plan(&plan.to_string()).unwrap();
    let pipeline = planner::Plan::resolve(&file).plan.unwrap().pipeline();
    for rank in 0..2 {
        let records = run.records(rank).into_iter();
        let traces: Vec<_> = records
            .filter_map(|record| if let Event::Trace(trace) = record.event { Some(trace) } else { None })
            .collect();
        assert_eq!(traces.iter().map(|trace| trace.step).collect::<Vec<_>>(), [1, 2, 3]);
        for (trace, step) in traces.iter().zip(run.steps(rank)) {
            let did: Vec<schedule::StageStep> = trace.steps.iter().map(|step| step.did).collect();
            let mut planned = schedule::steps(&pipeline, rank as u64);
            planned.retain(|step| !matches!(step, schedule::StageStep::Expect(_)));
            assert_eq!((did, trace.left_out), (planned, 0));
            let mut end = 0.0;
            for traced in &trace.steps {
                assert!(traced.start >= end && traced.seconds >= 0.0, "{traced:?}");
                end = traced.start + traced.seconds;
            }
            assert!(end <= step.seconds, "{end} of {}", step.seconds);
        }
    }
}
