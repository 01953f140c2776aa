//! `shardplan shards PLAN --rank N`.

use std::path::PathBuf;

use planner::reduced::SlotRows;
use planner::shard::RankShards;
use planner::shard::fsdp::{FsdpReport, UnitKind};
use planner::units::counted;
use serde::Serialize;

use super::numbers::whole;
use super::{estimate::resolved, source};
use crate::report::{self, Exit, Failure, text};

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    #[serde(flatten)]
    shards: &'a RankShards,
}

/// List the slices of parameters that one rank holds
#[derive(Debug, clap::Args)]
pub struct Shards {
    /// Plan file, or - for standard input
    plan: PathBuf,
    /// The rank, from 0
    #[arg(long, value_parser = whole(0..=u64::MAX))]
    rank: u64,
}

impl Shards {
    /// Prints the shards of a rank.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let plan = resolved(&source::read(&self.plan)?)?;
        let world_size = plan.world_size();
        if self.rank >= world_size {
            return Err(Failure::usage_of(
                "--rank",
                self.rank,
                format!(
                    "--rank {}: this plan has {}, 0 to {}",
                    self.rank,
                    counted(world_size, "rank"),
                    world_size.saturating_sub(1)
                ),
            ));
        }
        let shards = plan.rank_shards(self.rank);
        if json {
            report::print_json(&Report { version: planner::wire::VERSION, shards: &shards })?;
        } else {
            report::print(&table(&shards))?;
        }
        Ok(Exit::Yes)
    }
}

fn table(shards: &RankShards) -> String {
    if shards.params.is_empty() && shards.buffers.is_empty() {
        return format!(
            "rank {} stops once groups are made: its replica goes on with fewer GPUs\n",
            shards.rank
        );
    }
    let mut rows =
        vec![["parameter", "whole", "here", "from", "elements", "buffer"].map(str::to_owned).to_vec()];
    for param in &shards.params {
        rows.push(vec![
            param.name.clone(),
            format!("{:?}", param.shape),
            format!("{:?}", param.local_shape),
            format!("{:?}", param.offset),
            text::thousands(param.elements()),
            format!("{}+{}", param.buffer, param.buffer_offset),
        ]);
    }
    let mut out = text::table(&rows);
    for (index, buffer) in shards.buffers.iter().enumerate() {
        out.push_str(&format!(
            "buffer {index}{}: {} elements, weights {}, gradients {}, optimizer {} GiB{}\n",
            if buffer.expert { " (experts)" } else { "" },
            text::thousands(buffer.elements),
            text::gib(buffer.weights_bytes()),
            text::gib(buffer.gradients_bytes()),
            text::gib(buffer.optimizer_bytes()),
            match buffer.host_bytes() {
                0 => String::new(),
                bytes => format!("; on the host {}", text::gib(bytes)),
            },
        ));
    }
    if let Some(fsdp) = &shards.fsdp {
        out.push_str(&units(fsdp));
    }
    out.push_str(&exchanges(shards));
    out
}

/// Rows of gradients that go between the ranks of a healthy replica while other replicas have fewer ranks.
fn exchanges(shards: &RankShards) -> String {
    let mut rows = vec![
        ["gradient of", "pieces", "rows held", "sends to slot", "receives from slot"].map(str::to_owned),
    ];
    for param in &shards.params {
        let Some(slice) = &param.resharded else { continue };
        let held: Vec<String> = slice.rows.iter().map(|[first, end]| format!("{first}..{end}")).collect();
        let with = |others: &[SlotRows]| {
            let each: Vec<String> =
                others.iter().map(|other| format!("{}: {}", other.slot, other.rows)).collect();
            each.join(", ")
        };
        let pieces = format!("{} of {} rows", slice.shards, slice.shard_rows);
        rows.push([param.name.clone(), pieces, held.join(" "), with(&slice.sends), with(&slice.receives)]);
    }
    match rows.len() {
        1 => String::new(),
        _ => format!("\n{}", text::table(&rows.into_iter().map(|row| row.to_vec()).collect::<Vec<_>>())),
    }
}

/// What an FSDP runtime gathers together, and in which order it is applied.
fn units(fsdp: &FsdpReport) -> String {
    let mut out = format!("applied in order: {}\n", fsdp.application_order.join(", "));
    for unit in &fsdp.units {
        let kind = match unit.kind {
            UnitKind::Layer => "layer",
            UnitKind::Experts => "experts of layer",
            UnitKind::Mtp => "prediction module",
            UnitKind::Embedding => "embedding",
            UnitKind::Last => "norm and output layer",
            UnitKind::Root => "root",
        };
        let numbers = match unit.numbers {
            Some([first, last]) if first != last => format!(" {first} to {last} ({})", unit.count),
            Some([first, _]) => format!(" {first}"),
            None => String::new(),
        };
        out.push_str(&format!(
            "unit {kind}{numbers}: gathers {} elements, {} after its forward\n",
            text::thousands(unit.gathered_elements),
            if unit.reshard_after_forward { "given back" } else { "kept" },
        ));
    }
    out
}
