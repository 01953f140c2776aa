//! Survivors of any failures get a plan on what is left, or a sentence.

use proptest::prelude::*;
use serde_json::json;

use crate::recovery::{Recovery, Seat, Standing};
use crate::cluster::FailedGpu;
use crate::plan::Plan;
use crate::parse::parse_plan;
use crate::wire::OnFailure;

struct Case {
    nodes: u64,
    gpus: u64,
    tp: u64,
    pp: u64,
    batch: u64,
    micro: u64,
}

/// A plan of the worker, where these make one.
fn plan(case: &Case) -> Option<Plan> {
    let &Case { nodes, gpus, tp, pp, batch, micro } = case;
    let plan = json!({
        "version": 1, "runtime": "native",
        "model": {"preset": "tiny-dense"},
        "cluster": {"gpu": "cpu", "nodes": nodes, "gpus_per_node": gpus},
        "layout": {"tp": tp, "pp": pp},
        "training": {"seq_len": 32, "global_batch_size": batch, "micro_batch_size": micro},
    });
    let file = Plan::resolve(&parse_plan(&plan.to_string()).unwrap()).plan?.executed();
    Plan::resolve(&file).plan
}

fn machine(plan: &Plan, spares: u64) -> Standing {
    let seat = |slot| Seat { node: 0, slot };
    let world = plan.world_size();
    let seats: Vec<Seat> = (0..world).map(seat).collect();
    Standing::new(plan.clone(), &seats, (world..world + spares).map(seat).collect())
}

fn on_nodes(plan: &Plan, spare_nodes: u64) -> Standing {
    let gpus = plan.cluster.gpus_per_node;
    let seat = |rank| Seat { node: rank / gpus, slot: rank % gpus };
    let world = plan.world_size();
    let seats: Vec<Seat> = (0..world).map(seat).collect();
    Standing::new(plan.clone(), &seats, (world..world + spare_nodes * gpus).map(seat).collect())
}

fn four(batch: u64, micro: u64) -> Plan {
    plan(&Case { nodes: 1, gpus: 4, tp: 2, pp: 1, batch, micro }).unwrap()
}

fn slots(recovery: &Recovery) -> Vec<u64> {
    recovery.standing.seats().iter().map(|seat| seat.slot).collect()
}

#[test]
fn a_replica_less_does_the_same_batch() {
    let whole = four(4, 1);
    let found = machine(&whole, 0).after(&whole, &[1], OnFailure::Drop).unwrap();
    assert_eq!(
        found.change,
        "rank 1 is lost: 1 of 2 replicas goes on with 2 ranks and the same 4 sequences a step"
    );
    assert_eq!((found.standing.plan.layout.dp, slots(&found)), (1, vec![0, 2]));
    assert_eq!(found.standing.free(), [Seat { node: 0, slot: 3 }]);
    // What is free is taken when another dies, and then nothing is left of a replica.
    let again = found.standing.after(&whole, &[0], OnFailure::Drop).unwrap();
    assert_eq!((slots(&again), again.standing.free()), (vec![2, 3], &[][..]));
    let said = again.standing.after(&whole, &[0, 1], OnFailure::Drop).unwrap_err();
    assert_eq!(
        said,
        "ranks 0 and 1 are lost, and a replica needs 2 GPUs, 2 of a node together, and 0 are left"
    );
}

#[test]
fn a_batch_that_can_not_be_divided_is_the_nearest_and_said() {
    let eight = |batch, micro| plan(&Case { nodes: 1, gpus: 8, tp: 2, pp: 1, batch, micro }).unwrap();
    let whole = eight(8, 1);
    let found = machine(&whole, 0).after(&whole, &[7], OnFailure::Drop).unwrap();
    assert_eq!((found.standing.plan.layout.dp, found.standing.sequences()), (3, 9));
    assert!(
        found
            .change
            .ends_with("with 6 ranks and 9 sequences a step instead of 8, which can't be divided among them"),
        "{}",
        found.change
    );
    // With another replica gone the whole batch is there again.
    let again = found.standing.after(&whole, &[0, 1], OnFailure::Drop).unwrap();
    assert_eq!((again.standing.plan.layout.dp, again.standing.sequences()), (2, 8));
    // Smaller micro batches are better than another batch.
    let whole = eight(24, 3);
    let found = machine(&whole, 0).after(&whole, &[0], OnFailure::Drop).unwrap();
    let training = &found.standing.plan.training;
    assert_eq!((training.global_batch_size, training.micro_batch_size), (24, 1));
    assert!(
        found.change.ends_with("and the same 24 sequences a step, in micro batches of 1 instead of 3"),
        "{}",
        found.change
    );
}

#[test]
fn spares_stand_in_while_there_are_some() {
    let whole = four(4, 1);
    let found = machine(&whole, 1).after(&whole, &[2], OnFailure::Spare).unwrap();
    assert_eq!((slots(&found), &found.standing.plan), (vec![0, 1, 4, 3], &whole));
    assert_eq!(found.change, "rank 2 is lost: a spare stands in for it");
    let said = found.standing.after(&whole, &[0], OnFailure::Spare).unwrap_err();
    assert!(
        said.contains("1 is missing (--spares N)") && said.ends_with("--on-failure drop could go on"),
        "{said}"
    );
    // They step in whatever is asked for besides.
    for policy in [OnFailure::Ntp, OnFailure::Drop] {
        let found = machine(&whole, 1).after(&whole, &[2], policy).unwrap();
        assert_eq!(found.standing.plan.layout, whole.layout);
        assert_eq!(found.standing.sequences(), 4);
    }
}

#[test]
fn a_node_s_ranks_move_to_a_spare_node() {
    let whole = plan(&Case { nodes: 2, gpus: 2, tp: 2, pp: 1, batch: 4, micro: 1 }).unwrap();
    let found = on_nodes(&whole, 1).after(&whole, &[3], OnFailure::Spare).unwrap();
    let nodes: Vec<u64> = found.standing.seats().iter().map(|seat| seat.node).collect();
    assert_eq!(nodes, [0, 0, 2, 2]);
    assert_eq!(found.standing.free(), [Seat { node: 1, slot: 0 }]);
    // A whole node is gone.
    let found = on_nodes(&whole, 0).after(&whole, &[0, 1], OnFailure::Drop).unwrap();
    assert_eq!((found.standing.plan.cluster.nodes, found.standing.seats()[0].node), (1, 1));
    // What is left of two nodes is no tensor-parallel group.
    let said = on_nodes(&whole, 0).after(&whole, &[0, 2], OnFailure::Drop).unwrap_err();
    assert!(said.contains("2 of a node together"), "{said}");
}

#[test]
fn replicas_go_on_with_fewer_slots_and_the_others_do_what_they_leave() {
    let whole = plan(&Case { nodes: 1, gpus: 6, tp: 2, pp: 1, batch: 12, micro: 1 }).unwrap();
    let found = machine(&whole, 0).planned(&whole, &[3], OnFailure::Ntp).unwrap();
    assert_eq!(found.standing.plan.cluster.failed, [FailedGpu::Rank { rank: 3 }]);
    assert_eq!((slots(&found), found.standing.sequences()), (vec![0, 1, 2, 4, 5], 12));
    assert!(
        found
            .change
            .contains("replica 1 goes on with 1 of 2 tensor-parallel slots, 5 ranks in all, and the same 12"),
        "{}",
        found.change
    );
    // Ranks keep their numbers.
    let again = found.standing.planned(&whole, &[4], OnFailure::Ntp).unwrap();
    assert_eq!(slots(&again), [0, 1, 2, 5]);
    let said = again.standing.planned(&whole, &[0], OnFailure::Ntp).unwrap_err();
    assert!(said.contains("replicas would run reduced"), "{said}");
}

fn numbers(seats: &[Seat]) -> std::collections::BTreeSet<Seat> {
    seats.iter().copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]
    #[test]
    fn survivors_get_a_valid_plan_without_the_dead_and_the_whole_batch_where_it_divides(
        nodes in 1u64..4, gpus in 1u64..9, tp in 0u32..3, pp in 1u64..3, per in 1u64..5, micro in 1u64..4,
        spares in 0u64..3, policy in 0usize..3, deaths in prop::collection::vec(prop::collection::vec(0u64..24, 1..4), 1..4),
        one_machine in any::<bool>(),
    ) {
        let tp = 1u64 << tp;
        let world = nodes * gpus;
        prop_assume!(world.is_multiple_of(tp * pp));
        let batch = world / (tp * pp) * per * micro;
        let Some(whole) = plan(&Case { nodes, gpus, tp, pp, batch, micro }) else { return Ok(()) };
        let policy = [OnFailure::Ntp, OnFailure::Drop, OnFailure::Spare][policy];
        let mut now = if one_machine { machine(&whole, spares) } else { on_nodes(&whole, spares) };
        for dead in deaths {
            let started = now.seats();
            let mut dead: Vec<u64> = dead.into_iter().map(|rank| rank % started.len() as u64).collect();
            dead.sort_unstable();
            dead.dedup();
            let lost: Vec<Seat> = dead.iter().map(|rank| started[*rank as usize]).collect();
            let ranks = now.ranks();
            let dead: Vec<u64> = dead.iter().map(|place| ranks[*place as usize]).collect();
            let Ok(found) = now.planned(&whole, &dead, policy) else { break };
            let after = &found.standing;
            // It is what its own file says, and every rank has a GPU of its own that works.
            let again = Plan::resolve(&after.plan.file).plan.unwrap();
            prop_assert_eq!(&again.layout, &after.plan.layout);
            prop_assert_eq!(after.seats().len(), after.ranks().len());
            let used = numbers(&after.seats());
            prop_assert_eq!(used.len(), after.seats().len());
            prop_assert!(lost.iter().all(|seat| !used.contains(seat) && !after.free().contains(seat)), "{:?}", found);
            prop_assert!(after.free().iter().all(|seat| !used.contains(seat)));
            let before: std::collections::BTreeSet<Seat> = numbers(&started).union(&numbers(now.free())).copied().collect();
            prop_assert!(policy == OnFailure::Ntp || used.is_subset(&before));
            prop_assert!(after.plan.layout.dp <= whole.layout.dp);
            let same = after.sequences() == whole.training.global_batch_size;
            if found.policy == OnFailure::Spare {
                prop_assert_eq!(after.sequences(), now.sequences(), "{}", found.change);
            } else {
                prop_assert_eq!(same, found.change.contains("same"), "{}", found.change);
            }
            if policy != OnFailure::Ntp {
                let divides = whole.training.global_batch_size.is_multiple_of(after.plan.layout.dp);
                prop_assert!(same || !divides, "{}", found.change);
            }
            now = found.standing;
        }
    }
}
