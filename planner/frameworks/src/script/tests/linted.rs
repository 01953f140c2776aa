//! Our own scripts as our own linter reads them.

use super::*;

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
        ..Site::default()
    }
}

#[test]
fn our_own_scripts_are_clean() {
    let plans = [
        r#"{"version": 1, "model": {"preset": "minimax-m2"}, "cluster": {"gpu": "h100-sxm", "nodes": 8}, "layout": {"tp": 2, "ep": 32}}"#,
        r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}, "layout": {"tp": 2}}"#,
        r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "gb200", "nodes": 18, "gpus_per_node": 4, "nvlink_domain": 72},
            "training": {"global_batch_size": 144}}"#,
        r#"{"version": 1, "name": "tiny", "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu", "nodes": 2, "gpus_per_node": 2},
            "layout": {"tp": 2}, "training": {"seq_len": 32, "global_batch_size": 4, "dtype": "fp32"}}"#,
    ];
    let awkward = Site { recipe: Some("it's $HOME `id` \"x\" \\ <end>".into()), ..site() };
    let sites = [
        site(),
        Site::default(),
        Site { image: None, mounts: Vec::new(), ..site() },
        Site { gpus: GpuRequest::Gres, mpi: Some("none".into()), exclusive: Some(false), ..site() },
        Site {
            gpus: GpuRequest::Nothing,
            exclusive: Some(false),
            required_env: vec!["HF_TOKEN".into()],
            ..site()
        },
        awkward,
    ];
    let mut written = 0;
    for plan in plans {
        let file = planner::parse_plan(plan).unwrap();
        let plan = planner::Plan::resolve(&file).plan.unwrap();
        for site in &sites {
            for body in [Body::Worker, Body::Bridge] {
                let (text, _) = script(&plan, site, &ScriptOptions { body, ..ScriptOptions::default() });
                let report = batch::lint::lint(text.as_bytes());
                assert!(report.is_clean(), "{}\n{text}", batch::lint::readable(&report, "own"));
                written += 1;
            }
        }
    }
    assert_eq!(written, 48);
}
