//! What a site adds: further arguments, data, a checkpoint to begin with, lines of its own.

use super::*;

/// The findings of a script on the site with these further arguments, by field, and the script.
fn with(plan: &Plan, options: &ScriptOptions, line: &str) -> (String, Vec<Finding>) {
    let extra_args = shlex::split(line).expect("words");
    let site =
        Site { extra_args, workdir: Some("/code".into()), titan_module: Some("llama3".into()), ..site() };
    script(plan, &site, options)
}

fn fields(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.field.as_str()).collect()
}

fn dense(runtime: &str) -> Plan {
    plan(&format!(
        r#"{{"version": 1, "model": {{"preset": "llama-3-8b"}}, "runtime": "{runtime}", "layout": {{"tp": 2}},
            "cluster": {{"gpu": "h100-sxm", "nodes": 2}}}}"#
    ))
}

#[test]
fn further_arguments_stand_behind_the_plans_own() {
    for (runtime, kind, line) in [
        ("megatron", Body::Mlm, "--log-interval 7 --wandb-project 'my runs'"),
        ("megatron", Body::Bridge, "logger.log_interval=7 'logger.wandb_project=my runs'"),
        ("fsdp2", Body::Torchtitan, "--metrics.log-freq 7 --metrics.save-tb-folder 'my runs'"),
        ("fsdp2", Body::Automodel, "--step_scheduler.val_every_steps 7 --wandb.project 'my runs'"),
    ] {
        let plan = dense(runtime);
        let (plain, before) = with(&plan, &body(kind), "");
        let (text, after) = with(&plan, &body(kind), line);
        assert_eq!(before, after, "{kind:?}");
        assert_ne!(plain, text);
        let tail: Vec<String> = shlex::split(line).expect("words");
        let first = text.rfind(&tail[0]).expect("the first argument");
        let start = text[..first].rfind('\n').expect("a line");
        let rest = text[start..].split("|| status").next().expect("a command").replace("\\\n", " ");
        let mut words = shlex::split(&rest).expect("words");
        // torchtitan's options end with a choice.
        words.truncate(words.iter().position(|word| word.contains(':')).unwrap_or(words.len()));
        assert_eq!(words, tail, "{kind:?}: nothing behind them");
    }
}

#[test]
fn what_contradicts_the_plan_is_said_by_field() {
    for (runtime, kind, line, field) in [
        ("megatron", Body::Mlm, "--tensor-model-parallel-size 8", "layout.tp"),
        ("megatron", Body::Mlm, "--micro_batch_size=4", "training.micro_batch_size"),
        (
            "megatron",
            Body::Mlm,
            "--recompute-granularity full --recompute-method uniform",
            "training.recompute.granularity",
        ),
        ("megatron", Body::Bridge, "model.tensor_model_parallel_size=8", "layout.tp"),
        ("megatron", Body::Bridge, "+train.global_batch_size=2048", "training.global_batch_size"),
        ("fsdp2", Body::Torchtitan, "--parallelism.tensor-parallel-degree 8", "layout.tp"),
        ("fsdp2", Body::Torchtitan, "--training.steps=9", "run.steps"),
        ("fsdp2", Body::Automodel, "--distributed.tp_size 8", "layout.tp"),
    ] {
        let (_, findings) = with(&dense(runtime), &body(kind), line);
        assert!(fields(&findings).contains(&field), "{kind:?} {line}: {findings:?}");
    }
    // The plan's own values contradict nothing.
    for (runtime, kind, line) in [
        ("megatron", Body::Mlm, "--tensor-model-parallel-size 2 --bf16"),
        ("megatron", Body::Bridge, "model.tensor_model_parallel_size=2"),
        ("fsdp2", Body::Torchtitan, "--parallelism.tensor_parallel_degree 2"),
        ("fsdp2", Body::Automodel, "--distributed.tp_size 2"),
    ] {
        let plan = dense(runtime);
        let (_, before) = with(&plan, &body(kind), "");
        assert_eq!(before, with(&plan, &body(kind), line).1, "{kind:?} {line}");
    }
    let (_, findings) = with(&dense("megatron"), &body(Body::Mlm), "--micro-batch-size many");
    assert!(findings.iter().any(|finding| finding.message.contains("many")), "{findings:?}");
}

#[test]
fn further_arguments_are_words_and_no_secrets() {
    let evil = "x; touch /tmp/pwned `id` $(id)";
    let site = Site { extra_args: vec![evil.into(), "a'b".into()], workdir: Some("/code".into()), ..site() };
    let (text, findings) = script(&dense("megatron"), &site, &body(Body::Mlm));
    assert!(!has_error(&findings), "{findings:?}");
    assert!(text.contains("'x; touch /tmp/pwned `id` $(id)'"), "{text}");
    for secret in ["--wandb-api-key=abcdefgh", "HF_TOKEN=hf_abcdefghijklmnopqrst"] {
        let (text, findings) = with(&dense("megatron"), &body(Body::Mlm), secret);
        assert!(has_error(&findings) && !text.contains("abcdefgh"), "{text}");
    }
    let site = Site { extra_args: vec!["a\nb".into()], ..site };
    assert!(has_error(&script(&dense("megatron"), &site, &body(Body::Mlm)).1));
    // Who takes none says so.
    for kind in [Body::Worker, Body::Command] {
        let options = ScriptOptions { command: vec!["train".into()], ..body(kind) };
        let (text, findings) = with(&tiny(), &options, "--flag");
        assert!(fields(&findings).contains(&"site.extra_args") && !text.contains("--flag"), "{kind:?}");
    }
}

#[test]
fn data_and_the_checkpoint_to_begin_with() {
    let site = Site {
        data_path: Some("/data/s,[1]".into()),
        pretrained: Some("/ckpt/base".into()),
        tokenizer: Some("org/model".into()),
        trust_remote_code: true,
        workdir: Some("/code".into()),
        titan_module: Some("llama3".into()),
        ..site()
    };
    for (runtime, kind, wanted) in [
        (
            "megatron",
            Body::Mlm,
            &["--pretrained-checkpoint /ckpt/base", "--trust-remote-code", "--tokenizer-model org/model"][..],
        ),
        (
            "megatron",
            Body::Bridge,
            &[
                r#"dataset.data_path='/data/s,[1]'"#,
                "checkpoint.pretrained_checkpoint='/ckpt/base'",
                "tokenizer.tokenizer_type=HuggingFaceTokenizer",
                "tokenizer.tokenizer_model='org/model'",
            ],
        ),
        (
            "fsdp2",
            Body::Torchtitan,
            &[
                "--checkpoint.initial_load_path /ckpt/base",
                "--dataloader.dataset_path /data/s,[1]",
                "--hf_assets_path org/model",
            ],
        ),
        ("fsdp2", Body::Automodel, &["--dataset.tokenizer.pretrained_model_name_or_path org/model"]),
    ] {
        let (text, findings) = script(&dense(runtime), &site, &body(kind));
        assert!(!has_error(&findings), "{findings:?}");
        let lines: Vec<String> = text
            .lines()
            .filter_map(|line| Some(shlex::split(line.trim_end_matches('\\'))?.join(" ")))
            .collect();
        for wanted in wanted {
            assert!(lines.iter().any(|line| line == wanted), "{kind:?} {wanted}: {lines:#?}");
        }
    }
    let generate = ScriptOptions { task: Task::Generate, ..body(Body::Bridge) };
    assert!(script(&minimax(), &site, &generate).0.contains("--trust-remote-code"));
}

#[test]
fn data_of_megatron_is_read_by_megatron() {
    for (kind, told) in
        [(Body::Torchtitan, "Hugging Face's datasets"), (Body::Automodel, "MegatronPretraining")]
    {
        let said = |path: &str| {
            let site = Site { data_path: Some(path.into()), ..site() };
            let (_, findings) = script(&dense("fsdp2"), &site, &body(kind));
            findings.iter().any(|finding| finding.field == "site.data_path" && finding.message.contains(told))
        };
        for path in ["/data/web_text_document", "/data/web.bin", "/data/web.idx"] {
            assert!(said(path), "{kind:?} {path}");
        }
        assert!(!said("/data/c4"), "{kind:?}");
    }
}

#[test]
fn models_that_torchtitan_does_not_have_are_named() {
    let told = |preset: &str, module: Option<&str>, version: &str| {
        let plan = plan(&format!(
            r#"{{"version": 1, "model": {{"preset": "{preset}"}}, "cluster": {{"gpu": "h100-sxm", "nodes": 16}},
                "runtime": "fsdp2", "software": {{"framework": "{version}"}}}}"#
        ));
        let site = Site { titan_module: module.map(Into::into), ..site() };
        let (_, findings) = script(&plan, &site, &body(Body::Torchtitan));
        let told = findings.into_iter().find(|finding| finding.field == "model");
        told.map_or(String::new(), |finding| finding.message)
    };
    let message = told("glm-4.5", None, "torchtitan 0.3");
    assert!(
        message.contains("glm4_moe") && message.contains("automodel") && message.contains("llama3"),
        "{message}"
    );
    // A module that somebody has added, and models that are there.
    assert_eq!(told("glm-4.5", Some("ours.glm"), "torchtitan 0.3"), "");
    for preset in ["llama-3-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b", "tiny-dense"] {
        assert_eq!(told(preset, None, "torchtitan 0.3"), "", "{preset}");
    }
    assert!(told("llama-3-8b", Some("qwen3"), "torchtitan 0.3").contains("llama3"));
    // Which there are is the version's.
    assert!(told("qwen3.5-27b", None, "torchtitan 0.2").contains("qwen3_5"));
    assert_eq!(told("qwen3.5-27b", None, "torchtitan main"), "");
}

#[test]
fn lines_of_the_sites_own_stand_before_anything_starts() {
    let site = Site { prologue: vec!["source /opt/env.sh".into(), "ulimit -n 65536".into()], ..site() };
    for kind in [Body::Worker, Body::Bridge] {
        let (text, findings) = script(&minimax(), &site, &body(kind));
        assert!(!has_error(&findings), "{findings:?}");
        let lines = text.find("source /opt/env.sh\nulimit -n 65536\n").expect("the lines");
        assert!(lines < text.find("\nsrun ").expect("a start"), "{text}");
    }
    for wrong in ["export HF_TOKEN=hf_abcdefghijklmnopqrst", "a\nb"] {
        let site = Site { prologue: vec![wrong.into()], ..site.clone() };
        let (text, findings) = script(&minimax(), &site, &body(Body::Bridge));
        assert!(has_error(&findings) && !text.contains("hf_abc") && !text.contains("a\nb\n"), "{wrong}");
    }
}
