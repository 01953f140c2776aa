//! `shardplan` as its users meet it: the program is run, its pages are asked for, and ranks are stood in for by a
//! shell script. Nothing here needs libtorch.

mod cli;
mod diagnose;
mod export;
mod hub;
mod hub_losses;
mod hub_runs;
mod launch;
mod launch_batch;
mod launch_header;
mod lint;
mod plan;
mod recover;
mod run;
mod script;
mod support;
mod tokenize;
mod wrap;
