//! Generations of GPUs, as far as libraries tell them apart.

use serde::Deserialize;

/// A generation of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
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

impl Generation {
    /// The name by which constants of the time model are told apart.
    pub const fn name(self) -> &'static str {
        match self {
            Generation::Ampere => "ampere",
            Generation::Ada => "ada",
            Generation::Hopper => "hopper",
            Generation::Blackwell => "blackwell",
            Generation::Cdna => "cdna",
            Generation::None => "cpu",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{gpu, gpus};
    use super::Generation::{Ada, Ampere, Blackwell, Cdna, Hopper, None};

    #[test]
    fn every_gpu_has_its_generation() {
        let expected = |id: &str| gpu(id).unwrap().generation;
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
        assert!(gpus().iter().all(|gpu| gpu.id == "cpu" || gpu.generation != None));
    }
}
