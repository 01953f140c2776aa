//! How values of sbatch's options are written: one table, which rules hold directives against.
//!
//! It takes what any Slurm from 22.05 to 24.05 does; what only some sites or later releases know is let through.

/// How a value is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// A whole number from 1.
    Count,
    /// A whole number from 0.
    Whole,
    /// `N`, `MIN-MAX`, or a list of sizes.
    Nodes,
    /// A number with a unit or without.
    Memory,
    /// `NAME[:TYPE][:COUNT]`, some between commas.
    Gres,
    /// `[TYPE:]COUNT`, some between commas.
    Gpus,
    /// One of these.
    Word(&'static [&'static str]),
    /// Some of these, between commas.
    Words(&'static [&'static str]),
    /// Some words between commas, of which one at least is one of these.
    Among(&'static [&'static str]),
    /// Anything that begins with the first letter of one of these.
    Begins(&'static [&'static str]),
    /// How tasks are dealt out to nodes, sockets and cores.
    Distribution,
    /// Which GPUs a task is bound to.
    GpuBind,
    /// `[B:]NAME[@SECONDS]`.
    Signal,
    /// `COUNT[@TIME]`.
    Switches,
    /// A date, or a time of day.
    Moment,
}

/// Options whose values have a form that is known.
const FORMS: &[(&str, Form)] = &[
    ("ntasks", Form::Count),
    ("ntasks-per-node", Form::Count),
    ("ntasks-per-socket", Form::Count),
    ("ntasks-per-core", Form::Count),
    ("ntasks-per-gpu", Form::Count),
    ("cpus-per-task", Form::Count),
    ("cpus-per-gpu", Form::Count),
    ("threads-per-core", Form::Count),
    ("cores-per-socket", Form::Count),
    ("sockets-per-node", Form::Count),
    ("mincpus", Form::Count),
    ("core-spec", Form::Whole),
    ("thread-spec", Form::Whole),
    ("nodes", Form::Nodes),
    ("mem", Form::Memory),
    ("mem-per-cpu", Form::Memory),
    ("mem-per-gpu", Form::Memory),
    ("tmp", Form::Memory),
    ("gres", Form::Gres),
    ("gpus", Form::Gpus),
    ("gpus-per-node", Form::Gpus),
    ("gpus-per-task", Form::Gpus),
    ("gpus-per-socket", Form::Gpus),
    (
        "mail-type",
        Form::Among(&[
            "NONE",
            "BEGIN",
            "END",
            "FAIL",
            "REQUEUE",
            "ALL",
            "INVALID_DEPEND",
            "STAGE_OUT",
            "TIME_LIMIT",
            "TIME_LIMIT_90",
            "TIME_LIMIT_80",
            "TIME_LIMIT_50",
            "ARRAY_TASKS",
        ]),
    ),
    ("hint", Form::Words(&["compute_bound", "memory_bound", "multithread", "nomultithread", "help"])),
    ("profile", Form::Among(&["all", "none", "energy", "task", "lustre", "filesystem", "network"])),
    ("exclusive", Form::Word(&["user", "mcs", "topo", "exclusive"])),
    ("kill-on-invalid-dep", Form::Word(&["yes", "no"])),
    ("no-kill", Form::Word(&["off", "no"])),
    ("wait-all-nodes", Form::Word(&["0", "1"])),
    ("open-mode", Form::Begins(&["append", "truncate"])),
    ("distribution", Form::Distribution),
    ("gpu-bind", Form::GpuBind),
    ("signal", Form::Signal),
    ("switches", Form::Switches),
    ("begin", Form::Moment),
    ("deadline", Form::Moment),
];

/// Options of which sbatch takes one at most.
pub(super) const EXCLUSIVE: &[(&str, &str)] = &[
    ("mem", "mem-per-cpu"),
    ("mem", "mem-per-gpu"),
    ("mem-per-cpu", "mem-per-gpu"),
    ("ntasks-per-node", "ntasks-per-gpu"),
    ("gpus-per-task", "ntasks-per-gpu"),
];

/// Signals by the names that are known, without SIG.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// The longest time before a limit at which Slurm can signal a job.
const MOST_SECONDS: u64 = 65535;

/// The form of an option's values.
pub(super) fn of(name: &str) -> Option<Form> {
    FORMS.iter().find(|(known, _)| *known == name).map(|(_, form)| *form)
}

impl Form {
    /// Whether sbatch takes a value.
    pub(super) fn takes(self, value: &str) -> bool {
        let lower = value.to_ascii_lowercase();
        let is_one_of = |words: &[&str], text: &str| words.iter().any(|word| word.eq_ignore_ascii_case(text));
        match self {
            Form::Count => whole(value).is_some_and(|count| count > 0),
            Form::Whole => whole(value).is_some(),
            Form::Nodes => takes_nodes(&lower),
            Form::Memory => {
                let rest =
                    lower.trim_start_matches('+').trim_start_matches(|next: char| next.is_ascii_digit());
                let has_number =
                    lower.trim_start_matches('+').starts_with(|next: char| next.is_ascii_digit());
                let unit = rest.strip_suffix('b').filter(|unit| !unit.is_empty()).unwrap_or(rest);
                has_number && matches!(unit, "" | "k" | "m" | "g" | "t" | "p")
            }
            Form::Gres => matches!(lower.as_str(), "none" | "help") || are_alike(value, resource),
            Form::Gpus => are_alike(value, gpus),
            Form::Word(words) => is_one_of(words, value),
            Form::Words(words) => value.split(',').all(|word| is_one_of(words, word)),
            Form::Among(words) => value.split(',').any(|word| is_one_of(words, word)),
            Form::Begins(words) => words.iter().any(|word| lower.starts_with(&word[..1])),
            Form::Distribution => takes_distribution(&lower),
            Form::GpuBind => {
                let bind =
                    ["verbose,", "v,", "quiet,", "q,"].iter().find_map(|said| lower.strip_prefix(said));
                let bind = bind.unwrap_or(&lower);
                matches!(bind, "none" | "closest")
                    || ["single:", "per_task:", "map", "mask"].iter().any(|kind| bind.starts_with(kind))
                        && bind.contains(':')
            }
            Form::Signal => takes_signal(value),
            Form::Switches => {
                let count = value.split('@').next().and_then(whole);
                count.is_some_and(|count| count > 0)
            }
            Form::Moment => takes_moment(&lower),
        }
    }

    /// How a value is written, for people.
    pub(super) fn described(self, name: &str) -> String {
        match self {
            Form::Count => format!("write a whole number from 1, as in --{name}=8"),
            Form::Whole => format!("write a whole number, as in --{name}=0"),
            Form::Nodes => "write a number, or the least and the most, as in --nodes=2-4".to_owned(),
            Form::Memory => {
                format!("write a whole number with K, M, G or T, as in --{name}=64G; --mem=0 is all that a node has")
            }
            Form::Gres => "write NAME:COUNT or NAME:TYPE:COUNT, as in --gres=gpu:8 or --gres=gpu:h100:8".to_owned(),
            Form::Gpus => format!("write COUNT or TYPE:COUNT, as in --{name}=8 or --{name}=h100:8"),
            Form::Word(words) | Form::Begins(words) => format!("take one of {}", words.join(", ")),
            Form::Words(words) | Form::Among(words) => format!("take some of {}, with commas between", words.join(", ")),
            Form::Distribution => {
                "write block, cyclic or plane=SIZE for nodes, then block, cyclic or fcyclic for sockets and for cores, as in block:cyclic".to_owned()
            }
            Form::GpuBind => {
                "write none, closest, single:TASKS, per_task:GPUS, map_gpu:LIST or mask_gpu:LIST".to_owned()
            }
            Form::Signal => format!(
                "write [B:]NAME[@SECONDS], with seconds up to {MOST_SECONDS}, as in --signal=B:USR1@120"
            ),
            Form::Switches => "write COUNT[@TIME], as in --switches=1@2:00:00".to_owned(),
            Form::Moment => format!(
                "write a time as Slurm reads it: --{name}=16:00, --{name}=now+2hours, --{name}=tomorrow or --{name}=2030-01-20T12:00:00"
            ),
        }
    }

    /// What was meant, where one value is near.
    pub(super) fn nearest(self, value: &str) -> Option<String> {
        // What is as long is no word with a few letters more.
        if value.len() > 200 {
            return None;
        }
        match self {
            Form::Word(words) | Form::Begins(words) => near(words, value),
            Form::Words(words) | Form::Among(words) => {
                let word = |text: &str| {
                    let known = words.iter().any(|word| word.eq_ignore_ascii_case(text));
                    if known { Some(text.to_owned()) } else { near(words, text) }
                };
                value.split(',').map(word).collect::<Option<Vec<_>>>().map(|words| words.join(","))
            }
            Form::Memory => memory(value),
            Form::Gres => {
                let part = |part: &str| {
                    let part = part.trim().replace('=', ":");
                    let (name, rest) = part.split_once(':').unwrap_or((&part, ""));
                    let name = if name.eq_ignore_ascii_case("gpus") { "gpu" } else { name };
                    // A number, or a kind of GPU, alone.
                    let is_number = whole(name).is_some();
                    let rest = if is_number && rest.is_empty() { name } else { rest };
                    let name = if is_number { "gpu" } else { name };
                    let colon = if rest.is_empty() { "" } else { ":" };
                    format!("{}{colon}{rest}", name.to_ascii_lowercase())
                };
                Some(value.split(',').map(part).collect::<Vec<_>>().join(","))
            }
            Form::Gpus => {
                let bare = value.strip_prefix("gpu:").unwrap_or(value).trim_start_matches(':');
                Some(bare.replace('=', ":"))
            }
            _ => None,
        }
    }
}

/// The one word that a few letters more or less make of a text.
fn near(words: &[&str], text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let is_near = |word: &&&str| strsim::damerau_levenshtein(&word.to_ascii_lowercase(), &lower) <= 1;
    let mut found = words.iter().filter(is_near).filter(|word| word.len() > 3);
    let first = found.next()?;
    found.next().is_none().then(|| (*first).to_owned())
}

/// An amount of memory in units that Slurm has: `64GiB`, `1.5G`.
fn memory(value: &str) -> Option<String> {
    let digits = value.find(|next: char| !next.is_ascii_digit() && next != '.')?;
    let (number, unit) = value.split_at(digits);
    let unit = unit.to_ascii_uppercase();
    let unit = unit.trim_end_matches('B').trim_end_matches('I');
    let units = ["K", "M", "G", "T"];
    let at = units.iter().position(|known| *known == unit)?;
    match number.split_once('.') {
        None => number.parse::<u64>().ok().map(|number| format!("{number}{unit}")),
        Some((whole, part)) => {
            let part = Some(part).filter(|part| (1..=3).contains(&part.len()))?;
            let scale = 10u64.pow(u32::try_from(part.len()).ok()?);
            let number = whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(part.parse().ok()?)?;
            let smaller = at.checked_sub(1).and_then(|at| units.get(at))?;
            Some(format!("{}{smaller}", number.checked_mul(1024)? / scale))
        }
    }
}

fn whole(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let is_number = (1..=10).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Whether all parts of a list are read, and either all or none of those of one name have a type.
fn are_alike(value: &str, read: impl Fn(&str) -> Option<(&str, bool)>) -> bool {
    let parts: Option<Vec<_>> = value.split(',').map(read).collect();
    parts.is_some_and(|parts| {
        parts.iter().all(|(name, typed)| parts.iter().all(|(other, its)| other != name || its == typed))
    })
}

/// A generic resource without what newer releases write before it, and without the sockets behind it: `gres/gpu:8(S:0-1)`.
pub(super) fn bare_resource(part: &str) -> &str {
    let part = part.split('(').next().unwrap_or(part);
    part.strip_prefix("gres/").or_else(|| part.strip_prefix("gres:")).unwrap_or(part)
}

/// The name of a generic resource, and whether a type is said.
fn resource(part: &str) -> Option<(&str, bool)> {
    let part = bare_resource(part);
    let (name, rest) = part.split_once(':').map_or((part, None), |(name, rest)| (name, Some(rest)));
    let is_name = name.starts_with(|next: char| next.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        && !name.eq_ignore_ascii_case("gpus")
        && (name == "gpu" || !name.eq_ignore_ascii_case("gpu"));
    let typed = rest.map_or(Some(false), kind_and_count);
    typed.filter(|_| is_name).map(|typed| (name, typed))
}

fn gpus(part: &str) -> Option<(&str, bool)> {
    kind_and_count(part.strip_prefix("gpu:").filter(|rest| !rest.contains(':')).unwrap_or(part))
        .map(|typed| ("gpu", typed))
}

/// Whether `COUNT`, `TYPE` or `TYPE:COUNT` says a type; none where it is none of these, or a count that sbatch takes for a type of
/// which there is one: `8x`, `1.5`, `h100=8`.
fn kind_and_count(text: &str) -> Option<bool> {
    let is_count = |text: &str| {
        let digits = text.strip_suffix(['k', 'm', 'g', 't', 'p', 'K', 'M', 'G', 'T', 'P']).unwrap_or(text);
        whole(digits).is_some()
    };
    // A slice of a GPU begins with a number, too: `1g.5gb`.
    let is_kind = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.+".contains(&byte))
            && (text.starts_with(|next: char| next.is_ascii_alphabetic()) || text.contains("g."))
    };
    match text.split_once(':') {
        None => Some(!is_count(text)).filter(|typed| !typed || is_kind(text)),
        Some((kind, count)) => Some(true).filter(|_| is_kind(kind) && is_count(count)),
    }
}

/// A number of nodes, which may stand for thousands or millions.
fn count_of_nodes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' => (text.strip_suffix('k')?, 1024),
        b'm' => (text.strip_suffix('m')?, 1024 * 1024),
        _ => (text, 1),
    };
    whole(digits)?.checked_mul(unit)
}

/// The most nodes that a value asks for, where it says one number or a range.
pub(super) fn most_nodes(value: &str) -> Option<u64> {
    let last = value.split_once('-').map_or(value, |(_, most)| most);
    count_of_nodes(&last.to_ascii_lowercase())
}

fn takes_nodes(lower: &str) -> bool {
    match lower.split_once('-').map(|(least, most)| (count_of_nodes(least), count_of_nodes(most))) {
        Some((Some(least), Some(most))) => least <= most,
        // Lists and steps came later than 22.05.
        _ => {
            lower.bytes().all(|byte| byte.is_ascii_digit() || b"-,:+km".contains(&byte))
                && lower.bytes().any(|byte| byte.is_ascii_digit())
        }
    }
}

fn takes_distribution(lower: &str) -> bool {
    let mut parts = lower.split(',');
    let levels = parts.next().unwrap_or_default();
    let packs = |text: &str| matches!(text, "pack" | "nopack");
    let first = |text: &str| {
        matches!(text, "*" | "block" | "cyclic" | "arbitrary" | "plane") || text.starts_with("plane=")
    };
    let later = |text: &str| matches!(text, "*" | "block" | "cyclic" | "fcyclic");
    let are_levels = levels.split(':').enumerate().all(|(index, level)| match index {
        0 => first(level),
        1 | 2 => later(level),
        _ => false,
    });
    (packs(levels) || are_levels) && parts.all(packs)
}

fn takes_signal(value: &str) -> bool {
    let upper = value.to_ascii_uppercase();
    let (flags, rest) = upper.split_once(':').unwrap_or(("", &upper));
    let (name, seconds) = rest.split_once('@').unwrap_or((rest, ""));
    let is_number = whole(name).is_some_and(|number| number > 0);
    flags.bytes().all(|flag| matches!(flag, b'B' | b'R'))
        && (is_number || SIGNALS.contains(&name.strip_prefix("SIG").unwrap_or(name)))
        && (seconds.is_empty() || whole(seconds).is_some_and(|seconds| seconds <= MOST_SECONDS))
}

/// Times of the forms that begin with a word; what begins with a number is let through.
fn takes_moment(lower: &str) -> bool {
    let end = lower.find(|next: char| !next.is_ascii_alphabetic()).unwrap_or(lower.len());
    let (word, rest) = lower.split_at(end);
    match word {
        "" | "today" | "tomorrow" | "midnight" | "noon" | "fika" | "teatime" | "elevenses" => true,
        "now" => {
            let unit = rest.trim_start_matches(|next: char| !next.is_ascii_alphabetic());
            let one = unit.strip_suffix('s').unwrap_or(unit);
            matches!(one, "" | "second" | "minute" | "hour" | "day" | "week")
        }
        _ => false,
    }
}

/// How many hosts a list names, with ranges in brackets; none for a file, and for what can't be counted.
pub(super) fn hosts(list: &str) -> Option<u64> {
    if list.contains(['/', '$', '<', '*']) || list.is_empty() {
        return None;
    }
    let mut total = 0u64;
    let mut rest = list;
    while !rest.is_empty() {
        // One name ends at a comma outside of brackets.
        let mut depth = 0u32;
        let end = rest.bytes().position(|byte| {
            match byte {
                b'[' => depth += 1,
                b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            byte == b',' && depth == 0
        });
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after.strip_prefix(',').unwrap_or(after);
        let mut count = 1u64;
        let mut brackets = name.split('[');
        brackets.next()?;
        for bracket in brackets {
            let (ranges, _) = bracket.split_once(']')?;
            let range = |range: &str| match range.split_once('-') {
                Some((from, to)) => {
                    to.parse::<u64>().ok()?.checked_sub(from.parse::<u64>().ok()?)?.checked_add(1)
                }
                None => range.parse::<u64>().ok().map(|_| 1),
            };
            let of_bracket =
                ranges.split(',').map(range).try_fold(0u64, |sum, part| sum.checked_add(part?))?;
            count = count.checked_mul(of_bracket)?;
        }
        total = total.checked_add(count)?;
    }
    Some(total)
}
