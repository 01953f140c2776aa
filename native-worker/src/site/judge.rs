//! A site's values against what its cluster says, and what the cluster says where the site says nothing.

use std::path::Path;

use batch::launch::{Container, GpuRequest, Site};
use planner::Finding;

use super::ask::{is_shared, is_writable};
use super::cluster::{self, Account, Cluster, Partition};

/// The time limit of scripts that name none, in minutes.
const USUAL_MINUTES: u64 = 30;

/// Checks and fills.
pub fn judge(cluster: &Cluster, mut site: Site) -> (Site, Vec<Finding>) {
    let mut findings: Vec<Finding> = cluster
        .missing
        .iter()
        .map(|sentence| Finding::warning("cluster", serde_json::Value::Null, sentence.as_str()))
        .collect();
    let partition = partition(cluster, &mut site, &mut findings).cloned();
    account(cluster, &mut site, &mut findings);
    if let Some(partition) = &partition {
        time(partition, &mut site, &mut findings);
        gpus(partition, &mut site, &mut findings);
    }
    container(cluster, &mut site, &mut findings);
    plugins(cluster, &mut site, &mut findings);
    folders(cluster, &mut site, &mut findings);
    (site, findings)
}

fn info(field: &str, value: &str, message: String) -> Finding {
    Finding::info(&format!("site.{field}"), value, message)
}

fn wrong(field: &str, value: &str, message: String) -> Finding {
    Finding::error(&format!("site.{field}"), value, message)
}

/// The partition of the site, or the usual one with GPUs, or the first that has some.
fn partition<'a>(
    cluster: &'a Cluster,
    site: &mut Site,
    findings: &mut Vec<Finding>,
) -> Option<&'a Partition> {
    let all = cluster.partitions.as_ref()?;
    if let Some(named) = site.partition.clone() {
        let found = all.iter().find(|partition| partition.name == named);
        match found {
            None => {
                let names: Vec<&str> = all.iter().map(|partition| partition.name.as_str()).collect();
                let message = format!("the cluster has no partition {named}; it has: {}", names.join(", "));
                findings.push(
                    wrong("partition", &named, message)
                        .nearest(planner::finding::nearest_names(&named, names, 2)),
                );
            }
            Some(partition) if !partition.is_up => {
                let message = format!("partition {named} takes no jobs now (sinfo says it is not up)");
                findings.push(Finding::warning("site.partition", named.as_str(), message));
            }
            Some(_) => {}
        }
        return found;
    }
    let usable = |partition: &&Partition| partition.is_up && !partition.gpus.is_empty();
    let chosen = all.iter().filter(usable).find(|partition| partition.is_default).or(all.iter().find(usable));
    let Some(chosen) = chosen else {
        findings.push(Finding::warning(
            "site.partition",
            "",
            "no partition that is up has GPUs that Slurm counts (GRES); name one",
        ));
        return all.iter().find(|partition| partition.is_default);
    };
    let others: Vec<&str> = all
        .iter()
        .filter(usable)
        .map(|other| other.name.as_str())
        .filter(|name| *name != chosen.name)
        .collect();
    let besides =
        if others.is_empty() { String::new() } else { format!("; others with GPUs: {}", others.join(", ")) };
    let message = format!("partition {} has {} nodes with GPUs{besides}", chosen.name, chosen.nodes);
    findings.push(info("partition", &chosen.name, message));
    site.partition = Some(chosen.name.clone());
    Some(chosen)
}

fn account(cluster: &Cluster, site: &mut Site, findings: &mut Vec<Finding>) {
    let Some(accounts) = &cluster.accounts else { return };
    let fits = |account: &&Account| {
        account.partition.is_empty()
            || site.partition.as_ref().is_none_or(|named| *named == account.partition)
    };
    let mut names: Vec<&str> = accounts.iter().filter(fits).map(|account| account.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        let message =
            "accounting knows no account of yours here; jobs may go without one, or ask who runs the cluster";
        findings.push(Finding::warning("site.account", site.account.as_deref().unwrap_or_default(), message));
        return;
    }
    match &site.account {
        Some(named) if !names.contains(&named.as_str()) => {
            let message =
                format!("account {named} is none that you may charge here; these are: {}", names.join(", "));
            findings.push(
                wrong("account", named, message).nearest(planner::finding::nearest_names(named, names, 2)),
            );
        }
        Some(_) => {}
        None => {
            let usual = cluster.default_account.as_deref().filter(|usual| names.contains(usual));
            let chosen = usual.unwrap_or(names[0]).to_owned();
            findings.push(info(
                "account",
                &chosen,
                format!("accounts that you may charge: {}", names.join(", ")),
            ));
            site.account = Some(chosen);
        }
    }
}

fn time(partition: &Partition, site: &mut Site, findings: &mut Vec<Finding>) {
    let Some(limit) = partition.limit_minutes else { return };
    let shown = format!("{}-{:02}:{:02}:00", limit / 1440, limit / 60 % 24, limit % 60);
    let asked = site.time.as_deref().and_then(cluster::minutes);
    if let (Some(asked), Some(text)) = (asked, &site.time) {
        if asked > limit {
            let message = format!("partition {} takes jobs of at most {shown}", partition.name);
            findings.push(wrong("time", text, message).nearest([shown]));
        }
    } else if site.time.is_none() && limit < USUAL_MINUTES {
        findings.push(info(
            "time",
            &shown,
            format!("partition {} takes jobs of at most {shown}", partition.name),
        ));
        site.time = Some(shown);
    } else if site.time.is_none() {
        findings.push(info(
            "time",
            "",
            format!("partition {} takes jobs of at most {shown}", partition.name),
        ));
    }
}

fn gpus(partition: &Partition, site: &mut Site, findings: &mut Vec<Finding>) {
    let kinds: Vec<&str> =
        partition.gpus.iter().map(|(kind, _)| kind.as_str()).filter(|kind| !kind.is_empty()).collect();
    // Nodes of a cloud that are off are not shown.
    if partition.nodes == 0 {
        let message =
            format!("Slurm shows no nodes of partition {} now, so its GPUs are not known", partition.name);
        findings.push(info("gpus", site.gpus.name(), message));
        return;
    }
    if partition.gpus.is_empty() {
        if site.gpus != GpuRequest::Nothing {
            let message = format!(
                "Slurm counts no GPUs in partition {}, so asking for some is refused: gpus = \"none\" takes whole nodes",
                partition.name
            );
            findings.push(Finding::warning("site.gpus", site.gpus.name(), message));
            site.gpus = GpuRequest::Nothing;
        }
        return;
    }
    let list: Vec<String> = partition
        .gpus
        .iter()
        .map(|(kind, count)| if kind.is_empty() { count.to_string() } else { format!("{count} {kind}") })
        .collect();
    findings.push(info(
        "gpus",
        site.gpus.name(),
        format!("GPUs of a node in partition {}: {}", partition.name, list.join(" or ")),
    ));
    match &site.gpu_type {
        Some(named) if !kinds.contains(&named.as_str()) => {
            let message = if kinds.is_empty() {
                format!("Slurm knows no types of GPUs in partition {}; leave gpu_type out", partition.name)
            } else {
                format!(
                    "partition {} has no GPUs of type {named}; it has: {}",
                    partition.name,
                    kinds.join(", ")
                )
            };
            findings.push(wrong("gpu_type", named, message));
        }
        Some(_) => {}
        // Among several types a job would get any.
        None if kinds.len() > 1 => {
            let message = format!(
                "partition {} has several types of GPUs ({}); name one",
                partition.name,
                kinds.join(", ")
            );
            findings.push(Finding::warning("site.gpu_type", "", message));
        }
        None => {}
    }
}

fn container(cluster: &Cluster, site: &mut Site, findings: &mut Vec<Finding>) {
    match (site.container, cluster.pyxis) {
        (Some(Container::Pyxis), Some(false)) => findings.push(wrong(
            "container",
            "pyxis",
            "srun does not know --container-image here, so there is no pyxis".to_owned(),
        )),
        (Some(Container::Apptainer), _) if !cluster.apptainer => findings.push(Finding::warning(
            "site.container",
            "apptainer",
            "apptainer is not on PATH here; the nodes may have it, perhaps by a module",
        )),
        (None, Some(true)) => {
            findings.push(info("container", "pyxis", "srun runs container images (pyxis)".to_owned()));
            site.container = site.image.is_some().then_some(Container::Pyxis);
        }
        (None, Some(false)) => {
            let (kind, words) = if cluster.apptainer {
                (Container::Apptainer, "srun runs no container images, and apptainer is there")
            } else {
                (
                    Container::None,
                    "srun runs no container images, and there is no apptainer: programs run on the nodes",
                )
            };
            findings.push(info("container", kind.name(), words.to_owned()));
            site.container = Some(kind);
        }
        _ => {}
    }
    if let Some(image) =
        site.image.as_deref().filter(|image| image.starts_with('/') && !Path::new(image).is_file())
    {
        findings.push(wrong("image", image, "there is no such image here".to_owned()));
    }
}

fn plugins(cluster: &Cluster, site: &mut Site, findings: &mut Vec<Finding>) {
    if cluster.segment == Some(false) && site.segment.is_none() {
        findings.push(info("segment", "false", "sbatch knows no --segment here".to_owned()));
        site.segment = Some(false);
    }
    let Some(known) = &cluster.mpi else { return };
    match site.mpi.as_deref() {
        None if known.iter().any(|plugin| plugin == "pmix") => {}
        None => {
            let message = format!(
                "srun has no MPI plugin pmix here, and needs none for torch; it has: {}",
                known.join(", ")
            );
            findings.push(info("mpi", "none", message));
            site.mpi = Some("none".to_owned());
        }
        Some(named) if named != "none" && !known.iter().any(|plugin| plugin == named) => {
            let message = format!("srun has no MPI plugin {named} here; it has: {}", known.join(", "));
            findings.push(wrong("mpi", named, message));
        }
        Some(_) => {}
    }
}

fn folders(cluster: &Cluster, site: &mut Site, findings: &mut Vec<Finding>) {
    match site.shared_dir.as_deref() {
        Some(named) => {
            let folder = Path::new(named);
            if !folder.is_dir() {
                findings.push(wrong("shared_dir", named, "there is no such folder here".to_owned()));
            } else if !is_writable(folder) {
                findings.push(wrong("shared_dir", named, "you may not write into this folder".to_owned()));
            } else if !is_shared(folder) {
                let message = "this folder's filesystem does not look like one that all nodes see; compare `findmnt -T` on a node";
                findings.push(Finding::warning("site.shared_dir", named, message));
            }
        }
        None => match cluster.shared.first().and_then(|folder| folder.to_str()) {
            Some(folder) => {
                let all: Vec<String> =
                    cluster.shared.iter().map(|folder| folder.display().to_string()).collect();
                let message = format!(
                    "folders on filesystems of several machines that you may write to: {}",
                    all.join(", ")
                );
                findings.push(info("shared_dir", folder, message));
                site.shared_dir = Some(folder.to_owned());
            }
            None => findings.push(Finding::warning(
                "site.shared_dir",
                "",
                "no folder that all nodes see was found by SCRATCH, WORK, HOME and the like; name one",
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        let text = "cpu*|up|1:00:00|4|64|(null)\nh100|up|2-00:00:00|16|96|gpu:h100:8(S:0-1)\nold|down|infinite|2|40|gpu:v100:4\nmixed|up|10:00|2|40|gpu:a:4,gpu:b:4\n";
        let account = |name: &str| Account { name: name.to_owned(), partition: String::new() };
        Cluster {
            partitions: Some(cluster::partitions(text)),
            accounts: Some(vec![account("team"), account("other")]),
            default_account: Some("team".to_owned()),
            pyxis: Some(true),
            segment: Some(false),
            mpi: Some(vec!["none".to_owned(), "pmi2".to_owned()]),
            ..Cluster::default()
        }
    }

    fn errors(site: Site) -> Vec<String> {
        let (_, findings) = judge(&cluster(), site);
        findings
            .into_iter()
            .filter(|one| one.severity == planner::Severity::Error)
            .map(|one| one.field)
            .collect()
    }

    #[test]
    fn what_the_cluster_says_fills_what_the_site_does_not() {
        let (site, findings) = judge(&cluster(), Site::default());
        assert_eq!((site.partition.as_deref(), site.account.as_deref()), (Some("h100"), Some("team")));
        assert_eq!(
            (site.mpi.as_deref(), site.segment, site.gpus),
            (Some("none"), Some(false), GpuRequest::GpusPerNode)
        );
        assert!(!planner::finding::has_error(&findings), "{findings:?}");
        // It is a site's file like any other.
        let read: Site = toml::from_str(&batch::launch::site_toml(&site)).expect("a site file");
        assert_eq!(read, site);
        let (site, _) = judge(&cluster(), Site { partition: Some("mixed".into()), ..Site::default() });
        assert_eq!(site.time.as_deref(), Some("0-00:10:00"));
    }

    #[test]
    fn values_that_the_cluster_refuses() {
        assert_eq!(errors(Site { partition: Some("h10".into()), ..Site::default() }), ["site.partition"]);
        assert_eq!(errors(Site { account: Some("theirs".into()), ..Site::default() }), ["site.account"]);
        assert_eq!(errors(Site { time: Some("3-00:00:00".into()), ..Site::default() }), ["site.time"]);
        assert_eq!(errors(Site { gpu_type: Some("a100".into()), ..Site::default() }), ["site.gpu_type"]);
        assert_eq!(errors(Site { mpi: Some("pmix".into()), ..Site::default() }), ["site.mpi"]);
        assert_eq!(
            errors(Site { shared_dir: Some("/no/such".into()), ..Site::default() }),
            ["site.shared_dir"]
        );
        assert_eq!(errors(Site { image: Some("/no/such.sqsh".into()), ..Site::default() }), ["site.image"]);
        assert_eq!(
            errors(Site {
                time: Some("2-00:00:00".into()),
                account: Some("other".into()),
                ..Site::default()
            }),
            [""; 0]
        );
    }

    #[test]
    fn a_machine_without_slurm_says_only_what_is_missing() {
        let nothing = Cluster { missing: vec!["sinfo is not on PATH".to_owned()], ..Cluster::default() };
        let given = Site { shared_dir: Some("/tmp".into()), ..Site::default() };
        let (site, findings) = judge(&nothing, given.clone());
        assert_eq!(site, given);
        assert!(findings.iter().any(|finding| finding.message.contains("sinfo")), "{findings:?}");
    }
}
