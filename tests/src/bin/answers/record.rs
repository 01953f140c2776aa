//! What planner answers for a plan, as one JSON object of a line.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use planner::launch::{Body, ScriptOptions, Site, script};
use planner::plan::Plan;
use planner::search::{Partial, Request, Search};
use planner::wire::PlanFile;
use planner::{estimate, parse_plan};
use serde_json::{Value, json};

use crate::draw::{PLANS, plan};

/// Of so many plans one is searched too, where its cluster is small.
const SEARCHED_OF: usize = 20;
const SEARCHED_GPUS: u64 = 16;

/// Writes the answers of all plans, in their order.
pub fn write(path: &Path) -> Result<()> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut lines: Vec<(usize, String)> = std::thread::scope(|scope| {
        let work = || {
            let mut mine = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= PLANS {
                    return mine;
                }
                if let Some(file) = plan(number) {
                    mine.push((number, answers(number, &file).to_string()));
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    });
    lines.sort_unstable();
    let file = File::create(path).with_context(|| format!("can't make {}", path.display()))?;
    let mut out = BufWriter::new(file);
    for (_, line) in &lines {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    eprintln!("{} plans recorded in {}", lines.len(), path.display());
    Ok(())
}

fn of<T: serde::Serialize>(value: T) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| json!(error.to_string()))
}

/// What would be too long, by its length and hash.
fn brief<T: serde::Serialize>(values: &[T]) -> Value {
    let mut hasher = DefaultHasher::new();
    for value in values {
        of(value).to_string().hash(&mut hasher);
    }
    json!({"count": values.len(), "hash": format!("{:016x}", hasher.finish()), "first": values.first().map(of)})
}

fn answers(number: usize, file: &PlanFile) -> Value {
    let mut found = json!({"number": number, "plan": file, "estimate": of(estimate(file))});
    // What a link or a file gives back is the plan.
    let again = parse_plan(&of(file).to_string());
    found["read_again"] = json!(again.as_ref() == Ok(file));
    if let Some(plan) = Plan::resolve(file).plan {
        let ranks = [0, plan.world_size() / 2, plan.world_size() - 1];
        let shards = ranks.map(|rank| {
            let shards = plan.rank_shards(rank);
            let mut one = of(&shards);
            one["params"] = brief(&shards.params);
            one
        });
        found["shards"] = of(shards);
        found["groups"] = of(ranks.map(|rank| plan.groups_of(rank)));
        found["groups_of_all"] = brief(&plan.groups());
        found["scripts"] = scripts(&plan);
        if number.is_multiple_of(SEARCHED_OF) && plan.world_size() <= SEARCHED_GPUS {
            found["search"] = search(file);
        }
    }
    found
}

fn scripts(plan: &Plan) -> Value {
    let mut found = json!({});
    for body in Body::ALL {
        let options = ScriptOptions { body, ..ScriptOptions::default() };
        let (text, findings) = script(plan, &Site::default(), &options);
        found[body.name()] = json!({"lines": text.lines().collect::<Vec<_>>(), "findings": findings});
    }
    found
}

fn search(file: &PlanFile) -> Value {
    let search = match Search::new(&Request::new(file.clone())) {
        Ok(search) => search,
        Err(findings) => return of(findings),
    };
    let mut partial = Partial::default();
    let mut worker = search.worker();
    for part in 0..search.parts() {
        worker.run(part, &mut partial);
    }
    let simulated: Vec<_> = search.shortlist(&partial).iter().map(|one| search.simulate(one)).collect();
    of(search.finish(&partial, &simulated))
}
