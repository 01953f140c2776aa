//! Generations of GPUs, as far as libraries tell them apart.

use super::Gpu;

/// A generation of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Compute capability 8.0.
    Ampere,
    /// Compute capability 8.9.
    Ada,
    /// Compute capability 9.
    Hopper,
    /// Compute capability 10 and above.
    Blackwell,
    /// AMD's CDNA.
    Cdna,
    /// No GPU.
    None,
}

impl Gpu {
    /// Its generation.
    pub fn generation(&self) -> Generation {
        match self.id {
            "l40s" | "rtx-4090" => Generation::Ada,
            id if id.starts_with("a100") => Generation::Ampere,
            id if id.starts_with('h') => Generation::Hopper,
            id if id.starts_with('b') || id.starts_with("gb") => Generation::Blackwell,
            id if id.starts_with("mi") => Generation::Cdna,
            _ => Generation::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{gpu, gpus};
    use super::Generation::{Ada, Ampere, Blackwell, Cdna, Hopper, None};

    #[test]
    fn every_gpu_has_its_generation() {
        let expected = |id: &str| gpu(id).unwrap().generation();
        for (id, generation) in [
            ("a100-80gb-sxm", Ampere),
            ("l40s", Ada),
            ("h100-sxm", Hopper),
            ("h20", Hopper),
            ("gb200", Blackwell),
            ("b300", Blackwell),
            ("mi300x", Cdna),
            ("cpu", None),
        ] {
            assert_eq!(expected(id), generation, "{id}");
        }
        assert!(gpus().iter().all(|gpu| gpu.id == "cpu" || gpu.generation() != None));
    }
}
