//! What a task does before it becomes the framework's command: lines of shell that hold no value of the user's.

/// Lines of shell. Values reach them as arguments and variables only, so quoting them whole is safe.
#[derive(Debug, Clone, Default)]
pub(super) struct Step(Vec<String>);

impl Step {
    /// No lines.
    pub(super) fn new() -> Step {
        Step::default()
    }

    /// Adds a line. It must hold no single quote.
    pub(super) fn line(&mut self, line: &str) {
        debug_assert!(!line.contains('\''), "{line}");
        self.0.push(line.to_owned());
    }

    /// One task of each node syncs, under a lock; the others wait until its marker is there. A marker belongs to one
    /// start of one job on one node, so nobody trusts an old one. `in_tmp` is whether the environment lies in the node's
    /// temporary folder, because each task has a container of its own.
    pub(super) fn sync_once_per_node(&mut self, in_tmp: bool) {
        for line in [
            "tmp=\"${TMPDIR:-/tmp}\"",
            // A container need not have the node's.
            "[ -d \"$tmp\" ] || tmp=/tmp",
            "ready=\"$tmp/shardplan-$SLURM_JOB_ID-$SLURM_NODEID-${SLURM_RESTART_COUNT:-0}.ready\"",
        ] {
            self.line(line);
        }
        if in_tmp {
            self.line("export UV_PROJECT_ENVIRONMENT=\"${ready%.ready}.venv\"");
        }
        for line in [
            "if [ \"$SLURM_LOCALID\" -eq 0 ]; then",
            "  exec 9>> \"$ready.lock\"",
            "  flock 9",
            "  uv sync",
            "  touch \"$ready\"",
            "  exec 9>&-",
            "else",
            "  until [ -e \"$ready\" ]; do sleep 1; done",
            "fi",
        ] {
            self.line(line);
        }
    }

    /// The lines between single quotes.
    pub(super) fn single_quoted(&self) -> String {
        format!("'\n{}  '", self.indented())
    }

    /// The lines between double quotes, with everything escaped that must reach the node as it stands.
    pub(super) fn double_quoted(&self) -> String {
        let mut out = String::from("\"\n");
        for character in self.indented().chars() {
            if matches!(character, '"' | '$' | '`' | '\\') {
                out.push('\\');
            }
            out.push(character);
        }
        out.push('"');
        out
    }

    fn indented(&self) -> String {
        self.0.iter().map(|line| format!("    {line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn double_quotes_keep_every_name_for_the_node() {
        let mut step = Step::new();
        step.line("exec \"$@\" ${SLURM_NODEID}");
        assert_eq!(step.double_quoted(), "\"\n    exec \\\"\\$@\\\" \\${SLURM_NODEID}\n\"");
    }
}
