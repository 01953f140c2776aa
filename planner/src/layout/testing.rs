//! Layouts for tests, without a plan around them.

use super::{Layout, parse_order};
use crate::settings::{CpKind, Schedule};

/// A layout of the axes that decide groups, in this order.
pub(crate) fn layout(tp: u64, cp: u64, pp: u64, ep: u64, etp: u64, world: u64, order: &str) -> Layout {
    Layout {
        tp,
        sp: tp > 1,
        cp,
        cp_kind: CpKind::P2p,
        pp,
        vpp: 1,
        schedule: Schedule::OneFOneB,
        pipeline: None,
        first_stage_layers: None,
        last_stage_layers: None,
        account_for_embedding: false,
        account_for_loss: false,
        splitter: None,
        microbatch_group_size: pp,
        ep,
        etp,
        dp: world / (tp * cp * pp),
        edp: world / (etp * ep * pp),
        order: parse_order(order).unwrap(),
        vocab_divisible_by: 128,
        dp_replicate: 1,
        fsdp: crate::layout::FsdpSettings::default(),
        tp_plan: crate::layout::TpPlanSource::Own,
    }
}

/// A layout of a dense model in the usual order.
pub(crate) fn layout_of(tp: u64, cp: u64, pp: u64, world: u64) -> Layout {
    layout(tp, cp, pp, 1, tp, world, "tp-cp-ep-dp-pp")
}
