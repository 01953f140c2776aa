//! `shardplan-rank`, Shardplan's own executor. It takes the plan itself: there are no options, and no log but its records.
//!
//! What it does not execute, `layout::executor_limits` finds, by taking a plan apart field by field.

mod body;

pub(crate) use body::script;
