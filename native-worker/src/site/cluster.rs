//! What Slurm's programs print, read.

use std::path::PathBuf;

use serde::Serialize;

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Partition {
    /// Its name.
    pub name: String,
    /// Whether jobs go there that name none.
    pub is_default: bool,
    /// Whether it takes jobs.
    pub is_up: bool,
    /// The longest time limit, in minutes; none where there is none.
    pub limit_minutes: Option<u64>,
    /// Nodes.
    pub nodes: u64,
    /// Cores of the smallest node.
    pub cores: u64,
    /// GPUs of a node, by the type that Slurm has for them; the type may be empty.
    pub gpus: Vec<(String, u64)>,
}

/// An account that jobs may be charged to, and the partition that it is for; empty for all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// The only partition that it is for.
    pub partition: String,
}

/// What a cluster says of itself. What could not be asked has a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Cluster {
    /// Its name.
    pub name: Option<String>,
    /// Slurm's version.
    pub version: Option<String>,
    /// Partitions, in the order in which Slurm lists them.
    pub partitions: Option<Vec<Partition>>,
    /// Accounts of this user; none where accounting does not say.
    pub accounts: Option<Vec<Account>>,
    /// The account of jobs that name none.
    pub default_account: Option<String>,
    /// Whether srun runs container images.
    pub pyxis: Option<bool>,
    /// Whether sbatch asks for nodes of one block.
    pub segment: Option<bool>,
    /// MPI plugins of srun.
    pub mpi: Option<Vec<String>>,
    /// Whether apptainer is there.
    pub apptainer: bool,
    /// Folders that all nodes see, and this user may write to.
    #[serde(serialize_with = "crate::report::paths")]
    pub shared: Vec<PathBuf>,
    /// What could not be asked, as sentences.
    pub missing: Vec<String>,
}

/// Partitions of `sinfo --noheader --format=%P|%a|%l|%D|%c|%G`: a line for each kind of node.
pub fn partitions(text: &str) -> Vec<Partition> {
    let mut found: Vec<Partition> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, state, limit, nodes, cores, gres] = fields[..] else { continue };
        let (bare, is_default) = (name.trim_end_matches('*'), name.ends_with('*'));
        if bare.is_empty() {
            continue;
        }
        let least = cores.trim_end_matches('+').parse().unwrap_or(0);
        let at = found.iter().position(|partition| partition.name == bare).unwrap_or_else(|| {
            found.push(Partition { name: bare.to_owned(), cores: least, ..Partition::default() });
            found.len() - 1
        });
        let partition = &mut found[at];
        partition.is_default |= is_default;
        partition.is_up |= state == "up";
        partition.limit_minutes = minutes(limit);
        partition.nodes += nodes.parse::<u64>().unwrap_or(0);
        partition.cores = partition.cores.min(least);
        for gpu in gpus(gres) {
            if !partition.gpus.contains(&gpu) {
                partition.gpus.push(gpu);
            }
        }
    }
    found
}

/// GPUs of a list of resources, such as `gpu:h100:8(S:0-1),nvme:1`.
fn gpus(gres: &str) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    // Commas in parentheses are of sockets.
    let mut depth = 0;
    let parts = gres.split(|character| {
        depth += i32::from(character == '(') - i32::from(character == ')');
        character == ',' && depth == 0
    });
    for part in parts {
        let bare = part.split('(').next().unwrap_or_default();
        let fields: Vec<&str> = bare.split(':').collect();
        let gpu = match fields[..] {
            ["gpu", count] => count.parse().ok().map(|count| (String::new(), count)),
            ["gpu", kind, count] => count.parse().ok().map(|count| (kind.to_owned(), count)),
            _ => None,
        };
        found.extend(gpu.filter(|(_, count)| *count > 0));
    }
    found
}

/// Minutes of a time limit as Slurm prints it, `2-00:00:00` or `30:00`; none for `infinite` and what can't be read.
pub fn minutes(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let (hours, minutes) = match (parts.as_slice(), text.contains('-')) {
        ([hours, minutes, _], _) => (*hours, *minutes),
        ([hours, minutes], true) => (*hours, *minutes),
        ([hours], true) => (*hours, 0),
        ([minutes, _], false) | ([minutes], false) => (0, *minutes),
        _ => return None,
    };
    days.checked_mul(1440)?.checked_add(hours.checked_mul(60)?)?.checked_add(minutes)
}

/// Accounts of `sacctmgr -nP show assoc where user=NAME format=account,partition`.
pub fn accounts(text: &str) -> Vec<Account> {
    let mut found = Vec::new();
    for line in text.lines() {
        let (name, partition) = line.split_once('|').unwrap_or((line, ""));
        let account = Account { name: name.trim().to_owned(), partition: partition.trim().to_owned() };
        if !account.name.is_empty() && !found.contains(&account) {
            found.push(account);
        }
    }
    found
}

/// A value of `scontrol show config`.
pub fn setting(config: &str, name: &str) -> Option<String> {
    let pairs = config.lines().filter_map(|line| line.split_once('='));
    let value = pairs.into_iter().find(|(key, _)| key.trim() == name)?.1.trim().to_owned();
    (!value.is_empty() && value != "(null)").then_some(value)
}

/// Plugins of `srun --mpi=list`.
pub fn plugins(text: &str) -> Vec<String> {
    let names = text.lines().skip_while(|line| !line.contains(':')).skip(1);
    let plain = |name: &&str| !name.is_empty() && !name.contains([' ', ':']);
    names.map(str::trim).filter(plain).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_several_kinds_of_nodes() {
        let text = "batch*|up|2-00:00:00|16|96|gpu:h100:8(S:0-1),nvme:1\nbatch*|up|2-00:00:00|2|64+|gpu:a100:4(S:0,1)\ncpu|down|infinite|3|128|(null)\nodd line\n";
        let found = partitions(text);
        assert_eq!(found.len(), 2);
        let batch = &found[0];
        assert_eq!(
            (batch.name.as_str(), batch.is_default, batch.is_up, batch.nodes, batch.cores),
            ("batch", true, true, 18, 64)
        );
        assert_eq!(batch.limit_minutes, Some(2880));
        assert_eq!(batch.gpus, [("h100".to_owned(), 8), ("a100".to_owned(), 4)]);
        assert_eq!((found[1].limit_minutes, found[1].is_up, found[1].gpus.len()), (None, false, 0));
        assert_eq!(gpus("gpu:2"), [(String::new(), 2)]);
        assert_eq!(gpus("gpu:0,craynetwork:4"), []);
    }

    #[test]
    fn times_as_slurm_prints_them() {
        for (text, expected) in [
            ("30:00", Some(30)),
            ("4:00:00", Some(240)),
            ("1-12:00:00", Some(2160)),
            ("1-12", Some(2160)),
            ("infinite", None),
            ("", None),
            ("99999999999999999999-0", None),
            ("18446744073709551615-0", None),
        ] {
            assert_eq!(minutes(text), expected, "{text}");
        }
    }

    #[test]
    fn what_else_is_printed() {
        assert_eq!(accounts("team|\nteam|\nother|long\n|\n").len(), 2);
        assert_eq!(
            setting("Configuration data\nClusterName             = c1\nX = (null)\n", "ClusterName")
                .as_deref(),
            Some("c1")
        );
        assert_eq!(setting("X = (null)\n", "X"), None);
        assert_eq!(plugins("MPI plugin types are...\n\tnone\n\tpmi2\n"), Vec::<String>::new());
        assert_eq!(plugins("srun: MPI types are:\nsrun: none\n\tpmix\n\tpmix_v4\n"), ["pmix", "pmix_v4"]);
    }
}
