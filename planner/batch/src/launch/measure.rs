//! What a job of another framework measures, beside what its plan predicts: the process that prints losses runs under
//! `shardplan wrap`.
//!
//! The plan travels in the script. Nothing here is in the job's way: without the program, without a folder to write to
//! or with another release of the program the job runs as it would.

use super::options::Mode;
use super::step::Step;
use super::writer::Writer;
use crate::shell;
use planner::finding::Finding;

/// The line that ends a plan in a script. JSON has no such line: strings can't hold line breaks.
pub const END_OF_PLAN: &str = "SHARDPLAN_PLAN_JSON";

/// Whether a script has a measurement.
pub(super) fn is_on(writer: &Writer<'_>) -> bool {
    is_wanted(writer) && !has_secret(writer)
}

fn is_wanted(writer: &Writer<'_>) -> bool {
    let options = writer.options;
    // What takes the plan measures itself.
    let trains = options.trains() && !options.body.facts().takes_the_plan;
    trains && options.mode != Mode::Salloc && writer.site.measure != Some(false)
}

/// Whether a text of the plan looks like a secret, which no script may hold.
fn has_secret(writer: &Writer<'_>) -> bool {
    let mut left = vec![serde_json::to_value(&writer.plan.file).unwrap_or_default()];
    while let Some(value) = left.pop() {
        match value {
            serde_json::Value::String(text) if shell::gives_secret(&text) => return true,
            serde_json::Value::Array(items) => left.extend(items),
            serde_json::Value::Object(fields) => {
                if fields.keys().any(|name| shell::gives_secret(name)) {
                    return true;
                }
                left.extend(fields.into_iter().map(|(_, value)| value));
            }
            _ => {}
        }
    }
    false
}

/// The plan as a file beside the records, and where the program is.
pub(super) fn definitions(writer: &mut Writer<'_>) -> String {
    if !is_wanted(writer) {
        return String::new();
    }
    if has_secret(writer) {
        writer.note(
            Finding::warning(
                "site.measure",
                true,
                "the plan holds what looks like a secret, so it does not enter the script and nothing is measured beside it",
            )
            .rule("scripts are shared, logged and kept by Slurm"),
        );
        return String::new();
    }
    let plan = ascii(&serde_json::to_string(&writer.plan.file).unwrap_or_default());
    format!(
        r#"
# Measured beside predicted: where shardplan is at hand (on the PATH, or SHARED_DIR/bin), the process that prints losses
# runs under `shardplan wrap`, which changes nothing of it. SHARDPLAN_MEASURE=no, exported before sbatch, switches it off
export SHARDPLAN_RUNS="$SHARED_DIR/measured" SHARDPLAN_PLAN=""
SHARDPLAN_BINARY="$(command -v shardplan || echo "$SHARED_DIR/bin/shardplan")"
export SHARDPLAN_BINARY
MEASURED_PLAN="$SHARDPLAN_RUNS/plans/$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}.json"
if [ "${{SHARDPLAN_MEASURE:-yes}}" = yes ] && mkdir -p "$SHARDPLAN_RUNS/plans" && cat > "$MEASURED_PLAN" <<'{END_OF_PLAN}'
{plan}
{END_OF_PLAN}
then
  SHARDPLAN_PLAN="$MEASURED_PLAN"
fi
"#
    )
}

/// What a task does first: one of them goes on under the program, from the beginning.
pub(super) fn watch(writer: &Writer<'_>, step: &mut Step) {
    if !is_on(writer) {
        return;
    }
    // Megatron prints losses on its last rank (print_rank_last), the others on their first.
    let last = writer.options.body.facts().last_rank_prints;
    let number = if last { writer.tasks().saturating_sub(1) } else { 0 };
    for line in [
        &format!(
            "if [ \"$SLURM_PROCID\" = {number} ] && [ -z \"${{SHARDPLAN_WATCHED:-}}\" ] && [ -r \"${{SHARDPLAN_PLAN:-}}\" ] \\"
        ),
        // Another release may know other options, and an image may lack what the program needs.
        "  && timeout 60 \"$SHARDPLAN_BINARY\" wrap --alone --report --plan \"$SHARDPLAN_PLAN\" --dry-run -- true > /dev/null 2>&1; then",
        "  export SHARDPLAN_WATCHED=yes",
        "  exec \"$SHARDPLAN_BINARY\" wrap --alone --report --plan \"$SHARDPLAN_PLAN\" --runs \"$SHARDPLAN_RUNS\" \\",
        "    -- bash -c \"$BASH_EXECUTION_STRING\" bash \"$@\"",
        "fi",
    ] {
        step.line(line);
    }
}

/// The same JSON in plain letters: a text in a script must not turn its direction.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() && character != '\u{7f}' {
            out.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}
