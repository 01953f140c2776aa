//! Speed of `shardplan diagnose` beside ripgrep, which looks for the same texts in the same file, in turns in one run.
//!
//! `cargo run --release -p system-tests --bin diagnose_speed -- SHARDPLAN LOG [MEGABYTES] [RUNS]`: LOG is written when it
//! is not there. ripgrep is Debian's package.

use std::fmt::Write as _;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, log, rest @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: diagnose_speed SHARDPLAN LOG [MEGABYTES] [RUNS]");
    };
    let number = |place: usize, default: u64| rest.get(place).map_or(Ok(default), |text| text.parse::<u64>());
    let (megabytes, runs) = (number(0, 500)?, number(1, 5)?);
    let log = Path::new(log);
    if !log.exists() {
        write_log(log, megabytes * 1_000_000)?;
    }
    let texts = diagnose::searched_texts();
    let patterns = log.with_extension("patterns");
    std::fs::write(&patterns, texts.join("\n") + "\n")?;
    let bytes = std::fs::metadata(log)?.len();
    let mut out = String::new();
    writeln!(out, "{bytes} bytes, {} texts, {runs} runs in turns", texts.len())?;

    let mut diagnose = Command::new(program);
    diagnose.arg("diagnose").arg(log);
    let mut ripgrep = Command::new("rg");
    ripgrep.args(["--no-config", "--text", "--count", "--fixed-strings", "--file"]).arg(&patterns).arg(log);
    // Both read from memory: the first run of each is not counted.
    measure(&mut diagnose)?;
    measure(&mut ripgrep)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        ours.push(measure(&mut diagnose)?);
        theirs.push(measure(&mut ripgrep)?);
    }
    for (name, mut took) in [("shardplan diagnose", ours), ("rg --count --fixed-strings", theirs)] {
        took.sort();
        let (least, middle) = (took[0], took[took.len() / 2]);
        let rate = bytes as f64 / middle.0.as_secs_f64() / 1e6;
        writeln!(
            out,
            "{name:<28} least {:.3} s, median {:.3} s, {rate:.0} MB/s, at most {} KiB resident",
            least.0.as_secs_f64(),
            middle.0.as_secs_f64(),
            took.iter().map(|(_, resident)| *resident).max().unwrap_or(0)
        )?;
    }
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(())
}

/// Runs a program: how long, and the most memory that was resident (KiB, looked at every few milliseconds).
fn measure(command: &mut Command) -> Result<(Duration, u64)> {
    let start = Instant::now();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let mut resident = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        resident = resident.max(peak.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    };
    ensure!(status.code() == Some(0), "{command:?} ended with {status}");
    Ok((start.elapsed(), resident))
}

/// A log as eight ranks of a Megatron run write it, with NCCL's information, warnings, and a failure at its end.
fn write_log(path: &Path, bytes: u64) -> Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    let (mut written, mut step) = (0_u64, 0_u64);
    while written < bytes {
        step += 1;
        let mut text = String::new();
        let (hours, minutes, seconds) = (step / 3600 % 24, step / 60 % 60, step % 60);
        let time = format!("2026-11-{:02} {hours:02}:{minutes:02}:{seconds:02}", 1 + step / 86_400 % 28);
        for rank in 0..8 {
            writeln!(
                text,
                "{rank}: [rank{rank}]: [{time}] memory (MB) | allocated: {}.0 | max allocated: 70123.5 | reserved: 74020.0",
                61_000 + step % 97
            )?;
            if step.is_multiple_of(16) {
                writeln!(
                    text,
                    "{rank}: node{:02}:4711:{} [{rank}] NCCL INFO Channel {:02}/0 : {rank}[{rank}] -> {}[{}] via P2P/CUMEM/read",
                    step % 64,
                    5000 + rank,
                    step % 24,
                    (rank + 1) % 8,
                    (rank + 1) % 8
                )?;
            }
        }
        writeln!(
            text,
            "7: [{time}] iteration {step:8}/ 9999999 | consumed samples: {:12} | elapsed time per iteration (ms): {}.{} | throughput per GPU (TFLOP/s/GPU): 412.{} | learning rate: 1.200000E-04 | global batch size:   256 | lm loss: {}.{:06}E+00 | loss scale: 1.0 | grad norm: 1.{:03} | number of skipped iterations:   0 | number of nan iterations:   0 |",
            step * 256,
            900 + step % 31,
            step % 10,
            step % 10,
            2 + step % 3,
            step * 7919 % 1_000_000,
            step % 1000
        )?;
        if step.is_multiple_of(200) {
            writeln!(
                text,
                "3: /usr/local/lib/python3.12/dist-packages/torch/nn/modules/module.py:1773: UserWarning: a remark that comes again and again"
            )?;
        }
        file.write_all(text.as_bytes())?;
        written += text.len() as u64;
    }
    let failure = "5: [rank5]: Traceback (most recent call last):\n5: [rank5]:   File \"train.py\", line 7, in <module>\n5: [rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 5 has a total capacity of 79.11 GiB of which 1.33 GiB is free.\n";
    file.write_all(failure.as_bytes())?;
    file.flush()?;
    Ok(())
}
