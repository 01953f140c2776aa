//! Whatever is typed into whatever field: a script refuses it with a finding, or hands it on unchanged, and executes none
//! of it.
//!
//! That a value arrives unchanged is seen by comparison: the script with a harmless word in its place makes the same
//! calls, files and directives, word for value.
//!
//! `PROPTEST_CASES` is the number of random cases for each field; `cargo xtask soak` asks for many.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use batch::launch::{Body, Container, Mode, ScriptOptions, Site, Task, is_variable};
use frameworks::script;
use planner::finding::{Finding, has_error};
use planner::wire::{GoingOn, OnFailure};
use planner::{Plan, Severity, parse_plan};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::{Value, json};

use super::fields::{Inputs, Place, places};
use super::stage::{Call, Stage};
use super::values::{attacks, awkward, value};

/// Random cases for each field in the test command.
const CASES: u32 = 2;
/// Variables that say something about the shell that ran a program and not about the script.
const INCIDENTAL: [&str; 4] = ["_", "PWD", "OLDPWD", "SHLVL"];

/// What a run has done.
#[derive(Debug, Clone, PartialEq)]
struct Done {
    directives: Vec<String>,
    calls: Vec<Call>,
    files: BTreeMap<String, String>,
}

/// Runs scripts, and remembers those with harmless words.
struct Bench {
    stage: Stage,
    /// By their files.
    plans: RefCell<HashMap<String, Result<Plan, Vec<Finding>>>>,
    /// By script, fields and words.
    harmless: HashMap<(String, Vec<(String, String)>), Done>,
}

/// A script without an error, or what is wrong.
type Written = Result<(String, Vec<Finding>), Vec<Finding>>;

impl Bench {
    fn new() -> Result<Bench> {
        Ok(Bench { stage: Stage::new()?, plans: RefCell::default(), harmless: HashMap::new() })
    }

    fn write(&self, inputs: &Inputs) -> Result<Written> {
        let text = inputs.plan.to_string();
        let mut plans = self.plans.borrow_mut();
        let plan = plans.entry(text).or_insert_with_key(|text| {
            let resolved = Plan::resolve(&parse_plan(text)?);
            resolved.plan.ok_or(resolved.findings)
        });
        let site: Site = serde_json::from_value(inputs.site.clone())?;
        Ok(match plan {
            Ok(plan) => Ok(script(plan, &site, &inputs.options)),
            Err(findings) => Err(findings.clone()),
        })
    }

    /// A site and a plan in which nothing is wrong.
    fn inputs(&self, kind: Kind) -> Result<Inputs> {
        let site = Site {
            container: Some(kind.container),
            image: Some("/images/train.sqsh".into()),
            mounts: vec!["/data:/data".into()],
            ..self.stage.site()
        };
        let mut plan = json!({
            "version": 1, "name": "a plan",
            "model": {"hf_config": {
                "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                "num_attention_heads": 4, "vocab_size": 256,
            }},
            "cluster": {"gpu": "h100-sxm", "nodes": 2, "gpus_per_node": 2}, "layout": {"tp": 2},
            "training": {"seq_len": 32, "global_batch_size": 4, "dtype": "fp32"},
            "run": {"data": {"kind": "text", "path": "data.txt"}},
        });
        let (on_failure, spare_nodes) = kind.goes_on;
        if on_failure != OnFailure::Stop {
            plan["run"]["checkpoint"] = json!({"every_steps": 5});
        }
        let command = vec!["train".to_owned(), "a b".to_owned()];
        let options = ScriptOptions {
            mode: kind.mode,
            body: kind.body,
            task: kind.task,
            going_on: GoingOn { on_failure, ..GoingOn::STOP },
            spare_nodes,
            command,
            ..ScriptOptions::default()
        };
        Ok(Inputs { site: serde_json::to_value(site)?, plan, options })
    }

    /// All kinds that can be written.
    fn kinds(&self) -> Result<Vec<Kind>> {
        let goes_on = (OnFailure::Stop, 0);
        let mut all = Vec::new();
        for container in [Container::None, Container::Pyxis, Container::Apptainer] {
            for mode in Mode::ALL {
                let tasks = Body::ALL
                    .map(|body| (body, Task::Train))
                    .into_iter()
                    .chain([(Body::Bridge, Task::Convert), (Body::Bridge, Task::Generate)]);
                all.extend(tasks.map(|(body, task)| Kind { mode, body, task, container, goes_on }));
            }
        }
        let plain = Kind {
            mode: Mode::Srun,
            body: Body::Worker,
            task: Task::Train,
            container: Container::None,
            goes_on,
        };
        let ways = [(OnFailure::Drop, 1), (OnFailure::Ntp, 0), (OnFailure::Spare, 2)];
        all.extend(ways.map(|goes_on| Kind { goes_on, ..plain }));
        let mut written = Vec::new();
        for kind in all {
            if matches!(self.write(&self.inputs(kind)?)?, Ok((_, findings)) if !has_error(&findings)) {
                written.push(kind);
            }
        }
        let going_on = written.iter().filter(|kind| kind.goes_on.0 != OnFailure::Stop).count();
        ensure!(going_on == ways.len(), "{going_on} of the scripts that go on after failures are written");
        Ok(written)
    }

    fn inputs_with(&self, kind: Kind, placed: &[(&Place, &str)]) -> Result<Inputs> {
        let mut inputs = self.inputs(kind)?;
        for (place, text) in placed {
            place.put(&mut inputs, text);
        }
        Ok(inputs)
    }

    /// The same where the job's name is not made of the plan's, which changes it.
    fn named(&self, kind: Kind, placed: &[(&Place, &str)]) -> Result<Inputs> {
        let mut inputs = self.inputs_with(kind, placed)?;
        if inputs.site["job_name"].is_null() {
            inputs.site["job_name"] = json!("job");
        }
        Ok(inputs)
    }

    /// Runs a script with these texts in it. None where a file that it needs can't have such a name.
    fn run(&self, text: &str, placed: &[(&Place, &str)]) -> Result<Option<Done>> {
        self.stage.clear()?;
        let mut ready = true;
        let mut variables = Vec::new();
        for (place, value) in placed {
            ready &= self.prepare(&place.field(), value);
            if place.field() == "site.required_env" && is_variable(value) {
                variables.push((*value, "given"));
            }
        }
        ensure!(!text.contains('\0'), "a NUL is in the script");
        let output = self.stage.run(text, &variables)?;
        ensure!(!self.stage.sentinel().exists(), "a value was executed: {output:?}\n{text}");
        let directives: Vec<String> =
            text.lines().filter(|line| line.trim_start().starts_with("#SBATCH")).map(str::to_owned).collect();
        ensure!(!directives.iter().any(|line| line.contains("--wrap")), "a directive of its own:\n{text}");
        let mut calls = self.stage.calls()?;
        for call in &mut calls {
            call.environment.retain(|name, _| !INCIDENTAL.contains(&name.as_str()));
        }
        let files = self.stage.files()?;
        Ok(ready.then_some(Done { directives, calls, files }))
    }

    /// Makes the folder or file that a value names; whether it is there.
    fn prepare(&self, field: &str, value: &str) -> bool {
        let names =
            ["shared_dir", "workdir", "secrets_file", "rank_binary", "hf_home", "uv_cache_dir", "nemo_home"];
        let Some(name) = field.strip_prefix("site.").filter(|name| names.contains(name)) else { return true };
        // Longer names no filesystem has.
        if value.len() > 3000 || value.split('/').any(|part| part.len() > 200) || value.contains('\0') {
            return false;
        }
        let path = self.stage.path(value);
        let parent = || path.parent().is_some_and(|parent| std::fs::create_dir_all(parent).is_ok());
        match name {
            "workdir" => std::fs::create_dir_all(&path).is_ok(),
            "secrets_file" => {
                parent()
                    && std::fs::write(&path, "export SOURCED=yes\n").is_ok()
                    && std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).is_ok()
            }
            "rank_binary" => {
                let launcher = path.with_file_name("shardplan");
                parent()
                    && symlink(self.stage.path("bin/train"), &path).is_ok()
                    && (launcher == path
                        || symlink(self.stage.path("bin/worker/shardplan"), launcher).is_ok())
            }
            _ => true,
        }
    }

    /// One case: these texts in these places.
    fn check(&mut self, kind: Kind, placed: &[(&Place, String)]) -> Result<()> {
        let hostile: Vec<(&Place, &str)> =
            placed.iter().map(|(place, text)| (*place, text.as_str())).collect();
        let findings = match self.write(&self.inputs_with(kind, &hostile)?)? {
            Ok((text, findings)) => {
                self.run(&text, &hostile)?;
                findings
            }
            Err(findings) => findings,
        };
        let refused = |place: &Place| {
            let field = place.field();
            let names = |finding: &&Finding| {
                finding.severity == Severity::Error
                    && (finding.field.starts_with(&field) || field.starts_with(&finding.field))
            };
            findings.iter().any(|finding| names(&finding))
        };
        // An empty box is none: its value is missing, or the usual one.
        let accepted: Vec<(&Place, &str)> =
            hostile.iter().copied().filter(|(place, text)| !text.is_empty() && !refused(place)).collect();
        ensure!(
            !has_error(&findings) || accepted.len() < placed.len(),
            "an error that names none of the fields: {findings:?}"
        );
        self.arrive(kind, &accepted).map(|_| ())
    }

    /// Whether accepted texts arrive, and whether any was there to arrive.
    fn arrive(&mut self, kind: Kind, accepted: &[(&Place, &str)]) -> Result<bool> {
        let Ok((text, findings)) = self.write(&self.named(kind, accepted)?)? else { return Ok(false) };
        if accepted.is_empty() || has_error(&findings) {
            return Ok(false);
        }
        let (mut words, mut pairs) = (Vec::new(), Vec::new());
        for (index, (place, value)) in accepted.iter().enumerate() {
            let Some(word) = self.word(kind, place, value, index)? else { return Ok(false) };
            // Components come apart: their partition is what arrives.
            pairs.push(match (partition(&word), partition(value), place.field() == "script.het") {
                (Some(word), Some(value), true) => (word.to_owned(), value.to_owned()),
                (_, _, true) => return Ok(false),
                _ => (word.clone(), (*value).to_owned()),
            });
            words.push(word);
        }
        let Some(done) = self.run(&text, accepted)? else { return Ok(false) };
        let harmless: Vec<(&Place, &str)> =
            accepted.iter().zip(&words).map(|((place, _), word)| (*place, word.as_str())).collect();
        let text_of_words =
            self.write(&self.named(kind, &harmless)?)?.map(|(text, _)| text).unwrap_or_default();
        let key = (
            text_of_words,
            harmless.iter().map(|(place, word)| (place.field(), (*word).to_owned())).collect(),
        );
        let expected = match self.harmless.get(&key) {
            Some(done) => done.clone(),
            None => {
                let done = self.run(&key.0, &harmless)?.context("a harmless word is no file's name")?;
                self.harmless.insert(key.clone(), done.clone());
                done
            }
        };
        let reaches = pairs.iter().all(|(word, _)| key.0.contains(word.as_str()));
        let (expected, done) = (replaced(&expected, &pairs), replaced(&done, &[]));
        ensure!(
            expected.directives == done.directives,
            "{:#?} instead of {:#?}",
            done.directives,
            expected.directives
        );
        for (one, other) in done.calls.iter().zip(&expected.calls) {
            ensure!(one == other, "{one:#?} instead of {other:#?}\n{text}");
        }
        ensure!(
            done.calls.len() == expected.calls.len(),
            "{:#?} instead of {:#?}\n{text}",
            done.calls,
            expected.calls
        );
        ensure!(done.files == expected.files, "{:#?} instead of {:#?}", done.files, expected.files);
        Ok(reaches)
    }

    /// A harmless word that is accepted in a place where a value is; none where none is.
    fn word(&self, kind: Kind, place: &Place, value: &str, index: usize) -> Result<Option<String>> {
        let name = format!("zqword{index}");
        let here = self.stage.text(&name);
        // The same signal, for ranks are told which.
        let is_signal = place.field() == "site.signal";
        let signal = value.split('@').next().filter(|_| is_signal).unwrap_or("USR1");
        let mut words = vec![
            name.clone(),
            here.clone(),
            format!("{here}:/{name}"),
            format!("1:{name},1:{name}"),
            format!("77:0{index}:07"),
            format!("{signal}@77{index}"),
            format!("7-{index}8"),
        ];
        if value.starts_with('/') {
            words.remove(0);
        } else if value.contains('/') {
            // A program with a slash in its name is looked for in the folder, and else along PATH.
            words.insert(0, format!("zq/word{index}"));
        }
        for word in words {
            if let Ok((_, findings)) = self.write(&self.inputs_with(kind, &[(place, &word)])?)?
                && !has_error(&findings)
            {
                return Ok(Some(word));
            }
        }
        Ok(None)
    }
}

/// What was done, with words replaced by values and the order of names in lists taken away.
fn replaced(done: &Done, pairs: &[(String, String)]) -> Done {
    let text =
        |text: &str| pairs.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value));
    let argument = |argument: &String| {
        let argument = text(argument);
        let Some(names) = argument.strip_prefix("--container-env=") else { return argument };
        let mut names: Vec<&str> = names.split(',').collect();
        names.sort_unstable();
        format!("--container-env={}", names.join(","))
    };
    // A program is known by the last part of its path.
    let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let program = |name: &str| {
        pairs
            .iter()
            .fold(text(name), |name, (word, value)| if name == last(word) { last(value) } else { name })
    };
    let call = |call: &Call| Call {
        program: program(&call.program),
        arguments: call.arguments.iter().map(argument).collect(),
        folder: clean(&text(&call.folder)),
        environment: call.environment.iter().map(|(name, value)| (text(name), text(value))).collect(),
    };
    let content = |content: &String| match serde_json::from_str::<Value>(content) {
        Ok(document) => in_json(document, &text).to_string(),
        Err(_) => text(content),
    };
    Done {
        directives: done.directives.iter().map(|line| text(line)).collect(),
        calls: done.calls.iter().map(call).collect(),
        files: done.files.iter().map(|(name, value)| (clean(&text(name)), content(value))).collect(),
    }
}

/// The partition that both of two components name.
fn partition(components: &str) -> Option<&str> {
    let (one, other) = components.split_once(',')?;
    let (one, other) = (one.split_once(':')?.1, other.split_once(':')?.1);
    (one == other).then_some(one)
}

/// A path without what the kernel skips.
fn clean(path: &str) -> String {
    Path::new(path).components().collect::<std::path::PathBuf>().display().to_string()
}

fn in_json(value: Value, text: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(value) => Value::String(text(&value)),
        Value::Array(items) => items.into_iter().map(|item| in_json(item, text)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (text(&name), in_json(value, text))).collect()
        }
        other => other,
    }
}

/// A kind of script, with what runs it.
#[derive(Debug, Clone, Copy)]
struct Kind {
    mode: Mode,
    body: Body,
    task: Task,
    container: Container,
    /// What its run does when ranks die, and the nodes that stand by.
    goes_on: (OnFailure, u64),
}

/// Every field takes something, hard to quote where it can, and hands it on.
#[test]
fn values_that_are_right_arrive_as_they_were_typed() -> Result<()> {
    let mut bench = Bench::new()?;
    let kinds = bench.kinds()?;
    let all = places(&bench.inputs(kinds[0])?);
    // Choices that are written as text, and the model's own settings.
    let chosen = |field: &str| {
        !field.starts_with("site.")
            && !field.starts_with("script.")
            && !["name", "run.data.path"].contains(&field)
    };
    let mut usual = Vec::new();
    for kind in &kinds {
        usual.push((*kind, bench.write(&bench.inputs(*kind)?)?.map(|(text, _)| text).unwrap_or_default()));
    }
    let mut deaf = Vec::new();
    'places: for place in all.iter().filter(|place| !chosen(&place.field())) {
        for value in awkward(&bench.stage) {
            for (kind, usual) in &usual {
                let written = bench.write(&bench.inputs_with(*kind, &[(place, &value)])?)?;
                // A kind that the field says nothing to is written as usual.
                let says = written.is_ok_and(|(text, findings)| !has_error(&findings) && text != *usual);
                let case = || format!("{} {value:?} {kind:?}", place.field());
                if says && bench.arrive(*kind, &[(place, &value)]).with_context(case)? {
                    continue 'places;
                }
            }
        }
        deaf.push(place.field());
    }
    ensure!(deaf.is_empty(), "nothing arrives from {deaf:?}");
    Ok(())
}

/// Every field of a script whose run goes on after failures, each with some of the values that are hard to hand on, all of which come up.
#[test]
fn scripts_that_go_on_after_failures_hand_on_what_they_take() -> Result<()> {
    let mut bench = Bench::new()?;
    let mut kinds = bench.kinds()?;
    kinds.retain(|kind| kind.goes_on.0 != OnFailure::Stop);
    let all = places(&bench.inputs(kinds[0])?);
    let mut values = attacks(&bench.stage.sentinel());
    values.extend(awkward(&bench.stage));
    let mut turns = values.iter().cycle().zip(kinds.iter().cycle());
    for place in &all {
        for (value, kind) in turns.by_ref().take(3) {
            let case = || format!("{} {value:?} {kind:?}", place.field());
            bench.check(*kind, &[(place, value.clone())]).with_context(case)?;
        }
    }
    Ok(())
}

/// Random values in random fields, each field first in a few cases, on two threads.
#[test]
fn no_value_is_ever_executed_and_none_is_changed() -> Result<()> {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|half| scope.spawn(move || every_second(half, cases)));
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}

fn every_second(half: usize, cases: u32) -> Result<()> {
    let mut bench = Bench::new()?;
    let kinds = bench.kinds()?;
    let all = places(&bench.inputs(kinds[0])?);
    for place in all.iter().skip(half).step_by(2) {
        let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
        let others = prop::collection::vec((prop::sample::select(all.clone()), value(&bench.stage)), 0..3);
        let case = (prop::sample::select(kinds.clone()), value(&bench.stage), others);
        let shared = RefCell::new(&mut bench);
        // The same few values each time in the test command; others each time in a soak.
        let mut runner = if cases == CASES {
            TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
        } else {
            TestRunner::new(config)
        };
        let ended = runner.run(&case, |(kind, value, others)| {
            let mut placed = vec![(place, value)];
            // Of several values for one field the last would stand for all.
            for (other, value) in &others {
                if placed.iter().all(|(known, _)| known.field() != other.field()) {
                    placed.push((other, value.clone()));
                }
            }
            shared
                .borrow_mut()
                .check(kind, &placed)
                .map_err(|error| TestCaseError::fail(format!("{error:#}")))
        });
        if let Err(TestError::Fail(reason, (kind, value, others))) = ended {
            let others: Vec<(String, String)> =
                others.into_iter().map(|(place, value)| (place.field(), value)).collect();
            return Err(anyhow!("{} {value:?} {others:?} {kind:?}: {reason}", place.field()));
        }
    }
    Ok(())
}
