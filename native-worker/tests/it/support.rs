//! A folder to work in, a fake rank, a fake Python, and ways to run `shardplan` and read what it left.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use planner::wire::{Event, Outcome, Record, Step, encode_record};
use run_folder::{INFO, RunFolder};

/// A plan of four ranks that any machine holds.
pub const TINY: &str = r#"{"version": 1, "name": "tiny", "model": {"preset": "tiny-dense"},
    "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 4}, "layout": {"tp": 2},
    "training": {"seq_len": 32, "global_batch_size": 4, "dtype": "fp32"}, "run": {"steps": 3}}"#;

/// A rank that does what `$FAKE` says, with RANK and RUN_DIR at hand. `finish OUTCOME` appends prepared records.
const FAKE_RANK: &str = r#"#!/bin/bash
if [ "$1" = --version ]; then printf 'shardplan-rank 0.1.0\ntorch 2.11.0\n'; exit 0; fi
[ "$1" = --plan ] && [ "$3" = --run-dir ] || { echo "unexpected arguments: $*" >&2; exit 2; }
RUN_DIR="$4"
LOG="$RUN_DIR/$(printf 'rank-%05d.log' "$RANK")"
finish() { cat "$FAKE_LOGS/$1" >> "$LOG"; }
eval "$FAKE"
"#;

/// A folder with everything that a run needs.
pub struct Workshop {
    folder: tempfile::TempDir,
}

impl Workshop {
    pub fn new() -> Self {
        let shop = Workshop { folder: tempfile::tempdir().expect("a folder") };
        shop.program("fake-rank", FAKE_RANK);
        shop.python("2.11.0+cpu");
        shop.write("tiny.json", TINY);
        for (name, outcome) in [("completed", Outcome::Completed), ("stopped", Outcome::Stopped)] {
            let end = Event::Ended { outcome, reason: format!("{name} by the fake") };
            shop.write(name, &log(&[step(1), step(2), step(3), end]));
        }
        shop
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("a folder");
        }
        std::fs::write(&path, text).expect("a file");
        path
    }

    pub fn program(&self, name: &str, text: &str) {
        let path = self.write(name, text);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    /// A Python that says it has this torch; none for an empty version.
    pub fn python(&self, torch: &str) {
        let answer = if torch.is_empty() {
            "exit 7".to_owned()
        } else {
            format!("printf '%s\\n\\n/no/lib\\n' '{torch}'")
        };
        self.program("fake-python", &format!("#!/bin/sh\n{answer}\n"));
    }

    /// `shardplan` in this folder, with the fakes.
    pub fn shardplan(&self) -> Command {
        // Whoever runs the tests may ignore hang-ups and interrupts, which all children would inherit.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP,INT").arg(env!("CARGO_BIN_EXE_shardplan"));
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        command
            .env("PATH", path)
            .current_dir(self.folder.path())
            .env("SHARDPLAN_RANK", self.path("fake-rank"))
            .env("SHARDPLAN_TORCH", self.path("fake-python"))
            .env("FAKE_LOGS", self.folder.path())
            .env("FAKE", "finish completed")
            .env_remove("SHARDPLAN_RUNS")
            .env_remove("SHARDPLAN_UV")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs `shardplan` with these arguments.
    pub fn ask(&self, arguments: &[&str]) -> Answer {
        Answer::soon(self.shardplan().args(arguments))
    }

    /// Runs the tiny plan with ranks that do `fake`.
    pub fn run(&self, fake: &str) -> Answer {
        Answer::soon(self.shardplan().args(["run", "tiny.json", "--json"]).env("FAKE", fake))
    }

    /// The only run's folder.
    pub fn run_folder(&self) -> PathBuf {
        wait_for("a run folder", || {
            let mut entries = std::fs::read_dir(self.path("runs")).ok()?.flatten();
            Some(entries.next()?.path()).filter(|path| path.join(INFO).exists())
        })
    }

    /// Everything in the launcher's log of the only run.
    pub fn launcher_log(&self) -> Vec<Event> {
        let logs = RunFolder::of(&self.run_folder()).launcher_logs();
        read_log(logs.first().expect("a launcher's log"))
    }
}

/// What a command printed, and its exit code.
#[derive(Debug)]
pub struct Answer {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    pub fn of(output: Output) -> Self {
        Answer {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// Runs a command whose output goes into pipes; one that hangs is ended, and fails the test with what it had printed.
    pub fn soon(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the command starts");
        let stdout = read_aside(child.stdout.take().expect("a pipe"));
        let stderr = read_aside(child.stderr.take().expect("a pipe"));
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().expect("a child") {
                Some(status) => break Some(status),
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                None => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
            }
        };
        let (stdout, stderr) = (stdout.join().expect("stdout"), stderr.join().expect("stderr"));
        let Some(status) = status else {
            let printed = [&stdout, &stderr].map(|bytes| String::from_utf8_lossy(bytes));
            panic!("{command:?} hangs; it printed {printed:?}");
        };
        Answer::of(Output { status, stdout, stderr })
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub fn read_log(path: &Path) -> Vec<Event> {
    assert!(path.is_file(), "no log: {}", path.display());
    let all = run_folder::read_all(path).expect("a log");
    assert_eq!(all.unreadable, 0, "{}", path.display());
    all.records.into_iter().map(|record| record.event).collect()
}

/// Records as a log.
pub fn log(events: &[Event]) -> String {
    let record =
        |(seq, event): (usize, &Event)| Record { seq: seq as u64, unix_ms: 1000, event: event.clone() };
    events.iter().enumerate().map(|event| encode_record(&record(event))).collect()
}

pub fn step(step: u64) -> Event {
    let loss = 6.0 / step as f64;
    Event::Step(Step { step, loss, grad_norm: 1.0, lr: 3e-4, tokens: 128, seconds: 0.5, ..Step::default() })
}

/// How long something may take before it hangs, on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Waits for something that another process does.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads a pipe to its end on a thread of its own.
fn read_aside(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe");
        bytes
    })
}

/// Ends a process when the test does.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
