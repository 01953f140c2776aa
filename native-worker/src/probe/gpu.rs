//! GPUs through the driver's library, behind a small trait, so that what is made of the answers is tested with
//! recorded ones on machines without a GPU.
//!
//! NVML numbers GPUs by PCI address; CUDA may number them otherwise and hide some ([`visible`]). GPUs are therefore
//! matched by UUID or PCI address, never by a CUDA index alone.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

mod nvml;
mod recorded;
mod visible;

pub use nvml::Nvml;
pub use recorded::Recorded;
#[cfg(test)]
pub use recorded::Recording;
pub use visible::{Visible, visible};

/// Names a file with a recording that is read instead of asking a driver.
pub const RECORDING: &str = "SHARDPLAN_GPU_RECORDING";

/// The driver, by its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// Such as `580.65.06`.
    pub version: String,
    /// The newest CUDA that it runs, such as `13.0`.
    #[serde(default)]
    pub cuda: Option<String>,
}

/// What does not change of a GPU while a program runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// NVML's number, by PCI address.
    pub index: u32,
    /// Such as `GPU-4d7c...`: the same on every boot, and of one board only.
    pub uuid: String,
    /// Such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Domain, bus and device, such as `00000000:1B:00.0`.
    pub pci_bus_id: String,
    /// Installed memory in bytes.
    pub memory_bytes: u64,
    /// Major and minor, such as (9, 0) for Hopper.
    pub compute_capability: Option<(u32, u32)>,
    /// NVLinks that are up; none where the GPU does not say.
    pub nvlinks: Option<u32>,
    /// PCIe as it runs at this moment (it slows down when idle) and at most.
    pub pcie: Option<PcieLink>,
    /// Enforced power limit in milliwatts.
    pub power_limit_milliwatts: Option<u32>,
    /// Whether error correction of memory is on.
    pub ecc: Option<bool>,
    /// Whether it is split into MIG instances, which processes see instead of it.
    pub mig: bool,
    /// Those instances, as NVML numbers them.
    pub instances: Vec<Instance>,
    /// Who may compute on it; none where it does not say.
    pub compute_mode: Option<ComputeMode>,
}

/// A MIG instance: a compute instance of a GPU instance, which is a part of a GPU with memory of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Instance {
    /// Such as `MIG-9f51...`; from drivers before 470 `MIG-GPU-4d7c.../1/0`, with the numbers of GPU and compute instance.
    pub uuid: String,
    /// Such as `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
    pub name: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
}

/// Who may compute on a GPU (`nvmlComputeMode_t` in nvml.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Anybody.
    Default,
    /// One process at a time.
    ExclusiveProcess,
    /// Nobody.
    Prohibited,
}

/// A PCIe link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcieLink {
    /// Generation at this moment.
    pub generation: u32,
    /// Lanes at this moment.
    pub width: u32,
    /// The highest generation that GPU and slot share.
    pub max_generation: u32,
    /// The most lanes that GPU and slot share.
    pub max_width: u32,
}

/// What changes of a GPU. A figure that the GPU does not give is none, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// Memory in use by all processes, in bytes, without what the driver keeps for itself.
    pub memory_used_bytes: Option<u64>,
    /// Share of the last sample period with a kernel running, in per cent.
    pub utilization_percent: Option<u32>,
    /// Share of the last sample period with memory read or written, in per cent.
    pub memory_utilization_percent: Option<u32>,
    /// Clock of the streaming multiprocessors in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Power in milliwatts.
    pub power_milliwatts: Option<u32>,
    /// Temperature of the die in degrees Celsius.
    pub temperature_celsius: Option<u32>,
    /// Bits of `nvmlClocksThrottleReasons`: why clocks are lower than asked for.
    pub throttle_reasons: Option<u64>,
    /// Received over all NVLinks since the previous reading, in bytes per second (Hopper and newer).
    pub nvlink_rx_bytes_per_s: Option<u64>,
    /// Sent over all NVLinks since the previous reading, in bytes per second (Hopper and newer).
    pub nvlink_tx_bytes_per_s: Option<u64>,
    /// Received over PCIe, in bytes per second.
    pub pcie_rx_bytes_per_s: Option<u64>,
    /// Sent over PCIe, in bytes per second.
    pub pcie_tx_bytes_per_s: Option<u64>,
    /// Memory errors that were corrected since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Memory errors that were not corrected since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
}

/// An error that the driver reported of a GPU: the number in the kernel's `NVRM: Xid` lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xid {
    /// UUID of the GPU.
    pub uuid: String,
    /// The number; none when the driver does not know it.
    pub code: Option<u64>,
}

/// Why the library gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuError {
    /// There is no driver here, so there are no GPUs to use. This is no fault on a machine without GPUs.
    NoDriver(String),
    /// There is a driver, and it does not answer as it should.
    Broken(String),
}

impl std::fmt::Display for GpuError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GpuError::NoDriver(sentence) | GpuError::Broken(sentence) => formatter.write_str(sentence),
        }
    }
}

impl std::error::Error for GpuError {}

/// The questions that are asked of the driver's library.
pub trait GpuLibrary: Send {
    /// The driver and its CUDA.
    ///
    /// # Errors
    /// When the driver does not answer.
    fn driver(&mut self) -> Result<Driver, GpuError>;

    /// All GPUs of the machine, hidden ones too, by NVML's number.
    ///
    /// # Errors
    /// When the driver does not answer.
    fn gpus(&mut self) -> Result<Vec<Gpu>, GpuError>;

    /// A GPU at this moment. It takes some tens of milliseconds, because PCIe throughput is measured meanwhile.
    ///
    /// # Errors
    /// When the GPU has fallen off the bus or there is none of that number.
    fn read(&mut self, index: u32) -> Result<Reading, GpuError>;

    /// Bytes in use of a MIG instance of a GPU.
    ///
    /// # Errors
    /// When the GPU has none of that name, or it does not say.
    fn instance_memory_used(&mut self, index: u32, uuid: &str) -> Result<u64, GpuError>;

    /// Xids that were reported since the first call, waiting at most `wait` for one. Where several came at once, NVML
    /// tells the number of the last only.
    fn xids(&mut self, wait: Duration) -> Vec<Xid>;
}

/// The library of this machine, or the recording that [`RECORDING`] names.
///
/// # Errors
/// When there is no driver, or the recording can't be read.
pub fn open() -> Result<Box<dyn GpuLibrary>, GpuError> {
    match std::env::var_os(RECORDING).filter(|path| !path.is_empty()) {
        Some(path) => Ok(Box::new(Recorded::read(Path::new(&path))?)),
        None => Ok(Box::new(Nvml::open()?)),
    }
}

/// GPUs that a CUDA program sees here, in its order, and the driver; none without a driver.
pub fn visible_here() -> Option<(Vec<Gpu>, Driver)> {
    let mut library = open().ok()?;
    let (driver, all) = (library.driver().ok()?, library.gpus().ok()?);
    let variable = |name: &str| std::env::var(name).ok();
    let (devices, order) = (variable("CUDA_VISIBLE_DEVICES"), variable("CUDA_DEVICE_ORDER"));
    let seen = visible(devices.as_deref(), order.as_deref(), &all);
    Some((seen.gpus(&all), driver))
}
