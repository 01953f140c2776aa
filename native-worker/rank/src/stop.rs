//! Stopping in good order: a signal to any rank, `stop` in the run folder's `control` file, or the end of the launcher
//! ends all ranks after the same step.

use std::path::Path;

use run_folder::RunFolder;
use tch::Tensor;

use crate::collectives::{Collectives, GroupId, Reduce};
use crate::lease;
use crate::sys::signals;

/// Why all ranks end after the same step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Somebody asked, in words.
    Asked(String),
    /// This process, the launcher of a rank, is gone.
    LauncherGone(u32),
}

/// What a rank has to say, as a number of which the largest counts: nothing, that its launcher is gone, that a signal came
/// (with the rank), that the control file says so.
const NOTHING: i64 = 0;
const GONE: i64 = 1;
const SIGNAL: i64 = 2;
const CONTROL: i64 = i64::MAX;

/// What all ranks do before the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// Why to stop now, if any rank was asked to.
    pub stop: Option<Stop>,
    /// Whether a checkpoint is begun: what the first rank wants, by its clock.
    pub save: bool,
    /// Whether a rank is still at the one before.
    pub saving: bool,
}

/// Agrees on that with all ranks; `save` and `saving` are this rank's own. The first rank alone reads the control file, as a shared
/// filesystem may show it to some ranks later than to others.
///
/// # Errors
/// When the collective fails.
pub fn agree(
    world: &dyn Collectives,
    group: GroupId,
    folder: &Path,
    save: bool,
    saving: bool,
) -> anyhow::Result<Boundary> {
    let rank = world.rank() as i64;
    let mine = if world.leads() && RunFolder::of(folder).stop_asked() {
        CONTROL
    } else if signals::asked().is_some() {
        SIGNAL + rank
    } else if lease::gone().is_some() {
        GONE
    } else {
        NOTHING
    };
    let save = save && world.leads();
    // Which launcher is gone is said as well: a rank may hear of it from another before its own input has ended.
    let gone = i64::from(lease::gone().unwrap_or(0));
    let mut largest = Tensor::f_from_slice(&[mine, i64::from(save), i64::from(saving), gone])?;
    world.all_reduce(group, Reduce::Max, &mut largest)?;
    let stop = match largest.f_int64_value(&[0])? {
        NOTHING => None,
        GONE => Some(Stop::LauncherGone(u32::try_from(largest.f_int64_value(&[3])?)?)),
        CONTROL => Some(Stop::Asked("stopped by the run's control file".to_owned())),
        number if number == SIGNAL + rank => {
            Some(Stop::Asked(format!("stopped by {} to rank {rank}", signals::asked().unwrap_or("a signal"))))
        }
        number => Some(Stop::Asked(format!("stopped by a signal to rank {}", number - SIGNAL))),
    };
    let said = |number: i64| -> anyhow::Result<bool> { Ok(largest.f_int64_value(&[number])? != 0) };
    Ok(Boundary { stop, save: said(1)?, saving: said(2)? })
}
