//! A safetensors file whose header was read: where each tensor is, in which type.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use planner::model::MOST_HEADER_BYTES;
use safetensors::Dtype;
use safetensors::tensor::Metadata;

/// A file, and what its header says.
pub struct TensorFile {
    path: PathBuf,
    file: File,
    /// Its tensors by name.
    pub tensors: BTreeMap<String, Place>,
    /// What else its header says.
    pub about: HashMap<String, String>,
}

/// Where a tensor is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Type of its elements.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its first byte in the file.
    pub first: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl TensorFile {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// When it is no safetensors file, or says of a tensor what can't be.
    pub fn read(path: &Path, file: File) -> anyhow::Result<TensorFile> {
        let failed = || format!("{} is no safetensors file", path.display());
        let all = file.metadata().with_context(failed)?.len();
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).with_context(failed)?;
        let length = u64::from_le_bytes(length);
        ensure!(length <= MOST_HEADER_BYTES.min(all), "{}: its header would have {length} bytes", failed());
        let mut text = Vec::new();
        (&file).seek(SeekFrom::Start(8)).with_context(failed)?;
        (&file).take(length).read_to_end(&mut text).with_context(failed)?;
        let metadata: Metadata = serde_json::from_slice(&text).with_context(failed)?;
        let mut tensors = BTreeMap::new();
        for (name, info) in metadata.tensors() {
            let shape: Vec<u64> = info.shape.iter().map(|&extent| extent as u64).collect();
            let elements = shape.iter().try_fold(1_u64, |product, extent| product.checked_mul(*extent));
            let bits = elements.and_then(|elements| elements.checked_mul(info.dtype.bitsize() as u64));
            let (first, end) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
            let bytes = end.checked_sub(first);
            let fits = bytes.is_some_and(|bytes| bits == bytes.checked_mul(8))
                && end.checked_add(8 + length).is_some_and(|end| end <= all);
            ensure!(
                fits,
                "{} says that {name} of shape {shape:?} is the bytes {first} to {end}, which does not fit; is the file whole?",
                path.display()
            );
            let place = Place { dtype: info.dtype, shape, first: 8 + length + first, bytes: end - first };
            tensors.insert(name, place);
        }
        let about = metadata.metadata().clone().unwrap_or_default();
        Ok(TensorFile { path: path.to_owned(), file, tensors, about })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file from `first` on.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn bytes(&self, first: u64, count: u64) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(count)?];
        self.read_into(first, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `bytes` with those of the file from `first` on.
    ///
    /// # Errors
    /// When they can't be read.
    pub(crate) fn read_into(&self, first: u64, bytes: &mut [u8]) -> anyhow::Result<()> {
        read_at(&self.path, &self.file, first, bytes)
    }
}

/// Fills `bytes` with those of the open file at `path` from `first` on.
pub(crate) fn read_at(path: &Path, file: &File, first: u64, bytes: &mut [u8]) -> anyhow::Result<()> {
    let read = file.read_exact_at(bytes, first);
    read.with_context(|| format!("reading {} at byte {first}", path.display()))
}
