//! `shardplan script PLAN`.

use std::path::{Path, PathBuf};

use batch::launch::{self, Body, Mode, ScriptOptions, Site, Task};
use planner::Finding;
use planner::finding::has_error;
use planner::plan::Plan;
use planner::wire::{GoingOn, OnFailure};

use super::numbers::whole;
use super::source::Source;
use super::words::one_of;
use super::{estimate::resolved, input};
use crate::report::{self, Exit, Failure, notice, text};

/// Write the script that runs a plan under Slurm
///
/// What is not known of the site stands as <PLACEHOLDERS> in the script. The script goes to standard output; submit
/// it with `sbatch`.
#[derive(Debug, clap::Args)]
pub struct Script {
    #[command(flatten)]
    source: Source,
    /// How processes are spawned
    #[arg(long, value_parser = one_of(&Mode::ALL, Mode::name, Mode::about), default_value = Mode::Srun.name())]
    mode: Mode,
    /// What they run; without it the framework that the plan names, the command that is given, or else the worker
    #[arg(long, value_parser = one_of(&Body::ALL, Body::name, |body| body.facts().about))]
    body: Option<Body>,
    /// What Megatron Bridge does (body bridge)
    #[arg(long, value_parser = one_of(&Task::ALL, Task::name, Task::about), default_value = Task::Train.name())]
    task: Task,
    /// Numbers of a job array, such as 0-3 or 0-7%2
    #[arg(long, value_name = "LIST")]
    array: Option<String>,
    /// Components of a heterogeneous job: nodes and their partition, such as 2:left,6:right
    #[arg(long, value_name = "NODES:PARTITION,...")]
    het: Option<String>,
    /// Values of the site: account, partition, shared_dir, image, ... (TOML)
    #[arg(long, value_name = "SITE.toml")]
    site: Option<PathBuf>,
    #[command(flatten)]
    going_on: super::run::OnFailures,
    /// Nodes beside the plan's that stand by (with --on-failure)
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=GoingOn::MOST_SPARES))]
    spare_nodes: u64,
    /// Refuse to write a script with placeholders
    #[arg(long)]
    strict: bool,
    /// The command, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Script {
    /// What the script starts: what is said, else what trains the plan. Only the worker goes on when ranks die, and only Megatron
    /// Bridge does more than train.
    fn body(&self, plan: &Plan) -> Body {
        let goes_on = self.going_on.going_on(0).on_failure != OnFailure::Stop || self.spare_nodes > 0;
        let usual = || match self.task {
            _ if !self.command.is_empty() => Body::Command,
            _ if goes_on => Body::Worker,
            Task::Train => Body::usual(plan),
            _ => Body::Bridge,
        };
        self.body.unwrap_or_else(usual)
    }

    /// The options as planner takes them.
    fn options(&self, body: Body) -> ScriptOptions {
        ScriptOptions {
            mode: self.mode,
            body,
            task: self.task,
            array: self.array.clone(),
            het: self.het.clone(),
            command: self.command.clone(),
            startup: Vec::new(),
            environment: None,
            going_on: self.going_on.going_on(0),
            spare_nodes: self.spare_nodes,
            cluster_alone: false,
            strict: self.strict,
        }
    }

    /// Prints the script; no when it can't be used as it stands.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        if !self.command.is_empty() && self.body.is_some_and(|body| body != Body::Command) {
            return Err(Failure::usage(
                "a command after -- is what --body command runs; leave --body out, or the command",
            ));
        }
        let site = self.site.as_deref().map_or_else(|| Ok(Site::default()), read_site)?;
        // A program that is named says whose recipe holds where nobody else does.
        let product = self.body.and_then(|body| body.facts().product);
        let plan = resolved(&self.source.plan_for(product)?.file)?;
        let body = self.body(&plan);
        if self.body.is_none() && body != Body::Command {
            let others: Vec<&str> =
                Body::ALL.map(Body::name).into_iter().filter(|name| *name != body.name()).collect();
            notice(&format!(
                "the script starts {} (--body {}; others are {})",
                body.title(),
                body.name(),
                others.join(", ")
            ));
        }
        let (script, findings) = frameworks::script(&plan, &site, &self.options(body));
        let refused = has_error(&findings);
        answer((!refused).then_some(script.as_str()), &findings, json)
    }
}

/// Prints a script, or that there is none, with the findings.
pub fn answer(script: Option<&str>, findings: &[Finding], json: bool) -> anyhow::Result<Exit> {
    if json {
        report::print_json(
            &serde_json::json!({"version": planner::wire::VERSION, "script": script, "findings": findings}),
        )?;
    } else {
        if !findings.is_empty() {
            notice(text::findings(findings).trim_end());
        }
        if let Some(script) = script {
            report::print(script)?;
        }
    }
    Ok(if script.is_some() { Exit::Yes } else { Exit::No })
}

/// Reads a site's file.
pub fn read_site(path: &Path) -> anyhow::Result<Site> {
    let text = input::read_text(path, "the site file")?;
    launch::read_site(&text).map_err(|finding| {
        let value = path.display().to_string().into();
        Failure::finding(planner::Finding { value, ..*finding })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        script: Script,
    }

    /// Checks that the command which is copied is read as the options that it was made from.
    #[track_caller]
    fn check(options: &ScriptOptions) {
        let words = launch::command_words(options, true);
        // Without the program, whose place the subcommand takes.
        let parsed = <Only as clap::Parser>::try_parse_from(&words[1..]).expect("a command line");
        // It always says the body.
        let body = parsed.script.body.expect("a body");
        assert_eq!(&parsed.script.options(body), options);
        assert_eq!(parsed.script.site.as_deref(), Some(Path::new("site.toml")));
        assert_eq!(parsed.script.source.plan.as_deref(), Some(Path::new("plan.json")));
    }

    #[test]
    fn a_copied_command_is_read_as_its_options() {
        for example in launch::examples() {
            check(&example.options);
            let site = Site { retries: 2, modules: vec!["cuda".into()], ..example.on(&Site::default()) };
            let read: Site = toml::from_str(&launch::site_toml(&site)).expect("a site file");
            assert_eq!(read, site);
        }
        for mode in Mode::ALL {
            for body in Body::ALL {
                let command = if body == Body::Command {
                    ["python", "-m", "pkg", "--x", "a b", "--", "-y"].map(str::to_owned).to_vec()
                } else {
                    Vec::new()
                };
                let options = ScriptOptions {
                    mode,
                    body,
                    command,
                    startup: Vec::new(),
                    environment: None,
                    going_on: GoingOn::STOP,
                    spare_nodes: 0,
                    array: Some("0-3%2".into()),
                    het: Some("2:left,6".into()),
                    task: Task::Generate,
                    cluster_alone: false,
                    strict: true,
                };
                check(&options);
            }
        }
    }

    #[test]
    fn any_site_is_read_back_from_its_file() {
        let awkward = "a \"b\" \\ \u{7f} \u{1} \n $x #";
        let site = Site {
            account: Some(awkward.into()),
            mounts: vec![awkward.into(), "/a:/b".into()],
            env: [(awkward.to_owned(), awkward.to_owned())].into(),
            gpus: launch::GpuRequest::Nothing,
            container: Some(launch::Container::Apptainer),
            environment: Some(launch::Environment::NodeLocal),
            profile: Some(launch::Profile::NemoRunspec),
            exclusive: Some(false),
            cpus_per_task: Some(4),
            ..Site::default()
        };
        assert_eq!(toml::from_str::<Site>(&launch::site_toml(&site)).expect("a site file"), site);
    }
}
