//! The script: the plan travels inside it, so that pasting one file is enough.

use batch::launch::{END_OF_PLAN, Mode, Writer, footer, frame, salloc};
use batch::shell;
use planner::finding::Finding;
use planner::json::indented;
use planner::wire::VERSION;

/// Variables whose value in the job must win over the image's.
const VARIABLES: [&str; 4] = ["MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "TORCHELASTIC_RESTART_COUNT"];

/// Finds the folder that the job goes on in; none where it begins a run. One that the launcher has made has no list of jobs
/// before its second attempt, nor have those of older scripts: their description names the job.
const FOUND: &str = r#"described() {
  { tr -d '[:space:]' < "$1/run.json" && echo; } | sed -n 's/.*"slurm_job":"\([0-9]*\)","slurm_cluster":"\([^"]*\)".*/\2 \1/p'
}
# A job that is queued again goes on in the folder of its first attempt
RUN_DIR=""
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
  for earlier in "$SHARED_DIR/runs/"*"-slurm-$SLURM_JOB_ID"; do
    # Not what somebody else has put there, or another cluster's job of this number has trained
    if [ -O "$earlier" ] && [ ! -L "$earlier" ] && [ -f "$earlier/run.json" ] \
      && { was_here "$earlier" || [ "$(described "$earlier")" = "$JOB" ]; }; then
      RUN_DIR="$earlier"
    fi
  done
fi
"#;

/// An earlier job's folder, where the one who submits asks for it by name. It stands before the search for that of this job.
const RESUMED: &str = r#"# To go on where an earlier job of yours has ended: SHARDPLAN_RESUME=NAME_OF_ITS_FOLDER sbatch ...
if [ -n "${SHARDPLAN_RESUME:-}" ]; then
  RUN_DIR="$SHARED_DIR/runs/${SHARDPLAN_RESUME##*/}"
  if [ ! -O "$RUN_DIR" ] || [ -L "$RUN_DIR" ] || [ ! -f "$RUN_DIR/run.json" ]; then
    echo "SHARDPLAN_RESUME must name the folder of an earlier run of yours: there is none at $RUN_DIR" >&2
    exit 1
  fi
  [ -e "$RUN_DIR/jobs" ] || described "$RUN_DIR" >> "$RUN_DIR/jobs"
el"#;

/// Who may read what is made from here on: its owner alone, for the key by which the ranks know each other is in the folder.
const MASKED: &str = r#"mkdir -p "$SHARED_DIR/runs"
MASK="$(umask)"
umask 077
"#;

/// The folder of a new run.
const NAMED: &str = r#"RUN_DIR="$SHARED_DIR/runs/$(date -u +%Y%m%dT%H%M%SZ)-slurm-$SLURM_JOB_ID"
"#;

/// Remembers when the run was first started, and how often. A stop that was asked of an earlier attempt is not asked of this one.
const REMEMBERED: &str = r#"RUN_ID="${RUN_DIR##*/}"
ATTEMPT=1
STARTED="$(date +%s%3N)"
if [ -f "$RUN_DIR/run.json" ]; then
  first="$(sed -n 's/.*"started_unix_ms": *\([0-9]*\).*/\1/p' "$RUN_DIR/run.json")"
  STARTED="${first:-$STARTED}"
  attempts="$(sed -n 's/.*"attempts": *\([0-9]*\).*/\1/p' "$RUN_DIR/run.json")"
  ATTEMPT="$((${attempts:-1} + 1))"
  rm -f "$RUN_DIR/control"
fi
export TORCHELASTIC_RESTART_COUNT="$((ATTEMPT - 1))"
"#;

/// Says what the launcher of a run begins with; it makes the folder itself, and gives one that is there this script's plan.
const BEGINS_WITH: &str = r#"if [ -z "$RUN_DIR" ]; then
  NAMED  BEGINS_WITH=(--id "${RUN_DIR##*/}")
else
  take_folder
  BEGINS_WITH=(--id "${RUN_DIR##*/}" --resume "$RUN_DIR")
fi
mkdir -p "$SHARED_DIR/runs"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
echo "run folder: $RUN_DIR"

"#;

/// Waits for the launcher. A signal to the batch shell, as before the time limit, reaches it and no rank, so that ranks end in order.
const WAITS: &str = r#"LAUNCHER="$!"
trap 'kill -TERM "$LAUNCHER" 2> /dev/null || true' TERM INT USR1
while :; do
  if wait "$LAUNCHER"; then
    status=0
  else
    status="$?"
  fi
  # A signal ends the waiting, and not the launcher
  kill -0 "$LAUNCHER" 2> /dev/null || break
done
"#;

/// How many steps the newest checkpoint has.
const SAVED_STEPS: &str = r#"# How many steps the newest checkpoint has
saved_steps() {
  newest=0
  for index in "$RUN_DIR/checkpoints/"step-*/checkpoint.json; do
    step="${index%/checkpoint.json}"
    step="${step##*/step-}"
    if [ -f "$index" ] && [[ "$step" =~ ^[0-9]+$ ]] && [ "$((10#$step))" -gt "$newest" ]; then
      newest="$((10#$step))"
    fi
  done
  echo "$newest"
}
"#;

/// The whole script.
pub(crate) fn script(writer: &mut Writer<'_>) -> String {
    for finding in planner::rules::executor_limits(writer.plan) {
        writer.note(finding);
    }
    let interactive = writer.options.mode == Mode::Salloc;
    let mut out = if interactive { salloc::request(writer) } else { writer.header() };
    let rank = writer.shell("rank_binary", writer.site.rank_binary.as_deref(), None, "<SHARDPLAN_RANK>");
    let torch = writer.shell("torch_lib", writer.site.torch_lib.as_deref(), None, "<TORCH_LIB>");
    out.push_str("\n# What runs: Shardplan's executor on libtorch 2.11\n");
    out.push_str(&format!("SHARDPLAN_RANK={rank}\nSHARDPLAN_TORCH_LIB={torch}\n"));
    out.push_str(&writer.shared_dir());
    out.push_str(&writer.container_variables());
    out.push_str(frame::cores(writer));
    out.push_str(&writer.environment());
    if writer.container().is_none() && !interactive {
        out.push_str(
            "if [ ! -x \"$SHARDPLAN_RANK\" ]; then\n  \
             echo \"shardplan-rank is not at $SHARDPLAN_RANK: copy it to the shared filesystem and give its path as \
             rank_binary\" >&2\n  exit 1\nfi\n",
        );
    }
    let saves = writer.saving().is_some();
    out.push_str(&writer.saves());
    if writer.goes_on_after_failures() {
        out.push_str(&launcher(writer));
        return out;
    }
    out.push_str("\n# The run folder: plan, who and when, one log per rank, and checkpoints. The hub shows it, now or later\n");
    if interactive {
        out.push_str(&format!("{MASKED}{NAMED}mkdir \"$RUN_DIR\"\n{REMEMBERED}"));
        out.push_str(&plan_document(writer, ""));
    } else {
        out.push_str(&writer.folders_of_jobs());
        out.push_str(&found(saves));
        out.push_str(MASKED);
        out.push_str(&format!(
            "if [ -z \"$RUN_DIR\" ]; then\n  {NAMED}  mkdir \"$RUN_DIR\"\nfi\ntake_folder\n"
        ));
        let check = check(writer);
        out.push_str(&plan_document(writer, &check));
        out.push_str(REMEMBERED);
    }
    out.push_str(&run_json(writer));
    out.push_str("\n# Ranks find each other here, and take their numbers from Slurm\n");
    out.push_str(writer.endpoint());
    out.push_str("export OMP_NUM_THREADS=\"${OMP_NUM_THREADS:-1}\"\necho \"run folder: $RUN_DIR\"\n\n");
    let mpi = writer.mpi();
    let flags = writer.container_flags(&VARIABLES);
    let prefix = writer.container_prefix();
    let groups = writer.het_groups();
    let end = if interactive { "\n" } else { " \\\n  || status=$?\n" };
    if !interactive {
        if saves {
            out.push_str(SAVED_STEPS);
        }
        out.push_str(&footer::before(writer));
    }
    out.push_str(&format!(
        "srun {mpi}{groups}--kill-on-bad-exit=1 --wait=30 --distribution=block --label \\\n{flags}{prefix}  \
         env \"LD_LIBRARY_PATH=$SHARDPLAN_TORCH_LIB${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\" \\\n  \
         \"$SHARDPLAN_RANK\" --plan \"$RUN_DIR/plan.json\" --run-dir \"$RUN_DIR\"{end}"
    ));
    if !interactive {
        out.push_str(&footer::footer(writer, false, saves));
    }
    out
}

/// The plan of an earlier job gives way to one that can go on from what it has saved, and to no other.
fn check(writer: &mut Writer<'_>) -> String {
    let mpi = writer.mpi();
    let flags = writer.container_flags(&[]);
    let prefix = writer.container_prefix();
    format!(
        "if [ -f \"$RUN_DIR/plan.json\" ] && ! cmp -s \"$RUN_DIR/.plan.json\" \"$RUN_DIR/plan.json\"; then\n  \
         srun {mpi}-N 1 --ntasks=1 --ntasks-per-node=1 \\\n{flags}{prefix}  \
         env \"LD_LIBRARY_PATH=$SHARDPLAN_TORCH_LIB${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\" \\\n  \
         \"$SHARDPLAN_RANK\" --check --plan \"$RUN_DIR/.plan.json\" --run-dir \"$RUN_DIR\" \\\n  \
         || {{ leave_folder; exit 1; }}\nfi\n"
    )
}

/// Where the run folder is, of an earlier job's run where that can be asked for.
fn found(resumes: bool) -> String {
    let looks = "if [ \"${SLURM_RESTART_COUNT:-0}\"";
    if resumes { FOUND.replacen(looks, &format!("{RESUMED}{looks}"), 1) } else { FOUND.to_owned() }
}

/// The run by its launcher, which starts each rank by srun and goes on in the allocation when some are lost.
fn launcher(writer: &mut Writer<'_>) -> String {
    let mut out = String::from(
        "\n# The run folder: plan, who and when, one log per rank, and checkpoints. The hub shows it, now or later\n",
    );
    out.push_str(&writer.folders_of_jobs());
    out.push_str(&found(true));
    out.push_str(&BEGINS_WITH.replace("NAMED", NAMED));
    out.push_str(SAVED_STEPS);
    out.push_str(&footer::before(writer));
    let asked = writer.options.going_on;
    let plan = plan_text(writer);
    out.push_str(
        "\n# The launcher starts each rank by srun, and goes on in this allocation when some are lost. It stands beside shardplan-rank\n\
         case \"$SHARDPLAN_RANK\" in\n  */*) SHARDPLAN=\"${SHARDPLAN_RANK%/*}/shardplan\" ;;\n  *) SHARDPLAN=./shardplan ;;\nesac\n\
         if [ ! -x \"$SHARDPLAN\" ]; then\n  \
         echo \"shardplan is not at $SHARDPLAN: copy it beside shardplan-rank\" >&2\n  exit 1\nfi\n",
    );
    out.push_str(&format!(
        "\"$SHARDPLAN\" run - \"${{BEGINS_WITH[@]}}\" --runs=\"$SHARED_DIR/runs\" --slurm \\\n  \
         --on-failure {} --max-recoveries {} \\\n  \
         --rank-binary=\"$SHARDPLAN_RANK\" --torch-lib=\"$SHARDPLAN_TORCH_LIB\" <<'{END_OF_PLAN}' &\n{plan}\n{END_OF_PLAN}\n",
        asked.on_failure.name(),
        asked.max_recoveries
    ));
    out.push_str(WAITS);
    out.push_str(&footer::footer(writer, false, true));
    out
}

/// Writes the plan, whole or not at all and once `check` lets it, as a quoted here-document: the shell reads nothing in it.
fn plan_document(writer: &mut Writer<'_>, check: &str) -> String {
    let plan = plan_text(writer);
    format!(
        "cat > \"$RUN_DIR/.plan.json\" <<'{END_OF_PLAN}'\n{plan}\n{END_OF_PLAN}\n{check}\
         mv \"$RUN_DIR/.plan.json\" \"$RUN_DIR/plan.json\"\n"
    )
}

/// The plan, with what the script says of saving.
fn plan_text(writer: &mut Writer<'_>) -> String {
    let mut file = writer.plan.executed();
    // What the script says of it, where the plan leaves it open.
    let said = writer
        .plan
        .run
        .checkpoint
        .is_some_and(|said| said.every_steps.or(said.every_seconds.map(|_| 1)).is_some());
    if let Some(saving) = writer.saving().filter(|_| writer.site.save_every.is_some() || !said) {
        file.run.checkpoint.every_steps = Some(saving.every);
    }
    let plan = indented(&file).unwrap_or_default();
    if plan.lines().any(|line| line == END_OF_PLAN) {
        writer.note(Finding::error(
            "",
            END_OF_PLAN,
            "the plan holds a line that ends it; this is a fault of Shardplan",
        ));
        return String::new();
    }
    plan
}

/// Writes `run.json`. What only the job knows is put in by printf, as text between quotes.
fn run_json(writer: &Writer<'_>) -> String {
    let json = |value: &str| serde_json::to_string(value).unwrap_or_default();
    // JSON escapes control characters, so what is left can always be quoted.
    let name = shell::quoted(&json(&writer.plan.name)).unwrap_or_else(|| "'\"\"'".to_owned());
    let versions = format!("{{\"shardplan\":{}}}", json(env!("CARGO_PKG_VERSION")));
    format!(
        "PLAN_NAME={name}\n\
         printf '{{\"version\":{VERSION},\"id\":\"%s\",\"name\":%s,\"user\":\"%s\",\"host\":\"%s\",\"started_unix_ms\":%s,\
         \"command\":[\"sbatch\"],\"versions\":{versions},\"launcher\":null,\"slurm_job\":\"%s\",\"slurm_cluster\":\"%s\",\"world_size\":{},\"attempts\":%s}}\\n' \\\n  \
         \"$RUN_ID\" \"$PLAN_NAME\" \"$(id -un)\" \"$(hostname)\" \"$STARTED\" \"$SLURM_JOB_ID\" \\\n  \
         \"${{SLURM_CLUSTER_NAME:-}}\" \"$ATTEMPT\" > \"$RUN_DIR/.run.json\"\n\
         mv \"$RUN_DIR/.run.json\" \"$RUN_DIR/run.json\"\numask \"$MASK\"\n",
        writer.plan.world_size()
    )
}
