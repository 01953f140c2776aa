//! Digests of answers, committed beside the sources: a change that changes an answer says so by changing them.
//!
//! Answers are the same on every machine: planner adds, multiplies and takes roots, which IEEE 754 fixes to the last digit in
//! debug and release builds alike, and has everything else from crate libm (`planner/clippy.toml` refuses the platform's).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::answer::answers;
use crate::draw::{PLANS, plan};

/// A plan's number, and what is said of its answers.
pub type Line = (usize, String);

/// What a column has the hash of. What is answered under another name belongs to the one before it.
const COLUMNS: [(&str, &[&str]); 6] = [
    ("plan", &["plan", "read_again"]),
    ("estimate", &["estimate"]),
    ("shards", &["shards"]),
    ("groups", &["groups", "groups_of_all"]),
    ("scripts", &["scripts"]),
    ("search", &["search"]),
];

const HEAD: &str = "\
# What planner answers for the plans of `cargo xtask answers`, as hashes: a line for each plan, a column for each answer.
# `SHARDPLAN_WRITE=1 cargo xtask answers` writes it, where answers are meant to change; `cargo test --package frameworks
# --test answers` compares, and with SHARDPLAN_WRITE=1 writes, only the plans that it has time for.
";

/// How many plans a message names.
const NAMED: usize = 12;

/// FNV-1a of what is written to it: short, and the same in every version of Rust.
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }
}

impl io::Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// What `say` makes of the answers of the plans of these numbers, by all cores, in their order.
pub fn of_plans(numbers: &[usize], say: fn(usize, &Value) -> String) -> Vec<Line> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found: Vec<Line> = std::thread::scope(|scope| {
        let work = || {
            let mut mine = Vec::new();
            while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                mine.extend(plan(number).map(|file| (number, say(number, &answers(number, &file)))));
            }
            mine
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no plan makes planner panic")).collect()
    });
    found.sort_unstable();
    found
}

/// Numbers of all plans.
pub fn all() -> Vec<usize> {
    (0..PLANS).collect()
}

/// The file of digests, from whichever package includes this.
fn path() -> PathBuf {
    let of = |folder: &Path| folder.join("planner/frameworks/tests/answers.txt");
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(of);
    folders.find(|path| path.exists()).unwrap_or_else(|| of(Path::new(".")))
}

/// Holds digests of plans against those that are committed, or puts them there if that is asked for. Says what differs.
pub fn hold(lines: &[Line]) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", path().display());
    if std::env::var_os("SHARDPLAN_WRITE").is_some() {
        let known = std::fs::read_to_string(path()).unwrap_or_default();
        let mut all = by_number(&known);
        all.extend(lines.iter().map(|(number, line)| (*number, line.as_str())));
        let text: Vec<&str> = HEAD.lines().chain(all.into_values()).collect();
        std::fs::write(path(), text.join("\n") + "\n").map_err(failed)?;
    }
    compare(&std::fs::read_to_string(path()).map_err(failed)?, lines)
}

fn by_number(digests: &str) -> BTreeMap<usize, &str> {
    let number = |line: &str| line.split_whitespace().next().and_then(|word| word.parse().ok());
    digests.lines().filter_map(|line| Some((number(line)?, line))).collect()
}

/// The digests of a plan's answers.
pub fn line(number: usize, answers: &Value) -> String {
    let mut words = vec![format!("{number:4}")];
    for (_, names) in COLUMNS {
        let answers: Vec<&Value> = names.iter().filter_map(|name| answers.get(name)).collect();
        let mut hash = Hash::default();
        serde_json::to_writer(&mut hash, &answers).expect("a hash takes everything");
        // Half of it tells two answers from each other as well, in half the file.
        words.push(if answers.is_empty() { "-".to_owned() } else { hash.to_string().split_off(8) });
    }
    words.join(" ")
}

/// What differs between digests and answers, where something does.
pub fn compare(digests: &str, lines: &[Line]) -> Result<(), String> {
    let known = by_number(digests);
    let (mut differ, mut by_answer) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for (number, now) in lines {
        let Some(before) = known.get(number) else {
            differ.push(format!("plan {number}: not recorded"));
            continue;
        };
        let words = |line: &str| line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>();
        let (now, before) = (words(now), words(before));
        let is_other = |column: &usize| before.get(*column) != now.get(*column);
        let mut other: Vec<&str> =
            (0..COLUMNS.len()).filter(is_other).map(|column| COLUMNS[column].0).collect();
        // Of another plan everything is another answer.
        if other.first() == Some(&"plan") {
            other.truncate(1);
        }
        if !other.is_empty() {
            differ.push(format!("plan {number}: {}", other.join(", ")));
        }
        for name in other {
            *by_answer.entry(name).or_default() += 1;
        }
    }
    if differ.is_empty() {
        return Ok(());
    }
    let count = differ.len();
    let more = if count > NAMED { format!("\n  and {} more", count - NAMED) } else { String::new() };
    differ.truncate(NAMED);
    let sums: Vec<String> = by_answer.iter().map(|(name, count)| format!("{name} of {count}")).collect();
    Err(format!(
        "{count} of {} plans are answered otherwise than planner/frameworks/tests/answers.txt has it ({}):\n  {}{more}\n\
         If that is meant, say why in the commit, and run `SHARDPLAN_WRITE=1 cargo xtask answers`. What became of which field: `cargo xtask answers --into FILE` on both sources, with `--against` for the second.",
        lines.len(),
        sums.join(", "),
        differ.join("\n  "),
    ))
}
