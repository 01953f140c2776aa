//! Which checkpoint a training goes on from: the newest that is whole, the same on all ranks.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use run_folder::{Checkpoint, Checkpoints};
use tch::Tensor;
use tensor_files::CheckpointReader;

use super::load::Source;
use super::together;
use crate::collectives::{Collectives, GroupId, Reduce};

/// How long a shared filesystem may take to show this rank what another sees: NFS keeps a folder's list for up to a minute.
const SHOWN_AFTER: Duration = Duration::from_secs(90);

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

/// The checkpoint of a step that rank 0 has seen: a shared filesystem may show it to this rank a while later.
fn seen(folder: &Path, step: u64) -> Result<Checkpoint, String> {
    let until = Instant::now() + SHOWN_AFTER;
    loop {
        if let Some(one) = candidates(folder).into_iter().find(|one| one.step == step) {
            return Ok(one);
        }
        if Instant::now() >= until {
            return Err(format!(
                "the checkpoint of step {step} in {} is seen by rank 0 and not here after {} s; is the folder shared by all nodes?",
                folder.display(),
                SHOWN_AFTER.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
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
    let (number, ranks) = (world.index(everyone)?, world.size(everyone));
    // The first rank's view counts.
    let all = if world.leads() { candidates(folder) } else { Vec::new() };
    let mut passed_over = Vec::new();
    let mut tried = 0;
    loop {
        let next = if world.leads() { all.get(tried).map_or(-1, |one| one.step as i64) } else { -1 };
        let step = largest(world, everyone, next)?;
        if step < 0 {
            break;
        }
        tried += 1;
        let folder = folder.to_owned();
        let checking = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(move || {
            let one = seen(&folder, step as u64)?;
            let index = one.index()?;
            index.files.iter().skip(number).step_by(ranks.max(1)).try_for_each(|part| one.check(part))?;
            Ok((one, index))
        })?;
        together(world, everyone, || !checking.is_finished())?;
        let checked = checking.join().unwrap_or_else(|_| Err("a bug in shardplan-rank".to_owned()));
        let opened = checked.and_then(|(one, index)| {
            CheckpointReader::open(one, index).map(Source::of).map_err(|error| format!("{error:#}"))
        });
        let bad = if opened.is_err() { world.rank() as i64 + 1 } else { 0 };
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
