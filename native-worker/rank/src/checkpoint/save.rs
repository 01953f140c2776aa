//! Saving: a copy on the host, a thread that writes it, and the agreement of all ranks that it is there.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context;
use planner::plan::Checkpoints as Settings;
use planner::wire::{CheckpointFilePart, CheckpointIndex, Event, PIECES, PlanFile, Saved};
use run_folder::{CHECKPOINT_VERSION, Checkpoints, Log, measure, rank_file};
use safetensors::Dtype;
use safetensors::tensor::{View, serialize_to_file};
use tch::{Device, Kind, Tensor};

use super::elements::{Staged, stage};
use super::together;
use crate::collectives::{Collectives, GroupId, Reduce};
use crate::train::Trainer;

/// A file that a thread has written: its length and checksum, or why there is none.
type Written = Result<(u64, String), String>;

/// What becomes of a checkpoint that was begun.
enum Underway {
    /// Nothing is.
    Nothing,
    /// This rank's file is being written, or waits for the others'.
    Writing(Box<Writing>),
    /// Every file is there, and the first rank makes them a checkpoint.
    Completing(Completing),
}

struct Writing {
    index: CheckpointIndex,
    bytes: u64,
    stall: f64,
    began: Instant,
    thread: JoinHandle<(Written, Vec<Staged>)>,
}

struct Completing {
    saved: Saved,
    began: Instant,
    /// On the first rank alone.
    thread: Option<JoinHandle<Result<(), String>>>,
}

/// Saves a training.
pub struct Saver<'a> {
    settings: Settings,
    checkpoints: Checkpoints,
    world: &'a dyn Collectives,
    everyone: GroupId,
    /// Their numbers, in the order of the group.
    ranks: Vec<u64>,
    plan: PlanFile,
    log: Arc<Log>,
    underway: Underway,
    /// When the last was begun, or training.
    since: Instant,
    /// Steps that the last one has.
    last: Option<u64>,
    /// Whether one came due by its step while the last was still being written: it is begun once that is there.
    owed: bool,
    /// Why the last that was begun is none, where this rank knows.
    failed: Option<String>,
    /// Memory of the checkpoint before, for the next.
    spare: Vec<Staged>,
}

impl View for &Staged {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes a rank's file and has it on the disk; length and checksum as they are read back.
fn write(folder: &Path, rank: u64, staged: &[Staged]) -> anyhow::Result<(u64, String)> {
    let path = folder.join(rank_file(rank));
    let pieces: Vec<_> = staged.iter().map(|one| &one.saved).collect();
    let about = HashMap::from([(PIECES.to_owned(), serde_json::to_string(&pieces)?)]);
    let tensors = staged.iter().map(|one| (one.saved.tensor.as_str(), one));
    serialize_to_file(tensors, Some(about), &path).map_err(tensor_files::said_once)?;
    File::open(&path)?.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(measure(&path)?)
}

/// Starts a thread that saves; it ends with the training at the latest.
fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<JoinHandle<T>> {
    std::thread::Builder::new().name("checkpoint".to_owned()).spawn(work).context("writing a checkpoint")
}

/// What is said of a thread that panicked: that costs the checkpoint alone.
const ENDED_BY_A_BUG: &str = "a bug in shardplan-rank ended the thread that writes it";

impl<'a> Saver<'a> {
    /// Saves into this folder as the plan says; `last` is the checkpoint that the training goes on from.
    pub fn new(
        settings: Settings,
        checkpoints: Checkpoints,
        world: &'a dyn Collectives,
        everyone: GroupId,
        plan: PlanFile,
        log: &Arc<Log>,
        last: Option<u64>,
    ) -> Saver<'a> {
        Saver {
            settings,
            checkpoints,
            world,
            everyone,
            ranks: world.groups().get(everyone.0).map(|group| group.ranks.clone()).unwrap_or_default(),
            plan,
            log: log.clone(),
            underway: Underway::Nothing,
            since: Instant::now(),
            last,
            owed: false,
            failed: None,
            spare: Vec::new(),
        }
    }

    /// Whether a checkpoint is due after `done` steps. The first rank's word counts, as clocks differ.
    pub fn is_due(&mut self, done: u64) -> bool {
        if self.last == Some(done) || done == 0 {
            return false;
        }
        self.owed |= self.settings.every_steps.is_some_and(|every| done.is_multiple_of(every));
        if !matches!(self.underway, Underway::Nothing) {
            return false;
        }
        let passed = self.since.elapsed().as_secs_f64();
        self.owed || self.settings.seconds().is_some_and(|every| passed >= every)
    }

    /// Whether this rank is still at one.
    pub fn is_underway(&self) -> bool {
        match &self.underway {
            Underway::Nothing => false,
            Underway::Writing(writing) => !writing.thread.is_finished(),
            Underway::Completing(completing) => {
                completing.thread.as_ref().is_some_and(|thread| !thread.is_finished())
            }
        }
    }

    /// Begins the checkpoint of `done` steps, on all ranks.
    ///
    /// # Errors
    /// When libtorch fails, or no thread is given. A disk that refuses is none.
    pub fn begin(&mut self, trainer: &Trainer<'_>, done: u64) -> anyhow::Result<()> {
        let began = Instant::now();
        let spare = std::mem::take(&mut self.spare);
        let staged = stage(&trainer.state, &trainer.model, self.world, spare)?;
        let bytes = staged.iter().map(|one| one.bytes.len() as u64).sum();
        let (checkpoints, rank) = (self.checkpoints.clone(), self.world.rank() as u64);
        let thread = on_a_thread(move || {
            let folder = checkpoints.stage(done).map_err(anyhow::Error::from);
            let written = folder.and_then(|folder| write(&folder, rank, &staged));
            (written.map_err(|error| format!("{error:#}")), staged)
        })?;
        let index = CheckpointIndex {
            version: CHECKPOINT_VERSION,
            step: done,
            samples: trainer.samples_after(done),
            unix_ms: run_folder::unix_ms(),
            plan: self.plan.clone(),
            loss_scale: trainer.loss_scale(),
            files: Vec::new(),
        };
        let stall = began.elapsed().as_secs_f64();
        self.underway = Underway::Writing(Box::new(Writing { index, bytes, stall, began, thread }));
        self.since = Instant::now();
        self.last = Some(done);
        self.owed = false;
        Ok(())
    }

    /// Goes on with one that is underway, once no rank is at it any more; all ranks come here together.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn advance(&mut self) -> anyhow::Result<()> {
        match std::mem::replace(&mut self.underway, Underway::Nothing) {
            Underway::Nothing => {}
            Underway::Writing(writing) => self.complete(*writing)?,
            Underway::Completing(completing) => self.settle(completing),
        }
        Ok(())
    }

    /// Waits for one that is underway. Why it failed, if it did; the same on all ranks.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn finish(&mut self) -> anyhow::Result<Option<String>> {
        while !matches!(self.underway, Underway::Nothing) {
            // Nobody waits in a collective for a rank whose disk is slow: that would end the run when its time is up.
            together(self.world, self.everyone, || self.is_underway())?;
            self.advance()?;
        }
        self.agree_on_failure()
    }

    /// Saves what `done` steps have trained and waits until it is there. Why it is not, if it is not.
    ///
    /// # Errors
    /// When a collective or libtorch fails.
    pub fn save_now(&mut self, trainer: &Trainer<'_>, done: u64) -> anyhow::Result<Option<String>> {
        let failed = self.finish()?;
        if self.last == Some(done) || done == 0 {
            return Ok(failed);
        }
        self.begin(trainer, done)?;
        self.finish()
    }

    /// Tells the others what became of this rank's file. With all of them, the first rank has them made a checkpoint.
    fn complete(&mut self, writing: Writing) -> anyhow::Result<()> {
        let Writing { mut index, bytes, stall, began, thread } = writing;
        let step = index.step;
        let own = match thread.join() {
            Ok((own, spare)) => {
                self.spare = spare;
                own
            }
            Err(_) => Err(ENDED_BY_A_BUG.to_owned()),
        };
        let mine = match &own {
            Ok((bytes, crc32)) => [1, i64::try_from(*bytes)?, i64::from_str_radix(crc32, 16)?],
            Err(_) => [0; 3],
        };
        let mut all = Tensor::f_zeros([self.ranks.len() as i64, 3], (Kind::Int64, Device::Cpu))?;
        self.world.all_gather(self.everyone, &Tensor::f_from_slice(&mine)?, &mut all)?;
        let all: Vec<i64> = Vec::try_from(all.f_view([-1])?)?;
        let all_bytes = all.chunks_exact(3).map(|one| one[1] as u64).sum();
        let parts = || self.ranks.iter().zip(all.chunks_exact(3));
        let without = parts().find(|(_, one)| one[0] == 0).map(|(rank, _)| *rank);
        let failed = match (&own, without) {
            (Err(reason), _) => Some(reason.clone()),
            (Ok(_), Some(rank)) => Some(format!("rank {rank} could not write its part; its log says why")),
            (Ok(_), None) => None,
        };
        let saved = Saved { step, bytes, all_bytes, stall_seconds: stall, seconds: 0.0, failed };
        let mut thread = None;
        if self.world.leads() {
            let (checkpoints, settings) = (self.checkpoints.clone(), self.settings);
            if saved.failed.is_some() {
                checkpoints.discard(step);
            } else {
                let part = |(&rank, one): (&u64, &[i64])| CheckpointFilePart {
                    name: rank_file(rank),
                    bytes: one[1] as u64,
                    crc32: format!("{:08x}", one[2]),
                };
                index.files = parts().map(part).collect();
                thread = Some(on_a_thread(move || {
                    checkpoints.commit(&index).map_err(|error| error.to_string())?;
                    checkpoints.prune(settings.keep, settings.keep_every_hours);
                    Ok(())
                })?);
            }
        }
        self.underway = Underway::Completing(Completing { saved, began, thread });
        Ok(())
    }

    /// Records what became of it.
    fn settle(&mut self, completing: Completing) {
        let Completing { mut saved, began, thread } = completing;
        let ended = thread.map(|thread| thread.join().unwrap_or_else(|_| Err(ENDED_BY_A_BUG.to_owned())));
        if let Some(Err(reason)) = ended {
            self.checkpoints.discard(saved.step);
            saved.failed = Some(reason);
        }
        saved.seconds = began.elapsed().as_secs_f64();
        if let Some(reason) = &saved.failed {
            crate::notice(&format!(
                "step {} could not be saved: {reason}; the training goes on, and the checkpoints before stay",
                saved.step
            ));
        }
        self.failed.clone_from(&saved.failed);
        self.log.append(Event::Saved(saved));
    }

    /// Whether the last one failed on any rank; then all know.
    fn agree_on_failure(&mut self) -> anyhow::Result<Option<String>> {
        let mut worst = Tensor::f_from_slice(&[i64::from(self.failed.is_some())])?;
        self.world.all_reduce(self.everyone, Reduce::Max, &mut worst)?;
        if worst.f_int64_value(&[0])? == 0 {
            return Ok(None);
        }
        self.last = None;
        Ok(Some(
            self.failed
                .clone()
                .unwrap_or_else(|| "the first rank could not complete it; its log says why".to_owned()),
        ))
    }
}
