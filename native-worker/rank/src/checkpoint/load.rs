//! Reading a checkpoint of any layout into this rank's state, slice by slice.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use planner::shard::{Copied, Piece, copies};
use planner::wire::{CheckpointIndex, PIECES, SavedPiece};
use run_folder::Checkpoint;
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use tch::{Kind, Tensor};

use super::elements::whole_shape;
use super::{ByTensor, EXPERT_BIAS, TYPES, WEIGHT, bias_name, moment_names};
use crate::model::Model;
use crate::state::{Parameter, State, view};
use crate::train::optimizer::owned_part;

/// Elements read at a time.
const CHUNK: u64 = 1 << 22;
/// The largest header that is read.
const MOST_HEADER_BYTES: u64 = 256 * 1024 * 1024;
/// Runs that lie apart are read together with what is between them while that is at most so many times as much.
const SPREAD: u64 = 4;

/// A checkpoint that is read.
pub struct Source {
    checkpoint: Checkpoint,
    /// What it says of itself.
    pub index: CheckpointIndex,
    files: Vec<(PathBuf, File)>,
    pieces: ByTensor<Vec<Held>>,
    /// Bytes that were read.
    pub bytes: u64,
}

/// A piece in a file.
struct Held {
    file: usize,
    /// Where its first element is.
    at: u64,
    kind: Kind,
    saved: SavedPiece,
}

/// The header of a safetensors file, and where its data begin.
fn header(path: &Path, file: &File) -> anyhow::Result<(Metadata, u64)> {
    let failed = || format!("{} is no safetensors file", path.display());
    let mut length = [0; 8];
    file.read_exact_at(&mut length, 0).with_context(failed)?;
    let length = u64::from_le_bytes(length);
    ensure!(length <= MOST_HEADER_BYTES, "{}: its header would have {length} bytes", failed());
    let mut text = Vec::new();
    let mut rest = file;
    std::io::Seek::seek(&mut rest, std::io::SeekFrom::Start(8)).with_context(failed)?;
    rest.take(length).read_to_end(&mut text).with_context(failed)?;
    Ok((serde_json::from_slice(&text).with_context(failed)?, 8 + length))
}

impl Source {
    /// Opens its files and reads what is in them.
    ///
    /// # Errors
    /// When one can't be read, or is no part of a checkpoint.
    pub fn open(checkpoint: Checkpoint, index: CheckpointIndex) -> anyhow::Result<Source> {
        let mut source = Source { checkpoint, index, files: Vec::new(), pieces: ByTensor::new(), bytes: 0 };
        for part in &source.index.files {
            let path = source.checkpoint.file(part).map_err(anyhow::Error::msg)?;
            let file = run_folder::open(&path).with_context(|| format!("opening {}", path.display()))?;
            let length = file.metadata()?.len();
            let (metadata, data) = header(&path, &file)?;
            let listed = metadata.metadata().as_ref().and_then(|about| about.get(PIECES));
            let listed = listed.with_context(|| format!("{} lists no pieces", path.display()))?;
            let listed: Vec<SavedPiece> = serde_json::from_str(listed)
                .with_context(|| format!("the pieces of {} can't be read", path.display()))?;
            for saved in listed {
                let held = held(&metadata, data, length, source.files.len(), saved)
                    .with_context(|| format!("in {}", path.display()))?;
                let key = (held.saved.kind.clone(), held.saved.parameter.clone());
                source.pieces.entry(key).or_default().push(held);
            }
            source.files.push((path, file));
        }
        Ok(source)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.checkpoint.path
    }

    /// Fills weights, masters, moments and expert biases of this rank.
    ///
    /// # Errors
    /// When a tensor is missing, there is one too many, or one is of another shape; it is named.
    pub fn fill(&mut self, state: &State, model: &Model, all: &BTreeSet<String>) -> anyhow::Result<()> {
        self.check_names(state, model, all)?;
        for parameter in &state.parameters {
            let shard = &parameter.shard;
            let buffer = &state.buffers[shard.buffer];
            let weights = view(&buffer.weights, shard.buffer_offset, shard.elements())?;
            self.read(WEIGHT, parameter, 0, weights)?;
            let Some((start, elements)) = owned_part(parameter, buffer) else { continue };
            let (first, kept) = (start - shard.buffer_offset, start - buffer.kept.start);
            if let Some(master) = &buffer.master {
                self.read(WEIGHT, parameter, first, view(master, kept, elements)?)?;
            }
            for (name, moment) in moment_names(buffer.kept.optimizer).iter().zip(&buffer.moments) {
                self.read(name, parameter, first, view(moment, kept, elements)?)?;
            }
        }
        let biases: Vec<_> = model.expert_biases().collect();
        for (weight, bias) in biases {
            let name = bias_name(&state.parameters[weight].shard.name);
            let experts = bias.len() as u64;
            let want = Piece { offset: vec![0], extent: vec![experts], start: 0, elements: experts };
            let values = Tensor::f_zeros([experts as i64], (Kind::Double, tch::Device::Cpu))?;
            self.read_piece((EXPERT_BIAS, &name), &[experts], &want, values.shallow_clone())?;
            model.set_expert_bias(weight, &Vec::<f64>::try_from(&values)?);
        }
        Ok(())
    }

    /// Nothing of the checkpoint may be left out in silence.
    fn check_names(&self, state: &State, model: &Model, all: &BTreeSet<String>) -> anyhow::Result<()> {
        let known = |(kind, parameter): &&(String, String)| kind == EXPERT_BIAS || all.contains(parameter);
        if let Some((kind, parameter)) = self.pieces.keys().find(|key| !known(key)) {
            bail!(
                "the checkpoint {} has {kind} of {parameter}, which the plan's model does not have: it is of another model",
                self.path().display()
            );
        }
        let kinds: BTreeSet<&str> = self.pieces.keys().map(|(kind, _)| kind.as_str()).collect();
        let wanted = state.buffers.iter().flat_map(|buffer| moment_names(buffer.kept.optimizer));
        if let Some(missing) = wanted.copied().find(|kind| !kinds.contains(kind)) {
            bail!(
                "the checkpoint {} has no {missing}: it was trained by another optimizer than the plan's",
                self.path().display()
            );
        }
        if kinds.contains(EXPERT_BIAS) && !state.parameters.is_empty() {
            let biases: BTreeSet<String> = model
                .expert_biases()
                .map(|(weight, _)| bias_name(&state.parameters[weight].shard.name))
                .collect();
            let routers = state.parameters.iter().filter(|one| one.shard.name.ends_with("router.weight"));
            let lost = routers
                .map(|one| bias_name(&one.shard.name))
                .filter(|name| !biases.contains(name))
                .find(|name| self.pieces.contains_key(&(EXPERT_BIAS.to_owned(), name.clone())));
            if let Some(name) = lost {
                bail!(
                    "the checkpoint {} has a bias of {name}, and the plan's router none",
                    self.path().display()
                );
            }
        }
        Ok(())
    }

    /// Reads elements of a rank's slice from `first` on.
    fn read(&mut self, kind: &str, parameter: &Parameter, first: u64, into: Tensor) -> anyhow::Result<()> {
        let end = first + into.numel() as u64;
        // Padding of the vocabulary is zeros, as it was allocated.
        let Some(want) = Piece::of(&parameter.shard, first, end) else { return Ok(()) };
        let into = view(&into, 0, want.elements)?;
        self.read_piece((kind, &parameter.shard.name), &whole_shape(parameter), &want, into)
    }

    fn read_piece(
        &mut self,
        (kind, parameter): (&str, &str),
        shape: &[u64],
        want: &Piece,
        into: Tensor,
    ) -> anyhow::Result<()> {
        let key = (kind.to_owned(), parameter.to_owned());
        let named = || format!("{kind} of {parameter} in the checkpoint {}", self.checkpoint.path.display());
        let Some(pieces) = self.pieces.get(&key) else { bail!("there is no {}", named()) };
        if let Some(other) = pieces.iter().find(|held| held.saved.shape != shape) {
            bail!("{} has the shape {:?}, and the plan's has {shape:?}", named(), other.saved.shape);
        }
        let mut read = 0;
        let mut first = 0;
        while first < want.elements {
            let count = CHUNK.min(want.elements - first);
            let part = Piece { start: want.start + first, elements: count, ..want.clone() };
            let mut found = 0;
            for held in pieces {
                let runs = copies(&part, &held.saved.piece);
                found += runs.iter().map(|run| run.count).sum::<u64>();
                read += copy(&self.files[held.file], held, &runs, &view(&into, first, count)?)
                    .with_context(named)?;
            }
            ensure!(
                found == count,
                "{} has {found} of {count} elements that this rank needs; it is no whole checkpoint",
                named()
            );
            first += count;
        }
        self.bytes += read;
        Ok(())
    }
}

/// What a file has of a piece, held against what it should have.
fn held(metadata: &Metadata, data: u64, length: u64, file: usize, saved: SavedPiece) -> anyhow::Result<Held> {
    let info = metadata.info(&saved.tensor).with_context(|| format!("{} is not there", saved.tensor))?;
    let kind = TYPES.iter().find(|(dtype, _)| *dtype == info.dtype).map(|(_, kind)| *kind);
    let kind = kind.with_context(|| format!("{} is of type {:?}", saved.tensor, info.dtype))?;
    ensure!(saved.piece.is_of(&saved.shape), "{} is no piece of its parameter", saved.tensor);
    let size = (Dtype::bitsize(&info.dtype) / 8) as u64;
    let (first, end) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
    let wanted = saved.piece.elements.checked_mul(size);
    let fits = end.checked_sub(first) == wanted && data.checked_add(end).is_some_and(|end| end <= length);
    ensure!(fits, "{} has not the {} elements that it should have", saved.tensor, saved.piece.elements);
    Ok(Held { file, at: data + first, kind, saved })
}

/// Copies runs of a piece; the bytes that were read.
fn copy((path, file): &(PathBuf, File), held: &Held, runs: &[Copied], into: &Tensor) -> anyhow::Result<u64> {
    let size = held.kind.elt_size_in_bytes() as u64;
    let mut read = 0;
    let mut rest = runs;
    while let Some(first) = rest.first() {
        // As many runs as lie near enough to be read at once.
        let (mut together, mut useful) = (1, first.count);
        while let Some(next) = rest.get(together) {
            let span = next.from + next.count - first.from;
            if next.from < first.from || span > CHUNK || span > SPREAD * (useful + next.count) {
                break;
            }
            useful += next.count;
            together += 1;
        }
        let last = rest[together - 1];
        let mut bytes = vec![0; usize::try_from((last.from + last.count - first.from) * size)?];
        file.read_exact_at(&mut bytes, held.at + first.from * size)
            .with_context(|| format!("reading {}", path.display()))?;
        read += bytes.len() as u64;
        for run in &rest[..together] {
            let start = usize::try_from((run.from - first.from) * size)?;
            let end = start + usize::try_from(run.count * size)?;
            let values =
                Tensor::f_from_data_size(&bytes[start..end], &[i64::try_from(run.count)?], held.kind)?;
            view(into, run.to, run.count)?.f_copy_(&values)?;
        }
        rest = &rest[together..];
    }
    Ok(read)
}
