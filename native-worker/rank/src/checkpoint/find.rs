//! Which checkpoint a training goes on from: the newest that is whole, the same on all ranks.

use std::path::Path;

use anyhow::{bail, ensure};
use run_folder::{Checkpoint, Checkpoints};
use tch::Tensor;
use tensor_files::CheckpointReader;

use super::load::Source;
use crate::collectives::{Collectives, GroupId, Reduce};

/// What is gone on from.
pub struct Found {
    /// What it has.
    pub source: Source,
    /// Newer ones that are damaged, as sentences.
    pub passed_over: Vec<String>,
}

/// Checkpoints in a folder, or the one that it is, the newest first.
fn candidates(folder: &Path) -> Vec<Checkpoint> {
    match Checkpoint::at(folder).filter(|one| one.path.join(run_folder::INDEX).is_file()) {
        Some(one) => vec![one],
        None => {
            let own = Checkpoints::at(folder).all();
            if own.is_empty() { Checkpoints::of_run(folder).all() } else { own }
        }
    }
}

/// Agrees on the largest of the ranks' numbers.
fn largest(world: &dyn Collectives, everyone: GroupId, number: i64) -> anyhow::Result<i64> {
    let mut number = Tensor::f_from_slice(&[number])?;
    world.all_reduce(everyone, Reduce::Max, &mut number)?;
    Ok(number.f_int64_value(&[0])?)
}

/// The newest whole checkpoint in `folder`, if there is one. Each rank reads some of the files whole, so that together they
/// have seen every byte before any is believed.
///
/// # Errors
/// When all that are there are damaged, `must` says that there has to be one, or a collective fails.
pub fn find(
    folder: &Path,
    must: bool,
    world: &dyn Collectives,
    everyone: GroupId,
) -> anyhow::Result<Option<Found>> {
    let (rank, ranks) = (world.rank(), world.size(everyone));
    // A shared filesystem may show the folder to some ranks later than to others: rank 0's view counts.
    let all = candidates(folder);
    let mut passed_over = Vec::new();
    let mut tried = 0;
    loop {
        let next = if rank == 0 { all.get(tried).map_or(-1, |one| one.step as i64) } else { -1 };
        let step = largest(world, everyone, next)?;
        if step < 0 {
            break;
        }
        tried += 1;
        let mine = all.iter().find(|one| one.step == step as u64).cloned();
        let checked = mine.ok_or_else(|| format!("step {step} of {} is not seen here", folder.display()));
        let opened = checked.and_then(|one| {
            let index = one.index()?;
            index.files.iter().skip(rank).step_by(ranks.max(1)).try_for_each(|part| one.check(part))?;
            CheckpointReader::open(one, index).map(Source::of).map_err(|error| format!("{error:#}"))
        });
        let bad = if opened.is_err() { rank as i64 + 1 } else { 0 };
        let worst = largest(world, everyone, bad)?;
        match opened {
            Ok(source) if worst == 0 => return Ok(Some(Found { source, passed_over })),
            Ok(_) => passed_over.push(format!("rank {} found step {step} to be damaged", worst - 1)),
            Err(reason) => {
                crate::say(&format!("the checkpoint of step {step} is passed over: {reason}"));
                passed_over.push(reason);
            }
        }
    }
    if let Some(first) = passed_over.first() {
        bail!(
            "none of the {} checkpoints in {} can be gone on from ({first}); move the folder away to begin anew",
            passed_over.len(),
            folder.display()
        );
    }
    ensure!(
        !must,
        "there is no checkpoint in {}; look at the path, or start without --resume",
        folder.display()
    );
    Ok(None)
}
