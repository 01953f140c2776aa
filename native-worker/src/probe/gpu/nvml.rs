//! The driver's own library, NVML, loaded when first asked for and kept until the process ends.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor,
};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{cuda_driver_version_major, cuda_driver_version_minor};

use super::{ComputeMode, Driver, Gpu, GpuError, GpuLibrary, Instance, PcieLink, Reading, Xid};

/// The most NVLinks that any GPU has (`NVML_NVLINK_MAX_LINKS` in nvml.h).
const MAX_NVLINKS: u32 = 18;
/// The most GPUs that are asked for; a number from a broken driver must not keep us busy.
const MAX_GPUS: u32 = 256;
/// The most MIG instances of a GPU that are asked for; there are 7 at most today.
const MAX_INSTANCES: u32 = 64;
/// The most Xids that are taken at once.
const MAX_XIDS: usize = 64;
/// PCIe throughput comes in KiB per second, NVLink's in MiB per second (nvml.h).
const KIB: u64 = 1024;
const MIB: f64 = 1_048_576.0;

/// The library of this machine.
pub struct Nvml {
    library: &'static nvml_wrapper::Nvml,
    /// The previous counters of each GPU, for rates over NVLink.
    counters: Vec<Option<GpmSample<'static>>>,
    events: Option<EventSet<'static>>,
}

impl Nvml {
    /// Loads the library, once per process.
    ///
    /// # Errors
    /// When there is none, or it finds no driver.
    pub fn open() -> Result<Self, GpuError> {
        static LIBRARY: OnceLock<Result<nvml_wrapper::Nvml, GpuError>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| load().map_err(|error| explain(&error)));
        let library = library.as_ref().map_err(Clone::clone)?;
        Ok(Nvml { library, counters: Vec::new(), events: None })
    }

    fn device(&self, index: u32) -> Result<Device<'static>, GpuError> {
        self.library.device_by_index(index).map_err(|error| explain(&error))
    }

    /// Rates over NVLink since the previous call: received and sent, in bytes per second.
    fn nvlink_rates(&mut self, index: u32, device: &Device<'static>) -> (Option<u64>, Option<u64>) {
        use nvml_wrapper::enums::gpm::GpmMetricId::{NvlinkTotalRxPerSec, NvlinkTotalTxPerSec};
        if !device.gpm_support().unwrap_or(false) {
            return (None, None);
        }
        let Ok(now) = device.gpm_sample() else { return (None, None) };
        let index = index as usize;
        if self.counters.len() <= index {
            self.counters.resize_with(index + 1, || None);
        }
        let rates = self.counters[index].as_ref().and_then(|before| {
            gpm_metrics_get(self.library, before, &now, &[NvlinkTotalRxPerSec, NvlinkTotalTxPerSec]).ok()
        });
        self.counters[index] = Some(now);
        let rate = |at: usize| {
            let metric = rates.as_ref()?.get(at)?.as_ref().ok()?;
            (metric.value.is_finite() && metric.value >= 0.0).then_some((metric.value * MIB) as u64)
        };
        (rate(0), rate(1))
    }

    /// Starts listening for Xids on every GPU that reports them.
    fn listen(&self) -> Option<EventSet<'static>> {
        let mut set = self.library.create_event_set().ok()?;
        for index in 0..self.library.device_count().ok()?.min(MAX_GPUS) {
            // A GPU that refuses takes the whole set with it, so each is asked first.
            let Ok(device) = self.library.device_by_index(index) else { continue };
            let supported = device.supported_event_types().unwrap_or(EventTypes::empty());
            if supported.contains(EventTypes::CRITICAL_XID_ERROR) {
                set = device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok()?;
            }
        }
        Some(set)
    }
}

fn load() -> Result<nvml_wrapper::Nvml, NvmlError> {
    // Installations without development files have the library by its full name only.
    nvml_wrapper::Nvml::builder()
        .lib_path("libnvidia-ml.so.1".as_ref())
        .init()
        .or_else(|error| nvml_wrapper::Nvml::init().map_err(|_| error))
}

/// A sentence for an answer that is an error.
fn explain(error: &NvmlError) -> GpuError {
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded => {
            GpuError::NoDriver("no NVIDIA driver is loaded here (libnvidia-ml.so.1 is missing or finds none)".into())
        }
        NvmlError::LibRmVersionMismatch => GpuError::Broken(
            "the NVIDIA driver in the kernel and its libraries are of different versions, as after an update; \
             restart the machine or reload the driver"
                .into(),
        ),
        NvmlError::GpuLost => GpuError::Broken(
            "a GPU has fallen off the bus; drain this node and have it reset or repaired".into(),
        ),
        NvmlError::NoPermission | NvmlError::OperatingSystem => GpuError::Broken(
            "the GPU's device files can't be used by this user or in this container; give it access to /dev/nvidia*"
                .into(),
        ),
        error => GpuError::Broken(format!("the NVIDIA driver does not answer: {error}")),
    }
}

impl GpuLibrary for Nvml {
    fn driver(&mut self) -> Result<Driver, GpuError> {
        let version = self.library.sys_driver_version().map_err(|error| explain(&error))?;
        let cuda = self.library.sys_cuda_driver_version().ok().map(|version| {
            format!("{}.{}", cuda_driver_version_major(version), cuda_driver_version_minor(version))
        });
        Ok(Driver { version, cuda })
    }

    fn gpus(&mut self) -> Result<Vec<Gpu>, GpuError> {
        let count = self.library.device_count().map_err(|error| explain(&error))?;
        (0..count.min(MAX_GPUS)).map(|index| Ok(describe(index, &self.device(index)?))).collect()
    }

    fn read(&mut self, index: u32) -> Result<Reading, GpuError> {
        let device = self.device(index)?;
        let utilization = match device.utilization_rates() {
            Err(NvmlError::GpuLost) => return Err(explain(&NvmlError::GpuLost)),
            answer => answer.ok(),
        };
        let (nvlink_rx_bytes_per_s, nvlink_tx_bytes_per_s) = self.nvlink_rates(index, &device);
        let pcie = |counter| device.pcie_throughput(counter).ok().map(|kib| u64::from(kib) * KIB);
        let ecc = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).ok();
        Ok(Reading {
            memory_used_bytes: device.memory_info().ok().map(|memory| memory.used),
            utilization_percent: utilization.as_ref().map(|rates| rates.gpu),
            memory_utilization_percent: utilization.as_ref().map(|rates| rates.memory),
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
            power_milliwatts: device.power_usage().ok(),
            temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            throttle_reasons: device.current_throttle_reasons().ok().map(|reasons| reasons.bits()),
            nvlink_rx_bytes_per_s,
            nvlink_tx_bytes_per_s,
            pcie_rx_bytes_per_s: pcie(PcieUtilCounter::Receive),
            pcie_tx_bytes_per_s: pcie(PcieUtilCounter::Send),
            ecc_corrected: ecc(MemoryError::Corrected),
            ecc_uncorrected: ecc(MemoryError::Uncorrected),
        })
    }

    fn instance_memory_used(&mut self, index: u32, uuid: &str) -> Result<u64, GpuError> {
        let device = self.device(index)?;
        let own = instance_devices(&device).find(|instance| instance.uuid().is_ok_and(|known| known == uuid));
        let own =
            own.ok_or_else(|| GpuError::Broken(format!("GPU {index} has no MIG instance {uuid} any more")))?;
        Ok(own.memory_info().map_err(|error| explain(&error))?.used)
    }

    fn xids(&mut self, wait: Duration) -> Vec<Xid> {
        if self.events.is_none() {
            self.events = self.listen();
        }
        let Some(events) = &self.events else { return Vec::new() };
        let deadline = Instant::now() + wait;
        let mut found = Vec::new();
        while found.len() < MAX_XIDS {
            let left = deadline.saturating_duration_since(Instant::now());
            let limit =
                if found.is_empty() { u32::try_from(left.as_millis()).unwrap_or(u32::MAX) } else { 0 };
            let Ok(event) = events.wait(limit) else { break };
            let code = match event.event_data {
                Some(XidError::Value(code)) => Some(code),
                _ => None,
            };
            found.push(Xid { uuid: event.device.uuid().unwrap_or_default(), code });
        }
        found
    }
}

fn describe(index: u32, device: &Device<'_>) -> Gpu {
    let compute_capability = device.cuda_compute_capability().ok().and_then(|capability| {
        Some((u32::try_from(capability.major).ok()?, u32::try_from(capability.minor).ok()?))
    });
    let links: Vec<bool> =
        (0..MAX_NVLINKS).map_while(|link| device.link_wrapper_for(link).is_active().ok()).collect();
    let pcie = || {
        Some(PcieLink {
            generation: device.current_pcie_link_gen().ok()?,
            width: device.current_pcie_link_width().ok()?,
            max_generation: device.max_pcie_link_gen().ok()?,
            max_width: device.max_pcie_link_width().ok()?,
        })
    };
    Gpu {
        index,
        uuid: device.uuid().unwrap_or_default(),
        name: device.name().unwrap_or_default(),
        pci_bus_id: device.pci_info().map(|pci| pci.bus_id).unwrap_or_default(),
        memory_bytes: device.memory_info().map_or(0, |memory| memory.total),
        compute_capability,
        nvlinks: (!links.is_empty())
            .then(|| u32::try_from(links.iter().filter(|up| **up).count()).unwrap_or(MAX_NVLINKS)),
        pcie: pcie(),
        power_limit_milliwatts: device.enforced_power_limit().ok(),
        ecc: device.is_ecc_enabled().ok().map(|ecc| ecc.currently_enabled),
        mig: device.mig_mode().is_ok_and(|mode| mode.current == 1),
        instances: instances(device),
        compute_mode: device.compute_mode().ok().map(|mode| match mode {
            nvml_wrapper::enum_wrappers::device::ComputeMode::Default => ComputeMode::Default,
            nvml_wrapper::enum_wrappers::device::ComputeMode::Prohibited => ComputeMode::Prohibited,
            // One thread of one process is what drivers have given up.
            _ => ComputeMode::ExclusiveProcess,
        }),
    }
}

/// A GPU's MIG instances, as NVML's devices; some of their numbers are free.
fn instance_devices<'n>(device: &Device<'n>) -> impl Iterator<Item = Device<'n>> {
    let most = device.mig_device_count().unwrap_or(0).min(MAX_INSTANCES);
    (0..most).filter_map(|number| device.mig_device_by_index(number).ok())
}

/// A GPU's MIG instances.
fn instances(device: &Device<'_>) -> Vec<Instance> {
    instance_devices(device)
        .map(|instance| Instance {
            uuid: instance.uuid().unwrap_or_default(),
            name: instance.name().unwrap_or_default(),
            memory_bytes: instance.memory_info().map_or(0, |memory| memory.total),
        })
        .collect()
}
