//! What planner answers for a plan.

use batch::launch::{Body, ScriptOptions, Site};
use frameworks::script;
use planner::plan::Plan;
use planner::search::{Partial, Request, Search};
use planner::wire::PlanFile;
use planner::{estimate, parse_plan};
use serde_json::{Value, json};

use crate::digest::Hash;

/// Of so many plans one is searched too, where it has no more candidates than these.
const SEARCHED_OF: usize = 20;
const SEARCHED_CANDIDATES: u64 = 50_000;
/// Of a list no more than so many are hashed: a rank may have half a million parameters, most of them experts alike.
const HASHED: usize = 512;

fn of<T: serde::Serialize>(value: T) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| json!(error.to_string()))
}

/// What would be too long, by its length and a hash of some, as far from each other.
fn brief<T: serde::Serialize>(values: &[T]) -> Value {
    let some: Vec<&T> = values.iter().step_by(values.len() / HASHED + 1).collect();
    let mut hash = Hash::default();
    let written = serde_json::to_writer(&mut hash, &some);
    json!({
        "count": values.len(),
        "hash": written.map_or_else(|error| error.to_string(), |()| hash.to_string()),
        "first": values.first().map(of),
    })
}

/// All answers for the plan of this number, each a member of one object.
pub fn answers(number: usize, file: &PlanFile) -> Value {
    let mut found = json!({"number": number, "plan": file, "estimate": of(estimate(file))});
    // What a link or a file gives back is the plan.
    let again = parse_plan(&of(file).to_string());
    found["read_again"] = json!(again.as_ref() == Ok(file));
    if let Some(plan) = Plan::resolve(file).plan {
        let ranks = [0, plan.world_size() / 2, plan.world_size() - 1];
        let shards = ranks.map(|rank| {
            let mut shards = plan.rank_shards(rank);
            let params = std::mem::take(&mut shards.params);
            let mut one = of(shards);
            one["params"] = brief(&params);
            one
        });
        found["shards"] = of(shards);
        found["groups"] = of(ranks.map(|rank| plan.groups_of(rank)));
        found["groups_of_all"] = brief(&plan.groups());
        found["scripts"] = scripts(&plan);
        if number.is_multiple_of(SEARCHED_OF) {
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
    if search.candidates() > SEARCHED_CANDIDATES {
        return json!(search.candidates());
    }
    let mut partial = Partial::default();
    let mut worker = search.worker();
    for part in 0..search.parts() {
        worker.run(part, &mut partial);
    }
    let simulated: Vec<_> = search.shortlist(&partial).iter().map(|one| search.simulate(one)).collect();
    of(search.finish(&partial, &simulated))
}
