//! `shardplan groups PLAN [--rank N]`.

use std::collections::HashMap;
use std::path::PathBuf;

use planner::layout::{Group, Link, link};
use planner::units::counted;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::numbers::whole;
use super::{estimate::resolved, source};
use crate::report::{self, Exit, Failure, text};

/// A group, and the slowest link between its ranks.
#[derive(Serialize)]
struct Crossing<'a> {
    #[serde(flatten)]
    group: &'a Group,
    link: Link,
    /// With packed numbers, those of the whole world.
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<&'a [u64]>,
}

/// List the process groups, in the order in which every rank creates them
#[derive(Debug, clap::Args)]
pub struct Groups {
    /// Plan file, or - for standard input
    plan: PathBuf,
    /// Only the groups that this rank is in
    #[arg(long, value_parser = whole(0..=u64::MAX))]
    rank: Option<u64>,
    /// Ranks by the numbers that they have in a launch without the GPUs that stop, in which reduced replicas come first
    #[arg(long)]
    packed: bool,
}

impl Groups {
    /// Prints the groups.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let plan = resolved(&source::read(&self.plan)?)?;
        let world_size = plan.world_size();
        if let Some(rank) = self.rank.filter(|&rank| rank >= world_size) {
            return Err(Failure::usage_of(
                "--rank",
                rank,
                format!(
                    "--rank {rank}: this plan has {}, 0 to {}",
                    counted(world_size, "rank"),
                    world_size.saturating_sub(1)
                ),
            ));
        }
        let packed = if self.packed { plan.packed_ranks() } else { Vec::new() };
        let numbers: HashMap<u64, u64> = packed.iter().copied().zip(0..).collect();
        let is_shown = |group: &Group| self.rank.is_none_or(|rank| group.ranks.contains(&rank));
        let shown = || plan.each_group().filter(is_shown);
        // Where a rank stands is told by its number in the whole world.
        let crossed = |whole: &Group| link(&plan.cluster, &whole.ranks);
        let renumbered = |whole: &Group| {
            whole.ranks.iter().filter_map(|rank| numbers.get(rank).copied()).collect::<Vec<u64>>()
        };
        if json {
            // As a value, whose fields stand in order.
            let row = |mut group: Group| {
                let link = crossed(&group);
                let ranks = self.packed.then(|| renumbered(&group));
                let of = ranks.map(|ranks| std::mem::replace(&mut group.ranks, ranks));
                json!(Crossing { group: &group, link, of: of.as_deref() })
            };
            let groups = Each(|| shown().map(row));
            report::print_by(|out| {
                serde_json::to_writer_pretty(&mut *out, &Listed { groups, version: planner::wire::VERSION })?;
                writeln!(out)
            })?;
        } else {
            let listed = |ranks: &[u64]| ranks.iter().map(u64::to_string).collect::<Vec<String>>().join(" ");
            let row = |whole: Group| {
                let link = text::snake(&crossed(&whole));
                let ranks = if self.packed { listed(&renumbered(&whole)) } else { listed(&whole.ranks) };
                vec![text::snake(&whole.kind), whole.index.to_string(), link, ranks]
            };
            let head = ["kind", "index", "link", "ranks"].map(str::to_owned).to_vec();
            report::print_by(|out| {
                if self.packed {
                    let order = listed(&packed);
                    write!(
                        out,
                        "ranks of the whole world, in the order of their packed numbers: {order}\n\n"
                    )?;
                }
                text::write_table(out, || std::iter::once(head.clone()).chain(shown().map(row)))
            })?;
        }
        Ok(Exit::Yes)
    }
}

/// The answer as JSON.
#[derive(Serialize)]
struct Listed<G> {
    groups: G,
    version: u32,
}

/// A list whose elements are made as they are written: of a large world they don't fit in memory together.
struct Each<F>(F);

impl<T: Serialize, I: Iterator<Item = T>, F: Fn() -> I> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}
