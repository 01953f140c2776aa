//! Our reading of node lists against `scontrol show hostnames`.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use planner::cluster::{first_node, node_names};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use system_tests::slurm::Slurm;

/// Lists that are drawn, besides those written down.
const DRAWN: usize = 400;

/// Lists that Slurm and we must both take or both refuse.
const KNOWN: [&str; 23] = [
    "gpu-[01-02]",
    "a[1-3,7],b",
    "node[001-004]",
    "node[001,003,005]",
    "nodeA,nodeB[001,003]",
    "compute-gpu-[10-20]",
    "rack[1-2]n[01-04]",
    "a[1-2][3-4]",
    "a[001-3]",
    "a[1-003]",
    "a[09-11,9-11]",
    "a,b,,c",
    ",a",
    "a,",
    "a,a",
    "[1-3]",
    "a[3-1]",
    "a[]",
    "a[1,]",
    "a[,1]",
    "a[x-y]",
    "a[[1-2]]",
    "a[1-70000]",
];

/// Slurm 22.05 lets neither the last nor the first of three brackets turn slowest, so only the names are compared.
const THREE_BRACKETS: &str = "r[1-2]n[1-2]s[1-2],q";

/// A number as it stands in a bracket, with zeros before it at times.
fn number() -> impl Strategy<Value = (u64, String)> {
    (0u64..1200, 0usize..4).prop_map(|(number, zeros)| (number, format!("{}{number}", "0".repeat(zeros))))
}

fn range() -> impl Strategy<Value = String> {
    // Now and then the range descends, which both must refuse.
    (number(), -2i64..12).prop_map(|((first, text), more)| match more {
        0 => text,
        more => format!("{text}-{}", first.saturating_add_signed(more)),
    })
}

fn bracket() -> impl Strategy<Value = String> {
    prop::collection::vec(range(), 1..4).prop_map(|ranges| format!("[{}]", ranges.join(",")))
}

/// Text and a bracket.
fn part() -> impl Strategy<Value = String> {
    ("[a-z][a-z0-9.-]{0,5}", bracket()).prop_map(|(text, bracket)| text + &bracket)
}

fn name() -> impl Strategy<Value = String> {
    let several = prop::collection::vec(part(), 2..3).prop_map(|parts| parts.concat());
    prop_oneof!["[a-z][a-z0-9-]{0,8}", part(), several]
}

fn drawn() -> Result<Vec<String>> {
    let mut runner = TestRunner::deterministic();
    let lists = prop::collection::vec(name(), 1..5).prop_map(|names| names.join(","));
    (0..DRAWN)
        .map(|_| Ok(lists.new_tree(&mut runner).map_err(|error| anyhow::anyhow!("{error}"))?.current()))
        .collect()
}

#[test]
fn node_lists_are_read_as_slurm_reads_them() -> Result<()> {
    let mut lists: Vec<String> = KNOWN.map(str::to_owned).to_vec();
    lists.extend(drawn()?);
    let answers = read_by_slurm(&lists)?;
    ensure!(answers.len() == lists.len(), "{} answers for {} lists", answers.len(), lists.len());
    let (mut taken, mut refused) = (0, 0);
    for (list, answer) in lists.iter().zip(&answers) {
        let ours = node_names(list).ok().map(|names| names.join(" "));
        ensure!(ours.as_deref() == answer.as_deref(), "{list:?}: Slurm says {answer:?}, we say {ours:?}");
        if let Some(names) = answer {
            let first = first_node(list).ok();
            ensure!(first.as_deref() == names.split(' ').next(), "{list:?}: {first:?} is not the first");
            taken += 1;
        } else {
            refused += 1;
        }
    }
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let slurms = read_by_slurm(&[THREE_BRACKETS.to_owned()])?;
    let theirs = slurms[0].iter().flat_map(|names| names.split(' ').map(str::to_owned)).collect();
    ensure!(sorted(node_names(THREE_BRACKETS)?) == sorted(theirs), "{THREE_BRACKETS}: Slurm says {slurms:?}");
    // Both kinds must have been drawn for the comparison to say something.
    ensure!(taken >= 100 && refused >= 20, "{taken} lists were taken and {refused} refused");
    Ok(())
}

/// What Slurm reads from each list; none where it refuses. One shell asks for all, for a start costs more than a list.
fn read_by_slurm(lists: &[String]) -> Result<Vec<Option<String>>> {
    // scontrol may end with 0 when it refuses, but then it prints no name.
    let line = "while IFS= read -r list; do echo $(scontrol show hostnames \"$list\" 2>/dev/null); done";
    let mut bash = Slurm::shared()?.command("bash")?;
    let mut child = bash.args(["-c", line]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    let text = lists.join("\n") + "\n";
    // Written by a thread, for the answers fill their pipe meanwhile.
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| anyhow::anyhow!("writing panicked"))??;
    let answers = String::from_utf8(output.stdout)?;
    Ok(answers.lines().map(|line| (!line.is_empty()).then(|| line.to_owned())).collect())
}
