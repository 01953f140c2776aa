//! What brings a measurement back: which scripts have it, whose process is watched, and that the plan is the plan.

use super::*;
use planner::wire::PlanFile;

fn options(mode: Mode, body: Body) -> ScriptOptions {
    ScriptOptions { mode, body, ..ScriptOptions::default() }
}

fn measured() -> Site {
    Site { measure: None, ..site() }
}

/// The plan in a script; none where there is none.
fn plan_of(script: &str) -> Option<PlanFile> {
    let (_, rest) = script.split_once("<<'SHARDPLAN_PLAN_JSON'\n")?;
    let (json, _) = rest.split_once("\nSHARDPLAN_PLAN_JSON\n")?;
    assert_eq!(json.lines().count(), 1, "{json}");
    Some(planner::parse_plan(json).expect("a plan file"))
}

#[test]
fn trainings_of_other_frameworks_are_measured() {
    for (mode, body, number) in [
        (Mode::Srun, Body::Mlm, Some(63)),
        (Mode::Torchrun, Body::Mlm, Some(7)),
        (Mode::Srun, Body::Bridge, Some(63)),
        (Mode::Srun, Body::Automodel, Some(0)),
        (Mode::Torchrun, Body::Torchtitan, Some(0)),
        (Mode::Salloc, Body::Mlm, None),
        (Mode::Srun, Body::Command, None),
    ] {
        let (text, _) = script(&minimax(), &measured(), &options(mode, body));
        let found = plan_of(&text);
        assert_eq!(found.is_some(), number.is_some(), "{mode:?} {body:?}");
        let Some(number) = number else { continue };
        assert_eq!(found.as_ref(), Some(&minimax().file), "{mode:?} {body:?}");
        let quote = if mode == Mode::Torchrun { "\\\"" } else { "\"" };
        let dollar = if mode == Mode::Torchrun { "\\$" } else { "$" };
        assert!(text.contains(&format!("[ {quote}{dollar}SLURM_PROCID{quote} = {number} ]")), "{text}");
        let (text, _) = script(&minimax(), &site(), &options(mode, body));
        assert!(!text.contains("SHARDPLAN_PLAN"), "{text}");
    }
    let convert = ScriptOptions { task: Task::Convert, ..options(Mode::Srun, Body::Bridge) };
    assert_eq!(plan_of(&script(&minimax(), &measured(), &convert).0), None);
}

#[test]
fn a_measured_script() {
    let (text, _) = script(&tiny(), &measured(), &options(Mode::Srun, Body::Mlm));
    let begin = text.find("\n# Measured beside").expect("a plan");
    let end = begin + text[begin..].find("\nfi\n").expect("an end") + 3;
    insta::assert_snapshot!(
        "measured",
        text[begin..end]
            .trim_start()
            .lines()
            .filter(|line| !line.starts_with('{'))
            .collect::<Vec<_>>()
            .join("\n")
    );
}

#[test]
fn any_name_comes_through_as_it_is_and_a_secret_does_not() {
    let mut plan = tiny();
    for name in ["gr\u{f6}\u{df}er", "\u{202e}turned", "\u{1f600} 'x' \"y\" \\ $HOME `id`", "a\nb\u{7f}"] {
        plan.file.name = Some(name.to_owned());
        let (text, _) = script(&plan, &measured(), &options(Mode::Srun, Body::Mlm));
        assert_eq!(plan_of(&text).and_then(|file| file.name).as_deref(), Some(name));
    }
    let secret = format!("{}{}", "hf_", "AbCdEf0123456789AbCdEf0123456789");
    plan.file.run.data = Some(planner::wire::DataFile::Text { path: secret.clone() });
    let (text, findings) = script(&plan, &measured(), &options(Mode::Srun, Body::Mlm));
    assert!(plan_of(&text).is_none() && !text.contains(&secret));
    assert!(findings.iter().any(|finding| finding.field == "site.measure"), "{findings:?}");
}
