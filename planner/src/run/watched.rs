//! What was seen of a run of another framework: its iterations, its GPUs, its hosts.

use std::collections::BTreeMap;

use crate::wire::{GpuSample, HostSample, Iteration};

/// Iterations that are kept; of a longer run the latest.
const ITERATIONS: usize = 100_000;

/// A framework's run as it was seen from outside.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Watched {
    /// Iterations by number, what several lines say of one together.
    pub iterations: BTreeMap<u64, Iteration>,
    /// The latest sample of each GPU, by host and number.
    pub gpus: BTreeMap<(String, u64), GpuSample>,
    /// The most memory used on one GPU.
    pub most_device_bytes: Option<u64>,
    /// Error codes that drivers reported, with the GPU's host and number.
    pub xids: Vec<(String, u64, u64)>,
    /// The latest sample of each host.
    pub hosts: BTreeMap<String, HostSample>,
    /// Bytes of output that were passed on unread.
    pub unread_bytes: u64,
}

impl Watched {
    /// Takes an iteration.
    pub(crate) fn take_iteration(&mut self, iteration: Iteration) {
        match self.iterations.get_mut(&iteration.step) {
            Some(known) => super::compare::add(known, &iteration),
            None => {
                self.iterations.insert(iteration.step, iteration);
            }
        }
        while self.iterations.len() > ITERATIONS {
            self.iterations.pop_first();
        }
    }

    /// Takes a sample of a GPU.
    pub(crate) fn take_gpu(&mut self, sample: GpuSample) {
        const MOST_XIDS: usize = 64;
        self.most_device_bytes = self.most_device_bytes.max(sample.memory_used_bytes);
        for xid in &sample.xids {
            if self.xids.len() < MOST_XIDS {
                self.xids.push((sample.host.clone(), sample.gpu, *xid));
            }
        }
        self.gpus.insert((sample.host.clone(), sample.gpu), sample);
    }
}
