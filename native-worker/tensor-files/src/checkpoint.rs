//! A checkpoint of any layout, whose elements are read wherever they are wanted.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use planner::shard::{Copied, Piece, copies_of};
use planner::wire::{CheckpointIndex, PIECES, SavedPiece};
use run_folder::Checkpoint;
use safetensors::Dtype;

use crate::header::TensorFile;

/// Elements read at a time.
const CHUNK: u64 = 1 << 22;
/// Runs that lie apart are read together with what is between them while that is at most so many times as much.
const SPREAD: u64 = 4;

/// A checkpoint whose files are open.
pub struct CheckpointReader {
    checkpoint: Checkpoint,
    /// What it says of itself.
    pub index: CheckpointIndex,
    files: Vec<TensorFile>,
    pieces: BTreeMap<(String, String), Vec<Held>>,
    /// Bytes that were read.
    pub bytes: u64,
}

/// A piece in a file.
struct Held {
    file: usize,
    /// Where its first element is.
    at: u64,
    dtype: Dtype,
    saved: SavedPiece,
}

impl CheckpointReader {
    /// Opens its files and reads what is in them.
    ///
    /// # Errors
    /// When one can't be read, or is no part of a checkpoint.
    pub fn open(checkpoint: Checkpoint, index: CheckpointIndex) -> anyhow::Result<CheckpointReader> {
        let (mut files, mut pieces) = (Vec::new(), BTreeMap::new());
        for part in &index.files {
            let path = checkpoint.file(part).map_err(anyhow::Error::msg)?;
            let file = run_folder::open(&path).with_context(|| format!("opening {}", path.display()))?;
            let file = TensorFile::read(&path, file)?;
            let listed =
                file.about.get(PIECES).with_context(|| format!("{} lists no pieces", path.display()))?;
            let listed: Vec<SavedPiece> = serde_json::from_str(listed)
                .with_context(|| format!("the pieces of {} can't be read", path.display()))?;
            for saved in listed {
                let held =
                    held(&file, files.len(), saved).with_context(|| format!("in {}", path.display()))?;
                let key = (held.saved.kind.clone(), held.saved.parameter.clone());
                pieces.entry(key).or_insert_with(Vec::new).push(held);
            }
            files.push(file);
        }
        Ok(CheckpointReader { checkpoint, index, files, pieces, bytes: 0 })
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

    /// Reads a piece of a parameter of this shape. `take` gets its elements run by run: the first, counted in the piece, and
    /// their bytes in this type, little-endian.
    ///
    /// # Errors
    /// When the checkpoint has not all of it, or it has another shape there; it is named.
    pub fn read(
        &mut self,
        (kind, parameter): (&str, &str),
        shape: &[u64],
        want: &Piece,
        mut take: impl FnMut(u64, Dtype, &[u8]) -> anyhow::Result<()>,
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
                let mut take = |to, bytes: &[u8]| take(first + to, held.dtype, bytes);
                read += copy(&self.files[held.file], held, &runs, &mut take).with_context(named)?;
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
fn held(file: &TensorFile, number: usize, saved: SavedPiece) -> anyhow::Result<Held> {
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
    Ok(Held { file: number, at: place.first, dtype: place.dtype, saved })
}

/// Hands runs of a piece on; the bytes that were read.
fn copy(
    file: &TensorFile,
    held: &Held,
    runs: &[Copied],
    take: &mut impl FnMut(u64, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let size = (held.dtype.bitsize() / 8) as u64;
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
        let last = rest[together - 1];
        let bytes = file.bytes(held.at + first.from * size, (last.from + last.count - first.from) * size)?;
        read += bytes.len() as u64;
        for run in &rest[..together] {
            let start = usize::try_from((run.from - first.from) * size)?;
            let end = start + usize::try_from(run.count * size)?;
            take(run.to, &bytes[start..end])?;
        }
        rest = &rest[together..];
    }
    Ok(read)
}
