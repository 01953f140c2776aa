//! The control plane: what all ranks tell each other, whichever way their tensors go. Ranks hang together by a tree with one
//! rank of each host as its inner nodes (`link/roster.rs`), so each has few links, and what all do together takes each a few
//! messages and the whole as many steps as the tree is high. Losses and norms, barriers, agreements, questions and the news of
//! a failure go over it.
//!
//! `reach.rs` and `gathering.rs` are how ranks find their places, `round.rs` what they do together, `blame.rs` whom they wait
//! for.

mod blame;
mod gathering;
mod reach;
mod round;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use planner::run::said_by;
use run_folder::Key;

use super::link::board::Channel;
use super::link::greetings::Greetings;
use super::link::identity::{Errand, Identity};
use super::link::network::Network;
use super::link::{LastResort, Link};

pub use blame::silence;
pub use round::Round;

/// Where and how to meet.
pub struct Meeting {
    /// The ranks that take part, ascending.
    pub members: Vec<usize>,
    /// Host of the first of them.
    pub address: String,
    /// Its port.
    pub port: u16,
    /// The run's key; a world of one rank needs none.
    pub key: Option<Key>,
    /// How long a rank waits for another, when joining and in a collective.
    pub timeout: Duration,
    /// Called when the run has failed and this rank's own thread did not end the process soon after.
    pub last_resort: Option<LastResort>,
}

/// A rank directly below another in the tree.
struct Branch {
    link: Arc<Link>,
    /// The places of all ranks there, among those of all that are below the other and its own.
    rows: Vec<usize>,
    /// Their places in the world.
    places: Vec<usize>,
}

/// A rank's place in the tree.
#[derive(Default)]
struct Tree {
    parent: Option<Arc<Link>>,
    branches: Vec<Branch>,
    /// This rank among those below it and itself.
    own_row: usize,
    /// How many those are.
    rows: usize,
    /// This rank among all, and how many those are.
    place: usize,
    world: usize,
}

struct Shared {
    me: Identity,
    key: Option<Key>,
    timeout: Duration,
    network: Arc<Network>,
    tree: Tree,
    /// Takes links until this rank leaves.
    greetings: Mutex<Option<Greetings>>,
}

/// A rank's part of the control plane, for any of its threads.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

/// What a rank has and has done, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Links in the tree.
    pub tree_links: usize,
    /// Links for tensors.
    pub data_links: usize,
    /// Frames sent, on any of them.
    pub frames: u64,
}

impl Control {
    /// Meets the other ranks and takes a place in their tree.
    ///
    /// # Errors
    /// When the first rank can't listen, somebody is missing at the deadline or gone before, or ranks don't match.
    pub fn join(mut me: Identity, meeting: Meeting) -> anyhow::Result<Control> {
        let network = Network::new(me.rank, meeting.last_resort.clone());
        let (tree, greetings) = if meeting.members == [me.rank] {
            (Tree { rows: 1, world: 1, ..Tree::default() }, None)
        } else {
            let met = meet(&mut me, &meeting, &network).inspect_err(|error| {
                // Those already linked would otherwise blame this rank for going.
                network.fail(&said_by(me.rank as u64, &format!("{error:#}")));
            })?;
            (met.0, Some(met.1))
        };
        let greetings = Mutex::new(greetings);
        let Meeting { key, timeout, .. } = meeting;
        Ok(Control { shared: Arc::new(Shared { me, key, timeout, network, tree, greetings }) })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.shared.me.rank
    }

    /// How long a rank waits for another.
    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    /// All links of this rank, and what came over them.
    pub(super) fn network(&self) -> &Arc<Network> {
        &self.shared.network
    }

    /// Links and messages so far.
    pub fn counts(&self) -> Counts {
        let (tree_links, data_links) = self.shared.network.links();
        Counts { tree_links, data_links, frames: self.shared.network.frames() }
    }

    /// Why the run has failed, if it has.
    pub fn failure(&self) -> Option<String> {
        self.shared.network.board.failure()
    }

    /// Notes a failure of this rank, and has all ranks told, with its number; the first one stays.
    pub fn fail(&self, reason: &str) {
        self.shared.network.fail(&said_by(self.rank() as u64, reason));
    }

    /// Asked while something goes on that others take part in: fails when the run has failed, or when a rank has waited for
    /// as long as it waits for another, counted from now.
    pub fn patience(&self) -> impl Fn() -> anyhow::Result<()> + use<> {
        let (network, timeout, since) = (self.shared.network.clone(), self.shared.timeout, Instant::now());
        move || {
            if let Some(reason) = network.board.failure() {
                bail!(reason);
            }
            let seconds = timeout.as_secs_f64();
            ensure!(
                since.elapsed() <= timeout,
                "not done within {seconds} s; another rank did not come to it"
            );
            Ok(())
        }
    }

    /// Notes that this rank has entered operation `number` of a group.
    pub fn set_entered(&self, group: usize, number: u64) {
        self.shared.network.board.set_entered(group, number);
    }

    /// The link by which tensors go to another rank, made if there is none.
    ///
    /// # Errors
    /// When that rank takes none, or the run fails meanwhile.
    pub(super) fn data_link(&self, rank: usize, deadline: Instant) -> anyhow::Result<Arc<Link>> {
        let Shared { me, key, network, .. } = &*self.shared;
        if let Some(link) = network.data_link(rank) {
            return Ok(link);
        }
        let no_link = || format!("there is no rank {rank} to link with");
        let roster = network.roster().with_context(no_link)?;
        let (peer, address) = roster.known(rank).zip(roster.address(rank)).with_context(no_link)?;
        let key = key.as_ref().context("ranks of one world need the run's key")?;
        let linked = reach::link(me, (peer, address), (key, Errand::Data), network, Channel::Data, deadline);
        match linked {
            // The other one may have linked meanwhile: all goes by the first, so that it comes in order.
            Ok(link) => Ok(network.data_link(rank).unwrap_or(link)),
            Err(error) => Err(self.reason_that_comes().map_or(error, anyhow::Error::msg)),
        }
    }

    /// Waits for the link that another rank makes, which may have made it before this one has taken it.
    ///
    /// # Errors
    /// When there is none at the deadline, or the run fails meanwhile.
    pub(super) fn await_data_link(&self, rank: usize, deadline: Instant) -> anyhow::Result<()> {
        let Shared { me, network, .. } = &*self.shared;
        let found = network.await_data_link(rank, deadline);
        found.map(|_| ()).with_context(|| {
            self.failure().unwrap_or_else(|| format!("rank {} has no link from rank {rank}", me.rank))
        })
    }

    /// Why the run fails, where this rank has seen something break: what began with another is told within moments.
    pub(super) fn reason_that_comes(&self) -> Option<String> {
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            let reason = self.failure();
            if reason.is_some() || Instant::now() >= until {
                return reason;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Says goodbye to all: what closes now was meant to.
    pub(super) fn leave(&self) {
        self.shared.network.leave();
        self.take_no_more();
    }

    /// Takes no more links.
    pub(super) fn take_no_more(&self) {
        drop(self.shared.greetings.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// This rank's place, and what goes on to take links.
fn meet(me: &mut Identity, meeting: &Meeting, network: &Arc<Network>) -> anyhow::Result<(Tree, Greetings)> {
    let deadline = Instant::now() + meeting.timeout;
    let key = meeting.key.as_ref().context("ranks of one world need the run's key")?;
    let first = meeting.members.first() == Some(&me.rank);
    let greetings = match first {
        true => gathering::gather(me, meeting, key, network, deadline)?,
        false => reach::take_place(me, meeting, key, network, deadline)?,
    };
    let tree = stand(me.rank, meeting, network, deadline)?;
    // Nobody below can have asked before.
    reach::hand_down(network, &tree)?;
    Ok((tree, greetings))
}

/// The place that the roster gives this rank, with its links.
fn stand(rank: usize, meeting: &Meeting, network: &Network, deadline: Instant) -> anyhow::Result<Tree> {
    let roster = network.roster().context("nobody has said where the ranks are")?;
    let named = roster.ranks();
    ensure!(
        named == meeting.members,
        "rank {} named ranks {named:?}, not {:?}",
        roster.first(),
        meeting.members
    );
    let linked = |neighbour: usize| {
        network.await_tree_link(neighbour, deadline).with_context(|| {
            network.board.failure().unwrap_or_else(|| format!("rank {rank} has no link to rank {neighbour}"))
        })
    };
    let (below, all) = roster.branches(rank);
    let row = |place: &usize| all.binary_search(place).unwrap_or_default();
    let branch = |(neighbour, places): (usize, Vec<usize>)| {
        Ok(Branch { link: linked(neighbour)?, rows: places.iter().map(row).collect(), places })
    };
    network.board.set_below(below.iter().map(|(neighbour, _)| *neighbour).collect());
    let branches = below.into_iter().map(branch).collect::<anyhow::Result<Vec<Branch>>>()?;
    let place = meeting.members.binary_search(&rank).unwrap_or_default();
    Ok(Tree {
        parent: roster.parent(rank).map(linked).transpose()?,
        branches,
        own_row: row(&place),
        rows: all.len(),
        place,
        world: meeting.members.len(),
    })
}
