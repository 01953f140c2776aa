//! Which GPUs a CUDA program sees, and in which order.

use super::Gpu;

/// GPUs as a CUDA program numbers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    /// NVML's number of CUDA's GPU 0, 1, ...
    pub indices: Vec<u32>,
    /// Whether that order is certain. CUDA puts the fastest first unless told to go by PCI address, so between unlike
    /// GPUs it is not.
    pub certain: bool,
    /// Entries that name no GPU of this machine; CUDA ignores them and all that follow.
    pub unknown: Vec<String>,
}

/// What CUDA makes of `CUDA_VISIBLE_DEVICES` (`devices`) and `CUDA_DEVICE_ORDER` (`order`), by the rules of CUDA's
/// programming guide as torch applies them (`_parse_visible_devices` in torch/cuda/__init__.py): numbers or beginnings
/// of UUIDs, up to the first that names no GPU; one named twice hides all.
pub fn visible(devices: Option<&str>, order: Option<&str>, gpus: &[Gpu]) -> Visible {
    let alike = gpus.windows(2).all(|pair| pair[0].name == pair[1].name);
    let all: Vec<u32> = gpus.iter().map(|gpu| gpu.index).collect();
    let by_pci = order == Some("PCI_BUS_ID");
    let Some(devices) = devices else {
        return Visible { indices: all, certain: by_pci || alike, unknown: Vec::new() };
    };
    let mut found = Visible { indices: Vec::new(), certain: by_pci || alike, unknown: Vec::new() };
    let entries: Vec<&str> = devices.split(',').map(str::trim).collect();
    let by_uuid = devices.starts_with("GPU-") || devices.starts_with("MIG-");
    if by_uuid {
        found.certain = true;
    }
    for (place, entry) in entries.iter().enumerate() {
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
    found
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
