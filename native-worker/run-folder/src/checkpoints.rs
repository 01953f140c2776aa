//! The checkpoints of a run: a folder with a folder for each, named by its steps.
//!
//! A checkpoint is written into a folder of another name, which its own name is given to only when every file is there, whole
//! and on the disk. So whatever has a checkpoint's name is one, and a kill at any moment leaves those before it as they were.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use planner::Plan;
use planner::model::count;
use planner::wire::{CheckpointFilePart, CheckpointIndex};

use crate::own;

/// The file that makes a folder a checkpoint.
pub const INDEX: &str = "checkpoint.json";
/// The folder of checkpoints in a run's folder.
pub const CHECKPOINTS: &str = "checkpoints";

/// Name of a rank's file in a checkpoint.
pub fn rank_file(rank: u64) -> String {
    format!("rank-{rank:05}.safetensors")
}
/// The format that is written and read.
pub const CHECKPOINT_VERSION: u32 = 1;

/// What a checkpoint's name begins with.
const STEP: &str = "step-";
/// What the name of one that is being written begins with.
const STAGED: &str = ".new-step-";
/// The largest index that is read.
const MOST_INDEX_BYTES: u64 = 256 * 1024 * 1024;
/// Bytes read at a time.
const PART: usize = 1 << 20;

/// A folder of checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
}

/// One of its checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Steps that it has, as its name says.
    pub step: u64,
    /// Its folder.
    pub path: PathBuf,
}

impl Checkpoint {
    /// The one in this folder, if its name is a checkpoint's.
    pub fn at(path: &Path) -> Option<Checkpoint> {
        let step = path.file_name()?.to_str()?.strip_prefix(STEP)?;
        let all_digits = step.bytes().all(|byte| byte.is_ascii_digit());
        let step = step.parse().ok().filter(|_| all_digits)?;
        Some(Checkpoint { step, path: path.to_owned() })
    }

    /// Whether it has an index, whole or not: without one it is a folder that has such a name.
    pub fn has_index(&self) -> bool {
        match self.path.join(INDEX).symlink_metadata() {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    /// What it has.
    ///
    /// # Errors
    /// A sentence when the index is not there, is no index, or is of another version.
    pub fn index(&self) -> Result<CheckpointIndex, String> {
        let path = self.path.join(INDEX);
        let failed = |error: &dyn std::fmt::Display| format!("{} can't be read: {error}", path.display());
        let file = own::open(&path).map_err(|error| failed(&error))?;
        let mut text = Vec::new();
        file.take(MOST_INDEX_BYTES).read_to_end(&mut text).map_err(|error| failed(&error))?;
        let damaged = |why: &dyn std::fmt::Display| format!("{} is damaged: {why}", path.display());
        if text.trim_ascii().is_empty() {
            return Err(damaged(&"it is empty"));
        }
        let index: CheckpointIndex = serde_json::from_slice(&text).map_err(|error| damaged(&error))?;
        if index.version != CHECKPOINT_VERSION {
            let (found, known) = (index.version, CHECKPOINT_VERSION);
            return Err(format!(
                "{} is of version {found}, and this program reads {known}; take the one that wrote it",
                path.display()
            ));
        }
        if index.step != self.step {
            return Err(format!("{} says step {}, but its folder {}", path.display(), index.step, self.step));
        }
        Ok(index)
    }

    /// Reads a file of it whole, and holds it against the index.
    ///
    /// # Errors
    /// A sentence when it is not what was written.
    pub fn check(&self, part: &CheckpointFilePart) -> Result<(), String> {
        let path = self.file(part)?;
        let (bytes, crc32) =
            measure(&path).map_err(|error| format!("{} can't be read: {error}", path.display()))?;
        if bytes != part.bytes {
            return Err(format!("{} has {bytes} bytes, and {} were written", path.display(), part.bytes));
        }
        if crc32 != part.crc32 {
            return Err(format!(
                "{} is damaged: its checksum is {crc32}, and {} was written",
                path.display(),
                part.crc32
            ));
        }
        Ok(())
    }

    /// Whether its index can be read and all of its files are as long as they were written, without reading them.
    pub fn has_all(&self) -> bool {
        let length = |part: &CheckpointFilePart| {
            let path = self.file(part).ok()?;
            Some(std::fs::metadata(path).ok()?.len())
        };
        self.index().is_ok_and(|index| index.files.iter().all(|part| length(part) == Some(part.bytes)))
    }

    /// Where a file of it is.
    ///
    /// # Errors
    /// A sentence when its name leads elsewhere.
    pub fn file(&self, part: &CheckpointFilePart) -> Result<PathBuf, String> {
        let plain = Path::new(&part.name).file_name() == Some(part.name.as_ref());
        if !plain {
            return Err(format!(
                "{} names a file {:?}, which is none of its own",
                self.path.display(),
                part.name
            ));
        }
        Ok(self.path.join(&part.name))
    }
}

/// Length and CRC-32 of a file.
///
/// # Errors
/// When it can't be read, or is not the caller's own plain file.
pub fn measure(path: &Path) -> io::Result<(u64, String)> {
    let mut file = own::open(path)?;
    let (mut hash, mut bytes, mut part) = (crc32fast::Hasher::new(), 0, vec![0; PART]);
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok((bytes, format!("{:08x}", hash.finalize()))),
            Ok(count) => {
                bytes += count as u64;
                hash.update(&part[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Checkpoints {
    /// The checkpoints in this folder, which need not be there yet.
    pub fn at(folder: &Path) -> Checkpoints {
        Checkpoints { folder: folder.to_owned() }
    }

    /// The checkpoints of a run.
    pub fn of_run(run: &Path) -> Checkpoints {
        Checkpoints::at(&run.join(CHECKPOINTS))
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All that are complete, the newest first.
    pub fn all(&self) -> Vec<Checkpoint> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let mut found: Vec<Checkpoint> = entries
            .flatten()
            .filter_map(|entry| Checkpoint::at(&entry.path()))
            .filter(Checkpoint::has_index)
            .collect();
        found.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.step));
        found
    }

    /// Takes this folder for one run alone, for as long as the file lives, and makes it if it is not there. None where the
    /// filesystem has no locks.
    ///
    /// # Errors
    /// When another process has it, or it can't be made.
    pub fn hold(&self) -> io::Result<Option<nix::fcntl::Flock<File>>> {
        self.make(&self.folder)?;
        let file = own::append(&self.folder.join(".lock"))?;
        match nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(held)),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("another run writes checkpoints into {}; end it first", self.folder.display()),
            )),
            Err(_) => Ok(None),
        }
    }

    /// The same, once whoever has it has ended: an attempt that Slurm gave up may take a while to.
    ///
    /// # Errors
    /// When another process still has it after this long ([`io::ErrorKind::ResourceBusy`]), or it can't be made.
    pub fn hold_within(&self, patience: Duration) -> io::Result<Option<nix::fcntl::Flock<File>>> {
        let until = Instant::now() + patience;
        loop {
            match self.hold() {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(200));
                }
                done => return done,
            }
        }
    }

    /// Waits until nobody writes there. A folder that is not there is not made.
    ///
    /// # Errors
    /// As [`Checkpoints::hold_within`].
    pub fn wait_for(&self, patience: Duration) -> io::Result<()> {
        if self.folder.is_dir() { self.hold_within(patience).map(drop) } else { Ok(()) }
    }

    /// Why a training by this plan can't go on from the newest of them, where that is of another model. Whether every tensor
    /// fits is seen by who reads it.
    pub fn refusal(&self, plan: &Plan) -> Option<String> {
        let newest = self.all().into_iter().next()?;
        let saved = Plan::resolve(&newest.index().ok()?.plan).plan?;
        let sizes = |plan: &Plan| {
            let model = &plan.model;
            (count(model), model.num_layers, model.hidden_size, model.vocab_size)
        };
        let [planned, trained] = [plan, &saved].map(|plan| count(&plan.model).0);
        (sizes(plan) != sizes(&saved)).then(|| {
            format!(
                "{} was trained with another model ({trained} parameters) than the plan's ({planned}); give that plan a run of its own",
                newest.path.display()
            )
        })
    }

    fn make(&self, folder: &Path) -> io::Result<()> {
        match own::make(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => own::check(folder),
            made => made,
        }
    }

    /// The folder into which ranks write the checkpoint of a step; each makes it that comes first.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn stage(&self, step: u64) -> io::Result<PathBuf> {
        self.make(&self.folder)?;
        let staged = self.staged(step);
        self.make(&staged)?;
        Ok(staged)
    }

    fn staged(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{STAGED}{step:08}"))
    }

    /// Removes what attempts that were killed have left half written. Nobody may be writing.
    pub fn clean(&self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(STAGED)) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Removes what was written of the checkpoint of a step that could not be completed.
    pub fn discard(&self, step: u64) {
        let _ = std::fs::remove_dir_all(self.staged(step));
    }

    /// Makes what is staged for a step the checkpoint of that step. One that has its name already is kept under another.
    ///
    /// # Errors
    /// When the disk refuses; then there is none, and those before it are as they were.
    pub fn commit(&self, index: &CheckpointIndex) -> io::Result<Checkpoint> {
        let staged = self.staged(index.step);
        own::replace(&staged.join(INDEX), &(serde_json::to_string(index)? + "\n"))?;
        File::open(&staged)?.sync_all()?;
        let path = self.folder.join(format!("{STEP}{:08}", index.step));
        if path.exists() {
            std::fs::rename(&path, path.with_extension(format!("replaced-{}", index.unix_ms)))?;
        }
        std::fs::rename(&staged, &path)?;
        File::open(&self.folder)?.sync_all()?;
        Ok(Checkpoint { step: index.step, path })
    }

    /// Removes checkpoints of this run that are to be kept no longer: all but the newest `keep` (0: none is removed), and but
    /// the first of each `hours`. One that can't be read stays.
    pub fn prune(&self, keep: u64, hours: Option<f64>) {
        if keep == 0 {
            return;
        }
        let all = self.all();
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        let mut since: Option<u64> = None;
        // The oldest first, so that the first of each span of time stays.
        for (place, checkpoint) in all.iter().enumerate().rev() {
            let Ok(index) = checkpoint.index() else { continue };
            let due = hours.is_some_and(|hours| {
                since.is_none_or(|since| index.unix_ms.saturating_sub(since) as f64 >= hours * 3.6e6)
            });
            if due {
                since = Some(index.unix_ms);
            } else if place >= keep {
                // The name goes first: what is half removed is no checkpoint.
                let gone = self.folder.join(format!("{STAGED}{:08}-old", checkpoint.step));
                if std::fs::rename(&checkpoint.path, &gone).is_ok() {
                    let _ = std::fs::remove_dir_all(gone);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(step: u64, unix_ms: u64) -> CheckpointIndex {
        let text = r#"{"version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu"}}"#;
        let plan = planner::parse_plan(text).unwrap();
        CheckpointIndex {
            version: 1,
            step,
            samples: 4 * step,
            unix_ms,
            plan,
            loss_scale: None,
            files: Vec::new(),
        }
    }

    fn write(checkpoints: &Checkpoints, step: u64, unix_ms: u64, content: &[u8]) -> Checkpoint {
        let staged = checkpoints.stage(step).unwrap();
        let file = staged.join("rank-00000.safetensors");
        std::fs::write(&file, content).unwrap();
        let (bytes, crc32) = measure(&file).unwrap();
        let part = CheckpointFilePart { name: "rank-00000.safetensors".to_owned(), bytes, crc32 };
        checkpoints.commit(&CheckpointIndex { files: vec![part], ..index(step, unix_ms) }).unwrap()
    }

    fn steps(checkpoints: &Checkpoints) -> Vec<u64> {
        checkpoints.all().iter().map(|checkpoint| checkpoint.step).collect()
    }

    #[test]
    fn what_is_staged_is_no_checkpoint_until_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::of_run(folder.path());
        assert!(steps(&checkpoints).is_empty());
        std::fs::write(checkpoints.stage(3).unwrap().join("rank-00000.safetensors"), b"half").unwrap();
        assert!(steps(&checkpoints).is_empty());
        checkpoints.clean();
        let one = write(&checkpoints, 3, 5, b"whole");
        assert_eq!(steps(&checkpoints), [3]);
        let read = one.index().unwrap();
        assert_eq!((read.step, read.samples), (3, 12));
        assert_eq!(one.check(&read.files[0]), Ok(()));
    }

    #[test]
    fn what_was_changed_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let one = write(&Checkpoints::at(folder.path()), 3, 5, b"some content");
        let part = &one.index().unwrap().files[0];
        let path = one.file(part).unwrap();
        std::fs::write(&path, b"Some content").unwrap();
        assert!(one.check(part).unwrap_err().contains("damaged"));
        assert!(one.has_all(), "as long as it was, for who does not read it");
        std::fs::write(&path, b"some").unwrap();
        assert!(!one.has_all());
        assert!(one.check(part).unwrap_err().contains("has 4 bytes, and 12 were written"));
        std::fs::remove_file(&path).unwrap();
        assert!(one.check(part).unwrap_err().contains("can't be read"));
        let elsewhere = CheckpointFilePart { name: "../other".to_owned(), ..part.clone() };
        assert!(one.file(&elsewhere).unwrap_err().contains("none of its own"));
        std::fs::write(one.path.join(INDEX), "{").unwrap();
        assert!(one.index().unwrap_err().contains("is damaged"));
    }

    #[test]
    fn the_newest_and_one_of_each_span_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::at(folder.path());
        for step in 1..=8 {
            write(&checkpoints, step, step * 1_200_000, b"x");
        }
        std::fs::create_dir(folder.path().join("step-mine")).unwrap();
        checkpoints.prune(0, None);
        assert_eq!(steps(&checkpoints).len(), 8);
        // Twenty minutes apart: the first of each hour are 1, 4, 7.
        checkpoints.prune(2, Some(1.0));
        assert_eq!(steps(&checkpoints), [8, 7, 4, 1]);
        checkpoints.prune(2, None);
        assert_eq!(steps(&checkpoints), [8, 7]);
        assert!(folder.path().join("step-mine").exists());
    }

    #[test]
    fn a_checkpoint_of_the_same_step_is_kept_beside() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::at(folder.path());
        write(&checkpoints, 3, 5, b"one");
        let two = write(&checkpoints, 3, 6, b"two");
        assert_eq!(steps(&checkpoints), [3]);
        assert_eq!(std::fs::read(two.path.join("rank-00000.safetensors")).unwrap(), b"two");
        let kept = folder.path().join("step-00000003.replaced-6/rank-00000.safetensors");
        assert_eq!(std::fs::read(kept).unwrap(), b"one");
    }

    #[test]
    fn a_folder_is_one_runs_alone() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::of_run(folder.path());
        let held = checkpoints.hold().unwrap();
        let refused = checkpoints.hold_within(Duration::ZERO).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        assert!(refused.to_string().contains("another run"));
        // Whoever waits gets it when that one ends.
        let waits = std::thread::spawn({
            let checkpoints = checkpoints.clone();
            move || checkpoints.hold_within(Duration::from_secs(60)).map(drop)
        });
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waits.is_finished());
        drop(held);
        assert!(waits.join().unwrap().is_ok() && checkpoints.hold().is_ok());
    }
}
