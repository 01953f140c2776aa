//! How often trainings save and what ends them, and what containers have and see.

use super::*;

/// Llama 3 8B on two nodes of eight H100 for so many steps; `more` is put beside.
fn llama(steps: u64, more: &str) -> Plan {
    plan(&format!(
        r#"{{"version": 1, "model": {{"preset": "llama-3-8b"}}, "layout": {{"tp": 2}}, "run": {{"steps": {steps}}},
            "cluster": {{"gpu": "h100-sxm", "nodes": 2, "gpus_per_node": 8{more}}}}}"#
    ))
}

fn every(plan: &Plan, site: &Site, options: &ScriptOptions) -> u64 {
    Writer::new(plan, site, options).saving().expect("a training").every
}

#[test]
fn a_run_saves_about_each_half_hour_and_some_times_before_its_limit() {
    let plan = llama(1_000_000, "");
    let step = planner::time::answer(&plan).0.expect("a time").step_seconds;
    let options = body(Body::Mlm);
    let with = |time: &str| Site { time: Some(time.into()), ..site() };
    let check = |plan: &Plan, site: &Site, seconds: f64| {
        let every = every(plan, site, &options) as f64;
        assert!((every * step - seconds).abs() <= step, "{every} steps of {step} s, and not {seconds} s");
    };
    check(&plan, &with("1-00"), 1800.0);
    check(&plan, &with("60"), 1200.0);
    check(&plan, &with("0"), 1800.0);
    // As the plan says, whatever the limit.
    check(&llama(1_000_000, r#", "checkpoint_interval_s": 7200"#), &with("60"), 7200.0);
    let failing = llama(1_000_000, r#", "gpu_mtbf_hours": 50000"#);
    check(&failing, &with("1-00"), planner::time::goodput(&failing).expect("a rate").checkpoint_interval_s);
    // Never more than there are, and as the site says.
    assert_eq!(every(&llama(7, ""), &with("1-00"), &options), 7);
    assert_eq!(every(&plan, &Site { save_every: Some(123), ..site() }, &options), 123);
    for (given, used) in [(0, 1), (8, 7)] {
        let site = Site { save_every: Some(given), ..site() };
        assert_eq!(every(&llama(7, ""), &site, &options), used);
        let (_, findings) = script(&llama(7, ""), &site, &options);
        assert!(findings.iter().any(|finding| finding.field == "site.save_every"), "{findings:?}");
    }
}

#[test]
fn every_training_saves_into_its_own_folder_and_ends_before_its_time() {
    let folder = "RUN_DIR=\"$SHARED_DIR/runs/${SLURM_CLUSTER_NAME:-slurm}-$SLURM_JOB_ID\"";
    let saves: [(Body, &[&str]); 4] = [
        (Body::Mlm, &["--save-interval 5 ", "--load \"$RUN_DIR/checkpoints\""]),
        (Body::Bridge, &["checkpoint.save_interval=5 ", "checkpoint.most_recent_k=-1 "]),
        (
            Body::Automodel,
            &[
                "--step_scheduler.ckpt_every_steps 5 ",
                "--checkpoint.restore_from LATEST ",
                "--checkpoint.max_recent_checkpoints None ",
            ],
        ),
        (
            Body::Torchtitan,
            &[
                "--checkpoint.enable ",
                "--checkpoint.interval 5 ",
                "--checkpoint.keep_latest_k 0 ",
                "--checkpoint.no-last-save-model-only ",
                "--dump_folder \"$RUN_DIR\"",
            ],
        ),
    ];
    for (kind, options) in saves {
        for mode in Mode::ALL {
            let wanted = ScriptOptions { mode, ..body(kind) };
            let site = Site { save_every: Some(5), ..site() };
            let (text, findings) = script(&llama(100, ""), &site, &wanted);
            for part in options.iter().chain([&folder]) {
                assert!(text.contains(part.trim_end()), "{part} is not in\n{text}");
            }
            let (signal, minutes) = (text.contains("#SBATCH --signal=TERM@"), text.contains("\"$MINUTES\""));
            let megatron = matches!(kind, Body::Mlm | Body::Bridge);
            let expected = match mode {
                Mode::Srun => (kind != Body::Torchtitan, false),
                Mode::Torchrun | Mode::Salloc => (false, megatron),
            };
            assert_eq!((signal, minutes), expected, "{kind:?} {mode:?}\n{text}");
            // What nothing ends in time is told so.
            let said = findings.iter().any(|finding| finding.message.contains("up to 5 steps"));
            assert_eq!(said, expected == (false, false), "{kind:?} {mode:?}: {findings:?}");
        }
    }
    let none = Site { signal: Some("none".into()), ..site() };
    let (text, findings) = script(&llama(100, ""), &none, &body(Body::Mlm));
    assert!(!text.contains("--signal") && !text.contains("MINUTES"), "{text}");
    assert!(findings.iter().any(|finding| finding.message.contains("wants no signal")), "{findings:?}");
}

#[test]
fn what_a_plan_keeps_is_kept_by_the_worker_alone_and_the_others_say_so() {
    let plan = llama(100, r#", "checkpoint": {"every_steps": 5, "keep": 3}"#);
    let said = |kind: Body| {
        let (text, findings) = script(&plan, &site(), &body(kind));
        let keep = findings.into_iter().find(|finding| finding.field == "run.checkpoint.keep");
        (text, keep.map(|finding| finding.message))
    };
    let (text, none) = said(Body::Worker);
    assert!(text.contains("the newest 3 are kept") && none.is_none(), "{none:?}\n{text}");
    for (kind, option) in [
        (Body::Bridge, "checkpoint.most_recent_k=3"),
        (Body::Automodel, "--checkpoint.max_recent_checkpoints 3"),
        (Body::Torchtitan, "--checkpoint.keep_latest_k 3"),
        (Body::Mlm, "has no option"),
    ] {
        let (text, keep) = said(kind);
        assert!(keep.as_ref().is_some_and(|said| said.contains(option)), "{kind:?}: {keep:?}");
        assert!(text.contains("none is removed"), "{text}");
    }
}

#[test]
fn an_image_that_has_all_is_left_as_it_is() {
    let of = |image: &str, kind: Body| {
        let site = Site { image: Some(image.into()), mounts: Vec::new(), ..site() };
        let (text, findings) = script(&llama(10, ""), &site, &body(kind));
        let said: Vec<String> =
            findings.into_iter().map(|finding| format!("{}: {}", finding.field, finding.message)).collect();
        (text, said.join("\n"))
    };
    for kind in [Body::Bridge, Body::Mlm] {
        let (text, said) = of("nvcr.io/nvidia/nemo:26.08", kind);
        assert!(!text.contains("uv sync") && text.contains("WORKDIR=/opt/Megatron-Bridge\n"), "{text}");
        assert!(!said.contains("site.mounts") && !text.contains("CHECKOUT"), "{said}");
        // It has neither code nor environment.
        let (text, said) = of("nvcr.io/nvidia/pytorch:26.06-py3", kind);
        assert!(text.contains("  uv sync\n") && text.contains("  --container-writable"), "{text}");
        assert!(!text.contains("# Phase 1"), "{text}");
        assert!(
            text.contains("<CHECKOUT_OF_MEGATRON_BRIDGE>:/opt/Megatron-Bridge")
                && said.contains("has neither"),
            "{said}"
        );
    }
    let (text, said) = of("/images/train.sqsh", Body::Automodel);
    assert!(!text.contains("uv sync") && said.contains("is taken for one of NeMo Automodel"), "{said}");
    let shared = Site { environment: Some(Environment::Shared), ..site() };
    let (text, findings) = script(&llama(10, ""), &shared, &body(Body::Bridge));
    assert!(text.contains("# Phase 1"), "{text}");
    assert!(findings.iter().any(|finding| finding.message.contains("thrown away")), "{findings:?}");
}

#[test]
fn every_path_is_mounted_or_named() {
    let everywhere = Site {
        workdir: Some("/home/me/bridge".into()),
        megatron_lm: Some("/home/me/megatron".into()),
        data_path: Some("/data/tokens/text_document".into()),
        tokenizer: Some("/models/llama".into()),
        hf_home: Some("/scratch/hf".into()),
        ..site()
    };
    let none = Site { mounts: Vec::new(), ..everywhere.clone() };
    let (text, findings) = script(&llama(10, ""), &none, &body(Body::Mlm));
    let mounts = text.lines().find_map(|line| line.strip_prefix("MOUNTS=")).expect("mounts");
    for folder in [
        "/lustre/team",
        "/home/me/bridge",
        "/home/me/megatron",
        "/data/tokens",
        "/models/llama",
        "/scratch/hf",
    ] {
        assert!(mounts.contains(&format!("{folder}:{folder}")), "{folder} is not in {mounts}");
    }
    assert!(!findings.iter().any(|finding| finding.field == "site.mounts"), "{findings:?}");
    let (_, findings) = script(&llama(10, ""), &everywhere, &body(Body::Mlm));
    let named: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.field == "site.mounts")
        .filter_map(|finding| finding.value.as_str())
        .collect();
    assert_eq!(
        named,
        [
            "/scratch/hf",
            "/home/me/bridge",
            "/home/me/megatron",
            "/data/tokens/text_document",
            "/models/llama"
        ]
    );
    // Of another body's values nothing is said, nor of what lies in the image.
    let inside = Site {
        config: Some("/opt/Automodel/examples/a.yaml".into()),
        image: Some("nvcr.io/nvidia/nemo-automodel:26.06".into()),
        ..everywhere
    };
    let (_, findings) = script(&llama(10, ""), &inside, &body(Body::Automodel));
    let told = format!("{findings:?}");
    assert!(!told.contains("/data/tokens") && !told.contains("/opt/Automodel/examples"), "{told}");
}

#[test]
fn ranks_of_torchrun_bind_themselves() {
    let site = Site { numa_bind: true, ..site() };
    let options = ScriptOptions { mode: Mode::Torchrun, ..body(Body::Bridge) };
    let (text, _) = script(&llama(10, ""), &site, &options);
    assert!(text.contains("numactl --cpunodebind") && text.contains("LOCAL_RANK / 4"), "{text}");
    assert!(text.contains("--no-python bash -c"), "{text}");
}

#[test]
fn a_folder_that_each_node_has_for_itself_is_no_shared_one() {
    for (folder, is_local) in
        [("/tmp/runs", true), ("/raid/x", true), ("/lustre/tmp", false), ("/tmpfs", false)]
    {
        let site = Site { shared_dir: Some(folder.into()), ..site() };
        let (_, findings) = script(&llama(100, ""), &site, &body(Body::Mlm));
        let said = findings.iter().any(|finding| finding.field == "site.shared_dir");
        assert_eq!(said, is_local, "{folder}: {findings:?}");
    }
}
