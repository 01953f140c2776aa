//! The training program inside a command line: through srun, env, bash -c, uv, torchrun, python and the like.
//!
//! Options are those of the tools' own help: Slurm 24.05 `srun`, torch 2.11 `torch.distributed.run`, DeepSpeed 0.17
//! `deepspeed`, Accelerate 1.x `accelerate launch`, uv 0.9 `uv run`.

use std::borrow::Cow;

/// Layers that are looked through.
const MOST_LAYERS: usize = 16;
/// Words that are looked at.
const MOST_WORDS: usize = 8192;

/// What a command line starts in the end, and on how many processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launched {
    /// The script or module, and its arguments.
    pub words: Vec<String>,
    /// Nodes, where a launcher says so.
    pub nodes: Option<u64>,
    /// Processes of a node, where a launcher says so.
    pub processes_per_node: Option<u64>,
    /// Variables that are set on the way.
    pub environment: Vec<(String, String)>,
}

/// How a launcher writes the options that matter here.
struct Options {
    /// Options that have no value of their own.
    flags: &'static [&'static str],
    /// Options for the number of nodes.
    nodes: &'static [&'static str],
    /// Options for processes a node.
    per_node: &'static [&'static str],
    /// Options for processes in all.
    processes: &'static [&'static str],
}

const SRUN: Options = Options {
    flags: &[
        "-l",
        "--label",
        "-u",
        "--unbuffered",
        "-K",
        "--kill-on-bad-exit",
        "-k",
        "--no-kill",
        "-Q",
        "--quiet",
        "-v",
        "--verbose",
        "-O",
        "--overcommit",
        "-s",
        "--oversubscribe",
        "--overlap",
        "--exclusive",
        "--exact",
        "--pty",
        "-E",
        "--preserve-env",
        "-X",
        "--disable-status",
        "--container-writable",
        "--container-readonly",
        "--no-container-mount-home",
        "--container-mount-home",
        "--container-remap-root",
        "--no-container-remap-root",
        "--no-container-entrypoint",
        "--container-entrypoint",
        "--use-min-nodes",
        "--multi-prog",
        "-H",
        "--hold",
        "-Z",
        "--no-allocate",
        "--contiguous",
        "--spread-job",
    ],
    nodes: &["-N", "--nodes"],
    per_node: &["--ntasks-per-node", "--tasks-per-node"],
    processes: &["-n", "--ntasks"],
};

const TORCHRUN: Options = Options {
    flags: &[
        "--standalone",
        "-m",
        "--module",
        "--no-python",
        "--no_python",
        "--run-path",
        "--run_path",
        "--use-env",
        "--use_env",
        "--signals-to-handle",
    ],
    nodes: &["--nnodes"],
    per_node: &["--nproc-per-node", "--nproc_per_node"],
    processes: &[],
};

const DEEPSPEED: Options = Options {
    flags: &[
        "--module",
        "--no_python",
        "--no_local_rank",
        "--no_ssh",
        "--no_ssh_check",
        "--force_multi",
        "--bind_cores_to_rank",
        "--save_pid",
    ],
    nodes: &["--num_nodes"],
    per_node: &["--num_gpus", "--num_accelerators"],
    processes: &[],
};

const ACCELERATE: Options = Options {
    flags: &[
        "--multi_gpu",
        "--multi-gpu",
        "--cpu",
        "-m",
        "--module",
        "--no_python",
        "--no-python",
        "--use_deepspeed",
        "--use_fsdp",
        "--use_megatron_lm",
        "-q",
        "--quiet",
        "--debug",
    ],
    nodes: &["--num_machines", "--num-machines"],
    per_node: &[],
    processes: &["--num_processes", "--num-processes"],
};

const UV: Options = Options {
    flags: &[
        "--no-sync",
        "--frozen",
        "--locked",
        "--isolated",
        "--active",
        "--no-project",
        "--no-dev",
        "--dev",
        "--all-extras",
        "--offline",
        "-q",
        "--quiet",
        "-v",
        "--verbose",
        "--exact",
        "--no-cache",
        "--refresh",
        "--no-env-file",
        "-s",
        "--script",
        "-m",
        "--module",
        "--all-packages",
        "--no-config",
        "--upgrade",
        "--native-tls",
        "--managed-python",
        "--no-editable",
    ],
    nodes: &[],
    per_node: &[],
    processes: &[],
};

/// Looks through a command line. What nothing here knows is left as it is.
pub fn unwrap(words: &[String]) -> Launched {
    let mut launched = Launched::default();
    let mut rest: Vec<String> = words.iter().take(MOST_WORDS).cloned().collect();
    for _ in 0..MOST_LAYERS {
        match layer(&mut launched, rest) {
            Step::Inner(inner) => rest = inner,
            Step::Program(program) => {
                rest = program;
                break;
            }
        }
    }
    if rest.first().is_some_and(|word| base_name(word) == "automodel") {
        // The one program that is its own launcher.
        let arguments = super::Arguments::of_words(rest.iter().map(String::as_str));
        launched.processes_per_node =
            arguments.number("nproc-per-node").ok().flatten().or(launched.processes_per_node);
    }
    launched.words = rest;
    launched
}

enum Step {
    /// There is a command inside.
    Inner(Vec<String>),
    /// This is the program.
    Program(Vec<String>),
}

fn layer(launched: &mut Launched, mut words: Vec<String>) -> Step {
    let Some(first) = words.first() else { return Step::Program(words) };
    let name = base_name(first).to_owned();
    let rest = |words: &mut Vec<String>, from: usize| words.split_off(from.min(words.len()));
    match name.as_str() {
        "env" => Step::Inner(assignments(launched, rest(&mut words, 1))),
        "srun" => Step::Inner(options(launched, rest(&mut words, 1), &SRUN)),
        "torchrun" => Step::Inner(script(options(launched, rest(&mut words, 1), &TORCHRUN))),
        "deepspeed" => Step::Inner(script(options(launched, rest(&mut words, 1), &DEEPSPEED))),
        "accelerate" if words.get(1).is_some_and(|word| word == "launch") => {
            Step::Inner(script(options(launched, rest(&mut words, 2), &ACCELERATE)))
        }
        "uv" if words.get(1).is_some_and(|word| word == "run") => {
            Step::Inner(options(launched, rest(&mut words, 2), &UV))
        }
        name if is_shell(name) => shell(launched, words),
        _ if is_python(&name) => python(words),
        _ => match words.iter().skip(1).position(|word| is_launcher(word)) {
            // A tool that runs a command, with options that are nobody's business here.
            Some(at) if !first.ends_with(".py") && !is_program(&name) => {
                Step::Inner(rest(&mut words, at + 1))
            }
            _ => Step::Program(words),
        },
    }
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn is_shell(name: &str) -> bool {
    matches!(name, "bash" | "sh" | "dash" | "zsh")
}

/// The file of a command that may be a shell script, with or without the shell that reads it.
pub fn script_of(words: &[String]) -> Option<&str> {
    let is_before = |word: &&String| is_shell(base_name(word)) || word.starts_with('-');
    words.iter().find(|word| !is_before(word)).map(String::as_str)
}

fn is_python(name: &str) -> bool {
    name.strip_prefix("python")
        .is_some_and(|version| version.chars().all(|digit| digit.is_ascii_digit() || digit == '.'))
}

fn is_launcher(word: &str) -> bool {
    let name = base_name(word);
    is_python(name)
        || is_program(name)
        || matches!(name, "torchrun" | "deepspeed" | "accelerate" | "uv" | "bash" | "sh" | "srun" | "env")
}

/// Programs that train by themselves.
fn is_program(name: &str) -> bool {
    matches!(name, "automodel" | "torchtitan")
}

/// Takes `NAME=VALUE` words, and options of `env`.
fn assignments(launched: &mut Launched, words: Vec<String>) -> Vec<String> {
    let mut rest = words.into_iter().peekable();
    while let Some(word) = rest.peek() {
        if word == "-u" || word == "--unset" || word == "-C" {
            rest.next();
        } else if let Some((name, value)) = word.split_once('=').filter(|(name, _)| is_name(name)) {
            launched.environment.push((name.to_owned(), value.to_owned()));
        } else if !word.starts_with('-') {
            break;
        }
        rest.next();
    }
    rest.collect()
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Takes a launcher's options up to its command. `-m` stays, as the mark of a module.
fn options(launched: &mut Launched, words: Vec<String>, known: &Options) -> Vec<String> {
    let (mut processes, mut module) = (None, false);
    let mut rest = words.into_iter();
    let mut command = Vec::new();
    while let Some(word) = rest.next() {
        if word == "--" {
            break;
        }
        if !word.starts_with('-') {
            command.push(word);
            break;
        }
        let (name, given) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        module |= matches!(name, "-m" | "--module");
        if known.flags.contains(&name) {
            continue;
        }
        // `-N4` is `-N 4`.
        let short = name.len() > 2 && !name.starts_with("--") && given.is_none();
        let (name, value) = match given {
            Some(value) => (name, Some(value)),
            None if short => (name.get(..2).unwrap_or(name), name.get(2..).map(str::to_owned)),
            None => (name, rest.next()),
        };
        // Of a range such as 1:4 or 2-4 the first counts.
        let number = value.as_deref().and_then(|value| value.split([':', '-']).next()?.parse::<u64>().ok());
        let is = |names: &[&str]| names.contains(&name);
        match number {
            Some(number) if is(known.nodes) => launched.nodes = Some(number),
            Some(number) if is(known.per_node) => {
                launched.processes_per_node =
                    Some(launched.processes_per_node.unwrap_or(1).saturating_mul(number));
            }
            Some(number) if is(known.processes) => processes = Some(number),
            _ => {}
        }
    }
    if let Some(processes) = processes
        && launched.processes_per_node.is_none()
    {
        launched.processes_per_node = Some(processes.div_ceil(launched.nodes.unwrap_or(1).max(1)));
    }
    if module {
        command.insert(0, "-m".to_owned());
    }
    command.extend(rest);
    command
}

/// The command of a launcher that starts Python by itself: `-m module` or a script.
fn script(words: Vec<String>) -> Vec<String> {
    let is_script = words.first().is_some_and(|word| word == "-m" || word.ends_with(".py"));
    if is_script { [vec!["python".to_owned()], words].concat() } else { words }
}

/// `python [options] script` or `python -m module`.
fn python(words: Vec<String>) -> Step {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match word.as_str() {
            "-m" => {
                let module = words.get(at + 1).map_or("", String::as_str);
                let launcher = match module {
                    "torch.distributed.run" | "torch.distributed.launch" => "torchrun",
                    "deepspeed" | "deepspeed.launcher.runner" => "deepspeed",
                    _ => return Step::Program(words.get(at + 1..).unwrap_or_default().to_vec()),
                };
                let mut inner = vec![launcher.to_owned()];
                inner.extend(words.get(at + 2..).unwrap_or_default().iter().cloned());
                return Step::Inner(inner);
            }
            "-c" => return Step::Program(words),
            "-W" | "-X" => at += 2,
            option if option.starts_with('-') => at += 1,
            _ => break,
        }
    }
    // A script that is a launcher by its name, such as .../bin/torchrun.
    let inner = words.get(at..).unwrap_or_default().to_vec();
    match inner.first() {
        Some(word) if !word.ends_with(".py") && is_launcher(word) => Step::Inner(inner),
        _ => Step::Program(inner),
    }
}

/// `bash -c 'text' name arguments...`: the command in the text that trains.
fn shell(launched: &mut Launched, words: Vec<String>) -> Step {
    let is_command = |word: &String| word.starts_with('-') && !word.starts_with("--") && word.contains('c');
    let Some(at) = words.iter().skip(1).take_while(|word| word.starts_with('-')).position(is_command) else {
        return Step::Program(words);
    };
    let Some(text) = words.get(at + 2) else { return Step::Program(words) };
    let positional = words.get(at + 4..).unwrap_or_default();
    let Some(tokens) = shlex::split(text) else { return Step::Program(words) };
    let mut shifts = 0;
    let mut best: Option<Vec<String>> = None;
    for segment in tokens.split(|token| matches!(token.as_str(), "&&" | "||" | ";" | "|" | "&")) {
        // `cd x;` keeps its semicolon.
        for part in segment.split_inclusive(|token| token.ends_with(';')) {
            let part: Vec<Cow<'_, str>> =
                part.iter().map(|token| Cow::Borrowed(token.trim_end_matches(';'))).collect();
            if part.first().is_some_and(|word| word == "shift") {
                shifts += 1;
                continue;
            }
            let mut command: Vec<String> = Vec::new();
            for token in &part {
                match token.as_ref() {
                    "$@" | "$*" => command.extend(positional.iter().skip(shifts).cloned()),
                    other => command.push(other.to_owned()),
                }
            }
            let mut inner = launched.clone();
            let mut command = assignments(&mut inner, command);
            if command.first().is_some_and(|word| word == "exec") {
                command.remove(0);
            }
            if command.first().is_some_and(|word| is_launcher(word) || word.ends_with(".py")) {
                *launched = inner;
                best = Some(command);
            } else if best.is_none() && part.first().is_some_and(|word| word == "export") {
                assignments(launched, part.iter().skip(1).map(|word| word.clone().into_owned()).collect());
            }
        }
    }
    best.map_or(Step::Program(words), Step::Inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes, processes a node, and the program.
    #[track_caller]
    fn check(line: &str, nodes: Option<u64>, per_node: Option<u64>, expected: &str) {
        let words = shlex::split(line).unwrap();
        let found = unwrap(&words);
        assert_eq!((found.nodes, found.processes_per_node), (nodes, per_node), "{line}");
        assert_eq!(found.words.join(" "), expected, "{line}");
    }

    #[test]
    fn launchers_are_looked_through() {
        check("python train.py --a 1", None, None, "train.py --a 1");
        check("/opt/bin/python3.12 -u -X dev train.py", None, None, "train.py");
        check("python -m torchtitan.train --x", None, None, "torchtitan.train --x");
        check("torchrun --nproc_per_node=8 --nnodes 4 --rdzv_id 7 t.py --a", Some(4), Some(8), "t.py --a");
        check(
            "torchrun --standalone --nproc-per-node gpu -m torchtitan.train --a",
            None,
            None,
            "torchtitan.train --a",
        );
        check(
            "python3 -m torch.distributed.run --nnodes=1:4 --nproc_per_node 2 t.py",
            Some(1),
            Some(2),
            "t.py",
        );
        check(
            "srun -N2 --ntasks-per-node=1 -l --mpi=none torchrun --nproc_per_node 8 --nnodes 2 t.py",
            Some(2),
            Some(8),
            "t.py",
        );
        check(
            "srun -n 16 -N 2 --container-image a+b:c --no-container-mount-home python t.py",
            Some(2),
            Some(8),
            "t.py",
        );
        check("env A=1 B=x=y -u C numactl --membind=0 python t.py", None, None, "t.py");
        check("uv run --no-sync --project p --with torch python t.py", None, None, "t.py");
        check(
            "deepspeed --num_gpus 4 --num_nodes 2 t.py --deepspeed c.json",
            Some(2),
            Some(4),
            "t.py --deepspeed c.json",
        );
        check("accelerate launch --num_processes 8 --multi_gpu t.py", None, Some(8), "t.py");
        check(
            "nsys profile -o out --trace=cuda,nvtx torchrun --nproc_per_node 2 t.py",
            None,
            Some(2),
            "t.py",
        );
        check("automodel c.yaml --nproc-per-node 8", None, Some(8), "automodel c.yaml --nproc-per-node 8");
        check("timeout 60 automodel finetune llm -c c.yaml", None, None, "automodel finetune llm -c c.yaml");
    }

    #[test]
    fn shells_are_looked_through() {
        check("bash -c 'cd /x && python t.py --a \"b c\"'", None, None, "t.py --a b c");
        check(
            "bash -lc 'export A=1; CUDA_DEVICE_MAX_CONNECTIONS=1 exec torchrun --nproc_per_node 2 t.py'",
            None,
            Some(2),
            "t.py",
        );
        check(
            "bash -c 'cd \"$1\" && shift && exec \"$@\"' bash /w uv run --no-sync python t.py x",
            None,
            None,
            "t.py x",
        );
        check("bash script.sh", None, None, "bash script.sh");
        check("bash -c 'unclosed \"'", None, None, "bash -c unclosed \"");
        let words = shlex::split("bash -c 'A=1 python t.py'").unwrap();
        assert_eq!(unwrap(&words).environment, [("A".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn odd_lines_end() {
        for line in
            ["", "srun", "env", "env env env", "torchrun", "python", "python -m", "bash -c", "uv run", "-"]
        {
            let words = shlex::split(line).unwrap();
            let _ = unwrap(&words);
        }
        let nested: Vec<String> = std::iter::repeat_n("env".to_owned(), 100).collect();
        assert!(unwrap(&nested).words.len() < 100);
    }
}
