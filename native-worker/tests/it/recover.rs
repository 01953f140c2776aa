//! Runs that go on after ranks have died, with ranks that are none.

use std::time::{Duration, Instant};

use planner::wire::{CheckpointIndex, Event, Outcome, PlanFile, Recovering};
use run_folder::Checkpoints;
use serde_json::Value;

use crate::support::{Answer, TINY, Workshop};

/// Runs the tiny plan, which saves, with ranks that do `fake`; `$ATTEMPT` counts from 0, and `stand` waits to be ended.
fn run(shop: &Workshop, fake: &str, arguments: &[&str]) -> Answer {
    let saves = TINY.replace(r#""steps": 3"#, r#""steps": 3, "checkpoint": {"every_steps": 1}"#);
    shop.write("tiny.json", &saves);
    let fake = format!(
        "ATTEMPT=${{TORCHELASTIC_RESTART_COUNT:-0}}; stand() {{ until [ -e \"$RUN_DIR/dead-$ATTEMPT\" ]; do sleep 0.05; done; exit 1; }}; \
         die() {{ touch \"$RUN_DIR/dead-$ATTEMPT\"; kill -KILL $$; }}; {fake}"
    );
    let mut command = shop.shardplan();
    command.args(["run", "tiny.json", "--json"]).args(arguments).env("FAKE", fake);
    Answer::of(command.output().expect("shardplan runs"))
}

fn recoveries(shop: &Workshop) -> Vec<Recovering> {
    let of = |event| if let Event::Recovering(began) = event { Some(began) } else { None };
    shop.launcher_log().into_iter().filter_map(of).collect()
}

fn plan(shop: &Workshop, name: &str) -> PlanFile {
    let text = std::fs::read_to_string(shop.run_folder().join(name)).expect("a plan");
    planner::parse_plan(&text).expect("a plan")
}

#[test]
fn a_run_goes_on_with_a_replica_less_and_its_own_batch() {
    let shop = Workshop::new();
    let fake = "[ $ATTEMPT = 1 ] && { echo \"$RANK of $WORLD_SIZE\"; finish completed; exit 0; }; [ $RANK = 3 ] && die; stand";
    let answer = run(&shop, fake, &["--on-failure", "drop"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let began = &answer.json()["recoveries"][0];
    assert_eq!((&began["dead"], &began["policy"]), (&serde_json::json!([3]), &Value::from("drop")));
    assert_eq!(
        (began["world_size"].as_u64(), began["dp"].as_u64(), began["attempt"].as_u64()),
        (Some(2), Some(1), Some(2))
    );
    assert!(began["first_step"]["seconds"].is_number(), "{began}");
    assert_eq!(recoveries(&shop).len(), 1);
    let (now, whole) = (plan(&shop, "plan.json"), plan(&shop, "plan-whole.json"));
    assert_eq!((now.cluster.gpus_per_node, whole.cluster.gpus_per_node), (Some(2), Some(4)));
    assert_eq!(now.training.global_batch_size, whole.training.global_batch_size);
    let said = shop.launcher_log();
    let printed = |text: &str| {
        said.iter().any(|event| matches!(event, Event::Output { text: line, .. } if line == text))
    };
    assert!(printed("1 of 2") && !printed("2 of 4"), "{said:?}");
    // Going on later is going on with all of them.
    let mut command = shop.shardplan();
    std::fs::create_dir_all(shop.run_folder().join("checkpoints/step-00000003")).expect("a folder");
    shop.write(&format!("{}/checkpoints/step-00000003/checkpoint.json", shop.run_folder().display()), "{}");
    command
        .args(["run", "--json", "--resume"])
        .arg(shop.run_folder())
        .env("FAKE", "[ $WORLD_SIZE = 4 ] && finish completed");
    let answer = Answer::of(command.output().expect("shardplan runs"));
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(plan(&shop, "plan.json"), whole);
}

/// As a job's script starts it: by its own plan, in the folder of the run that it goes on with.
#[test]
fn a_job_goes_on_in_a_runs_folder_by_its_own_plan_and_not_beside_who_trains_there() {
    let shop = Workshop::new();
    assert_eq!(run(&shop, "finish completed", &["--id", "mine"]).code, Some(0));
    let folder = shop.run_folder();
    let checkpoints = Checkpoints::of_run(&folder);
    let (held, before) = (checkpoints.hold().expect("a lock"), files(&folder));
    let answer = shop.ask(&["run", "--resume", "mine"]);
    assert!(answer.code == Some(3) && answer.stderr.contains("is still trained"), "{answer:?}");
    assert_eq!(files(&folder), before);
    drop(held);

    let goes_on = |plan: &str| {
        shop.write("other.json", plan);
        shop.ask(&["run", "other.json", "--id", "mine", "--resume", "mine"])
    };
    let answer = goes_on(&TINY.replace(r#""steps": 3"#, r#""steps": 4"#));
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(plan(&shop, "plan.json").run.steps, Some(4));
    let index = CheckpointIndex {
        version: run_folder::CHECKPOINT_VERSION,
        step: 3,
        samples: 12,
        unix_ms: 5,
        plan: plan(&shop, "plan.json"),
        loss_scale: None,
        files: Vec::new(),
    };
    checkpoints.stage(3).and_then(|_| checkpoints.commit(&index)).expect("a checkpoint");
    let before = files(&folder);
    let answer = goes_on(&TINY.replace("tiny-dense", "tiny-moe"));
    assert!(answer.code == Some(3) && answer.stderr.contains("another model"), "{answer:?}");
    assert_eq!(files(&folder), before);
}

/// Files of a folder with what is in them.
fn files(folder: &std::path::Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries =
        std::fs::read_dir(folder).expect("a folder").flatten().filter(|entry| entry.path().is_file());
    let mut found: Vec<_> =
        entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).expect("a file"))).collect();
    found.sort();
    found
}

#[test]
fn spares_stand_in_and_when_none_is_left_the_run_ends_and_says_what_could_be_done() {
    let shop = Workshop::new();
    let fake = "[ $RANK = $ATTEMPT ] && die; stand";
    let answer = run(&shop, fake, &["--on-failure", "spare", "--spares", "2"]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let began = recoveries(&shop);
    assert_eq!(began.iter().map(|one| one.dead.clone()).collect::<Vec<_>>(), [[0], [1]]);
    assert!(began.iter().all(|one| one.world_size == 4 && one.instead_of.is_none()), "{began:?}");
    let reason = answer.json()["reason"].as_str().expect("a reason").to_owned();
    for part in
        ["Rank 2 was ended by signal 9", "Rank 2 is lost", "1 is missing", "--on-failure drop could go on"]
    {
        assert!(reason.contains(part), "{part:?} in {reason}");
    }
    assert!(
        matches!(shop.launcher_log().last(), Some(Event::Ended { outcome: Outcome::Failed, reason: said }) if *said == reason)
    );
}

#[test]
fn failures_during_recovery_are_failures_and_have_an_end() {
    let shop = Workshop::new();
    // As soon as there is a rank 0, it is killed.
    let begun = Instant::now();
    let answer = run(
        &shop,
        "[ $RANK = 0 ] && die; stand",
        &["--on-failure", "spare", "--spares", "9", "--max-recoveries", "2"],
    );
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(recoveries(&shop).len(), 2);
    let reason = answer.json()["reason"].as_str().expect("a reason").to_owned();
    assert!(
        reason.ends_with(
            "It went on 2 times since it last did a new step, and goes on no more (--max-recoveries 2)"
        ),
        "{reason}"
    );
}

#[test]
fn a_new_step_allows_as_many_recoveries_again() {
    let shop = Workshop::new();
    // Each attempt does a step more than the one before.
    let fake = "[ $RANK = 0 ] && { [ $ATTEMPT = 4 ] && { finish completed; exit 0; }; cat \"$FAKE_LOGS/step-$ATTEMPT\" >> \"$LOG\"; sleep 0.3; die; }; \
                [ $ATTEMPT = 4 ] && exit 0; stand";
    for attempt in 0..4 {
        shop.write(&format!("step-{attempt}"), &crate::support::log(&[crate::support::step(attempt + 1)]));
    }
    let answer = run(&shop, fake, &["--on-failure", "spare", "--spares", "9", "--max-recoveries", "1"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(recoveries(&shop).len(), 4);
}

#[test]
fn what_would_happen_again_ends_the_run() {
    for (fake, expected) in [
        ("exit 1", "had not done a step yet"),
        ("exit 3", "follows from plan and data"),
        // Others end because of one that finds its run held.
        ("[ $RANK = 0 ] && exit 4; sleep 0.4; exit 1", "Another run trains there"),
        (
            "[ $RANK = 0 ] && cat \"$FAKE_LOGS/completed\" >> \"$LOG\"; sleep 0.4; exit 1",
            "another start would not help",
        ),
    ] {
        let shop = Workshop::new();
        let answer = run(&shop, fake, &["--on-failure", "spare", "--spares", "9"]);
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(
            answer.json()["reason"].as_str().is_some_and(|reason| reason.contains(expected)),
            "{answer:?}"
        );
        assert!(recoveries(&shop).len() <= 1, "{:?}", recoveries(&shop));
    }
}

#[test]
fn by_default_and_after_a_stop_a_failure_is_the_end() {
    let shop = Workshop::new();
    let answer = run(&shop, "[ $RANK = 0 ] && die; stand", &[]);
    assert_eq!((answer.code, recoveries(&shop).len()), (Some(1), 0), "{answer:?}");
    let shop = Workshop::new();
    let fake = "[ $RANK = 0 ] && { echo stop > \"$RUN_DIR/control\"; sleep 0.6; die; }; stand";
    let answer = run(&shop, fake, &["--on-failure", "drop"]);
    assert_eq!((answer.code, recoveries(&shop).len()), (Some(1), 0), "{answer:?}");
}

#[test]
fn the_ranks_of_a_hang_are_ended_and_the_others_go_on() {
    let shop = Workshop::new();
    let fake = "[ $ATTEMPT = 1 ] && { finish completed; exit 0; }; [ $RANK = 0 ] && cat \"$FAKE_LOGS/stopped\" >> \"$LOG\"; \
                [ $RANK = 2 ] && { trap '' TERM; while :; do sleep 0.1; done; }; sleep 0.5; exit 1";
    let answer = run(&shop, fake, &["--on-failure", "drop"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(recoveries(&shop)[0].dead, [2]);
}

#[test]
fn what_can_not_go_on_is_refused_before_anything_is_made() {
    for (arguments, expected) in [
        (&["--on-failure", "spare"][..], "spares 1"),
        (&["--spares", "1"], "spares: 1"),
        (&["--on-failure", "ntp", "--set", "layout.tp=4"], "could not go on after any failure"),
        (&["--on-failure", "drop", "--set", "run.checkpoint.save=false"], "saves none"),
    ] {
        let shop = Workshop::new();
        let answer = run(&shop, "finish completed", arguments);
        assert_eq!(answer.code, Some(2), "{answer:?}");
        assert!(answer.stderr.contains(expected), "{expected:?} in {answer:?}");
        assert!(!shop.path("runs").exists());
    }
}

/// A checkpoint that is named and can't be read is said to be damaged, and why; a folder without an index is none.
#[test]
fn a_damaged_checkpoint_is_told_from_none() {
    let shop = Workshop::new();
    let index = |text: &str| shop.write("checkpoints/step-00000003/checkpoint.json", text);
    std::fs::create_dir_all(shop.path("checkpoints/step-00000003")).expect("a folder");
    let refused = |is_there: bool, expected: &str| {
        for folder in ["checkpoints/step-00000003", "checkpoints/step-00000003/"] {
            let plans: &[&[&str]] = if is_there { &[&[], &["tiny.json"]] } else { &[&["tiny.json"]] };
            for plan in plans {
                let answer = shop.ask(&[&["run", "--resume", folder], *plan].concat());
                assert_eq!(answer.code, Some(3), "{answer:?}");
                assert!(answer.stderr.contains(expected), "{expected}: {answer:?}");
                assert_eq!(answer.stderr.contains("there is no checkpoint"), !is_there, "{answer:?}");
            }
        }
        assert!(!shop.path("runs").exists(), "nothing was begun");
    };
    refused(false, "there is no checkpoint in");
    for text in ["", " \n"] {
        index(text);
        refused(true, "checkpoint.json is damaged: it is empty");
    }
    index("{\"version\": 1, ");
    refused(true, "checkpoint.json is damaged: EOF while parsing");
    std::fs::write(index(""), [0xff, 0xfe]).expect("a file");
    refused(true, "checkpoint.json is damaged: expected value");
    std::fs::remove_file(index("")).expect("a file");
    std::fs::create_dir(shop.path("checkpoints/step-00000003/checkpoint.json")).expect("a folder");
    refused(true, "checkpoint.json can't be read");
}

/// A run's folder without its description: its checkpoints are found, and what is missing is named.
#[test]
fn a_folder_whose_description_is_lost_names_it() {
    let shop = Workshop::new();
    shop.write("lost/checkpoints/step-00000003/checkpoint.json", "{}");
    shop.write("lost/plan.json", crate::support::TINY);
    let answer = shop.ask(&["run", "--resume", "lost"]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(
        answer.stderr.contains("run.json is missing") && answer.stderr.contains("plan.json --resume"),
        "{answer:?}"
    );
    for command in [&["run", "tiny.json", "--resume", "lost"][..], &["export", "lost", "--to", "out"]] {
        let answer = shop.ask(command);
        assert!(!answer.stderr.contains("there is no checkpoint"), "{answer:?}");
    }
}
