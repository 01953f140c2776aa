//! Which checkpoint a training goes on from: the newest that is whole, the same on all ranks.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use run_folder::{Checkpoint, Checkpoints};
use tch::{Device, Kind, Tensor};
use tensor_files::{CheckpointReader, Listed};

use super::load::Source;
use super::together;
use crate::collectives::{Collectives, GroupId, Reduce};
use crate::sys::cpu_bytes;

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
    match Checkpoint::at(folder).filter(Checkpoint::has_index) {
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

/// What every rank has listed of its share of the files: each file is opened for its list once, and not by every rank.
fn all_lists(
    world: &dyn Collectives,
    everyone: GroupId,
    own: &[Listed],
) -> anyhow::Result<impl Iterator<Item = Listed> + use<>> {
    let ranks = world.size(everyone);
    let text = serde_json::to_vec(own)?;
    // Texts are of equal lengths when they are gathered; what stands behind a JSON text may be blank.
    let length = usize::try_from(largest(world, everyone, i64::try_from(text.len())?)?)?;
    let mut mine = text;
    mine.resize(length, b' ');
    let mut all = Tensor::f_zeros([ranks as i64, length as i64], (Kind::Uint8, Device::Cpu))?;
    world.all_gather(everyone, &Tensor::f_from_slice(&mine)?, &mut all)?;
    let bytes = cpu_bytes(&all).context("gathered lists are not in the host's memory")?;
    let lists: Result<Vec<Vec<Listed>>, _> = bytes.chunks_exact(length).map(serde_json::from_slice).collect();
    Ok(lists.context("what ranks have listed of a checkpoint")?.into_iter().flatten())
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
            let mut listed = Vec::new();
            for file in (number..index.files.len()).step_by(ranks.max(1)) {
                one.check(&index.files[file])?;
                listed.extend(tensor_files::list(&one, &index, file).map_err(|error| format!("{error:#}"))?);
            }
            Ok::<_, String>((one, index, listed))
        })?;
        together(world, everyone, || !checking.is_finished())?;
        let checked = checking.join().unwrap_or_else(|_| Err("a bug in shardplan-rank".to_owned()));
        let bad = if checked.is_err() { world.rank() as i64 + 1 } else { 0 };
        let worst = largest(world, everyone, bad)?;
        match checked {
            Ok((one, index, listed)) if worst == 0 => {
                let listed = all_lists(world, everyone, &listed)?;
                let source = Source::of(CheckpointReader::of(one, index, listed)?);
                return Ok(Some(Found { source, passed_over }));
            }
            Ok(_) => passed_over.push(format!("rank {} found step {step} to be damaged", worst - 1)),
            Err(reason) => {
                crate::notice(&format!("the checkpoint of step {step} is passed over: {reason}"));
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
