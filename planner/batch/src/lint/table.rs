//! Every rule: its name, how much it matters, and why. docs/lint.md shows each with an example.

use super::Severity;

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Its name, which stays.
    pub id: &'static str,
    /// How much its findings matter.
    pub severity: Severity,
    /// Why.
    pub why: &'static str,
}

/// All rules.
pub const fn rules() -> &'static [Rule] {
    RULES
}

/// The rule of a name.
pub(super) fn find(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id)
}

const fn rule(id: &'static str, severity: Severity, why: &'static str) -> Rule {
    Rule { id, severity, why }
}

const RULES: &[Rule] = &[
    rule(
        "script-too-large",
        Severity::Error,
        "Slurm refuses scripts over max_script_size (4 MiB unless the site says otherwise)",
    ),
    rule("empty-script", Severity::Error, "sbatch refuses a script of white space alone"),
    rule("no-shebang", Severity::Error, "sbatch wants to know the interpreter from the first line"),
    rule(
        "dos-line-endings",
        Severity::Error,
        "sbatch refuses such scripts, and a shell would take the CR as a part of the last word",
    ),
    rule("nul-byte", Severity::Error, "Slurm refuses such scripts"),
    rule(
        "typographic-character",
        Severity::Error,
        "shells and Slurm know only the plain characters of a keyboard",
    ),
    rule(
        "unfinished-syntax",
        Severity::Error,
        "the shell stops with a syntax error, when it comes there, perhaps after hours",
    ),
    rule(
        "broken-continuation",
        Severity::Error,
        "the command runs without these options, and the rest fails as a command not found",
    ),
    rule(
        "placeholder-in-shell",
        Severity::Error,
        "the shell stops at this line, or reads and writes files of that name",
    ),
    rule("placeholder", Severity::Info, "the job can't run before it is filled in"),
    rule(
        "directive-after-command",
        Severity::Error,
        "sbatch stops at the first line that is neither empty nor a comment",
    ),
    rule("directive-not-read", Severity::Warning, "sbatch reads directives only in this one form"),
    rule(
        "directive-syntax",
        Severity::Error,
        "sbatch refuses the script, or reads another option than meant",
    ),
    rule(
        "directive-expansion",
        Severity::Error,
        "Slurm takes the letters as they stand, and makes a file or asks for a thing of that name",
    ),
    rule("directive-repeated", Severity::Warning, "of an option given twice the last counts"),
    rule(
        "hash-in-directive",
        Severity::Error,
        "a # that is not escaped begins a comment, wherever it stands",
    ),
    rule("unknown-option", Severity::Warning, "an option that nobody knows ends the submission"),
    rule("time-format", Severity::Error, "sbatch refuses the script"),
    rule(
        "directive-value",
        Severity::Error,
        "sbatch refuses the script: it reads every value before it submits",
    ),
    rule(
        "directive-conflict",
        Severity::Error,
        "sbatch refuses the script: one of these options excludes the other",
    ),
    rule(
        "tiny-limit",
        Severity::Warning,
        "Slurm counts minutes and megabytes where no unit is said, and ends the job where it takes more",
    ),
    rule("task-counts", Severity::Warning, "the job may have other tasks than its script counts with"),
    rule("gpu-counts", Severity::Error, "Slurm refuses the job, or gives it other GPUs than meant"),
    rule("gpus-not-requested", Severity::Info, "Slurm hides GPUs that a job did not ask for"),
    rule(
        "output-folder",
        Severity::Info,
        "Slurm opens the log before the script runs, so the script can't make its folder",
    ),
    rule("output-overwritten", Severity::Info, "the log of an earlier failure is often wanted later"),
    rule("array-output", Severity::Warning, "their lines are mixed or lost"),
    rule(
        "pyxis-in-directive",
        Severity::Warning,
        "pyxis then starts the batch script in the container, which in most images has neither srun nor scontrol",
    ),
    rule("pyxis-conflict", Severity::Error, "pyxis ends the step before it starts"),
    rule("pyxis-mount", Severity::Error, "pyxis ends the step before it starts"),
    rule(
        "double-spawn",
        Severity::Error,
        "one process per GPU must have one parent: Slurm or the launcher, not both",
    ),
    rule(
        "no-endpoint",
        Severity::Error,
        "processes on other nodes wait for a host that is themselves, until they time out",
    ),
    rule("no-node-rank", Severity::Error, "two nodes of one rank make groups that never complete"),
    rule("constant-node-rank", Severity::Error, "two nodes of one rank make groups that never complete"),
    rule(
        "nodes-not-given",
        Severity::Error,
        "each node trains its own model and overwrites the others' checkpoints",
    ),
    rule(
        "nodes-mismatch",
        Severity::Error,
        "the launcher waits for nodes that never come, or refuses those that do",
    ),
    rule(
        "not-under-srun",
        Severity::Error,
        "Slurm runs a batch script once, on the first node; srun runs a command on all",
    ),
    rule("processes-and-gpus", Severity::Error, "each rank needs a GPU of its own"),
    rule("tasks-and-gpus", Severity::Error, "each rank needs a GPU of its own"),
    rule("idle-gpus", Severity::Warning, "GPUs that nobody uses are paid for all the same"),
    rule(
        "torchrun-shim",
        Severity::Info,
        "a launcher of another Python starts workers that miss the environment's packages",
    ),
    rule("loopback-address", Severity::Error, "every machine calls itself by this name"),
    rule("address-of-each-node", Severity::Error, "all ranks must be given the same address"),
    rule(
        "silent-loopback",
        Severity::Warning,
        "nothing fails when the name can't be had, and the nodes wait for each other until the time limit",
    ),
    rule(
        "compressed-nodelist",
        Severity::Warning,
        "Slurm writes node[01-04] for four nodes, so a piece of that is no host",
    ),
    rule(
        "scontrol-in-container",
        Severity::Warning,
        "images have no commands of Slurm: the address stays empty, and the nodes never meet",
    ),
    rule("launch-node-address", Severity::Warning, "under salloc it is the login node"),
    rule("port-range", Severity::Error, "the rendezvous can't be opened"),
    rule("fixed-port", Severity::Warning, "the second job on a node fails with EADDRINUSE"),
    rule("port-of-each-task", Severity::Error, "all ranks must be given the same port"),
    rule(
        "id-of-each-node",
        Severity::Error,
        "nodes find each other by the name that all of them give the run",
    ),
    rule(
        "expanded-on-batch-host",
        Severity::Error,
        "in double quotes the batch script's shell expands names, once, on the first node",
    ),
    rule(
        "never-expanded",
        Severity::Error,
        "backslashes and single quotes keep a name from the shell that would have expanded it",
    ),
    rule(
        "escape-outside-string",
        Severity::Warning,
        "a backslash is for strings that a second shell reads; here it is printed, or hides the value",
    ),
    rule("not-exported", Severity::Warning, "a task's shell knows only what was exported"),
    rule("unquoted-body", Severity::Error, "the training command runs without its arguments, or not at all"),
    rule("split-value", Severity::Error, "a value with blanks becomes several words"),
    rule("secret-value", Severity::Error, "scripts are shared, logged, and kept by Slurm's accounting"),
    rule(
        "secret-expanded",
        Severity::Warning,
        "command lines can be read by everyone on the node, and are kept by accounting",
    ),
    rule("secret-printed", Severity::Error, "logs are shared and kept"),
    rule("unshared-path", Severity::Warning, "other nodes do not see these files"),
    rule("cache-in-container", Severity::Warning, "a container's own files are gone when it ends"),
    rule(
        "path-not-mounted",
        Severity::Warning,
        "a container sees its image and what is mounted into it, nothing else of the node",
    ),
    rule(
        "environment-thrown-away",
        Severity::Warning,
        "each step has a container of its own, made of the image, and nothing that another one changed is in it",
    ),
    rule("nemo-home", Severity::Warning, "data that one node prepared must be seen by all"),
    rule(
        "mkdir-in-task",
        Severity::Error,
        "the batch script opens its files first, and the folder is not there yet",
    ),
    rule(
        "sync-in-every-task",
        Severity::Warning,
        "uv and pip do not expect others in the same environment: files are missing or half written (astral-sh/uv #17399)",
    ),
    rule(
        "sleep-as-barrier",
        Severity::Warning,
        "on a slow filesystem the work takes longer, and the others start without it",
    ),
    rule(
        "uv-torch-backend",
        Severity::Warning,
        "torch for the wrong CUDA is installed without a word (astral-sh/uv #18157)",
    ),
    rule(
        "pipe-hides-exit",
        Severity::Warning,
        "a job that failed and says COMPLETED also satisfies afterok dependencies",
    ),
    rule(
        "footer-hides-exit",
        Severity::Warning,
        "Slurm takes a job's status from the last command of its script",
    ),
    rule(
        "footer-fails-job",
        Severity::Warning,
        "dependent jobs do not start, and people look for a fault that is none",
    ),
    rule("failure-not-checked", Severity::Warning, "all nodes of the job fail later and less clearly"),
    rule("background-without-wait", Severity::Error, "Slurm ends a job's steps when its script ends"),
    rule(
        "wait-hides-exit",
        Severity::Warning,
        "a job that failed and says COMPLETED also satisfies afterok dependencies",
    ),
    rule(
        "removes-checkpoints",
        Severity::Warning,
        "a job that is queued again then begins anew, and another job's work may lie there, too",
    ),
    rule(
        "removes-root",
        Severity::Error,
        "a variable that is not set is empty, and what is left of the path is the root folder",
    ),
    rule(
        "overwrites-output",
        Severity::Warning,
        "Slurm starts a job again after a node failed, and what was trained until then is lost",
    ),
    rule(
        "requeue-truncates-log",
        Severity::Warning,
        "what the earlier attempt said, and why it ended, is gone",
    ),
    rule(
        "array-checkpoints",
        Severity::Error,
        "tasks of an array run side by side, and each writes over what the others saved",
    ),
    rule(
        "requeue-without-load",
        Severity::Warning,
        "each attempt trains from the beginning, and the job never ends within its time limit",
    ),
    rule("signal-after-limit", Severity::Error, "the signal comes when the job starts"),
    rule("signal-without-trap", Severity::Error, "the default action of most signals ends the shell"),
    rule("signal-not-to-batch", Severity::Warning, "without B: Slurm signals the steps only"),
    rule(
        "signal-ends-ranks",
        Severity::Warning,
        "a signal that a program does not handle ends it there and then, and nothing is saved",
    ),
    rule("trap-waits", Severity::Warning, "bash waits for a command in the foreground before it runs a trap"),
    rule("requeue-refused", Severity::Error, "Slurm refuses to requeue such a job"),
    rule("step-too-large", Severity::Error, "srun: Requested node configuration is not available"),
    rule("nodelist-in-step", Severity::Warning, "a step runs on its job's nodes only"),
    rule("export-drops-environment", Severity::Warning, "tasks miss paths, caches and tokens"),
    rule(
        "cpus-not-inherited",
        Severity::Warning,
        "data loaders of a whole node share few cores, and steps take longer",
    ),
    rule("pty-in-batch", Severity::Warning, "srun waits for a terminal or ends at once"),
    rule("loopback-interface", Severity::Error, "NCCL binds to the interface that it is told"),
    rule("debug-setting", Severity::Info, "settings of a search for faults stay in scripts for years"),
    rule("visible-devices", Severity::Error, "the last ranks find no GPU (invalid device ordinal)"),
    rule(
        "visible-devices-of-task",
        Severity::Warning,
        "where Slurm confines devices (ConstrainDevices) each task sees one GPU, number 0, and every other number finds none",
    ),
    rule(
        "visible-devices-for-all",
        Severity::Warning,
        "where Slurm does not set it for the step itself, all processes of a node share what the batch script chose",
    ),
    rule("max-connections", Severity::Warning, "Megatron-LM stops with an error (or overlaps nothing)"),
    rule("megatron-shadowed", Severity::Warning, "Python takes the first megatron package of its path"),
    rule("bash-in-sh", Severity::Warning, "on the nodes sh may be another shell than on your machine"),
    rule("unset-variable", Severity::Warning, "the script ends before it starts anything"),
    rule(
        "misspelt-variable",
        Severity::Warning,
        "a variable that is not set is empty, and the command runs without it",
    ),
    rule(
        "assignment-syntax",
        Severity::Error,
        "nothing is set: the shell looks for a command of that name, or refuses the words",
    ),
    rule(
        "quoted-tilde",
        Severity::Warning,
        "a shell makes a home folder of ~ only where no quotes are around it",
    ),
    rule(
        "unquoted-test",
        Severity::Warning,
        "with an empty value the test fails with an error, or is always true",
    ),
    rule("parallel-sizes", Severity::Error, "the training stops at its start, after the queue and the image"),
    rule("batch-size", Severity::Error, "the training stops at its start, after the queue and the image"),
    rule("etp-not-given", Severity::Info, "a script should mean the same under every framework"),
    rule(
        "sharding-strategy",
        Severity::Error,
        "the training stops at its start, after the queue and the image",
    ),
];
