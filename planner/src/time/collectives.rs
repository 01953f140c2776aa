//! Seconds of collectives over the links that a group really crosses.

use super::constants::ConstantRole;
use super::machine::Machine;

/// A group: its size, and how many of its members share an NVLink domain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupSize {
    /// Members.
    pub size: f64,
    /// Of them in one domain.
    pub inside: f64,
}

impl GroupSize {
    /// A group of `size` ranks that are `stride` apart, in domains of `domain`.
    pub fn new(size: u64, stride: u64, domain: f64) -> GroupSize {
        let (size, stride) = (size.max(1) as f64, stride.max(1) as f64);
        GroupSize { size, inside: size.min((domain / stride).floor().max(1.0)) }
    }

    fn leaves(&self) -> bool {
        self.size > self.inside
    }

    /// Domains that it spans: as many hops of a ring leave one.
    fn domains(&self) -> f64 {
        (self.size / self.inside).max(1.0)
    }
}

/// Microseconds that a hop of a ring takes inside a domain and between domains, by a protocol of NCCL (`hwLat` of src/graph/tuning.cc, b6475625fbca; as
/// `hwLatencies` in 5067397c2676).
#[derive(Clone, Copy)]
struct Hops {
    inside: f64,
    between: f64,
}

impl Hops {
    /// Of a ring: one less than it has domains is between them.
    fn of(self, group: GroupSize) -> f64 {
        let between = group.domains() - 1.0;
        between * self.between + (group.size - 1.0 - between) * self.inside
    }
}

/// Protocol Simple.
const SIMPLE: Hops = Hops { inside: 3.4, between: 14.0 };
/// Protocol LL128, which NCCL takes over NVLink and InfiniBand since Volta.
const LL128: Hops = Hops { inside: 1.9, between: 4.0 };
/// Share of the bandwidth that LL128 reaches, there too.
pub(super) const LL128_SHARE: f64 = 0.92;

impl Machine {
    /// What an all-gather or reduce-scatter waits for beside its bytes, as NCCL's tuning counts it.
    fn ring_hops(&self, group: GroupSize) -> f64 {
        if !group.leaves() {
            return (group.size - 1.0) * self.of(ConstantRole::StepIn);
        }
        SIMPLE.of(group) / SIMPLE.between * self.of(ConstantRole::StepOut)
    }

    /// What a bucket of gradients waits for beside its bytes: its way round the ring, of which hops between domains are by
    /// far the longest.
    pub(super) fn bucket_round(&self, group: GroupSize) -> f64 {
        if group.leaves() {
            group.domains() * self.of(ConstantRole::BucketStep)
        } else {
            (group.size - 1.0) * self.of(ConstantRole::StepIn)
        }
    }

    /// What LL128 leaves of a bucket's way round the ring; 1 where no bucket goes by it.
    pub(super) fn quicker(&self, group: GroupSize) -> f64 {
        if group.leaves() && self.of(ConstantRole::LowLatency) > 0.0 {
            LL128.of(group) / SIMPLE.of(group)
        } else {
            1.0
        }
    }

    /// An all-gather to, or reduce-scatter from, `bytes` bytes, without what it costs to start.
    pub(crate) fn ring_bytes(&self, group: GroupSize, bytes: f64) -> f64 {
        if group.size <= 1.0 {
            return 0.0;
        }
        let part = bytes * (group.size - 1.0) / group.size;
        let inside = if group.inside > 1.0 { part / self.nvlink } else { 0.0 };
        let outside = if group.leaves() { part / (group.inside * self.nic) } else { 0.0 };
        inside.max(outside)
    }

    /// An all-gather to, or reduce-scatter from, `bytes` bytes.
    pub fn gather(&self, group: GroupSize, bytes: f64) -> f64 {
        if group.size <= 1.0 || bytes <= 0.0 {
            return 0.0;
        }
        self.ring_bytes(group, bytes) + self.ring_hops(group) + self.of(ConstantRole::Launch)
    }

    /// An all-to-all in which each rank has `bytes` bytes, for all destinations together.
    pub fn all_to_all(&self, group: GroupSize, bytes: f64) -> f64 {
        if group.size <= 1.0 || bytes <= 0.0 {
            return 0.0;
        }
        let inside = bytes * (group.inside - 1.0) / group.size / self.nvlink;
        let outside = bytes * (group.size - group.inside) / group.size / self.nic;
        self.exchange(group, inside, outside)
    }

    /// Tokens to their experts (or back) by kernels that send a token once to each rank of a domain that wants it, and
    /// once to each other domain: `token_bytes` are those of all tokens of a rank, and `wanted` says in how many of so many places one
    /// of them is wanted.
    pub fn dispatch(&self, group: GroupSize, token_bytes: f64, wanted: impl Fn(f64) -> f64) -> f64 {
        if group.size <= 1.0 || token_bytes <= 0.0 {
            return 0.0;
        }
        // Of the ranks of a domain, one has the token already.
        let inside = token_bytes * (1.0 - 1.0 / group.inside) * wanted(group.size) / self.nvlink;
        let domains = (group.size / group.inside).max(1.0);
        let outside = token_bytes * (1.0 - 1.0 / domains) * wanted(domains) / self.nic;
        self.exchange(group, inside, outside)
    }

    fn exchange(&self, group: GroupSize, inside: f64, outside: f64) -> f64 {
        let steps =
            if group.leaves() { (group.size - group.inside) * self.of(ConstantRole::StepOut) } else { 0.0 };
        inside.max(outside) / self.of(ConstantRole::AllToAll) + steps + self.of(ConstantRole::Launch)
    }

    /// A send of `bytes` to a neighbouring stage that is, or is not, in the domain.
    pub fn send(&self, inside: bool, bytes: f64) -> f64 {
        self.of(ConstantRole::P2pLatency) + bytes / if inside { self.nvlink } else { self.nic }
    }
}
