//! Modes, bodies and habits: what must stand in a script, and what must not.

use super::*;

const H100: &str = r#""gpu": "h100-sxm", "gpus_per_node": 8"#;

fn of(preset: &str, nodes: u64, layout: &str) -> Plan {
    plan(&format!(
        r#"{{"version": 1, "model": {{"preset": "{preset}"}}, "cluster": {{{H100}, "nodes": {nodes}}}, "layout": {layout}}}"#
    ))
}

fn kind(mode: Mode, body: Body) -> ScriptOptions {
    ScriptOptions { mode, body, ..ScriptOptions::default() }
}

/// Checks that a script has no error and holds `there` and nothing of `absent`.
#[track_caller]
fn check(plan: &Plan, site: &Site, options: &ScriptOptions, there: &[&str], absent: &[&str]) -> String {
    let (text, findings) = script(plan, site, options);
    assert!(!has_error(&findings), "{findings:?}");
    for part in there {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    for part in absent {
        assert!(!text.contains(part), "{part} is in\n{text}");
    }
    text
}

/// Checks that there is an error at `field` that says `part`.
#[track_caller]
fn refused(plan: &Plan, site: &Site, options: &ScriptOptions, field: &str, part: &str) {
    let (_, findings) = script(plan, site, options);
    let found = findings.iter().find(|finding| finding.field == field && finding.message.contains(part));
    assert!(found.is_some_and(|found| found.severity == planner::Severity::Error), "{findings:?}");
}

#[test]
fn a_conversion_by_srun_syncs_before_on_plain_nodes_and_never_in_an_image_that_has_all() {
    let site = Site { hf_model: Some("MiniMaxAI/MiniMax-M2".into()), ..site() };
    let options = ScriptOptions { task: Task::Convert, ..kind(Mode::Srun, Body::Bridge) };
    let plan = of("minimax-m2", 2, r#"{"tp": 2, "ep": 8}"#);
    let there = [
        "#SBATCH --ntasks-per-node=8\n",
        "--tp 2 --pp 1 --ep 8 --etp 1",
        // Not into the folder that it starts in, where something may have the model's name.
        "--output-dir \"$RUN_DIR\"",
        "export TORCH_NCCL_AVOID_RECORD_STREAMS=1",
        "export NCCL_NVLS_ENABLE=0",
        "# Weights of a rank: 60.23 GB",
    ];
    let absent = ["TRAIN_CMD", "torch.distributed", "--no-kill", "\\$", "--signal", "SHARDPLAN_RESUME"];
    let text = check(&plan, &site, &options, &there, &absent);
    assert!(!text.contains("uv "), "{text}");
    for part in ["--mpi=pmix", "--container-image=", "--container-mounts=", "--no-container-mount-home"] {
        assert!(text.contains(part), "{part}");
    }
    let bare = Site {
        image: None,
        mounts: Vec::new(),
        container: Some(Container::None),
        workdir: Some("/lustre/team/bridge".into()),
        ..site
    };
    let text = check(&plan, &bare, &options, &there, &absent);
    assert!(text.contains("srun --mpi=pmix -N 1 --ntasks=1 "), "{text}");
    let second = text.split("# Phase 2").nth(1).expect("a second phase");
    assert!(!second.contains("uv sync") && second.contains("uv run --no-sync python"), "{second}");
}

#[test]
fn a_recipe_by_torchrun() {
    let text = check(
        &of("llama-3-70b", 4, r#"{"tp": 2, "pp": 4}"#),
        &site(),
        &kind(Mode::Torchrun, Body::Bridge),
        &[
            "#SBATCH --ntasks-per-node=1\n",
            "TRAIN_CMD=\"",
            "--nproc_per_node=8 --nnodes=\\${SLURM_JOB_NUM_NODES} --node_rank=\\${SLURM_NODEID}",
            "--master_addr=\\${MASTER_ADDR} --master_port=\\${MASTER_PORT}",
            "model.tensor_model_parallel_size=2",
            "model.pipeline_model_parallel_size=4",
            "dp 4",
            "--no-kill",
            "2>&1 | tee -a \"$LOG\"",
            "RUN_DIR=\"$SHARED_DIR/runs/${SLURM_CLUSTER_NAME:-slurm}-$SLURM_JOB_ID\"",
            "\"checkpoint.save='$RUN_DIR/checkpoints'\"",
            "\"checkpoint.load='$RUN_DIR/checkpoints'\"",
            "\"logger.tensorboard_dir='$RUN_DIR/tb_logs'\"",
            "lm loss|reduced_train_loss",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1",
        ],
        &["rm -", "nemo_experiments"],
    );
    insta::assert_snapshot!("torchrun_bridge", text);
}

#[test]
fn megatron_lm_by_torchrun() {
    let text = check(
        &minimax(),
        &site(),
        &kind(Mode::Torchrun, Body::Mlm),
        &[
            "export PYTHONPATH=\\\"\\$2:\\${PYTHONPATH:-}\\\"",
            "MEGATRON_LM=\"$WORKDIR\"/3rdparty/Megatron-LM",
            "pretrain_gpt.py",
            "--expert-tensor-parallel-size 1",
            "--expert-model-parallel-size 32",
            "--num-experts 256",
            "# Not expressed by Megatron-LM's flags:\n#   model.attention.qk_norm",
            "--save \"$RUN_DIR/checkpoints\" \\\n  --load \"$RUN_DIR/checkpoints\" \\\n  --save-interval 20",
            "--exit-duration-in-mins \"$MINUTES\"",
        ],
        &["--exit-signal", "#SBATCH --signal"],
    );
    insta::assert_snapshot!("torchrun_mlm", text);
}

#[test]
fn inference_syncs_once_on_each_node() {
    let site = Site {
        hf_model: Some("MiniMaxAI/MiniMax-M2".into()),
        environment: Some(Environment::NodeLocal),
        ..site()
    };
    let options = ScriptOptions { task: Task::Generate, ..kind(Mode::Srun, Body::Bridge) };
    let text = check(
        &of("minimax-m2", 2, r#"{"tp": 1, "ep": 16}"#),
        &site,
        &options,
        &[
            "# Weights of a rank: 36.10 GB",
            "[ \"$SLURM_LOCALID\" -eq 0 ]",
            "flock 9",
            "touch \"$ready\"",
            "16 ranks",
        ],
        &["Phase 1"],
    );
    insta::assert_snapshot!("srun_generate_node_local", text);
}

#[test]
fn torchrun_wants_one_task_a_node() {
    let site = Site { ntasks_per_node: Some(8), ..site() };
    refused(
        &minimax(),
        &site,
        &kind(Mode::Torchrun, Body::Mlm),
        "site.ntasks_per_node",
        "8 x 8 = 64 processes",
    );
    refused(&minimax(), &site, &kind(Mode::Torchrun, Body::Mlm), "site.ntasks_per_node", "EADDRINUSE");
    check(&minimax(), &site, &kind(Mode::Srun, Body::Bridge), &["--ntasks-per-node=8"], &[]);
    let site = Site { ntasks_per_node: Some(4), ..site };
    refused(&minimax(), &site, &kind(Mode::Srun, Body::Bridge), "site.ntasks_per_node", "wants 8 tasks");
}

#[test]
fn one_node_needs_no_address() {
    check(
        &of("llama-3-8b", 1, "{}"),
        &site(),
        &kind(Mode::Torchrun, Body::Mlm),
        &["--nnodes=1 --standalone"],
        &["--master_addr"],
    );
}

#[test]
fn arrays() {
    let options = ScriptOptions { array: Some("0-3%2".into()), ..kind(Mode::Srun, Body::Bridge) };
    check(
        &minimax(),
        &site(),
        &options,
        &[
            "#SBATCH --array=0-3%2\n",
            "_%A_%a.log\n",
            "15000 + SLURM_JOB_ID % 10000",
            "rng.seed=\"$((1234 + SLURM_ARRAY_TASK_ID))\"",
            "-${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}\"\n",
        ],
        &["rm -rf"],
    );
    refused(
        &minimax(),
        &site(),
        &ScriptOptions { array: Some("0-3; id".into()), ..kind(Mode::Srun, Body::Bridge) },
        "script.array",
        "not a list",
    );
    let both = ScriptOptions { het: Some("4,4".into()), ..options };
    refused(&minimax(), &site(), &both, "script.array", "heterogeneous");
}

#[test]
fn components_of_a_heterogeneous_job() {
    let het = |text: &str| ScriptOptions { het: Some(text.into()), ..kind(Mode::Srun, Body::Mlm) };
    let text =
        check(&minimax(), &site(), &het("2:left,6:right"), &["#SBATCH hetjob\n", "--het-group=0-1 "], &[]);
    insta::assert_snapshot!("het_mlm", text);
    let nodes: Vec<&str> = directives(&text)
        .into_iter()
        .filter(|line| line.starts_with("--nodes") || line.starts_with("--part"))
        .collect();
    assert_eq!(nodes, ["--nodes=2", "--partition=left", "--nodes=6", "--partition=right"]);
    refused(&minimax(), &site(), &het("2,2"), "script.het", "4 nodes");
    refused(&minimax(), &site(), &het("8"), "script.het", "not a list");
    let torchrun = ScriptOptions { mode: Mode::Torchrun, ..het("4,4") };
    refused(&minimax(), &site(), &torchrun, "script.het", "only under srun");
}

#[test]
fn steps_of_an_interactive_allocation() {
    let site = Site { hf_model: Some("Qwen/Qwen3-30B-A3B".into()), ..site() };
    let options = ScriptOptions { task: Task::Generate, ..kind(Mode::Salloc, Body::Bridge) };
    let text = check(
        &of("qwen3-30b-a3b", 1, r#"{"ep": 8}"#),
        &site,
        &options,
        &["\nsalloc \\\n", "--pty", "--time=04:00:00", ": \"${SLURM_JOB_ID:?"],
        &["#SBATCH", "set -euo", "exit 1"],
    );
    insta::assert_snapshot!("salloc_generate", text);
    check(&tiny(), &site, &kind(Mode::Salloc, Body::Worker), &["salloc"], &["#SBATCH", "exit 1"]);
}

#[test]
fn other_frameworks() {
    let fsdp = plan(&format!(
        r#"{{"version": 1, "model": {{"preset": "llama-3-8b"}}, "runtime": "fsdp2", "cluster": {{{H100}, "nodes": 2}},
            "layout": {{"tp": 2}}, "training": {{"micro_batch_size": 2, "global_batch_size": 64}}}}"#
    ));
    let site = Site {
        image: None,
        mounts: Vec::new(),
        workdir: Some("/lustre/team/src".into()),
        config: Some("recipe.yaml".into()),
        titan_module: Some("llama3".into()),
        titan_config: Some("llama3_8b".into()),
        ..site()
    };
    let text = check(
        &fsdp,
        &site,
        &kind(Mode::Torchrun, Body::Torchtitan),
        &[
            "--module llama3 --config llama3_8b",
            "--parallelism.data_parallel_shard_degree 8",
            "--training.local_batch_size 2",
            "--training.global_batch_size 64",
            "activation-checkpoint:none",
        ],
        &["uv "],
    );
    insta::assert_snapshot!("torchrun_torchtitan", text);
    let text = check(
        &fsdp,
        &site,
        &kind(Mode::Srun, Body::Automodel),
        &["-m nemo_automodel.cli.app", "--distributed.dp_size 8", "export TORCHELASTIC_RUN_ID=", "uv sync"],
        &[],
    );
    insta::assert_snapshot!("srun_automodel", text);
    let (_, findings) = script(&minimax(), &site, &kind(Mode::Srun, Body::Torchtitan));
    assert!(findings.iter().any(|finding| finding.field == "runtime"), "{findings:?}");
}

#[test]
fn any_command() {
    let site = Site { image: None, mounts: Vec::new(), ..site() };
    let command = |words: &[&str], mode: Mode| ScriptOptions {
        command: words.iter().map(|&word| word.to_owned()).collect(),
        ..kind(mode, Body::Command)
    };
    let plan = of("llama-3-8b", 2, "{}");
    check(
        &plan,
        &site,
        &command(&["./train", "a b"], Mode::Srun),
        &["./train 'a b'", "export RANK="],
        &["uv "],
    );
    check(
        &plan,
        &site,
        &command(&["python", "-m", "pkg", "--x"], Mode::Torchrun),
        &["-m pkg \\\n  --x"],
        &["--no-python", "export RANK="],
    );
    check(&plan, &site, &command(&["./train"], Mode::Torchrun), &["--no-python ./train"], &[]);
    for words in
        [&["env", "HF_TOKEN=abc"][..], &["train", "--api-key", "abc"], &["x", "hf_abcdefghijklmnopqrst"]]
    {
        refused(&plan, &site, &command(words, Mode::Srun), "script.command", "secret");
        let (text, findings) = script(&plan, &site, &command(words, Mode::Srun));
        assert!(!text.contains("abc") && !format!("{findings:?}").contains("abc"), "{text}");
    }
}

#[test]
fn a_site_profile() {
    let site = Site {
        profile: Some(Profile::NemoRunspec),
        required_env: vec!["HF_TOKEN".into()],
        mounts: Vec::new(),
        ..site()
    };
    let text = check(
        &minimax(),
        &site,
        &kind(Mode::Srun, Body::Bridge),
        &[
            "#SBATCH --time=04:00:00\n",
            "MOUNTS='/lustre/team:/lustre/team,/lustre:/lustre,/lustre/team/ray_temp:/ray-cluster'",
            "mkdir -p \"$SHARED_DIR/ray_temp\"",
            "export HF_HOME=/lustre/team/hf",
            "SECRETS_FILE=/lustre/team/.shardplan-secrets/job.env",
            "set +vx\n",
            "!= 600",
        ],
        &["--exclusive", "--mpi"],
    );
    insta::assert_snapshot!("nemo_runspec", text);
    let said = Site { time: Some("1-00".into()), exclusive: Some(true), ..site };
    check(&minimax(), &said, &kind(Mode::Srun, Body::Bridge), &["--time=1-00\n", "--exclusive"], &[]);
}

#[test]
fn habits_besides() {
    let site = Site {
        qos: Some("high".into()),
        reservation: Some("team".into()),
        constraint: Some("h100".into()),
        requeue: Some(true),
        signal: Some("USR1@180".into()),
        modules: vec!["cuda/12.9".into()],
        retries: 2,
        container: Some(Container::Apptainer),
        numa_bind: true,
        ..site()
    };
    check(
        &minimax(),
        &site,
        &kind(Mode::Srun, Body::Bridge),
        &[
            "#SBATCH --qos=high\n",
            "#SBATCH --reservation=team\n",
            "#SBATCH --constraint=h100\n",
            "#SBATCH --requeue\n#SBATCH --open-mode=append\n",
            "#SBATCH --signal=USR1@180\n",
            "module load cuda/12.9",
            "apptainer exec --nv --bind \"$MOUNTS\" \"$IMAGE\"",
            "numactl --cpunodebind=\"$((SLURM_LOCALID / 4))\"",
            "-le 2 ]",
        ],
        &["--container-image"],
    );
}

/// Of each body: what its command is told of a signal; or why none is sent.
#[test]
fn a_signal_is_sent_to_what_is_told_to_handle_it_and_to_nobody_else() {
    let signalled = |signal: &str| Site { signal: Some(signal.into()), ..site() };
    let told = |signal: &str, body: Body, there: &[&str]| {
        let text = check(&minimax(), &signalled(signal), &kind(Mode::Srun, body), there, &[]);
        assert!(text.contains(&format!("#SBATCH --signal={signal}\n")), "{body:?}: {text}");
        text
    };
    told("USR1@180", Body::Bridge, &["train.exit_signal_handler=true", "train.exit_signal=10"]);
    let usual = told("TERM@180", Body::Bridge, &["train.exit_signal_handler=true"]);
    assert!(!usual.contains("train.exit_signal="), "{usual}");
    told("SIGUSR2@90", Body::Bridge, &["train.exit_signal=12"]);
    let saves = "--save \"$RUN_DIR/checkpoints\" \\\n  --load \"$RUN_DIR/checkpoints\"";
    let all = ["--exit-signal-handler", "--exit-signal SIGUSR1", saves, "--save-interval 20"];
    told("USR1@180", Body::Mlm, &all);
    told("HUP@60", Body::Automodel, &["--step_scheduler.preemption_signal SIGHUP"]);
    let usual = told("TERM@60", Body::Automodel, &[]);
    assert!(!usual.contains("preemption_signal"), "{usual}");
    told("USR1@180", Body::Worker, &[]);

    let of = |body: Body| ScriptOptions { command: vec!["./train".into()], ..kind(Mode::Srun, body) };
    let convert = ScriptOptions { task: Task::Convert, ..of(Body::Bridge) };
    let torchrun = |body: Body| ScriptOptions { mode: Mode::Torchrun, ..of(body) };
    for (signal, options, why) in [
        ("USR1@180", of(Body::Torchtitan), "torchtitan handles no signal"),
        ("TERM@180", of(Body::Torchtitan), "torchtitan handles no signal"),
        ("USR2@180", of(Body::Worker), "any other kills it"),
        ("TERM@180", convert, "handle no signal"),
        ("TERM@180", torchrun(Body::Bridge), "30 s after"),
        ("USR1@180", torchrun(Body::Mlm), "mode srun"),
        ("USR1@180", torchrun(Body::Command), "mode srun"),
    ] {
        let (text, findings) = script(&minimax(), &signalled(signal), &options);
        assert!(!text.contains("--signal") && !text.contains("exit_signal"), "{text}");
        let found = findings.iter().find(|finding| finding.field == "site.signal");
        let found = found.unwrap_or_else(|| panic!("{signal} {options:?}: {findings:?}"));
        assert!(found.message.contains("is not sent") && found.message.contains(why), "{found:?}");
    }
    let (text, findings) = script(&minimax(), &signalled("USR1@60"), &of(Body::Command));
    assert!(text.contains("--signal=USR1@60"), "{text}");
    assert!(findings.iter().any(|one| one.message.contains("unless it handles it")), "{findings:?}");
    let bridge = kind(Mode::Srun, Body::Bridge);
    refused(&minimax(), &signalled("B:USR1@300"), &bridge, "site.signal", "batch shell alone");
    refused(&minimax(), &signalled("KILL@60"), &bridge, "site.signal", "no signal that a program");
    let (text, _) = script(&minimax(), &signalled("B:USR1@300"), &bridge);
    assert!(!text.contains("--signal"), "{text}");
}

#[test]
fn what_a_run_saves_outlives_its_container() {
    let hidden = Site { mounts: vec!["/lustre/team/src:/opt/Megatron-Bridge".into()], ..site() };
    let elsewhere = Site { mounts: vec!["/lustre/team:/data".into()], ..site() };
    let parent = Site { mounts: vec!["/lustre:/lustre".into()], ..site() };
    let warned = |site: &Site| {
        let (_, findings) = script(&minimax(), site, &kind(Mode::Srun, Body::Bridge));
        findings.iter().any(|finding| finding.field == "site.mounts" && finding.message.contains("lost"))
    };
    assert_eq!([&hidden, &elsewhere, &parent, &site()].map(warned), [true, true, false, false]);
}

/// The text to paste for a script.
fn pasted_of(file: &planner::wire::PlanFile, site: &Site, options: &ScriptOptions) -> Option<String> {
    let (_, findings) = script(&Plan::resolve(file).plan?, site, options);
    as_command_line(file, site, options, &findings)
}

#[test]
fn every_example_is_a_script() {
    let examples = examples();
    assert_eq!(examples.len(), 7);
    for example in examples {
        let plan = Plan::resolve(&example.plan).plan.expect(example.title);
        let site = example.on(&site());
        let (text, findings) = script(&plan, &site, &example.options);
        assert!(!has_error(&findings), "{}: {findings:?}", example.title);
        let pasted = pasted_of(&example.plan, &site, &example.options).expect("a command line");
        assert!(pasted.contains("shardplan script plan.json --mode"), "{pasted}");
        assert!(text.starts_with("#!/bin/bash\n"));
    }
    let secret = Site { env: [("HF_TOKEN".to_owned(), "abc".to_owned())].into(), ..site() };
    let file = super::minimax().file;
    assert_eq!(pasted_of(&file, &secret, &body(Body::Bridge)), None);
}

#[test]
fn a_site_as_its_file() {
    let site = Site {
        account: Some("re\"search".into()),
        mounts: vec!["/a:/a".into()],
        retries: 1,
        env: [("X".to_owned(), "1".to_owned())].into(),
        gpus: GpuRequest::Gres,
        ..Site::default()
    };
    insta::assert_snapshot!(site_toml(&site), @r#"
    account = "re\"search"
    gpus = "gres"
    mounts = ["/a:/a"]
    retries = 1

    [env]
    "X" = "1"
    "#);
    assert_eq!(site_toml(&Site::default()), "");
}

#[test]
fn an_array_one_node_and_racks_as_they_are_read() {
    let array = ScriptOptions { array: Some("0-3%2".into()), ..kind(Mode::Srun, Body::Bridge) };
    insta::assert_snapshot!(
        "array_bridge",
        check(&minimax(), &site(), &array, &["#SBATCH --array=0-3%2\n"], &[])
    );

    let alone = of("llama-3-8b", 1, r#"{"tp": 2}"#);
    let torchrun = kind(Mode::Torchrun, Body::Mlm);
    let text =
        check(&alone, &site(), &torchrun, &["--nnodes=1 --standalone"], &["--master_addr", "--node_rank"]);
    insta::assert_snapshot!("one_node_mlm", text);

    let apptainer = Site {
        container: Some(Container::Apptainer),
        image: Some("/lustre/team/train.sif".into()),
        ..site()
    };
    let text = check(
        &minimax(),
        &apptainer,
        &kind(Mode::Srun, Body::Mlm),
        &["apptainer exec --nv"],
        &["--container-"],
    );
    insta::assert_snapshot!("apptainer_mlm", text);

    let racks = plan(
        r#"{"version": 1, "model": {"preset": "llama-3-70b"}, "training": {"global_batch_size": 288}, "layout": {"tp": 4},
            "cluster": {"gpu": "gb200", "nodes": 36, "gpus_per_node": 4, "nvlink_domain": 72}}"#,
    );
    let text = check(
        &racks,
        &site(),
        &kind(Mode::Srun, Body::Bridge),
        &["--segment=18\n", "NCCL_NET_GDR_C2C=1"],
        &[],
    );
    insta::assert_snapshot!("racks_bridge", text);

    insta::assert_snapshot!(
        "salloc_worker",
        check(&tiny(), &site(), &kind(Mode::Salloc, Body::Worker), &["salloc"], &[])
    );
}

#[test]
fn names_of_the_log_hold_nothing_that_slurm_reads() {
    let kind = kind(Mode::Srun, Body::Bridge);
    for name in ["a/b", "run%j"] {
        refused(&minimax(), &Site { job_name: Some(name.into()), ..site() }, &kind, "site.job_name", "log");
    }
    let shared = |path: &str| Site { shared_dir: Some(path.into()), mounts: Vec::new(), ..site() };
    refused(&minimax(), &shared("/lustre/50%/team"), &kind, "site.shared_dir", "pattern");
    refused(&minimax(), &shared("/lustre/a:b"), &kind, "site.mounts", "can't be mounted");
}

#[test]
fn gradients_of_a_script_are_the_plans() {
    let written = |training: &str| {
        let plan = plan(&format!(
            r#"{{"version": 1, "model": {{"preset": "nemotron-3-nano"}}, "cluster": {{"gpu": "h100-sxm", "nodes": 4}},
                "layout": {{"ep": 8, "pp": 2}}, "training": {{{training}, "global_batch_size": 64}}}}"#
        ));
        let (text, findings) = script(&plan, &site(), &body(Body::Bridge));
        assert!(findings.iter().all(|finding| finding.field != "training.grad_dtype"), "{findings:?}");
        text
    };
    let narrow = written(r#""grad_dtype": "bf16""#);
    assert!(
        narrow.contains("grad_reduce_in_fp32:false") && narrow.contains("mixed_precision=null"),
        "{narrow}"
    );
    assert!(written(r#""grad_dtype": "fp32""#).contains("mixed_precision=bf16_mixed"));
}
