//! Where the ranks are, and the tree that they hang together by. Its inner nodes are one rank of each host, the first that
//! came from there; the other ranks of a host hang below that one. Who has come earlier stands higher, so whoever comes has
//! a parent that is there already.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::identity::{Identity, Known};

/// The most hosts below a host, and the most ranks of one host below another of that host. A rank has at most twice as many
/// links in the tree, and one to its parent.
pub const FAN_OUT: usize = 8;

/// Hands out places in the tree to ranks as they come.
#[derive(Default)]
pub struct Places {
    hosts: BTreeMap<String, Vec<usize>>,
    /// The first rank of each host.
    agents: Vec<usize>,
}

impl Places {
    /// The parent of a rank that comes from `host`; none of the first of all.
    pub fn take(&mut self, rank: usize, host: &str) -> Option<usize> {
        let here = self.hosts.entry(host.to_owned()).or_default();
        let siblings = if here.is_empty() { &mut self.agents } else { &mut *here };
        let parent = siblings.len().checked_sub(1).map(|before| siblings[before / FAN_OUT]);
        let first = here.is_empty();
        here.push(rank);
        if first {
            self.agents.push(rank);
        }
        parent
    }
}

/// All ranks that take part, in columns: by place, which is a rank's number among them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Roster {
    /// Ascending.
    ranks: Vec<usize>,
    /// Where each takes links.
    addresses: Vec<SocketAddr>,
    pids: Vec<u32>,
    /// Numbers of names.
    hosts: Vec<usize>,
    names: Vec<String>,
    /// Ranks above each, none for the first.
    parents: Vec<Option<usize>>,
    /// This rank's own, so it is not handed on.
    #[serde(skip)]
    first_at: Option<IpAddr>,
}

impl Roster {
    /// Adds the next rank.
    pub fn add(&mut self, identity: &Identity, address: SocketAddr, parent: Option<usize>) {
        let host = self.names.iter().position(|name| *name == identity.host).unwrap_or_else(|| {
            self.names.push(identity.host.clone());
            self.names.len() - 1
        });
        self.ranks.push(identity.rank);
        self.addresses.push(address);
        self.pids.push(identity.pid);
        self.hosts.push(host);
        self.parents.push(parent);
    }

    /// Notes by which address this rank reaches the first one, which can't know it.
    pub fn reach_first_by(&mut self, address: IpAddr) {
        self.first_at = Some(address);
    }

    /// The ranks, ascending.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    fn place(&self, rank: usize) -> Option<usize> {
        self.ranks.binary_search(&rank).ok()
    }

    /// Who a rank is.
    pub fn known(&self, rank: usize) -> Option<Known> {
        let place = self.place(rank)?;
        let host = self.names.get(*self.hosts.get(place)?)?.clone();
        Some(Known { rank, host, pid: *self.pids.get(place)? })
    }

    /// Where a rank takes links.
    pub fn address(&self, rank: usize) -> Option<SocketAddr> {
        let address = *self.addresses.get(self.place(rank)?)?;
        let seen = self.first_at.filter(|_| address.ip().is_unspecified());
        Some(seen.map_or(address, |at| SocketAddr::new(at, address.port())))
    }

    /// The rank at the top.
    pub fn first(&self) -> usize {
        self.parents.iter().position(Option::is_none).map_or(0, |place| self.ranks[place])
    }

    /// The rank above; none above the first.
    pub fn parent(&self, rank: usize) -> Option<usize> {
        self.parents.get(self.place(rank)?).copied().flatten()
    }

    /// The rank itself and those above it, up to the first.
    fn upwards(&self, rank: usize) -> Vec<usize> {
        // No more steps than ranks, whatever the columns say.
        std::iter::successors(Some(rank), |&rank| self.parent(rank)).take(self.ranks.len()).collect()
    }

    /// The ranks on the way from one to another over the tree, the last included.
    pub fn way(&self, from: usize, to: usize) -> Vec<usize> {
        let (ups, downs) = (self.upwards(from), self.upwards(to));
        let met = ups.iter().enumerate().find_map(|(up, rank)| {
            let down = downs.iter().position(|other| other == rank)?;
            Some((up, down))
        });
        let Some((up, down)) = met else { return Vec::new() };
        ups[1..=up].iter().chain(downs[..down].iter().rev()).copied().collect()
    }

    /// The ranks directly below one, each with the places of all that are below it and its own, ascending; and the places of
    /// all of them and this one.
    pub fn branches(&self, rank: usize) -> (Vec<(usize, Vec<usize>)>, Vec<usize>) {
        let mut below: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut all = Vec::new();
        for (place, &member) in self.ranks.iter().enumerate() {
            let ups = self.upwards(member);
            let Some(above) = ups.iter().position(|&up| up == rank) else { continue };
            all.push(place);
            if above > 0 {
                below.entry(ups[above - 1]).or_default().push(place);
            }
        }
        (below.into_iter().collect(), all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks that come in this order, `per_host` of a host.
    fn roster(order: &[usize], per_host: usize) -> Roster {
        let mut places = Places::default();
        let mut parents = BTreeMap::new();
        for &rank in order {
            parents.insert(rank, places.take(rank, &format!("host{}", rank / per_host)));
        }
        let mut roster = Roster::default();
        for (&rank, &parent) in &parents {
            let identity = Identity {
                run: String::new(),
                binary: String::new(),
                torch: String::new(),
                plan_sha256: String::new(),
                rank,
                world_size: order.len(),
                host: format!("host{}", rank / per_host),
                pid: 0,
                port: 0,
            };
            roster.add(&identity, SocketAddr::from(([10, 0, 0, 1], 7)), parent);
        }
        roster
    }

    #[test]
    fn a_tree_has_few_links_and_few_steps_and_leaves_each_host_once() {
        let (world, per_host) = (2048, 8);
        // The first is there first; the others come in any order.
        let order: Vec<usize> = (0..world).map(|number| number * 1237 % world).collect();
        let roster = roster(&order, per_host);
        assert_eq!(roster.first(), 0);
        let mut outside = BTreeMap::new();
        for &rank in roster.ranks() {
            let (branches, all) = roster.branches(rank);
            assert!(branches.len() <= 2 * FAN_OUT, "{branches:?}");
            assert_eq!(all.len(), 1 + branches.iter().map(|(_, places)| places.len()).sum::<usize>());
            assert!(roster.upwards(rank).len() <= 5, "{:?}", roster.upwards(rank));
            if let Some(parent) = roster.parent(rank)
                && parent / per_host != rank / per_host
            {
                *outside.entry(rank / per_host).or_insert(0) += 1;
            }
        }
        assert_eq!(roster.branches(0).1.len(), world);
        // One rank of each host has its parent elsewhere.
        assert!(outside.len() == world / per_host - 1 && outside.values().all(|&links| links == 1));
    }

    #[test]
    fn the_way_between_two_ranks_goes_over_links() {
        let order: Vec<usize> = (0..40).collect();
        let roster = roster(&order, 4);
        for from in 0..40 {
            for to in 0..40 {
                let way = roster.way(from, to);
                assert_eq!(way.last().copied(), (from != to).then_some(to));
                let mut at = from;
                for next in way {
                    assert!(roster.parent(at) == Some(next) || roster.parent(next) == Some(at));
                    at = next;
                }
            }
        }
    }
}
