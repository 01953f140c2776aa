//! The host at a moment, from /proc.

use planner::wire::HostSample;

/// Processes of a tree that are looked at.
const MOST_PROCESSES: usize = 4096;

/// Load and memory of this host, and what the process `root` and everything below it use.
pub fn sample(host: &str, root: u32) -> HostSample {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let tree = Tree::of(root);
    HostSample {
        host: host.to_owned(),
        load_1m: std::fs::read_to_string("/proc/loadavg").ok().as_deref().and_then(load),
        memory_total_bytes: kibibytes(&memory, "MemTotal:"),
        memory_available_bytes: kibibytes(&memory, "MemAvailable:"),
        tree_resident_bytes: Some(
            tree.resident_pages.saturating_mul(setting(nix::unistd::SysconfVar::PAGE_SIZE, 4096)),
        ),
        tree_processes: Some(tree.processes),
        tree_cpu_seconds: Some(tree.ticks as f64 / setting(nix::unistd::SysconfVar::CLK_TCK, 100) as f64),
    }
}

fn setting(which: nix::unistd::SysconfVar, usual: u64) -> u64 {
    nix::unistd::sysconf(which)
        .ok()
        .flatten()
        .and_then(|value| u64::try_from(value).ok())
        .unwrap_or(usual)
        .max(1)
}

fn load(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// A line such as `MemTotal:  131072 kB` in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What a process and its descendants use.
#[derive(Debug, Default)]
struct Tree {
    processes: u64,
    resident_pages: u64,
    ticks: u64,
}

impl Tree {
    fn of(root: u32) -> Tree {
        let mut tree = Tree::default();
        let mut waiting = vec![root];
        let mut seen = 0;
        while let Some(process) = waiting.pop() {
            seen += 1;
            if seen > MOST_PROCESSES {
                break;
            }
            tree.add(process);
            waiting.extend(children(process));
        }
        tree
    }

    fn add(&mut self, process: u32) {
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
        let Some(pages) = read("statm").split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok())
        else {
            return;
        };
        self.processes += 1;
        self.resident_pages = self.resident_pages.saturating_add(pages);
        self.ticks = self.ticks.saturating_add(cpu_ticks(&read("stat")).unwrap_or(0));
    }
}

/// Fields 14 to 17 of `/proc/PID/stat`: its own time and that of children it has waited for.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    fields.skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum()
}

/// Children of all threads of a process, where the kernel lists them.
fn children(process: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    threads
        .flatten()
        .take(MOST_PROCESSES)
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace().filter_map(|number| number.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_its_child_are_counted() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().expect("sleep runs");
        let found = sample("here", std::process::id());
        assert!(found.tree_processes.is_some_and(|count| count >= 2), "{found:?}");
        assert!(found.tree_resident_bytes.is_some_and(|bytes| bytes > 1 << 20), "{found:?}");
        assert!(
            found.memory_available_bytes <= found.memory_total_bytes && found.load_1m.is_some(),
            "{found:?}"
        );
        child.kill().and_then(|()| child.wait()).expect("ended");
    }

    #[test]
    fn lines_of_proc() {
        assert_eq!(kibibytes("MemTotal:       1024 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(1 << 20));
        assert_eq!(kibibytes("MemTotal: x\n", "MemTotal:"), None);
        assert_eq!(load("0.52 0.58 0.59 1/467 12345\n"), Some(0.52));
        assert_eq!(cpu_ticks("7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 10 20 3 4 20 0"), Some(37));
        assert_eq!(cpu_ticks("7"), None);
    }
}
