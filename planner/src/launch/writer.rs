//! What all scripts share: the header, the container flags, and values that are checked as they are written.

use serde_json::Value;

use super::{Body, ScriptOptions, Site, text};
use crate::finding::Finding;
use crate::plan::Plan;

/// Writes parts of a script and collects what is to be said about them.
pub struct Writer<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The site.
    pub site: &'a Site,
    options: ScriptOptions,
    findings: Vec<Finding>,
}

impl<'a> Writer<'a> {
    /// A writer with nothing written.
    pub fn new(plan: &'a Plan, site: &'a Site, options: ScriptOptions) -> Self {
        let mut writer = Writer { plan, site, options, findings: Vec::new() };
        writer.check_site();
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

    /// Whether the plan's ranks have GPUs.
    pub fn has_gpus(&self) -> bool {
        self.plan.cluster.gpu.id != "cpu"
    }

    /// The job's name.
    pub fn job_name(&mut self) -> String {
        match self.site.job_name.as_deref() {
            Some(name) => self.directive("job_name", Some(name), "shardplan"),
            None => text::job_name(&self.plan.name),
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
        match text::quoted(value) {
            Some(quoted) => quoted,
            None => {
                self.refuse(field, value, "holds a control character, such as a line break");
                placeholder
            }
        }
    }

    /// `SHARED_DIR=...` and the folders that must be there before anything writes into them.
    pub fn shared_dir(&mut self) -> String {
        let value = self.shell("shared_dir", self.site.shared_dir.as_deref(), None, "<SHARED_DIR>");
        format!(
            "SHARED_DIR={value}\ncase \"$SHARED_DIR\" in\n  /*) ;;\n  *) echo \"SHARED_DIR must be a folder that all nodes \
             see, from /: $SHARED_DIR\" >&2; exit 1 ;;\nesac\nmkdir -p \"$SHARED_DIR/logs\"\n"
        )
    }

    /// Tests that variables are set, and exports those that the site gives.
    pub fn environment(&mut self) -> String {
        let mut out = String::new();
        let mut required = Vec::new();
        for name in &self.site.required_env {
            if text::is_variable(name) {
                required.push(name.clone());
            } else {
                self.refuse("required_env", name, "is not a variable's name");
            }
        }
        for (name, value) in &self.site.env {
            if !text::is_variable(name) {
                self.refuse("env", name, "is not a variable's name");
            } else if text::is_secret(name, value) {
                self.note(
                    Finding::error(
                        "site.env",
                        name.as_str(),
                        format!(
                            "{name} holds a secret, and secrets never enter a script: remove it from env, name it in \
                             required_env, and export it in the shell that submits"
                        ),
                    )
                    .rule("scripts are shared, logged and kept by Slurm"),
                );
                required.push(name.clone());
            } else if let Some(value) = text::quoted(value) {
                out.push_str(&format!("export {name}={value}\n"));
            } else {
                self.refuse("env", name, "holds a control character, such as a line break");
            }
        }
        required.sort();
        required.dedup();
        for name in required {
            out.push_str(&format!(
                ": \"${{{name}:?{name} must be exported before the job is submitted}}\"\n"
            ));
        }
        out
    }

    /// The address at which rank 0 waits. `sed` reads all that it is given: `head` would end early, and a long list
    /// of hosts would then end the script.
    pub fn endpoint(&self) -> &'static str {
        "MASTER_ADDR=\"$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)\"\n\
         MASTER_PORT=\"$((15000 + SLURM_JOB_ID % 10000))\"\n\
         export MASTER_ADDR MASTER_PORT\n"
    }

    /// Definitions of the container's variables; empty without a container.
    pub fn container_variables(&mut self) -> String {
        if !self.has_container() {
            return String::new();
        }
        let image = self.shell("image", self.site.image.as_deref(), None, "<IMAGE>");
        let mounts = self.mounts();
        format!("IMAGE={image}\nMOUNTS={mounts}\n")
    }

    /// Container flags of one srun line, a line each; empty without a container.
    pub fn container_flags(&self) -> String {
        if !self.has_container() {
            return String::new();
        }
        let mut out = String::from(
            "  --container-image=\"$IMAGE\" \\\n  --container-mounts=\"$MOUNTS\" \\\n  --no-container-mount-home \\\n",
        );
        if self.site.container_writable {
            out.push_str("  --container-writable \\\n");
        }
        out
    }

    /// `--mpi=PLUGIN ` or nothing.
    pub fn mpi(&mut self) -> String {
        let default = if self.options.body == Body::Bridge { "pmix" } else { "none" };
        match self.site.mpi.as_deref().unwrap_or(default) {
            "none" => String::new(),
            plugin => format!("--mpi={} ", self.directive("mpi", Some(plugin), "none")),
        }
    }

    fn has_container(&self) -> bool {
        self.options.body == Body::Bridge || self.site.image.is_some()
    }

    fn mounts(&mut self) -> String {
        for mount in &self.site.mounts {
            let mut parts = mount.split(':');
            let source = parts.next().unwrap_or("");
            let target = parts.next().unwrap_or("");
            let known = source.starts_with(['/', '.']) || ["tmpfs", "umount"].contains(&source);
            if !known || !target.starts_with('/') || parts.count() > 1 || mount.contains(',') {
                self.refuse("mounts", mount, "is not source:target[:flags] with absolute paths");
            }
        }
        let given = self.site.mounts.join(",");
        if !given.is_empty() {
            return self.shell("mounts", Some(&given), None, "<MOUNTS>");
        }
        let shared =
            self.site.shared_dir.as_deref().filter(|shared| !shared.is_empty()).unwrap_or("<SHARED_DIR>");
        let mut mounts = format!("{shared}:{shared}");
        if self.options.body == Body::Bridge {
            self.missing("mounts", "<MEGATRON_BRIDGE_CHECKOUT>");
            mounts.push_str(",<MEGATRON_BRIDGE_CHECKOUT>:/opt/Megatron-Bridge");
        }
        self.shell("mounts", Some(&mounts), None, "<MOUNTS>")
    }

    pub(super) fn directive(&mut self, field: &str, value: Option<&str>, placeholder: &str) -> String {
        match value {
            None | Some("") => {
                self.missing(field, placeholder);
                placeholder.to_owned()
            }
            Some(value) if text::is_directive_value(value) => value.to_owned(),
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

    fn missing(&mut self, field: &str, placeholder: &str) {
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

    pub(super) fn refuse(&mut self, field: &str, value: &str, why: &str) {
        let shown: String = value.chars().take(80).collect();
        let message = format!("{field} of the site {why}: {shown:?}");
        self.note(Finding::error(&format!("site.{field}"), shown, message));
    }
}
