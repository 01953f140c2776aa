//! Recorded answers of the driver's library.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Driver, Gpu, GpuError, GpuLibrary, Reading, Xid};

/// The largest recording that is read, in bytes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Answers in the order in which they are given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recording {
    /// The driver; none where there is none.
    pub driver: Option<Driver>,
    /// All GPUs.
    pub gpus: Vec<Gpu>,
    /// Readings of each GPU, by its place in `gpus`; the last is given again when there are no more.
    pub readings: Vec<Vec<Reading>>,
    /// Bytes in use of MIG instances, by their names.
    pub instances_used: BTreeMap<String, u64>,
    /// What each call for Xids gives; nothing when there are no more.
    pub xids: VecDeque<Vec<Xid>>,
}

/// A library that answers from a recording.
pub struct Recorded {
    recording: Recording,
    /// How many readings each GPU has given.
    given: Vec<usize>,
}

impl Recorded {
    /// Answers from `recording`.
    pub fn new(recording: Recording) -> Self {
        let given = vec![0; recording.gpus.len()];
        Recorded { recording, given }
    }

    /// Answers from the recording in a file.
    ///
    /// # Errors
    /// When it can't be read, or is none.
    pub fn read(path: &Path) -> Result<Self, GpuError> {
        let wrong = |error: &dyn std::fmt::Display| {
            GpuError::Broken(format!("the recording of GPUs can't be read ({error}): {}", path.display()))
        };
        let size = std::fs::metadata(path).map_err(|error| wrong(&error))?.len();
        if size > MAX_BYTES {
            return Err(wrong(&format_args!("it has {size} bytes, more than {MAX_BYTES}")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
        Ok(Recorded::new(serde_json::from_str(&text).map_err(|error| wrong(&error))?))
    }
}

impl GpuLibrary for Recorded {
    fn driver(&mut self) -> Result<Driver, GpuError> {
        self.recording
            .driver
            .clone()
            .ok_or_else(|| GpuError::NoDriver("no NVIDIA driver is loaded here".to_owned()))
    }

    fn gpus(&mut self) -> Result<Vec<Gpu>, GpuError> {
        self.driver()?;
        Ok(self.recording.gpus.clone())
    }

    fn read(&mut self, index: u32) -> Result<Reading, GpuError> {
        let place = self.recording.gpus.iter().position(|gpu| gpu.index == index);
        let readings = place.and_then(|place| self.recording.readings.get(place));
        let (Some(place), Some(readings)) = (place, readings) else {
            return Err(GpuError::Broken(format!("there is no recorded GPU {index}")));
        };
        let at = self.given[place].min(readings.len().saturating_sub(1));
        self.given[place] += 1;
        readings
            .get(at)
            .copied()
            .ok_or_else(|| GpuError::Broken(format!("GPU {index} has no recorded readings")))
    }

    fn instance_memory_used(&mut self, _index: u32, uuid: &str) -> Result<u64, GpuError> {
        let used = self.recording.instances_used.get(uuid).copied();
        used.ok_or_else(|| GpuError::Broken(format!("there is no recorded instance {uuid}")))
    }

    fn xids(&mut self, _wait: Duration) -> Vec<Xid> {
        self.recording.xids.pop_front().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        let reading = |percent| Reading { utilization_percent: Some(percent), ..Reading::default() };
        Recording {
            driver: Some(Driver { version: "580.65.06".into(), cuda: Some("13.0".into()) }),
            gpus: vec![Gpu { index: 3, uuid: "GPU-a".into(), ..Gpu::default() }],
            readings: vec![vec![reading(10), reading(90)]],
            xids: [vec![], vec![Xid { uuid: "GPU-a".into(), code: Some(79) }]].into(),
            ..Recording::default()
        }
    }

    #[test]
    fn answers_come_in_order_and_the_last_reading_stays() {
        let mut library = Recorded::new(recording());
        let percent: Vec<Option<u32>> =
            (0..3).map(|_| library.read(3).expect("a reading").utilization_percent).collect();
        assert_eq!(percent, [Some(10), Some(90), Some(90)]);
        assert!(library.read(0).is_err(), "GPUs are asked by their number, not their place");
        assert_eq!(library.xids(Duration::ZERO), []);
        assert_eq!(library.xids(Duration::ZERO)[0].code, Some(79));
        assert_eq!(library.xids(Duration::ZERO), []);
    }

    #[test]
    fn a_recording_survives_its_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), serde_json::to_string(&recording()).expect("json")).expect("written");
        assert_eq!(Recorded::read(file.path()).expect("read").recording, recording());
        std::fs::write(file.path(), "{\"gpu\": []}").expect("written");
        let error = Recorded::read(file.path()).err().expect("an unknown field");
        assert!(error.to_string().contains("unknown field"), "{error}");
    }

    #[test]
    fn without_a_driver_there_are_no_gpus() {
        let mut library = Recorded::new(Recording::default());
        assert!(matches!(library.gpus(), Err(GpuError::NoDriver(_))));
    }
}
