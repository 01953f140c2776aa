//! Variables that a site gives.

use std::collections::BTreeSet;

use super::*;

/// Names that lines of a script begin to give values to, with their lines.
fn assigned(script: &str) -> BTreeSet<(String, String)> {
    let of_line = |line: &str| {
        let line = line.trim_start();
        let word = line.strip_prefix("export ").unwrap_or(line).split_whitespace().next()?;
        let (name, _) = word.split_once('=')?;
        is_variable(name).then(|| (name.to_owned(), line.to_owned()))
    };
    script.lines().filter_map(of_line).collect()
}

#[test]
fn what_a_site_gives_holds_or_is_refused() {
    let (mut held, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for (of, body) in [(minimax(), Body::Mlm), (minimax(), Body::Bridge), (tiny(), Body::Worker)] {
        for mode in [Mode::Srun, Mode::Torchrun] {
            if mode == Mode::Torchrun && body == Body::Worker {
                continue;
            }
            let options = ScriptOptions { mode, ..self::body(body) };
            let (plain, _) = script(&of, &site(), &options);
            for name in assigned(&plain).into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>() {
                let mut site = site();
                site.env.insert(name.clone(), "given-here".to_owned());
                let (text, findings) = script(&of, &site, &options);
                let about = |finding: &&planner::finding::Finding| {
                    finding.field == "site.env" && finding.value == name.as_str()
                };
                let found = findings.iter().find(about);
                if found.is_some_and(|finding| finding.severity == planner::finding::Severity::Error) {
                    refused.insert(name);
                    continue;
                }
                let lines: Vec<String> = assigned(&text)
                    .into_iter()
                    .filter(|(own, _)| *own == name)
                    .map(|(_, line)| line)
                    .collect();
                assert_eq!(lines, [format!("export {name}=given-here")], "{body:?} {mode:?}");
                held.insert(name);
            }
        }
    }
    for name in ["CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_NVLS_ENABLE", "PYTORCH_CUDA_ALLOC_CONF", "HF_HOME"] {
        assert!(held.contains(name), "{held:?}");
    }
    for name in ["RUN_DIR", "SHARED_DIR", "MASTER_PORT", "IMAGE", "LOG", "status", "RANK"] {
        assert!(refused.contains(name), "{refused:?}");
    }
}

#[test]
fn names_of_slurm_and_of_the_shell_are_refused() {
    for name in ["SLURM_JOB_ID", "SBATCH_PARTITION", "PATH", "IFS", "BASH_ENV"] {
        let site = Site { env: [(name.to_owned(), "x".to_owned())].into(), ..site() };
        let (_, findings) = script(&minimax(), &site, &body(Body::Mlm));
        assert!(has_error(&findings), "{name}");
    }
    let site = Site { env: [("http_proxy".to_owned(), "http://proxy:3128".to_owned())].into(), ..site() };
    let (text, findings) = script(&minimax(), &site, &body(Body::Mlm));
    assert!(!has_error(&findings), "{findings:?}");
    assert!(text.contains("export http_proxy=http://proxy:3128\n"), "{text}");
}

#[test]
fn graphs_over_growing_segments_have_no_registration() {
    let with = |segments: bool, graphs: &str| {
        plan(&format!(
            r#"{{"version": 1, "model": {{"preset": "llama-3-8b"}}, "cluster": {{"gpu": "h100-sxm", "nodes": 2}},
                "training": {{"cuda_graphs": "{graphs}"}}, "software": {{"expandable_segments": {segments}}}}}"#
        ))
    };
    for body in [Body::Mlm, Body::Bridge] {
        for (mode, segments, graphs) in [
            (Mode::Srun, false, "scoped"),
            (Mode::Srun, true, "scoped"),
            (Mode::Srun, true, "none"),
            (Mode::Torchrun, false, "scoped"),
            (Mode::Torchrun, false, "none"),
        ] {
            let options = ScriptOptions { mode, ..self::body(body) };
            let (text, _) = script(&with(segments, graphs), &site(), &options);
            let grows = mode == Mode::Torchrun || segments;
            let has = |what: &str| text.contains(what);
            assert_eq!(has("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"), grows, "{body:?} {mode:?}");
            assert_eq!(has("NCCL_GRAPH_REGISTER=0"), grows && graphs != "none", "{body:?} {mode:?} {graphs}");
        }
    }
}
