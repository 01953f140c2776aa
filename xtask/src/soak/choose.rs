//! What model and cluster alone give: which presets get a plan that fits on which clusters, and how soon.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::console;
use crate::place::Place;
use crate::{build, process};

/// Has the command choose a plan for each preset on each cluster, and prints how many fit and how long it took; whether there was
/// an answer to each.
pub fn run(place: &Place, gpus: &[String], nodes: &[u64]) -> Result<bool> {
    build::worker(place, build::Build::Full)?;
    let program = place.programs().join("shardplan");
    let catalogue = std::fs::read_to_string(place.root.join("planner/src/model/catalogue.json"))
        .context("the catalogue can't be read")?;
    let presets: Vec<&str> =
        catalogue.split("\"id\": \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    console::result(format_args!(
        "{:<16} {:>6} {:>8} {:>6} {:>6} {:>6} {:>8} {:>8} {:>8}",
        "GPU", "GPUs", "presets", "fit", "tight", "none", "p50 s", "p95 s", "most s"
    ));
    let mut answered = true;
    for gpu in gpus {
        for &nodes in nodes {
            let (mut counts, mut seconds, mut without) = ([0u32; 3], Vec::new(), Vec::new());
            for preset in &presets {
                let started = Instant::now();
                let mut command = std::process::Command::new(&program);
                command.args(["plan", "--model", preset, "--gpu", gpu, "--nodes", &nodes.to_string()]);
                let output = command.stdin(Stdio::null()).output();
                let output =
                    output.with_context(|| format!("cannot start `{}`", process::shown(&command)))?;
                seconds.push(started.elapsed().as_secs_f64());
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let of = ["fits:", "tight:", "nothing fits"];
                match of.iter().position(|word| said.starts_with(word)) {
                    Some(2) => {
                        counts[2] += 1;
                        without.push(*preset);
                    }
                    Some(place) => counts[place] += 1,
                    None => {
                        answered = false;
                        console::notice(format!("{preset} on {nodes} nodes of {gpu}: {said}"));
                    }
                }
            }
            seconds.sort_by(f64::total_cmp);
            let at = |share: f64| seconds[((seconds.len() - 1) as f64 * share) as usize];
            console::result(format_args!(
                "{gpu:<16} {:>6} {:>8} {:>6} {:>6} {:>6} {:>8.2} {:>8.2} {:>8.2}",
                nodes * 8,
                presets.len(),
                counts[0],
                counts[1],
                counts[2],
                at(0.5),
                at(0.95),
                at(1.0)
            ));
            if !without.is_empty() {
                console::result(format_args!("    nothing fits: {}", without.join(", ")));
            }
        }
    }
    Ok(answered)
}
