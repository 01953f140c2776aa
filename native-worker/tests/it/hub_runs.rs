//! Runs seen through the hub: replayed, live, started, stopped, and after the hub was killed.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use planner::wire::{
    Event, LogRecord, Outcome, PlanFile, ProcessId, RunInfo, RunState, RunSummary, ToHub, ToPage,
    encode_record,
};

use crate::hub::{Hub, Socket, next, send};
use crate::support::{TINY, Workshop, log, step, wait_for};

fn tiny() -> PlanFile {
    planner::parse_plan(TINY).expect("a plan")
}

/// A run folder as a launcher that is gone left it.
fn prepare(shop: &Workshop, id: &str, logs: &[(&str, &str)]) {
    prepare_with(shop, id, None, logs);
}

/// The same; with a number, of a Slurm job.
fn prepare_with(shop: &Workshop, id: &str, slurm_job: Option<&str>, logs: &[(&str, &str)]) {
    let launcher = ProcessId { pid: 1, start_ticks: 1, boot_id: "another".to_owned() };
    let info = RunInfo {
        version: 1,
        id: id.to_owned(),
        name: "tiny".to_owned(),
        user: "user".to_owned(),
        host: "elsewhere".to_owned(),
        started_unix_ms: 1,
        command: Vec::new(),
        versions: [].into(),
        launcher: slurm_job.is_none().then_some(launcher),
        slurm_job: slurm_job.map(str::to_owned),
        world_size: 2,
        attempts: 1,
        source: None,
    };
    let folder = format!("runs/{id}");
    shop.write(&format!("{folder}/plan.json"), TINY);
    shop.write(&format!("{folder}/run.json"), &serde_json::to_string(&info).expect("JSON"));
    for (name, text) in logs {
        shop.write(&format!("{folder}/{name}"), text);
    }
}

async fn runs(socket: &mut Socket) -> Vec<RunSummary> {
    send(socket, &ToHub::ListRuns).await;
    loop {
        if let Some(ToPage::Runs { runs }) = next(socket).await {
            return runs;
        }
    }
}

/// Waits until the list shows this run in a state that is good.
pub async fn wait_state(socket: &mut Socket, id: &str, good: impl Fn(RunState) -> bool) -> RunSummary {
    let deadline = Instant::now() + Duration::from_secs(40);
    let mut list = runs(socket).await;
    loop {
        if let Some(run) = list.iter().find(|run| run.info.id == id).filter(|run| good(run.state)) {
            return run.clone();
        }
        assert!(Instant::now() < deadline, "{list:?}");
        list = loop {
            match next(socket).await {
                Some(ToPage::Runs { runs }) => break runs,
                Some(_) => {}
                None => panic!("closed"),
            }
        };
    }
}

/// Records of a run until `enough`.
async fn records(
    socket: &mut Socket,
    id: &str,
    enough: impl Fn(&[LogRecord], bool) -> bool,
) -> Vec<LogRecord> {
    send(socket, &ToHub::Watch { run: id.to_owned() }).await;
    let mut all = Vec::new();
    loop {
        match next(socket).await {
            Some(ToPage::Records { run, records, caught_up, merged }) => {
                assert_eq!((run.as_str(), merged), (id, 0));
                all.extend(records);
                if enough(&all, caught_up) {
                    return all;
                }
            }
            Some(ToPage::Runs { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn steps(records: &[LogRecord], log: &str) -> Vec<u64> {
    let of_log = records.iter().filter(|record| record.log == log);
    let number = |record: &LogRecord| match &record.record.event {
        Event::Step(step) => Some(step.step),
        _ => None,
    };
    of_log.filter_map(number).collect()
}

fn append(path: &Path, text: &str) {
    let mut file = std::fs::File::options().create(true).append(true).open(path).expect("a log");
    file.write_all(text.as_bytes()).expect("written");
}

#[tokio::test]
async fn a_run_on_disk_is_replayed_then_followed() {
    let shop = Workshop::new();
    let many: Vec<Event> = (1..=3000).map(step).collect();
    let end = Event::Ended { outcome: Outcome::Failed, reason: "Rank 1 was killed".to_owned() };
    prepare(
        &shop,
        "20260101T000000Z-a",
        &[("rank-00000.log", &log(&many)), ("rank-00001.log", &log(&many)), ("launcher-x.log", &log(&[end]))],
    );
    prepare(&shop, "20260102T000000Z-b", &[]);
    shop.write("runs/not-a-run/file", "");
    let hub = Hub::start(&shop);
    let mut socket = hub.open().await;
    let list = runs(&mut socket).await;
    let ids: Vec<&str> = list.iter().map(|run| run.info.id.as_str()).collect();
    assert_eq!(ids, ["20260102T000000Z-b", "20260101T000000Z-a"], "newest first");
    assert_eq!((list[1].state, list[1].reason.as_str()), (RunState::Failed, "Rank 1 was killed"));

    let all = records(&mut socket, "20260101T000000Z-a", |_, caught_up| caught_up).await;
    for name in ["rank-00000.log", "rank-00001.log"] {
        assert_eq!(steps(&all, name), (1..=3000).collect::<Vec<u64>>(), "{name}");
    }
    assert!(all.iter().any(|record| record.log == "launcher-x.log"));

    // Then live, through a line that comes in two pieces and one that is spoiled.
    let path = shop.path("runs/20260101T000000Z-a/rank-00000.log");
    let line = |number| log(&[step(number)]);
    let torn = line(3002);
    append(&path, &format!("{}{}", line(3001), &torn[..20]));
    let wait_step = async |socket: &mut Socket, wanted: u64| loop {
        if let Some(ToPage::Records { records, caught_up, .. }) = next(socket).await {
            let found = steps(&records, "rank-00000.log");
            assert!(caught_up);
            if !found.is_empty() {
                assert_eq!(found, [wanted]);
                return;
            }
        }
    };
    wait_step(&mut socket, 3001).await;
    append(&path, &torn[20..]);
    wait_step(&mut socket, 3002).await;
    append(&path, &format!("{}{}", line(3003).replace("loss", "less"), line(3004)));
    wait_step(&mut socket, 3004).await;

    send(&mut socket, &ToHub::Unwatch { run: "20260101T000000Z-a".to_owned() }).await;
}

#[tokio::test]
async fn a_run_is_started_watched_and_stopped_and_outlives_its_hub() {
    let shop = Workshop::new();
    let fake = "finish one; until grep -qs stop \"$RUN_DIR/control\"; do sleep 0.1; done; finish stopped";
    shop.write("one", &log(&[step(1)]));
    let hub = Hub::start_with(&shop, &[], fake);
    let mut socket = hub.open().await;
    send(&mut socket, &ToHub::Start { plan: Box::new(tiny()) }).await;
    let id = match next(&mut socket).await {
        Some(ToPage::Started { run }) => run,
        other => panic!("{other:?}"),
    };
    wait_state(&mut socket, &id, |state| state == RunState::Running).await;
    let seen = records(&mut socket, &id, |all, _| {
        (0..4).all(|rank| !steps(all, &format!("rank-{rank:05}.log")).is_empty())
    });
    seen.await;
    hub.kill();

    let hub = Hub::start_with(&shop, &[], fake);
    let mut socket = hub.open().await;
    let run = wait_state(&mut socket, &id, |state| state == RunState::Running).await;
    assert_eq!(run.info.world_size, 4);
    let seen = records(&mut socket, &id, |_, caught_up| caught_up).await;
    assert_eq!(steps(&seen, "rank-00000.log"), [1], "the whole run, from disk");
    send(&mut socket, &ToHub::Stop { run: id.clone() }).await;
    let run = wait_state(&mut socket, &id, |state| state != RunState::Running).await;
    assert_eq!((run.state, run.reason.as_str()), (RunState::Stopped, "Stopped on request"));
}

#[tokio::test]
async fn what_is_missing_reaches_the_page() {
    let shop = Workshop::new();
    shop.python("2.5.1");
    let hub = Hub::start(&shop);
    let mut socket = hub.open().await;
    send(&mut socket, &ToHub::Start { plan: Box::new(tiny()) }).await;
    match next(&mut socket).await {
        Some(ToPage::Error { message }) => assert!(message.contains("torch 2.5.1"), "{message}"),
        other => panic!("{other:?}"),
    }
    assert!(runs(&mut socket).await.is_empty());
}

#[tokio::test]
async fn a_launcher_that_was_killed_is_told_from_one_that_runs() {
    let shop = Workshop::new();
    // Rank 3 does not look at the control file, but listens to SIGTERM.
    let fake = "trap 'finish stopped; exit 0' TERM; until [ $RANK != 3 ] && grep -qs stop \"$RUN_DIR/control\"; do \
                sleep 0.1; done; finish stopped";
    let hub = Hub::start_with(&shop, &[], fake);
    let mut socket = hub.open().await;
    send(&mut socket, &ToHub::Start { plan: Box::new(tiny()) }).await;
    let Some(ToPage::Started { run }) = next(&mut socket).await else { panic!("not started") };
    let found = wait_state(&mut socket, &run, |state| state == RunState::Running).await;
    let launcher = found.info.launcher.expect("a launcher");
    let pid = nix::unistd::Pid::from_raw(launcher.pid.try_into().expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
    let found = wait_state(&mut socket, &run, |state| state != RunState::Running).await;
    assert_eq!(found.state, RunState::Lost, "{}", found.reason);
    assert!(found.reason.contains(&launcher.pid.to_string()), "{}", found.reason);
    // Its ranks are still there: three read the control file, the last is found and told.
    send(&mut socket, &ToHub::Stop { run: run.clone() }).await;
    let found = wait_state(&mut socket, &run, |state| state != RunState::Lost).await;
    assert_eq!(found.state, RunState::Stopped, "{}", found.reason);
    let last = shop.path(&format!("runs/{run}/rank-00003.log"));
    wait_for("the last rank's end", || last.exists().then_some(()));
}

#[tokio::test]
async fn a_viewer_that_does_not_read_delays_nobody() {
    let shop = Workshop::new();
    prepare(&shop, "20260101T000000Z-a", &[("rank-00000.log", &log(&[step(1)]))]);
    let hub = Hub::start(&shop);
    let mut slow = hub.open().await;
    send(&mut slow, &ToHub::Watch { run: "20260101T000000Z-a".to_owned() }).await;
    let mut quick = hub.open().await;
    records(&mut quick, "20260101T000000Z-a", |_, caught_up| caught_up).await;
    // Some 30 MB, more than the sockets' buffers hold, while the slow viewer reads nothing.
    let padding = Event::Output { rank: 0, stream: "stdout".to_owned(), text: "x".repeat(4000) };
    let record = planner::wire::Record { seq: 0, unix_ms: 0, event: padding };
    let lines = encode_record(&record).repeat(7500);
    let last = log(&[step(2)]);
    append(&shop.path("runs/20260101T000000Z-a/rank-00000.log"), &format!("{lines}{last}"));
    let start = Instant::now();
    let mut found = 0;
    while found < 7501 {
        if let Some(ToPage::Records { records, .. }) = next(&mut quick).await {
            found += records.len();
        }
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    // And the slow one finds everything once it reads.
    let mut found = 0;
    while found < 7502 {
        if let Some(ToPage::Records { records, merged, .. }) = next(&mut slow).await {
            assert_eq!(merged, 0, "nothing of rank 0 is left out");
            found += records.len();
        }
    }
}

#[tokio::test]
async fn a_slurm_job_is_asked_about_and_cancelled() {
    let shop = Workshop::new();
    prepare_with(&shop, "20260101T000000Z-slurm-42", Some("42"), &[("rank-00000.log", &log(&[step(1)]))]);
    prepare_with(&shop, "20260102T000000Z-slurm-43", Some("43"), &[("rank-00000.log", &log(&[step(1)]))]);
    prepare_with(&shop, "20260103T000000Z-slurm-evil", Some("44; touch pwned"), &[]);
    // Job 42 runs until it is cancelled; Slurm has forgotten 43.
    let cancelled = shop.path("cancelled");
    shop.program("bin/scancel", &format!("#!/bin/sh\necho \"$1\" > {}\n", cancelled.display()));
    shop.program(
        "bin/squeue",
        &format!(
            "#!/bin/sh\ncase \"$*\" in *42) [ -e {} ] || echo RUNNING ;; *) echo 'slurm_load_jobs error: Invalid job id \
             specified' >&2; exit 1 ;; esac\n",
            cancelled.display()
        ),
    );
    let hub = Hub::start(&shop);
    let mut socket = hub.open().await;
    let list = runs(&mut socket).await;
    let states: Vec<RunState> = list.iter().map(|run| run.state).collect();
    assert_eq!(states, [RunState::Running, RunState::Lost, RunState::Running]);
    assert!(list[1].reason.contains("sacct -j 43"), "{}", list[1].reason);
    for id in ["20260101T000000Z-slurm-42", "20260103T000000Z-slurm-evil"] {
        send(&mut socket, &ToHub::Stop { run: id.to_owned() }).await;
    }
    let run = wait_state(&mut socket, "20260101T000000Z-slurm-42", |state| state == RunState::Stopped).await;
    assert!(run.reason.starts_with("Stopped on request"), "{}", run.reason);
    assert_eq!(std::fs::read_to_string(cancelled).expect("cancelled").trim(), "42");
    assert!(!shop.path("pwned").exists());
}
