//! A checkpoint as a distributed checkpoint of torch (`torch.distributed.checkpoint`, DCP): `.metadata`, a pickle that says where
//! each part of each tensor is, and `__0_N.distcp`, one part after the other as `torch.save` writes it.
//!
//! Names are those of a training that saves `{"model": ..., "optim": {"state": ...}}`, as torch's
//! `distributed.checkpoint.state_dict` gives them: weights `model.NAME`, moments `optim.state.NAME.exp_avg`. `NAME` is the
//! tensor's in a Hugging Face folder, which the moments are cut like; of a model that has none, the parameter's own.
//! Elements keep the type that the checkpoint has.

mod archive;
mod metadata;
mod pickle;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use safetensors::Dtype;

use super::elements::{Content, Elements, Tensor, size_of, tensors_of};
use super::{Named, plan_of, whole_or_not};
use crate::checkpoint::{CheckpointReader, EXPERT_BIAS, WEIGHT};
use archive::Type;
use metadata::{Item, Part};

/// Bytes of a file at the most, where one part of a tensor does not have more.
const FILE_BYTES: u64 = 5_000_000_000;
/// Bytes of a part of a tensor: what is held here at a time, and by a rank that reads it.
const PART_BYTES: u64 = 128 << 20;
/// A moment that only Adam has; torch's counts its steps beside it, as a 32-bit float.
const ADAMS: &str = "exp_avg";

/// What is written, and where.
#[derive(Debug, Clone)]
pub struct DcpExport<'a> {
    /// The folder, which must not be there yet.
    pub to: &'a Path,
    /// Bytes of a part of a tensor at the most; none for the usual 128 MiB.
    pub part_bytes: Option<u64>,
    /// Bytes of a file at the most; none for the usual 5 GB.
    pub file_bytes: Option<u64>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DcpExported {
    /// Tensors.
    pub tensors: u64,
    /// Bytes of their elements.
    pub bytes: u64,
    /// Files of them.
    pub files: u64,
    /// Why tensors have the names of the plan's parameters, where they don't have those of a Hugging Face folder.
    pub own_names: Option<String>,
}

/// Writes weights, moments and the numbers of steps and sequences.
///
/// # Errors
/// When the folder is there, the checkpoint lacks something, or the disk refuses.
pub fn export_dcp(reader: CheckpointReader, wanted: &DcpExport<'_>) -> anyhow::Result<DcpExported> {
    let part_bytes = wanted.part_bytes.unwrap_or(PART_BYTES);
    let file_bytes = wanted.file_bytes.unwrap_or(FILE_BYTES);
    let plan = plan_of(&reader.index)?;
    let named = Named::of(&plan);
    let tensors = match &named {
        Ok(named) => {
            let mut tensors = tensors_of(&named.map);
            tensors.extend(named.map.router_biases.iter().filter_map(|(router, name)| {
                let shape = reader.about(EXPERT_BIAS, router)?.0.to_vec();
                Some(Tensor { name: name.clone(), shape, content: Content::Parameter(router.clone()) })
            }));
            check_names(&reader, named)?;
            tensors
        }
        Err(_) => own(&reader),
    };
    let tied = named.as_ref().ok().and_then(|named| named.map.tied.as_ref());
    let (step, samples) = (reader.index.step, reader.index.samples);
    let parameters = named.as_ref().map_or(&[][..], |named| &named.map.parameters);
    let kinds: BTreeSet<String> = reader.names().map(|(kind, _)| kind.to_owned()).collect();
    let mut elements = Elements { reader, parameters };
    let written = whole_or_not(wanted.to, |folder| {
        let mut writer = Writer {
            folder,
            file: None,
            number: 0,
            at: 0,
            part_bytes,
            file_bytes,
            items: Vec::new(),
            bytes: 0,
        };
        for kind in kinds.iter().filter(|kind| is_of_model(kind)) {
            for tensor in &tensors {
                let path = ["model", &tensor.name];
                writer.tensor(&mut elements, kind, tensor, &path)?;
            }
        }
        for tensor in &tensors {
            for kind in kinds.iter().filter(|kind| !is_of_model(kind)) {
                let written =
                    writer.tensor(&mut elements, kind, tensor, &["optim", "state", &tensor.name, kind])?;
                if written && kind == ADAMS {
                    let path = ["optim", "state", &tensor.name, "step"];
                    writer.number(&path, Type::F32, &(step as f32).to_le_bytes())?;
                }
            }
        }
        writer.number(&["step"], Type::I64, &step.to_le_bytes())?;
        writer.number(&["samples"], Type::I64, &samples.to_le_bytes())?;
        writer.close()?;
        let mut items = std::mem::take(&mut writer.items);
        if let Some((embedding, head)) = tied {
            // One tensor of two names, as it is in a model's state.
            let path = |name: &String| vec!["model".to_owned(), name.clone()];
            let copy = items.iter().find(|item| item.path == path(embedding)).cloned();
            items.extend(copy.map(|copy| Item { path: path(head), ..copy }));
        }
        let path = folder.join(".metadata");
        let mut file = File::create(&path).with_context(|| format!("writing {}", path.display()))?;
        file.write_all(&metadata::pickled(&items))
            .and_then(|()| file.sync_all())
            .with_context(|| format!("writing {}", path.display()))?;
        Ok((items.len() as u64, writer.bytes, writer.number))
    });
    let (tensors, bytes, files) = written?;
    let own_names = named.err().map(|reason| format!("{reason:#}"));
    Ok(DcpExported { tensors, bytes, files, own_names })
}

/// Whether something of a parameter is part of a model's state, and not of the optimizer's.
fn is_of_model(kind: &str) -> bool {
    kind == WEIGHT || kind == EXPERT_BIAS
}

/// Nothing of the checkpoint may be left out in silence.
fn check_names(reader: &CheckpointReader, named: &Named) -> anyhow::Result<()> {
    let parameters = named.map.parameters.iter().map(|mapped| mapped.name.as_str());
    let routers = named.map.router_biases.iter().map(|(router, _)| router.as_str());
    let known: BTreeSet<&str> = parameters.chain(routers).collect();
    if let Some((kind, name)) = reader.names().find(|(_, name)| !known.contains(name)) {
        bail!(
            "the checkpoint {} has {kind} of {name}, which its plan's model does not have",
            reader.path().display()
        );
    }
    Ok(())
}

/// The checkpoint's parameters by their own names; routers have the biases beside them.
fn own(reader: &CheckpointReader) -> Vec<Tensor> {
    let names: BTreeSet<&str> = reader.names().map(|(_, name)| name).collect();
    let shape =
        |name: &str| [WEIGHT, EXPERT_BIAS].iter().find_map(|kind| Some(reader.about(kind, name)?.0.to_vec()));
    let tensor = |name: &str| {
        let content = Content::Parameter(name.to_owned());
        Some(Tensor { name: name.to_owned(), shape: shape(name)?, content })
    };
    names.into_iter().filter_map(tensor).collect()
}

/// Writes parts of tensors one after the other.
struct Writer<'a> {
    folder: &'a Path,
    file: Option<(PathBuf, BufWriter<File>)>,
    /// Files that were begun.
    number: u64,
    /// Bytes of the file at hand.
    at: u64,
    part_bytes: u64,
    file_bytes: u64,
    items: Vec<Item>,
    /// Bytes of elements.
    bytes: u64,
}

impl Writer<'_> {
    /// Writes a tensor of a kind; whether the checkpoint has it.
    fn tensor(
        &mut self,
        elements: &mut Elements<'_>,
        kind: &str,
        tensor: &Tensor,
        path: &[&str],
    ) -> anyhow::Result<bool> {
        let Some(kept) = elements.dtype(kind, tensor) else { return Ok(false) };
        let dtype = match kept {
            Dtype::F64 => Type::F64,
            Dtype::F32 => Type::F32,
            Dtype::F16 => Type::F16,
            Dtype::BF16 => Type::Bf16,
            other => bail!("{kind} of {} is of type {other:?}, which is not written", tensor.name),
        };
        let mut parts = Vec::new();
        for (offsets, sizes, range) in cut(&tensor.shape, (self.part_bytes / size_of(kept)).max(1)) {
            let bytes = elements.read(kind, tensor, range)?;
            parts.push(self.part(dtype, offsets, sizes, &bytes)?);
        }
        let path = path.iter().map(|&name| name.to_owned()).collect();
        self.items.push(Item { path, dtype, shape: tensor.shape.clone(), parts });
        Ok(true)
    }

    /// Writes a single number.
    fn number(&mut self, path: &[&str], dtype: Type, bytes: &[u8]) -> anyhow::Result<()> {
        let part = self.part(dtype, Vec::new(), Vec::new(), bytes)?;
        let path = path.iter().map(|&name| name.to_owned()).collect();
        self.items.push(Item { path, dtype, shape: Vec::new(), parts: vec![part] });
        Ok(())
    }

    fn part(
        &mut self,
        dtype: Type,
        offsets: Vec<u64>,
        sizes: Vec<u64>,
        bytes: &[u8],
    ) -> anyhow::Result<Part> {
        if self.at > 0 && self.at + bytes.len() as u64 > self.file_bytes {
            self.close()?;
        }
        let name = |number: u64| format!("__0_{number}.distcp");
        if self.file.is_none() {
            let path = self.folder.join(name(self.number));
            let file = File::create(&path).with_context(|| format!("writing {}", path.display()))?;
            self.file = Some((path, BufWriter::new(file)));
            (self.number, self.at) = (self.number + 1, 0);
        }
        let Some((path, file)) = &mut self.file else { bail!("no file is open") };
        let length = archive::write(file, dtype, &sizes, bytes)
            .with_context(|| format!("writing {}", path.display()))?;
        let part = Part { offsets, sizes, file: name(self.number - 1), at: self.at, length };
        self.at += length;
        self.bytes += bytes.len() as u64;
        Ok(part)
    }

    /// Has the file at hand on the disk.
    fn close(&mut self) -> anyhow::Result<()> {
        if let Some((path, mut file)) = self.file.take() {
            let written = file.flush().and_then(|()| file.get_ref().sync_all());
            written.with_context(|| format!("writing {}", path.display()))?;
        }
        self.at = 0;
        Ok(())
    }
}

/// A box of a tensor: its first index and extent in each dim, and its elements.
type Cut = (Vec<u64>, Vec<u64>, Range<u64>);

/// Boxes of at most so many elements that a tensor is cut into, each of elements that lie one after the other.
fn cut(shape: &[u64], most: u64) -> Vec<Cut> {
    let all: u64 = shape.iter().product();
    if all <= most {
        return vec![(vec![0; shape.len()], shape.to_vec(), 0..all)];
    }
    // The first dim whose indices have few enough elements; dims before it are cut into single indices.
    let behind = |dim: usize| shape[dim + 1..].iter().product::<u64>();
    let last = shape.len() - 1;
    let dim = (0..last).find(|&dim| behind(dim) <= most).unwrap_or(last);
    let (inner, together) = (behind(dim), (most / behind(dim)).max(1));
    let mut cuts = Vec::new();
    for outer in 0..shape[..dim].iter().product::<u64>() {
        let (mut offsets, mut sizes, mut rest) = (vec![0; shape.len()], vec![1; dim], outer);
        for before in (0..dim).rev() {
            (offsets[before], rest) = (rest % shape[before], rest / shape[before]);
        }
        sizes.extend(&shape[dim..]);
        for first in (0..shape[dim]).step_by(usize::try_from(together).unwrap_or(usize::MAX)) {
            let count = together.min(shape[dim] - first);
            (offsets[dim], sizes[dim]) = (first, count);
            let start = (outer * shape[dim] + first) * inner;
            cuts.push((offsets.clone(), sizes.clone(), start..start + count * inner));
        }
    }
    cuts
}

#[cfg(test)]
mod tests;
