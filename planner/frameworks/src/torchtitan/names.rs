//! Words of torchtitan that more than one row has.

use crate::Kind::{self, Words};

/// A norm that no gradient reaches: torchtitan scales by whatever norm it is given.
pub(super) const NO_CLIPPING: &str = "1e30";

/// `parallelism.pipeline_parallel_schedule`, which torch reads in any case.
pub(super) const SCHEDULES: Kind = Words {
    known: &[
        ("1F1B", "1f1b"),
        ("Interleaved1F1B", "interleaved"),
        ("GPipe", "gpipe"),
        ("ZBVZeroBubble", "zbv"),
    ],
    lacks: "torch has no such schedule; the configuration's holds",
};
