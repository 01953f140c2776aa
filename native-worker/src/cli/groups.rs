//! `shardplan groups PLAN [--rank N]`.

use std::collections::HashMap;
use std::path::PathBuf;

use planner::layout::{Group, Link, link};
use planner::units::counted;
use serde::Serialize;
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
        let mut groups = plan.groups();
        if let Some(rank) = self.rank {
            if rank >= world_size {
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
            groups.retain(|group| group.ranks.contains(&rank));
        }
        let mut shown = groups.clone();
        let packed = plan.packed_ranks();
        if self.packed {
            let numbers: HashMap<u64, u64> = packed.iter().copied().zip(0..).collect();
            for group in &mut shown {
                group.ranks = group.ranks.iter().filter_map(|rank| numbers.get(rank).copied()).collect();
            }
        }
        // Where a rank stands is told by its number in the whole world.
        let crossed = |group: &Group| link(&plan.cluster, &group.ranks);
        let both = || shown.iter().zip(&groups);
        if json {
            let row = |(group, whole)| Crossing {
                group,
                link: crossed(whole),
                of: self.packed.then_some(whole.ranks.as_slice()),
            };
            let groups = both().map(row).collect::<Vec<_>>();
            report::print_json(&json!({"version": planner::wire::VERSION, "groups": groups}))?;
        } else {
            let listed = |ranks: &[u64]| ranks.iter().map(u64::to_string).collect::<Vec<String>>().join(" ");
            let mut rows = vec![["kind", "index", "link", "ranks"].map(str::to_owned).to_vec()];
            rows.extend(both().map(|(group, whole)| {
                let link = text::snake(&crossed(whole));
                vec![text::snake(&group.kind), group.index.to_string(), link, listed(&group.ranks)]
            }));
            let order = if self.packed {
                format!(
                    "ranks of the whole world, in the order of their packed numbers: {}\n\n",
                    listed(&packed)
                )
            } else {
                String::new()
            };
            report::print(&(order + &text::table(&rows)))?;
        }
        Ok(Exit::Yes)
    }
}
