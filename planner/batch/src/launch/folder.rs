//! The folder of a job: what it writes lies there, and what it goes on from when it is queued again.

use super::options::Mode;
use super::payload::Payload;
use super::writer::Writer;

/// How a job knows itself, and asks Slurm. `NUMBER` is how Slurm shows this job alone: an array's number shows all of its
/// elements.
const KNOWN: &str = r#"# What a folder's list of jobs calls this one: numbers repeat, on other clusters and by a controller that counts anew
JOB="${SLURM_CLUSTER_NAME:-slurm} $SLURM_JOB_ID"
# A controller that is busy, or just starts, is asked again for a minute
ask() {
  for _ in 1 2 3 4 5 6; do
    "$@" && return
    sleep 10
  done
  return 1
}
# A job that was submitted by one that was queued again has inherited that one's count
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] \
  && ! read -r SLURM_RESTART_COUNT < <(ask scontrol show job "NUMBER" | sed -n 's/.* Restarts=\([0-9][0-9]*\).*/\1/p'); then
  echo "Slurm does not say whether this job was queued again: queue it again when it does" >&2
  exit 1
fi
"#;

/// Whether a folder is this very job's, and how a job makes sure that nobody else trains there.
const TAKEN: &str = r#"# Whether this job has had a folder, which is its user's own
was_here() {
  [ -O "$1" ] && [ ! -L "$1" ] && grep -sx "$JOB" "$1/jobs" > /dev/null
}
# Each job notes itself before it looks for others, so that of two at least one sees the other; who is refused has left
leave_folder() {
  echo "$JOB left" >> "$RUN_DIR/jobs"
}
take_folder() {
  local others cluster number queued why
  echo "$JOB" >> "$RUN_DIR/jobs"
  others="$(awk -v me="$JOB" '
    { job = NF == 1 ? substr(me, 1, index(me, " ")) $1 : $1 " " $2; has[job] = $3 != "left" }
    END { for (job in has) if (has[job] && job != me) print job }' "$RUN_DIR/jobs")"
  while read -r cluster number; do
    [ -n "$number" ] || continue
    set -- squeue -h -u "$(id -u)" -o %A
    [ "$cluster" = "${JOB% *}" ] || set -- "$@" -M "$cluster"
    if ! queued="$(ask "$@")"; then
      why="whether job $number of cluster $cluster still has $RUN_DIR, Slurm does not say: when it has ended, take its line out of $RUN_DIR/jobs"
    elif grep -x "$number" <<< "$queued" > /dev/null; then
      why="job $number still has $RUN_DIR: wait until it has ended, or cancel it"
    else
      continue
    fi
    echo "$why" >&2
    leave_folder
    exit 1
  done <<< "$others"
}
"#;

/// An earlier job's folder, where the one who submits asks for it by name. `jobs` in it says who has had it.
const RESUMED: &str = r#"# To go on where an earlier job of yours has ended: SHARDPLAN_RESUME=NAME_OF_ITS_FOLDER sbatch ...
if [ -n "${SHARDPLAN_RESUME:-}" ]; then
  RUN_DIR="$SHARED_DIR/runs/${SHARDPLAN_RESUME##*/}"
  if [ ! -O "$RUN_DIR" ] || [ ! -s "$RUN_DIR/jobs" ] || [[ "${SHARDPLAN_RESUME##*/}" =~ [^A-Za-z0-9._-] ]]; then
    echo "SHARDPLAN_RESUME must name the folder of an earlier job of yours: there is none at $RUN_DIR" >&2
    exit 1
  fi
el"#;

/// Its own folder is new, or it was here before.
const FIRST: &str = r#"if { [ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] || ! was_here "$RUN_DIR"; } && ! mkdir "$RUN_DIR"; then
  echo "$RUN_DIR can't be this job's: what is there already is of another job of this number. Move it away" >&2
  exit 1
fi
"#;

impl Writer<'_> {
    /// `RUN_DIR=...`: a job has its number to itself and keeps it when it is queued again, and so its folder. Clusters
    /// that share a filesystem may give one number twice, and a new controller counts anew.
    pub fn run_folder(&mut self) -> String {
        self.check_run_folder();
        let saves = self.saves();
        let number = self.shown_number();
        let own = format!("RUN_DIR=\"$SHARED_DIR/runs/${{SLURM_CLUSTER_NAME:-slurm}}-{number}\"\n");
        // In a shell that a person types into, the same allocation may run its steps again.
        if self.options.mode == Mode::Salloc {
            return format!("{saves}\n# This allocation's own folder\n{own}mkdir -p \"$RUN_DIR\"\n");
        }
        // Elements of an array would all go on in one folder.
        let resumes = self.saving().is_some() && self.array().is_none();
        format!(
            "{saves}\n{}\
             # This job's own folder: it goes on from what lies there when it is queued again, and no other job does\n\
             {own}mkdir -p \"$SHARED_DIR/runs\"\n{}{FIRST}take_folder\n",
            self.folders_of_jobs(),
            if resumes { RESUMED } else { "" }
        )
    }

    /// What a script needs that trains in a folder which others may have: `JOB`, `ask`, `was_here`, `take_folder`, and a count
    /// of restarts that is the job's own.
    pub fn folders_of_jobs(&self) -> String {
        KNOWN.replace("NUMBER", self.shown_number()) + TAKEN
    }

    /// The number by which Slurm shows this job alone.
    fn shown_number(&self) -> &'static str {
        match self.array() {
            Some(_) => "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}",
            None => "$SLURM_JOB_ID",
        }
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
