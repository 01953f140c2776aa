//! Which GPUs a CUDA program sees, and in which order.

use super::{Gpu, Instance};

/// GPUs as a CUDA program numbers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    /// NVML's number of CUDA's GPU 0, 1, ...
    pub indices: Vec<u32>,
    /// The MIG instance that a program sees instead of a GPU. It is the only device then: CUDA shows a process one instance, and
    /// none of the GPUs beside it (NVIDIA's MIG user guide, "CUDA device enumeration").
    pub instance: Option<Instance>,
    /// Whether that order is certain. CUDA puts the fastest first unless told to go by PCI address, so between unlike
    /// GPUs it is not.
    pub certain: bool,
    /// Entries that name no GPU of this machine; CUDA ignores them and all that follow.
    pub unknown: Vec<String>,
}

impl Visible {
    /// What a program sees, as GPUs: of an instance its name, identity and memory instead of its GPU's.
    pub fn gpus(&self, all: &[Gpu]) -> Vec<Gpu> {
        let seen = self.indices.iter().filter_map(|index| all.iter().find(|gpu| gpu.index == *index));
        let as_seen = |gpu: &Gpu| match &self.instance {
            None => gpu.clone(),
            Some(Instance { uuid, name, memory_bytes }) => {
                Gpu { uuid: uuid.clone(), name: name.clone(), memory_bytes: *memory_bytes, ..gpu.clone() }
            }
        };
        seen.map(as_seen).collect()
    }

    /// Leaves what is shown of MIG: of GPUs that are split the first instance, and nothing beside it.
    fn with_instances(mut self, gpus: &[Gpu]) -> Visible {
        let split = |index: &u32| gpus.iter().find(|gpu| gpu.index == *index && gpu.mig);
        if self.instance.is_none() {
            let first = self
                .indices
                .iter()
                .filter_map(split)
                .find_map(|gpu| Some((gpu.index, gpu.instances.first()?.clone())));
            if let Some((index, instance)) = first {
                self.indices = vec![index];
                self.instance = Some(instance);
            } else {
                // A GPU that is split into nothing is none.
                self.indices.retain(|index| split(index).is_none());
            }
        }
        self
    }
}

/// What CUDA makes of `CUDA_VISIBLE_DEVICES` (`devices`) and `CUDA_DEVICE_ORDER` (`order`), by the rules of CUDA's
/// programming guide as torch applies them (`_parse_visible_devices` in torch/cuda/__init__.py): numbers or beginnings
/// of UUIDs, up to the first that names no GPU; one named twice hides all. UUIDs of MIG instances show the first that is named.
pub fn visible(devices: Option<&str>, order: Option<&str>, gpus: &[Gpu]) -> Visible {
    let alike = gpus.windows(2).all(|pair| pair[0].name == pair[1].name);
    let all: Vec<u32> = gpus.iter().map(|gpu| gpu.index).collect();
    let by_pci = order == Some("PCI_BUS_ID");
    let Some(devices) = devices else {
        let whole = Visible { indices: all, instance: None, certain: by_pci || alike, unknown: Vec::new() };
        return whole.with_instances(gpus);
    };
    let certain = by_pci || alike;
    let mut found = Visible { indices: Vec::new(), instance: None, certain, unknown: Vec::new() };
    let entries: Vec<&str> = devices.split(',').map(str::trim).collect();
    let by_uuid = devices.starts_with("GPU-") || devices.starts_with("MIG-");
    if by_uuid {
        found.certain = true;
    }
    for (place, entry) in entries.iter().enumerate() {
        if entry.starts_with("MIG-")
            && let Some((index, instance)) = instance_of(entry, gpus)
        {
            found.indices = vec![index];
            found.instance = Some(instance);
            break;
        }
        let named = if by_uuid { by_prefix(entry, gpus) } else { by_number(entry, gpus) };
        match named {
            Some(index) if found.indices.contains(&index) => {
                found.indices.clear();
                return found;
            }
            Some(index) => found.indices.push(index),
            None => {
                // An empty value or -1 is the usual way to hide all, and no mistake.
                if !matches!(*entry, "" | "-1") {
                    found.unknown = entries[place..].iter().map(|entry| (*entry).to_owned()).collect();
                }
                break;
            }
        }
    }
    found.with_instances(gpus)
}

/// The instance whose UUID begins so, as that of a GPU may be shortened, and the index of its GPU.
fn instance_of(entry: &str, gpus: &[Gpu]) -> Option<(u32, Instance)> {
    let all = gpus.iter().flat_map(|gpu| gpu.instances.iter().map(|instance| (gpu.index, instance)));
    let mut matching = all.filter(|(_, instance)| entry.len() > 4 && instance.uuid.starts_with(entry));
    match (matching.next(), matching.next()) {
        (Some((index, instance)), None) => Some((index, instance.clone())),
        // A name with numbers may be the beginning of another: `.../1/1` of `.../1/10`.
        (Some(_), Some(_)) => gpus.iter().find_map(|gpu| {
            let instance = gpu.instances.iter().find(|instance| instance.uuid == entry)?;
            Some((gpu.index, instance.clone()))
        }),
        _ => None,
    }
}

fn by_prefix(entry: &str, gpus: &[Gpu]) -> Option<u32> {
    let mut matching = gpus.iter().filter(|gpu| entry.starts_with("GPU-") && gpu.uuid.starts_with(entry));
    match (matching.next(), matching.next()) {
        (Some(gpu), None) => Some(gpu.index),
        _ => None,
    }
}

fn by_number(entry: &str, gpus: &[Gpu]) -> Option<u32> {
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(digits.len());
    let place: usize = digits[..end].parse().ok()?;
    gpus.get(place).map(|gpu| gpu.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(names: &[&str]) -> Vec<Gpu> {
        let gpu = |(index, name): (usize, &&str)| Gpu {
            index: index as u32,
            uuid: format!("GPU-{index}{index}{index}"),
            name: (*name).to_owned(),
            ..Gpu::default()
        };
        names.iter().enumerate().map(gpu).collect()
    }

    #[track_caller]
    fn check(devices: Option<&str>, expected: &[u32]) {
        let found = visible(devices, None, &gpus(&["H100"; 4]));
        assert_eq!(found.indices, expected, "{devices:?}");
        assert!(found.certain);
    }

    #[test]
    fn what_cuda_shows() {
        check(None, &[0, 1, 2, 3]);
        check(Some(""), &[]);
        check(Some("-1"), &[]);
        check(Some("2,0"), &[2, 0]);
        check(Some(" 1 , 3 "), &[1, 3]);
        check(Some("0,-1,2"), &[0]);
        check(Some("0,9,2"), &[0]);
        check(Some("1,1"), &[]);
        check(Some("1gpu"), &[1]);
        check(Some("GPU-22,GPU-000"), &[2, 0]);
        check(Some("GPU-22,1"), &[2]);
        check(Some("GPU-"), &[]);
        check(Some("MIG-1"), &[]);
    }

    /// The second of three GPUs is split into two instances, the third into none.
    fn split() -> Vec<Gpu> {
        let instance = |uuid: &str| Instance {
            uuid: uuid.into(),
            name: "H100 MIG 1g.10gb".into(),
            memory_bytes: 10 << 30,
        };
        let mut gpus = gpus(&["H100"; 3]);
        gpus[1].instances = vec![instance("MIG-aa1"), instance("MIG-ab2")];
        (gpus[1].mig, gpus[2].mig) = (true, true);
        gpus
    }

    #[track_caller]
    fn check_instance(devices: Option<&str>, indices: &[u32], uuid: Option<&str>) {
        let found = visible(devices, None, &split());
        let instance = found.instance.as_ref().map(|instance| instance.uuid.as_str());
        assert_eq!((found.indices.as_slice(), instance), (indices, uuid), "{devices:?}");
    }

    #[test]
    fn one_mig_instance_is_shown_and_nothing_beside_it() {
        check_instance(Some("MIG-aa1"), &[1], Some("MIG-aa1"));
        check_instance(Some("MIG-ab"), &[1], Some("MIG-ab2"));
        check_instance(Some("MIG-ab2,MIG-aa1"), &[1], Some("MIG-ab2"));
        check_instance(Some("GPU-000,MIG-ab2"), &[1], Some("MIG-ab2"));
        // Of several that begin so, and of none, nothing is shown.
        for devices in ["MIG-a", "MIG-", "MIG-GPU-111/1/0"] {
            check_instance(Some(devices), &[], None);
            assert_eq!(visible(Some(devices), None, &split()).unknown, [devices]);
        }
        check_instance(None, &[1], Some("MIG-aa1"));
        check_instance(Some("0"), &[0], None);
        check_instance(Some("1"), &[1], Some("MIG-aa1"));
        check_instance(Some("GPU-111"), &[1], Some("MIG-aa1"));
        check_instance(Some("0,2"), &[0], None);
        check_instance(Some("2"), &[], None);
    }

    #[test]
    fn instances_are_named_with_numbers_by_old_drivers() {
        let mut gpus = split();
        for (instance, uuid) in gpus[1].instances.iter_mut().zip(["MIG-GPU-111/1/1", "MIG-GPU-111/1/10"]) {
            instance.uuid = uuid.into();
        }
        for uuid in ["MIG-GPU-111/1/1", "MIG-GPU-111/1/10"] {
            assert_eq!(
                visible(Some(uuid), None, &gpus).instance.map(|instance| instance.uuid).as_deref(),
                Some(uuid)
            );
        }
    }

    #[test]
    fn an_instance_has_its_own_memory() {
        let seen = visible(Some("MIG-ab2"), None, &split()).gpus(&split());
        let [gpu] = seen.as_slice() else { panic!("{seen:?}") };
        assert_eq!((gpu.index, gpu.uuid.as_str(), gpu.memory_bytes), (1, "MIG-ab2", 10 << 30));
        assert_eq!(gpu.name, "H100 MIG 1g.10gb");
    }

    #[test]
    fn unknown_entries_are_named_with_what_they_hide() {
        let found = visible(Some("0,9,2"), None, &gpus(&["H100"; 4]));
        assert_eq!(found.unknown, ["9", "2"]);
        assert!(visible(Some("-1"), None, &gpus(&["H100"])).unknown.is_empty());
    }

    #[test]
    fn the_order_of_unlike_gpus_is_certain_by_pci_address_only() {
        let unlike = gpus(&["H100", "L40S"]);
        assert!(!visible(None, None, &unlike).certain);
        assert!(visible(None, Some("PCI_BUS_ID"), &unlike).certain);
        assert!(visible(Some("GPU-1"), None, &unlike).certain);
    }
}
