//! The folder of a job: what it writes lies there, and what it goes on from when it is queued again.

use super::options::{Body, Mode, Task};
use super::site::Container;
use super::writer::Writer;
use crate::finding::Finding;

/// In a shell that a person types into, the same allocation may run its steps again.
const FIRST: &str = r#"if [ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] && [ -e "$RUN_DIR" ]; then
  echo "$RUN_DIR is there already, by another job of this number or an earlier start in this allocation: move it away" >&2
  exit 1
fi
"#;

impl Writer<'_> {
    /// `RUN_DIR=...`: a job has its number to itself and keeps it when it is queued again, and so its folder. Clusters
    /// that share a filesystem may give one number twice, and a new controller counts anew.
    pub fn run_folder(&mut self) -> String {
        self.check_run_folder();
        let number = match self.array() {
            Some(_) => "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}",
            None => "$SLURM_JOB_ID",
        };
        let first = if self.options.mode == Mode::Salloc { "" } else { FIRST };
        format!(
            "\n# This job's own folder: it goes on from what lies there when it is queued again, and no other job does\n\
             RUN_DIR=\"$SHARED_DIR/runs/${{SLURM_CLUSTER_NAME:-slurm}}-{number}\"\n{first}mkdir -p \"$RUN_DIR\"\n"
        )
    }

    /// A folder that tasks can't write into, or whose name the framework would read otherwise.
    fn check_run_folder(&mut self) {
        let site = self.site;
        let Some(shared) = site.shared_dir.as_deref().filter(|shared| !shared.is_empty()) else { return };
        let is_there = |mount: &String| {
            let mut parts = mount.split(':');
            let (source, target) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
            source == target && super::checks::is_under(shared, target)
        };
        let contained = matches!(self.container(), Some(Container::Pyxis | Container::Apptainer));
        if contained && !site.mounts.is_empty() && !site.mounts.iter().any(is_there) {
            self.note(
                Finding::warning(
                    "site.mounts",
                    super::checks::clipped(shared),
                    "shared_dir is not mounted by its own name, so what the run saves there would be lost with the \
                     container: add shared_dir:shared_dir",
                )
                .rule("a job's folder must outlive its container"),
            );
        }
        let trains = self.options.body == Body::Bridge && self.options.task == Task::Train;
        if trains && (shared.contains(['\'', '\\']) || shared.contains("${")) {
            self.refuse(
                "shared_dir",
                shared,
                "holds a quote, a backslash or ${, which Megatron Bridge's overrides read otherwise",
            );
        }
    }
}
