//! `shardplan groups PLAN [--rank N]`.

use std::path::PathBuf;

use planner::layout::{Group, Link, link};
use serde::Serialize;

use super::{Exit, Failure, estimate::resolved, exit, source, text};

/// A group, and the slowest link between its ranks.
#[derive(Serialize)]
struct Crossing<'a> {
    #[serde(flatten)]
    group: &'a Group,
    link: Link,
}

/// List the process groups, in the order in which every rank creates them
#[derive(Debug, clap::Args)]
pub struct Groups {
    /// Plan file, or - for standard input
    plan: PathBuf,
    /// Only the groups that this rank is in
    #[arg(long)]
    rank: Option<u64>,
}

impl Groups {
    /// Prints the groups.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let plan = resolved(&source::read(&self.plan)?)?;
        let world_size = plan.world_size();
        let mut groups = plan.groups();
        if let Some(rank) = self.rank {
            if rank >= world_size {
                return Err(Failure::usage(format!(
                    "--rank {rank}: this plan has {world_size} ranks, 0 to {}",
                    world_size.saturating_sub(1)
                )));
            }
            groups.retain(|group| group.ranks.contains(&rank));
        }
        let crossed = |group: &Group| link(&plan.cluster, &group.ranks);
        if json {
            let rows: Vec<Crossing> =
                groups.iter().map(|group| Crossing { group, link: crossed(group) }).collect();
            exit::print_json(&rows)?;
        } else {
            let mut rows = vec![["kind", "index", "link", "ranks"].map(str::to_owned).to_vec()];
            rows.extend(groups.iter().map(|group| {
                let ranks: Vec<String> = group.ranks.iter().map(u64::to_string).collect();
                vec![
                    text::snake(&group.kind),
                    group.index.to_string(),
                    text::snake(&crossed(group)),
                    ranks.join(" "),
                ]
            }));
            exit::print(&text::table(&rows))?;
        }
        Ok(Exit::Yes)
    }
}
