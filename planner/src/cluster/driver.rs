//! A GPU of the catalogue by the name that its driver gives it.

use super::{Gpu, gpus};

/// Id of the GPU that a driver calls `name`, such as `NVIDIA H100 80GB HBM3`; none for one that is not in the catalogue.
pub fn gpu_of_driver(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_uppercase();
    let words: Vec<&str> = name.split(|part: char| !part.is_ascii_alphanumeric()).collect();
    // The list with the most words is the most exact.
    let fits = |wanted: &&Vec<&str>| wanted.iter().all(|word| words.contains(word));
    let of = |gpu: &'static Gpu| Some((gpu.driver.iter().filter(fits).map(Vec::len).max()?, gpu.id));
    gpus().iter().filter_map(of).max_by_key(|(words, _)| *words).map(|(_, id)| id)
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
        check("NVIDIA A100-SXM4-40GB", Some("a100-40gb-sxm"));
        check("NVIDIA A800-SXM4-80GB", Some("a800-80gb-sxm"));
        check("NVIDIA H800", Some("h800-sxm"));
        check("NVIDIA GeForce RTX 4090", Some("rtx-4090"));
        check("NVIDIA T4", None);
        assert!(gpus().iter().all(|gpu| gpu.id == "cpu" || !gpu.driver.is_empty()));
    }
}
