//! What a body gives: the command of a framework, and what it needs around it.

/// What Python, or the shell, is given to run.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A script of Python, quoted for the shell.
    Script(String),
    /// A module of Python.
    Module(String),
    /// A command that needs no Python of ours; quoted words.
    Words(Vec<String>),
}

/// The command of a framework, and what it needs around it.
#[derive(Debug, Clone, PartialEq)]
pub struct Payload {
    /// What is run.
    pub entry: Entry,
    /// Its options and values, quoted for the shell, as they stand together on a line.
    pub arguments: Vec<String>,
    /// Words that must stand behind all options, those of the site too; quoted.
    pub closing: Vec<String>,
    /// The folder that it starts in, quoted.
    pub workdir: String,
    /// Definitions that the arguments use, one a line.
    pub definitions: Vec<String>,
    /// Variables of every task that the batch script exports.
    pub exports: Vec<(&'static str, &'static str)>,
    /// Variables that each task sets for itself, inside the container.
    pub task_exports: Vec<(&'static str, &'static str)>,
    /// The variable of the batch script that holds a folder to be put before `PYTHONPATH`.
    pub python_path: Option<&'static str>,
    /// Whether it writes into a folder of the job's own, which the arguments name as `$RUN_DIR`.
    pub run_folder: bool,
    /// Shell that prints how many steps its newest whole checkpoint there has, or nothing; for what trains and saves.
    pub saved_steps: Option<&'static str>,
    /// Shell that puts right there what an attempt leaves that is ended in the middle of saving; lines, or nothing.
    pub repair: &'static str,
    /// Whether ranks need `RANK` and the like, because the framework does not read Slurm's variables.
    pub wants_ranks: bool,
    /// What one task's shell executes for all before they start, as one quoted word.
    pub prepare: Option<String>,
    /// What each task's shell executes before the command, as one quoted word.
    pub startup: Option<String>,
    /// Whether losses stand in the log as Megatron prints them.
    pub prints_losses: bool,
}

impl Payload {
    /// A command with nothing around it.
    pub fn new(entry: Entry, workdir: String) -> Payload {
        Payload {
            entry,
            workdir,
            arguments: Vec::new(),
            closing: Vec::new(),
            definitions: Vec::new(),
            exports: Vec::new(),
            task_exports: Vec::new(),
            python_path: None,
            run_folder: false,
            saved_steps: None,
            repair: "",
            wants_ranks: false,
            prepare: None,
            startup: None,
            prints_losses: false,
        }
    }
}
