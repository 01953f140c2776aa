//! Reading a checkpoint of any layout into this rank's state, slice by slice.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail};
use planner::shard::Piece;
use planner::wire::CheckpointIndex;
use safetensors::Dtype;
use tch::{Kind, Tensor};
use tensor_files::{CheckpointReader, Target};

use super::elements::whole_shape;
use super::{EXPERT_BIAS, TYPES, WEIGHT, bias_name, moment_names};
use crate::model::Model;
use crate::state::{Owned, Parameter, State, view};
use crate::sys::cpu_bytes_mut;

/// A checkpoint that is read into a rank's state.
pub struct Source(CheckpointReader);

impl Source {
    /// Of an open checkpoint.
    pub fn of(reader: CheckpointReader) -> Source {
        Source(reader)
    }

    /// What it says of itself.
    pub fn index(&self) -> &CheckpointIndex {
        &self.0.index
    }

    /// Bytes that were read.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
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
            if !buffer.keeps_state() {
                continue;
            }
            let weights = view(&buffer.weights, shard.buffer_offset, shard.elements())?;
            self.read(WEIGHT, parameter, 0, weights)?;
            let Some(Owned { start, state: kept, elements }) = parameter.owned else { continue };
            let first = start - shard.buffer_offset;
            if let Some(master) = &buffer.master {
                self.read(WEIGHT, parameter, first, view(master, kept, elements)?)?;
            }
            for (name, moment) in moment_names(buffer.kept.optimizer).iter().zip(&buffer.moments) {
                self.read(name, parameter, first, view(moment, kept, elements)?)?;
            }
        }
        for (weight, bias) in model.expert_biases()? {
            let name = bias_name(state.name(weight));
            let experts = bias.len() as u64;
            let want = Piece { offset: vec![0], extent: vec![experts], start: 0, elements: experts };
            let values = Tensor::f_zeros([experts as i64], (Kind::Double, tch::Device::Cpu))?;
            self.read_piece((EXPERT_BIAS, &name), &[experts], &want, values.shallow_clone())?;
            model.set_expert_bias(weight, &Vec::<f64>::try_from(&values)?)?;
        }
        Ok(())
    }

    /// Nothing of the checkpoint may be left out in silence.
    fn check_names(&self, state: &State, model: &Model, all: &BTreeSet<String>) -> anyhow::Result<()> {
        let known = |(kind, parameter): &(&str, &str)| *kind == EXPERT_BIAS || all.contains(*parameter);
        if let Some((kind, parameter)) = self.0.names().find(|name| !known(name)) {
            bail!(
                "the checkpoint {} has {kind} of {parameter}, which the plan's model does not have: it is of another model",
                self.path().display()
            );
        }
        let kinds: BTreeSet<&str> = self.0.names().map(|(kind, _)| kind).collect();
        let wanted = state.buffers.iter().flat_map(|buffer| moment_names(buffer.kept.optimizer));
        if let Some(missing) = wanted.copied().find(|kind| !kinds.contains(kind)) {
            bail!(
                "the checkpoint {} has no {missing}: it was trained by another optimizer than the plan's",
                self.path().display()
            );
        }
        if kinds.contains(EXPERT_BIAS) && !state.parameters.is_empty() {
            let biases: BTreeSet<String> =
                model.expert_biases()?.iter().map(|&(weight, _)| bias_name(state.name(weight))).collect();
            let routers = state.parameters.iter().filter(|one| one.shard.name.ends_with("router.weight"));
            let lost = routers
                .map(|one| bias_name(&one.shard.name))
                .filter(|name| !biases.contains(name))
                .find(|name| self.0.has(EXPERT_BIAS, name));
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
        name: (&str, &str),
        shape: &[u64],
        want: &Piece,
        into: Tensor,
    ) -> anyhow::Result<()> {
        self.0.read(name, shape, want, Destination(into))
    }
}

/// A flat tensor that elements are read into: right into its memory where they have its type and the host has it.
struct Destination(Tensor);

fn kind_of(dtype: Dtype) -> Option<Kind> {
    TYPES.iter().find(|(known, _)| *known == dtype).map(|(_, kind)| *kind)
}

impl Target for Destination {
    fn memory(&mut self, first: u64, dtype: Dtype, count: u64) -> Option<&mut [u8]> {
        let size = self.0.kind().elt_size_in_bytes();
        let (start, bytes) = (
            usize::try_from(first).ok()?.checked_mul(size)?,
            usize::try_from(count).ok()?.checked_mul(size)?,
        );
        let same = kind_of(dtype) == Some(self.0.kind());
        cpu_bytes_mut(&mut self.0).filter(|_| same)?.get_mut(start..start.checked_add(bytes)?)
    }

    fn take(&mut self, first: u64, dtype: Dtype, bytes: &[u8]) -> anyhow::Result<()> {
        let kind = kind_of(dtype).with_context(|| format!("elements of type {dtype:?}"))?;
        let count = (bytes.len() / kind.elt_size_in_bytes()) as u64;
        let values = Tensor::f_from_data_size(bytes, &[i64::try_from(count)?], kind)?;
        view(&self.0, first, count)?.f_copy_(&values)?;
        Ok(())
    }
}
