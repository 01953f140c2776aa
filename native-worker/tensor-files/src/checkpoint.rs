//! A checkpoint of any layout, whose elements are read wherever they are wanted.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use planner::shard::{Copied, Piece, copies_of};
use planner::wire::{CheckpointIndex, PIECES, SavedPiece};
use run_folder::Checkpoint;
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use crate::header::{TensorFile, read_at};

/// What a checkpoint has of a parameter: the weight as the optimizer updates it. Only this knows that norms may be kept as their
/// distance from 1.
pub const WEIGHT: &str = "weight";
/// What it has of a router beside its weight.
pub const EXPERT_BIAS: &str = "expert_bias";

/// Elements looked for at a time.
const CHUNK: u64 = 1 << 22;
/// Elements of a long run that are handed on at a time: few enough that the processor still has their bytes at hand.
const HANDFUL: u64 = 1 << 16;
/// Runs that lie apart are read together with what is between them while that is at most so many times as much.
const SPREAD: u64 = 4;
/// Files that are open at a time: a checkpoint may have more of them than a process may open.
const MOST_OPEN: usize = 32;

/// Where elements of a piece go. Elements are counted in the piece, and their bytes are little-endian.
pub trait Target {
    /// The memory of `count` elements from `first` on, where those of this type can be read right into it.
    fn memory(&mut self, first: u64, dtype: Dtype, count: u64) -> Option<&mut [u8]>;

    /// Takes elements from `first` on that were read elsewhere.
    ///
    /// # Errors
    /// When it can't.
    fn take(&mut self, first: u64, dtype: Dtype, bytes: &[u8]) -> anyhow::Result<()>;
}

impl<F: FnMut(u64, Dtype, &[u8]) -> anyhow::Result<()>> Target for F {
    fn memory(&mut self, _: u64, _: Dtype, _: u64) -> Option<&mut [u8]> {
        None
    }

    fn take(&mut self, first: u64, dtype: Dtype, bytes: &[u8]) -> anyhow::Result<()> {
        self(first, dtype, bytes)
    }
}

/// A checkpoint of which is known what is where.
pub struct CheckpointReader {
    checkpoint: Checkpoint,
    /// What it says of itself.
    pub index: CheckpointIndex,
    files: Files,
    pieces: BTreeMap<(String, String), Vec<Listed>>,
    /// Bytes that were read.
    pub bytes: u64,
    /// Memory that is read into; kept, because fresh memory takes longer to get than to fill.
    buffer: Vec<u8>,
}

/// A piece, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The file, by its number in the index.
    file: usize,
    /// Where its first element is, in bytes.
    at: u64,
    dtype: Dtype,
    saved: SavedPiece,
}

/// What is in a file of a checkpoint, by its number in the index.
///
/// # Errors
/// When it can't be read, or is no part of a checkpoint.
pub fn list(checkpoint: &Checkpoint, index: &CheckpointIndex, file: usize) -> anyhow::Result<Vec<Listed>> {
    let part = index.files.get(file).with_context(|| format!("a checkpoint without a file {file}"))?;
    let path = checkpoint.file(part).map_err(anyhow::Error::msg)?;
    let open = run_folder::open(&path).with_context(|| format!("opening {}", path.display()))?;
    let header = TensorFile::read(&path, open)?;
    let listed = header.about.get(PIECES).with_context(|| format!("{} lists no pieces", path.display()))?;
    let listed: Vec<SavedPiece> = serde_json::from_str(listed)
        .with_context(|| format!("the pieces of {} can't be read", path.display()))?;
    let one = |saved| listed_in(&header, file, saved).with_context(|| format!("in {}", path.display()));
    listed.into_iter().map(one).collect()
}

impl CheckpointReader {
    /// Reads what is in each of its files.
    ///
    /// # Errors
    /// When one can't be read, or is no part of a checkpoint.
    pub fn open(checkpoint: Checkpoint, index: CheckpointIndex) -> anyhow::Result<CheckpointReader> {
        let lists: anyhow::Result<Vec<_>> =
            (0..index.files.len()).map(|file| list(&checkpoint, &index, file)).collect();
        CheckpointReader::of(checkpoint, index, lists?.into_iter().flatten())
    }

    /// Of what others have listed of its files ([`list`]).
    ///
    /// # Errors
    /// When a file's name is none.
    pub fn of(
        checkpoint: Checkpoint,
        index: CheckpointIndex,
        listed: impl IntoIterator<Item = Listed>,
    ) -> anyhow::Result<CheckpointReader> {
        let paths: Result<_, _> = index.files.iter().map(|part| checkpoint.file(part)).collect();
        let files = Files { paths: paths.map_err(anyhow::Error::msg)?, open: VecDeque::new() };
        let mut pieces = BTreeMap::new();
        for one in listed {
            let key = (one.saved.kind.clone(), one.saved.parameter.clone());
            pieces.entry(key).or_insert_with(Vec::new).push(one);
        }
        Ok(CheckpointReader { checkpoint, index, files, pieces, bytes: 0, buffer: Vec::new() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.checkpoint.path
    }

    /// What is in it: each kind with a parameter.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pieces.keys().map(|(kind, parameter)| (kind.as_str(), parameter.as_str()))
    }

    /// Whether it has this of a parameter.
    pub fn has(&self, kind: &str, parameter: &str) -> bool {
        self.pieces.contains_key(&(kind.to_owned(), parameter.to_owned()))
    }

    /// Shape of a whole parameter, and the type that its elements have here; none where it is not there.
    pub fn about(&self, kind: &str, parameter: &str) -> Option<(&[u64], Dtype)> {
        let first = self.pieces.get(&(kind.to_owned(), parameter.to_owned()))?.first()?;
        Some((&first.saved.shape, first.dtype))
    }

    /// Reads a piece of a parameter of this shape into `target`, run by run.
    ///
    /// # Errors
    /// When the checkpoint has not all of it, or it has another shape there; it is named.
    pub fn read(
        &mut self,
        (kind, parameter): (&str, &str),
        shape: &[u64],
        want: &Piece,
        mut target: impl Target,
    ) -> anyhow::Result<()> {
        let named = || format!("{kind} of {parameter} in the checkpoint {}", self.checkpoint.path.display());
        let key = (kind.to_owned(), parameter.to_owned());
        let Some(pieces) = self.pieces.get(&key) else { bail!("there is no {}", named()) };
        let (mut read, mut first) = (0, 0);
        while first < want.elements {
            let count = CHUNK.min(want.elements - first);
            let part = Piece { start: want.start + first, elements: count, ..want.clone() };
            let mut found = 0;
            for held in pieces {
                let shapes = ((&part, shape), (&held.saved.piece, held.saved.shape.as_slice()));
                let Some(runs) = copies_of(shapes.0, shapes.1) else {
                    bail!("{} has the shape {:?}, and the plan's has {shape:?}", named(), held.saved.shape);
                };
                found += runs.iter().map(|run| run.count).sum::<u64>();
                if runs.is_empty() {
                    continue;
                }
                let open = OpenPiece { file: self.files.get(held.file)?, held };
                read += open.copy(&runs, first, &mut self.buffer, &mut target).with_context(named)?;
            }
            ensure!(
                found == count,
                "{} has {found} of {count} elements that are wanted; it is no whole checkpoint",
                named()
            );
            first += count;
        }
        self.bytes += read;
        Ok(())
    }
}

/// What a file has of a piece, held against what it should have.
fn listed_in(file: &TensorFile, number: usize, saved: SavedPiece) -> anyhow::Result<Listed> {
    let place = file.tensors.get(&saved.tensor).with_context(|| format!("{} is not there", saved.tensor))?;
    ensure!(
        matches!(place.dtype, Dtype::F64 | Dtype::F32 | Dtype::BF16 | Dtype::F16),
        "{} is of type {:?}",
        saved.tensor,
        place.dtype
    );
    ensure!(saved.piece.is_of(&saved.shape), "{} is no piece of its parameter", saved.tensor);
    let elements: u64 = place.shape.iter().product();
    ensure!(
        elements == saved.piece.elements,
        "{} has {elements} elements, and its piece {}",
        saved.tensor,
        saved.piece.elements
    );
    Ok(Listed { file: number, at: place.first, dtype: place.dtype, saved })
}

/// Files of a checkpoint, opened when they are wanted.
struct Files {
    paths: Vec<PathBuf>,
    /// Those that are open, the latest opened last.
    open: VecDeque<(usize, File)>,
}

/// A file that is open, and its name.
struct OpenFile<'f> {
    path: &'f Path,
    file: &'f File,
}

impl Files {
    fn get(&mut self, number: usize) -> anyhow::Result<OpenFile<'_>> {
        let path = self.paths.get(number).with_context(|| format!("the checkpoint has no file {number}"))?;
        let place = match self.open.iter().position(|(one, _)| *one == number) {
            Some(place) => place,
            None => {
                if self.open.len() >= MOST_OPEN {
                    self.open.pop_front();
                }
                let file = run_folder::open(path).with_context(|| format!("opening {}", path.display()))?;
                self.open.push_back((number, file));
                self.open.len() - 1
            }
        };
        Ok(OpenFile { path, file: &self.open[place].1 })
    }
}

/// A piece in a file that is open.
struct OpenPiece<'f> {
    file: OpenFile<'f>,
    held: &'f Listed,
}

impl OpenPiece<'_> {
    /// Hands runs of the piece on, to their places behind `base`; the bytes that were read.
    fn copy(
        &self,
        runs: &[Copied],
        base: u64,
        buffer: &mut Vec<u8>,
        target: &mut impl Target,
    ) -> anyhow::Result<u64> {
        let (mut read, mut rest) = (0, runs);
        while let Some(first) = rest.first() {
            // As many runs as lie near enough to be read at once.
            let (mut together, mut useful) = (1, first.count);
            while let Some(next) = rest.get(together) {
                if next.from < first.from {
                    break;
                }
                let span = next.from + next.count - first.from;
                if span > CHUNK || span > SPREAD * (useful + next.count) {
                    break;
                }
                useful += next.count;
                together += 1;
            }
            let (these, others) = rest.split_at(together);
            read += match these {
                [alone] => self.copy_one(alone, base, buffer, target)?,
                _ => self.copy_near(these, base, buffer, target)?,
            };
            rest = others;
        }
        Ok(read)
    }

    fn size(&self) -> u64 {
        (self.held.dtype.bitsize() / 8) as u64
    }

    /// Elements `first` to `first + count` of the piece, in the buffer.
    fn read<'b>(&self, first: u64, count: u64, buffer: &'b mut Vec<u8>) -> anyhow::Result<&'b [u8]> {
        let bytes = usize::try_from(count * self.size())?;
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        read_at(self.file.path, self.file.file, self.held.at + first * self.size(), &mut buffer[..bytes])?;
        Ok(&buffer[..bytes])
    }

    /// One run: right to where it goes, or by handfuls.
    fn copy_one(
        &self,
        run: &Copied,
        base: u64,
        buffer: &mut Vec<u8>,
        target: &mut impl Target,
    ) -> anyhow::Result<u64> {
        let (dtype, all) = (self.held.dtype, run.count * self.size());
        if let Some(memory) = target.memory(base + run.to, dtype, run.count) {
            ensure!(memory.len() as u64 == all, "{} bytes of memory for {all}", memory.len());
            read_at(self.file.path, self.file.file, self.held.at + run.from * self.size(), memory)?;
            return Ok(all);
        }
        let mut done = 0;
        while done < run.count {
            let count = HANDFUL.min(run.count - done);
            let bytes = self.read(run.from + done, count, buffer)?;
            target.take(base + run.to + done, dtype, bytes)?;
            done += count;
        }
        Ok(all)
    }

    /// Runs of which each begins behind the one before it, with what lies between them.
    fn copy_near(
        &self,
        runs: &[Copied],
        base: u64,
        buffer: &mut Vec<u8>,
        target: &mut impl Target,
    ) -> anyhow::Result<u64> {
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return Ok(0) };
        let bytes = self.read(first.from, last.from + last.count - first.from, buffer)?;
        for run in runs {
            let start = usize::try_from((run.from - first.from) * self.size())?;
            let end = start + usize::try_from(run.count * self.size())?;
            target.take(base + run.to, self.held.dtype, &bytes[start..end])?;
        }
        Ok(bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use planner::wire::{CheckpointFilePart, PlanFile};
    use run_folder::Checkpoints;
    use safetensors::tensor::{TensorView, serialize_to_file};

    use super::*;

    /// A parameter of 2 x `files` elements, 2 in each file, that are numbered.
    fn saved(folder: &Path, files: u64) -> (Checkpoint, CheckpointIndex) {
        let checkpoints = Checkpoints::of_run(folder);
        let stage = checkpoints.stage(7).expect("a folder");
        let mut index = CheckpointIndex {
            version: run_folder::CHECKPOINT_VERSION,
            step: 7,
            samples: 0,
            unix_ms: 0,
            plan: PlanFile::default(),
            loss_scale: None,
            files: Vec::new(),
        };
        for file in 0..files {
            let piece = SavedPiece {
                tensor: "weight.w".to_owned(),
                parameter: "w".to_owned(),
                kind: "weight".to_owned(),
                shape: vec![2 * files],
                piece: Piece { offset: vec![2 * file], extent: vec![2], start: 0, elements: 2 },
            };
            let elements = [2 * file, 2 * file + 1].map(|number| (number as f32).to_le_bytes());
            let bytes = elements.concat();
            let view = TensorView::new(Dtype::F32, vec![2], &bytes).expect("a tensor");
            let about = HashMap::from([(PIECES.to_owned(), serde_json::to_string(&[piece]).expect("JSON"))]);
            let name = format!("rank-{file:05}.safetensors");
            let path = stage.join(&name);
            serialize_to_file([("weight.w", view)], Some(about), &path).expect("written");
            let (bytes, crc32) = run_folder::measure(&path).expect("read back");
            index.files.push(CheckpointFilePart { name, bytes, crc32 });
        }
        checkpoints.commit(&index).expect("a checkpoint");
        (checkpoints.all().remove(0), index)
    }

    #[test]
    fn more_files_than_may_be_open_are_read_and_lists_may_come_from_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = 3 * MOST_OPEN as u64;
        let (checkpoint, index) = saved(folder.path(), files);
        // Each of three has listed a third, and what they say went through text.
        let lists: Vec<Listed> = (0..3)
            .flat_map(|rank| {
                let listed: Vec<Listed> = (rank..index.files.len())
                    .step_by(3)
                    .flat_map(|file| list(&checkpoint, &index, file).expect("a list"))
                    .collect();
                let text = serde_json::to_string(&listed).expect("JSON");
                serde_json::from_str::<Vec<Listed>>(&text).expect("the same")
            })
            .collect();
        let alone = CheckpointReader::open(checkpoint.clone(), index.clone()).expect("open");
        let together = CheckpointReader::of(checkpoint, index, lists).expect("open");
        for mut reader in [alone, together] {
            assert!(reader.files.open.is_empty());
            let want = Piece { offset: vec![0], extent: vec![2 * files], start: 0, elements: 2 * files };
            for _ in 0..2 {
                let mut got = vec![0.0; 2 * MOST_OPEN * 3];
                let mut take = |first: u64, dtype: Dtype, bytes: &[u8]| {
                    assert_eq!(dtype, Dtype::F32);
                    for (number, four) in bytes.chunks_exact(4).enumerate() {
                        let four = [four[0], four[1], four[2], four[3]];
                        got[first as usize + number] = f32::from_le_bytes(four);
                    }
                    Ok(())
                };
                reader.read(("weight", "w"), &[2 * files], &want, &mut take).expect("read");
                assert!(got.iter().enumerate().all(|(number, value)| *value == number as f32));
                assert!(reader.files.open.len() <= MOST_OPEN);
            }
        }
    }

    #[test]
    fn a_file_that_is_gone_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let (checkpoint, index) = saved(folder.path(), 2);
        let mut reader = CheckpointReader::open(checkpoint.clone(), index).expect("open");
        std::fs::remove_file(checkpoint.path.join("rank-00001.safetensors")).expect("removed");
        let want = Piece { offset: vec![0], extent: vec![4], start: 0, elements: 4 };
        let error = reader.read(("weight", "w"), &[4], &want, |_: u64, _: Dtype, _: &[u8]| Ok(()));
        let error = format!("{:#}", error.expect_err("it is gone"));
        assert!(error.contains("opening") && error.contains("rank-00001.safetensors"), "{error}");
    }
}
