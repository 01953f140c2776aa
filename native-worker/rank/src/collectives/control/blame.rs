//! Whom a rank waits for. One that waits for another is not to blame, so the one at the end of the chain is asked; questions go
//! over the tree, and where no answer comes, the rank on the way that is silent is found.

use std::collections::VecDeque;
use std::time::Duration;

use super::Control;
use crate::collectives::link::board::Doing;

/// How long a rank may take to say what it is doing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Ranks that have not come and are asked why, at most: of many, a few will do.
const ASKED: usize = 8;

/// Says that a rank gives no answer, by itself or because of one on the way to it.
pub fn silence(asked: usize, silent: usize) -> String {
    let way = match asked == silent {
        true => String::new(),
        false => format!("rank {asked} can't be asked, for on the way to it "),
    };
    format!("{way}rank {silent} does not answer, so it is stopped or its machine is not reachable")
}

impl Control {
    /// What a rank says that it is doing; if it does not within a second, the rank on the way to it, perhaps itself, that does
    /// not answer.
    ///
    /// # Errors
    /// That rank.
    pub fn ask(&self, rank: usize) -> Result<Doing, usize> {
        let network = &self.shared.network;
        if rank == self.rank() {
            return Ok(network.board.doing());
        }
        let way = network.roster().map(|roster| roster.way(self.rank(), rank)).unwrap_or_default();
        network.board.forget_answers(&way);
        for &hop in &way {
            network.ask(hop, self.rank());
        }
        if let Some(doing) = network.board.take_answer(rank, PATIENCE) {
            return Ok(doing);
        }
        let silent = way.iter().find(|&&hop| network.board.take_answer(hop, Duration::ZERO).is_none());
        Err(silent.copied().unwrap_or(rank))
    }

    /// A rank that has not entered what all do together with this number, and is none of `seen`: rather one that waits for
    /// nobody.
    pub(super) fn absent(&self, number: u64, seen: &[usize]) -> Option<usize> {
        let first = self.shared.network.roster().map_or(0, |roster| roster.first());
        let (mut next, mut asked) = (VecDeque::from([first]), 0);
        let mut waits = None;
        while let Some(rank) = next.pop_front() {
            let answer = self.ask(rank);
            let (absent, free) = match &answer {
                Ok(doing) => (doing.together < number, doing.waiting_for.is_none()),
                Err(_) => (true, true),
            };
            let rank = answer.as_ref().err().copied().unwrap_or(rank);
            if absent && !seen.contains(&rank) {
                if free {
                    return Some(rank);
                }
                waits = waits.or(Some(rank));
                asked += 1;
            }
            if asked >= ASKED || self.failure().is_some() {
                break;
            }
            if let Ok(doing) = answer
                && doing.together <= number
            {
                next.extend(doing.below.iter().filter(|(_, came)| *came < number).map(|(rank, _)| *rank));
            }
        }
        waits
    }

    /// What a rank that did not come says, and those that it waits for, up to one that waits for nobody.
    ///
    /// # Errors
    /// Why the run has failed, if it does meanwhile.
    pub(in crate::collectives) fn account(&self, rank: usize) -> Result<String, String> {
        let mut text = String::new();
        let (mut asked, mut seen) = (rank, vec![self.rank()]);
        loop {
            seen.push(asked);
            let answer = self.ask(asked);
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            let doing = match answer {
                Ok(doing) => doing,
                Err(silent) => return Ok(format!("{text}; {}", silence(asked, silent))),
            };
            text += &format!("; rank {asked} says that it is {}", doing.words);
            let next = match doing.in_it {
                true => self.absent(doing.together, &seen),
                false => doing.waiting_for.filter(|next| !seen.contains(next)),
            };
            match next {
                Some(next) => asked = next,
                None => return Ok(text),
            }
        }
    }
}
