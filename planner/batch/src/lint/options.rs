//! The options of sbatch and srun, and how they are read from words.

use super::walk::Field;

/// Whether an option has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// Never.
    None,
    /// Always.
    Needed,
    /// Only as `--name=value`.
    Optional,
}

/// Long name, short name, value: options of sbatch and srun (slurm.schedmd.com/sbatch.html and srun.html, 25.05).
pub(super) const SLURM: &[(&str, Option<char>, Value)] = &[
    ("account", Some('A'), Value::Needed),
    ("acctg-freq", None, Value::Needed),
    ("array", Some('a'), Value::Needed),
    ("accel-bind", None, Value::Needed),
    ("batch", None, Value::Needed),
    ("bb", None, Value::Needed),
    ("bbf", None, Value::Needed),
    ("bcast", None, Value::Optional),
    ("bcast-exclude", None, Value::Needed),
    ("begin", Some('b'), Value::Needed),
    ("chdir", Some('D'), Value::Needed),
    ("cluster-constraint", None, Value::Needed),
    ("clusters", Some('M'), Value::Needed),
    ("comment", None, Value::Needed),
    ("compress", None, Value::Optional),
    ("constraint", Some('C'), Value::Needed),
    ("consolidate-segments", None, Value::None),
    ("container", None, Value::Needed),
    ("container-id", None, Value::Needed),
    ("contiguous", None, Value::None),
    ("core-spec", Some('S'), Value::Needed),
    ("cores-per-socket", None, Value::Needed),
    ("cpu-bind", None, Value::Needed),
    ("cpu-freq", None, Value::Needed),
    ("cpus-per-gpu", None, Value::Needed),
    ("cpus-per-task", Some('c'), Value::Needed),
    ("deadline", None, Value::Needed),
    ("delay-boot", None, Value::Needed),
    ("dependency", Some('d'), Value::Needed),
    ("disable-status", Some('X'), Value::None),
    ("distribution", Some('m'), Value::Needed),
    ("epilog", None, Value::Needed),
    ("error", Some('e'), Value::Needed),
    ("exact", None, Value::None),
    ("exclude", Some('x'), Value::Needed),
    ("exclusive", None, Value::Optional),
    ("export", None, Value::Needed),
    ("export-file", None, Value::Optional),
    ("external-launcher", None, Value::None),
    ("extra", None, Value::Needed),
    ("extra-node-info", Some('B'), Value::Needed),
    ("get-user-env", None, Value::Optional),
    ("gid", None, Value::Needed),
    ("gpu-bind", None, Value::Needed),
    ("gpu-freq", None, Value::Needed),
    ("gpus", Some('G'), Value::Needed),
    ("gpus-per-node", None, Value::Needed),
    ("gpus-per-socket", None, Value::Needed),
    ("gpus-per-task", None, Value::Needed),
    ("gres", None, Value::Needed),
    ("gres-flags", None, Value::Needed),
    ("help", Some('h'), Value::None),
    ("het-group", None, Value::Needed),
    ("hint", None, Value::Needed),
    ("hold", Some('H'), Value::None),
    ("ignore-pbs", None, Value::None),
    ("immediate", Some('I'), Value::Optional),
    ("input", Some('i'), Value::Needed),
    ("interactive", None, Value::None),
    ("jobid", None, Value::Needed),
    ("job-name", Some('J'), Value::Needed),
    ("kill-on-bad-exit", Some('K'), Value::Optional),
    ("kill-on-invalid-dep", None, Value::Needed),
    ("label", Some('l'), Value::None),
    ("launch-cmd", None, Value::None),
    ("licenses", Some('L'), Value::Needed),
    ("mail-type", None, Value::Needed),
    ("mail-user", None, Value::Needed),
    ("mcs-label", None, Value::Needed),
    ("mem", None, Value::Needed),
    ("mem-bind", None, Value::Needed),
    ("mem-per-cpu", None, Value::Needed),
    ("mem-per-gpu", None, Value::Needed),
    ("mincpus", None, Value::Needed),
    ("mpi", None, Value::Needed),
    ("msg-timeout", None, Value::Needed),
    ("multi-prog", None, Value::None),
    ("network", None, Value::Needed),
    ("nice", None, Value::Optional),
    ("no-allocate", Some('Z'), Value::None),
    ("no-kill", Some('k'), Value::Optional),
    ("no-requeue", None, Value::None),
    ("nodefile", Some('F'), Value::Needed),
    ("nodelist", Some('w'), Value::Needed),
    ("nodes", Some('N'), Value::Needed),
    ("ntasks", Some('n'), Value::Needed),
    ("ntasks-per-core", None, Value::Needed),
    ("ntasks-per-gpu", None, Value::Needed),
    ("ntasks-per-node", None, Value::Needed),
    ("ntasks-per-socket", None, Value::Needed),
    ("tasks-per-node", None, Value::Needed),
    ("oom-kill-step", None, Value::Optional),
    ("open-mode", None, Value::Needed),
    ("output", Some('o'), Value::Needed),
    ("overcommit", Some('O'), Value::None),
    ("overlap", None, Value::None),
    ("pack-group", None, Value::Needed),
    ("oversubscribe", Some('s'), Value::Optional),
    ("share", None, Value::Optional),
    ("parsable", None, Value::None),
    ("partition", Some('p'), Value::Needed),
    ("power", None, Value::Needed),
    ("prefer", None, Value::Needed),
    ("preserve-env", Some('E'), Value::None),
    ("priority", None, Value::Needed),
    ("profile", None, Value::Needed),
    ("prolog", None, Value::Needed),
    ("propagate", None, Value::Optional),
    ("pty", None, Value::Optional),
    ("qos", Some('q'), Value::Needed),
    ("quiet", Some('Q'), Value::None),
    ("reboot", None, Value::None),
    ("relative", Some('r'), Value::Needed),
    ("requeue", None, Value::None),
    ("reservation", None, Value::Needed),
    ("resv-ports", None, Value::Optional),
    ("segment", None, Value::Needed),
    ("send-libs", None, Value::Optional),
    ("signal", None, Value::Needed),
    ("slurmd-debug", None, Value::Needed),
    ("sockets-per-node", None, Value::Needed),
    ("spread-job", None, Value::None),
    ("spread-segments", None, Value::None),
    ("stepmgr", None, Value::None),
    ("switches", None, Value::Needed),
    ("task-epilog", None, Value::Needed),
    ("task-prolog", None, Value::Needed),
    ("test-only", None, Value::None),
    ("thread-spec", None, Value::Needed),
    ("threads", Some('T'), Value::Needed),
    ("threads-per-core", None, Value::Needed),
    ("time", Some('t'), Value::Needed),
    ("time-min", None, Value::Needed),
    ("tmp", None, Value::Needed),
    ("tres-bind", None, Value::Needed),
    ("tres-per-task", None, Value::Needed),
    ("tree-width", None, Value::Needed),
    ("uid", None, Value::Needed),
    ("unbuffered", Some('u'), Value::None),
    ("usage", None, Value::None),
    ("use-min-nodes", None, Value::None),
    ("verbose", Some('v'), Value::None),
    ("version", Some('V'), Value::None),
    ("wait", Some('W'), Value::Needed),
    ("wait-all-nodes", None, Value::Needed),
    ("wckey", None, Value::Needed),
    ("whole", None, Value::None),
    ("wrap", None, Value::Needed),
    ("x11", None, Value::Optional),
];

/// Options that the pyxis plugin adds (NVIDIA/pyxis, args.c).
pub(super) const PYXIS: &[(&str, Value)] = &[
    ("container-image", Value::Needed),
    ("container-mounts", Value::Needed),
    ("container-workdir", Value::Needed),
    ("container-name", Value::Needed),
    ("container-save", Value::Needed),
    ("container-env", Value::Needed),
    ("container-mount-home", Value::None),
    ("no-container-mount-home", Value::None),
    ("container-remap-root", Value::None),
    ("no-container-remap-root", Value::None),
    ("container-entrypoint", Value::None),
    ("no-container-entrypoint", Value::None),
    ("container-entrypoint-log", Value::None),
    ("container-writable", Value::None),
    ("container-readonly", Value::None),
];

/// What is known of a long option; none for one that neither Slurm nor pyxis has.
pub(super) fn long(name: &str) -> Option<Value> {
    let slurm = SLURM.iter().find(|(known, _, _)| *known == name).map(|(_, _, value)| *value);
    slurm.or_else(|| PYXIS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value))
}

/// The long name of a short option, and whether it has a value.
pub(super) fn short(letter: char) -> Option<(&'static str, Value)> {
    SLURM.iter().find(|(_, known, _)| *known == Some(letter)).map(|(name, _, value)| (*name, *value))
}

/// One option as given.
#[derive(Debug, Clone)]
pub(super) struct Given {
    /// Its long name.
    pub name: String,
    /// Its value; none where it has none.
    pub value: Option<Field>,
    /// Where it stands.
    pub at: u32,
    /// Where it ends.
    pub end: u32,
}

/// Reads options from words, up to the first that is none; gives them and how many words they are.
pub(super) fn read(words: &[Field]) -> (Vec<Given>, usize) {
    let mut given = Vec::new();
    let mut index = 0;
    while let Some(word) = words.get(index) {
        let text = word.text.beginning();
        if text == "--" || !text.starts_with('-') || text.len() < 2 {
            break;
        }
        index += 1;
        let (name, value, inline) = match text.strip_prefix("--") {
            Some(name) => {
                let (name, inline) = match name.split_once('=') {
                    Some((name, _)) => (name, Some(name.len() + 3)),
                    None => (name, None),
                };
                let value = long(name).unwrap_or(Value::Optional);
                (name.to_owned(), value, inline)
            }
            None => {
                let letter = text.chars().nth(1).unwrap_or('-');
                let (name, value) = match short(letter) {
                    Some((name, value)) => (name.to_owned(), value),
                    None => (text.to_owned(), Value::None),
                };
                // -N2 and -N=2; several letters in one word are flags.
                let inline = (value != Value::None && word.text.len() > 2)
                    .then(|| if text.as_bytes().get(2) == Some(&b'=') { 3 } else { 2 });
                (name, value, inline)
            }
        };
        let mut end = word.end;
        let value = match inline {
            Some(start) => Some(word.part(start, word.text.len())),
            None if value == Value::Needed => {
                let next = words.get(index).cloned();
                index += usize::from(next.is_some());
                end = next.as_ref().map_or(end, |next| next.end);
                next
            }
            None => None,
        };
        let name = if name == "tasks-per-node" { "ntasks-per-node".to_owned() } else { name };
        given.push(Given { name, value, at: word.at, end });
    }
    (given, index)
}

/// The last option of a name.
pub(super) fn last<'a>(given: &'a [Given], name: &str) -> Option<&'a Given> {
    given.iter().rev().find(|option| option.name == name)
}

/// The number that the last option of a name gives.
pub(super) fn number(given: &[Given], name: &str) -> Option<u64> {
    last(given, name)?.value.as_ref()?.text.number()
}
