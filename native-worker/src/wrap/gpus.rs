//! The GPUs that the command may use, at a moment.

use std::time::Duration;

use planner::wire::GpuSample;

use crate::probe::gpu::{self, Gpu, GpuLibrary, Instance, Reading};

/// Throttle reasons by bit, as NVML documents `nvmlClocksEventReasons`; idle and the user's own settings left out.
const HELD_DOWN: &[(u32, &str)] = &[
    (2, "power cap"),
    (3, "hardware slowdown"),
    (5, "software thermal slowdown"),
    (6, "hardware thermal slowdown"),
    (7, "power brake"),
];

/// The driver, and the GPUs that are looked at.
pub struct Gpus {
    library: Box<dyn GpuLibrary>,
    gpus: Vec<Gpu>,
    /// The MIG instance that the command sees of the only one.
    instance: Option<Instance>,
    host: String,
}

impl Gpus {
    /// Asks the driver which GPUs the command sees; none without a driver or a GPU.
    pub fn open(host: &str) -> Option<Gpus> {
        Gpus::of(gpu::open().ok()?, host, &|name| std::env::var(name).ok())
    }

    fn of(
        mut library: Box<dyn GpuLibrary>,
        host: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Option<Gpus> {
        let all = library.gpus().ok()?;
        let (devices, order) = (variable("CUDA_VISIBLE_DEVICES"), variable("CUDA_DEVICE_ORDER"));
        let seen = gpu::visible(devices.as_deref(), order.as_deref(), &all);
        let gpus: Vec<Gpu> = all.into_iter().filter(|gpu| seen.indices.contains(&gpu.index)).collect();
        // The first question for Xids begins the watch.
        library.xids(Duration::ZERO);
        (!gpus.is_empty()).then(|| Gpus { library, gpus, instance: seen.instance, host: host.to_owned() })
    }

    /// Name of the first, such as `NVIDIA H100 80GB HBM3`, or of the instance of it that is seen.
    pub fn name(&self) -> &str {
        let of_gpu = || self.gpus.first().map_or("", |gpu| &gpu.name);
        self.instance.as_ref().map_or_else(of_gpu, |instance| &instance.name)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.gpus.len() as u64
    }

    /// All of them at this moment. One that does not answer is left out, unless it has an Xid to tell.
    pub fn sample(&mut self) -> Vec<GpuSample> {
        let xids = self.library.xids(Duration::ZERO);
        let mut samples = Vec::new();
        for gpu in &self.gpus {
            let xids: Vec<u64> =
                xids.iter().filter(|xid| xid.uuid == gpu.uuid).filter_map(|xid| xid.code).collect();
            match self.library.read(gpu.index) {
                Ok(reading) => samples.push(of_reading(gpu, &self.host, &reading, xids)),
                Err(_) if !xids.is_empty() => {
                    samples.push(of_reading(gpu, &self.host, &Reading::default(), xids));
                }
                Err(_) => {}
            }
        }
        if let Some(instance) = &self.instance {
            // The rest of the GPU is others': of what is said of all of it, that of the board stays (power, heat, clocks).
            for (sample, gpu) in samples.iter_mut().zip(&self.gpus) {
                sample.name.clone_from(&instance.name);
                sample.memory_used_bytes = self.library.instance_memory_used(gpu.index, &instance.uuid).ok();
                sample.memory_total_bytes = (instance.memory_bytes > 0).then_some(instance.memory_bytes);
                sample.utilization = None;
            }
        }
        samples
    }
}

fn of_reading(gpu: &Gpu, host: &str, reading: &Reading, xids: Vec<u64>) -> GpuSample {
    let reasons = reading.throttle_reasons.unwrap_or(0);
    GpuSample {
        gpu: u64::from(gpu.index),
        host: host.to_owned(),
        name: gpu.name.clone(),
        memory_used_bytes: reading.memory_used_bytes,
        memory_total_bytes: (gpu.memory_bytes > 0).then_some(gpu.memory_bytes),
        utilization: reading.utilization_percent.map(|percent| f64::from(percent) / 100.0),
        sm_clock_mhz: reading.sm_clock_mhz.map(u64::from),
        memory_clock_mhz: reading.memory_clock_mhz.map(u64::from),
        power_watts: reading.power_milliwatts.map(|milliwatts| f64::from(milliwatts) / 1e3),
        temperature_c: reading.temperature_celsius.map(f64::from),
        pcie_rx_bytes_per_second: reading.pcie_rx_bytes_per_s.map(|bytes| bytes as f64),
        pcie_tx_bytes_per_second: reading.pcie_tx_bytes_per_s.map(|bytes| bytes as f64),
        nvlink_rx_bytes_per_second: reading.nvlink_rx_bytes_per_s.map(|bytes| bytes as f64),
        nvlink_tx_bytes_per_second: reading.nvlink_tx_bytes_per_s.map(|bytes| bytes as f64),
        nvlinks_active: gpu.nvlinks.map(u64::from),
        ecc_corrected: reading.ecc_corrected,
        ecc_uncorrected: reading.ecc_uncorrected,
        xids,
        throttled_by: HELD_DOWN
            .iter()
            .filter(|(bit, _)| reasons >> bit & 1 == 1)
            .map(|(_, reason)| (*reason).to_owned())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::gpu::{Driver, Recorded, Recording, Xid};

    #[test]
    fn what_was_recorded_becomes_samples_of_the_visible_gpus() {
        let gpu = |index: u32| Gpu {
            index,
            uuid: format!("GPU-{index}"),
            name: "NVIDIA H100 80GB HBM3".into(),
            memory_bytes: 80 << 30,
            ..Gpu::default()
        };
        let reading = Reading {
            memory_used_bytes: Some(70 << 30),
            utilization_percent: Some(98),
            power_milliwatts: Some(689_500),
            throttle_reasons: Some(0b100),
            ..Reading::default()
        };
        let xid = |uuid: &str, code| Xid { uuid: uuid.into(), code: Some(code) };
        let library = Recorded::new(Recording {
            driver: Some(Driver { version: "580.65.06".into(), cuda: None }),
            gpus: vec![gpu(0), gpu(1)],
            readings: vec![vec![Reading::default()], vec![reading]],
            xids: [vec![], vec![xid("GPU-1", 79), xid("GPU-0", 31)]].into(),
            ..Recording::default()
        });
        let variable = |name: &str| (name == "CUDA_VISIBLE_DEVICES").then(|| "1".to_owned());
        let mut gpus = Gpus::of(Box::new(library), "node1", &variable).expect("a GPU");
        assert_eq!((gpus.name(), gpus.count()), ("NVIDIA H100 80GB HBM3", 1));
        let samples = gpus.sample();
        assert_eq!(samples.len(), 1);
        let sample = &samples[0];
        assert_eq!((sample.gpu, sample.utilization, sample.power_watts), (1, Some(0.98), Some(689.5)));
        assert_eq!(
            (sample.xids.as_slice(), sample.throttled_by.as_slice()),
            (&[79][..], &["power cap".to_owned()][..])
        );
        assert_eq!(gpus.sample()[0].xids, Vec::<u64>::new());
    }

    #[test]
    fn of_an_instance_its_own_memory_is_sampled() {
        let instance = |uuid: &str| Instance {
            uuid: uuid.into(),
            name: "NVIDIA H100 80GB HBM3 MIG 1g.10gb".into(),
            memory_bytes: 10 << 30,
        };
        let split = Gpu {
            name: "NVIDIA H100 80GB HBM3".into(),
            memory_bytes: 80 << 30,
            mig: true,
            instances: vec![instance("MIG-a1"), instance("MIG-b2")],
            ..Gpu::default()
        };
        let reading = Reading {
            memory_used_bytes: Some(70 << 30),
            utilization_percent: Some(98),
            power_milliwatts: Some(500_000),
            ..Reading::default()
        };
        let library = Recorded::new(Recording {
            driver: Some(Driver { version: "580.65.06".into(), cuda: None }),
            gpus: vec![split],
            readings: vec![vec![reading]],
            instances_used: [("MIG-a1".to_owned(), 9 << 30), ("MIG-b2".to_owned(), 2 << 30)].into(),
            ..Recording::default()
        });
        let variable = |name: &str| (name == "CUDA_VISIBLE_DEVICES").then(|| "MIG-b2".to_owned());
        let mut gpus = Gpus::of(Box::new(library), "node1", &variable).expect("an instance");
        assert_eq!((gpus.name(), gpus.count()), ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 1));
        let sample = gpus.sample().remove(0);
        assert_eq!((sample.memory_used_bytes, sample.memory_total_bytes), (Some(2 << 30), Some(10 << 30)));
        // Whoever else computes on the GPU is not this command.
        assert_eq!((sample.utilization, sample.power_watts), (None, Some(500.0)));
    }
}
