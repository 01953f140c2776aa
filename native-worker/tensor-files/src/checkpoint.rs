//! A checkpoint of any layout, whose elements are read wherever they are wanted.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use planner::shard::{Copied, Piece, copies_of};
use planner::wire::{CheckpointIndex, PIECES, SavedPiece};
use run_folder::Checkpoint;
use safetensors::Dtype;

use crate::header::TensorFile;

/// Elements looked for at a time.
const CHUNK: u64 = 1 << 22;
/// Elements of a long run that are handed on at a time: few enough that the processor still has their bytes at hand.
const HANDFUL: u64 = 1 << 16;
/// Runs that lie apart are read together with what is between them while that is at most so many times as much.
const SPREAD: u64 = 4;

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

/// A checkpoint whose files are open.
pub struct CheckpointReader {
    checkpoint: Checkpoint,
    /// What it says of itself.
    pub index: CheckpointIndex,
    files: Vec<TensorFile>,
    pieces: BTreeMap<(String, String), Vec<Held>>,
    /// Bytes that were read.
    pub bytes: u64,
    /// Memory that is read into; kept, because fresh memory takes longer to get than to fill.
    buffer: Vec<u8>,
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
                let open = OpenPiece { file: &self.files[held.file], held };
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

/// A piece in a file that is open.
struct OpenPiece<'f> {
    file: &'f TensorFile,
    held: &'f Held,
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
        self.file.read_into(self.held.at + first * self.size(), &mut buffer[..bytes])?;
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
            self.file.read_into(self.held.at + run.from * self.size(), memory)?;
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
