//! Who wrote a line: rank, node, GPU and process, from the marks that launchers and libraries put before it.

use serde::{Deserialize, Serialize};

/// Where a line comes from, or a failure belongs; what is not known is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Global rank, or the task of Slurm's step, which is the same where Slurm starts the ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Rank within its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// GPU: its number on the node, or its PCI address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Process id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u64>,
}

impl Origin {
    /// Rank, node, GPU and process in words.
    pub fn in_words(&self) -> String {
        let parts: Vec<String> = [
            self.rank.map(|rank| format!("rank {rank}")),
            self.local_rank.filter(|_| self.rank.is_none()).map(|rank| format!("local rank {rank}")),
            self.node.as_ref().map(|node| format!("node {node}")),
            self.gpu.as_ref().map(|gpu| format!("GPU {gpu}")),
            self.pid.map(|pid| format!("process {pid}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        if parts.is_empty() { "rank and node not known".to_owned() } else { parts.join(", ") }
    }

    /// Whether another may be an account of the same thing: nothing that both say differs.
    pub(super) fn agrees(&self, other: &Origin) -> bool {
        fn same<T: PartialEq>(one: &Option<T>, two: &Option<T>) -> bool {
            one.as_ref().zip(two.as_ref()).is_none_or(|(one, two)| one == two)
        }
        same(&self.rank, &other.rank)
            && same(&self.local_rank, &other.local_rank)
            && same(&self.node, &other.node)
            && same(&self.pid, &other.pid)
    }

    /// Fills what is absent from another account of the same thing.
    pub(super) fn or(mut self, other: &Origin) -> Origin {
        self.rank = self.rank.or(other.rank);
        self.local_rank = self.local_rank.or(other.local_rank);
        self.node = self.node.or_else(|| other.node.clone());
        self.gpu = self.gpu.or_else(|| other.gpu.clone());
        self.pid = self.pid.or(other.pid);
        self
    }
}

/// Kinds of lines that were seen, for what was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    /// `[rank3]:`
    RankMark,
    /// `3: `, of srun -l
    TaskMark,
    /// `[default3]:`, of torchrun --tee
    RoleMark,
    /// `host:pid:tid [gpu] NCCL`
    Nccl,
    /// `(Actor pid=1, ip=2)`
    Ray,
    /// `node01: `, of pdsh or clush
    NodeMark,
    /// Kernel messages
    Kernel,
    /// srun, sbatch, slurmstepd
    Slurm,
    /// PyTorch's C++ and launcher logs
    Torch,
    /// Python tracebacks
    Traceback,
    /// Steps of training
    Steps,
    /// Times at lines
    Times,
}

impl Format {
    /// As it is told.
    pub(super) fn name(self) -> &'static str {
        match self {
            Format::RankMark => "[rankN]: marks",
            Format::TaskMark => "srun -l task marks",
            Format::RoleMark => "torchrun --tee marks",
            Format::Nccl => "NCCL",
            Format::Ray => "Ray",
            Format::NodeMark => "node marks",
            Format::Kernel => "kernel",
            Format::Slurm => "Slurm",
            Format::Torch => "torchrun",
            Format::Traceback => "Python traceback",
            Format::Steps => "training steps",
            Format::Times => "times",
        }
    }
}

/// Reads the marks at the start of a line: who wrote it, where its message starts, and what kinds of marks there were.
pub(super) fn read(line: &str, seen: &mut dyn FnMut(Format)) -> (Origin, usize) {
    let mut origin = Origin::default();
    let mut at = 0;
    // More marks than this are no marks.
    for _ in 0..12 {
        at += line[at..].len() - line[at..].trim_start().len();
        let rest = &line[at..];
        let Some(length) = mark(rest, &mut origin, at == 0 || line[..at].trim().is_empty(), seen) else {
            break;
        };
        at += length;
    }
    (origin, at)
}

/// The length of the mark that `text` starts with.
fn mark(text: &str, origin: &mut Origin, first: bool, seen: &mut dyn FnMut(Format)) -> Option<usize> {
    match text.as_bytes().first()? {
        b'[' => bracket(text, origin, seen),
        b'(' => ray(text, origin, seen),
        b'0'..=b'9' => task(text, origin, seen).or_else(|| time(text, seen)),
        b'E' | b'W' | b'I' | b'F' => glog(text, seen),
        _ => stream(text)
            .or_else(|| if first { replica(text) } else { None })
            .or_else(|| nccl(text, origin, seen))
            .or_else(|| syslog(text, origin, seen))
            .or_else(|| kernel(text, origin, seen))
            .or_else(|| if first { node(text, origin, seen) } else { None }),
    }
}

/// `stderr: `, of accelerate's tests and of tools that show a child's streams.
fn stream(text: &str) -> Option<usize> {
    ["stderr: ", "stdout: "].iter().find(|mark| text.starts_with(**mark)).map(|mark| mark.len())
}

/// `trainer/0 ` of TorchX: role and replica.
fn replica(text: &str) -> Option<usize> {
    let role = text
        .bytes()
        .take(80)
        .take_while(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
        .count();
    let rest = text[role..].strip_prefix('/').filter(|_| role > 0)?;
    let (_, rest) = digits(rest)?;
    rest.starts_with(' ').then(|| text.len() - rest.len() + 1)
}

/// `[rank3]:`, `[Rank 3]`, `[default3]:`, `[2026-11-21 12:33:44]`, `[E1121 ... file.cpp:616]`, `[ERROR]`, `[PG ... Rank 5]`.
fn bracket(text: &str, origin: &mut Origin, seen: &mut dyn FnMut(Format)) -> Option<usize> {
    let end = text.bytes().take(160).position(|byte| byte == b']')?;
    let inner = &text[1..end];
    let length = end + 1 + usize::from(text[end + 1..].starts_with(':'));
    let lower = inner.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("rank") {
        let rest = rest.trim_start_matches([' ', ':', '=', '_']);
        let (rank, after) = digits(rest)?;
        // `[rank: 3 of 8]`, `[rank0 | ...]`
        if after.is_empty() || after.starts_with([' ', ',', '/', '|']) {
            origin.rank = origin.rank.or(Some(rank));
            seen(Format::RankMark);
            return Some(length);
        }
        return None;
    }
    // `[1,3]<stdout>:` of mpirun: job and rank
    if let Some((_, rank)) = inner.split_once(',')
        && let Some((rank, "")) = digits(rank)
        && let Some(stream) =
            ["<stdout>:", "<stderr>:"].iter().find(|stream| text[end + 1..].starts_with(**stream))
    {
        origin.rank = origin.rank.or(Some(rank));
        seen(Format::RankMark);
        return Some(end + 1 + stream.len());
    }
    if super::stamp::stamp_in(inner).is_some() {
        seen(Format::Times);
        if let Some(rank) = rank_in_text(inner) {
            origin.rank = origin.rank.or(Some(rank));
        }
        return Some(length);
    }
    if let Some(rank) = rank_in_text(inner) {
        // `[PG ID 1 PG GUID 1 Rank 5]`, `[NeMo E 12:00:00 rank:3]`
        origin.rank = origin.rank.or(Some(rank));
        return Some(length);
    }
    let role = inner.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let is_role = matches!(role, "default" | "trainer" | "worker" | "actor" | "learner" | "host");
    if is_role && let Some((local, "")) = digits(&inner[role.len()..]) {
        origin.local_rank = origin.local_rank.or(Some(local));
        seen(Format::RoleMark);
        return Some(length);
    }
    let is_level = matches!(
        lower.trim(),
        "error" | "warning" | "warn" | "info" | "debug" | "critical" | "fatal" | "stderr" | "stdout"
    );
    let is_kernel_time = inner.trim().split_once('.').is_some_and(|(whole, part)| {
        !whole.is_empty() && whole.bytes().chain(part.bytes()).all(|byte| byte.is_ascii_digit())
    });
    if is_kernel_time {
        seen(Format::Kernel);
    }
    let is_cpp = inner.starts_with("E ") || inner.starts_with("W ") || inner.starts_with("I ");
    // `[148] `: a line's number, of hosts that show logs so. torchrun numbers failures as `[0]:`.
    let is_number = inner.len() <= 9
        && inner.bytes().all(|byte| byte.is_ascii_digit())
        && text[end + 1..].starts_with(' ');
    (is_level || is_kernel_time || is_cpp || is_number).then_some(length)
}

/// The rank that a text names: `Rank 11: found`, `on rank 3 at`, `rank=3`.
pub(super) fn rank_in_text(text: &str) -> Option<u32> {
    // DeepEP counts within its group of experts.
    if text.contains("DeepEP ") {
        return None;
    }
    text.match_indices("ank").find_map(|(place, _)| rank_at(text, place))
}

/// The number behind the word rank, whose last three letters are at `place`.
fn rank_at(text: &str, place: usize) -> Option<u32> {
    let word = text[..place].strip_suffix(['r', 'R'])?;
    if word.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_') {
        return None;
    }
    // Whom a line accuses is not who wrote it.
    if word.ends_with("crash on ") || word.ends_with("another ") {
        return None;
    }
    let rest = text[place + 3..].trim_start_matches([' ', ':', '=', '#', '[', '_']);
    digits(rest).map(|(rank, _)| rank)
}

/// `(TrainActor pid=123, ip=10.0.0.1)`.
fn ray(text: &str, origin: &mut Origin, seen: &mut dyn FnMut(Format)) -> Option<usize> {
    let end = text.bytes().take(200).position(|byte| byte == b')')?;
    // Names of actors have brackets of their own.
    let end = if text[..end].contains("pid=") {
        end
    } else {
        end + 1 + text[end + 1..].bytes().take(200).position(|byte| byte == b')')?
    };
    let inner = &text[..end];
    let (pid, _) = long_digits(inner.split_once("pid=")?.1)?;
    origin.pid = origin.pid.or(Some(pid));
    if let Some((_, ip)) = inner.split_once("ip=") {
        let ip: String = ip
            .chars()
            .take_while(|letter| letter.is_ascii_alphanumeric() || ".:-_".contains(*letter))
            .collect();
        origin.node = origin.node.take().or(Some(ip));
    }
    seen(Format::Ray);
    Some(end + 1)
}

/// `3: ` or ` 3:` alone.
fn task(text: &str, origin: &mut Origin, seen: &mut dyn FnMut(Format)) -> Option<usize> {
    let (rank, rest) = digits(text)?;
    let length = text.len() - rest.len();
    let rest = rest.strip_prefix(':')?;
    if length > 6 || !(rest.is_empty() || rest.starts_with(' ')) {
        return None;
    }
    origin.rank = origin.rank.or(Some(rank));
    seen(Format::TaskMark);
    Some(length + 1)
}

/// `2026-11-21 12:33:44,123`, with what container runtimes put behind it.
fn time(text: &str, seen: &mut dyn FnMut(Format)) -> Option<usize> {
    let bytes = text.as_bytes();
    if !(bytes.len() >= 19 && matches!(bytes[4], b'-' | b'/') && matches!(bytes[10], b' ' | b'T')) {
        return None;
    }
    super::stamp::stamp_in(text.get(..19)?)?;
    seen(Format::Times);
    let mut end = 19;
    end += bytes[end..].iter().take_while(|byte| byte.is_ascii_digit() || b".,Z+:".contains(byte)).count();
    for stream in [" stdout F ", " stderr F ", " stdout P ", " stderr P "] {
        if text[end..].starts_with(stream) {
            end += stream.len();
        }
    }
    // Levels of Python's logging stand free.
    let rest = text[end..].trim_start_matches([' ', '-', '|']);
    for level in ["ERROR", "WARNING", "INFO", "CRITICAL"] {
        if let Some(message) = rest.strip_prefix(level) {
            return Some(text.len() - message.trim_start_matches([' ', ':', '-', '|', ']']).len());
        }
    }
    Some(end)
}

/// `E1121 12:33:44.123456 1234 torch/distributed/elastic/multiprocessing/api.py:869]`.
fn glog(text: &str, seen: &mut dyn FnMut(Format)) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.len() < 20 || !bytes[1..5].iter().all(u8::is_ascii_digit) || bytes[5] != b' ' {
        return None;
    }
    super::stamp::stamp_in(text.get(..15)?)?;
    seen(Format::Times);
    let end = text.bytes().take(220).position(|byte| byte == b']')?;
    if text[..end].contains("torch/distributed") {
        seen(Format::Torch);
    }
    Some(end + 1)
}

/// `node01:1234:5678 [3]`.
fn nccl(text: &str, origin: &mut Origin, seen: &mut dyn FnMut(Format)) -> Option<usize> {
    let (host, rest) = text.split_once(':')?;
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= 80
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    if !is_name(host) {
        return None;
    }
    let (pid, rest) = long_digits(rest)?;
    let (_, rest) = long_digits(rest.strip_prefix(':')?)?;
    let rest = rest.trim_start().strip_prefix('[')?;
    let (gpu, rest) = digits(rest)?;
    let rest = rest.strip_prefix(']')?;
    origin.node = origin.node.take().or_else(|| Some(host.to_owned()));
    origin.pid = origin.pid.or(Some(pid));
    origin.gpu = origin.gpu.take().or_else(|| Some(gpu.to_string()));
    seen(Format::Nccl);
    Some(text.len() - rest.len())
}

/// `Nov 21 12:33:44 node01 kernel:`.
fn syslog(text: &str, origin: &mut Origin, seen: &mut dyn FnMut(Format)) -> Option<usize> {
    super::stamp::stamp_in(text.get(..15)?)?;
    let rest = text[15..].strip_prefix(' ')?;
    let (host, rest) = rest.split_once(' ')?;
    seen(Format::Times);
    let rest = match rest.strip_prefix("kernel:") {
        Some(rest) => {
            seen(Format::Kernel);
            origin.node = origin.node.take().or_else(|| Some(host.to_owned()));
            rest
        }
        None => return Some(16),
    };
    Some(text.len() - rest.len())
}

/// `node01 kernel:`, behind a time of another form.
fn kernel(text: &str, origin: &mut Origin, seen: &mut dyn FnMut(Format)) -> Option<usize> {
    let (host, rest) = text.split_once(' ')?;
    let rest = rest.strip_prefix("kernel:")?;
    let is_host = (1..=64).contains(&host.len())
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_host {
        return None;
    }
    origin.node = origin.node.take().or_else(|| Some(host.to_owned()));
    seen(Format::Kernel);
    Some(text.len() - rest.len())
}

/// `node01: `: a name in lower case that has a digit. Names of programs and files are not nodes.
fn node(text: &str, origin: &mut Origin, seen: &mut dyn FnMut(Format)) -> Option<usize> {
    let (host, rest) = text.split_once(": ")?;
    let is_host = host.len() <= 64
        && host.starts_with(|letter: char| letter.is_ascii_lowercase())
        && host
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
        && host.bytes().any(|byte| byte.is_ascii_digit());
    let is_program =
        ["python", "slurmstepd", "srun", "sbatch", "bash", "lib", "cuda", "torch", "sh", "pip", "mlx"]
            .iter()
            .any(|name| host.starts_with(name))
            || host.contains(".so")
            || host.ends_with(".sh")
            || host.ends_with(".py");
    if !is_host || is_program {
        return None;
    }
    origin.node = origin.node.take().or_else(|| Some(host.to_owned()));
    seen(Format::NodeMark);
    Some(text.len() - rest.len() - 1)
}

/// A number of at most seven digits, and what follows.
pub(super) fn digits(text: &str) -> Option<(u32, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    (1..=7)
        .contains(&length)
        .then(|| text[..length].parse().ok().map(|number| (number, &text[length..])))
        .flatten()
}

/// A number of any length that fits.
pub(super) fn long_digits(text: &str) -> Option<(u64, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    (length > 0).then(|| text[..length].parse().ok().map(|number| (number, &text[length..]))).flatten()
}

/// Rank or node of a whole file, from its name: `rank_3.log`, `attempt_0/3/stderr.log`, `log-123_task5.out`.
pub(super) fn of_file(name: &str) -> Origin {
    let mut origin = Origin::default();
    let lower = name.to_ascii_lowercase();
    let parts: Vec<&str> = lower.split(['/', '\\']).collect();
    for word in ["rank", "task", "proc"] {
        if let Some((_, rest)) = parts.last().and_then(|last| last.rsplit_once(word))
            && let Some((rank, _)) = digits(rest.trim_start_matches(['_', '-', '.', '=']))
        {
            let is_local =
                parts.last().is_some_and(|last| last.contains("local_rank") || last.contains("localrank"));
            *(if is_local { &mut origin.local_rank } else { &mut origin.rank }) = Some(rank);
            return origin;
        }
    }
    // torchrun --log-dir: attempt_0/3/stderr.log
    if let [.., folder, "stderr.log" | "stdout.log"] = parts[..]
        && let Some((local, "")) = digits(folder)
    {
        origin.local_rank = Some(local);
    }
    origin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, rank: Option<u32>, local: Option<u32>, node: Option<&str>, message: &str) {
        let (origin, at) = read(line, &mut |_| {});
        assert_eq!((origin.rank, origin.local_rank, origin.node.as_deref()), (rank, local, node), "{line}");
        assert_eq!(line[at..].trim(), message, "{line}");
    }

    #[test]
    fn marks_are_read() {
        check("[rank3]: ValueError: x", Some(3), None, None, "ValueError: x");
        check(" 3: [rank12]: x", Some(3), None, None, "x");
        check("15: x", Some(15), None, None, "x");
        check("[default5]:RuntimeError: x", None, Some(5), None, "RuntimeError: x");
        check("[rank: 2] x", Some(2), None, None, "x");
        check(
            "[rank5]:[E1121 12:33:44.123456789 ProcessGroupNCCL.cpp:616] [Rank 5] Watchdog",
            Some(5),
            None,
            None,
            "Watchdog",
        );
        check(
            "[2026-11-21 12:33:44] node-1:77:99 [2] misc/x.cc:1 NCCL WARN y",
            None,
            None,
            Some("node-1"),
            "misc/x.cc:1 NCCL WARN y",
        );
        check("gpu07: x", None, None, Some("gpu07"), "x");
        check("(Actor(train-1) pid=18, ip=10.0.0.4) x", None, None, Some("10.0.0.4"), "x");
        check("[  123.456789] NVRM: x", None, None, None, "NVRM: x");
        check("Nov 21 12:33:44 node9 kernel: NVRM: x", None, None, Some("node9"), "NVRM: x");
        check("2026-11-21T12:33:44.123Z node9 kernel: NVRM: x", None, None, Some("node9"), "NVRM: x");
        check("[1,3]<stdout>:gpu-1:30:90 [0] x", Some(3), None, Some("gpu-1"), "x");
        check("trainer/0 [default1]:[rank9]: KeyError: 'x'", Some(9), Some(1), None, "KeyError: 'x'");
        check("[148] KeyError: 'x'", None, None, None, "KeyError: 'x'");
        check("stderr:   rank      : 1", None, None, None, "rank      : 1");
        check("2026-11-21 12:33:44,123 - ERROR - boom", None, None, None, "boom");
        check(
            "E1121 12:33:44.123000 77 torch/distributed/elastic/x.py:874] failed",
            None,
            None,
            None,
            "failed",
        );
        check("python3: can't open file", None, None, None, "python3: can't open file");
        check("ValueError: 3", None, None, None, "ValueError: 3");
        check("2026: a year", Some(2026), None, None, "a year");
    }

    #[test]
    fn ranks_in_texts() {
        assert_eq!(rank_in_text("AssertionError: Rank 11: found NaN"), Some(11));
        assert_eq!(rank_in_text("Unexpected result nan on rank 3 at iteration"), Some(3));
        assert_eq!(rank_in_text("possible application crash on rank 0"), None);
        assert_eq!(rank_in_text("memory bank 3"), None);
        assert_eq!(rank_in_text("é rank=7"), Some(7));
    }

    #[test]
    fn files_name_ranks() {
        assert_eq!(of_file("logs/rank_12.log").rank, Some(12));
        assert_eq!(of_file("run/attempt_0/3/stderr.log").local_rank, Some(3));
        assert_eq!(of_file("slurm-123.out"), Origin::default());
    }
}
