//! `shardplan layouts PLAN`.

use std::path::PathBuf;

use planner::rules::{LayoutChoice, valid_layouts};
use serde_json::json;

use super::{estimate::resolved, source};
use crate::report::{self, Exit, text};

/// List every valid layout of the plan's model, cluster, runtime and batch
#[derive(Debug, clap::Args)]
pub struct Layouts {
    /// Plan file, or - for standard input
    plan: PathBuf,
}

impl Layouts {
    /// Prints the layouts.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let plan = resolved(&source::read(&self.plan)?)?;
        let layouts = valid_layouts(&plan);
        if json {
            report::print_json(&json!({"version": planner::wire::VERSION, "layouts": layouts}))?;
        } else {
            let names = ["tp", "cp", "pp", "vpp", "ep", "etp", "dp", "edp"];
            let sizes = |of: &LayoutChoice| [of.tp, of.cp, of.pp, of.vpp, of.ep, of.etp, of.dp, of.edp];
            let mut rows = vec![names.map(str::to_owned).to_vec()];
            rows.extend(layouts.iter().map(|layout| sizes(layout).map(|size| size.to_string()).to_vec()));
            report::print(&text::table(&rows))?;
        }
        Ok(Exit::Yes)
    }
}
