//! GPU catalogue: one record a GPU in `gpus.json`, with a source for every figure.

use std::sync::OnceLock;

use serde::Deserialize;

use super::Generation;
use crate::data;

/// A kind of GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Id for plan files.
    pub id: &'static str,
    /// Name as people write it.
    pub title: &'static str,
    /// Its generation.
    pub generation: Generation,
    /// Words of the names that drivers give it; all of one list are in such a name.
    pub driver: Vec<Vec<&'static str>>,
    /// Other names that people and price lists give it, in letters and digits without maker and capacity.
    pub names: Vec<&'static str>,
    /// Bytes that torch sees of one; none for `cpu`.
    pub capacity_bytes: Option<u64>,
    /// GPUs joined by NVLink (or Infinity Fabric) in a usual node or rack.
    pub nvlink_domain: u64,
    /// GPUs of a node, where that is known and not the usual 8.
    pub node_gpus: Option<u64>,
    /// Network bandwidth per GPU in a usual node, Gbit/s.
    pub nic_gbps: f64,
    /// Streaming multiprocessors, or compute units.
    pub multiprocessors: u64,
    /// Peaks and bandwidths; none for `cpu`.
    pub speeds: Option<Speeds>,
    /// Constant of the time model for its clock; none where it keeps its clock.
    pub clock: Option<&'static str>,
    /// Constant of the time model for its link to the host, where that is not the software's: of superchips.
    pub host_link: Option<&'static str>,
    /// Whether measured steps stand behind the constants that the time model has for it.
    pub measured: bool,
    /// Where each figure comes from, by its name in the record.
    pub sources: Vec<(&'static str, &'static str)>,
}

impl Gpu {
    /// Whether it is no GPU: processes that compute on CPUs.
    pub fn is_cpu(&self) -> bool {
        self.generation == Generation::None
    }

    /// Whether it runs what runs on another, and is nowhere slower: by its peak, its memory and its links in a node.
    pub fn replaces(&self, other: &Gpu) -> bool {
        let figures = |gpu: &Gpu| {
            gpu.speeds.map(|speeds| [speeds.bf16_tflops, speeds.memory_gbs, speeds.nvlink_gbs.unwrap_or(0.0)])
        };
        let is_amds = |gpu: &Gpu| gpu.generation == Generation::Cdna;
        let (Some(own), Some(others)) = (figures(self), figures(other)) else {
            return other.speeds.is_none();
        };
        is_amds(self) == is_amds(other) && own.into_iter().zip(others).all(|(own, others)| own >= others)
    }
}

/// What a GPU can do at most. Peaks are of dense matrices, without structured sparsity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speeds {
    /// bf16 matrix peak, TFLOP/s (10^12 operations per second).
    pub bf16_tflops: f64,
    /// fp8 matrix peak, TFLOP/s; none where there is no fp8.
    pub fp8_tflops: Option<f64>,
    /// fp4 matrix peak, TFLOP/s; none where there is no fp4.
    pub fp4_tflops: Option<f64>,
    /// Nameplate memory, GB (10^9 bytes as vendors print it).
    pub memory_gb: f64,
    /// Memory bandwidth, GB/s.
    pub memory_gbs: f64,
    /// Links to other GPUs of the domain, GB/s of both directions together; none where there are none.
    pub nvlink_gbs: Option<f64>,
}

/// A figure of the data file.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    value: f64,
    source: &'static str,
}

/// A GPU of the data file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    id: &'static str,
    title: &'static str,
    generation: Generation,
    driver: Vec<Vec<&'static str>>,
    #[serde(default)]
    names: Vec<&'static str>,
    #[serde(default)]
    capacity_bytes: Option<Figure>,
    nvlink_domain: Figure,
    #[serde(default)]
    node_gpus: Option<Figure>,
    nic_gbps: Figure,
    multiprocessors: Figure,
    #[serde(default)]
    bf16_tflops: Option<Figure>,
    #[serde(default)]
    fp8_tflops: Option<Figure>,
    #[serde(default)]
    fp4_tflops: Option<Figure>,
    #[serde(default)]
    memory_gb: Option<Figure>,
    #[serde(default)]
    memory_gbs: Option<Figure>,
    #[serde(default)]
    nvlink_gbs: Option<Figure>,
    #[serde(default)]
    clock: Option<&'static str>,
    #[serde(default)]
    host_link: Option<&'static str>,
    measured: bool,
}

impl Record {
    fn gpu(self) -> Gpu {
        let value = |figure: Option<Figure>| figure.map(|figure| figure.value);
        let speeds = match (self.bf16_tflops, self.memory_gb, self.memory_gbs) {
            (Some(bf16), Some(memory), Some(bandwidth)) => Some(Speeds {
                bf16_tflops: bf16.value,
                fp8_tflops: value(self.fp8_tflops),
                fp4_tflops: value(self.fp4_tflops),
                memory_gb: memory.value,
                memory_gbs: bandwidth.value,
                nvlink_gbs: value(self.nvlink_gbs),
            }),
            _ => None,
        };
        let figures = [
            ("capacity_bytes", self.capacity_bytes),
            ("nvlink_domain", Some(self.nvlink_domain)),
            ("node_gpus", self.node_gpus),
            ("nic_gbps", Some(self.nic_gbps)),
            ("multiprocessors", Some(self.multiprocessors)),
            ("bf16_tflops", self.bf16_tflops),
            ("fp8_tflops", self.fp8_tflops),
            ("fp4_tflops", self.fp4_tflops),
            ("memory_gb", self.memory_gb),
            ("memory_gbs", self.memory_gbs),
            ("nvlink_gbs", self.nvlink_gbs),
        ];
        let sources = figures.into_iter().filter_map(|(name, figure)| Some((name, figure?.source)));
        Gpu {
            id: self.id,
            title: self.title,
            generation: self.generation,
            driver: self.driver,
            names: self.names,
            // Whole numbers, far below what a float holds exactly.
            capacity_bytes: value(self.capacity_bytes).map(|bytes| bytes as u64),
            nvlink_domain: self.nvlink_domain.value as u64,
            node_gpus: value(self.node_gpus).map(|count| count as u64),
            nic_gbps: self.nic_gbps.value,
            multiprocessors: self.multiprocessors.value as u64,
            speeds,
            clock: self.clock,
            host_link: self.host_link,
            measured: self.measured,
            sources: sources.collect(),
        }
    }
}

impl Gpu {
    /// Bytes that torch sees of such a GPU with another capacity on its nameplate, GiB: as much of it as of the usual
    /// one; none for `cpu`.
    pub(crate) fn capacity_of(&self, memory_gib: f64) -> Option<u64> {
        let (seen, nameplate) = (self.capacity_bytes?, self.speeds?.memory_gb);
        // Far below what a float holds exactly; a capacity out of range is refused before.
        Some((seen as f64 * (memory_gib / nameplate)).round() as u64)
    }

    /// Where a figure of this name comes from; empty for one that it has not.
    pub fn source(&self, figure: &str) -> &'static str {
        self.sources.iter().find(|(name, _)| *name == figure).map_or("", |(_, source)| source)
    }
}

/// All kinds, in the order in which a list shows them.
pub fn gpus() -> &'static [Gpu] {
    static GPUS: OnceLock<Vec<Gpu>> = OnceLock::new();
    // A test reads the file.
    let read = || serde_json::from_str::<Vec<Record>>(data::text(data::File::Gpus)).unwrap_or_default();
    GPUS.get_or_init(|| read().into_iter().map(Record::gpu).collect())
}

/// The kind with this id.
pub fn gpu(id: &str) -> Option<&'static Gpu> {
    gpus().iter().find(|gpu| gpu.id == id)
}

/// Whether this is the id of no GPU, but of processes that compute on CPUs.
pub fn is_cpu(id: &str) -> bool {
    gpu(id).is_some_and(Gpu::is_cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_replaces_a_gpu_is_nowhere_slower() {
        let replaces = |one: &str, other: &str| gpu(one).unwrap().replaces(gpu(other).unwrap());
        for (one, other) in [("a100-80gb-sxm", "a100-40gb-sxm"), ("h200", "h100-sxm"), ("b200", "h100-sxm")] {
            assert!(replaces(one, other) && !replaces(other, one), "{one} {other}");
        }
        for (one, other) in [("l40s", "a100-40gb-sxm"), ("mi300x", "h100-sxm"), ("h200", "mi300x")] {
            assert!(!replaces(one, other), "{one} {other}");
        }
    }

    #[test]
    fn another_capacity_is_seen_as_much_of() {
        let h100 = super::gpu("h100-sxm").unwrap();
        assert_eq!(h100.capacity_of(80.0), h100.capacity_bytes);
        // 94.9 GiB of 96, as 79.1 of 80.
        assert_eq!(h100.capacity_of(96.0).map(|bytes| bytes >> 20), Some(97_198));
        assert_eq!(super::gpu("cpu").unwrap().capacity_of(96.0), None);
    }

    #[test]
    fn every_gpu_has_its_speeds_with_their_source() {
        assert!(gpus().len() > 1);
        for gpu in gpus() {
            assert_eq!(gpu.speeds.is_none(), gpu.id == "cpu", "{}", gpu.id);
            assert_eq!(super::gpu(gpu.id), Some(gpu), "{} is there twice", gpu.id);
            let Some(speeds) = gpu.speeds else { continue };
            assert!(gpu.sources.iter().all(|(_, source)| !source.is_empty()), "{}", gpu.id);
            assert!(!gpu.source("memory_gbs").is_empty() && gpu.source("nothing").is_empty(), "{}", gpu.id);
            // Halving the precision at most triples the peak, and never printed sparse numbers.
            let fp8 = speeds.fp8_tflops.unwrap_or(2.0 * speeds.bf16_tflops);
            assert!((1.9..=2.1).contains(&(fp8 / speeds.bf16_tflops)), "{}", gpu.id);
            let fp4 = speeds.fp4_tflops.unwrap_or(2.0 * fp8);
            assert!((1.9..=3.1).contains(&(fp4 / fp8)), "{}", gpu.id);
            // What torch sees is within the nameplate.
            let seen = gpu.capacity_bytes.unwrap_or(0) as f64;
            assert!(seen <= speeds.memory_gb * f64::from(1 << 30), "{}", gpu.id);
            assert_eq!(speeds.nvlink_gbs.is_some(), gpu.nvlink_domain > 1, "{}", gpu.id);
        }
    }
}
