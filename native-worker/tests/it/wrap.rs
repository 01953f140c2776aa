//! Commands of any kind under `shardplan wrap`: they run as they would alone, and a folder tells of them.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use planner::wire::{Event, Outcome, PlanOrigin, RunInfo, RunState};

use crate::hub::Hub;
use crate::run::limit_files;
use crate::support::{Ended, Workshop, read_log, wait_for};
use run_folder::{LogWriter, RunFolder};

/// A Megatron-LM command line, after the script.
const MEGATRON: &str = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 \
                        --max-position-embeddings 1024 --global-batch-size 32 --bf16";

/// Prints three iterations as Megatron-LM does.
const TRAIN: &str = r#"for i in 1 2 3; do
  echo " [2026-03-01 10:00:0$i] iteration        $i/       3 | consumed samples:           32 | elapsed time per iteration (ms): 12$i.0 | learning rate: 1.0E-05 | global batch size:    32 | lm loss: 9.$i | loss scale: 1.0 | grad norm: 1.000 |"
done"#;

fn wrapped(shop: &Workshop, options: &[&str], script: &str) -> Output {
    let mut command = shop.shardplan();
    command.arg("wrap").args(options).args(["--", "bash", "-c", script]);
    command.output().expect("shardplan runs")
}

fn info(shop: &Workshop) -> RunInfo {
    let text = std::fs::read_to_string(shop.run_folder().join("run.json")).expect("run.json");
    serde_json::from_str(&text).expect("an info")
}

#[test]
fn output_is_passed_on_byte_by_byte() {
    let shop = Workshop::new();
    for script in [
        "printf 'no end'; printf 'half' >&2",
        "printf '\\377\\376\\000 \\r 10%%\\r 20%%\\n\\033[31mred'; head -c 300000 /dev/urandom | tee copy >&2; rm copy",
        "true",
        "printf '\\n\\n'; sleep 0.1; printf x >&2",
    ] {
        let fixed = script.replace("/dev/urandom", &shop.path("bytes").display().to_string());
        let bytes: Vec<u8> =
            (0..300_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(shop.path("bytes"), bytes).expect("written");
        let alone = std::process::Command::new("bash")
            .args(["-c", &fixed])
            .current_dir(shop.path(""))
            .output()
            .expect("bash runs");
        let found = wrapped(&shop, &[], &fixed);
        assert!(found.stdout == alone.stdout && found.stderr == alone.stderr, "{script}");
        assert_eq!(found.status, alone.status, "{script}");
    }
}

#[test]
fn input_is_passed_on_and_both_outputs_keep_their_order_in_one_file() {
    let shop = Workshop::new();
    let path = shop.path("both");
    let both = std::fs::File::create(&path).expect("a file");
    let input = std::fs::File::open(shop.write("input", "from outside\n")).expect("a file");
    let mut command = shop.shardplan();
    command
        .args(["wrap", "--", "bash", "-c", "for i in 1 2 3; do echo o$i; echo e$i >&2; done; cat"])
        .stdin(input)
        .stdout(both.try_clone().expect("a file"))
        .stderr(both);
    assert!(command.status().expect("shardplan runs").success());
    assert_eq!(std::fs::read_to_string(path).expect("read"), "o1\ne1\no2\ne2\no3\ne3\nfrom outside\n");
}

#[test]
fn it_ends_as_the_command_ends() {
    let shop = Workshop::new();
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 42", Some(42), None),
        ("kill -TERM $$", None, Some(15)),
        ("kill -KILL $$", None, Some(9)),
        ("kill -SEGV $$", None, Some(11)),
        ("kill -ABRT $$", None, Some(6)),
        ("kill -PIPE $$", None, Some(13)),
        ("kill -HUP $$", None, Some(1)),
    ] {
        let status = wrapped(&shop, &[], script).status;
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
    }
    shop.program("no-first-line", "echo by the shell; exit 7\n");
    shop.write("not-executable", "x");
    shop.program("odd-interpreter", "#!/no/such\n");
    for (program, code, said) in [
        ("no-such-command", 127, "no-such-command: command not found"),
        ("./not-executable", 126, "Permission denied"),
        ("./odd-interpreter", 126, "interpreter"),
        (".", 126, "Permission denied"),
        ("./no-first-line", 7, ""),
    ] {
        let found = shop.ask(&["wrap", "--", program]);
        assert_eq!(found.code, Some(code), "{program}: {found:?}");
        assert!(found.stderr.contains(said), "{program}: {found:?}");
    }
    assert_eq!(shop.ask(&["wrap", "--"]).code, Some(2));
    assert_eq!(shop.ask(&["wrap", "--gpu", "abacus", "--", "true"]).code, Some(2));
}

#[test]
fn a_signal_reaches_the_command_once() {
    let shop = Workshop::new();
    // Counts what it gets, and ends when it is told to.
    let script = "trap 'echo term' TERM; trap 'echo int' INT; trap 'echo usr1' USR1; echo ready; \
                  until [ -e enough ]; do sleep 0.05; done; exit 5";
    let told = |to_group: &[bool]| {
        let mut command = shop.shardplan();
        command.args(["wrap", "--", "bash", "-c", script]).process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn().expect("shardplan runs");
        let pid = Pid::from_raw(child.id().try_into().expect("a pid"));
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = || {
            let mut line = String::new();
            out.read_line(&mut line).expect("a line");
            line
        };
        assert_eq!(line(), "ready\n");
        // The witness starts beside it.
        std::thread::sleep(Duration::from_millis(700));
        let mut text = String::new();
        for (signal, group) in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1].into_iter().zip(to_group) {
            if *group { killpg(pid, signal) } else { kill(pid, signal) }.expect("sent");
            text.push_str(&line());
            // Time for a second one.
            std::thread::sleep(Duration::from_millis(400));
        }
        let enough = shop.path("enough");
        std::fs::write(&enough, "").expect("written");
        out.read_to_string(&mut text).expect("text");
        std::fs::remove_file(&enough).expect("removed");
        assert_eq!(child.wait().expect("ended").code(), Some(5));
        text
    };
    assert_eq!(told(&[false, false, false]), "term\nint\nusr1\n");
    assert_eq!(told(&[true, true, true]), "term\nint\nusr1\n");
}

/// Wherever between its own start and the command's a signal comes: the command has it, or nothing was started.
#[test]
fn a_signal_at_the_start_never_leaves_the_command_alone() {
    let shop = Workshop::new();
    let ends = &|attempt: u64| {
        let file = shop.path(&format!("went-on-{attempt}"));
        let script = format!("trap '' TERM; sleep 0.05; echo > {}; exit 5", file.display());
        let mut command = shop.shardplan();
        command.args(["wrap", "--", "sh", "-c", &script]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("shardplan runs");
        std::thread::sleep(Duration::from_micros(250 * (attempt % 40)));
        kill(Pid::from_raw(child.id().try_into().expect("a pid")), Signal::SIGTERM).expect("sent");
        let code = child.wait().expect("ended").code();
        // Time for a command that was left alone.
        std::thread::sleep(Duration::from_millis(300));
        (attempt, code == Some(5), file.exists())
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..8)
            .map(|lane| scope.spawn(move || (0..20).map(|at| ends(8 * at + lane)).collect::<Vec<_>>()))
            .collect();
        for (attempt, ended_so, went_on) in lanes.into_iter().flat_map(|lane| lane.join().expect("a lane")) {
            assert_eq!(ended_so, went_on, "attempt {attempt}");
        }
    });
}

#[test]
fn what_it_prints_becomes_a_record_beside_its_plan() {
    let shop = Workshop::new();
    shop.program("bin/torchrun", &format!("#!/bin/bash\n{TRAIN}\nsleep 0.5\n"));
    let line = format!("--nproc_per_node 8 pretrain_gpt.py {MEGATRON} --wandb-api-key hidden");
    let mut command = shop.shardplan();
    command
        .args(["wrap", "--gpu", "h100-sxm", "--report", "--json", "--", "torchrun"])
        .args(line.split_whitespace());
    let found = command.output().expect("shardplan runs");
    assert!(found.status.success());
    let comparison: serde_json::Value =
        serde_json::from_slice(&found.stderr).expect("JSON on standard error alone");
    assert_eq!(comparison["iterations"], 3);
    let row = &comparison["rows"][0];
    assert_eq!(
        (&row["quantity"], &row["measured"], &row["from"]),
        (&"step_seconds".into(), &0.122.into(), &"printed".into())
    );
    assert!(row["predicted"].as_f64().is_some_and(|seconds| seconds > 0.0), "{row}");

    let info = info(&shop);
    let source = info.source.expect("a source");
    assert_eq!(
        (source.framework.as_str(), source.plan, info.world_size),
        ("megatron", PlanOrigin::Recovered, 8)
    );
    assert!(!info.command.contains(&"hidden".to_owned()), "{:?}", info.command);
    let events = shop.launcher_log();
    let losses: Vec<f64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Iteration(iteration) => iteration.loss,
            _ => None,
        })
        .collect();
    assert_eq!(losses, [9.1, 9.2, 9.3]);
    assert!(
        events.iter().any(|event| matches!(event, Event::Host(host) if host.memory_total_bytes > Some(0)))
    );
    assert!(
        events.iter().any(|event| matches!(event, Event::Output { text, .. } if text.contains("lm loss")))
    );
    assert!(matches!(events.last(), Some(Event::Ended { outcome: Outcome::Completed, .. })), "{events:?}");
    let written = std::fs::read_to_string(shop.run_folder().join("comparison.json")).expect("a comparison");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written).expect("JSON"), comparison);
}

#[test]
fn a_failure_is_told_with_its_last_lines() {
    let shop = Workshop::new();
    wrapped(&shop, &[], "echo fine; echo 'something of our own went wrong' >&2; exit 3");
    match shop.launcher_log().last() {
        Some(Event::Ended { outcome: Outcome::Failed, reason }) => {
            assert!(reason.contains("exit code 3") && reason.contains("went wrong"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failure_that_is_known_is_named() {
    let shop = Workshop::new();
    let printed = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total \
                   capacity of 79.11 GiB of which 1.06 GiB is free. Of the allocated memory 74.00 GiB is allocated by \
                   PyTorch, and 2.10 GiB is reserved by PyTorch but unallocated.";
    wrapped(&shop, &[], &format!("echo '{printed}' >&2; exit 1"));
    match shop.launcher_log().last() {
        Some(Event::Ended { outcome: Outcome::Failed, reason }) => {
            assert!(reason.contains("memory") && !reason.contains("Its last lines"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let text = std::fs::read_to_string(shop.run_folder().join("diagnosis.json")).expect("a diagnosis");
    let answer: diagnose::Answer = serde_json::from_str(&text).expect("an answer");
    assert!(answer.found && answer.verdicts[0].ranks.contains(&3), "{answer:?}");
}

#[test]
fn the_plan_of_a_configuration_is_recovered() {
    let shop = Workshop::new();
    shop.write(
        "titan.toml",
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n",
    );
    shop.write(
        "recipe.yaml",
        "model:\n  pretrained_model_name_or_path: Qwen/Qwen3-8B\ndataset:\n  seq_len: 4096\n",
    );
    for (line, framework, preset) in [
        (
            "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file titan.toml",
            "torchtitan",
            "llama-3-8b",
        ),
        ("automodel finetune llm -c recipe.yaml --nproc-per-node 8", "automodel", "qwen3-8b"),
    ] {
        let mut words = vec!["wrap", "--dry-run", "--gpu", "h100-sxm", "--json", "--"];
        words.extend(line.split(' '));
        let json = shop.ask(&words).json();
        assert_eq!(json["source"]["framework"], framework, "{json}");
        assert_eq!(
            (&json["plan"]["model"]["preset"], &json["plan"]["cluster"]["gpus_per_node"]),
            (&preset.into(), &8.into()),
            "{json}"
        );
    }
    let missing = shop.ask(&["wrap", "--dry-run", "--json", "--", "automodel", "none.yaml"]);
    assert!(missing.code == Some(1) && missing.stdout.contains("can't be read"), "{missing:?}");
}

#[test]
fn the_training_in_a_script_is_found() {
    let shop = Workshop::new();
    let megatron = format!("torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES no-such.py {MEGATRON}");
    shop.write("job.sh", &format!("#!/bin/bash\n#SBATCH --nodes=4\nmodule load cuda\nsrun {megatron}\n"));
    std::fs::create_dir(shop.path("jobs")).expect("a folder");
    shop.write(
        "jobs/recipe.yaml",
        "model:\n  pretrained_model_name_or_path: Qwen/Qwen3-8B\ndataset:\n  seq_len: 4096\n",
    );
    shop.write("jobs/tune.sh", "automodel finetune llm -c recipe.yaml --nproc-per-node 8\n");
    for line in ["bash job.sh", "srun -N 4 bash -e job.sh", "job.sh", "/bin/sh job.sh"] {
        let words =
            ["wrap", "--dry-run", "--gpu", "h100-sxm", "--json", "--"].into_iter().chain(line.split(' '));
        let json = shop.ask(&words.collect::<Vec<_>>()).json();
        assert_eq!(
            [
                &json["source"]["framework"],
                &json["plan"]["cluster"]["nodes"],
                &json["plan"]["cluster"]["gpus_per_node"]
            ],
            [&serde_json::json!("megatron"), &4.into(), &8.into()],
            "{line}: {json}"
        );
    }
    // A script's configuration is the file that it names, not the script.
    let found = shop.ask(&["plan", "--model", "jobs/tune.sh", "--gpu", "h100-sxm", "--json"]);
    assert!(found.stdout.contains("qwen3-8b"), "{found:?}");
    shop.write("jobs/gone.sh", "automodel finetune llm -c none.yaml\n");
    let gone = shop.ask(&["plan", "--model", "jobs/gone.sh", "--gpu", "h100-sxm"]);
    assert!(gone.stderr.contains("none.yaml"), "{gone:?}");
    // Nothing in it trains.
    shop.write("other.sh", "echo torchrun\n");
    assert_eq!(shop.ask(&["wrap", "--dry-run", "--", "bash", "other.sh"]).code, Some(1));
}

#[test]
fn nothing_that_fails_on_our_side_reaches_the_command() {
    let shop = Workshop::new();
    // A disk that takes 1 KiB of each file.
    let shardplan = env!("CARGO_BIN_EXE_shardplan");
    let script = format!(
        "ulimit -f 1; exec {shardplan} wrap --runs full -- bash -c 'seq 1 30000; echo e >&2; exit 9'"
    );
    let found = shop_bash(&shop, &script);
    assert_eq!((found.status.code(), found.stderr.as_slice()), (Some(9), &b"e\n"[..]));
    assert_eq!(found.stdout.iter().filter(|&&byte| byte == b'\n').count(), 30_000);
    // A folder that can't be made.
    shop.write("file", "");
    let found = wrapped(&shop, &["--runs", "file/runs"], "echo o; echo e >&2; exit 9");
    assert_eq!((found.status.code(), found.stdout.as_slice()), (Some(9), &b"o\n"[..]));
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(said.contains("nothing is recorded") && said.contains("e\n"), "{said}");
    // A plan that is none.
    let found = wrapped(&shop, &["--plan", "file"], "echo o; sleep 0.3; exit 9");
    assert_eq!((found.status.code(), found.stdout.as_slice()), (Some(9), &b"o\n"[..]));
    assert!(String::from_utf8_lossy(&found.stderr).contains("the plan can't be read"));
}

#[test]
fn a_watched_command_is_recorded_again_when_the_disk_has_room_again() {
    let shop = Workshop::new();
    let script = "wait_for() { until [ -e $1 ]; do sleep 0.05; done; }; echo first; wait_for full; seq 100; sleep 1; \
                  touch printed; wait_for free; echo last";
    let mut command = shop.shardplan();
    command.args(["wrap", "--report", "--interval", "3600", "--", "bash", "-c", script]);
    let child = Ended(command.spawn().expect("shardplan runs"));
    let recorded = |text: &str| {
        let found = |event: &Event| matches!(event, Event::Output { text: line, .. } if line == text);
        shop.launcher_log().iter().any(found)
    };
    wait_for("the first line", || recorded("first").then_some(()));
    limit_files(child.0.id(), "1");
    shop.write("full", "");
    wait_for("its lines", || shop.path("printed").exists().then_some(()));
    limit_files(child.0.id(), "unlimited");
    shop.write("free", "");
    let mut child = child;
    assert!(wait_for("the end", || child.0.try_wait().expect("asked")).success());
    let mut said = String::new();
    child.0.stderr.take().expect("a pipe").read_to_string(&mut said).expect("read");
    assert!(said.contains("are missing: File too large"), "{said}");
    let events = shop.launcher_log();
    let missing: u64 =
        events.iter().map(|event| if let Event::Gap(gap) = event { gap.records } else { 0 }).sum();
    let lines = events.iter().filter(|event| matches!(event, Event::Output { .. })).count() as u64;
    // With "first" and "last"; a sample of the host may be missing too.
    assert!(missing > 0 && (102..=103).contains(&(lines + missing)), "{lines} lines, {missing} missing");
    assert!(recorded("last"), "{events:?}");
    assert!(matches!(events.last(), Some(Event::Ended { outcome: Outcome::Completed, .. })));
}

#[test]
fn a_second_command_with_the_same_id_goes_on_with_the_numbers() {
    let shop = Workshop::new();
    for _ in 0..2 {
        assert!(wrapped(&shop, &["--id", "mine"], "echo line").status.success());
    }
    let logs = RunFolder::of(&shop.path("runs/mine")).launcher_logs();
    let text = std::fs::read_to_string(logs.first().expect("a log")).expect("read");
    let numbers: Vec<u64> =
        text.lines().map(|line| planner::wire::decode_record(line).expect("a record").seq).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!(text.matches("\"event\":\"ended\"").count(), 2);
}

fn shop_bash(shop: &Workshop, script: &str) -> Output {
    std::process::Command::new("bash")
        .args(["-c", script])
        .current_dir(shop.path(""))
        .output()
        .expect("bash runs")
}

#[test]
fn a_flood_is_passed_on_whole_and_recorded_in_part() {
    let shop = Workshop::new();
    let found = wrapped(
        &shop,
        &[],
        "yes 'step: 1  loss: 2.5  memory: 1.00GiB(1%)' | head -c 100000000; echo last >&2",
    );
    assert_eq!((found.stdout.len(), found.stderr.as_slice()), (100_000_000, &b"last\n"[..]));
    let bytes: u64 = std::fs::read_dir(shop.run_folder())
        .expect("a folder")
        .flatten()
        .map(|entry| entry.metadata().expect("metadata").len())
        .sum();
    assert!(bytes < 100_000_000, "{bytes}");
    assert!(matches!(shop.launcher_log().last(), Some(Event::Ended { .. })));
}

#[test]
fn what_outlives_the_command_prints_on_and_nobody_waits_for_it() {
    let shop = Workshop::new();
    let path = shop.path("out");
    let mut command = shop.shardplan();
    command
        .args([
            "wrap",
            "--",
            "bash",
            "-c",
            "(until [ -e go ]; do sleep 0.05; done; echo late) & echo early; exit 4",
        ])
        .stdout(std::fs::File::create(&path).expect("a file"));
    assert_eq!(command.status().expect("shardplan runs").code(), Some(4));
    assert_eq!(std::fs::read_to_string(&path).expect("read"), "early\n");
    shop.write("go", "");
    wait_for("what is printed late", || {
        (std::fs::read_to_string(&path).expect("read") == "early\nlate\n").then_some(())
    });
}

#[test]
fn a_reader_that_goes_ends_the_command_as_it_would_alone() {
    let shop = Workshop::new();
    let shardplan = env!("CARGO_BIN_EXE_shardplan");
    let found = shop_bash(&shop, &format!("{shardplan} wrap -- yes | head -1; echo ${{PIPESTATUS[0]}}"));
    assert_eq!(String::from_utf8_lossy(&found.stdout), "y\n141\n");
}

#[test]
fn workers_of_one_launcher_write_one_folder() {
    let shop = Workshop::new();
    let children: Vec<_> = (0..3)
        .map(|rank: u32| {
            let mut command = shop.shardplan();
            command
                .args(["wrap", "--", "bash", "-c", TRAIN])
                .env("TORCHELASTIC_RUN_ID", "none")
                .env("WORLD_SIZE", "3")
                .env("RANK", rank.to_string())
                .env("LOCAL_RANK", rank.to_string());
            command.spawn().expect("shardplan runs")
        })
        .collect();
    for child in children {
        assert!(child.wait_with_output().expect("ended").status.success());
    }
    let folder = shop.run_folder();
    assert_eq!(std::fs::read_dir(shop.path("runs")).expect("runs").count(), 1);
    for rank in 0..3 {
        let events = read_log(&folder.join(LogWriter::Rank(rank).log()));
        assert!(
            matches!(events.last(), Some(Event::Ended { outcome: Outcome::Completed, .. })),
            "{events:?}"
        );
    }
    assert_eq!(info(&shop).source.expect("a source").writers, 3);
}

#[test]
fn gpus_are_sampled_through_the_drivers_library() {
    let shop = Workshop::new();
    let recording = r#"{"driver": {"version": "580.65.06"},
        "gpus": [{"index": 0, "uuid": "GPU-a", "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 85899345920}],
        "readings": [[{"memory_used_bytes": 1000, "utilization_percent": 5}, {"memory_used_bytes": 64424509440}]],
        "xids": [[], [{"uuid": "GPU-a", "code": 94}]]}"#;
    let path = shop.write("gpus.json", recording);
    let mut command = shop.shardplan();
    command.env("SHARDPLAN_GPU_RECORDING", path).env_remove("CUDA_VISIBLE_DEVICES");
    command.args(["wrap", "--interval", "0.1", "--report", "--json", "--"]);
    command.args(["bash", "-c", "sleep 1.5", "x"]);
    let found = command.output().expect("shardplan runs");
    let comparison: serde_json::Value = serde_json::from_slice(&found.stderr).expect("JSON");
    assert_eq!(comparison["rows"][0]["measured"], 64_424_509_440.0);
    let samples: Vec<_> = shop
        .launcher_log()
        .into_iter()
        .filter_map(|event| match event {
            Event::Gpu(sample) => Some(sample),
            _ => None,
        })
        .collect();
    assert_eq!((samples[0].utilization, samples[0].xids.as_slice()), (Some(0.05), &[94][..]));
    assert_eq!(samples.last().and_then(|sample| sample.memory_used_bytes), Some(64_424_509_440));
}

#[tokio::test]
async fn the_hub_lists_a_watched_run_and_stops_it() {
    let shop = Workshop::new();
    let mut command = shop.shardplan();
    command.args([
        "wrap",
        "--id",
        "20260101T000000Z-mine",
        "--interval",
        "0.1",
        "--",
        "bash",
        "-c",
        "sleep 60",
    ]);
    let mut child = command.spawn().expect("shardplan runs");
    shop.run_folder();
    let hub = Hub::start(&shop);
    let mut socket = hub.open().await;
    let run =
        crate::hub_runs::wait_state(&mut socket, "20260101T000000Z-mine", |state| state == RunState::Running)
            .await;
    assert_eq!(run.info.source.expect("a source").plan, PlanOrigin::None);
    crate::hub::send(&mut socket, &planner::wire::ToHub::Stop { run: "20260101T000000Z-mine".to_owned() })
        .await;
    let run =
        crate::hub_runs::wait_state(&mut socket, "20260101T000000Z-mine", |state| state != RunState::Running)
            .await;
    assert_eq!(run.state, RunState::Stopped, "{}", run.reason);
    assert_eq!(child.wait().expect("ended").signal(), Some(15));
}

#[test]
fn the_plan_can_be_seen_without_running_anything() {
    let shop = Workshop::new();
    let line =
        format!("wrap --dry-run --gpu h100-sxm --json -- torchrun --nproc_per_node 8 no-such.py {MEGATRON}");
    let words: Vec<&str> = line.split_whitespace().collect();
    let found = shop.ask(&words);
    assert_eq!(found.code, Some(0), "{found:?}");
    let json = found.json();
    assert_eq!(
        (&json["source"]["framework"], &json["plan"]["cluster"]["gpus_per_node"]),
        (&"megatron".into(), &8.into())
    );
    assert_eq!(shop.ask(&["wrap", "--dry-run", "--", "sleep", "1"]).code, Some(1));
    assert!(!shop.path("runs").exists());
}
