//! Parts that scripts of several bodies have: folders, variables, modules, secrets, the container, the endpoint.

use super::frame::CACHES;
use super::options::Mode;
use super::site::{Container, Environment};
use super::writer::Writer;
use crate::shell;
use planner::finding::Finding;

impl Writer<'_> {
    /// `SHARED_DIR=...` and the folders that must be there before anything writes into them.
    pub fn shared_dir(&mut self) -> String {
        let value = self.shell("shared_dir", self.site.shared_dir.as_deref(), None, "<SHARED_DIR>");
        let mut out = format!("SHARED_DIR={value}\n");
        // In a shell that a person types into, `exit` would end that shell.
        if self.options.mode != Mode::Salloc {
            out.push_str(
                "case \"$SHARED_DIR\" in\n  /*) ;;\n  *) echo \"SHARED_DIR must be a folder that all nodes \
                 see, from /: $SHARED_DIR\" >&2; exit 1 ;;\nesac\n",
            );
        }
        out.push_str("mkdir -p \"$SHARED_DIR/logs\"\n");
        for folder in self.site.profile.map_or(&[][..], |profile| profile.folders()) {
            out.push_str(&format!("mkdir -p \"$SHARED_DIR/{folder}\"\n"));
        }
        out
    }

    /// Modules, the file of secrets, variables that must be set, variables that the site gives.
    pub fn environment(&mut self) -> String {
        let mut out = self.modules();
        out.push_str(&self.secrets());
        let mut exports = String::new();
        let mut required = Vec::new();
        for name in &self.site.required_env {
            if shell::is_variable(name) {
                required.push(name.clone());
            } else {
                self.refuse("required_env", name, "is not a variable's name");
            }
        }
        for (name, value) in &self.site.env {
            if !shell::is_variable(name) {
                self.refuse("env", name, "is not a variable's name");
            } else if shell::is_secret(name, value) {
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
            } else if CACHES.contains(&name.as_str()) {
                // It stands where folders of caches are made.
            } else if let Some(value) = self.quoted("env", value) {
                exports.push_str(&format!("export {name}={value}\n"));
            }
        }
        planner::order::sort(&mut required);
        required.dedup();
        for name in required {
            out.push_str(&format!(
                ": \"${{{name}:?{name} must be exported before the job is submitted}}\"\n"
            ));
        }
        if !exports.is_empty() {
            out.push_str(&exports);
        }
        out.push_str(&self.prologue());
        out
    }

    /// The site's own lines of shell, as they are.
    fn prologue(&mut self) -> String {
        let mut out = String::new();
        for line in &self.site.prologue {
            // A value that can be quoted is one line of plain text.
            if shell::with_secrets(line.split_whitespace()).any(|(_, gives)| gives) {
                self.refuse_secret("prologue");
            } else if self.quoted("prologue", line).is_some() {
                out.push_str(&format!("{line}\n"));
            }
        }
        if out.is_empty() { out } else { format!("\n# The site's own preparation\n{out}") }
    }

    fn modules(&mut self) -> String {
        let site = self.site;
        let mut words = Vec::new();
        for module in &site.modules {
            if shell::is_directive_value(module) {
                words.push(module.clone());
            } else {
                self.refuse("modules", module, "is not a module's name");
            }
        }
        if words.is_empty() {
            return String::new();
        }
        // Module systems read variables that are not set.
        format!("\nset +u\nmodule load {}\nset -u\n", words.join(" "))
    }

    /// Sources the file of secrets, without a trace of what is in it.
    fn secrets(&mut self) -> String {
        let Some(path) = self.site.secrets_file.as_deref() else { return String::new() };
        let value = self.shell("secrets_file", Some(path), None, "<SECRETS_FILE>");
        let names: Vec<&str> = self
            .site
            .required_env
            .iter()
            .map(String::as_str)
            .filter(|name| shell::is_variable(name))
            .collect();
        let mut out = String::from(
            "\n# Secrets come from a file that only you can read. Make it before you submit, in a folder of mode 0700:\n",
        );
        out.push_str(&format!(
            "#   (umask 077; for name in {}; do printf 'export %s=%q\\n' \"$name\" \"${{!name}}\"; done > FILE)\n",
            if names.is_empty() { "HF_TOKEN".to_owned() } else { names.join(" ") }
        ));
        // Slurm may queue a job again whatever its end looks like from here.
        out.push_str("# It stays, for a job that is queued again reads it again. Remove it yourself when you are done\n");
        out.push_str(&format!("SECRETS_FILE={value}\n"));
        if self.options.mode == Mode::Salloc {
            out.push_str("# shellcheck source=/dev/null\n. \"$SECRETS_FILE\"\n");
            return out;
        }
        out.push_str(
            "if [ ! -O \"$SECRETS_FILE\" ] || [ \"$(stat -c %a \"$SECRETS_FILE\")\" != 600 ]; then\n  \
             echo \"$SECRETS_FILE must be there, yours, with mode 600\" >&2\n  exit 1\nfi\n\
             set +vx\n# shellcheck source=/dev/null\n. \"$SECRETS_FILE\"\n",
        );
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
        if self.container().is_none() {
            return String::new();
        }
        let image = self.shell("image", self.site.image.as_deref(), None, "<IMAGE>");
        let mounts = self.mounts();
        format!("IMAGE={image}\nMOUNTS={mounts}\n")
    }

    /// Container flags of one srun line, a line each; empty where srun runs no container. `variables` are those whose
    /// value in the job must win over the image's.
    pub fn container_flags(&self, variables: &[&str]) -> String {
        if self.container() != Some(Container::Pyxis) {
            return String::new();
        }
        let mut out = String::from(
            "  --container-image=\"$IMAGE\" \\\n  --container-mounts=\"$MOUNTS\" \\\n  --no-container-mount-home \\\n",
        );
        let mut names: Vec<&str> = variables.to_vec();
        let site = self.site;
        let given = site.env.keys().chain(&site.container_env).map(String::as_str);
        names.extend(given.filter(|name| shell::is_variable(name)));
        planner::order::sort(&mut names);
        names.dedup();
        if !names.is_empty() {
            out.push_str(&format!("  --container-env={} \\\n", names.join(",")));
        }
        // What syncs there writes into the image's environment, unless enroot is set to allow it anyway.
        if site.container_writable || self.environment_kind() == Environment::NodeLocal {
            out.push_str("  --container-writable \\\n");
        }
        out
    }

    /// What stands before a task's command where the command itself opens the container; else empty.
    pub fn container_prefix(&self) -> String {
        if self.container() != Some(Container::Apptainer) {
            return String::new();
        }
        let gpus = if self.has_gpus() { "--nv " } else { "" };
        let writable = if self.site.container_writable { "--writable-tmpfs " } else { "" };
        format!("  apptainer exec {gpus}{writable}--bind \"$MOUNTS\" \"$IMAGE\" \\\n")
    }

    /// `--mpi=PLUGIN ` or nothing.
    pub fn mpi(&mut self) -> String {
        match self.site.mpi.as_deref().unwrap_or(self.options.body.facts().mpi) {
            "none" => String::new(),
            plugin => format!("--mpi={} ", self.directive("mpi", Some(plugin), "none")),
        }
    }
}
