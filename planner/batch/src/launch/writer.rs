//! Values that are checked as they are written, and what is to be said about them.

use std::cell::OnceCell;

use serde_json::Value;

use super::failures::{self, Reduced};
use super::options::{Mode, ScriptOptions};
use super::saving::Saving;
use super::site::{Container, Site};
use crate::shell;
use planner::finding::Finding;
use planner::plan::Plan;
use planner::software::Framework;

/// Writes parts of a script and collects what is to be said about them.
pub struct Writer<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The site.
    pub site: &'a Site,
    /// What kind of script is wanted.
    pub options: &'a ScriptOptions,
    /// The job as it goes on with failed GPUs in reduced replicas; none for any other.
    pub reduced: Option<Reduced>,
    findings: Vec<Finding>,
    notes: Vec<String>,
    /// How the run saves, once somebody has asked.
    pub(super) saving: OnceCell<Option<Saving>>,
    /// The plan as the worker runs it, where the script starts that, once somebody has asked.
    pub(super) executed: OnceCell<Option<Box<Plan>>>,
    /// Predicted seconds of a step of what is run, once somebody has asked.
    pub(super) step: OnceCell<Option<f64>>,
}

impl<'a> Writer<'a> {
    /// A writer with nothing written.
    pub fn new(plan: &'a Plan, site: &'a Site, options: &'a ScriptOptions) -> Self {
        let reduced = failures::reduced(plan, options);
        let (findings, notes, saving) = (Vec::new(), Vec::new(), OnceCell::new());
        let (executed, step) = (OnceCell::new(), OnceCell::new());
        let mut writer = Writer { plan, site, options, reduced, findings, notes, saving, executed, step };
        writer.check_site();
        writer.check_options();
        writer
    }

    /// What is to be said about the script.
    pub fn into_findings(self) -> Vec<Finding> {
        self.findings
    }

    /// Adds a finding.
    pub fn note(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Says in the script and in a finding what of the plan the framework's flags can't express.
    pub fn cannot(&mut self, field: &str, value: impl Into<Value>, what: &str) {
        let message = format!("{} has no flag for this: {what}", self.options.body.title());
        self.not_expressed(field, value, what, message);
    }

    /// Says in the script and in a finding why what runs is not what the plan or the site says, and what to do.
    pub fn differs(&mut self, field: &str, value: impl Into<Value>, what: &str) {
        let message = format!("{}: {what}", self.options.body.title());
        self.not_expressed(field, value, what, message);
    }

    fn not_expressed(&mut self, field: &str, value: impl Into<Value>, what: &str, message: String) {
        self.notes.push(format!("{field}: {what}"));
        self.note(Finding::warning(field, value, message).rule("the plan as flags of a framework"));
    }

    /// Says in the script and in a finding that a part of the model is not among what is written.
    pub fn leaves_out(&mut self, part: &str) {
        let what = format!("`{part}` of the model, which is trained without it unless you add its options");
        self.notes.push(format!("model: {what}"));
        let message = format!("the script writes no option for {what}");
        self.note(Finding::warning("model", part, message).rule("the plan as flags of a framework"));
    }

    /// What the flags can't express, as comments; empty when they express it all.
    pub fn notes(&self) -> String {
        let mut out = String::new();
        if !self.notes.is_empty() {
            out.push_str(&format!("# Not expressed by {}'s flags:\n", self.options.body.title()));
        }
        for note in &self.notes {
            out.push_str(&format!("#   {}\n", shell::comment(note)));
        }
        out
    }

    /// The framework whose names of options are written: the plan's version of it, else `newest`, its newest release.
    pub fn framework(&mut self, newest: Framework) -> Framework {
        let software = &self.plan.software;
        if let Some(same) = software.framework.filter(|named| named.product() == newest.product()) {
            return same;
        }
        // Of NeMo's options nothing is known, and its plans are Megatron Bridge's scripts.
        let own = software.named.map(|own| (own.product.name() == newest.product(), own.text()));
        let own = own.or_else(|| software.framework.map(|named| (false, named.name().to_owned())));
        if let Some((false, own)) = own {
            let message = format!(
                "the plan names {own}, and the script starts {}: its options are those of {}",
                self.options.body.title(),
                newest.name()
            );
            self.note(Finding::warning("software.framework", own, message));
        }
        newest
    }

    /// Whether the plan's ranks have GPUs.
    pub fn has_gpus(&self) -> bool {
        !self.plan.cluster.gpu.is_cpu()
    }

    /// Tasks that Slurm starts on a node.
    pub(crate) fn tasks_per_node(&self) -> u64 {
        let per_node =
            self.reduced.as_ref().map_or(self.plan.cluster.gpus_per_node, |reduced| reduced.nodes[0].ranks);
        if self.options.mode == Mode::Torchrun { 1 } else { per_node }
    }

    /// Tasks of the whole job.
    pub fn tasks(&self) -> u64 {
        match &self.reduced {
            Some(reduced) => reduced.nodes.iter().map(|nodes| nodes.count * nodes.ranks).sum(),
            None => self.plan.cluster.nodes.saturating_mul(self.tasks_per_node()),
        }
    }

    /// What runs the image; none where programs run on the nodes.
    pub fn container(&self) -> Option<Container> {
        match self.site.container {
            Some(Container::None) => None,
            Some(kind) => Some(kind),
            None => (self.options.body.facts().lives_in_images || self.site.image.is_some())
                .then_some(Container::Pyxis),
        }
    }

    /// The job's name.
    pub fn job_name(&mut self) -> String {
        match self.site.job_name.as_deref() {
            Some(name) => self.directive("job_name", Some(name), "shardplan"),
            None => shell::job_name(&self.plan.name),
        }
    }

    /// A value for the shell, quoted. `default` serves when the site gives none, else the placeholder does.
    pub fn shell(
        &mut self,
        field: &str,
        value: Option<&str>,
        default: Option<&str>,
        placeholder: &str,
    ) -> String {
        let placeholder = format!("'{placeholder}'");
        let Some(value) = value.filter(|value| !value.is_empty()).or(default) else {
            self.missing(field, &placeholder);
            return placeholder;
        };
        if shell::gives_secret(value) {
            self.refuse_secret(field);
            return placeholder;
        }
        if value.starts_with('-') {
            self.refuse(field, value, "starts with a dash and would be read as an option");
            return placeholder;
        }
        self.quoted(field, value).unwrap_or(placeholder)
    }

    /// A value quoted for the shell; none, with a finding, when it can't be.
    pub fn quoted(&mut self, field: &str, value: &str) -> Option<String> {
        let quoted = shell::quoted(value);
        if quoted.is_none() {
            self.refuse(
                field,
                value,
                "holds a control character, such as a line break, or has more than 4096 bytes",
            );
        }
        quoted
    }

    /// A value for an `#SBATCH` line or a flag that Slurm reads as it stands.
    pub fn directive(&mut self, field: &str, value: Option<&str>, placeholder: &str) -> String {
        match value {
            None | Some("") => {
                self.missing(field, placeholder);
                placeholder.to_owned()
            }
            Some(value) if shell::gives_secret(value) => {
                self.refuse_secret(field);
                placeholder.to_owned()
            }
            Some(value) if shell::is_directive_value(value) => value.to_owned(),
            Some(value) => {
                self.refuse(
                    field,
                    value,
                    "can't stand in an #SBATCH line or a flag: letters, digits and . _ / @ : + , = % - only, at most \
                     256, not starting with -",
                );
                placeholder.to_owned()
            }
        }
    }

    /// Says that a value of the site is missing.
    pub fn missing(&mut self, field: &str, placeholder: &str) {
        let path = format!("site.{field}");
        let message = format!(
            "{field} of the site is not given: {} stands in its place",
            placeholder.trim_matches('\'')
        );
        self.note(if self.options.strict {
            Finding::error(&path, Value::Null, message)
        } else {
            Finding::info(&path, Value::Null, message)
        });
    }

    /// Refuses a value of the site.
    pub fn refuse(&mut self, field: &str, value: &str, why: &str) {
        let shown: String = value.chars().take(80).collect();
        let message = format!("{field} of the site {why}: {shown:?}");
        self.note(Finding::error(&format!("site.{field}"), shown, message));
    }

    /// Refuses a choice of the kind of script.
    pub(crate) fn refuse_option(&mut self, field: &str, value: impl Into<Value>, why: impl Into<String>) {
        self.note(Finding::error(&format!("script.{field}"), value, why));
    }

    /// Refuses a value that is a secret, without showing it.
    pub(crate) fn refuse_secret(&mut self, field: &str) {
        let message = format!(
            "{field} of the site holds a secret, and secrets never enter a script: export it as a variable in the shell \
             that submits, and name the variable in required_env"
        );
        self.note(
            Finding::error(&format!("site.{field}"), Value::Null, message)
                .rule("scripts are shared, logged and kept by Slurm"),
        );
    }
}
