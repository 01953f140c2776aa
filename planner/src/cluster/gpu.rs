//! GPU catalogue.

/// A kind of GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Id for plan files.
    pub id: &'static str,
    /// Name as people write it.
    pub title: &'static str,
    /// Bytes that torch sees of one; none for `cpu`.
    pub capacity_bytes: Option<u64>,
    /// Where the capacity comes from.
    pub capacity_source: &'static str,
    /// GPUs joined by NVLink (or Infinity Fabric) in a usual node or rack.
    pub nvlink_domain: u64,
    /// Network bandwidth per GPU in a usual node, Gbit/s.
    pub nic_gbps: f64,
}

/// Tenths of a GiB in bytes.
const fn gib_tenths(tenths: u64) -> Option<u64> {
    Some(tenths * (1 << 30) / 10)
}

const fn gpu_of(
    id: &'static str,
    title: &'static str,
    capacity_bytes: Option<u64>,
    capacity_source: &'static str,
    nvlink_domain: u64,
    nic_gbps: f64,
) -> Gpu {
    Gpu { id, title, capacity_bytes, capacity_source, nvlink_domain, nic_gbps }
}

const TORCH: &str = "total memory as torch reports it on such a GPU";
const LABEL: &str = "nameplate less 2% that driver and ECC keep; not read from a device";

/// Nameplate GB (taken as GiB, as vendors mean it) less 2%.
const fn label(gib: u64) -> Option<u64> {
    Some(gib * (1 << 30) / 100 * 98)
}

static GPUS: &[Gpu] = &[
    gpu_of("a100-80gb-sxm", "A100 80 GB SXM", gib_tenths(791), TORCH, 8, 200.0),
    gpu_of("h100-sxm", "H100 SXM", gib_tenths(791), TORCH, 8, 400.0),
    gpu_of("h100-pcie", "H100 PCIe", gib_tenths(791), TORCH, 2, 200.0),
    gpu_of("h100-nvl", "H100 NVL", label(94), LABEL, 2, 200.0),
    gpu_of("h200", "H200", gib_tenths(1398), TORCH, 8, 400.0),
    gpu_of("h20", "H20", label(96), LABEL, 8, 400.0),
    gpu_of("b200", "B200", label(180), LABEL, 8, 400.0),
    gpu_of("gb200", "GB200", label(186), LABEL, 72, 400.0),
    gpu_of("b300", "B300", label(270), LABEL, 8, 800.0),
    gpu_of("gb300", "GB300", label(279), LABEL, 72, 800.0),
    gpu_of("mi300x", "MI300X", label(192), LABEL, 8, 400.0),
    gpu_of("mi325x", "MI325X", label(256), LABEL, 8, 400.0),
    gpu_of("mi355x", "MI355X", label(288), LABEL, 8, 400.0),
    gpu_of("l40s", "L40S", label(45), LABEL, 1, 100.0),
    gpu_of("rtx-4090", "RTX 4090", label(24), LABEL, 1, 25.0),
    gpu_of("cpu", "CPU processes", None, "", 1, 25.0),
];

/// All kinds, in the order in which a list shows them.
pub fn gpus() -> &'static [Gpu] {
    GPUS
}

/// The kind with this id.
pub fn gpu(id: &str) -> Option<&'static Gpu> {
    GPUS.iter().find(|gpu| gpu.id == id)
}
