//! A GPU of the catalogue by the name that its driver gives it.

/// Words of a driver's name, all of which must be there, and the catalogue's id; the first that fits counts.
const NAMES: &[(&[&str], &str)] = &[
    (&["GB300"], "gb300"),
    (&["GB200"], "gb200"),
    (&["B300"], "b300"),
    (&["B200"], "b200"),
    (&["H200"], "h200"),
    (&["H100", "NVL"], "h100-nvl"),
    (&["H100", "PCIE"], "h100-pcie"),
    (&["H100"], "h100-sxm"),
    (&["H20"], "h20"),
    (&["A100", "80GB"], "a100-80gb-sxm"),
    (&["L40S"], "l40s"),
    (&["RTX", "4090"], "rtx-4090"),
    (&["MI355X"], "mi355x"),
    (&["MI325X"], "mi325x"),
    (&["MI300X"], "mi300x"),
];

/// Id of the GPU that a driver calls `name`, such as `NVIDIA H100 80GB HBM3`; none for one that is not in the catalogue.
pub fn gpu_of_driver(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_uppercase();
    let words: Vec<&str> = name.split(|part: char| !part.is_ascii_alphanumeric()).collect();
    let (_, id) = NAMES.iter().find(|(wanted, _)| wanted.iter().all(|word| words.contains(word)))?;
    crate::cluster::gpu(id).map(|gpu| gpu.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_drivers() {
        let check = |name: &str, id: Option<&str>| assert_eq!(gpu_of_driver(name), id, "{name}");
        check("NVIDIA H100 80GB HBM3", Some("h100-sxm"));
        check("NVIDIA H100 PCIe", Some("h100-pcie"));
        check("NVIDIA H200", Some("h200"));
        check("NVIDIA GB200", Some("gb200"));
        check("NVIDIA A100-SXM4-80GB", Some("a100-80gb-sxm"));
        check("NVIDIA GeForce RTX 4090", Some("rtx-4090"));
        check("NVIDIA T4", None);
        for (_, id) in NAMES {
            assert!(crate::cluster::gpu(id).is_some(), "{id}");
        }
    }
}
