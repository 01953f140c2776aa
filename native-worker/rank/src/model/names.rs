//! What layers are made of: the planner's parameters by name, crossed off as they are found, and buffers that stay beside them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use anyhow::{Context, bail};
use planner::shard::{ParamShard, RankShards};
use tch::{Device, Kind, Tensor};

use crate::sys::memory::{Category, Tracker};

/// What is left to be found among a rank's shards.
pub struct Names<'a> {
    shards: &'a RankShards,
    left: RefCell<BTreeMap<&'a str, usize>>,
    device: Device,
    tracker: &'a Tracker,
}

impl<'a> Names<'a> {
    /// All of them, and buffers on `device`.
    pub fn of(shards: &'a RankShards, device: Device, tracker: &'a Tracker) -> Names<'a> {
        let numbered =
            shards.params.iter().enumerate().map(|(number, shard)| (shard.name.as_str(), number)).collect();
        Names { shards, left: RefCell::new(numbered), device, tracker }
    }

    /// The number of the parameter of this name.
    ///
    /// # Errors
    /// When there is none, or it was taken before.
    pub fn take(&self, name: &str) -> anyhow::Result<usize> {
        let found = self.left.borrow_mut().remove(name);
        found.with_context(|| format!("the planner's shards have no parameter `{name}`"))
    }

    /// The same, if it is wanted.
    ///
    /// # Errors
    /// As `take`.
    pub fn optional(&self, wanted: bool, name: &str) -> anyhow::Result<Option<usize>> {
        wanted.then(|| self.take(name)).transpose()
    }

    /// A buffer of so many zeros in fp64, which stays.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn buffer(&self, elements: i64) -> anyhow::Result<Tensor> {
        let zeros = || Ok(Tensor::f_zeros([elements], (Kind::Double, self.device))?);
        self.tracker.allocate(Category::Buffers, zeros)
    }

    /// The shards that these are names of.
    pub fn shards(&self) -> &'a RankShards {
        self.shards
    }

    /// How a parameter is cut.
    pub fn shard(&self, number: usize) -> &'a ParamShard {
        &self.shards.params[number]
    }

    /// Every parameter must have been found, so that no part of a model is left out of its training.
    ///
    /// # Errors
    /// When one is left.
    pub fn finish(&self) -> anyhow::Result<()> {
        if let Some(name) = self.left.borrow().keys().next() {
            bail!("the executor does not run models with a parameter like `{name}` yet");
        }
        Ok(())
    }
}
