//! A Hugging Face model folder: config.json, and safetensors files of which slices of planner's parameters are read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use planner::model::Architecture;
use planner::model::weights::decode::{Format, decode, decode_fp8_blocks, decode_mxfp4, encode};
use planner::model::weights::map::{BoxPart, Mapped, Present, Run, Storage, WeightMap, hf_tensors, runs};
use safetensors::Dtype;
use serde_json::{Map, Value};

use crate::header::{Place, TensorFile};

/// The largest config.json that is read.
const MOST_CONFIG_BYTES: u64 = 16 * 1024 * 1024;
/// Elements that share an exponent in MXFP4.
const MXFP4_SHARED: u64 = 32;
/// What lies apart is read together with what is between while that is at most so many times as much.
const SPREAD: u64 = 4;

/// A folder whose headers were read.
pub struct ModelFolder {
    path: PathBuf,
    /// Its config.json.
    pub config: Map<String, Value>,
    files: Vec<TensorFile>,
    /// The file of each tensor.
    tensors: BTreeMap<String, usize>,
    /// Bytes that were read.
    pub bytes: u64,
    /// Memory that is read into; kept, because fresh memory takes longer to get than to fill.
    spare: RefCell<Vec<u8>>,
}

/// The config.json of a folder.
///
/// # Errors
/// When it is not there, too large, or no object.
pub(crate) fn config_of(folder: &Path) -> anyhow::Result<Map<String, Value>> {
    let path = folder.join("config.json");
    let failed = || format!("{} can't be read", path.display());
    let mut text = String::new();
    File::open(&path)
        .with_context(failed)?
        .take(MOST_CONFIG_BYTES)
        .read_to_string(&mut text)
        .with_context(failed)?;
    serde_json::from_str(&text).with_context(failed)
}

impl ModelFolder {
    /// Opens a folder.
    ///
    /// # Errors
    /// When it has no config.json or no safetensors files, one of these is none, or two have a tensor of one name.
    pub fn open(path: &Path) -> anyhow::Result<ModelFolder> {
        let config = config_of(path)?;
        let entries = std::fs::read_dir(path).with_context(|| format!("reading {}", path.display()))?;
        let mut names: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"))
            .collect();
        // The whole of a sharded model, where somebody keeps the merged file beside it, is not read twice.
        if path.join("model.safetensors.index.json").is_file() {
            names.retain(|name| name.file_name() != Some("model.safetensors".as_ref()));
        }
        names.sort();
        ensure!(
            !names.is_empty(),
            "{} has no .safetensors files; weights of other formats are not read: save the model as safetensors",
            path.display()
        );
        let (mut files, mut tensors) = (Vec::new(), BTreeMap::new());
        for name in names {
            let file = File::open(&name).with_context(|| format!("opening {}", name.display()))?;
            let file = TensorFile::read(&name, file)?;
            for tensor in file.tensors.keys() {
                if let Some(other) = tensors.insert(tensor.clone(), files.len()) {
                    let other: &TensorFile = files.get(other).unwrap_or(&file);
                    bail!("{tensor} is in {} and in {}", other.path().display(), name.display());
                }
            }
            files.push(file);
        }
        Ok(ModelFolder { path: path.to_owned(), config, files, tensors, bytes: 0, spare: RefCell::default() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the parameters of a model are in it.
    ///
    /// # Errors
    /// A sentence that names a tensor that is missing, too many or of another shape, or the type of model that is not mapped.
    pub fn map(&self, model: &Architecture) -> anyhow::Result<WeightMap> {
        let shape = |(name, file): (&String, &usize)| {
            Some((name.clone(), self.files[*file].tensors.get(name)?.shape.clone()))
        };
        let present: Present = self.tensors.iter().filter_map(shape).collect();
        let map = hf_tensors(model, &self.config, Some(&present))
            .map_err(|finding| anyhow::anyhow!("{}: {}", self.path.display(), finding.message))?;
        if let Some(first) = map.unused.first() {
            bail!(
                "{} has {} tensors that the plan's model does not have, such as {first}: it is of another model",
                self.path.display(),
                map.unused.len()
            );
        }
        Ok(map)
    }

    fn place(&self, tensor: &str) -> anyhow::Result<(&TensorFile, &Place)> {
        let file = self.tensors.get(tensor).map(|file| &self.files[*file]);
        file.and_then(|file| Some((file, file.tensors.get(tensor)?)))
            .with_context(|| format!("{} has no tensor {tensor}", self.path.display()))
    }

    /// All elements of a small tensor.
    ///
    /// # Errors
    /// When it is not there, or of a type that is no float.
    pub fn whole(&mut self, tensor: &str) -> anyhow::Result<Vec<f32>> {
        let (file, place) = self.place(tensor)?;
        let format = format_of(tensor, place)?;
        let bytes = file.bytes(place.first, place.bytes)?;
        let mut out = vec![0.0; usize::try_from(place.bytes / format.bytes())?];
        decode(format, &bytes, 0, 1, &mut out).context("a tensor's bytes are too few")?;
        self.bytes += place.bytes;
        Ok(out)
    }

    /// Elements `from` to `from + out.len()` (row-major) of the slice of a parameter that begins at `offset` and has `extent`.
    /// Rows behind the vocabulary are left as they are.
    ///
    /// # Errors
    /// When a file can't be read, or a tensor's type is no float.
    pub fn read(
        &mut self,
        mapped: &Mapped,
        offset: &[u64],
        extent: &[u64],
        from: u64,
        out: &mut [f32],
    ) -> anyhow::Result<()> {
        let to = from + out.len() as u64;
        let mut of_part: Vec<Vec<Run>> = vec![Vec::new(); mapped.parts.len()];
        for run in runs(mapped, offset, extent, from, to) {
            of_part[run.part].push(Run { target: run.target - from, ..run });
        }
        for (part, runs) in mapped.parts.iter().zip(of_part) {
            self.bytes += self
                .part(part, &runs, out)
                .with_context(|| format!("{} of {}", part.tensor, self.path.display()))?;
        }
        Ok(())
    }

    /// Reads runs of one tensor; the bytes that were read.
    fn part(&self, part: &BoxPart, runs: &[Run], out: &mut [f32]) -> anyhow::Result<u64> {
        let end = |run: &Run| run.first + (run.count - 1) * run.stride + 1;
        let lowest = runs.iter().map(|run| run.first).min();
        let Some(lowest) = lowest else { return Ok(0) };
        let highest = runs.iter().map(end).max().unwrap_or(lowest);
        let useful: u64 = runs.iter().map(|run| run.count).sum();
        let mut read = 0;
        if highest - lowest <= SPREAD * useful {
            let window = self.window(part, lowest, highest)?;
            read += window.read();
            runs.iter().try_for_each(|run| window.take(part, run, out))?;
            self.spare.replace(window.bytes);
        } else {
            for run in runs {
                let window = self.window(part, run.first, end(run))?;
                read += window.read();
                window.take(part, run, out)?;
                self.spare.replace(window.bytes);
            }
        }
        Ok(read)
    }

    /// Bytes of a file, in the memory that is kept for them.
    fn bytes(&self, file: &TensorFile, first: u64, count: u64) -> anyhow::Result<Vec<u8>> {
        let mut bytes = self.spare.take();
        // What is there is written over.
        bytes.resize(usize::try_from(count)?, 0);
        file.read_into(first, &mut bytes)?;
        Ok(bytes)
    }

    /// The bytes of elements `first` to `end` of a tensor, and of what scales them.
    fn window(&self, part: &BoxPart, first: u64, end: u64) -> anyhow::Result<Window> {
        let (file, place) = self.place(&part.tensor)?;
        match &part.storage {
            Storage::Plain => {
                let format = format_of(&part.tensor, place)?;
                let bytes =
                    self.bytes(file, place.first + first * format.bytes(), (end - first) * format.bytes())?;
                Ok(Window { start: first, bytes, kept: Kept::Plain(format) })
            }
            Storage::Fp8Blocks { scales, block } => {
                ensure!(place.dtype == Dtype::F8_E4M3, "it is of type {:?}, not 8-bit floats", place.dtype);
                let columns = part.hf_shape.last().copied().unwrap_or(1).max(1);
                let rows = block[0].max(1);
                // From a whole block of rows on, so that the factors begin with a row of theirs.
                let row = first / columns / rows * rows;
                let last = (end - 1) / columns;
                let start = row * columns;
                let bytes = self.bytes(file, place.first + start, (end - start).min(place.bytes - start))?;
                let of_row = columns.div_ceil(block[1].max(1));
                let (from, to) = (row / rows * of_row, (last / rows + 1) * of_row);
                let scales = self.factors(scales, from, to)?;
                Ok(Window { start, bytes, kept: Kept::Fp8 { scales, columns, block: *block } })
            }
            Storage::Mxfp4 { scales } => {
                let start = first / MXFP4_SHARED * MXFP4_SHARED;
                let behind = end.div_ceil(MXFP4_SHARED) * MXFP4_SHARED;
                let bytes = self.bytes(file, place.first + start / 2, (behind - start) / 2)?;
                let (file, place) = self.place(scales)?;
                let scales =
                    file.bytes(place.first + start / MXFP4_SHARED, (behind - start) / MXFP4_SHARED)?;
                Ok(Window { start, bytes, kept: Kept::Mxfp4 { scales } })
            }
        }
    }

    /// Factors as 32-bit floats, whatever they are kept as.
    fn factors(&self, tensor: &str, from: u64, to: u64) -> anyhow::Result<Vec<u8>> {
        let (file, place) = self.place(tensor)?;
        let format = format_of(tensor, place)?;
        let bytes = file.bytes(place.first + from * format.bytes(), (to - from) * format.bytes())?;
        let mut values = vec![0.0; usize::try_from(to - from)?];
        decode(format, &bytes, 0, 1, &mut values).context("factors are too few")?;
        let mut bytes = vec![0; values.len() * 4];
        encode(Format::F32, &values, 0, 1, &mut bytes).context("factors are too few")?;
        Ok(bytes)
    }
}

/// The type of a tensor, where its elements are floats.
fn format_of(tensor: &str, place: &Place) -> anyhow::Result<Format> {
    Format::of(&format!("{:?}", place.dtype))
        .with_context(|| format!("{tensor} is of type {:?}, which is not read as weights", place.dtype))
}

/// Some of a tensor's bytes.
struct Window {
    /// The element that they begin with.
    start: u64,
    bytes: Vec<u8>,
    kept: Kept,
}

/// How the elements are kept.
enum Kept {
    Plain(Format),
    Fp8 { scales: Vec<u8>, columns: u64, block: [u64; 2] },
    Mxfp4 { scales: Vec<u8> },
}

impl Window {
    fn read(&self) -> u64 {
        let scales = match &self.kept {
            Kept::Plain(_) => 0,
            Kept::Fp8 { scales, .. } | Kept::Mxfp4 { scales } => scales.len(),
        };
        (self.bytes.len() + scales) as u64
    }

    fn take(&self, part: &BoxPart, run: &Run, out: &mut [f32]) -> anyhow::Result<()> {
        let (target, count) = (usize::try_from(run.target)?, usize::try_from(run.count)?);
        let out = &mut out[target..target + count];
        let first = run.first - self.start;
        match &self.kept {
            Kept::Plain(format) => decode(*format, &self.bytes, first, run.stride, out),
            Kept::Fp8 { scales, columns, block } => {
                decode_fp8_blocks(&self.bytes, scales, *columns, *block, first, run.stride, out)
            }
            Kept::Mxfp4 { scales } => decode_mxfp4(&self.bytes, scales, first, run.stride, out),
        }
        .context("a tensor's bytes are too few")?;
        if part.add != 0.0 {
            out.iter_mut().for_each(|value| *value += part.add as f32);
        }
        Ok(())
    }
}
