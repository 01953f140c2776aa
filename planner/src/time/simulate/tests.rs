use proptest::prelude::*;

use super::*;
use crate::schedule::Chunks;
use crate::settings::Schedule;

const SECONDS: ChunkSeconds = ChunkSeconds { forward: 2.0, backward_input: 3.0, backward_weight: 1.0 };

fn pipeline(schedule: Schedule, stages: u64, chunks: u64, microbatches: u64) -> Pipeline {
    Pipeline { schedule, stages, chunks, microbatches, group_size: stages }
}

/// Length of a step of equal chunks.
fn check(schedule: Schedule, (stages, chunks, microbatches): (u64, u64, u64), expected: f64) {
    let pipeline = pipeline(schedule, stages, chunks, microbatches);
    let timeline = simulate(&pipeline, &StageCosts::uniform(&pipeline, SECONDS)).unwrap();
    assert!(
        (timeline.seconds - expected).abs() < 1e-9,
        "{pipeline:?}: {} and not {expected}",
        timeline.seconds
    );
    assert_eq!(timeline.actions() as u64, action_count(&pipeline));
}

#[test]
fn steps_are_as_long_as_the_papers_say() {
    // A whole backward takes 4, so a micro batch takes 6 on a stage.
    check(Schedule::OneFOneB, (1, 1, 5), 5.0 * 6.0);
    check(Schedule::OneFOneB, (4, 1, 8), (8.0 + 3.0) * 6.0);
    check(Schedule::OneFOneB, (4, 1, 2), (2.0 + 3.0) * 6.0);
    check(Schedule::Gpipe, (4, 1, 8), (8.0 + 3.0) * 6.0);
    // Of `chunks` chunks each takes 6: the bubble is that of one chunk.
    check(Schedule::Interleaved, (4, 2, 8), 8.0 * 2.0 * 6.0 + 3.0 * 6.0);
    check(Schedule::Interleaved, (4, 3, 12), 12.0 * 3.0 * 6.0 + 3.0 * 6.0);
    check(Schedule::Interleaved, (1, 3, 4), 4.0 * 3.0 * 6.0);
}

#[test]
fn zero_bubble_leaves_less_idle() {
    let bubble = |schedule, chunks, seconds| {
        let pipeline = pipeline(schedule, 4, chunks, 16);
        simulate(&pipeline, &StageCosts::uniform(&pipeline, seconds)).unwrap().bubble()
    };
    let even = ChunkSeconds { forward: 1.0, backward_input: 1.0, backward_weight: 1.0 };
    let one = bubble(Schedule::OneFOneB, 1, even);
    assert!((one - 3.0 / 19.0).abs() < 1e-12, "{one}");
    let h1 = bubble(Schedule::ZbH1, 1, even);
    // (p - 1)(forward + input - weights) of idle time, a third of 1F1B's.
    assert!((h1 - 3.0 / (16.0 * 3.0 + 3.0)).abs() < 1e-12, "{h1}");
    let zbv = bubble(Schedule::Zbv, 2, even);
    assert!(zbv < h1, "{zbv} {h1}");
}

/// Every action starts as soon as it may, and not before: held against the rule itself, action by action.
fn check_rule(timeline: &Timeline, costs: &StageCosts) {
    let pipeline = &timeline.pipeline;
    let find = |virtual_stage: u64, microbatch: u64, forward: bool| {
        let (stage, chunk) = pipeline.place(virtual_stage);
        let span = timeline.stages[stage as usize].spans.iter().find(|span| {
            let Action { kind, .. } = span.action;
            let right = if forward {
                kind == ActionKind::Forward
            } else {
                matches!(kind, ActionKind::Backward | ActionKind::BackwardInput)
            };
            right && (span.action.microbatch, span.action.chunk) == (microbatch, chunk)
        });
        (stage, *span.unwrap())
    };
    for (stage, line) in timeline.stages.iter().enumerate() {
        let mut free = 0.0f64;
        for span in &line.spans {
            let Action { kind, microbatch, chunk } = span.action;
            let here = pipeline.virtual_stage(stage as u64, chunk);
            let last = here + 1 == pipeline.virtual_stages();
            let from = match kind {
                ActionKind::Forward => here.checked_sub(1).map(|before| find(before, microbatch, true)),
                ActionKind::BackwardWeight => None,
                _ if last => None,
                _ => Some(find(here + 1, microbatch, false)),
            };
            let mut earliest = free;
            if let Some((peer, from)) = from {
                let transfer = if peer as usize == stage { 0.0 } else { costs.transfer };
                earliest = earliest.max(from.end + transfer);
            }
            assert_eq!(span.start, earliest, "stage {stage}, {:?}", span.action);
            if kind != ActionKind::Forward {
                assert!(find(here, microbatch, true).1.end <= span.start, "{:?}", span.action);
            }
            assert!(span.end >= span.start && span.free >= span.end);
            free = span.free;
        }
        assert!(free <= timeline.seconds);
    }
}

/// A path is a chain without a gap but transfers, from the start of the step to its end.
fn check_path(timeline: &Timeline) {
    let path = timeline.critical_path();
    let span = |link: &PathStep| timeline.stages[link.stage].spans[link.position];
    assert_eq!(span(path.first().unwrap()).start, 0.0);
    assert_eq!(span(path.last().unwrap()).free, timeline.seconds);
    for pair in path.windows(2) {
        let (before, after) = (span(&pair[0]), span(&pair[1]));
        let expected =
            if pair[0].stage == pair[1].stage { before.free } else { before.end + timeline.transfer };
        assert_eq!(after.start, expected, "{pair:?}");
    }
}

fn any_pipeline() -> impl Strategy<Value = Pipeline> {
    let schedules = prop_oneof![
        Just(Schedule::OneFOneB),
        Just(Schedule::Interleaved),
        Just(Schedule::Gpipe),
        Just(Schedule::ZbH1),
        Just(Schedule::Zbv)
    ];
    (schedules, 2u64..6, 2u64..4, 1u64..13, 0u64..4).prop_map(
        |(schedule, stages, chunks, microbatches, more)| {
            let chunks = match schedule {
                Schedule::Interleaved => chunks,
                Schedule::Zbv => 2,
                _ => 1,
            };
            let group_size = stages + more;
            // Megatron-Core refuses groups of fewer micro batches than stages, and its lists would wait for ever.
            let left = microbatches % group_size;
            let short = schedule == Schedule::Interleaved && 0 < left && left < stages;
            let microbatches = if short { microbatches - left + stages } else { microbatches };
            Pipeline { schedule, stages, chunks, microbatches, group_size }
        },
    )
}

fn any_costs(pipeline: Pipeline) -> impl Strategy<Value = StageCosts> {
    let count = pipeline.virtual_stages() as usize;
    let chunk = (0.0..2.0, 0.0..2.0, 0.0..2.0).prop_map(|(forward, backward_input, backward_weight)| {
        ChunkSeconds { forward, backward_input, backward_weight }
    });
    (
        proptest::collection::vec(chunk, count),
        prop_oneof![Just(0.0), 0.0..0.5],
        prop_oneof![Just(0.0), Just(1.0), 0.0..1.0],
    )
        .prop_map(|(chunks, transfer, exposed)| StageCosts { chunks, transfer, exposed })
}

proptest! {
    #[test]
    fn every_action_starts_as_soon_as_it_may(
        (pipeline, costs) in any_pipeline().prop_flat_map(|pipeline| (Just(pipeline), any_costs(pipeline)))
    ) {
        match simulate(&pipeline, &costs) {
            Ok(timeline) => {
                check_rule(&timeline, &costs);
                check_path(&timeline);
            }
            Err(error) => panic!("{pipeline:?}: {error}"),
        }
    }
}

fn list(text: &str) -> Vec<Action> {
    let one = |word: &str| {
        let (kind, rest) = word.split_at(1);
        let kind = match kind {
            "F" => ActionKind::Forward,
            "B" => ActionKind::Backward,
            "I" => ActionKind::BackwardInput,
            _ => ActionKind::BackwardWeight,
        };
        Action { kind, microbatch: rest.parse().unwrap(), chunk: 0 }
    };
    text.split_whitespace().map(one).collect()
}

/// What is said about lists of two stages with two micro batches.
fn check_lists(lists: [&str; 2], expected: &str) {
    let pipeline = pipeline(Schedule::OneFOneB, 2, 1, 2);
    let lists = lists.map(list);
    let found = match simulate_lists(&pipeline, &lists, &StageCosts::uniform(&pipeline, SECONDS)) {
        Ok(timeline) => format!("{} s", timeline.seconds),
        Err(error) => error.to_string(),
    };
    assert_eq!(found, expected);
}

#[test]
fn lists_that_can_not_be_run_are_named() {
    check_lists(["F0 F1 B0 B1", "F0 B0 F1 B1"], "18 s");
    check_lists(["F0 F1 B1 B0", "F0 F1 B1 B0"], "18 s");
    check_lists(["F0 I0 W0 F1 I1 W1", "F0 I0 W0 F1 I1 W1"], "22 s");
    check_lists(
        ["F0 B0 F1 B1", "F1 F0 B0 B1"],
        "stage 0 waits for ever before action 1 of its list, backward of micro batch 0, chunk 0: what it needs is never made before it",
    );
    check_lists(
        ["F0 F1 B0 B1", "B0 F0 F1 B1"],
        "stage 0 waits for ever before action 2 of its list, backward of micro batch 0, chunk 0: what it needs is never made before it",
    );
    check_lists(
        ["F0 W0 F1", "F0 F1"],
        "stage 0 waits for ever before action 1 of its list, backward of the weights of micro batch 0, chunk 0: what it needs is never made before it",
    );
    check_lists(
        ["F0 F2", ""],
        "action 1 of stage 0 is forward of micro batch 2, chunk 0, and the step has 2 micro batches and 1 chunks a stage",
    );
}

#[test]
fn what_is_no_cost_is_refused() {
    let pipeline = pipeline(Schedule::OneFOneB, 2, 1, 2);
    let refused = |change: &dyn Fn(&mut StageCosts)| {
        let mut costs = StageCosts::uniform(&pipeline, SECONDS);
        change(&mut costs);
        simulate(&pipeline, &costs).unwrap_err().to_string()
    };
    assert!(refused(&|costs| costs.transfer = f64::NAN).contains("NaN is no duration"));
    assert!(refused(&|costs| costs.chunks[1].forward = -1.0).contains("-1 is no duration"));
    assert!(refused(&|costs| costs.chunks.clear()).contains("0 chunks"));
    let long = Pipeline { microbatches: 1_000_000_000, ..pipeline };
    let error = simulate(&long, &StageCosts::uniform(&pipeline, SECONDS)).unwrap_err();
    assert_eq!(error, SimulationError::TooLong { actions: 4_000_000_000 });
}

#[test]
fn sends_that_block_take_the_sender_and_others_do_not() {
    let pipeline = pipeline(Schedule::OneFOneB, 3, 1, 6);
    let with = |exposed| {
        let costs = StageCosts { transfer: 0.5, exposed, ..StageCosts::uniform(&pipeline, SECONDS) };
        simulate(&pipeline, &costs).unwrap()
    };
    let (blocking, overlapped) = (with(1.0), with(0.0));
    assert!(blocking.seconds > overlapped.seconds);
    assert_eq!(blocking.stages[1].sending, 6.0 * 2.0 * 0.5);
    assert_eq!(blocking.stages[0].sending, 6.0 * 0.5);
    assert_eq!(overlapped.stages[1].sending, 0.0);
}

/// Lengths by the rhythm of the steady state, and by all actions; lists that wait for ever do so either way.
fn check_length(pipeline: &Pipeline, costs: &StageCosts) {
    let whole = simulate(pipeline, costs).map(|timeline| timeline.seconds);
    match (simulated_length(pipeline, costs, MAX_ACTIONS), whole) {
        (Ok(short), Ok(whole)) => {
            assert!((short / whole - 1.0).abs() < 1e-10, "{pipeline:?}, {costs:?}: {short} and not {whole}");
        }
        (short, whole) => assert_eq!(short, whole),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_long_step_is_as_long_as_all_of_its_actions(
        schedule in prop::sample::select(Schedule::ALL.to_vec()), stages in 1u64..9, chunks in 1u64..5, microbatches in 1u64..300,
        group in 1u64..7, transfer in prop::sample::select(vec![0.0, 0.01, 0.3, 4.0]), exposed in prop::sample::select(vec![0.0, 0.4, 1.0]),
        seconds in prop::collection::vec((0.1f64..3.0, 0.1f64..3.0, 0.1f64..3.0), 36), alike in any::<bool>(),
    ) {
        let chunks = match schedule.kind().chunks {
            Chunks::One => 1,
            Chunks::Several => chunks.max(2),
            Chunks::Two => 2,
        };
        // Megatron-Core takes no smaller groups.
        let pipeline = Pipeline { schedule, stages, chunks, microbatches, group_size: stages + group - 1 };
        let each = |place: usize| {
            let (forward, backward_input, backward_weight) = seconds[if alike { 0 } else { place }];
            ChunkSeconds { forward, backward_input, backward_weight }
        };
        let costs = StageCosts {
            chunks: (0..(stages * chunks) as usize).map(each).collect(), transfer, exposed,
        };
        check_length(&pipeline, &costs);
    }
}

#[test]
fn the_rhythm_of_a_long_step_is_found_and_told_from_one_that_is_still_changing() {
    for (schedule, chunks) in [(Schedule::OneFOneB, 1), (Schedule::Interleaved, 3)] {
        let pipeline = pipeline(schedule, 6, chunks, 1200);
        let costs = StageCosts::uniform(&pipeline, SECONDS);
        let rhythm = steady::Rhythm::of(&pipeline).unwrap();
        assert!(rhythm.length(&pipeline, &costs, MAX_ACTIONS).is_some(), "{schedule:?}");
        check_length(&pipeline, &costs);
        // A later stage that is slower by so little that it holds the first one up only after hundreds of micro batches.
        let mut late = costs;
        for place in &mut late.chunks[4 * chunks as usize..5 * chunks as usize] {
            place.forward += 0.002;
        }
        check_length(&pipeline, &late);
    }
}

#[test]
fn a_pipeline_of_nothing_is_refused_and_not_divided_by() {
    for (stages, chunks, group_size) in
        [(0, 0, 0), (1, 0, 0), (u64::MAX, 1, u64::MAX), (u64::MAX, u64::MAX, 1)]
    {
        let pipeline =
            Pipeline { schedule: Schedule::Interleaved, stages, chunks, microbatches: 4, group_size };
        let costs = StageCosts::default();
        assert_eq!(
            simulated_length(&pipeline, &costs, MAX_ACTIONS),
            simulate(&pipeline, &costs).map(|timeline| timeline.seconds),
            "{pipeline:?}"
        );
    }
}

#[test]
fn a_step_of_any_number_of_micro_batches_has_a_length_where_its_rhythm_shows() {
    for (schedule, chunks) in [(Schedule::OneFOneB, 1), (Schedule::Interleaved, 3)] {
        let of = |microbatches| pipeline(schedule, 8, chunks, microbatches);
        let costs = StageCosts { transfer: 0.05, exposed: 0.5, ..StageCosts::uniform(&of(8), SECONDS) };
        let length = |microbatches, most| simulated_length(&of(microbatches), &costs, most);
        // Each period more takes as long, whose groups divide 1,680.
        let [one, two, many] =
            [1_680, 3_360, 8_400_000].map(|microbatches| length(microbatches, 1 << 14).unwrap());
        let expected = one + (two - one) * 4_999.0;
        assert!((many / expected - 1.0).abs() < 1e-9, "{schedule:?}: {many} and not {expected}");
        assert!(matches!(length(8_000_000, 100), Err(SimulationError::TooLong { .. })), "{schedule:?}");
    }
    let all = pipeline(Schedule::Gpipe, 8, 1, 8_000_000);
    let costs = StageCosts::uniform(&all, SECONDS);
    assert!(matches!(simulated_length(&all, &costs, 1 << 14), Err(SimulationError::TooLong { .. })));
}

#[test]
fn the_length_of_a_deep_pipeline_is_found_by_few_of_its_actions() {
    for (schedule, stages, chunks) in
        [(Schedule::OneFOneB, 64, 1), (Schedule::Interleaved, 64, 2), (Schedule::Interleaved, 32, 4)]
    {
        let pipeline = pipeline(schedule, stages, chunks, 128 * stages);
        // Hidden behind computing, as interleaved schedules have their transfers.
        let costs = StageCosts { transfer: 0.01, exposed: 0.0, ..StageCosts::uniform(&pipeline, SECONDS) };
        let length = simulated_length(&pipeline, &costs, 1 << 18);
        assert!(length.is_ok(), "{schedule:?} {stages} {chunks}: {length:?}");
    }
}
