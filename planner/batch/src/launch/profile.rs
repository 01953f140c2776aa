//! Site profiles with a name: the habits of launchers that many sites know already.

use serde::{Deserialize, Serialize};

use super::Site;

/// A launcher whose defaults a site may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// The Slurm executor of NVIDIA Nemotron's `nemo_runspec` (src/nemo_runspec/execution.py at commit e27b371):
    /// four hours, nodes shared unless asked for, `/lustre` and a folder for Ray mounted, secrets in a private file.
    NemoRunspec,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 1] = [Profile::NemoRunspec];

    /// The name used in site files.
    pub const fn name(self) -> &'static str {
        match self {
            Profile::NemoRunspec => "nemo-runspec",
        }
    }

    /// `site` with this profile's defaults where it says nothing.
    pub fn apply(self, site: &Site) -> Site {
        let mut site = site.clone();
        let Profile::NemoRunspec = self;
        site.time.get_or_insert_with(|| "04:00:00".to_owned());
        site.exclusive.get_or_insert(false);
        // The executor names no segment and no MPI plugin.
        site.segment.get_or_insert(false);
        site.mpi.get_or_insert_with(|| "none".to_owned());
        let folder = site.shared_dir.clone().filter(|folder| !folder.is_empty());
        let Some(folder) = folder else { return site };
        site.hf_home.get_or_insert_with(|| format!("{folder}/hf"));
        site.env.entry("NEMO_RUN_DIR".to_owned()).or_insert_with(|| folder.clone());
        if !site.required_env.is_empty() {
            site.secrets_file.get_or_insert_with(|| format!("{folder}/.shardplan-secrets/job.env"));
        }
        site
    }

    /// What it mounts beside the site's own mounts, or those that follow from its paths.
    pub(super) fn mounts(self, site: &Site) -> Vec<String> {
        let Profile::NemoRunspec = self;
        let folder = site.shared_dir.iter().filter(|folder| !folder.is_empty());
        let rays = folder.map(|folder| format!("{folder}/ray_temp:/ray-cluster"));
        std::iter::once("/lustre:/lustre".to_owned()).chain(rays).collect()
    }

    /// Folders under the shared one that must be there before a container mounts them.
    pub(super) const fn folders(self) -> &'static [&'static str] {
        match self {
            Profile::NemoRunspec => &["ray_temp"],
        }
    }
}
