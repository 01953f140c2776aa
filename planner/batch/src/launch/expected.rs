//! What is predicted of the run that a script starts, held against what the job is given.

use super::saving::duration;
use super::writer::Writer;
use planner::finding::Finding;
use planner::memory;
use planner::model::Balance;
use planner::units::Bytes;
use planner::wire::Verdict;

/// Notes what a person should know before the job waits in a queue: that it would run out of memory or of time, and that nothing
/// balances its routers.
pub(super) fn check(writer: &mut Writer<'_>) {
    if !writer.options.trains() {
        return;
    }
    let notes = [too_large(writer), too_long(writer), unbalanced(writer)];
    notes.into_iter().flatten().for_each(|note| writer.note(note));
}

fn too_large(writer: &Writer<'_>) -> Option<Finding> {
    let plan = writer.runs_as();
    let memory = memory::answer(plan);
    let capacity = memory.capacity_bytes.filter(|_| memory.verdict == Verdict::No)?;
    let message = format!(
        "the run would take {:.2} GiB of a GPU that has {:.2}: it ends in an out-of-memory error; `shardplan estimate --advice` says what would fit",
        Bytes(memory.peak_bytes).gib(),
        Bytes(capacity).gib()
    );
    Some(Finding::warning("cluster.gpu", plan.cluster.gpu.id, message).rule("a job fits its GPUs"))
}

fn too_long(writer: &Writer<'_>) -> Option<Finding> {
    let (steps, limit) = (writer.plan.run.steps, writer.limit()?);
    let all = writer.step_seconds()? * steps as f64;
    let message = format!(
        "{steps} steps take about {} as predicted, and the job ends after {}: give `time` of the site, or go on in another job",
        duration(all),
        writer.time_limit()
    );
    (all > limit as f64).then(|| {
        Finding::info("site.time", writer.time_limit(), message).rule("a job has time for its steps")
    })
}

/// Frameworks' own defaults may balance; the command says what the plan says.
fn unbalanced(writer: &Writer<'_>) -> Option<Finding> {
    let moe = writer.plan.model.moe.as_ref().filter(|_| writer.options.body.facts().balances_as_said)?;
    let alone = moe.routing.balance == Balance::None && moe.router_bias_buffer == 0;
    let message = "nothing keeps the experts busy alike, as a config.json does not say how its model was trained: for a training \
                   from the start give model.moe.routing.balance (aux_loss, seq_aux_loss or global_aux_loss) and aux_coefficient"
        .to_owned();
    alone.then(|| {
        Finding::info("model.moe.routing.balance", "none", message)
            .rule("Megatron-LM: --moe-router-load-balancing-type none")
    })
}
