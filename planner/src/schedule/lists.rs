//! The ordered action list of a stage.

use super::{Action, ActionKind, Pipeline};

/// What `stage` computes in a step, in order. Two actions for each micro batch and chunk, three where backward is split.
///
/// One stage alone has no bubble to fill: it takes each micro batch forward and backward, whatever the schedule.
pub fn actions(pipeline: &Pipeline, stage: u64) -> Vec<Action> {
    if pipeline.stages <= 1 && pipeline.chunks <= 1 {
        return in_turn(pipeline.microbatches, 0);
    }
    (pipeline.schedule.kind().list)(pipeline, stage)
}

/// Forwards alone: as many micro batches as there are stages go through one chunk after the other, so that no stage waits for
/// what comes around.
pub(super) fn forwards(pipeline: &Pipeline) -> Vec<Action> {
    let mut list = Vec::new();
    let mut first = 0;
    while first < pipeline.microbatches {
        let end = pipeline.microbatches.min(first + pipeline.stages.max(1));
        for chunk in 0..pipeline.chunks.max(1) {
            list.extend((first..end).map(|microbatch| action(ActionKind::Forward, (microbatch, chunk))));
        }
        first = end;
    }
    list
}

/// Stages behind a stage.
fn behind(pipeline: &Pipeline, stage: u64) -> u64 {
    pipeline.stages.saturating_sub(stage + 1)
}

/// Micro batches of one chunk in turn, after so many forwards.
fn in_turn(microbatches: u64, warmup: u64) -> Vec<Action> {
    one_forward_one_backward(microbatches, warmup, |number| (number, 0), |number| (number, 0))
}

/// 1F1B.
pub(super) fn one_f_one_b(pipeline: &Pipeline, stage: u64) -> Vec<Action> {
    in_turn(pipeline.microbatches, behind(pipeline, stage))
}

/// All forwards, then all backwards.
pub(super) fn gpipe(pipeline: &Pipeline, _: u64) -> Vec<Action> {
    in_turn(pipeline.microbatches, pipeline.microbatches)
}

fn action(kind: ActionKind, (microbatch, chunk): (u64, u64)) -> Action {
    Action { kind, microbatch, chunk }
}

/// `warmup` forwards, then a forward and a backward in turn, then the backwards that are left. The functions give micro
/// batch and chunk of the forward and of the backward with a number.
fn one_forward_one_backward(
    total: u64,
    warmup: u64,
    forward: impl Fn(u64) -> (u64, u64),
    backward: impl Fn(u64) -> (u64, u64),
) -> Vec<Action> {
    let warmup = warmup.min(total);
    let mut list = Vec::new();
    list.extend((0..warmup).map(|number| action(ActionKind::Forward, forward(number))));
    for number in 0..total {
        if warmup + number < total {
            list.push(action(ActionKind::Forward, forward(warmup + number)));
        }
        list.push(action(ActionKind::Backward, backward(number)));
    }
    list
}

/// Forwards before the first backward of the interleaved schedule.
pub(super) fn interleaved_warmup(pipeline: &Pipeline, stage: u64) -> u64 {
    let Pipeline { stages, chunks, microbatches, group_size, .. } = *pipeline;
    let ahead = 2 * stages.saturating_sub(stage + 1) + chunks.saturating_sub(1).saturating_mul(group_size);
    ahead.min(microbatches.saturating_mul(chunks))
}

/// Micro batches go through the chunks in groups: a whole group through chunk 0, then through chunk 1. The last group is
/// what is left over. Backward goes through the chunks in reverse.
pub(super) fn interleaved(pipeline: &Pipeline, stage: u64) -> Vec<Action> {
    let Pipeline { chunks, microbatches, group_size, .. } = *pipeline;
    let group = group_size.max(1);
    let place = |number: u64| {
        let first = number / (group * chunks) * group;
        let here = group.min(microbatches - first);
        let within = number - first * chunks;
        (first + within % here, within / here)
    };
    let back = |number: u64| {
        let (microbatch, chunk) = place(number);
        (microbatch, chunks - 1 - chunk)
    };
    one_forward_one_backward(microbatches * chunks, interleaved_warmup(pipeline, stage), place, back)
}

/// 1F1B with backward split; weight gradients lag behind input gradients by as many micro batches as there are stages
/// before this one, so that they fill its bubble and no stage holds more micro batches than the first.
pub(super) fn zb_h1(pipeline: &Pipeline, stage: u64) -> Vec<Action> {
    let whole = in_turn(pipeline.microbatches, behind(pipeline, stage));
    let mut list = Vec::with_capacity(whole.len() / 2 * 3);
    for next in whole {
        if next.kind == ActionKind::Forward {
            list.push(next);
            continue;
        }
        list.push(Action { kind: ActionKind::BackwardInput, ..next });
        if let Some(due) = next.microbatch.checked_sub(stage) {
            list.push(Action { kind: ActionKind::BackwardWeight, microbatch: due, ..next });
        }
    }
    let due = pipeline.microbatches.saturating_sub(stage)..pipeline.microbatches;
    list.extend(due.map(|microbatch| action(ActionKind::BackwardWeight, (microbatch, 0))));
    list
}

/// A list under construction: the next micro batch of each kind of action for each of two chunks.
struct Counted<'a> {
    /// What takes the actions, one after the other.
    put: &'a mut dyn FnMut(Action),
    microbatches: u64,
    next: [[u64; 2]; 3],
}

const KINDS: [ActionKind; 3] = [ActionKind::Forward, ActionKind::BackwardInput, ActionKind::BackwardWeight];
const F: usize = 0;
const B: usize = 1;
const W: usize = 2;

impl Counted<'_> {
    /// The next action of a kind on a chunk. Micro batches that the step does not have are counted but not done.
    fn push(&mut self, kind: usize, chunk: usize) {
        let microbatch = self.next[kind][chunk];
        self.next[kind][chunk] += 1;
        if microbatch < self.microbatches {
            (self.put)(Action { kind: KINDS[kind], microbatch, chunk: chunk as u64 });
        }
    }

    fn both_backwards(&mut self, chunk: usize) {
        self.push(B, chunk);
        self.push(W, chunk);
    }
}

/// Zero bubble with two chunks in a V, made for at least `2 stages - 1` micro batches; of fewer, the others are left out.
pub(super) fn zbv(pipeline: &Pipeline, stage: u64) -> Vec<Action> {
    let mut list = Vec::new();
    each_of_zbv(pipeline, stage, &mut |action| list.push(action));
    list
}

/// Gives the actions of `zbv` one after the other.
pub(super) fn each_of_zbv(pipeline: &Pipeline, stage: u64, put: &mut dyn FnMut(Action)) {
    let Pipeline { stages, microbatches, .. } = *pipeline;
    let planned = microbatches.max(2 * stages - 1);
    let behind = stages.saturating_sub(stage);
    let mut made = Counted { put, microbatches, next: [[0; 2]; 3] };
    // Warm-up: chunk 0 until the first micro batch comes back, both in turn, then chunk 1 alone.
    for _ in 0..(2 * behind).saturating_sub(1) {
        made.push(F, 0);
    }
    for _ in 0..stage {
        made.push(F, 1);
        made.push(F, 0);
    }
    for _ in 0..behind {
        made.push(F, 1);
        made.both_backwards(1);
    }
    // Steady: each chunk in turn forward and backward.
    while made.next[F][1] < made.next[F][0] || made.next[F][0] < planned {
        if made.next[F][0] < planned {
            made.push(F, 0);
        }
        made.both_backwards(0);
        made.push(F, 1);
        made.both_backwards(1);
    }
    // Cool-down: input gradients first, for the stages that wait for them; weight gradients fill what is left.
    for _ in 0..stage {
        made.push(B, 0);
        made.push(B, 1);
    }
    for _ in 0..behind {
        made.both_backwards(0);
    }
    for chunk in [1, 0] {
        while made.next[W][chunk] < made.next[B][chunk] {
            made.push(W, chunk);
        }
    }
}
