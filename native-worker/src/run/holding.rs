//! Processes of a run that may be signalled. What a run's folder says is checked against what is running first: the
//! folder may be a copy, from another machine or an earlier boot, or say what is not so.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use planner::run::RunRecord;
use planner::wire::{ProcessId, RunInfo};
use run_folder::{LogWriter, RunFolder};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::process::{Liveness, is_of_this_boot, liveness, start_ticks};

/// A process of this user, held so that no later one with its number is meant.
#[derive(Debug)]
pub struct Held {
    pid: Pid,
    /// None on kernels before 5.3, which have no such handles.
    handle: Option<OwnedFd>,
}

impl Held {
    /// Holds a process; none when it has ended or is another user's.
    fn take(pid: u32) -> Option<Held> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => Some(handle),
            Err(Errno::NOSYS) => None,
            Err(_) => return None,
        };
        let owner = std::fs::metadata(proc(pid)).ok()?.uid();
        (owner == nix::unistd::geteuid().as_raw()).then_some(Held { pid, handle })
    }

    /// Tells it to end. One that has ended is no error.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        let _ = match &self.handle {
            Some(handle) => pidfd_send_signal(handle, signal),
            None => kill_process(self.pid, signal),
        };
    }
}

fn proc(pid: Pid) -> PathBuf {
    Path::new("/proc").join(pid.as_raw_nonzero().to_string())
}

/// The process that started a run's ranks.
#[derive(Debug)]
pub enum Launcher {
    /// It runs here, and writes this run's log.
    Lives(Held),
    /// It has ended.
    Gone,
    /// It was started on another machine.
    Elsewhere,
}

/// Finds the launcher that `run.json` names.
///
/// # Errors
/// A sentence when others can have written it, or the process that it names is not this run's.
pub fn launcher(folder: &RunFolder, info: &RunInfo, named: &ProcessId) -> Result<Launcher, String> {
    run_folder::check_written_by_us(&folder.info_path()).map_err(|error| error.to_string())?;
    match liveness(named, &info.host) {
        Liveness::Alive => {}
        Liveness::Gone => return Ok(Launcher::Gone),
        Liveness::Elsewhere => return Ok(Launcher::Elsewhere),
    }
    let held = Held::take(named.pid);
    // Asked again, now that the number can't pass to another.
    if liveness(named, &info.host) != Liveness::Alive {
        return Ok(Launcher::Gone);
    }
    match held.filter(|held| writes_log_of(held.pid, folder)) {
        Some(held) => Ok(Launcher::Lives(held)),
        None => Err(format!(
            "process {} runs, but is not the launcher of this run, whose log it does not write: is {} a copy?",
            named.pid,
            folder.path().display()
        )),
    }
}

/// Whether a process has a launcher's log of this very folder open: one of a copy is another file.
fn writes_log_of(pid: Pid, folder: &RunFolder) -> bool {
    let number = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let logs: Vec<(u64, u64)> = folder
        .launcher_logs()
        .iter()
        .filter_map(|log| std::fs::symlink_metadata(log).ok().map(number))
        .collect();
    let Ok(open) = std::fs::read_dir(proc(pid).join("fd")) else { return false };
    open.flatten()
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        .any(|meta| logs.contains(&number(meta)))
}

/// Ranks whose launcher is gone: processes of this user that were started after it, as it starts ranks of this folder.
pub fn orphans(folder: &RunFolder, launcher: &ProcessId) -> Vec<Held> {
    if !is_of_this_boot(launcher) {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|&pid| is_rank_of(pid, folder))
        .filter_map(Held::take)
        // Asked again of the one that is held.
        .filter(|held| {
            let pid = held.pid.as_raw_nonzero().get().unsigned_abs();
            is_rank_of(pid, folder) && start_ticks(pid).is_some_and(|started| started >= launcher.start_ticks)
        })
        .collect()
}

/// The process of a rank, as the launcher's log has it of its latest start; none where that has ended, or is not found to be this rank of this folder.
pub fn rank(folder: &RunFolder, launcher: &ProcessId, host: &str, rank: u64) -> Option<Held> {
    let pid = of_launcher(folder, host).ranks.get(&rank)?.pid?;
    let is_it = || {
        is_rank_of(pid, folder)
            && has_variable(pid, format!("RANK={rank}").as_bytes())
            && start_ticks(pid).is_some_and(|started| started >= launcher.start_ticks)
    };
    // Asked of the one that is held, whose number can't pass to another.
    Held::take(pid).filter(|_| is_of_this_boot(launcher) && is_it())
}

/// What the launcher on this host has recorded.
pub fn of_launcher(folder: &RunFolder, host: &str) -> RunRecord {
    folder.record_of(&[LogWriter::Launcher(host).log()])
}

/// Whether a process was told a variable by this text.
fn has_variable(pid: u32, wanted: &[u8]) -> bool {
    std::fs::read(Path::new("/proc").join(pid.to_string()).join("environ"))
        .is_ok_and(|text| text.split(|&byte| byte == 0).any(|variable| variable == wanted))
}

/// Whether a process was started with the words that name a rank's plan and folder, and is told its rank.
fn is_rank_of(pid: u32, folder: &RunFolder) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    let Ok(line) = std::fs::read(process.join("cmdline")) else { return false };
    let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
    let (plan, path) = (folder.plan_path(), folder.path().as_os_str().as_encoded_bytes());
    let wanted: [&[u8]; 4] = [b"--plan", plan.as_os_str().as_encoded_bytes(), b"--run-dir", path];
    words.windows(4).any(|found| found == wanted)
        && std::fs::read(process.join("environ"))
            .is_ok_and(|text| text.split(|&byte| byte == 0).any(|variable| variable.starts_with(b"RANK=")))
}

#[cfg(test)]
mod tests {
    use planner::wire::{Event, Exited, GoingOn};
    use run_folder::Log;

    use super::*;
    use crate::process::{current, host_name};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    /// Ends a process when the test does.
    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl Ended {
        fn start(command: &mut Command) -> Ended {
            Ended(command.spawn().expect("started"))
        }

        fn id(&self) -> ProcessId {
            let pid = self.0.id();
            ProcessId { pid, start_ticks: start_ticks(pid).expect("running"), ..current() }
        }

        fn ends(&mut self) -> bool {
            let over = || self.0.try_wait().expect("asked").is_some();
            std::iter::repeat_with(over).take(100).any(|over| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                over
            })
        }
    }

    fn sleeper() -> Command {
        let mut command = Command::new("sleep");
        command.arg("60");
        command
    }

    fn info(id: &str, launcher: ProcessId) -> RunInfo {
        RunInfo {
            version: 1,
            id: id.to_owned(),
            name: "tiny".to_owned(),
            user: "user".to_owned(),
            host: host_name(),
            started_unix_ms: 1,
            command: Vec::new(),
            versions: [].into(),
            launcher: Some(launcher),
            slurm_job: None,
            slurm_cluster: None,
            world_size: 1,
            attempts: 1,
            going_on: GoingOn::STOP,
            source: None,
        }
    }

    /// A run that this process has launched.
    fn own() -> (tempfile::TempDir, RunFolder, Log, RunInfo) {
        let runs = tempfile::tempdir().expect("a folder");
        let folder = RunFolder::create(runs.path(), "one").expect("a run folder");
        let log = Log::open(&folder.path().join("launcher-here.log")).expect("a log");
        let info = info("one", current());
        folder.write_info(&info).expect("written");
        (runs, folder, log, info)
    }

    fn found(folder: &RunFolder, info: &RunInfo) -> Result<Launcher, String> {
        launcher(folder, info, info.launcher.as_ref().expect("a launcher"))
    }

    #[test]
    fn the_launcher_that_writes_this_log_is_found_and_no_other() {
        let (runs, folder, log, info) = own();
        assert!(matches!(found(&folder, &info), Ok(Launcher::Lives(_))));
        // A copy names the same process.
        let copy = RunFolder::create(runs.path(), "two").expect("a run folder");
        copy.write_info(&info).expect("written");
        std::fs::copy(folder.path().join("launcher-here.log"), copy.path().join("launcher-here.log"))
            .expect("copied");
        assert!(found(&copy, &info).expect_err("refused").contains("a copy?"));
        // A forged one names somebody else.
        let other = Ended::start(&mut sleeper());
        let forged = RunInfo { launcher: Some(other.id()), ..info.clone() };
        folder.write_info(&forged).expect("written");
        assert!(found(&folder, &forged).expect_err("refused").contains("is not the launcher of this run"));
        // So does one whose launcher has ended and whose number another has now.
        let me = current();
        let later = ProcessId { start_ticks: me.start_ticks + 1, ..me.clone() };
        assert!(matches!(
            found(&folder, &RunInfo { launcher: Some(later), ..info.clone() }),
            Ok(Launcher::Gone)
        ));
        let elsewhere = RunInfo {
            launcher: Some(ProcessId { boot_id: "b".into(), ..me }),
            host: "x".into(),
            ..info.clone()
        };
        assert!(matches!(found(&folder, &elsewhere), Ok(Launcher::Elsewhere)));
        drop(log);
        assert!(found(&folder, &info).is_err(), "nobody writes the log");
    }

    #[test]
    fn what_others_can_have_written_names_no_process() {
        let (_runs, folder, _log, info) = own();
        let file = folder.info_path();
        for (path, bad, good) in [(file.as_path(), 0o622, 0o600), (folder.path(), 0o777, 0o700)] {
            let set =
                |mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
            set(bad);
            assert!(found(&folder, &info).expect_err("refused").contains("others may write into"));
            set(good);
            assert!(found(&folder, &info).is_ok());
        }
    }

    #[test]
    fn a_held_process_is_told_to_end() {
        let mut process = Ended::start(&mut sleeper());
        Held::take(process.0.id()).expect("held").terminate();
        assert!(process.ends());
        assert!(Held::take(process.0.id()).is_none(), "it has ended");
    }

    /// A process that looks like a rank of a folder, and waits until its input ends.
    fn pretended(of: &RunFolder, rank: Option<&str>) -> Ended {
        let mut command = Command::new("sh");
        command.args(["-c", "read line", "shardplan-rank", "--plan"]).arg(of.plan_path());
        command.arg("--run-dir").arg(of.path()).stdin(std::process::Stdio::piped());
        command.envs(rank.map(|rank| ("RANK", rank)));
        Ended::start(&mut command)
    }

    #[test]
    fn a_rank_is_the_process_that_the_launcher_recorded_of_its_latest_start() {
        let (runs, folder, log, info) = own();
        let named = info.launcher.expect("a launcher");
        let other = RunFolder::create(runs.path(), "two").expect("a run folder");
        let (mut one, two) = (pretended(&folder, Some("1")), pretended(&folder, Some("2")));
        let (elsewhere, editor) = (pretended(&other, Some("4")), Ended::start(&mut sleeper()));
        let tells = |rank, pid| log.append(Event::Started { rank, pid });
        let asked = |rank| super::rank(&folder, &named, "here", rank);
        // What shell and log have done by then is waited for.
        let known = |rank| {
            (0..100).find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                asked(rank)
            })
        };
        assert!(asked(1).is_none(), "the launcher has recorded no start");
        tells(1, one.0.id());
        let held = known(1).expect("rank 1");
        // The numbers of other ranks, of another run and of what is none name nothing.
        for (rank, process) in [(3, &two), (4, &elsewhere), (5, &editor)] {
            tells(rank, process.0.id());
        }
        tells(2, two.0.id());
        assert!(known(2).is_some());
        for rank in [0, 3, 4, 5, u64::MAX] {
            assert!(asked(rank).is_none(), "{rank}");
        }
        assert!(super::rank(&folder, &named, "there", 2).is_none());
        let earlier = ProcessId { boot_id: "earlier".into(), ..named.clone() };
        assert!(super::rank(&folder, &earlier, "here", 2).is_none());
        held.kill();
        assert!(one.ends());
        assert!(asked(1).is_none(), "it has ended");
        log.append(Event::Exited(Exited { rank: 2, signal: Some(9), ..Exited::default() }));
        let gone = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            asked(2).is_none()
        });
        assert!(gone, "the launcher has recorded its end");
    }

    #[test]
    fn orphans_are_ranks_of_this_folder_and_of_this_boot() {
        let (runs, folder, _log, info) = own();
        let named = info.launcher.expect("a launcher");
        let start = |of: &RunFolder, rank: bool| pretended(of, rank.then_some("0"));
        let other = RunFolder::create(runs.path(), "two").expect("a run folder");
        let (rank, _not_told, _others) = (start(&folder, true), start(&folder, false), start(&other, true));
        // Only names the folder, as an editor or a search would.
        let _looks = Ended::start(sleeper().arg0("--run-dir").arg("1").env("RANK", folder.path()));
        let is_rank = |held: &Held| held.pid.as_raw_nonzero().get().unsigned_abs() == rank.0.id();
        let all = (0..100).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            Some(orphans(&folder, &named)).filter(|found| !found.is_empty())
        });
        let all = all.expect("the rank");
        assert!(all.len() == 1 && is_rank(&all[0]), "{all:?}");
        assert!(orphans(&folder, &ProcessId { boot_id: "earlier".into(), ..named.clone() }).is_empty());
        assert!(orphans(&folder, &ProcessId { start_ticks: u64::MAX, ..named }).is_empty());
    }
}
