//! Who a rank is, what must be the same of two that work together, and what one wants of the other when it connects.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a rank says of itself when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The run, so that two jobs on one port don't mix.
    pub run: String,
    /// Version of this program.
    pub binary: String,
    /// Version of libtorch.
    pub torch: String,
    /// SHA-256 of the plan, in hex.
    pub plan_sha256: String,
    /// The rank.
    pub rank: usize,
    /// Ranks in all, as it believes.
    pub world_size: usize,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Port on which it takes links from other ranks.
    pub port: u16,
}

impl Identity {
    /// As others name it.
    pub fn known(&self) -> Known {
        Known { rank: self.rank, host: self.host.clone(), pid: self.pid }
    }
}

/// A rank as messages name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// Its process there.
    pub pid: u32,
}

impl fmt::Display for Known {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "rank {} (process {} on {})", self.rank, self.pid, self.host)
    }
}

/// What a rank wants of the one that it connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Errand {
    /// Of the first: to be told its place in the tree.
    Join,
    /// To be its child in the tree.
    Child,
    /// To exchange tensors with it.
    Data,
}

/// What a rank says when it has connected and knows to whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Who it is.
    pub identity: Identity,
    /// What it wants.
    pub errand: Errand,
}

/// Why two ranks of one run can't work together; none if they can.
pub fn mismatch(ours: &Identity, theirs: &Identity) -> Option<String> {
    let differs = |what: &str, ours: &str, theirs: &str| {
        (ours != theirs).then(|| format!("{what} {ours} against {theirs}"))
    };
    let difference = differs("shardplan-rank", &ours.binary, &theirs.binary)
        .or_else(|| differs("plan (SHA-256)", &ours.plan_sha256, &theirs.plan_sha256))
        .or_else(|| differs("libtorch", &ours.torch, &theirs.torch))
        .or_else(|| differs("world size", &ours.world_size.to_string(), &theirs.world_size.to_string()))?;
    Some(format!(
        "rank {} on {} and rank {} on {} do not match: {difference}; start all ranks with the same program and plan.json",
        ours.rank, ours.host, theirs.rank, theirs.host
    ))
}
