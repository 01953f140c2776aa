//! Help, answers, errors and exit codes.

use crate::support::Workshop;

fn check(arguments: &[&str], code: i32) -> crate::support::Answer {
    let answer = Workshop::new().ask(arguments);
    assert_eq!(answer.code, Some(code), "{answer:?}");
    answer
}

#[test]
fn help() {
    insta::assert_snapshot!("help", check(&["--help"], 0).stdout);
    for command in [
        "plan",
        "estimate",
        "shards",
        "groups",
        "layouts",
        "lint",
        "script",
        "serve",
        "run",
        "verify",
        "launch",
        "models",
        "calibrate",
        "diagnose",
        "doctor",
        "wrap",
    ] {
        insta::assert_snapshot!(format!("help_{command}"), check(&[command, "--help"], 0).stdout);
    }
}

/// Documents of the repository that show plans, commands or options.
const DOCUMENTS: [&str; 2] = [include_str!("../../../README.md"), include_str!("../../../docs/commands.md")];

#[test]
fn the_plans_that_documents_show_fit() {
    for document in DOCUMENTS {
        let shop = Workshop::new();
        let plans: Vec<&str> = document.split("{\"version\"").skip(1).collect();
        assert!(!plans.is_empty());
        for rest in plans {
            let text = format!("{{\"version\"{rest}");
            let plan = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>().next();
            shop.write("shown.json", &plan.expect("a plan").expect("JSON").to_string());
            let answer = shop.ask(&["estimate", "shown.json"]);
            assert!(answer.code == Some(0) && answer.stdout.contains("verdict     Fits"), "{answer:?}");
        }
    }
}

#[test]
fn the_commands_that_documents_show_are_there() {
    let help = check(&["--help"], 0).stdout;
    let mut seen = 0;
    for document in DOCUMENTS {
        for rest in document.split("shardplan ").skip(1) {
            let command: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
            // `shardplan COMMAND` stands for any, and prose goes on with other words.
            let is_shown = rest[command.len()..].starts_with([' ', '`']) && !command.is_empty();
            let is_known = help.lines().any(|line| line.trim_start().starts_with(&format!("{command} ")));
            seen += usize::from(is_shown && is_known);
            assert!(!is_shown || is_known, "shardplan {command} is no command");
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn a_wrong_command_line_is_code_2_and_leaves_stdout_empty() {
    for arguments in [
        &["nonsense"][..],
        &["estimate"],
        &["estimate", "no-such-file.json"],
        &["estimate", "."],
        &["shards", "tiny.json"],
        &["shards", "tiny.json", "--rank", "4"],
        &["groups", "tiny.json", "--rank", "99"],
        &["lint"],
        &["lint", "no-such-script.sh"],
        &["lint", "."],
        &["script", "tiny.json", "--body", "nonsense"],
        &["script", "tiny.json", "--site", "no-such-site.toml"],
        &["serve", "--allow-origin", "example.org/path"],
        // Whatever is to be read and is not there.
        &["diagnose", "no-such-log.txt"],
        &["calibrate", "no-such-run"],
        &["estimate", "tiny.json", "--profile", "no-such-profile.json"],
        &["plan", "--model", "./no-such-model", "--gpu", "h100-sxm"],
        &["plan", "--model", "no-such-job.yaml", "--gpu", "h100-sxm"],
        &["run", "--resume", "no-such-run"],
        &["export", "no-such-run", "--to", "out"],
        &["tokenize", "tiny.json", "--tokenizer", "no-such-tokenizer.json", "--to", "out"],
        &["launch", "no-such-script.py"],
    ] {
        let answer = check(arguments, 2);
        assert_eq!(answer.stdout, "", "{arguments:?}");
        assert!(!answer.stderr.is_empty(), "{arguments:?}");
        let answer = check(&[arguments, &["--json"]].concat(), 2);
        let found: Vec<planner::Finding> =
            serde_json::from_value(answer.json()["findings"].clone()).expect("findings");
        assert!(found.len() == 1 && answer.json()["version"] == 1, "{answer:?}");
        assert!(!found[0].message.is_empty() && found[0].rule.contains("exit code 2"), "{answer:?}");
        assert!(answer.stderr.starts_with("error: "), "{answer:?}");
    }
}

#[test]
fn a_program_reads_which_word_of_the_command_line_is_wrong() {
    let finding =
        |arguments: &[&str]| check(&[arguments, &["--json"]].concat(), 2).json()["findings"][0].clone();
    let found = finding(&["groups", "tiny.json", "--rank", "99"]);
    assert_eq!((&found["field"], &found["value"]), (&"--rank".into(), &99.into()), "{found}");
    let found = finding(&["script", "tiny.json", "--body", "torchtitn"]);
    assert_eq!(found["value"], "torchtitn", "{found}");
    assert_eq!(found["nearest"][0], "torchtitan", "{found}");
    assert_eq!(finding(&["estmate", "tiny.json"])["nearest"][0], "estimate");
    assert_eq!(finding(&["estimate", "no-such-file.json"])["value"], "no-such-file.json");
    let answer = check(&["wrap", "--json", "--gpu", "abacus", "--", "true"], 2);
    assert_eq!(answer.json()["findings"][0]["field"], "--gpu");
    // What another program is given is its own.
    let answer = check(&["wrap", "--no-such", "--", "echo", "--json"], 2);
    assert_eq!(answer.stdout, "");
}

#[test]
fn json_of_every_command_has_a_version() {
    let shop = Workshop::new();
    for arguments in [
        &["groups", "tiny.json"][..],
        &["shards", "tiny.json", "--rank", "0"],
        &["layouts", "tiny.json"],
        &["estimate", "tiny.json"],
        &["search", "tiny.json"],
        &["failures", "tiny.json"],
        &["script", "tiny.json"],
        &["models"],
        &["lint", "fake-rank"],
        &["diagnose", "tiny.json"],
        &["doctor"],
        &["plan", "--model", "tiny-dense", "--gpu", "cpu"],
    ] {
        let answer = shop.ask(&[arguments, &["--json"]].concat());
        assert_eq!(answer.json()["version"], 1, "{arguments:?}: {answer:?}");
    }
}

#[test]
fn the_answer_is_the_planners_to_the_byte() {
    let answer = check(&["estimate", "tiny.json", "--json"], 0);
    let file = planner::parse_plan(crate::support::TINY).expect("a plan file");
    let expected = serde_json::to_string_pretty(&planner::estimate(&file)).expect("JSON") + "\n";
    assert_eq!(answer.stdout, expected);
    assert_eq!(answer.stderr, "");
}

#[test]
fn advice_is_asked_for_or_given_where_a_plan_does_not_fit() {
    let shop = Workshop::new();
    let plan = |tp: u64| {
        format!(
            r#"{{"version": 1, "model": {{"preset": "llama-3-8b"}}, "cluster": {{"gpu": "h100-sxm"}}, "layout": {{"tp": {tp}}}}}"#
        )
    };
    for (tp, options, code, always) in
        [(1, &["--json"][..], 1, false), (8, &["--json"], 0, false), (8, &["--json", "--advice"], 0, true)]
    {
        shop.write("plan.json", &plan(tp));
        let answer = shop.ask(&[&["estimate", "plan.json"], options].concat());
        assert_eq!(answer.code, Some(code), "{answer:?}");
        let file = planner::parse_plan(&plan(tp)).expect("a plan file");
        let expected =
            serde_json::to_string_pretty(&planner::advise(&file, always, None)).expect("JSON") + "\n";
        assert_eq!(answer.stdout, expected);
    }
    let answer = shop.ask(&["estimate", "plan.json", "--advice"]);
    assert!(
        answer.stdout.contains("What lowers the peak") && answer.stdout.contains("What the room could buy")
    );
}

#[test]
fn a_trace_is_the_planners_to_the_byte() {
    let shop = Workshop::new();
    let path = shop.path("step.trace.json");
    let path = path.to_str().expect("a path of text");
    let answer = shop.ask(&["estimate", "tiny.json", "--trace", path]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let file = planner::parse_plan(crate::support::TINY).expect("a plan file");
    let plan = planner::Plan::resolve(&file).plan.expect("a plan");
    let timeline = planner::time::timeline(&plan).expect("a timeline");
    let expected = planner::time::trace::trace(&timeline, &plan.name).expect("a trace");
    assert_eq!(std::fs::read_to_string(path).expect("the trace"), expected);

    shop.write(
        "long.json",
        r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}, "layout": {"pp": 8},
            "training": {"global_batch_size": 100000}}"#,
    );
    let answer = shop.ask(&["estimate", "long.json", "--trace", path]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("1600000 actions"), "{answer:?}");
    let answer = shop.ask(&["estimate", "tiny.json", "--trace", "/no-such-folder/trace.json"]);
    assert_eq!(answer.code, Some(3), "{answer:?}");
    assert!(answer.stderr.contains("the trace can't be written"), "{answer:?}");
    assert!(answer.stdout.contains("verdict"), "the answer is there all the same: {answer:?}");
    // A disk that takes nothing leaves the answer, too.
    let answer = shop.ask(&["estimate", "tiny.json", "--trace", "/dev/full"]);
    assert!(answer.code == Some(3) && answer.stdout.contains("verdict"), "{answer:?}");
}

#[test]
fn an_answer_for_people() {
    let shop = Workshop::new();
    shop.write(
        "big.json",
        r#"{"version": 1, "model": {"preset": "minimax-m2"}, "cluster": {"gpu": "h100-sxm", "nodes": 8},
            "layout": {"tp": 2, "ep": 32}}"#,
    );
    let answer = shop.ask(&["estimate", "big.json"]);
    assert_eq!(answer.code, Some(1), "it does not fit: {answer:?}");
    assert!(answer.stdout.contains("Does not fit"), "{answer:?}");
    assert!(answer.stdout.contains("228,689,748,992 total"), "{answer:?}");
}

#[test]
fn plans_from_standard_input_and_from_a_config() {
    let shop = Workshop::new();
    let llama = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
        "max_position_embeddings": 128}"#;
    shop.write("model/config.json", llama);
    let plan = r#"{"version": 1, "model": {"hf_config_path": "config.json"}, "cluster": {"gpu": "cpu"}}"#;
    shop.write("model/plan.json", plan);
    let answer = shop.ask(&["estimate", "model/plan.json", "--json"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(answer.json()["plan"]["model"]["hf_config"]["hidden_size"], 64);
    assert!(answer.json()["plan"]["model"]["hf_config_path"].is_null());

    let mut command = shop.shardplan();
    let mut child =
        command.args(["groups", "-", "--json"]).stdin(std::process::Stdio::piped()).spawn().expect("started");
    let mut input = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, crate::support::TINY.as_bytes()).expect("written");
    drop(input);
    let answer = crate::support::Answer::of(child.wait_with_output().expect("ended"));
    assert_eq!(answer.json()["groups"][0]["ranks"], serde_json::json!([0, 1, 2, 3]), "{answer:?}");
}

/// Of 65,536 ranks the rows together take half a gigabyte.
#[test]
fn groups_of_a_large_world_are_written_as_they_are_made() {
    let shop = Workshop::new();
    let plan = r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 8192},
        "training": {"global_batch_size": 65536}}"#;
    shop.write("large.json", plan);
    for how in ["", "--json", "--rank 5", "--packed --json"] {
        let mut command = std::process::Command::new("bash");
        let shardplan = env!("CARGO_BIN_EXE_shardplan");
        let script = format!(
            "ulimit -v 300000; {shardplan} groups large.json {how} | tail -c 40; exit ${{PIPESTATUS[0]}}"
        );
        let ended = command.args(["-c", &script]).current_dir(shop.path("")).output().expect("ended");
        let answer = crate::support::Answer::of(ended);
        assert_eq!(answer.code, Some(0), "{how}: {answer:?}");
        let end = match how {
            "" => "  65535  none     65535\n",
            "--rank 5" => "  5  none     5\n",
            _ => "\n  ],\n  \"version\": 1\n}\n",
        };
        assert!(answer.stdout.ends_with(end), "{how}: {answer:?}");
    }
}

/// Bad input is code 1, with findings under --json and readable words without.
fn refused(plan: &str, expected: &str) -> serde_json::Value {
    let shop = Workshop::new();
    shop.write("bad.json", plan);
    refused_file(&shop, expected)
}

fn refused_file(shop: &Workshop, expected: &str) -> serde_json::Value {
    let answer = shop.ask(&["estimate", "bad.json"]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(format!("{}{}", answer.stdout, answer.stderr).contains(expected), "{expected} in {answer:?}");
    let answer = shop.ask(&["estimate", "bad.json", "--json"]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let json = answer.json();
    assert_eq!(json["version"], 1, "{json}");
    assert!(json["findings"].to_string().contains(expected), "{expected} in {json}");
    json
}

#[test]
fn plans_that_can_not_be_read() {
    refused("", "JSON");
    refused("{\"version\": 1", "JSON");
    refused("[]", "");
    refused(
        r#"{"version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu"}, "layuot": {}}"#,
        "layout",
    );
    refused(r#"{"version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "h101"}}"#, "h100-sxm");
    // All that is wrong is said at once, each with what to write.
    let json = refused(
        r#"{"version": 1, "model": "llama-3-8b", "cluster": "8xH100", "runtime": "deepspeed", "batch_size": 8}"#,
        "runtime fsdp2",
    );
    assert_eq!(json["findings"].as_array().map(Vec::len), Some(2), "{json}");
    let json = refused(
        r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 1}, "layout": {"tp": 3}}"#,
        "layout.tp",
    );
    assert!(json["memory"].is_null() && json["findings"][0]["nearest"].is_array(), "{json}");
}

#[test]
fn files_that_are_too_large_are_not_read() {
    let shop = Workshop::new();
    let size: u64 = 50 * 1024 * 1024;
    std::fs::File::create(shop.path("bad.json")).expect("a file").set_len(size).expect("a length");
    refused_file(&shop, "52428800");
    std::fs::File::create(shop.path("config.json")).expect("a file").set_len(size).expect("a length");
    shop.write(
        "bad.json",
        r#"{"version": 1, "model": {"hf_config_path": "config.json"}, "cluster": {"gpu": "cpu"}}"#,
    );
    refused_file(&shop, "52428800");
}

#[test]
fn what_has_no_end_is_not_read_to_its_end() {
    let shop = Workshop::new();
    for arguments in [
        &["estimate", "/dev/zero"][..],
        &["plan", "--model", "/dev/zero", "--gpu", "h100-sxm"],
        &["script", "tiny.json", "--site", "/dev/zero"],
        &["estimate", "tiny.json", "--profile", "/dev/zero"],
        &["lint", "/dev/zero"],
    ] {
        let answer = shop.ask(arguments);
        assert_eq!(answer.code, Some(1), "{arguments:?}: {answer:?}");
    }
    let answer = shop.ask(&["tokenize", "tiny.json", "--tokenizer", "/dev/zero", "--to", "out"]);
    assert!(answer.stderr.contains("no tokenizer.json"), "{answer:?}");
}

#[test]
fn a_profile_that_can_not_be_written_is_told_before_anything_is_measured() {
    let shop = Workshop::new();
    for output in ["/no-such-folder/here.json", "."] {
        let answer = shop.ask(&["calibrate", "--output", output]);
        assert_eq!(answer.code, Some(3), "{answer:?}");
        assert!(answer.stderr.starts_with("error: the profile can't be written"), "{answer:?}");
    }
    std::fs::remove_file(shop.path("fake-rank")).expect("removed");
    let answer = shop.ask(&["calibrate", "--output", "new.json"]);
    assert_eq!(answer.code, Some(3), "{answer:?}");
    assert!(!shop.path("new.json").exists(), "nothing was measured");
}

#[test]
fn what_is_refused_is_named_as_it_was_given() {
    for (arguments, words) in [
        (&["failures", "tiny.json", "--values", "5000"][..], "--values 5000"),
        (&["failures", "tiny.json", "--rate", "2"], "--rate 2"),
        (&["failures", "tiny.json", "--draws", "18446744073709551615"], "from 1 to 10000000"),
        (&["estimate", "tiny.json", "--profile", "."], "not a calibration profile"),
        (&["script", "tiny.json", "--site", "."], "not the site file"),
    ] {
        let answer = check(arguments, 2);
        assert!(answer.stderr.contains(words), "{arguments:?}: {answer:?}");
    }
}

#[test]
fn configs_that_can_not_be_read() {
    let shop = Workshop::new();
    shop.write(
        "bad.json",
        r#"{"version": 1, "model": {"hf_config_path": "config.json"}, "cluster": {"gpu": "cpu"}}"#,
    );
    refused_file(&shop, "config.json");
    shop.write("config.json", "not JSON");
    refused_file(&shop, "not JSON");
    shop.write("config.json", "[1]");
    refused_file(&shop, "not an object");
    shop.write("config.json", r#"{"model_type": "abacus"}"#);
    refused_file(&shop, "abacus");
    shop.write("config.json", r#"{"model_type": "llama", "hidden_size": "wide"}"#);
    refused_file(&shop, "hidden_size");
    std::fs::write(shop.path("config.json"), [0xff, 0xfe, 0x00]).expect("a file");
    refused_file(&shop, "UTF-8");
}

#[test]
fn doctor() {
    let shop = Workshop::new();
    let answer = shop.ask(&["doctor", "--json"]);
    let json = answer.json();
    let state = |name: &str| {
        let checks = json["checks"].as_array().expect("checks").iter();
        checks.clone().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}"))["state"]
            .clone()
    };
    assert_eq!(
        (state("torch"), state("rank"), state("runs")),
        ("ok".into(), "ok".into(), "ok".into()),
        "{json}"
    );
    assert!(!shop.path("runs").exists(), "asking leaves nothing behind");
    shop.python("");
    let answer = shop.ask(&["doctor"]);
    assert_eq!(answer.code, Some(3), "{answer:?}");
    assert!(answer.stdout.contains("missing  torch"), "{answer:?}");
}

/// What `run` could not make is found by `doctor`, too.
#[test]
fn doctor_finds_files_in_the_way_of_runs() {
    let shop = Workshop::new();
    for runs in ["tiny.json", "tiny.json/runs"] {
        let answer = shop.ask(&["doctor", "--runs", runs]);
        assert_eq!(answer.code, Some(3), "{answer:?}");
        assert!(answer.stdout.contains("missing  runs") && answer.stdout.contains("no folder"), "{answer:?}");
        assert_eq!(shop.ask(&["run", "tiny.json", "--runs", runs]).code, Some(3));
    }
}

/// What no rank could train on is refused before any is started.
#[test]
fn blends_of_nothing_are_refused_before_ranks_start() {
    let shop = Workshop::new();
    for (parts, said) in [
        ("", "run.data.parts is empty"),
        (r#"{"weight": 0, "data": {"kind": "synthetic"}}"#, "run.data.parts[0].weight is 0"),
    ] {
        let data = format!(r#""steps": 3, "data": {{"kind": "blend", "parts": [{parts}]}}"#);
        shop.write("tiny.json", &crate::support::TINY.replace(r#""steps": 3"#, &data));
        let answer = shop.run("finish completed");
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(format!("{}{}", answer.stdout, answer.stderr).contains(said), "{answer:?}");
        assert!(!shop.path("runs").exists(), "nothing was begun");
    }
}

#[test]
fn every_valid_layout_is_listed() {
    let answer = check(&["layouts", "tiny.json", "--json"], 0);
    let listed: serde_json::Value = serde_json::from_str(&answer.stdout).expect("JSON");
    let file = planner::parse_plan(crate::support::TINY).expect("a plan file");
    let plan = planner::Plan::resolve(&file).plan.expect("a valid plan");
    let expected = planner::rules::valid_layouts(&plan);
    assert!(expected.len() > 1);
    assert_eq!(listed["layouts"], serde_json::json!(expected));
    assert_eq!(check(&["layouts", "tiny.json"], 0).stdout.lines().count(), expected.len() + 1);
}

#[test]
fn a_tensor_parallel_plan_from_a_file() {
    let shop = Workshop::new();
    shop.write(
        "styles.json",
        r#"{"model.layers.*.mlp.up_proj": "colwise", "model.layers.*.mlp.down_proj": "rowwise"}"#,
    );
    let plan = |more: &str| {
        format!(
            r#"{{"version": 1, "model": {{"preset": "llama-3-8b"}}, "cluster": {{"gpu": "h100-sxm"}}, "runtime": "fsdp2",
                "layout": {{"tp": 2, "sp": false, "tp_plan_path": "styles.json"{more}}}}}"#
        )
    };
    shop.write("named.json", &plan(""));
    let filled = shop.ask(&["estimate", "named.json", "--json"]).json()["plan"]["layout"].clone();
    assert_eq!(filled["tp_plan"]["model.layers.*.mlp.up_proj"], "colwise", "{filled}");
    assert!(filled["tp_plan_path"].is_null());
    shop.write("both.json", &plan(r#", "tp_plan": "hf""#));
    assert!(shop.ask(&["estimate", "both.json"]).stderr.contains("not both"));
    shop.write("styles.json", "[]");
    assert!(shop.ask(&["estimate", "named.json"]).stderr.contains("not an object"));
}

#[test]
fn models_are_listed_and_a_wrong_name_says_where() {
    let all = check(&["models"], 0).stdout;
    assert!(all.lines().count() > 80 && all.contains("deepseek-v3"), "{all}");
    assert!(check(&["models", "GPT 3"], 0).stdout.contains("gpt-3-175b"));
    assert!(check(&["models", "nonsense"], 2).stderr.contains("`shardplan models` lists all"));
    let wrong = check(&["estimate", "--model", "nonsense", "--gpu", "h100-sxm"], 1).stderr;
    assert!(wrong.contains("`shardplan models`"), "{wrong}");
}

#[test]
fn a_failure_study_is_of_what_was_asked_for_or_says_so() {
    let table = check(&["failures", "tiny.json", "--draws", "50", "--rate", "0.01"], 0).stdout;
    assert!(table.contains("Means of 50 draws"), "{table}");
    assert!(check(&["failures", "tiny.json", "--draws", "0"], 2).stderr.contains("--draws"));
    let odd = check(&["failures", "tiny.json", "--against", "gpus", "--values", "7"], 0).stderr;
    assert!(odd.contains("7 GPUs were asked for, and 6 are answered for"), "{odd}");
    let fits = check(&["failures", "tiny.json", "--against", "gpus", "--values", "8"], 0).stderr;
    assert!(!fits.contains("asked for"), "{fits}");
}

#[test]
fn a_byte_order_mark_is_passed_over_and_an_empty_file_is_said_to_be_one() {
    let shop = Workshop::new();
    shop.write("marked.json", &format!("\u{feff}{}", crate::support::TINY));
    assert_eq!(shop.ask(&["estimate", "marked.json"]).code, Some(0));
    shop.write("config.json", "\u{feff} \n");
    let empty = shop.ask(&["estimate", "--model", "config.json", "--gpu", "h100-sxm"]);
    assert!(empty.code == Some(2) && empty.stderr.contains("this file is empty"), "{empty:?}");
    shop.write("empty.json", "");
    let empty = shop.ask(&["estimate", "empty.json"]);
    assert!(
        empty.code == Some(1) && empty.stderr.contains("the plan file is empty; write a plan"),
        "{empty:?}"
    );
}

#[test]
fn what_comes_next_can_be_done() {
    let asked = ["plan", "--model", "tiny-dense", "--gpu", "cpu", "--nodes", "1", "--gpus-per-node", "1"];
    let next = check(&asked, 0).stderr;
    assert!(next.contains("next: the same with --out plan.json"), "{next}");
    let written = check(&[&asked[..], &["--out", "mine.json"]].concat(), 0).stderr;
    assert!(written.contains("next: shardplan estimate mine.json"), "{written}");
}
