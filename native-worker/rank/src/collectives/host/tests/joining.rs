//! Ranks that meet while others disturb them: strangers, other runs, wrong keys, ranks that differ or die.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use planner::layout::{Group, GroupKind};
use run_folder::Key;

use super::*;
use crate::collectives::link::handshake;
use crate::collectives::link::identity::{Errand, Greeting};

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
        let error = join(identity(1, 2), relay(port), Duration::from_secs(2)).err().unwrap().to_string();
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
