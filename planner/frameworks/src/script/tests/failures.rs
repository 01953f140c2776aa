//! Scripts of plans in which GPUs failed.

use super::*;
use planner::plan::Plan;
use planner::wire::{GoingOn, OnFailure};

fn failed(layout: &str, nodes: u64, failed: &str) -> Plan {
    plan(&format!(
        r#"{{"version": 1, "model": {{"preset": "llama-3-8b"}}, "layout": {layout},
            "training": {{"global_batch_size": 64}},
            "cluster": {{"gpu": "h100-sxm", "nodes": {nodes}, "gpus_per_node": 8, "failed": {failed}}}}}"#
    ))
}

fn megatron() -> Site {
    Site { image: None, mounts: Vec::new(), workdir: Some("/lustre/team/code".into()), ..site() }
}

fn arguments<'a>(text: &'a str, option: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.trim_start().starts_with(&format!("--{option} "))).unwrap_or("");
    line.trim_end_matches('\\').split_whitespace().skip(1).collect()
}

#[test]
fn megatron_goes_on_with_reduced_replicas() {
    let plan = failed(r#"{"tp": 8}"#, 4, r#"[{"node": 2, "gpu": 5}]"#);
    let site = Site { failed_nodes: Some("node07".into()), ..megatron() };
    let (text, findings) = script(&plan, &site, &body(Body::Mlm));
    assert!(!has_error(&findings), "{findings:?}");
    insta::assert_snapshot!("failed_mlm", text);
    // The degraded node comes first, by its name, with as many ranks as it has slots.
    let lines = directives(&text);
    let (reduced, whole) = text.split_once("#SBATCH hetjob\n").expect("two components");
    assert!(reduced.contains("--nodes=1\n") && reduced.contains("--ntasks-per-node=4\n"), "{lines:?}");
    assert!(reduced.contains("--nodelist=node07\n") && !reduced.contains("--exclude"), "{lines:?}");
    assert!(
        whole.contains("#SBATCH --nodes=3\n") && whole.contains("#SBATCH --exclude=node07\n"),
        "{lines:?}"
    );
    assert_eq!(arguments(&text, "nonuniform-tp-domain-sizes"), ["4", "8", "8", "8"]);
    assert_eq!(arguments(&text, "nonuniform-tp-spares"), ["4"]);
    for refused in ["--use-distributed-optimizer", "--overlap-param-gather", "pretrain_gpt.py"] {
        assert!(!text.contains(refused), "{refused} in {text}");
    }
    // The last of the ranks that there are prints the losses.
    let measured = Site { measure: Some(true), ..site };
    let (measured, _) = script(&plan, &measured, &body(Body::Mlm));
    assert!(measured.contains("\"$SLURM_PROCID\" = 27 ]"), "{measured}");
    assert!(
        text.contains("--het-group=0-1") && text.contains("--no-kill") && text.contains("--wait=0"),
        "{text}"
    );
}

#[test]
fn two_replicas_of_a_node_and_two_kinds_of_nodes() {
    let gone = r#"[{"node": 1, "gpu": 0}, {"node": 3, "gpu": 1}, {"node": 3, "gpu": 6}]"#;
    let plan = failed(r#"{"tp": 4}"#, 4, gone);
    let site = Site { failed_nodes: Some("n[1,9]".into()), ..megatron() };
    let (text, findings) = script(&plan, &site, &body(Body::Mlm));
    assert!(!has_error(&findings), "{findings:?}");
    let (first, rest) = text.split_once("#SBATCH hetjob\n").expect("components");
    // Both replicas of the plan's last node lost a slot, one of its second.
    assert!(first.contains("--ntasks-per-node=4\n") && first.contains("--nodelist=n9\n"), "{text}");
    assert!(rest.contains("--ntasks-per-node=6\n") && rest.contains("--nodelist=n1\n"), "{text}");
    assert!(rest.contains("--exclude=n1,n9\n"), "{text}");
    let sizes = arguments(&text, "nonuniform-tp-domain-sizes");
    assert_eq!(sizes, ["2", "2", "2", "4", "4", "4", "4", "4"]);
    let ranks: u64 = sizes.iter().map(|size| size.parse::<u64>().expect("a number")).sum();
    assert_eq!(ranks, 4 + 6 + 2 * 8, "the tasks of all components");
}

#[test]
fn replicas_that_span_nodes_and_slices_that_share_one() {
    // Context-parallel slices of a replica lose the same slots, be they on one node or on two; sizes are those of a slice.
    for (layout, nodes, gone, sizes, tasks) in [
        (
            r#"{"tp": 8, "cp": 2}"#,
            8,
            r#"[{"node": 5, "gpu": 1}]"#,
            &["4", "8", "8", "8"][..],
            &[(2, 4), (6, 8)][..],
        ),
        (r#"{"tp": 4, "cp": 2}"#, 4, r#"[{"node": 3, "gpu": 7}]"#, &["2", "4", "4", "4"], &[(1, 4), (3, 8)]),
        // Every node lost one: no component is of another kind, and none is asked for by name.
        (
            r#"{"tp": 4}"#,
            2,
            r#"[{"node": 0, "gpu": 0}, {"node": 1, "gpu": 4}]"#,
            &["2", "4", "4", "2"],
            &[(2, 6)],
        ),
    ] {
        let plan = failed(layout, nodes, gone);
        let count = plan.cluster.failed.len();
        let names = ["n1", "n2"][..count].join(",");
        let site = Site { failed_nodes: Some(names), ..megatron() };
        let (text, findings) = script(&plan, &site, &body(Body::Mlm));
        assert!(!has_error(&findings), "{layout}: {findings:?}");
        assert_eq!(arguments(&text, "nonuniform-tp-domain-sizes"), sizes, "{layout}");
        let asked: Vec<String> = directives(&text)
            .into_iter()
            .filter(|line| line.starts_with("--nodes=") || line.starts_with("--ntasks-per-node="))
            .map(str::to_owned)
            .collect();
        let wanted: Vec<String> = tasks
            .iter()
            .flat_map(|(nodes, ranks)| [format!("--nodes={nodes}"), format!("--ntasks-per-node={ranks}")])
            .collect();
        assert_eq!(asked, wanted, "{layout}");
        assert_eq!(text.contains("--nodelist="), tasks.len() > 1, "{layout}");
    }
}

#[test]
fn nodes_without_a_name_are_placeholders_and_wrong_lists_are_refused() {
    let plan = failed(r#"{"tp": 8}"#, 4, r#"[{"node": 2, "gpu": 5}]"#);
    let (text, findings) = script(&plan, &megatron(), &body(Body::Mlm));
    assert!(text.contains("--nodelist=<FAILED_NODES>\n") && !has_error(&findings), "{text}");
    for wrong in ["a,b", "x y", "n[1-", "$(id)", "-w"] {
        let site = Site { failed_nodes: Some(wrong.into()), ..megatron() };
        let (text, findings) = script(&plan, &site, &body(Body::Mlm));
        assert!(has_error(&findings) && !text.contains("$(id)"), "{wrong}: {findings:?}");
    }
}

#[test]
fn what_has_no_reduced_replicas_runs_without_the_nodes() {
    let gone = r#"[{"node": 2, "gpu": 5}, {"node": 2, "gpu": 6}]"#;
    let plan = failed(r#"{"tp": 4, "pp": 2}"#, 4, gone);
    let torchrun = ScriptOptions { mode: Mode::Torchrun, ..body(Body::Mlm) };
    for options in [body(Body::Mlm), torchrun, body(Body::Worker), body(Body::Bridge)] {
        let site = Site { failed_nodes: Some("node07".into()), ..site() };
        let (text, findings) = script(&plan, &Site { workdir: Some("/code".into()), ..site }, &options);
        assert!(!has_error(&findings), "{options:?} {findings:?}");
        assert!(
            text.contains("#SBATCH --nodes=3\n") && text.contains("#SBATCH --exclude=node07\n"),
            "{text}"
        );
        assert!(!text.contains("nonuniform"), "{text}");
        let said = findings.iter().find(|finding| finding.field == "cluster.failed").expect("what is lost");
        assert!(said.message.contains("25.0 % of the GPUs"), "{}", said.message);
        assert!(said.message.contains("48 sequences a step instead of 64"), "{}", said.message);
    }
}

#[test]
fn a_plan_that_can_not_lose_its_nodes_is_an_error() {
    // A replica spans both nodes.
    let plan = failed(r#"{"tp": 8, "pp": 2}"#, 4, r#"[{"node": 0, "gpu": 0}]"#);
    let (_, findings) = script(&plan, &site(), &body(Body::Bridge));
    let said = findings.iter().find(|finding| finding.field == "cluster.failed").expect("why not");
    assert!(has_error(&findings) && said.message.contains("3 nodes"), "{said:?}");
}

/// A worker's script whose run goes on in its allocation, on nodes beside the plan's.
fn going_on(on_failure: OnFailure, spare_nodes: u64) -> ScriptOptions {
    let going_on = GoingOn { on_failure, ..GoingOn::STOP };
    ScriptOptions { going_on, spare_nodes, ..body(Body::Worker) }
}

fn saving() -> Plan {
    plan(
        r#"{"version": 1, "name": "tiny", "model": {"preset": "tiny-dense"}, "runtime": "native", "layout": {"tp": 2},
            "cluster": {"gpu": "cpu", "nodes": 2, "gpus_per_node": 2}, "training": {"seq_len": 32, "global_batch_size": 4},
            "run": {"steps": 20, "checkpoint": {"every_steps": 5}}}"#,
    )
}

#[test]
fn a_workers_script_goes_on_in_its_allocation() {
    let bare = Site { image: None, mounts: Vec::new(), ..site() };
    let (text, findings) = script(&saving(), &bare, &going_on(OnFailure::Drop, 1));
    assert!(!has_error(&findings), "{findings:?}");
    let asked = directives(&text);
    for directive in ["--nodes=3", "--no-kill", "--requeue"] {
        assert!(asked.contains(&directive), "{directive}: {asked:?}");
    }
    // The batch shell hands the signal before the time limit to the launcher.
    assert!(asked.iter().any(|directive| directive.starts_with("--signal=B:TERM@")), "{asked:?}");
    for part in [
        "# Nodes that stand by for those that are lost: 1\n",
        // Beside the ranks' program, also where that is named without a folder.
        "  */*) SHARDPLAN=\"${SHARDPLAN_RANK%/*}/shardplan\" ;;\n  *) SHARDPLAN=./shardplan ;;\n",
        "--slurm \\\n  --on-failure drop --max-recoveries 3 \\\n",
        "--torch-lib=\"$SHARDPLAN_TORCH_LIB\" <<'SHARDPLAN_PLAN_JSON' &\n",
        "trap 'kill -TERM \"$LAUNCHER\" 2> /dev/null || true' TERM INT USR1\n",
        "  BEGINS_WITH=(--id \"${RUN_DIR##*/}\" --resume \"$RUN_DIR\")\n",
        "\"$SHARDPLAN\" run - \"${BEGINS_WITH[@]}\" --runs",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // The launcher makes the folder and starts the ranks.
    for part in ["srun --", "mkdir \"$RUN_DIR\"", "run.json\"\nprintf"] {
        assert!(!text.contains(part), "{part} is in\n{text}");
    }
    // Its plan is the one that was asked for, on its own nodes.
    let document = text
        .split("<<'SHARDPLAN_PLAN_JSON' &\n")
        .nth(1)
        .and_then(|rest| rest.split("\nSHARDPLAN_PLAN_JSON\n").next());
    let inside = planner::parse::parse_plan(document.expect("a plan")).expect("a plan");
    assert_eq!(inside.cluster.nodes, Some(2));
    // As it was, where nobody asks.
    let (before, _) = script(&saving(), &bare, &body(Body::Worker));
    assert!(
        before.contains("#SBATCH --nodes=2\n")
            && !before.contains("--no-kill")
            && before.contains("srun --kill-on-bad-exit=1")
    );
}

#[test]
fn what_can_not_go_on_in_its_allocation_is_refused() {
    let bare = Site { image: None, mounts: Vec::new(), ..site() };
    let in_image = site();
    let refused = |plan: &Plan, site: &Site, options: &ScriptOptions, part: &str| {
        let (_, findings) = script(plan, site, options);
        let found = findings.iter().find(|finding| finding.field == "script.on_failure");
        assert!(found.is_some_and(|found| found.message.contains(part)), "{part}: {findings:?}");
    };
    let drop = || going_on(OnFailure::Drop, 1);
    refused(&tiny(), &bare, &drop(), "saves none");
    refused(&saving(), &bare, &going_on(OnFailure::Spare, 0), "needs spares");
    refused(&saving(), &bare, &going_on(OnFailure::Stop, 1), "this one ends");
    refused(&saving(), &bare, &going_on(OnFailure::Drop, 65), "more than the 64");
    refused(&saving(), &in_image, &drop(), "without a container");
    refused(&saving(), &bare, &ScriptOptions { mode: Mode::Torchrun, ..drop() }, "mode srun");
    refused(&saving(), &bare, &ScriptOptions { array: Some("0-3".into()), ..drop() }, "plain batch job");
    refused(&saving(), &bare, &ScriptOptions { body: Body::Mlm, ..drop() }, "Shardplan's worker");
    // What no other value would change is said first.
    refused(&tiny(), &bare, &ScriptOptions { body: Body::Bridge, ..drop() }, "Shardplan's worker");
    refused(&saving(), &bare, &going_on(OnFailure::Spare, 0), "--spare-nodes 1");
}
