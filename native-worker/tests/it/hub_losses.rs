//! Runs that a hub starts to go on after failures: what may be asked for, a rank that is taken for lost, and the way back.

use planner::wire::{Event, GoingOn, OnFailure, PlanFile, Recovering, RunState, ToHub, ToPage};

use crate::hub::{Hub, Socket, next, send};
use crate::hub_runs::wait_state;
use crate::support::{TINY, Workshop, read_log, wait_for};
use run_folder::{INFO, RunFolder};

/// Ranks that stand until somebody ends one or stops the run. The others of one that was ended follow it, as ranks do.
const STANDS: &str = "touch \"$FAKE_LOGS/up-${TORCHELASTIC_RESTART_COUNT:-0}-$RANK\"; \
    until grep -qs stop \"$RUN_DIR/control\"; do sleep 0.05; done; finish stopped";

fn saving() -> PlanFile {
    let text = TINY.replace(r#""steps": 3"#, r#""steps": 3, "checkpoint": {"every_steps": 1}"#);
    planner::parse_plan(&text).expect("a plan")
}

fn ntp() -> GoingOn {
    GoingOn { on_failure: OnFailure::Ntp, ..GoingOn::STOP }
}

async fn ask_to_start(socket: &mut Socket, plan: PlanFile, going_on: GoingOn) -> Result<String, String> {
    send(socket, &ToHub::Start { plan: Box::new(plan), going_on }).await;
    loop {
        match next(socket).await {
            Some(ToPage::Started { run }) => return Ok(run),
            Some(ToPage::Error { message }) => return Err(message),
            Some(_) => {}
            None => panic!("closed"),
        }
    }
}

/// What the hub says to a request that it does not meet.
async fn refused(socket: &mut Socket, request: &ToHub) -> String {
    send(socket, request).await;
    loop {
        match next(socket).await {
            Some(ToPage::Error { message }) => return message,
            Some(_) => {}
            None => panic!("closed"),
        }
    }
}

/// The ids of the runs that are there: the hub has a file of its own beside them.
fn runs(shop: &Workshop) -> Vec<String> {
    let entries = std::fs::read_dir(shop.path("runs")).into_iter().flatten().flatten();
    let run = |entry: std::fs::DirEntry| {
        entry.path().join(INFO).exists().then(|| entry.file_name().to_string_lossy().into_owned())
    };
    entries.filter_map(run).collect()
}

fn recoveries(shop: &Workshop, run: &str) -> Vec<Recovering> {
    let logs = RunFolder::of(&shop.path(&format!("runs/{run}"))).launcher_logs();
    let of = |event| if let Event::Recovering(began) = event { Some(began) } else { None };
    read_log(logs.first().expect("a log of the launcher")).into_iter().filter_map(of).collect()
}

fn wait_up(shop: &Workshop, attempt: u64, ranks: &[u64]) {
    let up = |rank: &u64| shop.path(&format!("up-{attempt}-{rank}")).exists();
    wait_for("the ranks", || ranks.iter().all(up).then_some(()));
}

#[tokio::test]
async fn a_rank_that_is_marked_dead_is_lost_and_the_run_goes_on_and_returns_to_its_whole_plan() {
    let shop = Workshop::new();
    let hub = Hub::start_with(&shop, &[], STANDS);
    let mut socket = hub.open().await;
    let run = ask_to_start(&mut socket, saving(), ntp()).await.expect("started");
    let found = wait_state(&mut socket, &run, |state| state == RunState::Running).await;
    assert_eq!(found.info.going_on, ntp());
    assert!(found.info.was_started_by_a_hub(), "{:?}", found.info);
    wait_up(&shop, 0, &[0, 1, 2, 3]);
    let whole = ToHub::ReturnToWhole { run: run.clone() };
    let said = refused(&mut socket, &whole).await;
    assert!(said.contains("it has lost nothing"), "{said}");
    let said = refused(&mut socket, &ToHub::MarkDead { run: run.clone(), rank: 4 }).await;
    assert!(said.contains("Rank 4 of run") && said.contains("no such rank"), "{said}");

    send(&mut socket, &ToHub::MarkDead { run: run.clone(), rank: 1 }).await;
    wait_up(&shop, 1, &[0, 2, 3]);
    let began = recoveries(&shop, &run);
    assert!(began.len() == 1 && began[0].dead == [1], "{began:?}");
    assert_eq!((began[0].policy, began[0].world_size, began[0].dp), (OnFailure::Ntp, 3, 2));
    // The rank is lost, and not a process of another start.
    let said = refused(&mut socket, &ToHub::MarkDead { run: run.clone(), rank: 1 }).await;
    assert!(said.contains("no such rank"), "{said}");

    send(&mut socket, &whole).await;
    wait_up(&shop, 2, &[0, 1, 2, 3]);
    let began = recoveries(&shop, &run);
    assert!(began.len() == 2 && began[1].dead.is_empty() && began[1].world_size == 4, "{began:?}");
    let said = refused(&mut socket, &whole).await;
    assert!(said.contains("it has lost nothing"), "{said}");
    send(&mut socket, &ToHub::Stop { run: run.clone() }).await;
    wait_state(&mut socket, &run, |state| state == RunState::Stopped).await;
    for request in [whole, ToHub::MarkDead { run: run.clone(), rank: 0 }] {
        let said = refused(&mut socket, &request).await;
        assert!(said.contains("does not run") || said.contains("has ended"), "{said}");
    }
}

#[tokio::test]
async fn a_run_that_ends_on_a_failure_ends_when_a_rank_is_marked_dead() {
    let shop = Workshop::new();
    let hub = Hub::start_with(&shop, &[], STANDS);
    let mut socket = hub.open().await;
    let run = ask_to_start(&mut socket, saving(), GoingOn::STOP).await.expect("started");
    wait_up(&shop, 0, &[0, 1, 2, 3]);
    send(&mut socket, &ToHub::MarkDead { run: run.clone(), rank: 2 }).await;
    let found = wait_state(&mut socket, &run, |state| state != RunState::Running).await;
    assert_eq!(found.state, RunState::Failed, "{}", found.reason);
    assert!(found.reason.contains("Rank 2") && found.reason.contains("signal 9"), "{}", found.reason);
}

#[tokio::test]
async fn ranks_of_a_run_that_no_hub_started_are_not_ended_from_a_page() {
    let shop = Workshop::new();
    shop.write("tiny.json", TINY);
    let mut command = shop.shardplan();
    let mut launcher = command.args(["run", "tiny.json"]).env("FAKE", STANDS).spawn().expect("started");
    wait_up(&shop, 0, &[0, 1, 2, 3]);
    let hub = Hub::start(&shop);
    let mut socket = hub.open().await;
    let run = runs(&shop).pop().expect("a run");
    wait_state(&mut socket, &run, |state| state == RunState::Running).await;
    let said = refused(&mut socket, &ToHub::MarkDead { run: run.clone(), rank: 0 }).await;
    assert!(said.contains("was not started by a hub"), "{said}");
    for run in ["..", "none", ""] {
        for request in
            [ToHub::MarkDead { run: run.to_owned(), rank: 0 }, ToHub::ReturnToWhole { run: run.to_owned() }]
        {
            let said = refused(&mut socket, &request).await;
            assert!(said.contains("There is no run"), "{said}");
        }
    }
    send(&mut socket, &ToHub::Stop { run: run.clone() }).await;
    wait_state(&mut socket, &run, |state| state == RunState::Stopped).await;
    launcher.wait().expect("ended");
}

#[tokio::test]
async fn what_can_not_be_asked_of_a_run_is_refused_before_anything_is_made() {
    let shop = Workshop::new();
    let hub = Hub::start_with(&shop, &[], STANDS);
    let mut socket = hub.open().await;
    let four = TINY
        .replace(r#"{"tp": 2}"#, r#"{"tp": 4}"#)
        .replace(r#""steps": 3"#, r#""steps": 3, "checkpoint": {"every_steps": 1}"#);
    let four = planner::parse_plan(&four).expect("a plan");
    for (plan, going_on, part) in [
        (planner::parse_plan(TINY).expect("a plan"), ntp(), "run.checkpoint.every_steps"),
        (saving(), GoingOn { spares: 1, ..GoingOn::STOP }, "this one ends"),
        (saving(), GoingOn { on_failure: OnFailure::Spare, ..GoingOn::STOP }, "needs spares"),
        (saving(), GoingOn { spares: u64::MAX, ..ntp() }, "more than the 64"),
        (saving(), GoingOn { max_recoveries: 0, ..ntp() }, "from 1 to 1000"),
        // What only the launcher knows.
        (four, ntp(), "could not go on after any failure"),
    ] {
        let said = ask_to_start(&mut socket, plan, going_on).await.expect_err("refused");
        assert!(said.contains(part), "{going_on:?}: {said}");
    }
    assert_eq!(runs(&shop), [""; 0]);
}
