//! Tokens a second of the worker beside torch's own: the same models, types and ranks on this machine, in turns in one run. On one
//! process torch is eager or compiled; on several it is `DistributedDataParallel`, `parallelize_module`, `Schedule1F1B` or, for
//! plans of runtime fsdp2, `fully_shard`, over gloo. Both train with one thread a rank, AdamW and clipping, on the same made-up tokens.
//!
//! `cargo run --release -p system-tests --bin speed -- [ROUNDS] [STEPS] [WORD]`, with SHARDPLAN_BIN_DIR and
//! SHARDPLAN_TORCH as the system tests have them; of the cases only those whose name has WORD. The first two steps of a run are
//! not counted.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use system_tests::programs::{expect_code, shardplan, torch_python};
use system_tests::run_folder::{all_records, only_run, steps};
use system_tests::runs::Runs;

/// Steps at the start of each run that warm up.
const WARM_UP: usize = 2;

/// What trains beside the worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Torch {
    /// As a script runs, operation by operation.
    Eager,
    /// By `torch.compile`.
    Compiled,
    /// By `fully_shard`.
    Sharded,
}

/// What is trained.
#[derive(Clone)]
struct Case {
    name: &'static str,
    layers: u64,
    hidden: u64,
    words: u64,
    sequence: u64,
    ranks: u64,
    /// Micro batches of a replica.
    microbatches: u64,
    dtype: &'static str,
    layout: Value,
    torch: Torch,
}

/// Several sizes, then what else there is to a layout at one of them.
fn cases() -> Vec<Case> {
    let of = |name, (layers, hidden, words, sequence)| Case {
        name,
        layers,
        hidden,
        words,
        sequence,
        ranks: 1,
        microbatches: 1,
        dtype: "fp32",
        layout: json!({}),
        torch: Torch::Eager,
    };
    let (small, middle, large, long) =
        ((4, 256, 2048, 128), (2, 512, 8192, 256), (2, 1024, 8192, 256), (2, 512, 8192, 1024));
    let one = [
        of("one: 256 wide", small),
        of("one: 512 wide", middle),
        of("one: 1,024 wide", large),
        of("one: 512 wide, long", long),
    ];
    let bf16 =
        [("one: 256 wide, bf16", small), ("one: 512 wide, bf16", middle), ("one: 1,024 wide, bf16", large)];
    let compiled = [("one compiled: 256 wide", small), ("one compiled: 1,024 wide", large)];
    let several = |name, layout| Case { ranks: 2, microbatches: 4, layout, ..of(name, middle) };
    let fsdp2 = |name, size| Case { ranks: 2, torch: Torch::Sharded, ..of(name, size) };
    let mut all = one.to_vec();
    all.extend(bf16.map(|(name, size)| Case { dtype: "bf16", ..of(name, size) }));
    all.extend(compiled.map(|(name, size)| Case { torch: Torch::Compiled, ..of(name, size) }));
    all.extend([
        several("dp 2", json!({})),
        several("tp 2", json!({"tp": 2})),
        several("pp 2", json!({"pp": 2})),
        Case { dtype: "bf16", ..several("dp 2, bf16", json!({})) },
        Case { dtype: "bf16", ..several("tp 2, bf16", json!({"tp": 2})) },
        Case { dtype: "bf16", ..several("pp 2, bf16", json!({"pp": 2})) },
        fsdp2("fsdp2: small", (4, 128, 2048, 128)),
        fsdp2("fsdp2: middle", middle),
        fsdp2("fsdp2: large", large),
        fsdp2("fsdp2: long", long),
        Case { dtype: "bf16", ..fsdp2("fsdp2: middle bf16", middle) },
        Case { ranks: 4, ..fsdp2("fsdp2: middle on 4", middle) },
        Case { ranks: 4, layout: json!({"dp_replicate": 2}), ..fsdp2("fsdp2: middle on 2 x 2", middle) },
        Case {
            microbatches: 4,
            layout: json!({"fsdp": {"gradient_sync": "last"}}),
            ..fsdp2("fsdp2: middle, 4 micro batches, summed last", middle)
        },
    ]);
    all
}

impl Case {
    fn plan(&self, steps: u64) -> Value {
        let head = 64;
        json!({
            "version": 1,
            "name": "speed",
            "model": {"architecture": {
                "num_layers": self.layers, "hidden_size": self.hidden, "ffn_hidden_size": 3 * self.hidden,
                "vocab_size": self.words,
                "attention": {"kind": "gqa", "heads": self.hidden / head, "kv_heads": self.hidden / head, "head_dim": head}
            }},
            "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": self.ranks},
            "runtime": if self.torch == Torch::Sharded { "fsdp2" } else { "native" },
            "layout": self.layout,
            "training": {
                "seq_len": self.sequence, "micro_batch_size": 1, "global_batch_size": self.sequences(),
                "dtype": self.dtype, "optimizer": {"kind": "adam"}
            },
            "run": {"steps": steps, "lr": 0.0003, "checkpoint": {"save": false}}
        })
    }

    /// Sequences of a step.
    fn sequences(&self) -> u64 {
        let of = |axis: &str| self.layout[axis].as_u64().unwrap_or(1);
        self.ranks / (of("tp") * of("pp")) * self.microbatches
    }

    fn tokens(&self) -> f64 {
        (self.sequences() * self.sequence) as f64
    }
}

/// Seconds of each step that counts, of the worker.
fn ours(plan: &Value) -> Result<Vec<f64>> {
    let runs = Runs::new()?;
    let file = runs.beside("plan.json");
    std::fs::write(&file, plan.to_string())?;
    let mut command = shardplan()?;
    command.arg("run").arg(&file).arg("--torch").arg(torch_python()?).arg("--runs").arg(runs.path());
    expect_code(command.env("OMP_NUM_THREADS", "1"), 0)?;
    let records = all_records(&only_run(runs.path())?)?;
    let ranks = plan["cluster"]["gpus_per_node"].as_u64().context("ranks")?;
    let of_ranks: Vec<_> = (0..ranks).map(|rank| steps(&records, rank)).collect();
    let count = of_ranks.iter().map(Vec::len).min().unwrap_or(0);
    let slowest = |step: usize| of_ranks.iter().map(|of_rank| of_rank[step].seconds).fold(0.0, f64::max);
    Ok((WARM_UP..count).map(slowest).collect())
}

/// The same of torch.
fn theirs(plan: &Value, steps: u64, torch: Torch) -> Result<Vec<f64>> {
    let folder = Runs::new()?;
    let file = folder.beside("plan.json");
    std::fs::write(&file, plan.to_string())?;
    let (script, mode) = match torch {
        Torch::Eager => ("speed_torch.py", Some("eager")),
        Torch::Compiled => ("speed_torch.py", Some("compile")),
        Torch::Sharded => ("fsdp2_torch.py", None),
    };
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../native-worker/rank/tests/executor");
    let mut command = Command::new(torch_python()?);
    command.arg(scripts.join(script)).arg(&file).arg(steps.to_string()).args(mode);
    command.stdin(Stdio::null()).env("OMP_NUM_THREADS", "1");
    let output = expect_code(&mut command, 0)?;
    let seconds: Vec<f64> = serde_json::from_slice(&output.stdout).context("the script's seconds")?;
    Ok(seconds.into_iter().skip(WARM_UP).collect())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |place: usize, default: u64| arguments.get(place).map_or(Ok(default), |text| text.parse::<u64>());
    let (rounds, steps) = (number(0, 5)?, number(1, 12)?);
    let word = arguments.get(2).map_or("", String::as_str);
    ensure!(
        rounds > 0 && steps > WARM_UP as u64,
        "nothing is left to count of {rounds} rounds of {steps} steps"
    );
    let mut out = std::io::stdout();
    writeln!(
        out,
        "tokens/s: median over {rounds} rounds of each one's median over {} steps, least and most",
        steps - 2
    )?;
    writeln!(out, "| | ranks | worker | torch | worker / torch, median of rounds, least and most |")?;
    writeln!(out, "|---|--:|--:|--:|--:|")?;
    out.flush()?;
    for case in cases().iter().filter(|case| case.name.contains(word)) {
        let plan = case.plan(steps);
        let (mut own, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let rate = |mut seconds: Vec<f64>| case.tokens() / median(&mut seconds);
            // In turns: what else the machine does comes to both.
            let (one, other) = if round % 2 == 0 {
                let one = rate(ours(&plan)?);
                (one, rate(theirs(&plan, steps, case.torch)?))
            } else {
                let other = rate(theirs(&plan, steps, case.torch)?);
                (rate(ours(&plan)?), other)
            };
            own.push(one);
            others.push(other);
            ratios.push(one / other);
        }
        let said = |values: &mut Vec<f64>, places: usize| {
            let middle = median(values);
            format!("{middle:.places$} ({:.places$} to {:.places$})", values[0], values[values.len() - 1])
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            case.name,
            case.ranks,
            said(&mut own, 0),
            said(&mut others, 0),
            said(&mut ratios, 2)
        )?;
    }
    Ok(())
}
