//! What a script takes away: what it removes, moves or writes over though its own attempt did not make it.
//!
//! A job may be queued again, and its script then begins anew where an earlier attempt, or another job, has left its
//! work.

use super::facts::{Call, Facts};
use super::job::Job;
use super::syntax::RedirectKind;
use super::text::Text;
use super::walk::Field;
use super::{MAX_SCRIPT_BYTES, parse, walk};

/// Traps whose commands are read; a real script has a few.
const MOST_TRAPS: usize = 16;

/// What happens to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// It is not there any more.
    Removed,
    /// It has another name, or something else has its.
    Moved,
    /// It has another content.
    Overwritten,
}

/// A path that may have been there before, and what a script does to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Line of the script, from 1.
    pub line: u64,
    /// The path, as far as it is known: `$NAME` and `$(program ...)` stand for what only a running script knows.
    pub path: String,
    /// What happens to it.
    pub harm: Harm,
}

/// Everything that a script takes away, in the order of its commands. A path is the attempt's own, and may be taken
/// away, when `mktemp` made its name or the number of the attempt is in it.
pub fn taken(script: &[u8]) -> Vec<Taken> {
    let script =
        String::from_utf8_lossy(script.get(..MAX_SCRIPT_BYTES.min(script.len())).unwrap_or_default());
    let line = |at: u32| script.bytes().take(at as usize).filter(|byte| *byte == b'\n').count() as u64 + 1;
    let text = Text::script(&script);
    let (parsed, _) = parse::parse(&text);
    let facts = walk::walk(&parsed, &text, &Job::default());
    let found = of(&facts).into_iter();
    found.map(|(field, harm)| Taken { line: line(field.at), path: field.text.shown(), harm }).collect()
}

/// The same for a script that was walked: the words that name the paths.
pub(super) fn of(facts: &Facts) -> Vec<(Field, Harm)> {
    let mut found = Vec::new();
    let mut traps = 0;
    for call in &facts.calls {
        collect(call, &mut found);
        if call.name() == "trap"
            && let Some(body) = call.arguments().first().filter(|_| traps < MOST_TRAPS)
        {
            traps += 1;
            let (parsed, _) = parse::parse_at_depth(&body.text, 1);
            let inner = walk::walk(&parsed, &body.text, &Job::default());
            inner.calls.iter().for_each(|call| collect(call, &mut found));
        }
    }
    found.retain(|(field, _)| !is_own(&field.text));
    found
}

/// Whether only this attempt can have made a path, or nothing can be lost there.
fn is_own(path: &Text) -> bool {
    let beginning = path.beginning();
    ["/dev/", "/proc/"].iter().any(|root| beginning.starts_with(root))
        || path.holes().any(|(_, hole)| &*hole.name == "mktemp" || hole.name.contains("SLURM_RESTART_COUNT"))
}

fn collect(call: &Call, found: &mut Vec<(Field, Harm)>) {
    let words = call.arguments();
    let is_option = |field: &&Field| field.text.beginning().starts_with('-');
    let has = |options: &[&str]| words.iter().any(|field| options.iter().any(|option| field.is(option)));
    let operands: Vec<&Field> = words.iter().filter(|field| !is_option(field)).collect();
    let mut all = |fields: &[&Field], harm: Harm| {
        found.extend(fields.iter().map(|field| ((*field).clone(), harm)));
    };
    match call.name() {
        "rm" | "rmdir" | "unlink" | "shred" => all(&operands, Harm::Removed),
        "mv" | "rename" => all(&operands, Harm::Moved),
        "truncate" => all(&operands, Harm::Overwritten),
        // What the other side lacks goes; with the second option, what was sent.
        "rsync" if words.iter().any(|field| deletes(field.text.beginning())) => {
            all(operands.last().copied().as_slice(), Harm::Removed);
        }
        "rsync" if has(&["--remove-source-files"]) => {
            all(operands.split_last().map_or(&[], |(_, sources)| sources), Harm::Removed);
        }
        "rclone" if operands.first().is_some_and(|field| field.is("sync")) => {
            all(operands.last().copied().as_slice(), Harm::Removed);
        }
        "rclone"
            if ["delete", "purge"]
                .iter()
                .any(|verb| operands.first().is_some_and(|field| field.is(verb))) =>
        {
            all(operands.get(1..).unwrap_or_default(), Harm::Removed);
        }
        "aws" | "gsutil" | "gcloud"
            if has(&["rm"]) || has(&["--delete", "--delete-unmatched-destination-objects"]) =>
        {
            all(operands.last().copied().as_slice(), Harm::Removed);
        }
        "cp" | "install" | "rsync" | "ln" => all(operands.last().copied().as_slice(), Harm::Overwritten),
        "tee" if !has(&["-a", "--append"]) => all(&operands, Harm::Overwritten),
        "sed" | "perl" if words.iter().any(|field| field.text.beginning().starts_with("-i")) => {
            all(operands.get(1..).unwrap_or_default(), Harm::Overwritten);
        }
        "dd" => {
            let written = operands.iter().filter(|field| field.text.beginning().starts_with("of="));
            all(&written.copied().collect::<Vec<_>>(), Harm::Overwritten);
        }
        "find" if has(&["-delete"]) || words.iter().any(|field| field.base() == "rm") => {
            all(operands.first().copied().as_slice(), Harm::Removed);
        }
        "git" if has(&["clean", "reset", "checkout", "stash", "restore"]) => {
            all(operands.first().copied().as_slice(), Harm::Removed);
        }
        "uv" if has(&["--clear"]) => all(operands.last().copied().as_slice(), Harm::Removed),
        _ => {}
    }
    let truncated = call.redirects.iter().filter(|(kind, _)| *kind == RedirectKind::Write);
    found.extend(truncated.map(|(_, field)| (field.clone(), Harm::Overwritten)));
}

/// Whether an option of rsync has it delete what the other side lacks: `--delete`, `--delete-after`, `--del`.
fn deletes(option: &str) -> bool {
    option == "--del" || option.starts_with("--delete")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(script: &str, expected: &[(u64, &str, Harm)]) {
        let found = taken(script.as_bytes());
        let found: Vec<_> = found.iter().map(|one| (one.line, one.path.as_str(), one.harm)).collect();
        assert_eq!(found, expected, "{script}");
    }

    #[test]
    fn what_is_taken_away() {
        use Harm::{Moved, Overwritten, Removed};
        check("set -e\nrm -rf nemo_experiments\n", &[(2, "nemo_experiments", Removed)]);
        check("D=/a\nmv \"$D/x\" \"$D/y\"\n", &[(2, "/a/x", Moved), (2, "/a/y", Moved)]);
        check("date > \"$SHARED/log\"\n", &[(1, "$SHARED/log", Overwritten)]);
        check("x 2>&1 | tee \"$LOG\"\n", &[(1, "$LOG", Overwritten)]);
        check("trap 'rm -f -- \"$KEY\"' EXIT\n", &[(1, "$KEY", Removed)]);
        check("srun bash -c 'cd \"$1\"\nrm -rf out' bash /w\n", &[(2, "out", Removed)]);
        check("srun rm -r a\nuv venv --clear .venv\n", &[(1, "a", Removed), (2, ".venv", Removed)]);
        check("sed -i s/a/b/ conf; find old -delete\n", &[(1, "conf", Overwritten), (1, "old", Removed)]);
        check("rsync -a --delete /tmp/x/ /lustre/a/\n", &[(1, "/lustre/a/", Removed)]);
        check("rsync -a --delete-after --exclude=x /x/ host:/a/\n", &[(1, "host:/a/", Removed)]);
        check("rsync -a --remove-source-files /a/ /b/\n", &[(1, "/a/", Removed)]);
        check("rsync -a /x/ /lustre/a/\n", &[(1, "/lustre/a/", Overwritten)]);
        check(
            "rclone sync /x remote:a; rclone purge remote:b\n",
            &[(1, "remote:a", Removed), (1, "remote:b", Removed)],
        );
        check("aws s3 sync /x s3://a --delete\n", &[(1, "s3://a", Removed)]);
        check("aws s3 sync /x s3://a\n", &[]);
        check("T=\"\n  exec 9> lock\n\"\nsrun bash -c \"$T\"\n", &[(2, "lock", Overwritten)]);
    }

    #[test]
    fn what_is_the_attempts_own_or_only_added_to() {
        for script in [
            "T=\"$(mktemp -d)\"\nrm -rf \"$T\"\ndate > \"$T/x\"\n",
            "LOG=\"/a/$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.log\"\nx | tee \"$LOG\"\n",
            "x >> log; x | tee -a log; x > /dev/null; x 2> /dev/null\n",
            "exec 9>> lock; x &>> log\nmkdir -p a\ntouch b\n",
            "# rm -rf a\necho 'rm -rf a'\ncat <<'E'\nrm -rf a\nE\n",
        ] {
            check(script, &[]);
        }
    }
}
