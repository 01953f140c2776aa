//! What can be said of the site's values and of the kind of script before anything is written.

use super::options::{Mode, Task};
use super::writer::Writer;
use crate::lint::node_local;
use crate::shell;
use planner::finding::Finding;
use planner::wire::{GoingOn, SparesBy};

impl Writer<'_> {
    /// What can be said of the site.
    pub(super) fn check_site(&mut self) {
        let site = self.site;
        for (field, path) in [
            ("shared_dir", &site.shared_dir),
            ("torch_lib", &site.torch_lib),
            ("workdir", &site.workdir),
            ("secrets_file", &site.secrets_file),
        ] {
            if let Some(path) = path
                && !path.is_empty()
                && !path.starts_with('/')
            {
                self.refuse(field, path, "is not an absolute path");
            }
        }
        // The log's name is made of both, and Slurm makes no folder for it.
        if let Some(name) = site.job_name.as_deref().filter(|name| name.contains(['/', '%'])) {
            self.refuse("job_name", name, "holds a / or a %, and the job's log is named by it");
        }
        if let Some(path) = site.shared_dir.as_deref().filter(|path| path.contains('%')) {
            self.refuse(
                "shared_dir",
                path,
                "holds a %, which Slurm reads as a pattern in the name of the job's log",
            );
        }
        self.check_shared();
        if let Some(signal) = &site.signal {
            self.check_signal(signal);
        }
        self.check_unsignalled();
        self.check_image();
        if let Some(wanted) = site.ntasks_per_node
            && wanted != self.tasks_per_node()
        {
            self.check_tasks(wanted);
        }
        for name in &site.container_env {
            if !shell::is_variable(name) {
                self.refuse("container_env", name, "is not a variable's name");
            }
        }
    }

    /// Caches and images that not every node sees.
    fn check_shared(&mut self) {
        let site = self.site;
        let several = self.plan.cluster.nodes > 1;
        let shared = site.shared_dir.as_deref().unwrap_or("");
        if let Some(root) = node_local(shared) {
            let message = format!(
                "{} lies under {root}, which each node has for itself, so what a run saves there is not there where Slurm starts it again; name a folder of the filesystem that all nodes share",
                clipped(shared)
            );
            self.note(Finding::warning("site.shared_dir", clipped(shared), message));
        }
        for (field, path) in
            [("hf_home", &site.hf_home), ("uv_cache_dir", &site.uv_cache_dir), ("nemo_home", &site.nemo_home)]
        {
            let Some(path) = path else { continue };
            let mounted =
                site.mounts.iter().filter_map(|mount| mount.split(':').nth(1)).any(|to| is_under(path, to));
            if several && !is_under(path, shared) && !mounted {
                self.note(Finding::warning(
                    &format!("site.{field}"),
                    clipped(path),
                    format!(
                        "{} is neither under shared_dir nor mounted, so every node would see a folder of its own",
                        clipped(path)
                    ),
                ));
            }
        }
        if let Some(image) = &site.image
            && several
            && image.starts_with('/')
            && !is_under(image, shared)
        {
            self.note(Finding::warning(
                "site.image",
                clipped(image),
                format!("{} is not under shared_dir; every node must see it", clipped(image)),
            ));
        }
    }

    fn check_tasks(&mut self, wanted: u64) {
        let per_node = self.plan.cluster.gpus_per_node;
        let message = if self.options.mode == Mode::Torchrun {
            format!(
                "torchrun with {wanted} tasks a node starts {wanted} x {per_node} = {} processes on each, which fight for the \
                 same ports (EADDRINUSE); it wants one task a node",
                wanted.saturating_mul(per_node)
            )
        } else {
            format!(
                "srun starts every rank itself, so a node of {per_node} GPUs wants {per_node} tasks and not {wanted}"
            )
        };
        let rule = "tasks of a node x processes of a task = ranks of a node";
        let finding = Finding::error("site.ntasks_per_node", wanted, message).rule(rule);
        self.note(finding.nearest([self.tasks_per_node()]));
    }

    /// Whether the run goes on in its allocation when ranks die.
    pub fn goes_on_after_failures(&self) -> bool {
        !self.options.going_on.stops() && self.can_go_on()
    }

    /// Nodes that stand by for that.
    pub fn spare_nodes(&self) -> u64 {
        if self.goes_on_after_failures() { self.options.spare_nodes.min(GoingOn::MOST_SPARES) } else { 0 }
    }

    /// Whether the script is one in which `shardplan run` can start the ranks: a batch job of whole nodes, on the nodes themselves.
    fn can_go_on(&self) -> bool {
        let options = self.options;
        options.body.facts().takes_the_plan
            && options.mode == Mode::Srun
            && options.array.is_none()
            && options.het.is_none()
            && self.container().is_none()
    }

    /// What can be said of going on after failures.
    fn check_going_on(&mut self) {
        let options = self.options;
        let asked = options.going_on;
        if asked.stops() && options.spare_nodes == 0 {
            return;
        }
        let spares = asked.spares.saturating_add(options.spare_nodes);
        let saves = self.plan.run.checkpoint.is_some();
        let possible = self.can_go_on();
        // First what no other value of these options would change.
        let only = "only Shardplan's worker goes on in its allocation, in a plain batch job of mode srun without a container";
        let why = if possible {
            GoingOn { spares, ..asked }.refusal(saves, spares, SparesBy::Nodes)
        } else {
            Some(only.to_owned())
        };
        if let Some(why) = why {
            self.refuse_option("on_failure", asked.on_failure.name().to_owned(), &why);
        }
    }

    /// What can be said of the kind of script.
    pub(super) fn check_options(&mut self) {
        self.check_going_on();
        let options = self.options;
        if let Some(array) = &options.array {
            let shown: String = array.chars().take(80).collect();
            if !shell::is_array(array) {
                self.refuse_option(
                    "array",
                    shown,
                    "array is not a list of numbers and ranges, such as 0-3 or 0-7%2",
                );
            } else if options.mode == Mode::Salloc {
                self.refuse_option(
                    "array",
                    shown,
                    "an interactive allocation is no job array; write a batch script",
                );
            } else if options.het.is_some() {
                self.refuse_option(
                    "array",
                    shown,
                    "Slurm has no arrays of heterogeneous jobs; choose one of the two",
                );
            }
        }
        if let Some(het) = &options.het {
            self.check_het(het);
        }
        let facts = options.body.facts();
        if let (Some(why), Mode::Torchrun) = (facts.without_torchrun, options.mode) {
            self.refuse_option("mode", "torchrun", why);
        }
        if !facts.converts && options.task != Task::Train {
            self.refuse_option(
                "task",
                options.task.name(),
                "conversion and generation are Megatron Bridge's; choose body bridge",
            );
        }
        self.check_runtime();
    }

    fn check_het(&mut self, het: &str) {
        let shown: String = het.chars().take(80).collect();
        let nodes = self.plan.cluster.nodes;
        let Some(list) = shell::components(het) else {
            let why =
                "het is not a list of components, nodes and then their partition, such as 2:left,6:right";
            return self.refuse_option("het", shown, why);
        };
        let sum = list.iter().map(|(nodes, _)| *nodes).fold(0, u64::saturating_add);
        if sum != nodes {
            self.refuse_option(
                "het",
                shown,
                format!("the components have {sum} nodes, and the plan has {nodes}"),
            );
        } else if self.options.mode != Mode::Srun {
            let why = "components of a heterogeneous job share one step only under srun; choose mode srun";
            self.refuse_option("het", shown, why);
        }
    }

    /// A framework that does not run the plan's runtime.
    fn check_runtime(&mut self) {
        let runtime = self.plan.runtime;
        let Some(product) = self.options.body.facts().product else { return };
        let theirs = product.runtimes();
        // What trains on a grid of ranks runs what the worker's own rules imitate.
        let imitated = || theirs.iter().any(|one| !one.facts().uses_device_mesh);
        if !(theirs.contains(&runtime) || runtime.facts().is_workers_own && imitated()) {
            let title = self.options.body.title();
            self.note(
                Finding::warning(
                    "runtime",
                    runtime.name(),
                    format!(
                        "{title} does not run {}, so the prediction is of something else",
                        runtime.name()
                    ),
                )
                .rule("runtimes of frameworks"),
            );
        }
    }
}

/// The beginning of a value, for a finding.
pub(super) fn clipped(text: &str) -> String {
    shell::comment(text).chars().take(80).collect()
}

/// Whether a path is a folder, or lies in it.
pub(super) fn is_under(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    !folder.is_empty()
        && path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
