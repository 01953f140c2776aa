//! What a step of tests has passed with: while none of it changes on this machine, the step would pass again.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::count::Count;
use super::has_gpu;
use super::steps::Step;
use crate::place::Place;
use crate::process;

/// What tests of the executor don't read: they are shown to pass or not by all other files.
const NOT_OF_THE_EXECUTOR: [&str; 4] = ["docs/", "tests/", "web/", "index.html"];

/// The steps that are remembered. Lints and builds have cargo's own memory.
const fn is_remembered(step: Step) -> bool {
    matches!(step, Step::Unit | Step::Rank | Step::System)
}

/// A step, and what it depends on.
pub struct Passed {
    path: PathBuf,
    key: String,
}

impl Passed {
    /// Of a step as its files are now; none for one that is not remembered, or where git can't tell the files.
    pub fn of(place: &Place, step: Step) -> Option<Passed> {
        let key = is_remembered(step).then(|| key(place, step).ok()).flatten()?;
        Some(Passed { path: place.cache.join("passed").join(step.to_string()), key })
    }

    /// How many tests passed with just these files, where all did.
    pub fn known(&self) -> Option<Count> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        let (key, passed) = text.trim_end().split_once(' ')?;
        (key == self.key).then(|| passed.parse().ok()).flatten().map(|passed| Count { passed, failed: 0 })
    }

    /// Remembers that all passed, unless a file has changed meanwhile.
    ///
    /// # Errors
    /// When the cache can't be written.
    pub fn remember(&self, place: &Place, step: Step, count: Count) -> Result<()> {
        if count.failed > 0 || key(place, step)? != self.key {
            return Ok(());
        }
        let folder = self.path.parent().context("the cache has no folder")?;
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&self.path, format!("{} {}\n", self.key, count.passed)))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// A name for the contents of all files that a step depends on, with the compiler, the machine and what runs on it.
fn key(place: &Place, step: Step) -> Result<String> {
    let listed = process::read(
        Command::new("git")
            .args(["-c", "core.quotePath=false", "ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(&place.root),
    )?;
    let reads = |file: &&str| {
        step != Step::Rank
            || !(file.ends_with(".md") || NOT_OF_THE_EXECUTOR.iter().any(|start| file.starts_with(start)))
    };
    let files: Vec<&str> =
        listed.lines().filter(reads).filter(|file| place.root.join(file).is_file()).collect();
    let contents = hashed(place, &["--stdin-paths", "--no-filters"], &(files.join("\n") + "\n"))?;
    let compiler = process::read(Command::new("rustc").arg("--version").current_dir(&place.root))?;
    let machine = ["hostname", "osrelease", "version"]
        .map(|name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default());
    let all = format!("{compiler}\n{}\n{}\n{}\n{contents}", machine.concat(), has_gpu(), files.join("\n"));
    hashed(place, &["--stdin"], &all)
}

/// What `git hash-object` says of some input.
fn hashed(place: &Place, arguments: &[&str], input: &str) -> Result<String> {
    let mut child = Command::new("git")
        .arg("hash-object")
        .args(arguments)
        .current_dir(&place.root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start git")?;
    let mut stdin = child.stdin.take().context("no pipe to git")?;
    // It answers line by line, so both pipes have to be served at once.
    let output = std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output();
        let _ = writer.join();
        output
    })
    .context("cannot read what git says")?;
    if !output.status.success() {
        bail!("`git hash-object` ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A checkout with a few files, and a cache beside it.
    fn place(name: &str) -> Place {
        let folder = std::env::temp_dir().join(format!("xtask-passed-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let root = folder.join("checkout");
        for (file, text) in [
            ("planner/src/lib.rs", "one"),
            ("web/src/main.rs", "two"),
            ("README.md", "three"),
            (".gitignore", "/target\n"),
        ] {
            write(&root, file, text);
        }
        process::run(Command::new("git").args(["init", "--quiet"]).current_dir(&root)).unwrap();
        Place { root, cache: folder.join("cache") }
    }

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn what_passed_is_known_until_a_file_changes_that_it_reads() {
        let place = place("known");
        let seven = Count { passed: 7, failed: 0 };
        let known = |step: Step| Passed::of(&place, step).unwrap().known();
        for step in [Step::Unit, Step::Rank] {
            assert_eq!(known(step), None);
            Passed::of(&place, step).unwrap().remember(&place, step, seven).unwrap();
            assert_eq!(known(step), Some(seven));
        }
        write(&place.root, "target/built", "ignored by git");
        assert_eq!(known(Step::Unit), Some(seven));
        write(&place.root, "web/src/main.rs", "another page");
        assert_eq!([known(Step::Unit), known(Step::Rank)], [None, Some(seven)]);
        write(&place.root, "planner/src/new.rs", "a file that git does not know yet");
        assert_eq!(known(Step::Rank), None);
        std::fs::remove_file(place.root.join("planner/src/new.rs")).unwrap();
        assert_eq!(known(Step::Rank), Some(seven));
        std::fs::remove_dir_all(place.root.parent().unwrap()).unwrap();
    }

    #[test]
    fn failures_and_what_changed_meanwhile_are_not_remembered() {
        let place = place("failed");
        let begun = Passed::of(&place, Step::Unit).unwrap();
        begun.remember(&place, Step::Unit, Count { passed: 7, failed: 1 }).unwrap();
        assert_eq!(begun.known(), None);
        write(&place.root, "planner/src/lib.rs", "changed while tests ran");
        begun.remember(&place, Step::Unit, Count { passed: 7, failed: 0 }).unwrap();
        assert_eq!([begun.known(), Passed::of(&place, Step::Unit).unwrap().known()], [None, None]);
        assert!(Passed::of(&place, Step::Format).is_none());
        std::fs::remove_dir_all(place.root.parent().unwrap()).unwrap();
    }
}
