//! Running ranks on this machine, and what happens when they don't behave.

use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::wire::{Event, Exited, Outcome, Record, RunInfo};

use crate::support::{Answer, Ended, Workshop, wait_for};
use run_folder::{RunFolder, read_all, unix_ms};

#[test]
fn a_run_that_completes_leaves_a_whole_record() {
    let shop = Workshop::new();
    let answer =
        shop.run("echo \"rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT\"; finish completed");
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let json = answer.json();
    assert_eq!(json["outcome"], "completed");
    assert_eq!(json["figures"]["steps"], 3);
    assert_eq!(json["figures"]["loss"], 2.0);
    assert!(answer.stderr.contains("step 3/3  loss 2.0000"), "{answer:?}");
    assert!(answer.stderr.contains("measured beside predicted: the last step took "), "{answer:?}");
    assert!(json["measured"]["step_seconds"].as_f64() > Some(0.0), "{json}");
    assert!(json["compared_with"]["step_seconds"].as_f64() > Some(0.0), "{json}");
    assert!(json["compared_with"]["parts"]["computing_seconds"].as_f64() > Some(0.0), "{json}");
    // These ranks measure no phases.
    assert!(json["measured"]["parts"].is_null(), "{json}");

    let folder = shop.run_folder();
    let plan = std::fs::read_to_string(folder.join("plan.json")).expect("a plan");
    assert_eq!(planner::parse_plan(&plan).expect("a plan").runtime, Some(planner::runtime::Runtime::Native));
    let info: RunInfo =
        serde_json::from_str(&std::fs::read_to_string(folder.join("run.json")).expect("read")).expect("info");
    assert_eq!((info.world_size, info.name.as_str()), (4, "tiny"));
    assert_eq!(info.versions["torch"], "2.11.0+cpu");
    assert_eq!(info.versions["shardplan-rank"], "0.1.0");
    assert!(info.launcher.is_some_and(|launcher| launcher.start_ticks > 0));

    let events = shop.launcher_log();
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|event| wanted(event)).count();
    assert_eq!(count(|event| matches!(event, Event::Started { .. })), 4);
    assert_eq!(count(|event| matches!(event, Event::Exited(Exited { code: Some(0), .. }))), 4);
    assert!(matches!(events.last(), Some(Event::Ended { outcome: Outcome::Completed, .. })));
    assert!(events.iter().any(
        |event| matches!(event, Event::Output { rank: 3, text, .. } if text.starts_with("rank 3 of 4 at 127.0.0.1:"))
    ));
}

#[test]
fn a_folder_whose_name_is_no_text_takes_runs() {
    use std::os::unix::ffi::OsStrExt;
    let shop = Workshop::new();
    let runs = std::ffi::OsStr::from_bytes(b"r\xff");
    let mut command = shop.shardplan();
    command.args(["run", "tiny.json", "--json", "--runs"]).arg(runs).env("FAKE", "finish completed");
    let answer = Answer::soon(&mut command);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.json()["folder"].as_str().is_some_and(|folder| folder.contains('\u{fffd}')), "{answer:?}");
}

#[test]
fn a_word_of_the_control_file_that_is_not_known_is_answered() {
    let shop = Workshop::new();
    let answer = shop.run(
        "if [ $RANK = 0 ]; then for run in runs/*; do echo halt > $run/control; done; sleep 1; fi; finish completed",
    );
    assert!(
        answer.stderr.contains("says `halt`, which is not understood; it may say stop or whole"),
        "{answer:?}"
    );
    assert_eq!(answer.stderr.matches("`halt`").count(), 1, "{answer:?}");
}

#[test]
fn a_plan_whose_data_is_missing_is_refused_before_ranks_start() {
    let shop = Workshop::new();
    let there = shop.write("there.txt", "some text");
    for (run, missing) in [
        (r#""data": {"kind": "text", "path": "absent.txt"}"#, vec!["absent.txt"]),
        (r#""data": {"kind": "megatron", "path": "set"}"#, vec!["set.bin", "set.idx"]),
        (r#""weights": "absent-model""#, vec!["absent-model"]),
    ] {
        shop.write(
            "tiny.json",
            &crate::support::TINY.replace(r#""steps": 3"#, &format!(r#""steps": 3, {run}"#)),
        );
        let answer = shop.run("finish completed");
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(missing.iter().all(|name| answer.stdout.contains(name)), "{answer:?}");
        assert!(!shop.path("runs").exists(), "a run was begun: {answer:?}");
    }
    let text = format!(r#""steps": 3, "data": {{"kind": "text", "path": {there:?}}}"#);
    shop.write("tiny.json", &crate::support::TINY.replace(r#""steps": 3"#, &text));
    assert_eq!(shop.run("finish completed").code, Some(0));
}

#[test]
fn ranks_of_failed_gpus_are_not_started_and_the_first_that_goes_on_is_followed() {
    let shop = Workshop::new();
    let failed = crate::support::TINY
        .replace(r#""gpus_per_node": 4}"#, r#""gpus_per_node": 4, "failed": [{"rank": 0}]}"#);
    shop.write("tiny.json", &failed);
    let answer = shop.run("echo rank $RANK of $WORLD_SIZE on GPU $LOCAL_RANK; finish completed");
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let json = answer.json();
    assert_eq!((&json["outcome"], &json["figures"]["steps"]), (&"completed".into(), &3.into()));
    let folder = shop.run_folder();
    assert!(!folder.join("rank-00000.log").exists() && folder.join("rank-00001.log").exists());
    let info: RunInfo =
        serde_json::from_str(&std::fs::read_to_string(folder.join("run.json")).expect("read")).expect("info");
    assert_eq!(info.world_size, 3);
    let said = |event: &Event| match event {
        Event::Output { text, .. } => Some(text.clone()),
        _ => None,
    };
    let mut said: Vec<String> = shop.launcher_log().iter().filter_map(said).collect();
    said.sort();
    // Of the GPUs that they see, which CUDA_VISIBLE_DEVICES says where there are any.
    assert_eq!(said, ["rank 1 of 4 on GPU 0", "rank 2 of 4 on GPU 1", "rank 3 of 4 on GPU 2"]);
}

/// Runs ranks of which one misbehaves; the run must fail and name it, and end when its last rank has.
fn failure(fake: &str, expected: &[&str]) -> (Workshop, String) {
    let shop = Workshop::new();
    let answer = shop.run(fake);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let reason = answer.json()["reason"].as_str().expect("a reason").to_owned();
    for part in expected {
        assert!(reason.contains(part), "{part:?} in {reason}");
    }
    match shop.launcher_log().last() {
        Some(Event::Ended { outcome: Outcome::Failed, reason: recorded }) => assert_eq!(*recorded, reason),
        other => panic!("{other:?}"),
    }
    check_that_nobody_is_waited_for(&shop);
    (shop, reason)
}

/// Milliseconds since 1970 at which ranks have exited, as the launcher recorded them.
fn exits(shop: &Workshop) -> Vec<u64> {
    let records = launcher_records(shop).into_iter();
    records.filter(|record| matches!(record.event, Event::Exited(_))).map(|record| record.unix_ms).collect()
}

/// The launcher has patience of eight seconds and more with ranks, and needs none of it when all have ended.
fn check_that_nobody_is_waited_for(shop: &Workshop) {
    let end = launcher_records(shop).last().expect("an end").unix_ms;
    let waited = end - exits(shop).last().expect("an exit");
    assert!(waited < 5000, "the run ended {waited} ms after its last rank");
}

#[test]
fn a_killed_rank_is_named_and_the_others_are_ended_within_ten_seconds() {
    // The others neither notice nor listen to SIGTERM.
    let fake = "echo before the end; if [ $RANK = 2 ]; then echo last words >&2; kill -KILL $$; fi; trap '' TERM; \
                while :; do sleep 0.2; done";
    let (shop, _) = failure(fake, &["Rank 2 ", "signal 9", "SIGKILL", "last words"]);
    let moments = exits(&shop);
    let took = moments[3] - moments[0];
    assert!(took < 11_500, "the others ended {took} ms after the kill");
    let events = shop.launcher_log();
    let exits =
        events.iter().filter(|event| matches!(event, Event::Exited(Exited { signal: Some(9), .. }))).count();
    assert_eq!(exits, 4, "{events:?}");
    // Whoever reads the folder finds the same culprit: those that the launcher ended are recorded as such.
    let known = RunFolder::of(&shop.run_folder()).record();
    assert_eq!(known.culprit().map(|end| end.exit.rank), Some(2));
    let told: Vec<u64> = known
        .ranks
        .iter()
        .filter(|(_, rank)| rank.exit.as_ref().is_some_and(|end| end.exit.told_to_end))
        .map(|(rank, _)| *rank)
        .collect();
    assert_eq!(told, [0, 1, 3]);
    assert!(known.ranks.values().all(|rank| rank.pid.is_none()));
    let launcher = known.ends.values().next().expect("the launcher's end");
    assert!(
        launcher.0 == Outcome::Failed && launcher.1.starts_with("Rank 2 was ended by signal 9"),
        "{launcher:?}"
    );
}

#[test]
fn an_exit_code_is_named() {
    let fake = "if [ $RANK = 1 ]; then echo 'no such tensor' >&2; exit 7; fi; sleep 0.3; exit 1";
    failure(fake, &["Rank 1 exited with code 7", "no such tensor"]);
}

#[test]
fn ranks_that_print_without_end_are_cut() {
    let fake = "head -c 3000000 /dev/zero | tr '\\0' x; for i in $(seq 60); do echo line $i; done; exit 5";
    let (shop, _) = failure(fake, &["exited with code 5", "line 60"]);
    for event in shop.launcher_log() {
        match event {
            Event::Output { text, .. } => assert!(text.len() <= 4096),
            Event::Exited(Exited { last_lines, .. }) => assert_eq!(last_lines.len(), 20),
            _ => {}
        }
    }
}

#[test]
fn a_rank_that_records_nothing_is_no_success() {
    failure("exit 0", &["recorded no end"]);
}

/// Stops a run by so many signals; with what it said, the milliseconds from the last of them to the last rank's end.
fn stop(fake: &str, signals: usize, apart: Duration) -> (Answer, u64) {
    let shop = Workshop::new();
    let mut child = Ended(
        shop.shardplan().args(["run", "tiny.json", "--json"]).env("FAKE", fake).spawn().expect("started"),
    );
    let folder = shop.run_folder();
    wait_for("all ranks", || (0..4).all(|rank| folder.join(format!("up-{rank}")).exists()).then_some(()));
    let pid = Pid::from_raw(child.0.id().try_into().expect("a pid"));
    let mut signalled = 0;
    for number in 0..signals {
        if number > 0 {
            std::thread::sleep(apart);
        }
        signalled = unix_ms();
        kill(pid, Signal::SIGTERM).expect("signalled");
    }
    wait_for("the end", || child.0.try_wait().expect("asked"));
    assert_eq!(std::fs::read_to_string(folder.join("control")).expect("control"), "stop\n");
    assert!(matches!(shop.launcher_log().last(), Some(Event::Ended { outcome: Outcome::Stopped, .. })));
    check_that_nobody_is_waited_for(&shop);
    let took = exits(&shop).last().expect("an exit").saturating_sub(signalled);
    let mut stdout = String::new();
    std::io::Read::read_to_string(&mut child.0.stdout.take().expect("a pipe"), &mut stdout).expect("read");
    (Answer { code: child.0.wait().expect("ended").code(), stdout, stderr: String::new() }, took)
}

#[test]
fn a_stop_lets_the_ranks_finish_their_step() {
    let fake = "touch \"$RUN_DIR/up-$RANK\"; until grep -qs stop \"$RUN_DIR/control\"; do sleep 0.1; done; finish stopped";
    let (answer, _) = stop(fake, 1, Duration::ZERO);
    assert_eq!(answer.code, Some(1));
    assert_eq!(answer.json()["reason"], "Stopped on request");
}

#[test]
fn a_second_signal_does_not_wait() {
    let fake = "touch \"$RUN_DIR/up-$RANK\"; trap '' TERM; while :; do sleep 0.2; done";
    let (answer, took) = stop(fake, 2, Duration::from_millis(1200));
    assert!(took < 5000, "the ranks ended {took} ms after the second signal");
    assert!(answer.json()["reason"].as_str().expect("a reason").contains("had to be ended"), "{answer:?}");
}

/// As `timeout` sends its signal to the program and to its process group.
#[test]
fn signals_at_once_are_one_stop() {
    let fake = "touch \"$RUN_DIR/up-$RANK\"; until grep -qs stop \"$RUN_DIR/control\"; do sleep 0.1; done; sleep 2; finish stopped";
    let (answer, _) = stop(fake, 2, Duration::from_millis(20));
    assert_eq!(answer.json()["reason"], "Stopped on request");
}

/// Sets how large a file a process may make. A file that is that large takes no byte more, as on a full disk.
pub fn limit_files(pid: u32, bytes: &str) {
    let mut prlimit = std::process::Command::new("prlimit");
    prlimit.arg("--pid").arg(pid.to_string()).arg(format!("--fsize={bytes}:unlimited"));
    assert!(prlimit.status().expect("prlimit runs").success(), "{prlimit:?}");
}

/// All records of the only log of a launcher, whose lines must all be some.
fn launcher_records(shop: &Workshop) -> Vec<Record> {
    let logs = RunFolder::of(&shop.run_folder()).launcher_logs();
    let all = read_all(logs.first().expect("a log")).expect("read");
    assert_eq!(all.unreadable, 0);
    all.records
}

#[test]
fn a_run_goes_on_when_its_launcher_can_not_write() {
    let shop = Workshop::new();
    let fake = "touch \"$RUN_DIR/up-$RANK\"; wait_for() { until [ -e \"$RUN_DIR/$1\" ]; do sleep 0.05; done; }; \
                wait_for full; echo unheard; wait_for free; echo heard; finish completed";
    let mut command = shop.shardplan();
    command.args(["run", "tiny.json", "--json"]).env("FAKE", fake);
    let mut child = Ended(command.spawn().expect("started"));
    let (said, hearing) = (Arc::<Mutex<String>>::default(), child.0.stderr.take().expect("a pipe"));
    let heard = said.clone();
    let listener = std::thread::spawn(move || {
        for line in BufReader::new(hearing).lines().map_while(Result::ok) {
            *heard.lock().expect("unspoiled") += &(line + "\n");
        }
    });
    let folder = shop.run_folder();
    wait_for("all ranks", || (0..4).all(|rank| folder.join(format!("up-{rank}")).exists()).then_some(()));
    wait_for("their start", || (launcher_records(&shop).len() == 4).then_some(()));
    limit_files(child.0.id(), "1");
    shop.write(&format!("{}/full", folder.display()), "");
    let told = || said.lock().expect("unspoiled").clone();
    wait_for("a word", || told().contains("can't be written (File too large").then_some(()));
    limit_files(child.0.id(), "unlimited");
    shop.write(&format!("{}/free", folder.display()), "");
    let code = wait_for("the end", || child.0.try_wait().expect("asked")).code();
    listener.join().expect("all is said");
    assert_eq!(code, Some(0), "{}", told());

    let records = launcher_records(&shop);
    let gaps = records.iter().filter_map(|record| match &record.event {
        Event::Gap(gap) => Some(gap.records),
        _ => None,
    });
    let missing: u64 = gaps.sum();
    assert!(missing > 0 && told().contains(&format!("{missing} record")), "{missing}: {}", told());
    assert_eq!(records.last().map(|record| record.seq + 1), Some(records.len() as u64 + missing));
    assert!(matches!(
        records.last(),
        Some(Record { event: Event::Ended { outcome: Outcome::Completed, .. }, .. })
    ));
    let heard = records
        .iter()
        .filter(|record| matches!(&record.event, Event::Output { text, .. } if text == "heard"));
    assert_eq!(heard.count(), 4);
    let mut json = String::new();
    std::io::Read::read_to_string(&mut child.0.stdout.take().expect("a pipe"), &mut json).expect("read");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["missing"]["records"], missing);
}

#[test]
fn a_run_whose_end_nobody_could_record_is_judged_by_its_exit_codes() {
    let shop = Workshop::new();
    // A disk that takes no byte into the launcher's log nor into a rank's, from the start of the ranks on.
    let fake =
        "touch \"$RUN_DIR/up-$RANK\"; until [ -e \"$RUN_DIR/full\" ]; do sleep 0.05; done; echo unheard";
    let mut command = shop.shardplan();
    command.args(["run", "tiny.json", "--json"]).env("FAKE", fake);
    let mut child = Ended(command.spawn().expect("started"));
    let folder = shop.run_folder();
    wait_for("all ranks", || (0..4).all(|rank| folder.join(format!("up-{rank}")).exists()).then_some(()));
    limit_files(child.0.id(), "1");
    shop.write(&format!("{}/full", folder.display()), "");
    let code = wait_for("the end", || child.0.try_wait().expect("asked")).code();
    assert_eq!(code, Some(0));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.0.stderr.take().expect("a pipe"), &mut said).expect("read");
    assert!(said.contains("could not be recorded") && said.contains("missing: File too large"), "{said}");
}

#[test]
fn what_is_missing_is_said_before_anything_is_made() {
    let check = |prepare: &dyn Fn(&Workshop), expected: &[&str]| {
        let shop = Workshop::new();
        prepare(&shop);
        let answer = shop.run("finish completed");
        assert_eq!(answer.code, Some(3), "{answer:?}");
        for part in expected {
            assert!(answer.stderr.contains(part), "{part:?} in {answer:?}");
        }
        assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
        assert!(!shop.path("runs").exists());
    };
    check(&|shop| shop.python(""), &["torch 2.11 is needed", "has no torch", "--torch PYTHON"]);
    check(&|shop| shop.python("2.5.1"), &["has torch 2.5.1", "cargo xtask run"]);
    check(&|shop| std::fs::remove_file(shop.path("fake-python")).expect("removed"), &["can't be asked"]);
    check(&|shop| std::fs::remove_file(shop.path("fake-rank")).expect("removed"), &["no rank binary at"]);
    check(
        &|shop| shop.program("fake-rank", "#!/bin/sh\necho 'libtorch.so: not found' >&2; exit 127\n"),
        &["libtorch.so: not found"],
    );
}

#[test]
fn plans_that_this_machine_can_not_hold() {
    let check = |plan: &str, expected: &str| {
        let shop = Workshop::new();
        shop.write("tiny.json", plan);
        let answer = shop.run("finish completed");
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(answer.json()["findings"].to_string().contains(expected), "{answer:?}");
        assert!(!shop.path("runs").exists());
    };
    check(
        r#"{"version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu", "nodes": 16, "gpus_per_node": 8},
            "training": {"global_batch_size": 128}}"#,
        "at most 64 ranks",
    );
    if std::fs::read_dir("/proc/driver/nvidia/gpus").is_err() {
        let cluster = r#"{"version": 1, "model": {"preset": "llama-3-70b"}, "cluster": {"gpu": "h100-sxm", "nodes": 8},
            "layout": {"tp": 8, "pp": 4}, "training": {"global_batch_size": 64}}"#;
        check(cluster, "this plan needs 64 H100 SXM");
        check(cluster, "and this machine has no GPU");
        check(cluster, "`shardplan verify`");
        check(cluster, "`shardplan script`");
        check(
            r#"{"version": 1, "model": {"preset": "llama-3-70b"}, "cluster": {"gpu": "cpu", "gpus_per_node": 8},
                "layout": {"tp": 8}, "training": {"global_batch_size": 8}}"#,
            "GiB, and this machine has",
        );
    }
}
