//! Lists are complete, in order, free of deadlock, and keep as much as they should.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

fn pipeline(schedule: Schedule, stages: u64, chunks: u64, microbatches: u64, group_size: u64) -> Pipeline {
    Pipeline { schedule, stages, chunks, microbatches, group_size }
}

/// `F0 F1 B0`; the chunk stands behind a point where there are several.
fn shown(pipeline: &Pipeline, stage: u64) -> String {
    let name = |action: &Action| {
        let letter = match action.kind {
            ActionKind::Forward => "F",
            ActionKind::Backward => "B",
            ActionKind::BackwardInput => "I",
            ActionKind::BackwardWeight => "W",
        };
        let chunk = if pipeline.chunks > 1 { format!(".{}", action.chunk) } else { String::new() };
        format!("{letter}{}{chunk}", action.microbatch)
    };
    actions(pipeline, stage).iter().map(name).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(pipeline: Pipeline, stage: u64, expected: &str) {
    assert_eq!(shown(&pipeline, stage), expected);
}

#[test]
fn small_lists() {
    let plain = pipeline(Schedule::OneFOneB, 3, 1, 4, 3);
    check(plain, 0, "F0 F1 F2 B0 F3 B1 B2 B3");
    check(plain, 2, "F0 B0 F1 B1 F2 B2 F3 B3");
    check(pipeline(Schedule::OneFOneB, 4, 1, 2, 4), 0, "F0 F1 B0 B1");
    check(pipeline(Schedule::Gpipe, 2, 1, 3, 2), 1, "F0 F1 F2 B0 B1 B2");
    // One stage alone needs no schedule.
    for schedule in [Schedule::OneFOneB, Schedule::Gpipe, Schedule::ZbH1] {
        check(pipeline(schedule, 1, 1, 2, 1), 0, "F0 B0 F1 B1");
    }
}

#[test]
fn interleaved_takes_groups_through_chunks() {
    // Groups of 2, then the 3 that are left over, which go together.
    let uneven = pipeline(Schedule::Interleaved, 2, 2, 5, 3);
    check(
        uneven,
        1,
        "F0.0 F1.0 F2.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.0 B0.0 F4.0 B1.0 F3.1 B2.0 F4.1 B3.1 B4.1 B3.0 B4.0",
    );
    check(
        pipeline(Schedule::Interleaved, 2, 2, 4, 2),
        0,
        "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0",
    );
}

#[test]
fn zero_bubble_puts_weight_gradients_off() {
    let half = pipeline(Schedule::ZbH1, 3, 1, 4, 3);
    check(half, 0, "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
    check(half, 2, "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
    check(
        pipeline(Schedule::Zbv, 2, 2, 3, 2),
        0,
        "F0.0 F1.0 F2.0 F0.1 I0.1 W0.1 F1.1 I1.1 W1.1 I0.0 W0.0 F2.1 I2.1 W2.1 I1.0 W1.0 I2.0 W2.0",
    );
}

#[test]
fn megatrons_example_of_live_chunks() {
    // model-parallel 4, two chunks, any number of micro batches: 11, 9, 7, 5 chunks.
    let interleaved = pipeline(Schedule::Interleaved, 4, 2, 16, 4);
    let live: Vec<u64> = (0..4).map(|stage| live_chunks(&interleaved, stage)).collect();
    assert_eq!(live, [11, 9, 7, 5]);
    let plain = pipeline(Schedule::OneFOneB, 4, 1, 16, 4);
    assert_eq!((0..4).map(|stage| live_chunks(&plain, stage)).collect::<Vec<_>>(), [4, 3, 2, 1]);
}

/// From, to, and what travels.
type Channel = (u64, u64, Payload);

/// Runs all stages at once, each action taking as long as `takes` says, and gives the time when the last one ends. Fails
/// when stages wait for each other, or when a channel holds something else than is expected.
fn run(pipeline: &Pipeline, takes: impl Fn(&Action) -> u64) -> u64 {
    let lists: Vec<Vec<StageStep>> = (0..pipeline.stages).map(|stage| steps(pipeline, stage)).collect();
    let mut at = vec![0; lists.len()];
    let mut clock = vec![0u64; lists.len()];
    let mut done = BTreeSet::new();
    let mut channels: BTreeMap<Channel, VecDeque<(u64, u64, u64)>> = BTreeMap::new();
    loop {
        let mut moved = false;
        for stage in 0..lists.len() {
            while let Some(step) = lists[stage].get(at[stage]) {
                let here = stage as u64;
                match step {
                    // The channels of this test keep what was sent; `both_ends_meet` knows none.
                    StageStep::Expect(_) => {}
                    StageStep::Receive(Transfer { payload, microbatch, chunk, peer }) => {
                        let Some((sent, micro, to)) =
                            channels.get_mut(&(*peer, here, *payload)).and_then(VecDeque::pop_front)
                        else {
                            break;
                        };
                        assert_eq!((micro, to), (*microbatch, *chunk), "{pipeline:?} {here} from {peer}");
                        clock[stage] = clock[stage].max(sent);
                    }
                    StageStep::Send(Transfer { payload, microbatch, chunk, peer }) => {
                        let after = *payload == Payload::Activation;
                        let (to, there) = pipeline.neighbour(here, *chunk, after).unwrap();
                        assert_eq!(to, *peer);
                        let sent = (clock[stage], *microbatch, there);
                        channels.entry((here, to, *payload)).or_default().push_back(sent);
                    }
                    StageStep::Compute(action) => {
                        check_handover(pipeline, here, action, &mut done);
                        clock[stage] += takes(action);
                    }
                }
                at[stage] += 1;
                moved = true;
            }
        }
        if at.iter().zip(&lists).all(|(at, list)| *at == list.len()) {
            assert!(channels.values().all(VecDeque::is_empty), "{pipeline:?}: sent but not taken");
            return clock.into_iter().max().unwrap_or(0);
        }
        assert!(moved, "{pipeline:?}: deadlock at {at:?}");
    }
}

/// Runs all stages where a message goes over only while its sender sends it and its receiver expects it: both wait there,
/// and each does one thing at a time. Fails when they wait for each other, or when something is needed that was not
/// expected. Gives the most messages that a stage has expected and not yet needed.
fn both_ends_meet(pipeline: &Pipeline, list: fn(&Pipeline, u64) -> Vec<StageStep>) -> usize {
    let lists: Vec<Vec<StageStep>> = (0..pipeline.stages).map(|stage| list(pipeline, stage)).collect();
    let mut at = vec![0; lists.len()];
    let mut taken: Vec<BTreeSet<(Payload, u64, u64)>> = vec![BTreeSet::new(); lists.len()];
    let mut most = 0;
    loop {
        let mut moved = false;
        for stage in 0..lists.len() {
            while let Some(step) = lists[stage].get(at[stage]) {
                match step {
                    StageStep::Expect(_) => break,
                    StageStep::Send(sent) => {
                        let peer = sent.peer as usize;
                        let Some(StageStep::Expect(expected)) = lists[peer].get(at[peer]) else { break };
                        if expected.peer != stage as u64 {
                            break;
                        }
                        let after = sent.payload == Payload::Activation;
                        let (_, there) = pipeline.neighbour(stage as u64, sent.chunk, after).unwrap();
                        let same = (sent.payload, sent.microbatch, there);
                        assert_eq!(
                            (expected.payload, expected.microbatch, expected.chunk),
                            same,
                            "{pipeline:?}"
                        );
                        assert!(taken[peer].insert(same));
                        most = most.max(taken[peer].len());
                        at[peer] += 1;
                    }
                    StageStep::Receive(Transfer { payload, microbatch, chunk, .. }) => {
                        let there = taken[stage].remove(&(*payload, *microbatch, *chunk));
                        assert!(there, "{pipeline:?}: stage {stage} needs {step:?}, which it did not expect");
                    }
                    StageStep::Compute(_) => {}
                }
                at[stage] += 1;
                moved = true;
            }
        }
        if at.iter().zip(&lists).all(|(at, list)| *at == list.len()) {
            assert!(taken.iter().all(BTreeSet::is_empty), "{pipeline:?}: taken but not needed");
            return most;
        }
        assert!(moved, "{pipeline:?}: deadlock at {at:?}");
    }
}

/// What a stage hands over to itself must be there.
fn check_handover(
    pipeline: &Pipeline,
    stage: u64,
    action: &Action,
    done: &mut BTreeSet<(u64, u64, Payload)>,
) {
    let here = pipeline.virtual_stage(stage, action.chunk);
    let (payload, before) = match action.kind {
        ActionKind::Forward => (Payload::Activation, here.checked_sub(1)),
        ActionKind::Backward | ActionKind::BackwardInput => {
            (Payload::Gradient, Some(here + 1).filter(|&next| next < pipeline.virtual_stages()))
        }
        ActionKind::BackwardWeight => return,
    };
    if let Some(before) = before {
        assert!(done.contains(&(before, action.microbatch, payload)), "{pipeline:?} {action:?}");
    }
    done.insert((here, action.microbatch, payload));
}

/// Every micro batch goes once through every chunk: forward, then backward, in one piece or input first.
fn check_complete(pipeline: &Pipeline, stage: u64) {
    let list = actions(pipeline, stage);
    let mut seen: BTreeMap<(u64, u64), Vec<ActionKind>> = BTreeMap::new();
    for action in &list {
        seen.entry((action.microbatch, action.chunk)).or_default().push(action.kind);
    }
    assert_eq!(seen.len() as u64, pipeline.microbatches * pipeline.chunks, "{pipeline:?}");
    for ((microbatch, chunk), kinds) in seen {
        assert!(microbatch < pipeline.microbatches && chunk < pipeline.chunks);
        let whole = kinds == [ActionKind::Forward, ActionKind::Backward];
        let split = kinds == [ActionKind::Forward, ActionKind::BackwardInput, ActionKind::BackwardWeight];
        assert!(whole || split, "{pipeline:?} stage {stage}: {kinds:?}");
    }
}

fn shapes() -> impl Strategy<Value = Pipeline> {
    let schedules =
        [Schedule::OneFOneB, Schedule::Interleaved, Schedule::Gpipe, Schedule::ZbH1, Schedule::Zbv];
    (0..schedules.len(), 1..9u64, 2..5u64, 1..40u64, 0..6u64).prop_map(
        move |(which, stages, chunks, microbatches, more)| {
            let schedule = schedules[which];
            match schedule {
                Schedule::Interleaved => {
                    let stages = stages.max(2);
                    let group_size = stages + more;
                    // Megatron-Core's rule: the last group is empty or at least as large as the pipeline is deep.
                    let mut microbatches = microbatches.max(group_size);
                    if microbatches % group_size < stages {
                        microbatches -= microbatches % group_size;
                    }
                    pipeline(schedule, stages, chunks, microbatches, group_size)
                }
                Schedule::Zbv => pipeline(schedule, stages.max(2), 2, microbatches, stages),
                _ => pipeline(schedule, stages, 1, microbatches, stages),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lists_are_complete_and_no_order_deadlocks(pipeline in shapes(), forward in 1..5u64, back in 1..5u64) {
        for stage in 0..pipeline.stages {
            check_complete(&pipeline, stage);
            for chunk in 0..pipeline.chunks {
                let there = pipeline.virtual_stage(stage, chunk);
                prop_assert_eq!(pipeline.place(there), (stage, chunk));
            }
        }
        run(&pipeline, |action| if action.kind == ActionKind::Forward { forward } else { back });
    }

    #[test]
    fn no_schedule_deadlocks_where_both_ends_of_a_message_must_meet(pipeline in shapes()) {
        both_ends_meet(&pipeline, steps);
    }

    #[test]
    fn forwards_alone_are_complete_and_free_of_deadlock(pipeline in shapes()) {
        both_ends_meet(&pipeline, forward_steps);
        for stage in 0..pipeline.stages {
            let list = forward_steps(&pipeline, stage);
            let computed = list.iter().filter_map(|step| if let StageStep::Compute(action) = step { Some(*action) } else { None });
            let computed: BTreeSet<(u64, u64)> = computed
                .map(|action| {
                    assert_eq!(action.kind, ActionKind::Forward);
                    (action.microbatch, action.chunk)
                })
                .collect();
            prop_assert_eq!(computed.len() as u64, pipeline.microbatches * pipeline.chunks);
        }
    }

    #[test]
    fn closed_counts_are_the_lists(pipeline in shapes(), saved in prop::collection::vec((0..1000u128, 0..1000u128), 4)) {
        let chunks: Vec<ChunkBytes> = saved
            .into_iter()
            .map(|(saved, kept)| ChunkBytes { saved, kept_for_weights: kept.min(saved) })
            .collect();
        let (last, chunk) = pipeline.place(pipeline.virtual_stages() - 1);
        let mut of_last = actions(&pipeline, last);
        of_last.retain(|action| action.chunk == chunk);
        prop_assert_eq!(live_heads(&pipeline), super::live::peak_live(&of_last));
        let same = [ChunkBytes { saved: 1, kept_for_weights: 1 }; 4];
        for stage in 0..pipeline.stages {
            let list = actions(&pipeline, stage);
            prop_assert_eq!(live_chunks(&pipeline, stage), super::live::peak_live(&list));
            prop_assert_eq!(peak_bytes(&pipeline, stage, &same), u128::from(super::live::peak_live(&list)));
            let (mut live, mut most) = (0, 0);
            for action in &list {
                let bytes = chunks[action.chunk as usize];
                match action.kind {
                    ActionKind::Forward => live += bytes.saved,
                    ActionKind::Backward => live -= bytes.saved,
                    ActionKind::BackwardInput => live -= bytes.saved - bytes.kept_for_weights,
                    ActionKind::BackwardWeight => live -= bytes.kept_for_weights,
                }
                most = most.max(live);
            }
            prop_assert_eq!(peak_bytes(&pipeline, stage, &chunks), most);
        }
    }
}

/// Time of a step beyond the work of one stage, in units of one forward: forward, input and weight gradients take one
/// each.
#[track_caller]
fn check_bubble(pipeline: Pipeline, expected: u64) {
    let takes = |action: &Action| if action.kind == ActionKind::Backward { 2 } else { 1 };
    let work = 3 * pipeline.microbatches * pipeline.chunks;
    assert_eq!(run(&pipeline, takes) - work, expected, "{pipeline:?}");
}

#[test]
fn bubbles_are_the_published_ones() {
    for stages in [2, 4, 8] {
        // (p - 1)(tf + tb), of a chunk where there are several.
        check_bubble(pipeline(Schedule::OneFOneB, stages, 1, 24, stages), 3 * (stages - 1));
        check_bubble(pipeline(Schedule::Gpipe, stages, 1, 24, stages), 3 * (stages - 1));
        check_bubble(pipeline(Schedule::Interleaved, stages, 3, 24, stages), 3 * (stages - 1));
        // (p - 1)(tf + tb - 2 tw)
        check_bubble(pipeline(Schedule::ZbH1, stages, 1, 24, stages), stages - 1);
        // Nothing but the fill: the last stage waits for p - 1 forwards, and nobody after that.
        check_bubble(pipeline(Schedule::Zbv, stages, 2, 24, stages), stages - 1);
    }
}

#[test]
fn large_lists_are_quick() {
    // DeepSeek-V3's shape: 16 stages of 2 chunks, 512 micro batches.
    let large = pipeline(Schedule::Interleaved, 16, 2, 512, 16);
    assert_eq!(actions(&large, 0).len(), 2048);
    run(&large, |_| 1);
    both_ends_meet(&large, steps);
    assert!(large.shortened().microbatches < 128);
}
