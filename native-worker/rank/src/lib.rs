//! The executor of Shardplan: one process per rank, on libtorch.
//!
//! What a rank holds, which groups it is in and how its parameters are cut comes from `planner`; nothing of that is
//! computed here a second time.

pub mod arguments;
pub mod collectives;
pub mod dump;
pub mod environment;
pub mod log;
pub mod model;
pub mod run;
pub mod state;
pub mod stop;
pub mod sys;
pub mod tape;
pub mod train;
