//! A real Slurm with a login node and two compute nodes, and what runs on it. One stream of `cargo xtask test`: it waits most of its
//! time, because Slurm looks at its jobs now and then.

mod again;
mod cluster;
mod goes_on;
mod measured;
mod node_lists;
mod payloads;
mod recover;
mod resumes;
mod site;
mod stand_ins;
mod test_only;
mod time_limit;
mod worker;
mod wrap;
