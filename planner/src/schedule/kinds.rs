//! One descriptor a schedule: what it goes with, how its stages lie, how long they wait, and the functions that list and count
//! its actions. A new schedule is a name in plan files and a row here.

use super::lists::{each_of_zbv, gpipe, interleaved, interleaved_warmup, one_f_one_b, zb_h1, zbv};
use super::live::Live;
use super::{Action, Pipeline};
use crate::settings::Schedule;

/// How many model chunks a stage has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunks {
    /// One.
    One,
    /// More than one.
    Several,
    /// Two.
    Two,
}

impl Chunks {
    /// Whether it can be so many.
    pub const fn allow(self, chunks: u64) -> bool {
        match self {
            Chunks::One => chunks == 1,
            Chunks::Several => chunks > 1,
            Chunks::Two => chunks == 2,
        }
    }
}

/// A schedule.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleKind {
    /// Its name in plan files.
    pub schedule: Schedule,
    /// Chunks of a stage.
    pub chunks: Chunks,
    /// Whether every other chunk runs back through the stages.
    pub in_v: bool,
    /// Whether gradients of weights are made apart from those of inputs, later.
    pub splits_backward: bool,
    /// Whether a stage waits for the others' chunks only, and not for all of what they hold.
    pub waits_for_chunks: bool,
    /// How often gradients of weights fill what a stage would wait.
    pub filled: f64,
    /// Whether Megatron-Core has it.
    pub in_megatron: bool,
    /// The list of a stage, of several stages or chunks.
    pub(super) list: fn(&Pipeline, u64) -> Vec<Action>,
    /// What `peak_live` counts in it.
    pub(super) live: fn(&Pipeline, u64) -> u64,
    /// The most micro batches of which the last chunk is live at once.
    pub(super) heads: fn(&Pipeline) -> u64,
    /// Micro batches that show all that a longer step does.
    pub(super) telling: fn(&Pipeline) -> u64,
    /// Micro batches that go through a chunk before the next chunk's first.
    pub(super) round: fn(&Pipeline) -> u64,
    /// Micro batches after which its steady state of one forward and one backward in turn begins anew; none where it has another.
    pub rhythm: Option<fn(&Pipeline) -> u64>,
}

fn one(pipeline: &Pipeline) -> u64 {
    pipeline.microbatches.min(1)
}

fn four_rounds(pipeline: &Pipeline) -> u64 {
    pipeline.microbatches.min(4 * pipeline.stages)
}

fn all(pipeline: &Pipeline) -> u64 {
    pipeline.microbatches
}

fn all_of_several(pipeline: &Pipeline, otherwise: u64) -> u64 {
    if pipeline.stages > 1 { pipeline.microbatches } else { otherwise }
}

const ONE_F_ONE_B: ScheduleKind = ScheduleKind {
    schedule: Schedule::OneFOneB,
    chunks: Chunks::One,
    in_v: false,
    splits_backward: false,
    waits_for_chunks: false,
    filled: 0.0,
    in_megatron: true,
    list: one_f_one_b,
    live: |pipeline, stage| pipeline.microbatches.min(pipeline.stages.saturating_sub(stage)),
    heads: one,
    telling: four_rounds,
    round: all,
    rhythm: Some(|_| 1),
};

const INTERLEAVED: ScheduleKind = ScheduleKind {
    schedule: Schedule::Interleaved,
    chunks: Chunks::Several,
    in_v: false,
    splits_backward: false,
    waits_for_chunks: true,
    filled: 0.0,
    in_megatron: true,
    list: interleaved,
    live: |pipeline, stage| {
        let total = pipeline.microbatches.saturating_mul(pipeline.chunks);
        total.min(interleaved_warmup(pipeline, stage) + 1)
    },
    // In the last group, when it is smaller than the others, forwards run ahead.
    heads: |pipeline| {
        let Pipeline { chunks, microbatches, group_size, .. } = *pipeline;
        if microbatches <= group_size {
            return one(pipeline);
        }
        let rest = microbatches.checked_rem(group_size).unwrap_or(0);
        rest.min(chunks.saturating_sub(1).saturating_mul(group_size - rest) + 1).max(1)
    },
    telling: |pipeline| {
        let group = pipeline.group_size.max(1);
        let rounds = 4 + (2 * pipeline.stages).div_ceil(group);
        let rest = pipeline.microbatches % group;
        pipeline.microbatches.min(rounds.saturating_mul(group).saturating_add(rest))
    },
    // Forwards go through a group of micro batches chunk by chunk.
    round: |pipeline| pipeline.group_size,
    rhythm: Some(|pipeline| pipeline.group_size.max(1)),
};

const GPIPE: ScheduleKind = ScheduleKind {
    schedule: Schedule::Gpipe,
    chunks: Chunks::One,
    in_v: false,
    splits_backward: false,
    waits_for_chunks: false,
    filled: 0.0,
    in_megatron: false,
    list: gpipe,
    live: |pipeline, _| pipeline.microbatches,
    heads: |pipeline| all_of_several(pipeline, one(pipeline)),
    // It has no steady state.
    telling: |pipeline| all_of_several(pipeline, four_rounds(pipeline)),
    round: all,
    rhythm: None,
};

const ZB_H1: ScheduleKind = ScheduleKind {
    schedule: Schedule::ZbH1,
    chunks: Chunks::One,
    in_v: false,
    splits_backward: true,
    waits_for_chunks: false,
    filled: 2.0,
    in_megatron: false,
    list: zb_h1,
    live: |pipeline, _| pipeline.microbatches.min(pipeline.stages),
    // Its last stage puts gradients of weights off.
    heads: |pipeline| pipeline.microbatches.min(pipeline.stages),
    telling: four_rounds,
    round: all,
    rhythm: None,
};

const ZBV: ScheduleKind = ScheduleKind {
    schedule: Schedule::Zbv,
    chunks: Chunks::Two,
    in_v: true,
    splits_backward: true,
    waits_for_chunks: false,
    // From both sides of the V.
    filled: 3.0,
    in_megatron: false,
    list: zbv,
    // Of fewer micro batches than the V is made for, the list is short and irregular.
    live: |pipeline, stage| match pipeline.microbatches + 1 < 2 * pipeline.stages {
        true => {
            let mut live = Live::default();
            each_of_zbv(pipeline, stage, &mut |action| live.see(&action));
            live.most
        }
        false => 2 * pipeline.stages,
    },
    heads: one,
    telling: four_rounds,
    round: |_| 1,
    rhythm: None,
};

impl ScheduleKind {
    /// Of so many seconds (or stages) of others before it, what a stage waits for.
    #[inline]
    pub(crate) fn waits_for(&self, others: f64, chunks: f64) -> f64 {
        if self.waits_for_chunks { others / chunks } else { others }
    }
}

impl Schedule {
    /// What it is.
    #[inline]
    pub const fn kind(self) -> &'static ScheduleKind {
        match self {
            Schedule::OneFOneB => &ONE_F_ONE_B,
            Schedule::Interleaved => &INTERLEAVED,
            Schedule::Gpipe => &GPIPE,
            Schedule::ZbH1 => &ZB_H1,
            Schedule::Zbv => &ZBV,
        }
    }

    /// The usual one for stages of so many chunks.
    pub const fn usual(chunks: u64) -> Schedule {
        if chunks > 1 { Schedule::Interleaved } else { Schedule::OneFOneB }
    }
}
