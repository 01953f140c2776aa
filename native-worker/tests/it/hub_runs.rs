//! Runs seen through the hub: replayed, live, started, stopped, and after the hub was killed.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use planner::wire::{
    Event, GoingOn, LogRecord, Outcome, PlanFile, ProcessId, RunInfo, RunState, RunSummary, ToHub, ToPage,
    encode_record,
};

use crate::hub::{Hub, Socket, next, send};
use crate::support::{PATIENCE, TINY, Workshop, log, step, wait_for};
use run_folder::RunFolder;

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
        slurm_cluster: slurm_job.map(|_| "left".to_owned()),
        world_size: 2,
        attempts: 1,
        going_on: GoingOn::STOP,
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
    wait_run(socket, id, |run| good(run.state)).await
}

/// Waits until the list shows this run as wanted.
async fn wait_run(socket: &mut Socket, id: &str, good: impl Fn(&RunSummary) -> bool) -> RunSummary {
    let deadline = Instant::now() + PATIENCE;
    let mut list = runs(socket).await;
    loop {
        if let Some(run) = list.iter().find(|run| run.info.id == id).filter(|run| good(run)) {
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
            Some(ToPage::Records { run, records, caught_up, merged, .. }) => {
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
    send(&mut socket, &ToHub::Start { plan: Box::new(tiny()), going_on: GoingOn::STOP }).await;
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
    send(&mut socket, &ToHub::Start { plan: Box::new(tiny()), going_on: GoingOn::STOP }).await;
    match next(&mut socket).await {
        Some(ToPage::Error { message }) => assert!(message.contains("torch 2.5.1"), "{message}"),
        other => panic!("{other:?}"),
    }
    assert!(runs(&mut socket).await.is_empty());
}

#[tokio::test]
async fn a_launcher_that_was_killed_is_told_from_one_that_runs() {
    let shop = Workshop::new();
    // Ranks that go on when the launcher is gone, and of which one does not even look at the control file.
    let fake = "trap 'finish stopped; exit 0' TERM; touch \"$FAKE_LOGS/up-$RANK\"; \
                until [ $RANK != 3 ] && grep -qs stop \"$RUN_DIR/control\"; do sleep 0.1; done; finish stopped";
    let hub = Hub::start_with(&shop, &[], fake);
    let mut socket = hub.open().await;
    send(&mut socket, &ToHub::Start { plan: Box::new(tiny()), going_on: GoingOn::STOP }).await;
    let Some(ToPage::Started { run }) = next(&mut socket).await else { panic!("not started") };
    let found = wait_state(&mut socket, &run, |state| state == RunState::Running).await;
    let launcher = found.info.launcher.expect("a launcher");
    // A launcher that is killed sooner leaves fewer ranks.
    wait_for("all ranks", || (0..4).all(|rank| shop.path(&format!("up-{rank}")).exists()).then_some(()));
    let pid = nix::unistd::Pid::from_raw(launcher.pid.try_into().expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
    let found = wait_run(&mut socket, &run, |run| !run.reason.is_empty()).await;
    assert_eq!(found.state, RunState::Running, "{}", found.reason);
    let gone = format!("The launcher (process {} on", launcher.pid);
    assert!(
        found.reason.starts_with(&gone) && found.reason.contains("of its ranks are still there"),
        "{}",
        found.reason
    );
    // They are found and told.
    send(&mut socket, &ToHub::Stop { run: run.clone() }).await;
    let found = wait_state(&mut socket, &run, |state| state != RunState::Running).await;
    assert_eq!(found.state, RunState::Stopped, "{}", found.reason);
    // By a signal that lets it: one that is killed writes none.
    let last = shop.path(&format!("runs/{run}/rank-00003.log"));
    wait_for("the last rank's end", || last.exists().then_some(()));
}

#[tokio::test]
async fn ranks_learn_that_their_launcher_is_gone() {
    let shop = Workshop::new();
    let reason = "the launcher is gone; all ranks ended after 3 of 9 steps";
    let end = Event::Ended { outcome: Outcome::Failed, reason: reason.to_owned() };
    shop.write("gone", &log(&[step(1), end]));
    // Standard input ends with the launcher; the step takes its time.
    let fake = "cat > /dev/null; sleep 2; finish gone; exit 1";
    let hub = Hub::start_with(&shop, &[], fake);
    let mut socket = hub.open().await;
    send(&mut socket, &ToHub::Start { plan: Box::new(tiny()), going_on: GoingOn::STOP }).await;
    let Some(ToPage::Started { run }) = next(&mut socket).await else { panic!("not started") };
    let found = wait_state(&mut socket, &run, |state| state == RunState::Running).await;
    let launcher = found.info.launcher.expect("a launcher");
    let up = shop.path(&format!("runs/{run}"));
    wait_for("all ranks", || {
        let logs = RunFolder::of(&up).launcher_logs();
        let text: String = logs.iter().filter_map(|log| std::fs::read_to_string(log).ok()).collect();
        (text.matches("\"event\":\"started\"").count() == 4).then_some(())
    });
    let pid = nix::unistd::Pid::from_raw(launcher.pid.try_into().expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
    let found = wait_run(&mut socket, &run, |run| !run.reason.is_empty()).await;
    assert_eq!(found.state, RunState::Running, "{}", found.reason);
    let found = wait_state(&mut socket, &run, |state| state != RunState::Running).await;
    assert_eq!(found.state, RunState::Failed, "{}", found.reason);
    assert_eq!(found.reason, reason.replacen('t', "T", 1));
}

#[tokio::test]
async fn what_a_log_lacks_reaches_the_page() {
    let shop = Workshop::new();
    let gap = planner::wire::Gap {
        records: 3,
        first_step: Some(2),
        last_step: Some(4),
        since_unix_ms: 7,
        reason: "the disk is full".to_owned(),
    };
    let whole = log(&[step(1), Event::Gap(gap.clone()), step(5)]);
    let torn = format!("{}\n{}", &whole[..whole.len() / 4], &whole[..]);
    prepare(&shop, "20260101T000000Z-a", &[("rank-00000.log", &torn)]);
    let hub = Hub::start(&shop);
    let mut socket = hub.open().await;
    send(&mut socket, &ToHub::Watch { run: "20260101T000000Z-a".to_owned() }).await;
    let Some(ToPage::Records { records, unreadable, .. }) = next(&mut socket).await else {
        panic!("no records")
    };
    assert_eq!(unreadable, 1);
    assert!(records.iter().any(|record| record.record.event == Event::Gap(gap.clone())), "{records:?}");
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
    let mut found = 0;
    while found < 7501 {
        if let ToPage::Records { records, .. } = next(&mut quick).await.expect("an open socket") {
            found += records.len();
        }
    }
    // And the slow one finds everything once it reads: nobody had to wait until the hub gave it up.
    let mut found = 0;
    while found < 7502 {
        if let ToPage::Records { records, merged, .. } = next(&mut slow).await.expect("an open socket") {
            assert_eq!(merged, 0, "nothing of rank 0 is left out");
            found += records.len();
        }
    }
}

/// Slurm's programs as a cluster of this name has them: job 42 runs until it is cancelled and is this user's, job 44
/// runs and is another's, all others are forgotten. What is cancelled is written down.
fn slurm(shop: &Workshop, cluster: &str) -> std::path::PathBuf {
    let cancelled = shop.path("cancelled");
    let shown = cancelled.display();
    shop.program("bin/scontrol", &format!("#!/bin/sh\necho 'ClusterName             = {cluster}'\n"));
    shop.program("bin/scancel", &format!("#!/bin/sh\necho \"$1\" >> {shown}\n"));
    shop.program(
        "bin/squeue",
        &format!(
            "#!/bin/sh\ncase \"$*\" in\n*42) [ -e {shown} ] && exit; owner=$(id -u) ;;\n*44) owner=12345 ;;\n*) echo \
             'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;\nesac\ncase \"$*\" in *%U*) echo \"$owner\" \
             ;; *) echo RUNNING ;; esac\n"
        ),
    );
    cancelled
}

#[tokio::test]
async fn a_slurm_job_is_asked_about_and_cancelled() {
    let shop = Workshop::new();
    prepare_with(&shop, "20260101T000000Z-slurm-42", Some("42"), &[("rank-00000.log", &log(&[step(1)]))]);
    prepare_with(&shop, "20260102T000000Z-slurm-43", Some("43"), &[("rank-00000.log", &log(&[step(1)]))]);
    prepare_with(&shop, "20260103T000000Z-slurm-evil", Some("44; touch pwned"), &[]);
    let cancelled = slurm(&shop, "left");
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

/// What the hub says instead of doing what it is asked.
async fn complaint(socket: &mut Socket, request: &ToHub) -> String {
    send(socket, request).await;
    loop {
        match next(socket).await {
            Some(ToPage::Error { message }) => return message,
            Some(ToPage::Runs { .. } | ToPage::Records { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// What the hub says instead of stopping this run.
async fn not_stopped(socket: &mut Socket, run: &str) -> String {
    complaint(socket, &ToHub::Stop { run: run.to_owned() }).await
}

#[tokio::test]
async fn no_job_of_another_cluster_or_user_is_cancelled() {
    // Job 42 is this user's here, but the run is of another cluster.
    let shop = Workshop::new();
    prepare_with(&shop, "20260101T000000Z-slurm-42", Some("42"), &[]);
    prepare_with(&shop, "20260102T000000Z-slurm-44", Some("44"), &[]);
    let check = async |cluster: &str, run: &str, expected: &[&str]| {
        let cancelled = slurm(&shop, cluster);
        let hub = Hub::start(&shop);
        let said = not_stopped(&mut hub.open().await, run).await;
        for part in expected {
            assert!(said.contains(part), "{part:?} in {said}");
        }
        assert!(!cancelled.exists(), "{said}");
    };
    let away = check("right", "20260101T000000Z-slurm-42", &["of the cluster \"left\"", "this is \"right\""]);
    away.await;
    check("left", "20260102T000000Z-slurm-44", &["Job 44 belongs to user 12345"]).await;
    let path = shop.path("runs/20260101T000000Z-slurm-42/run.json");
    let text = std::fs::read_to_string(&path).expect("read").replace("\"slurm_cluster\":\"left\",", "");
    std::fs::write(&path, text).expect("written");
    check("left", "20260101T000000Z-slurm-42", &["does not say of which cluster its job 42 is"]).await;
}

#[tokio::test]
async fn a_copied_run_stops_nobody() {
    let shop = Workshop::new();
    let fake = "finish one; until grep -qs stop \"$RUN_DIR/control\"; do sleep 0.1; done; finish stopped";
    shop.write("one", &log(&[step(1)]));
    let hub = Hub::start_with(&shop, &[], fake);
    let mut socket = hub.open().await;
    send(&mut socket, &ToHub::Start { plan: Box::new(tiny()), going_on: GoingOn::STOP }).await;
    let Some(ToPage::Started { run }) = next(&mut socket).await else { panic!("not started") };
    let found = wait_state(&mut socket, &run, |state| state == RunState::Running).await;
    let launcher = found.info.launcher.expect("a launcher");
    let copied = std::process::Command::new("cp")
        .args(["-r", &run, "29990101T000000Z-copy"])
        .current_dir(shop.path("runs"))
        .status();
    assert!(copied.expect("cp is there").success());
    let said = not_stopped(&mut socket, "29990101T000000Z-copy").await;
    assert!(said.contains(&format!("process {} runs, but is not", launcher.pid)), "{said}");
    // Somewhere that others may write, nothing is believed.
    let original = shop.path(&format!("runs/{run}"));
    let set = |mode| std::fs::set_permissions(&original, std::os::unix::fs::PermissionsExt::from_mode(mode));
    set(0o777).expect("set");
    let said = not_stopped(&mut socket, &run).await;
    assert!(said.contains("others may write into"), "{said}");
    set(0o700).expect("set");
    assert!(!original.join("control").exists(), "nobody was asked");
    send(&mut socket, &ToHub::Stop { run: run.clone() }).await;
    wait_state(&mut socket, &run, |state| state == RunState::Stopped).await;
}

#[tokio::test]
async fn what_is_no_run_of_ours_is_left_out_and_named() {
    let shop = Workshop::new();
    prepare(&shop, "20260101T000000Z-a", &[("rank-00000.log", &log(&[step(1)]))]);
    let folder = |id: &str| shop.path(&format!("runs/{id}"));
    // A whole run, but elsewhere; one whose log is elsewhere; pipes and a device, at which a reader would wait.
    std::os::unix::fs::symlink(folder("20260101T000000Z-a"), folder("20260102T000000Z-link"))
        .expect("a link");
    prepare(&shop, "20260103T000000Z-log", &[]);
    let secret = shop.write("secret", &log(&[step(7)]));
    std::os::unix::fs::symlink(&secret, folder("20260103T000000Z-log").join("rank-00000.log"))
        .expect("a link");
    std::fs::hard_link(&secret, folder("20260103T000000Z-log").join("rank-00001.log")).expect("a link");
    let pipe = |path: &Path| {
        let _ = std::fs::remove_file(path);
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    };
    prepare(&shop, "20260104T000000Z-pipe", &[]);
    pipe(&folder("20260104T000000Z-pipe").join("run.json"));
    for name in ["rank-00002.log", "launcher-x.log", "control"] {
        pipe(&folder("20260103T000000Z-log").join(name));
    }
    let hub = Hub::start(&shop);
    let mut socket = hub.open().await;
    let ids: Vec<String> = runs(&mut socket).await.into_iter().map(|run| run.info.id).collect();
    assert_eq!(ids, ["20260103T000000Z-log", "20260101T000000Z-a"]);
    for (id, expected) in [
        ("20260102T000000Z-link", "is a symbolic link"),
        ("20260104T000000Z-pipe", "run.json is a named pipe"),
    ] {
        for request in [ToHub::Watch { run: id.to_owned() }, ToHub::Stop { run: id.to_owned() }] {
            let said = complaint(&mut socket, &request).await;
            assert!(said.contains(expected), "{said}");
        }
    }
    assert!(shop.ask(&["calibrate", "runs/20260104T000000Z-pipe"]).stderr.contains("named pipe"));
    let seen = records(&mut socket, "20260103T000000Z-log", |_, caught_up| caught_up).await;
    assert!(seen.is_empty(), "what a link leads to is not shown: {seen:?}");
}
