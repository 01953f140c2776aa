//! Container images that are known by what they contain, which decides whether anything has to be installed in them.
//!
//! Read from the files that make them: NVIDIA-NeMo/Megatron-Bridge 067f987 (docker/Dockerfile.ci, Dockerfile.fw_base,
//! Dockerfile.fw_final, README.md), NVIDIA-NeMo/Automodel 36044ad (docker/Dockerfile), NVIDIA/Megatron-LM 5be9626
//! (docker/Dockerfile.ci.dev), pytorch/torchtitan b5bcd76 (.ci/docker).

use super::body::Body;
use super::site::{Container, Environment};
use super::writer::Writer;
use planner::finding::Finding;

/// An image.
#[derive(Debug)]
pub(super) struct Image {
    /// What a person calls it.
    pub title: &'static str,
    /// Parts of names that it is known by.
    words: &'static [&'static str],
    /// What has its code in it, and where.
    code: &'static [(Body, &'static str)],
    /// What has all that it needs in the image's own Python.
    runs: &'static [Body],
}

/// Where Megatron Bridge lies in its images, and Megatron-LM under it.
pub(super) const BRIDGE: &str = "/opt/Megatron-Bridge";
/// Where Automodel lies in its images.
pub(super) const AUTOMODEL: &str = "/opt/Automodel";

/// All that are known; of several whose words are in a name the first is meant. `UV_PROJECT_ENVIRONMENT` is `/opt/venv` in
/// all but PyTorch's and torchtitan's, and all is synced there when the image is made.
const IMAGES: [Image; 6] = [
    Image {
        title: "NeMo Automodel's image",
        words: &["automodel"],
        code: &[(Body::Automodel, AUTOMODEL)],
        runs: &[Body::Automodel],
    },
    Image {
        title: "Megatron Bridge's image",
        words: &["bridge"],
        code: &[(Body::Bridge, BRIDGE), (Body::Mlm, BRIDGE)],
        runs: &[Body::Bridge, Body::Mlm],
    },
    // Dependencies alone: the code is mounted.
    Image {
        title: "Megatron-LM's image",
        words: &["megatron-lm", "megatron_lm", "mcore_ci"],
        code: &[],
        runs: &[Body::Mlm],
    },
    // Made upon Megatron Bridge's.
    Image {
        title: "the image of the NeMo Framework",
        words: &["nvidia/nemo:", "nvidia#nemo:", "nvidia+nemo+", "nemo"],
        code: &[(Body::Bridge, BRIDGE), (Body::Mlm, BRIDGE)],
        runs: &[Body::Bridge, Body::Mlm],
    },
    // torch and the rest of torchtitan's requirements in a conda environment; torchtitan itself is installed later.
    Image { title: "torchtitan's image", words: &["torchtitan"], code: &[], runs: &[Body::Torchtitan] },
    Image { title: "NVIDIA's image of PyTorch", words: &["pytorch"], code: &[], runs: &[] },
];

/// Images of other programs whose names have a known word.
const OTHERS: [&str; 3] = ["nemo-rl", "nemo_rl", "nemo-curator"];

/// The image of a name: a registry's, or that of a file.
pub(super) fn known(name: &str) -> Option<&'static Image> {
    let name = if name.starts_with(['/', '.']) { name.rsplit('/').next().unwrap_or(name) } else { name };
    let name = name.to_ascii_lowercase();
    if OTHERS.iter().any(|other| name.contains(other)) {
        return None;
    }
    IMAGES.iter().find(|image| image.words.iter().any(|word| name.contains(word)))
}

impl Writer<'_> {
    /// The site's image, where it is known.
    fn known_image(&self) -> Option<&'static Image> {
        known(self.site.image.as_deref().filter(|_| self.container().is_some())?)
    }

    /// Where the body's code lies in the image; none without one, or where a known one does not have it. An image that is
    /// not known is taken for the body's own.
    pub(crate) fn code_in_image(&self) -> Option<&'static str> {
        self.container()?;
        match self.known_image() {
            Some(image) => {
                image.code.iter().find(|(body, _)| *body == self.options.body).map(|(_, folder)| *folder)
            }
            None => self.options.body.facts().code,
        }
    }

    /// Where the Python environment lies: as the site says; in the image, where there is one that is not known to lack it;
    /// else where uv makes it.
    pub(crate) fn environment_kind(&self) -> Environment {
        // What the job makes itself stands first on the tasks' PATH.
        if self.options.environment.is_some() {
            return Environment::None;
        }
        let body = self.options.body;
        self.site.environment.unwrap_or(match (body.facts().is_synced, self.container()) {
            (false, _) => Environment::None,
            (true, None) => Environment::Shared,
            _ => match self.known_image() {
                Some(image) if !image.runs.contains(&body) => Environment::NodeLocal,
                _ => Environment::None,
            },
        })
    }

    /// What is to be said of image and environment.
    pub(super) fn check_image(&mut self) {
        let Some(container) = self.container() else { return };
        let body = self.options.body;
        let environment = self.environment_kind();
        let rule = "a container is thrown away with its step";
        if self.site.environment == Some(Environment::Shared) && !body.facts().takes_the_plan {
            let message = "the first step syncs in a container of its own, which is thrown away with it, and images of NeMo set \
                           UV_PROJECT_ENVIRONMENT=/opt/venv, inside: choose none where the image has all that is needed, or \
                           node-local to sync in the container that trains";
            self.note(Finding::warning("site.environment", environment.name(), message).rule(rule));
        }
        let Some(folder) = body.facts().code else { return };
        match self.known_image() {
            Some(image) if !image.runs.contains(&body) => {
                let message = format!(
                    "{} has neither {} nor what it needs: take an image of {}, or mount a checkout at {folder}; uv, which must \
                     be there, syncs on every node",
                    image.title,
                    body.title(),
                    body.title()
                );
                self.note(Finding::warning("site.image", image.title, message));
            }
            None if self.site.environment.is_none() && self.site.image.is_some() => {
                let message = format!(
                    "the image is taken for one of {}, with all that is needed in its Python and the code in {folder}; where it is \
                     not, give environment and workdir",
                    body.title()
                );
                self.note(Finding::info("site.environment", environment.name(), message));
            }
            _ => {}
        }
        if container == Container::Apptainer && environment == Environment::NodeLocal {
            let message = "apptainer opens a container for each task, so uv makes the environment in a temporary folder of the node";
            self.note(Finding::info("site.environment", environment.name(), message).rule(rule));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images() {
        for (name, title) in [
            ("nvcr.io/nvidia/nemo:26.08", "the image of the NeMo Framework"),
            ("nvcr.io#nvidia/nemo:26.08", "the image of the NeMo Framework"),
            ("/images/nvidia+nemo+26.08.sqsh", "the image of the NeMo Framework"),
            ("nvcr.io/nvidia/nemo-automodel:26.06", "NeMo Automodel's image"),
            ("/lustre/nemo/megatron-bridge.sqsh", "Megatron Bridge's image"),
            ("docker://nvcr.io/nvidia/pytorch:26.06-py3", "NVIDIA's image of PyTorch"),
            ("/lustre/pytorch/Megatron-LM.sif", "Megatron-LM's image"),
        ] {
            assert_eq!(known(name).map(|image| image.title), Some(title), "{name}");
        }
        for name in ["/lustre/nemo/train.sqsh", "nvcr.io/nvidia/nemo-rl:v0.3", "ubuntu:24.04", ""] {
            assert!(known(name).is_none(), "{name}");
        }
    }
}
