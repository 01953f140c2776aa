//! The built `shardplan-rank`, run as processes on this machine.

mod failures;
mod harness;
mod life;
mod memory;
mod parity;
mod reference;
