//! How many elements the executor has in hand at once, so that copies of them stay small beside the state. Memory counts the copies.

/// Elements that are updated at a time.
pub const UPDATED_AT_ONCE: u64 = 1 << 22;

/// Elements of a gradient whose squares are summed at once on a CPU, which widens them to fp64 first.
pub const SQUARED_AT_ONCE: u64 = 1 << 18;
