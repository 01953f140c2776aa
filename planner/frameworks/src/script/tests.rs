//! Scripts as users read them, and scripts that somebody tries to break.

mod failures;
mod further;
mod given;
mod linted;
mod measure;
mod modes;
mod options;
mod round_trip;
mod saving;
mod settings;
mod starts;
mod torchtitan;

use super::*;
use batch::launch::*;
use planner::finding::has_error;

fn plan(text: &str) -> Plan {
    let file = planner::parse_plan(text).expect("a plan file");
    let resolved = Plan::resolve(&file);
    resolved.plan.unwrap_or_else(|| panic!("not a plan: {:?}", resolved.findings))
}

fn minimax() -> Plan {
    plan(
        r#"{"version": 1, "model": {"preset": "minimax-m2"}, "cluster": {"gpu": "h100-sxm", "nodes": 8},
            "layout": {"tp": 2, "ep": 32}}"#,
    )
}

fn tiny() -> Plan {
    plan(
        r#"{"version": 1, "name": "tiny", "model": {"preset": "tiny-dense"},
            "cluster": {"gpu": "cpu", "nodes": 2, "gpus_per_node": 2}, "layout": {"tp": 2},
            "training": {"seq_len": 32, "global_batch_size": 4, "dtype": "fp32"}, "run": {"steps": 3}}"#,
    )
}

fn site() -> Site {
    Site {
        account: Some("research".into()),
        partition: Some("gpu".into()),
        shared_dir: Some("/lustre/team".into()),
        rank_binary: Some("/lustre/team/bin/shardplan-rank".into()),
        torch_lib: Some("/lustre/team/torch/lib".into()),
        recipe: Some("minimax_m2_pretrain".into()),
        image: Some("/lustre/team/images/bridge.sqsh".into()),
        mounts: vec!["/lustre/team:/lustre/team".into(), "/lustre/team/bridge:/opt/Megatron-Bridge".into()],
        // The same lines with the plan in them in every script: `measure` looks at them.
        measure: Some(false),
        ..Site::default()
    }
}

fn body(body: Body) -> ScriptOptions {
    ScriptOptions { body, ..ScriptOptions::default() }
}

/// Lines that Slurm would read as directives: it stops at the first command.
fn directives(script: &str) -> Vec<&str> {
    script
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("#SBATCH "))
        .collect()
}

#[test]
fn worker_on_plain_nodes() {
    let site = Site { image: None, mounts: Vec::new(), ..site() };
    let (script, findings) = script(&tiny(), &site, &body(Body::Worker));
    assert!(!has_error(&findings), "{findings:?}");
    insta::assert_snapshot!("worker_on_plain_nodes", script);
}

#[test]
fn worker_in_a_container() {
    let (script, _) = script(&minimax(), &site(), &body(Body::Worker));
    assert!(script.contains("--container-image=\"$IMAGE\""), "{script}");
    assert!(script.contains("#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n"), "{script}");
}

#[test]
fn bridge() {
    let (script, findings) = script(&minimax(), &site(), &body(Body::Bridge));
    let rules: Vec<&str> = findings.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(rules, ["a job fits its GPUs"]);
    insta::assert_snapshot!("bridge", script);
}

#[test]
fn a_job_without_room_or_time_is_said_to_be_so() {
    let rules = |plan: &Plan, options: &ScriptOptions| -> Vec<String> {
        let (_, findings) = script(plan, &site(), options);
        assert!(!has_error(&findings), "{findings:?}");
        let of_run = |rule: &String| rule.starts_with("a job fits") || rule.starts_with("a job has time");
        findings.into_iter().map(|finding| finding.rule).filter(of_run).collect()
    };
    let mut long = tiny();
    assert!(rules(&long, &body(Body::Worker)).is_empty());
    long.run.steps = 100_000_000;
    long.file.run.steps = Some(100_000_000);
    assert_eq!(rules(&long, &body(Body::Worker)), ["a job has time for its steps"]);
    for kind in [Body::Worker, Body::Mlm, Body::Bridge] {
        assert!(rules(&minimax(), &body(kind)).contains(&"a job fits its GPUs".to_owned()), "{kind:?}");
    }
    // Weights are converted on whatever there is.
    let convert = ScriptOptions { task: Task::Convert, ..body(Body::Bridge) };
    assert!(rules(&minimax(), &convert).is_empty());
}

#[test]
fn nothing_known_of_the_site() {
    let unknown = Site { measure: Some(false), ..Site::default() };
    let (text, findings) = script(&minimax(), &unknown, &body(Body::Bridge));
    insta::assert_snapshot!("bridge_with_placeholders", text);
    assert!(!findings.is_empty() && !has_error(&findings), "{findings:?}");
    let strict = ScriptOptions { strict: true, ..body(Body::Bridge) };
    let (_, findings) = script(&minimax(), &Site::default(), &strict);
    let fields: Vec<&str> = findings.iter().map(|finding| finding.field.as_str()).collect();
    assert!(has_error(&findings));
    for field in ["site.account", "site.shared_dir", "site.image", "site.recipe"] {
        assert!(fields.contains(&field), "{field} of {fields:?}");
    }
}

#[test]
fn habits_of_sites() {
    let mut site = site();
    site.gpus = GpuRequest::Gres;
    site.mpi = Some("none".into());
    site.exclusive = Some(false);
    let (text, _) = script(&minimax(), &site, &body(Body::Bridge));
    assert!(text.contains("#SBATCH --gres=gpu:8\n"), "{text}");
    for absent in ["--gpus-per-node", "--mpi", "--exclusive", "--no-kill", "torch.distributed", "TRAIN_CMD"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    site.gpus = GpuRequest::Nothing;
    let (text, _) = script(&minimax(), &site, &body(Body::Bridge));
    assert!(!text.contains("--gres") && !text.contains("--gpus"), "{text}");
}

#[test]
fn segments_of_nvlink_racks() {
    for (nodes, segment) in [(18, 18), (20, 10), (36, 18), (19, 1), (2, 2)] {
        let plan = plan(&format!(
            r#"{{"version": 1, "model": {{"preset": "llama-3-8b"}}, "training": {{"global_batch_size": {}}},
                "cluster": {{"gpu": "gb200", "nodes": {nodes}, "gpus_per_node": 4, "nvlink_domain": 72}}}}"#,
            nodes * 4
        ));
        let (text, _) = script(&plan, &site(), &body(Body::Worker));
        assert!(text.contains(&format!("#SBATCH --segment={segment}\n")), "{nodes}: {text}");
    }
}

#[test]
fn secrets_stay_out() {
    let mut site = site();
    site.env.insert("HF_TOKEN".into(), "hf_supersecretvalue0000".into());
    site.env.insert("HARMLESS".into(), "hf_supersecretvalue1111".into());
    site.env.insert("https_proxy".into(), "http://svc:supersecret!@proxy.corp:8080".into());
    site.env.insert("TRANSFORMERS_OFFLINE".into(), "1".into());
    site.env.insert("http_proxy".into(), "http://proxy.corp:8080".into());
    let (text, findings) = script(&minimax(), &site, &body(Body::Bridge));
    assert!(!text.contains("supersecret"), "{text}");
    assert!(text.contains(": \"${https_proxy:?"), "{text}");
    assert!(text.contains("export http_proxy=http://proxy.corp:8080\n"), "{text}");
    assert!(text.contains(": \"${HF_TOKEN:?"), "{text}");
    assert!(text.contains("export TRANSFORMERS_OFFLINE=1\n"), "{text}");
    assert!(has_error(&findings));
    assert!(!serde_json::to_string(&findings).expect("JSON").contains("supersecret"));
}

#[test]
fn a_site_that_is_kept_holds_no_secret() {
    let secret = "hf_abcdefghijklmnopqrst".to_owned();
    let site = Site {
        image: Some(secret.clone()),
        modules: vec!["cuda".into(), format!("token={secret}")],
        env: [
            ("HF_TOKEN".into(), "typed".into()),
            ("OTHER".into(), secret.clone()),
            ("NCCL_IB_HCA".into(), "mlx5_0,mlx5_1".into()),
        ]
        .into(),
        required_env: vec!["HF_TOKEN".into()],
        retries: 2,
        ..site()
    };
    let kept = site.without_secrets();
    let text = serde_json::to_string(&kept).expect("JSON");
    assert!(!text.contains("hf_abc") && !text.contains("typed"), "{text}");
    let expected = Site {
        image: None,
        modules: vec!["cuda".into()],
        env: [("NCCL_IB_HCA".into(), "mlx5_0,mlx5_1".into())].into(),
        ..site
    };
    assert_eq!(kept, expected);
    // Without secrets nothing is lost.
    for example in examples() {
        let site = example.on(&super::tests::site());
        assert_eq!(site.without_secrets(), site);
    }
}

#[test]
fn hostile_values() {
    let evil = "x'; $(touch /tmp/pwned) `id` \"\nSHARDPLAN_PLAN_JSON\n#SBATCH --uid=0\ntouch /tmp/pwned\r";
    let hostile = || Some(evil.to_owned());
    let mut plan = tiny();
    plan.name = evil.to_owned();
    plan.file.name = hostile();
    plan.file.run.data = Some(planner::wire::DataFile::Text { path: evil.to_owned() });
    let site = Site {
        account: hostile(),
        partition: hostile(),
        qos: hostile(),
        time: hostile(),
        job_name: hostile(),
        shared_dir: hostile(),
        image: hostile(),
        mounts: vec![evil.to_owned()],
        mpi: hostile(),
        mem: hostile(),
        env: [(evil.to_owned(), "1".to_owned()), ("FINE".to_owned(), evil.to_owned())].into(),
        required_env: vec![evil.to_owned()],
        rank_binary: hostile(),
        torch_lib: hostile(),
        workdir: hostile(),
        recipe: hostile(),
        hf_home: hostile(),
        uv_cache_dir: hostile(),
        nemo_home: hostile(),
        ..Site::default()
    };
    for kind in [Body::Worker, Body::Bridge] {
        let (text, findings) = script(&plan, &site, &body(kind));
        assert!(has_error(&findings));
        assert!(!directives(&text).iter().any(|line| line.contains("uid")), "{text}");
        let ends = text.lines().filter(|line| *line == "SHARDPLAN_PLAN_JSON").count();
        // The plan of the worker, and that which stands beside a measurement.
        assert_eq!(ends, 1, "{text}");
        assert!(!text.lines().any(|line| line.starts_with("touch")), "{text}");
    }
}

#[test]
fn the_shell_reads_quoted_values_back() {
    let awkward = "it's $HOME `id` \"x\" \\ end";
    let site = Site { recipe: Some(awkward.into()), ..site() };
    let (text, findings) = script(&minimax(), &site, &body(Body::Bridge));
    assert!(!has_error(&findings), "{findings:?}");
    let line = text.lines().find(|line| line.trim_start().starts_with("--recipe")).expect("a recipe");
    let words = shlex::split(line.trim_end_matches('\\')).expect("words of the shell");
    assert_eq!(words, ["--recipe", awkward]);
}

#[test]
fn data_that_the_plan_names_is_the_frameworks_too() {
    use planner::wire::{DataFile, DataPart, TokenType};
    let of = |data: DataFile, kind| {
        let mut plan = tiny();
        plan.file.run.data = Some(data);
        let plan = Plan::resolve(&plan.file).plan.unwrap();
        script(&plan, &site(), &body(kind))
    };
    let set = || DataFile::Megatron { path: "/lustre/wiki_text_document.idx".to_owned() };
    let (text, _) = of(set(), Body::Mlm);
    assert!(
        text.contains("--data-path /lustre/wiki_text_document") && !text.contains("--mock-data"),
        "{text}"
    );
    let own = DataPart { weight: 1.0, data: set() };
    for data in [
        DataFile::Tokens { path: "/lustre/tokens.bin".to_owned(), dtype: TokenType::default() },
        DataFile::Blend { parts: vec![own.clone(), own] },
    ] {
        let (text, findings) = of(data, Body::Mlm);
        assert!(text.contains("--mock-data"), "{text}");
        assert!(findings.iter().any(|finding| finding.field == "run.data"), "{findings:?}");
    }
}

#[test]
fn a_plan_that_does_not_say_how_often_is_saved_as_its_limit_asks() {
    use planner::wire::DataFile;
    let of = |data: Option<DataFile>, kind| {
        let mut plan = tiny();
        plan.file.run.data = data;
        plan.file.run.steps = Some(1_000_000_000);
        let plan = Plan::resolve(&plan.file).plan.unwrap();
        script(&plan, &site(), &body(kind)).0
    };
    let line = |text: &str| text.lines().find(|line| line.starts_with("# Saves ")).map(str::to_owned);
    let own = || Some(DataFile::Megatron { path: "/lustre/set".to_owned() });
    // Data of one's own changes nothing in how often a framework saves, and the worker saves as its script says.
    assert_eq!(line(&of(None, Body::Mlm)), line(&of(own(), Body::Mlm)));
    let worker = of(own(), Body::Worker);
    let said = line(&worker).unwrap();
    let steps = said.split(' ').nth(3).unwrap();
    assert!(worker.contains(&format!("\"every_steps\": {steps}")), "{said}");
}
