//! Ports for tests.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ports that nobody gets who asks the kernel for any: those begin at 32768.
const APART: u64 = 10_000;
/// How many they are.
const COUNT: u64 = 22_000;
/// How far apart processes begin whose numbers follow each other; more than the ports that one of them takes.
const OF_A_PROCESS: u64 = 769;

/// A port that is free, and stays so until it is used: no other test is told it, and the kernel gives it to nobody.
pub fn free_port() -> u16 {
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let first = OF_A_PROCESS * u64::from(std::process::id());
    (0..1000)
        .map(|_| first + TOLD.fetch_add(1, Ordering::Relaxed))
        .map(|number| u16::try_from(APART + number % COUNT).unwrap())
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .expect("a free port")
}
