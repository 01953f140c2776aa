//! `shardplan groups PLAN [--rank N]`.

use std::path::PathBuf;

use super::{Exit, Failure, estimate::resolved, exit, input, text};

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
        let plan = resolved(&input::read_plan(&self.plan)?)?;
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
        if json {
            exit::print_json(&groups)?;
        } else {
            let mut rows = vec![vec!["kind".to_owned(), "index".to_owned(), "ranks".to_owned()]];
            rows.extend(groups.iter().map(|group| {
                let ranks: Vec<String> = group.ranks.iter().map(u64::to_string).collect();
                vec![text::snake(&group.kind), group.index.to_string(), ranks.join(" ")]
            }));
            exit::print(&text::table(&rows))?;
        }
        Ok(Exit::Yes)
    }
}
