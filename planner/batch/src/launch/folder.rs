//! The folder of a job: what it writes lies there, and what it goes on from when it is queued again.

use super::options::Mode;
use super::payload::Payload;
use super::writer::Writer;

/// In a shell that a person types into, the same allocation may run its steps again.
const FIRST: &str = r#"if [ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] && [ -e "$RUN_DIR" ]; then
  echo "$RUN_DIR is there already, by another job of this number or an earlier start in this allocation: move it away" >&2
  exit 1
fi
"#;

/// An earlier job's folder, where the one who submits asks for it by name. `jobs` in it says who has had it.
const RESUMED: &str = r#"# To go on where an earlier job of yours has ended: SHARDPLAN_RESUME=NAME_OF_ITS_FOLDER sbatch ...
if [ -n "${SHARDPLAN_RESUME:-}" ]; then
  RUN_DIR="$SHARED_DIR/runs/${SHARDPLAN_RESUME##*/}"
  if [ ! -O "$RUN_DIR" ] || [ ! -s "$RUN_DIR/jobs" ] || [[ "${SHARDPLAN_RESUME##*/}" =~ [^A-Za-z0-9._-] ]]; then
    echo "SHARDPLAN_RESUME must name the folder of an earlier job of yours: there is none at $RUN_DIR" >&2
    exit 1
  fi
"#;

/// Others find who has had the folder. Each notes itself before it looks for others, so that of two at least one sees the other.
const NOTED: &str = r#"echo "$SLURM_JOB_ID" >> "$RUN_DIR/jobs"
others="$(grep -vx "$SLURM_JOB_ID" "$RUN_DIR/jobs" | sort -u | paste -s -d , - || true)"
if [ -n "$others" ]; then
  others="$(squeue -h -o %A -j "$others" 2> /dev/null | sort -u | paste -s -d , - || true)"
fi
if [ -n "$others" ]; then
  echo "job $others still has $RUN_DIR: wait until it has ended, or cancel it" >&2
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
        let interactive = self.options.mode == Mode::Salloc;
        let saves = self.saves();
        let mut out = format!(
            "{saves}\n# This job's own folder: it goes on from what lies there when it is queued again, and no other job does\n\
             RUN_DIR=\"$SHARED_DIR/runs/${{SLURM_CLUSTER_NAME:-slurm}}-{number}\"\n"
        );
        // Elements of an array would all go on in one folder.
        let resumes = self.saving().is_some() && !interactive && self.array().is_none();
        match (resumes, interactive) {
            (true, _) => {
                out.push_str(RESUMED);
                out.push_str(&FIRST.replacen("if", "elif", 1));
            }
            (false, false) => out.push_str(FIRST),
            (false, true) => {}
        }
        out.push_str("mkdir -p \"$RUN_DIR\"\n");
        if resumes {
            out.push_str(NOTED);
        }
        out
    }

    /// What says how many steps are saved in the job's folder, and ends a job that has none left to do: one that is queued
    /// again after its last step.
    pub fn saved_steps(&self, payload: &Payload) -> String {
        if self.options.mode == Mode::Salloc {
            return payload.repair.to_owned();
        }
        let Some(shell) = payload.saved_steps else { return String::new() };
        let steps = self.plan.run.steps;
        let repair = payload.repair;
        format!(
            "{repair}# How many steps the checkpoint has that the run goes on from\n\
             saved_steps() {{\n  {shell} || true\n}}\nsaved=\"$(saved_steps)\"\n\
             if [ \"${{saved:-0}}\" -ge {steps} ]; then\n  \
             echo \"all {steps} steps are saved in $RUN_DIR already: nothing is left to do\"\n  exit 0\nfi\n"
        )
    }

    /// A folder whose name the framework would read otherwise.
    fn check_run_folder(&mut self) {
        let site = self.site;
        let Some(shared) = site.shared_dir.as_deref().filter(|shared| !shared.is_empty()) else { return };
        let interpolates = self.options.trains() && self.options.body.facts().interpolates;
        if interpolates && (shared.contains(['\'', '\\']) || shared.contains("${")) {
            self.refuse(
                "shared_dir",
                shared,
                "holds a quote, a backslash or ${, which Megatron Bridge's overrides read otherwise",
            );
        }
    }
}
