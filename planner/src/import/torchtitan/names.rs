//! What torchtitan calls the values of a plan: one table for reading a configuration and for writing options.

use crate::units::Dtype;
use crate::wire::Schedule;

/// A norm that no gradient reaches: torchtitan scales by whatever norm it is given.
pub const NO_CLIPPING: &str = "1e30";

/// `parallelism.pipeline_parallel_schedule`, which torch reads in any case.
const SCHEDULES: [(Schedule, &str); 4] = [
    (Schedule::OneFOneB, "1F1B"),
    (Schedule::Interleaved, "Interleaved1F1B"),
    (Schedule::Gpipe, "GPipe"),
    (Schedule::Zbv, "ZBVZeroBubble"),
];

/// `training.dtype` and `training.mixed_precision_param`.
const DTYPES: [(Dtype, &str); 2] = [(Dtype::Bf16, "bfloat16"), (Dtype::Fp32, "float32")];

/// The name of a schedule; none where torch has no such.
pub fn schedule(schedule: Schedule) -> Option<&'static str> {
    SCHEDULES.iter().find(|(known, _)| *known == schedule).map(|(_, name)| *name)
}

/// The schedule of a name.
pub fn schedule_of(name: &str) -> Option<Schedule> {
    SCHEDULES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(schedule, _)| *schedule)
}

/// The name of a type; none where there is no such setting.
pub fn dtype(dtype: Dtype) -> Option<&'static str> {
    DTYPES.iter().find(|(known, _)| *known == dtype).map(|(_, name)| *name)
}

/// The type of a name.
pub fn dtype_of(name: &str) -> Option<Dtype> {
    DTYPES.iter().find(|(_, known)| *known == name).map(|(dtype, _)| *dtype)
}
