//! Collectives of several ranks, each on a thread of this process.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use planner::layout::{Group, GroupKind};
use run_folder::Key;
use tch::{Device, Kind, Tensor};

use super::*;
use crate::collectives::Reduce;
use crate::collectives::link::handshake;
use crate::collectives::link::identity::{Errand, Greeting};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

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
fn the_first_failure_reaches_all() {
    // Often, for whoever has heard of it must not leave before the others have.
    for _ in 0..20 {
        let start = Instant::now();
        let errors = on_ranks(3, LONG, |world| {
            if world.rank() == 1 {
                world.abort("token 300 is not in the vocabulary");
                return String::from("token 300 is not in the vocabulary");
            }
            world.barrier(WORLD).unwrap_err().to_string()
        });
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(errors, vec!["token 300 is not in the vocabulary"; 3]);
    }
}

/// A connection to rank 0, which may start later.
fn knock(port: u16) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

/// What rank 0 says until it closes the connection.
fn heard(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// A world of two whose rank 0 others disturb before rank 1 comes; it must run as if they had not.
fn undisturbed(disturb: impl FnOnce(u16)) {
    let port = free_port();
    std::thread::scope(|scope| {
        let first = scope.spawn(move || {
            let world = join(identity(0, 2), port, LONG).unwrap();
            world.barrier(WORLD).unwrap();
            world.finish();
        });
        drop(knock(port));
        disturb(port);
        let start = Instant::now();
        let second = join(identity(1, 2), port, LONG).unwrap();
        assert!(start.elapsed() < Duration::from_secs(4), "rank 1 waited {:?}", start.elapsed());
        second.barrier(WORLD).unwrap();
        second.finish();
        first.join().unwrap();
    });
}

#[test]
fn strangers_and_other_runs_do_not_disturb() {
    let mut kept = Vec::new();
    undisturbed(|port| {
        kept.push(knock(port));
        let mut browser = knock(port);
        browser.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(heard(browser).is_empty(), "a stranger was answered");
        let mut other = identity(1, 2);
        other.run = "another".to_owned();
        let error = join(other, port, LONG).err().unwrap().to_string();
        assert!(error.contains("serves run \"test\", not run \"another\" of rank 1"), "{error}");
    });
}

/// A greeting as it was before ranks had a key, and as one would be who does not know it.
#[test]
fn a_greeting_without_the_key_ends_nothing() {
    let mut forged = identity(1, 2);
    forged.plan_sha256 = "bb".to_owned();
    let text = serde_json::to_vec(&forged).unwrap();
    let length = (text.len() as u32).to_le_bytes();
    undisturbed(|port| {
        for magic in [b"SPR1", b"SPR2", &handshake::MAGIC] {
            let mut stream = knock(port);
            let _ = stream.write_all(&[&magic[..], &length[..], &text].concat());
            let _ = stream.shutdown(std::net::Shutdown::Write);
            heard(stream);
        }
        let mut stream = knock(port);
        stream.write_all(&[&handshake::MAGIC[..], &[1; 32]].concat()).unwrap();
        let mut answer = [0; 64];
        stream.read_exact(&mut answer).unwrap();
        stream.write_all(&[&length[..], &[2; 32], &text].concat()).unwrap();
        assert!(heard(stream).is_empty(), "a wrong code was answered");
        // With another run's key it does not get so far.
        let other = Key::from_bytes([8; 32]);
        let error = join_at("127.0.0.1", other, forged.clone(), port, Duration::from_secs(4)).err().unwrap();
        let said = error.to_string();
        assert!(said.contains("does not know this run's key") && said.contains("set MASTER_PORT"), "{said}");
    });
}

/// Takes connections and passes on what comes to `port` and back, unchanged. Gives its own port.
fn relay(port: u16) -> u16 {
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let relayed = between.local_addr().unwrap().port();
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    };
    // As long as the tests run.
    std::thread::spawn(move || {
        for outside in between.incoming().flatten() {
            let Ok(inside) = TcpStream::connect(("127.0.0.1", port)) else { return };
            let (from, to) = (outside.try_clone().unwrap(), inside.try_clone().unwrap());
            std::thread::spawn(move || copy(from, to));
            std::thread::spawn(move || copy(inside, outside));
        }
    });
    relayed
}

#[test]
fn nobody_stands_between_two_ranks() {
    undisturbed(|port| {
        let error = join(identity(1, 2), relay(port), Duration::from_millis(800)).err().unwrap().to_string();
        assert!(error.contains("does not know this run's key"), "{error}");
    });
}

#[test]
fn a_proof_for_one_rank_is_none_for_another() {
    let soon = || Instant::now() + Duration::from_secs(5);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(handshake::admit(&mut stream, &KEY, 2, soon()).is_err());
        });
        let mut stream = TcpStream::connect(at).unwrap();
        assert!(handshake::reach(&mut stream, &KEY, 1, soon()).is_err());
    });
}

#[test]
fn many_who_say_nothing_or_little_hold_nobody_up() {
    let mut kept = Vec::new();
    undisturbed(|port| {
        // More than are listened to at once, and some that send a byte now and then.
        for _ in 0..300 {
            kept.push(knock(port));
        }
        let mut slow = knock(port);
        let start = Instant::now();
        while slow.write_all(b"S").is_ok() {
            assert!(start.elapsed() < Duration::from_secs(15), "one byte after the other is listened to");
            std::thread::sleep(Duration::from_millis(100));
        }
        for _ in 0..300 {
            kept.push(knock(port));
        }
    });
}

#[test]
fn a_rank_that_meets_a_stranger_at_rank_zeros_address_waits_for_rank_zero() {
    let squatter = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = squatter.local_addr().unwrap().port();
    std::thread::scope(|scope| {
        let second = scope.spawn(move || {
            let world = join(identity(1, 2), port, LONG).unwrap();
            world.barrier(WORLD).unwrap();
            world.finish();
        });
        for _ in 0..2 {
            // Says back what it is told, which is no proof.
            let (mut stream, _) = squatter.accept().unwrap();
            let mut bytes = [0; 36];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&[bytes, bytes].concat()[..64]).unwrap();
            assert!(heard(stream).is_empty(), "a stranger was told more");
        }
        drop(squatter);
        let first = join(identity(0, 2), port, LONG).unwrap();
        first.barrier(WORLD).unwrap();
        first.finish();
        second.join().unwrap();
    });
}

/// Joins with a second rank that `change` makes different; both must say why not.
fn check_refused(change: impl Fn(&mut Identity), expected: &[&str]) {
    let port = free_port();
    let errors = std::thread::scope(|scope| {
        let first = scope.spawn(move || join(identity(0, 2), port, LONG).err().unwrap().to_string());
        let mut other = identity(1, 2);
        change(&mut other);
        let second = join(other, port, LONG).err().unwrap().to_string();
        [first.join().unwrap(), second]
    });
    for error in errors {
        for part in expected {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn ranks_that_differ_are_refused_with_both_named() {
    check_refused(
        |other| other.plan_sha256 = "bb".to_owned(),
        &["rank 0 on host0", "rank 1 on host1", "plan (SHA-256) aa against bb"],
    );
    check_refused(|other| other.binary = "0.2.0".to_owned(), &["shardplan-rank 0.1.0 against 0.2.0"]);
    check_refused(|other| other.torch = "2.10.0".to_owned(), &["libtorch 2.11.0 against 2.10.0"]);
    check_refused(|other| other.world_size = 3, &["world size 2 against 3"]);
    check_refused(|other| other.rank = 5, &["rank 5 on host1", "not of this world of 2 ranks"]);
}

#[test]
fn a_rank_that_dies_while_ranks_join_is_named() {
    let port = free_port();
    let start = Instant::now();
    // Rank 0 may have welcomed all three before it sees the end: then the first collective tells.
    let refusal = move |rank| match join(identity(rank, 3), port, LONG) {
        Err(error) => error.to_string(),
        Ok(world) => {
            let error = format!("{:#}", world.barrier(WORLD).unwrap_err());
            world.abort(&error);
            error
        }
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(move || refusal(0));
        let second = scope.spawn(move || refusal(1));
        // Rank 2 says who it is and closes its connection, as a kill would.
        let mut dying = knock(port);
        let soon = Instant::now() + Duration::from_secs(5);
        let reached = handshake::reach(&mut dying, &KEY, 0, soon).unwrap();
        let greeting = Greeting { identity: identity(2, 3), errand: Errand::Join };
        reached.introduce(&mut dying, &greeting, soon).unwrap();
        drop(dying);
        for error in [first.join().unwrap(), second.join().unwrap()] {
            assert!(error.contains("rank 2 (process 102 on host2) is gone"), "{error}");
        }
    });
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_port_in_use_and_an_absent_rank_are_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let error = format!("{:#}", join(identity(0, 2), port, LONG).err().unwrap());
    assert!(error.contains(&format!("127.0.0.1:{port}")) && error.contains("MASTER_PORT"), "{error}");
    let error = join(identity(0, 3), free_port(), Duration::from_millis(300)).err().unwrap().to_string();
    assert!(error.contains("missing are ranks [1, 2]"), "{error}");
    let error = join(identity(1, 2), free_port(), Duration::from_millis(300)).err().unwrap().to_string();
    assert!(error.contains("rank 1 could not reach rank 0"), "{error}");
}

#[test]
fn ranks_have_links_for_tensors_with_those_of_their_groups_alone() {
    let port = free_port();
    let of = |ranks: &[u64], kind| Group { kind, index: 0, ranks: ranks.to_vec() };
    let groups = [
        of(&[0, 1, 2, 3, 4], GroupKind::World),
        of(&[0, 1], GroupKind::Tp),
        of(&[2, 3], GroupKind::Tp),
        of(&[1, 3, 4], GroupKind::Dp),
    ];
    let counts = std::thread::scope(|scope| {
        let rank = |rank| {
            let groups = groups.to_vec();
            scope.spawn(move || {
                let meeting = Meeting {
                    members: (0..5).collect(),
                    address: "127.0.0.1".to_owned(),
                    port,
                    key: Some(KEY),
                    timeout: LONG,
                    last_resort: None,
                };
                let world = HostCollectives::join(identity(rank, 5), meeting, groups).unwrap();
                let before = world.control().counts();
                // Nobody links before all have counted, nor leaves.
                world.barrier(WORLD).unwrap();
                world.link_groups().unwrap();
                let after = world.control().counts();
                world.barrier(WORLD).unwrap();
                world.finish();
                (before.data_links, after.data_links, after.tree_links)
            })
        };
        let ranks: Vec<_> = (0..5).map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    // All others hang below rank 0.
    assert_eq!(counts, [(0, 1, 4), (0, 3, 1), (0, 1, 1), (0, 3, 1), (0, 2, 1)]);
}
