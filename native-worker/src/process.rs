//! Naming a process so that a later one with the same number is not mistaken for it.

use std::path::Path;

use planner::wire::ProcessId;

/// Whether a process named in a run folder still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It runs on this machine.
    Alive,
    /// It has ended.
    Gone,
    /// It was started on another machine, whose processes can't be seen from here.
    Elsewhere,
}

/// This process.
pub fn current() -> ProcessId {
    let pid = std::process::id();
    ProcessId { pid, start_ticks: stat(pid).map_or(0, |stat| stat.start_ticks), boot_id: boot_id() }
}

/// Whether `process`, started on `host`, still runs.
pub fn liveness(process: &ProcessId, host: &str) -> Liveness {
    if !is_of_this_boot(process) {
        return if host == host_name() { Liveness::Gone } else { Liveness::Elsewhere };
    }
    match stat(process.pid) {
        Some(stat) if stat.start_ticks == process.start_ticks && stat.is_at_work() => Liveness::Alive,
        _ => Liveness::Gone,
    }
}

/// Whether `process` was started since this machine was, so that its number may mean something here.
pub fn is_of_this_boot(process: &ProcessId) -> bool {
    process.boot_id == boot_id()
}

/// When a process was started, in clock ticks since boot.
pub fn start_ticks(pid: u32) -> Option<u64> {
    Some(stat(pid)?.start_ticks)
}

/// Whether the process of this number is at work.
pub fn is_at_work(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.is_at_work())
}

/// Name of this machine.
pub fn host_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Name of the user, or its number where the system knows no name.
pub fn user_name() -> String {
    let uid = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    user.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

/// When a process was started, in seconds since 1970.
pub fn started_unix(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let booted: u64 = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    Some(booted + stat(pid)?.start_ticks / u64::try_from(ticks).ok()?.max(1))
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

struct Stat {
    state: char,
    start_ticks: u64,
}

impl Stat {
    /// Not so for a zombie: it has ended, only its parent has not asked yet.
    fn is_at_work(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?)
}

/// Fields 3 and 22 of `/proc/PID/stat`. The command's name (field 2) may hold spaces and brackets.
fn parse_stat(text: &str) -> Option<Stat> {
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some(Stat { state, start_ticks: fields.nth(18)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn this_process_is_alive_and_a_later_one_with_its_number_is_not_it() {
        let me = current();
        assert_eq!(liveness(&me, &host_name()), Liveness::Alive);
        let later = ProcessId { start_ticks: me.start_ticks + 1, ..me.clone() };
        assert_eq!(liveness(&later, &host_name()), Liveness::Gone);
        let before_reboot = ProcessId { boot_id: "other".to_owned(), ..me.clone() };
        assert_eq!(liveness(&before_reboot, &host_name()), Liveness::Gone);
        assert_eq!(liveness(&before_reboot, "another-host"), Liveness::Elsewhere);
    }

    #[test]
    fn a_process_that_has_ended_is_not_at_work_though_nobody_has_asked_about_it() {
        assert!(is_at_work(std::process::id()));
        let mut ended = std::process::Command::new("true").spawn().expect("true runs");
        let until = Instant::now() + Duration::from_secs(30);
        while is_at_work(ended.id()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!is_at_work(ended.id()));
        assert!(ended.wait().expect("it has ended").success());
    }

    #[test]
    fn a_name_with_brackets_and_spaces() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let stat = parse_stat(line).expect("a stat line");
        assert_eq!((stat.state, stat.start_ticks), ('S', 4242));
    }
}
