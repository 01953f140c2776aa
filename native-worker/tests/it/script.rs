//! Scripts, and that the shell agrees that they are ones.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::Workshop;

const SITE: &str = "account = \"research\"\npartition = \"gpu\"\nshared_dir = \"/lustre/team\"\n\
    rank_binary = \"/lustre/team/bin/shardplan-rank\"\ntorch_lib = \"/lustre/team/torch/lib\"\n\
    image = \"/lustre/team/image.sqsh\"\nmounts = [\"/lustre/team:/lustre/team\"]\nrecipe = \"llama_3_8b\"\n\
    required_env = [\"HF_TOKEN\"]\n[env]\nTRANSFORMERS_OFFLINE = \"1\"\n";

/// Has bash read the script without running it.
fn check_syntax(script: &str) {
    let mut bash =
        Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash");
    bash.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("written");
    let output = bash.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}\n{script}");
}

#[test]
fn bash_reads_every_script() {
    let shop = Workshop::new();
    shop.write("site.toml", SITE);
    for body in ["worker", "bridge"] {
        for site in [&["--site", "site.toml"][..], &[]] {
            let answer = shop.ask(&[&["script", "tiny.json", "--body", body], site].concat());
            assert_eq!(answer.code, Some(0), "{answer:?}");
            check_syntax(&answer.stdout);
        }
    }
}

#[test]
fn a_script_starts_the_framework_of_its_plan_and_a_program_that_is_named_says_the_framework() {
    let shop = Workshop::new();
    let named =
        ["script", "--model", "qwen3-8b", "--gpu", "h100-sxm", "--nodes", "1", "--tp", "2", "--mode", "srun"];
    for (more, body) in [
        (&[][..], "bridge"),
        (&["--framework", "bridge 26.06"], "bridge"),
        (&["--framework", "megatron-lm"], "mlm"),
        (&["--framework", "torchtitan"], "torchtitan"),
        (&["--framework", "automodel"], "automodel"),
        (&["--runtime", "native"], "worker"),
        (&["--on-failure", "drop", "--set", "run.checkpoint.every_steps=1"], "worker"),
    ] {
        let answer = shop.ask(&[&named[..], more].concat());
        assert_eq!(answer.code, Some(0), "{more:?}: {answer:?}");
        assert!(answer.stderr.contains(&format!("(--body {body};")), "{more:?}: {answer:?}");
    }
    for (body, runtime) in [
        ("bridge", None),
        ("mlm", None),
        ("torchtitan", None),
        ("automodel", None),
        ("automodel", Some("fsdp2")),
    ] {
        let runtime: Vec<&str> = runtime.into_iter().flat_map(|runtime| ["--runtime", runtime]).collect();
        let answer = shop.ask(&[&named[..], &["--body", body], &runtime[..]].concat());
        assert_eq!(answer.code, Some(0), "{body} {runtime:?}: {answer:?}");
        assert!(!answer.stderr.contains("the plan names"), "{body} {runtime:?}: {answer:?}");
    }
}

#[test]
fn strict_names_what_is_missing_and_prints_no_script() {
    let shop = Workshop::new();
    let answer = shop.ask(&["script", "tiny.json", "--strict"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(1), ""), "{answer:?}");
    assert!(answer.stderr.contains("error: site.account"), "{answer:?}");
    let answer = shop.ask(&["script", "tiny.json", "--strict", "--json"]);
    assert!(answer.json()["script"].is_null() && answer.json()["findings"].is_array(), "{answer:?}");
    shop.write("site.toml", SITE);
    let answer = shop.ask(&["script", "tiny.json", "--strict", "--site", "site.toml"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
}

#[test]
fn a_wrong_site_file() {
    let shop = Workshop::new();
    for (text, expected) in
        [("acount = \"x\"", "acount"), ("account = ", "line 1"), ("account = 3", "line 1")]
    {
        shop.write("site.toml", text);
        let answer = shop.ask(&["script", "tiny.json", "--site", "site.toml"]);
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(answer.stderr.contains(expected), "{expected:?} in {answer:?}");
    }
}

/// The worker's script is run by bash with stand-ins for Slurm's commands: its plan and its run.json must be read
/// back whole, and nothing in a hostile name may be run.
#[test]
fn a_hostile_plan_arrives_whole() {
    let shop = Workshop::new();
    let evil = "it's \"$(touch pwned)\" `touch pwned` \\\nSHARDPLAN_PLAN_JSON\ntouch pwned\n#";
    let mut plan: serde_json::Value = serde_json::from_str(crate::support::TINY).expect("JSON");
    // Planner refuses a name of several lines.
    let name = evil.replace('\n', " ");
    plan["name"] = name.as_str().into();
    plan["run"]["data"] = serde_json::json!({"kind": "text", "path": evil});
    shop.write("evil.json", &plan.to_string());
    let shared = shop.path("shared dir");
    std::fs::create_dir(&shared).expect("a folder");
    let rank = shop.path("fake-rank");
    let toml = |path: &std::path::Path| serde_json::to_string(&path.display().to_string()).expect("a string");
    // The folder's name has a space, which a directive can't hold, so it is put in afterwards.
    shop.write(
        "site.toml",
        &format!(
            "account = \"a\"\nshared_dir = \"/SHARED\"\nrank_binary = {}\ntorch_lib = \"/no/lib\"\n",
            toml(&rank)
        ),
    );
    let answer = shop.ask(&["script", "evil.json", "--site", "site.toml"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    check_syntax(&answer.stdout);
    let script =
        answer.stdout.replace("SHARED_DIR=/SHARED\n", &format!("SHARED_DIR='{}'\n", shared.display()));
    shop.write("job.sh", &script);
    shop.program("bin/scontrol", "#!/bin/sh\nprintf 'node1\\nnode2\\n'\n");
    let srun = "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nRANK=0 exec \"$@\"\n";
    shop.program("bin/srun", srun);
    let path = format!("{}:{}", shop.path("bin").display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .arg("job.sh")
        .current_dir(shop.path(""))
        .env("PATH", path)
        .env("SLURM_JOB_ID", "123456")
        .env("SLURM_JOB_NODELIST", "node[1-2]")
        .env("FAKE_LOGS", shop.path(""))
        .env("FAKE", "echo \"$MASTER_ADDR:$MASTER_PORT $LD_LIBRARY_PATH\"; finish completed")
        .output()
        .expect("bash runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed} {}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("node1:18456 /no/lib"), "{printed}");
    assert!(!shop.path("pwned").exists() && !shared.join("pwned").exists());

    let run = std::fs::read_dir(shared.join("runs")).expect("runs").flatten().next().expect("a run").path();
    let read = |name: &str| std::fs::read_to_string(run.join(name)).expect("read");
    let arrived = planner::parse_plan(&read("plan.json")).expect("a plan");
    assert_eq!(arrived.name.as_deref(), Some(name.as_str()));
    assert_eq!(arrived.run.data, Some(planner::wire::DataFile::Text { path: evil.to_owned() }));
    let info: planner::wire::RunInfo = serde_json::from_str(&read("run.json")).expect("run.json");
    assert_eq!(
        (info.name.as_str(), info.slurm_job.as_deref(), info.world_size),
        (name.as_str(), Some("123456"), 4)
    );
    assert!(info.id.ends_with("-slurm-123456") && run.ends_with(&info.id));
    assert!(run.join("rank-00000.log").exists());
}
