//! Collectives of several ranks, each on a thread of this process.

mod joining;
#[path = "../../../tests/executor/ports.rs"]
mod ports;

use std::time::{Duration, Instant};

use planner::layout::{Group, GroupKind};
use run_folder::Key;
use tch::{Device, Kind, Tensor};

use super::*;
use crate::collectives::Reduce;
use ports::free_port;

fn identity(rank: usize, world_size: usize) -> Identity {
    Identity {
        run: "test".to_owned(),
        binary: "0.1.0".to_owned(),
        torch: "2.11.0".to_owned(),
        plan_sha256: "aa".to_owned(),
        rank,
        world_size,
        host: format!("host{rank}"),
        pid: 100 + rank as u32,
        port: 0,
    }
}

fn groups(world: usize) -> Vec<Group> {
    let group = |kind, index, ranks: Vec<u64>| Group { kind, index, ranks };
    let mut groups = vec![group(GroupKind::World, 0, (0..world as u64).collect())];
    groups.push(group(GroupKind::Tp, 0, vec![0, 1]));
    if world >= 4 {
        groups.push(group(GroupKind::Tp, 1, vec![2, 3]));
    }
    // As the world, but not all that there are by its kind: its tensors go over links of their own.
    groups.push(group(GroupKind::Dp, 0, (0..world as u64).collect()));
    groups
}

/// The two ways that all ranks of these tests have to each other.
fn both_ways(world: &HostCollectives) -> [GroupId; 2] {
    [WORLD, world.mine(GroupKind::Dp).unwrap()]
}

const KEY: Key = Key::from_bytes([7; 32]);

fn join(identity: Identity, port: u16, timeout: Duration) -> anyhow::Result<HostCollectives> {
    join_at("127.0.0.1", KEY, identity, port, timeout)
}

fn join_at(
    address: &str,
    key: Key,
    identity: Identity,
    port: u16,
    timeout: Duration,
) -> anyhow::Result<HostCollectives> {
    let groups = groups(identity.world_size);
    let meeting = Meeting {
        members: (0..identity.world_size).collect(),
        address: address.to_owned(),
        port,
        key: Some(key),
        timeout,
        last_resort: None,
    };
    HostCollectives::join(identity, meeting, groups)
}

/// Runs `work` on every rank of a world and returns what each gave.
fn on_ranks<T: Send>(world: usize, timeout: Duration, work: impl Fn(&HostCollectives) -> T + Sync) -> Vec<T> {
    let port = free_port();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|rank| {
                let work = &work;
                scope.spawn(move || {
                    let joined = join(identity(rank, world), port, timeout).unwrap();
                    let result = work(&joined);
                    joined.finish();
                    result
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

const LONG: Duration = Duration::from_secs(60);
const WORLD: GroupId = GroupId(0);

/// Numbers that differ by rank and place and are exact in every type.
fn contribution(rank: usize, elements: i64, kind: Kind) -> Tensor {
    let numbers = Tensor::arange(elements, (Kind::Int64, Device::Cpu)).remainder(13) * (rank as i64 + 1);
    (numbers - 5_i64).to_kind(kind)
}

fn expected_sum(ranks: &[usize], elements: i64, kind: Kind) -> Tensor {
    let sum: Tensor =
        ranks.iter().map(|&rank| contribution(rank, elements, Kind::Double)).reduce(|a, b| a + b).unwrap();
    sum.to_kind(kind)
}

#[test]
fn sums_are_right_and_the_same_everywhere() {
    // Small enough for one round, large enough for two, more than one block, not divisible by the ranks.
    for elements in [1, 1000, 30_001, 2_200_003] {
        for kind in [Kind::Double, Kind::Float, Kind::BFloat16, Kind::Int64] {
            let sums = on_ranks(3, LONG, |world| {
                both_ways(world).map(|group| {
                    let mut tensor = contribution(world.rank(), elements, kind);
                    world.all_reduce(group, Reduce::Sum, &mut tensor).unwrap();
                    tensor
                })
            });
            for sum in sums.into_iter().flatten() {
                assert_eq!(sum, expected_sum(&[0, 1, 2], elements, kind), "{elements} of {kind:?}");
            }
        }
    }
}

#[test]
fn numbers_are_summed_without_rounding() {
    let values = [1e16, 1.0, -1e16, 0.1, f64::MIN_POSITIVE];
    for sums in on_ranks(5, LONG, |world| {
        let mut sums = [values[world.rank()], 1.0 / 3.0, if world.rank() == 3 { f64::NAN } else { 1.0 }];
        world.sum_numbers(&mut sums).unwrap();
        sums
    }) {
        assert_eq!(sums[..2], [1.1, 5.0 * (1.0 / 3.0)]);
        assert!(sums[2].is_nan());
    }
}

#[test]
fn the_order_of_a_sum_is_that_of_the_ranks() {
    let values = [1e16, 1.0, -1e16];
    let sums = on_ranks(3, LONG, |world| {
        both_ways(world).map(|group| {
            let mut tensor = Tensor::from_slice(&vec![values[world.rank()]; 9000]);
            world.all_reduce(group, Reduce::Sum, &mut tensor).unwrap();
            (tensor.double_value(&[0]), tensor.double_value(&[8999]))
        })
    });
    assert_eq!(sums, vec![[((1e16 + 1.0) - 1e16, (1e16 + 1.0) - 1e16); 2]; 3]);
}

#[test]
fn each_part_is_summed_on_the_member_that_it_is_for() {
    for part in [3_i64, 700_001] {
        on_ranks(3, LONG, |world| {
            for group in both_ways(world) {
                let whole = contribution(world.rank(), 3 * part, Kind::BFloat16);
                let of = |member: i64| whole.narrow(0, member * part, part);
                // Nothing is for the first one.
                let mut parts = [(2, of(0)), (1, of(1)), (2, of(2))];
                world.enter(group, Collective::ReduceEach(&mut parts)).unwrap();
                let expected = expected_sum(&[0, 1, 2], 3 * part, Kind::BFloat16);
                for (number, (member, found)) in parts.iter().enumerate() {
                    if world.index(group).unwrap() == *member {
                        assert_eq!(*found, expected.narrow(0, number as i64 * part, part));
                    }
                }
                let mut parts = [(3, of(0))];
                let error = world.enter(group, Collective::ReduceEach(&mut parts)).unwrap_err();
                assert!(error.to_string().contains("has no member 3"), "{error}");
            }
        });
    }
}

#[test]
fn each_part_comes_from_the_member_that_has_it() {
    for part in [3_i64, 700_001] {
        on_ranks(3, LONG, |world| {
            for group in both_ways(world) {
                let whole = contribution(world.rank(), 3 * part, Kind::BFloat16);
                let of = |whole: &Tensor, number: i64| whole.narrow(0, number * part, part);
                // The first one has nothing that the others need.
                let members = [2_usize, 1, 2];
                let mut parts = [0, 1, 2].map(|number| (members[number], of(&whole, number as i64)));
                world.enter(group, Collective::BroadcastEach(&mut parts)).unwrap();
                for (number, (member, found)) in parts.iter().enumerate() {
                    let rank = world.groups()[group.0].ranks[*member] as usize;
                    assert_eq!(*found, of(&contribution(rank, 3 * part, Kind::BFloat16), number as i64));
                }
                let mut parts = [(3, of(&whole, 0))];
                let error = world.enter(group, Collective::BroadcastEach(&mut parts)).unwrap_err();
                assert!(error.to_string().contains("has no member 3"), "{error}");
            }
        });
    }
}

#[test]
fn groups_reduce_apart() {
    let sums = on_ranks(4, LONG, |world| {
        let mut tensor = contribution(world.rank(), 10, Kind::Double);
        let group = world.mine(GroupKind::Tp).unwrap();
        world.all_reduce(group, Reduce::Max, &mut tensor).unwrap();
        (world.index(group).unwrap(), tensor)
    });
    let of = |rank: usize| contribution(rank, 10, Kind::Double);
    for (rank, (index, sum)) in sums.iter().enumerate() {
        assert_eq!(*index, rank % 2);
        let first = rank / 2 * 2;
        assert_eq!(*sum, of(first).maximum(&of(first + 1)));
    }
}

#[test]
fn gather_and_scatter_work_in_place() {
    for part in [3_i64, 700_001] {
        on_ranks(3, LONG, |world| {
            let rank = world.rank() as i64;
            let mut whole = Tensor::zeros([3 * part], (Kind::Double, Device::Cpu));
            let mut mine = whole.narrow(0, rank * part, part);
            mine.copy_(&contribution(world.rank(), part, Kind::Double));
            for group in both_ways(world) {
                world.all_gather(group, &mine, &mut whole).unwrap();
                for other in 0..3 {
                    let expected = contribution(other as usize, part, Kind::Double);
                    assert_eq!(whole.narrow(0, other * part, part), expected);
                    if other != rank {
                        let _ = whole.narrow(0, other * part, part).fill_(-7.0);
                    }
                }
            }
            let whole = contribution(world.rank(), 3 * part, Kind::Double);
            let input = whole.shallow_clone();
            let mut mine = whole.narrow(0, rank * part, part);
            world.reduce_scatter(WORLD, &input, &mut mine).unwrap();
            assert_eq!(mine, expected_sum(&[0, 1, 2], 3 * part, Kind::Double).narrow(0, rank * part, part));
            for group in both_ways(world) {
                let mut given = whole.copy();
                world.broadcast(group, 1, &mut given).unwrap();
                let first = given.narrow(0, 0, part);
                assert_eq!(first, contribution(1, 3 * part, Kind::Double).narrow(0, 0, part));
            }
        });
    }
}

#[test]
fn a_missing_rank_is_named_with_what_it_does() {
    let errors = on_ranks(3, Duration::from_secs(2), |world| {
        if world.rank() == 2 {
            world.note("counting sheep");
            std::thread::sleep(Duration::from_secs(4));
            return String::new();
        }
        let error = world.barrier(WORLD).unwrap_err().to_string();
        world.abort(&error);
        error
    });
    for error in &errors[..2] {
        assert!(error.contains("rank 2 did not join barrier number 1 of the World group"), "{error}");
        assert!(error.contains("counting sheep"), "{error}");
    }
}

#[test]
fn the_rank_at_the_end_of_the_chain_is_asked() {
    // Rank 0 waits for a message of rank 1, which waits for the world, in which rank 2 is missing.
    let errors = on_ranks(4, Duration::from_secs(2), |world| {
        let result = match world.rank() {
            0 => {
                let mut tensor = Tensor::from_slice(&[1.0]);
                world.take(world.mine(GroupKind::Tp).unwrap(), 1, 5, &mut tensor)
            }
            2 => {
                world.note("reading a slow disk");
                std::thread::sleep(Duration::from_secs(6));
                return String::new();
            }
            _ => {
                // Later than rank 0, so that rank 0 gives up first.
                std::thread::sleep(Duration::from_millis(500));
                world.barrier(WORLD)
            }
        };
        let error = result.unwrap_err().to_string();
        world.abort(&error);
        error
    });
    for error in [&errors[0], &errors[1], &errors[3]] {
        assert!(
            error.contains("rank 1 did not send its part of receive with tag 5 of the Tp group"),
            "{error}"
        );
        assert!(error.ends_with("rank 2 says that it is reading a slow disk"), "{error}");
    }
}

#[test]
fn rows_go_to_their_members() {
    // Member i sends member j `rows(i, j)` rows; zero rows, uneven rows, several frames.
    let rows = |from: usize, to: usize| [[2, 0, 1], [0, 0, 3], [40_000, 1, 2]][from][to];
    let width = 40_i64;
    let part = |from: usize, to: usize| {
        Tensor::full([rows(from, to) as i64, width], (10 * from + to) as f64, (Kind::Double, Device::Cpu))
    };
    on_ranks(3, LONG, |world| {
        let me = world.rank();
        let input = Tensor::cat(&(0..3).map(|to| part(me, to)).collect::<Vec<_>>(), 0);
        let expected = Tensor::cat(&(0..3).map(|from| part(from, me)).collect::<Vec<_>>(), 0);
        let mut output = Tensor::zeros_like(&expected);
        let to: Vec<usize> = (0..3).map(|to| rows(me, to)).collect();
        let from: Vec<usize> = (0..3).map(|from| rows(from, me)).collect();
        world.all_to_all(WORLD, &input, &to, &mut output, &from).unwrap();
        assert_eq!(output, expected);
        let error = world.all_to_all(WORLD, &input, &[9, 9, 9], &mut output, &from).unwrap_err();
        assert!(error.to_string().contains("[9, 9, 9] rows for the 3 members"), "{error}");
    });
}

#[test]
fn messages_are_taken_in_any_order_and_never_block_the_sender() {
    // More frames than a board keeps while its rank computes.
    let elements = 700_000_i64;
    let count = 60_u64;
    let message = |tag: u64| Tensor::full([elements], tag as f64, (Kind::Double, Device::Cpu));
    on_ranks(2, LONG, |world| {
        let other = 1 - world.rank();
        for tag in 0..count {
            world.send(WORLD, other, tag, &message(tag)).unwrap();
        }
        let mut found = Tensor::zeros([elements], (Kind::Double, Device::Cpu));
        for tag in (0..count).rev() {
            world.take(WORLD, other, tag, &mut found).unwrap();
            assert_eq!(found, message(tag));
        }
        let mut wrong = Tensor::zeros([3], (Kind::Double, Device::Cpu));
        world.send(WORLD, other, 7, &Tensor::from_slice(&[1.0, 2.0])).unwrap();
        let error = world.take(WORLD, other, 7, &mut wrong).unwrap_err().to_string();
        assert!(error.contains("sent 16 bytes for send") && error.contains("expects 24 bytes"), "{error}");
        let error = world.send(WORLD, 2, 0, &wrong).unwrap_err().to_string();
        assert!(error.contains("no messages with member 2"), "{error}");
    });
}

#[test]
fn a_message_that_does_not_come_is_named() {
    let errors = on_ranks(2, Duration::from_secs(1), |world| {
        if world.rank() == 1 {
            world.note("in forward of micro batch 3");
            std::thread::sleep(Duration::from_millis(2500));
            return String::new();
        }
        let mut tensor = Tensor::from_slice(&[1.0]);
        let error = world.take(WORLD, 1, 12, &mut tensor).unwrap_err().to_string();
        world.abort(&error);
        error
    });
    assert!(errors[0].contains("rank 1 did not send its part of receive with tag 12"), "{}", errors[0]);
    assert!(errors[0].contains("in forward of micro batch 3"), "{}", errors[0]);
}

#[test]
fn waiting_is_told_from_transfer() {
    let seconds = on_ranks(2, LONG, |world| {
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_millis(600));
        }
        world.barrier(WORLD).unwrap();
        world.take_seconds()
    });
    assert!(seconds[0][WAITING] > 0.4, "{seconds:?}");
    assert!(seconds[0]["comm.barrier"] < 0.2, "{seconds:?}");
}

#[test]
fn ranks_in_different_collectives_are_named() {
    let errors = on_ranks(2, LONG, |world| {
        let mut tensor = Tensor::from_slice(&[1.0]);
        let result = match world.rank() {
            0 => world.barrier(WORLD),
            _ => world.all_reduce(WORLD, Reduce::Sum, &mut tensor),
        };
        result.unwrap_err().to_string()
    });
    assert!(errors[0].contains("rank 1 sent 8 bytes for all_reduce"), "{}", errors[0]);
    assert!(errors[1].contains("rank 0 sent 0 bytes for barrier"), "{}", errors[1]);
}

#[test]
fn the_first_failure_reaches_all_with_its_rank() {
    let (said, heard) = ("token 300 is not in the vocabulary", "rank 1: token 300 is not in the vocabulary");
    // Often, for whoever has heard of it must not leave before the others have.
    for _ in 0..20 {
        let start = Instant::now();
        let all_joined = std::sync::Barrier::new(3);
        let errors = on_ranks(3, LONG, |world| {
            // One that is still told where all are would hear of it there.
            all_joined.wait();
            if world.rank() == 1 {
                world.abort(said);
                return said.to_owned();
            }
            world.barrier(WORLD).unwrap_err().to_string()
        });
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(errors, [heard, said, heard]);
    }
}

#[test]
fn a_failure_that_names_a_rank_is_told_as_it_is() {
    // Of this rank or of another, which is then the culprit; its words may have a rank's log in them.
    for (said, heard) in [
        ("NCCL failed on rank 1: out of memory", "NCCL failed on rank 1: out of memory"),
        ("rank 2 does not answer", "rank 2 does not answer"),
        ("the disk of rank-00001.log is full", "rank 1: the disk of rank-00001.log is full"),
    ] {
        let errors = on_ranks(2, LONG, |world| {
            if world.rank() == 1 {
                world.abort(said);
            }
            world.barrier(WORLD).unwrap_err().to_string()
        });
        assert_eq!(errors, [heard; 2]);
    }
}
