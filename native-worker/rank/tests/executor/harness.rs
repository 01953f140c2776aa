//! Starting ranks, waiting for them, reading what they left.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use planner::wire::{Event, MeasuredMemory, Outcome, Record, Step, decode_record};
use serde_json::{Value, json};
use shardplan_rank::dump::Part;
use tempfile::TempDir;

use crate::kept;
pub use crate::ports::free_port;

/// How long something may take before it hangs, on a machine that does much else. What has to come sooner says so where it is
/// asked, and why.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until it is so; `what` says what is waited for.
pub fn wait_until(so: impl Fn() -> bool, what: impl Fn() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {}", what());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A small plan: two layers, so that a step takes some tens of milliseconds.
pub fn tiny(world: u64, tp: u64) -> Value {
    json!({
        "version": 1,
        "name": "tiny",
        "model": {"architecture": {
            "num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 96, "vocab_size": 256,
            "attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8}
        }},
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": world},
        "runtime": "native",
        "layout": {"tp": tp},
        "training": {"seq_len": 16, "micro_batch_size": 1, "global_batch_size": 4, "dtype": "fp64", "optimizer": {"kind": "adam", "distributed": true}},
        "run": {"steps": 5, "lr": 0.003}
    })
}

/// Sets a field by its path, such as `training.dtype`.
pub fn set(plan: &mut Value, path: &str, value: impl Into<Value>) {
    let place = path.split('.').fold(plan, |place, name| &mut place[name]);
    *place = value.into();
}

/// The ranks of a run.
pub struct Run {
    folder: TempDir,
    children: Vec<Child>,
}

/// What a rank's process left.
#[derive(Debug)]
pub struct Finished {
    /// Whether it exited with 0.
    pub success: bool,
    /// Its stderr.
    pub stderr: String,
}

/// How one rank is started.
pub struct Start<'a> {
    /// The rank.
    pub rank: u64,
    /// Ranks in all.
    pub world: u64,
    /// Port of rank 0.
    pub port: u16,
    /// Arguments besides. `--dump` alone stands for the run's dump folder.
    pub arguments: &'a [&'a str],
    /// The program; by default the one under test.
    pub program: Option<&'a Path>,
    /// The plan; by default that of the run folder.
    pub plan: Option<&'a Path>,
    /// Variables of its environment besides.
    pub variables: &'a [(&'a str, &'a str)],
}

/// A rank's process, without its plan.
pub(super) fn command(start: &Start<'_>) -> Command {
    let rank = start.rank.to_string();
    let mut command = Command::new(start.program.unwrap_or(Path::new(env!("CARGO_BIN_EXE_shardplan-rank"))));
    command
        .args(["--timeout-s", "60"])
        .args(start.arguments)
        .env_remove("SLURM_NTASKS")
        .env("RUST_BACKTRACE", "0")
        .env("OMP_NUM_THREADS", "1")
        .envs([("RANK", rank.as_str()), ("LOCAL_RANK", &rank), ("WORLD_SIZE", &start.world.to_string())])
        .envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &start.port.to_string())])
        .envs(start.variables.iter().copied())
        // A launcher holds the other end.
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

impl Run {
    /// Starts all ranks of `plan`, with `arguments` besides. `--dump` alone stands for the run's dump folder.
    pub fn start(plan: &Value, arguments: &[&str]) -> Run {
        let mut run = Run::prepare(plan);
        run.restart(plan["cluster"]["gpus_per_node"].as_u64().unwrap(), arguments);
        run
    }

    /// A run folder with the plan in it, and no rank yet.
    pub fn prepare(plan: &Value) -> Run {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("plan.json"), plan.to_string()).unwrap();
        Run { folder, children: Vec::new() }
    }

    /// Starts all ranks in the same folder.
    pub fn restart(&mut self, world: u64, arguments: &[&str]) {
        let port = free_port();
        self.children.clear();
        for rank in 0..world {
            self.start_rank(&Start {
                rank,
                world,
                port,
                arguments,
                program: None,
                plan: None,
                variables: &[],
            });
        }
    }

    /// Starts the ranks of another world in the same folder, beside those that run.
    pub fn restart_beside(&mut self, world: u64) {
        let port = free_port();
        for rank in 0..world {
            let start =
                Start { rank, world, port, arguments: &[], program: None, plan: None, variables: &[] };
            self.start_rank(&start);
        }
    }

    /// Waits for the rank that was started last.
    pub fn finish_last(&mut self, patience: Duration) -> Finished {
        let last = self.children.pop().unwrap();
        let others = std::mem::replace(&mut self.children, vec![last]);
        let finished = self.finish(patience).pop().unwrap();
        self.children = others;
        finished
    }

    /// Starts one rank.
    pub fn start_rank(&mut self, start: &Start<'_>) {
        let folder = self.folder.path();
        let plan = folder.join("plan.json");
        let dump: Vec<PathBuf> =
            if start.arguments.contains(&"--dump") { vec![folder.join("dump")] } else { Vec::new() };
        let mut command = command(start);
        command.args(dump).arg("--plan").arg(start.plan.unwrap_or(&plan)).arg("--run-dir").arg(folder);
        self.children.push(command.spawn().unwrap());
    }

    /// Runs a plan to its good end on ranks that are kept for the next.
    pub fn complete(plan: &Value) -> Run {
        Run::on_kept_ranks(plan, false)
    }

    /// The same, with gradients and weights of every step.
    pub fn complete_with_dumps(plan: &Value) -> Run {
        Run::on_kept_ranks(plan, true)
    }

    /// The same on so many ranks, of a plan that leaves some out.
    pub fn complete_with_dumps_on(plan: &Value, ranks: u64) -> Run {
        Run::on_ranks(plan, ranks, true)
    }

    fn on_kept_ranks(plan: &Value, dumps: bool) -> Run {
        Run::on_ranks(plan, plan["cluster"]["gpus_per_node"].as_u64().unwrap(), dumps)
    }

    fn on_ranks(plan: &Value, world: u64, dumps: bool) -> Run {
        let run = Run::prepare(plan);
        kept::carry_out(&run, world, dumps).unwrap_or_else(|failed| panic!("{failed}: {plan}"));
        run
    }

    /// The run folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What each process called of a library that writes it to `calls` in the run folder.
    pub fn calls(&self) -> impl Iterator<Item = String> {
        let files = std::fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path());
        let of_calls = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("calls."));
        of_calls.map(|path| std::fs::read_to_string(path).unwrap())
    }

    /// Lets go of the ranks' standard input, as a launcher does that is gone.
    pub fn let_go(&mut self) {
        for child in &mut self.children {
            child.stdin = None;
        }
    }

    /// Lets go of one rank's alone.
    pub fn let_go_of(&mut self, rank: usize) {
        self.children[rank].stdin = None;
    }

    /// The process of a rank.
    pub fn pid(&self, rank: usize) -> i32 {
        i32::try_from(self.children[rank].id()).unwrap()
    }

    /// Waits until every rank has ended; kills what has not after `patience`.
    pub fn finish(&mut self, patience: Duration) -> Vec<Finished> {
        let deadline = Instant::now() + patience;
        let mut children = std::mem::take(&mut self.children);
        while Instant::now() < deadline
            && children.iter_mut().any(|child| child.try_wait().unwrap().is_none())
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        children
            .into_iter()
            .map(|mut child| {
                let late = child.try_wait().unwrap().is_none();
                if late {
                    child.kill().unwrap();
                }
                let success = child.wait().unwrap().success();
                let mut stderr = String::new();
                child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
                assert!(!late, "a rank had not ended after {patience:?}; stderr: {stderr}");
                Finished { success, stderr }
            })
            .collect()
    }

    /// Waits for a good end of all ranks.
    pub fn succeed(&mut self) {
        // All of them: one that is gone without a word to the others is told by its own alone.
        let finished = self.finish(PATIENCE);
        assert!(finished.iter().all(|rank| rank.success), "{finished:#?}");
    }

    /// A rank's records so far.
    pub fn records(&self, rank: usize) -> Vec<Record> {
        let path = self.folder().join(format!("rank-{rank:05}.log"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| decode_record(line).ok()).collect()
    }

    /// A rank's steps so far.
    pub fn steps(&self, rank: usize) -> Vec<Step> {
        let records = self.records(rank).into_iter();
        records
            .filter_map(|record| if let Event::Step(step) = record.event { Some(step) } else { None })
            .collect()
    }

    /// The steps of the first rank that has some: of rank 0, unless the plan leaves that out.
    pub fn first_steps(&self) -> Vec<Step> {
        let names = std::fs::read_dir(self.folder()).unwrap().flatten().map(|entry| entry.file_name());
        let rank = |name: &str| name.strip_prefix("rank-")?.strip_suffix(".log")?.parse::<usize>().ok();
        let first = names.filter_map(|name| rank(name.to_str()?)).min();
        first.map(|first| self.steps(first)).unwrap_or_default()
    }

    /// Waits until rank 0 has done `count` steps.
    pub fn wait_for_steps(&self, count: usize) {
        let done = || self.steps(0).len() >= count;
        wait_until(done, || format!("{count} steps: {:?}", self.records(0)));
    }

    /// Waits until a rank has recorded how it ended.
    pub fn wait_for_end(&self, rank: usize) {
        let ended =
            || matches!(self.records(rank).pop().map(|record| record.event), Some(Event::Ended { .. }));
        wait_until(ended, || format!("an end of rank {rank}"));
    }

    /// What a rank allocated.
    pub fn allocated(&self, rank: usize) -> MeasuredMemory {
        let records = self.records(rank).into_iter();
        let mut found =
            records.filter_map(
                |record| if let Event::Allocated(memory) = record.event { Some(memory) } else { None },
            );
        found.next().unwrap()
    }

    /// How a rank ended.
    pub fn ended(&self, rank: usize) -> (Outcome, String) {
        match self.records(rank).pop().map(|record| record.event) {
            Some(Event::Ended { outcome, reason }) => (outcome, reason),
            other => panic!("rank {rank}'s last record is {other:?}"),
        }
    }

    /// Whole parameters from the slices that the ranks dumped. Copies on several ranks must be equal to the bit.
    pub fn dumped(&self, what: &str, step: u64) -> BTreeMap<String, Vec<f64>> {
        let prefix = format!("{what}-{step:05}.rank-");
        let mut wholes: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
        for entry in std::fs::read_dir(self.folder().join("dump")).unwrap() {
            let path = entry.unwrap().path();
            if !path.file_name().unwrap().to_str().unwrap().starts_with(&prefix) {
                continue;
            }
            for (part, values) in read_dump(&path) {
                let elements = part.shape.iter().product::<u64>() as usize;
                let whole = wholes.entry(part.name.clone()).or_insert_with(|| vec![None; elements]);
                for (local, value) in values.into_iter().enumerate() {
                    let slot = &mut whole[index_in_whole(&part, local as u64)];
                    assert!(
                        slot.is_none_or(|other| other == value),
                        "copies of {} differ in {what} of step {step}",
                        part.name
                    );
                    *slot = Some(value);
                }
            }
        }
        let filled = |values: Vec<Option<f64>>| {
            values.into_iter().map(|value| value.expect("an element that no rank holds")).collect()
        };
        wholes.into_iter().map(|(name, values)| (name, filled(values))).collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn read_dump(path: &Path) -> Vec<(Part, Vec<f64>)> {
    let bytes = std::fs::read(path).unwrap();
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap();
    let parts: Vec<Part> = serde_json::from_slice(&bytes[..end]).unwrap();
    let mut values =
        bytes[end + 1..].chunks_exact(8).map(|chunk| f64::from_le_bytes(chunk.try_into().unwrap()));
    let read = |part: Part| {
        let elements = part.local_shape.iter().product::<u64>() as usize;
        let slice: Vec<f64> = values.by_ref().take(elements).collect();
        assert_eq!(slice.len(), elements, "{path:?} is cut short");
        (part, slice)
    };
    parts.into_iter().map(read).collect()
}

fn index_in_whole(part: &Part, mut local: u64) -> usize {
    let (mut index, mut stride) = (0, 1);
    for dim in (0..part.shape.len()).rev() {
        index += (part.offset[dim] + local % part.local_shape[dim]) * stride;
        local /= part.local_shape[dim];
        stride *= part.shape[dim];
    }
    index as usize
}
