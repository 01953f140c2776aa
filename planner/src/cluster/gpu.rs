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
    /// Peaks and bandwidths; none for `cpu`.
    pub speeds: Option<Speeds>,
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
    /// Where the peaks come from.
    pub peak_source: &'static str,
    /// Where the bandwidths come from.
    pub bandwidth_source: &'static str,
}

/// Tenths of a GiB in bytes.
const fn gib_tenths(tenths: u64) -> Option<u64> {
    Some(tenths * (1 << 30) / 10)
}

const TORCH: &str = "total memory as torch reports it on such a GPU";
const LABEL: &str = "nameplate less 2% that driver and ECC keep; not read from a device";

const TITAN: &str = "torchtitan tools/utils.py (bf16); lower precisions by the vendor's ratio";
const TITAN_KLOCKWOOD: &str = "torchtitan tools/utils.py; glennklockwood.com";
const KLOCKWOOD: &str = "glennklockwood.com (vendor's table); fp4 is the lower of two printed values";
const VERDA: &str = "verda.com (vendor's table); torchtitan tools/utils.py";
const TITAN_ROOFLINE: &str = "torchtitan tools/utils.py; rooflinenotes.dev";
const HMC: &str = "hmc-tech.com and rooflinenotes.dev (vendor's table; torchtitan counts 1300)";
const COMPARE: &str = "vendor's comparison page of H100 and H200";
const ROOFLINE: &str = "rooflinenotes.dev";
const DATASHEET: &str = "vendor's data sheet, recalled and not read again";

/// Nameplate GB (taken as GiB, as vendors mean it) less 2%.
const fn label(gib: u64) -> Option<u64> {
    Some(gib * (1 << 30) / 100 * 98)
}

/// Peaks of bf16, fp8 and fp4 (0 for none) and where they come from.
const fn peaks(bf16: f64, fp8: f64, fp4: f64, source: &'static str) -> (f64, f64, f64, &'static str) {
    (bf16, fp8, fp4, source)
}

/// Memory in GB, its bandwidth and that of the links (0 for none), and where they come from.
const fn widths(
    memory: f64,
    bandwidth: f64,
    links: f64,
    source: &'static str,
) -> (f64, f64, f64, &'static str) {
    (memory, bandwidth, links, source)
}

const fn some(value: f64) -> Option<f64> {
    if value > 0.0 { Some(value) } else { None }
}

struct Row(
    &'static str,
    &'static str,
    Option<u64>,
    &'static str,
    u64,
    f64,
    (f64, f64, f64, &'static str),
    (f64, f64, f64, &'static str),
);

const fn gpu_of(row: Row) -> Gpu {
    let Row(id, title, capacity_bytes, capacity_source, nvlink_domain, nic_gbps, peaks, widths) = row;
    let speeds = Speeds {
        bf16_tflops: peaks.0,
        fp8_tflops: some(peaks.1),
        fp4_tflops: some(peaks.2),
        memory_gb: widths.0,
        memory_gbs: widths.1,
        nvlink_gbs: some(widths.2),
        peak_source: peaks.3,
        bandwidth_source: widths.3,
    };
    let speeds = if peaks.0 > 0.0 { Some(speeds) } else { None };
    Gpu { id, title, capacity_bytes, capacity_source, nvlink_domain, nic_gbps, speeds }
}

static GPUS: &[Gpu] = &[
    gpu_of(Row(
        "a100-80gb-sxm",
        "A100 80 GB SXM",
        gib_tenths(791),
        TORCH,
        8,
        200.0,
        peaks(312.0, 0.0, 0.0, TITAN),
        widths(80.0, 2039.0, 600.0, DATASHEET),
    )),
    gpu_of(Row(
        "h100-sxm",
        "H100 SXM",
        gib_tenths(791),
        TORCH,
        8,
        400.0,
        peaks(989.0, 1979.0, 0.0, TITAN),
        widths(80.0, 3350.0, 900.0, COMPARE),
    )),
    gpu_of(Row(
        "h100-pcie",
        "H100 PCIe",
        gib_tenths(791),
        TORCH,
        2,
        200.0,
        peaks(756.0, 1513.0, 0.0, TITAN),
        widths(80.0, 2000.0, 600.0, DATASHEET),
    )),
    gpu_of(Row(
        "h100-nvl",
        "H100 NVL",
        label(94),
        LABEL,
        2,
        200.0,
        peaks(835.0, 1671.0, 0.0, TITAN),
        widths(94.0, 3900.0, 600.0, DATASHEET),
    )),
    gpu_of(Row(
        "h200",
        "H200",
        gib_tenths(1398),
        TORCH,
        8,
        400.0,
        peaks(989.0, 1979.0, 0.0, TITAN),
        widths(141.0, 4800.0, 900.0, ROOFLINE),
    )),
    gpu_of(Row(
        "h20",
        "H20",
        label(96),
        LABEL,
        8,
        400.0,
        peaks(148.0, 296.0, 0.0, TITAN),
        widths(96.0, 4000.0, 900.0, DATASHEET),
    )),
    gpu_of(Row(
        "b200",
        "B200",
        label(180),
        LABEL,
        8,
        400.0,
        peaks(2250.0, 4500.0, 9000.0, TITAN_KLOCKWOOD),
        widths(180.0, 8000.0, 1800.0, TITAN_KLOCKWOOD),
    )),
    gpu_of(Row(
        "gb200",
        "GB200",
        label(186),
        LABEL,
        72,
        400.0,
        peaks(2500.0, 5000.0, 10_000.0, TITAN_KLOCKWOOD),
        widths(186.0, 8000.0, 1800.0, TITAN_KLOCKWOOD),
    )),
    gpu_of(Row(
        "b300",
        "B300",
        label(270),
        LABEL,
        8,
        800.0,
        peaks(2250.0, 4500.0, 13_125.0, KLOCKWOOD),
        widths(270.0, 8000.0, 1800.0, KLOCKWOOD),
    )),
    gpu_of(Row(
        "gb300",
        "GB300",
        label(279),
        LABEL,
        72,
        800.0,
        peaks(2500.0, 5000.0, 15_000.0, VERDA),
        widths(279.0, 8000.0, 1800.0, VERDA),
    )),
    gpu_of(Row(
        "mi300x",
        "MI300X",
        label(192),
        LABEL,
        8,
        400.0,
        peaks(1307.0, 2615.0, 0.0, HMC),
        widths(192.0, 5300.0, 896.0, HMC),
    )),
    gpu_of(Row(
        "mi325x",
        "MI325X",
        label(256),
        LABEL,
        8,
        400.0,
        peaks(1307.0, 2615.0, 0.0, TITAN_ROOFLINE),
        widths(256.0, 6000.0, 896.0, DATASHEET),
    )),
    gpu_of(Row(
        "mi355x",
        "MI355X",
        label(288),
        LABEL,
        8,
        400.0,
        peaks(2500.0, 5000.0, 10_000.0, TITAN_ROOFLINE),
        widths(288.0, 8000.0, 1075.0, DATASHEET),
    )),
    gpu_of(Row(
        "l40s",
        "L40S",
        label(45),
        LABEL,
        1,
        100.0,
        peaks(362.0, 733.0, 0.0, DATASHEET),
        widths(48.0, 864.0, 0.0, DATASHEET),
    )),
    gpu_of(Row(
        "rtx-4090",
        "RTX 4090",
        label(24),
        LABEL,
        1,
        25.0,
        peaks(165.0, 330.0, 0.0, DATASHEET),
        widths(24.0, 1008.0, 0.0, DATASHEET),
    )),
    gpu_of(Row(
        "cpu",
        "CPU processes",
        None,
        "",
        1,
        25.0,
        peaks(0.0, 0.0, 0.0, ""),
        widths(0.0, 0.0, 0.0, ""),
    )),
];

/// All kinds, in the order in which a list shows them.
pub fn gpus() -> &'static [Gpu] {
    GPUS
}

/// The kind with this id.
pub fn gpu(id: &str) -> Option<&'static Gpu> {
    GPUS.iter().find(|gpu| gpu.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gpu_has_its_speeds_with_their_source() {
        for gpu in gpus() {
            assert_eq!(gpu.speeds.is_none(), gpu.id == "cpu", "{}", gpu.id);
            assert_eq!(super::gpu(gpu.id), Some(gpu), "{} is there twice", gpu.id);
            let Some(speeds) = gpu.speeds else { continue };
            assert!(!speeds.peak_source.is_empty() && !speeds.bandwidth_source.is_empty(), "{}", gpu.id);
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
