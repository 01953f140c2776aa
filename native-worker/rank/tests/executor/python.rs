//! Scripts of the references, on the Python of the environment that libtorch comes from: each in a fork of one process that has
//! imported torch and transformers, because importing takes longer than most of them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::json;

/// What a script has left.
pub struct Said {
    /// Whether it ended with 0.
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said { success: output.status.success(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// Those who wait for a script's exit status, by the number of their request. The server's end lets go of all.
type Waiting = Arc<Mutex<BTreeMap<u64, SyncSender<i32>>>>;

struct Server {
    requests: Mutex<(u64, ChildStdin)>,
    waiting: Waiting,
}

static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

/// The Python of the environment that libtorch comes from.
pub fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("SHARDPLAN_TORCH_PYTHON") {
        return PathBuf::from(python);
    }
    let libtorch = std::env::var_os("LIBTORCH")
        .expect("set LIBTORCH to the torch folder, or SHARDPLAN_TORCH_PYTHON to a Python with torch");
    let environment = PathBuf::from(libtorch).ancestors().nth(4).map(|root| root.join("bin/python3"));
    environment
        .filter(|python| python.exists())
        .expect("LIBTORCH is in no virtual environment; set SHARDPLAN_TORCH_PYTHON to a Python with torch")
}

/// A script beside this file.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/executor").join(name)
}

/// A command for a script: in one thread, and without a network.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(python());
    command.arg(script(name)).env("TRANSFORMERS_OFFLINE", "1");
    // Threads of theirs would not survive a fork.
    command.envs(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"].map(|name| (name, "1")));
    command
}

/// Runs a script to its end.
pub fn run(name: &str, arguments: &[impl AsRef<str>]) -> Said {
    SERVER.run(name, arguments)
}

impl Server {
    fn start() -> Server {
        let mut child =
            command("served.py").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python starts");
        let (requests, lines) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        let waiting = Waiting::default();
        let known = Arc::clone(&waiting);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let (number, status) = line.split_once(' ').expect("a number and a status");
                let number = number.parse::<u64>().expect("a request's number");
                let waits = known.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                let status = status.parse().expect("an exit status");
                // Nobody waits where a test has failed meanwhile.
                waits.map(|waits| waits.send(status));
            }
            known.lock().unwrap_or_else(PoisonError::into_inner).clear();
            // It ends when its standard input does: with this process.
            let _ = child.wait();
        });
        Server { requests: Mutex::new((0, requests)), waiting }
    }

    fn run(&self, name: &str, arguments: &[impl AsRef<str>]) -> Said {
        let folder = tempfile::tempdir().unwrap();
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let (sender, status) = sync_channel(1);
        {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.0 += 1;
            let number = requests.0;
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(number, sender);
            let request = json!({"number": number, "script": script(name), "arguments": arguments, "folder": folder.path()});
            writeln!(requests.1, "{request}").expect("the process that forks scripts is gone");
        }
        let status = status.recv().expect("the process that forks scripts has ended");
        let text =
            |name| String::from_utf8_lossy(&std::fs::read(folder.path().join(name)).unwrap()).into_owned();
        Said { success: status == 0, stdout: text("out"), stderr: text("err") }
    }
}

#[test]
fn a_script_says_what_it_prints_and_how_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let none: [&str; 0] = [];
    let said = run(&write("good.py", "import sys; print(sys.argv[1:])"), &["a b", "\"ü\n"]);
    assert_eq!((said.success, said.stdout.as_str(), said.stderr.as_str()), (true, "['a b', '\"ü\\n']\n", ""));
    for (text, expected) in [
        ("raise ValueError('seen')", "seen"),
        ("import sys; sys.exit('a rank failed')", "a rank failed"),
        ("import os, sys; sys.stderr.write('gone'); sys.stderr.flush(); os.kill(os.getpid(), 9)", "gone"),
    ] {
        let said = run(&write("bad.py", text), &none);
        assert!(!said.success && said.stderr.contains(expected), "{text}: {}", said.stderr);
    }
}
