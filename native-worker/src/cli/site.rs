//! `shardplan site check`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use batch::launch::{Site, site_toml};
use planner::finding::has_error;
use serde_json::json;

use super::script;
use crate::report::{self, Exit, Failure, notice, text};
use crate::site::{Cluster, ask, judge};

/// Check a site's file against its cluster, or make one
#[derive(Debug, clap::Args)]
pub struct SiteCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Check(Check),
}

/// Ask Slurm on a login node: partitions, accounts, GPUs, containers, time limits, shared folders
///
/// Without a file it says what a site's file for this cluster would hold; with one it says what of it the cluster
/// refuses. Slurm is only asked, and what can't be asked is one sentence. Exit codes: 1 where a value is wrong, 3 where
/// there is no Slurm.
#[derive(Debug, clap::Args)]
struct Check {
    /// The site's file (TOML)
    #[arg(value_name = "SITE.toml")]
    site: Option<PathBuf>,
    /// Write the site with what the cluster says where it says nothing; a file that is there already is not touched
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

impl SiteCommand {
    /// Asks, checks, prints.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let What::Check(check) = self.what;
        let given = check.site.as_deref().map_or_else(|| Ok(Site::default()), script::read_site)?;
        let cluster = ask();
        let (site, findings) = judge(&cluster, given);
        let toml = site_toml(&site);
        if json {
            let fields: serde_json::Map<String, serde_json::Value> =
                toml::from_str(&toml).unwrap_or_default();
            report::print_json(&json!({
                "version": planner::wire::VERSION, "site": fields, "cluster": cluster, "findings": findings,
            }))?;
        } else {
            notice(text::findings(&findings).trim_end());
            report::print(&toml)?;
        }
        if let Some(path) = &check.write {
            write(path, &toml)?;
        }
        Ok(match has_error(&findings) {
            true => Exit::No,
            false if is_nowhere(&cluster) => Exit::Missing,
            false => Exit::Yes,
        })
    }
}

/// Whether nothing of Slurm answered.
fn is_nowhere(cluster: &Cluster) -> bool {
    cluster.partitions.is_none() && cluster.name.is_none() && cluster.pyxis.is_none()
}

/// Writes a new file. What somebody has written before stays.
fn write(path: &Path, toml: &str) -> anyhow::Result<()> {
    let failed = |error: std::io::Error| {
        Failure::environment(format!(
            "this file can't be written ({error}); name another: {}",
            path.display()
        ))
    };
    let mut file = std::fs::File::create_new(path).map_err(failed)?;
    file.write_all(toml.as_bytes()).map_err(failed)
}
