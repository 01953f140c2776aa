//! The plan of a watched command: the file that was named, or what its command line and configuration say.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use frameworks::Recognised;
use frameworks::import::{self, Job, Launched};
use planner::Plan;
use planner::finding::Severity;
use planner::wire::{PlanFile, PlanOrigin};

use super::place::Variables;

/// Variables of a script that are named.
const MOST_NAMED: usize = 8;
/// The largest configuration that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 4 * 1024 * 1024;

/// What is known of the machine that the plan is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Id of the GPU in the catalogue, as the user says or the driver's name tells.
    pub gpu: Option<String>,
    /// The driver's name for it.
    pub gpu_name: String,
    /// GPUs that the command sees here.
    pub gpus: u64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The plan.
    pub plan: Option<PlanFile>,
    /// Where it is from.
    pub origin: PlanOrigin,
    /// The framework that was recognised, by its name in records.
    pub framework: String,
    /// What to know about it, as sentences.
    pub remarks: Vec<String>,
}

/// The plan that was read where a file is named, or else one that is recovered from the command.
pub fn find(
    read: Option<anyhow::Result<PlanFile>>,
    words: &[String],
    variables: &Variables,
    machine: &Machine,
) -> Found {
    let Training { launched, recognised, gpus_per_node, remarks } = training(import::unwrap(words));
    let framework = recognised.framework().to_owned();
    if let Some(read) = read {
        return match read {
            Ok(plan) => {
                let errors = Plan::resolve(&plan).findings.into_iter();
                let errors = errors.filter(|finding| finding.severity == Severity::Error);
                let remarks =
                    errors.map(|finding| format!("nothing is predicted: {}", finding.message)).collect();
                Found { plan: Some(plan), origin: PlanOrigin::File, framework, remarks }
            }
            Err(error) => {
                let remark = format!("the plan can't be read, so there is none: {error:#}");
                Found { plan: None, origin: PlanOrigin::None, framework, remarks: vec![remark] }
            }
        };
    }
    // Where nothing says it nearer to the command, what the script asks for counts.
    let asked = Machine { gpus: gpus_per_node.unwrap_or(machine.gpus), ..machine.clone() };
    let mut found = recover(&launched, &recognised, variables, &asked);
    found.remarks.splice(..0, remarks);
    found
}

/// The training that a command or a script starts.
pub struct Training {
    /// The program, and on how many processes it runs.
    pub launched: Launched,
    /// What it is.
    pub recognised: Recognised,
    /// GPUs of a node that a script asks Slurm for.
    pub gpus_per_node: Option<u64>,
    /// What to know about how a script was read, as sentences.
    pub remarks: Vec<String>,
}

impl Training {
    /// That of a command that starts it itself.
    pub fn of(launched: Launched) -> Training {
        let recognised = frameworks::recognise(&launched);
        Training { launched, recognised, gpus_per_node: None, remarks: Vec::new() }
    }

    /// Whether anything here knows what it is.
    pub fn is_known(&self) -> bool {
        self.recognised != Recognised::Unknown
    }
}

/// What trains: the program that is started, or where that is a shell script the first training that the script starts.
fn training(launched: Launched) -> Training {
    let outer = Training::of(launched);
    if outer.is_known() {
        return outer;
    }
    let text = import::script_of(&outer.launched.words).and_then(|path| read(Path::new(path)).ok());
    let Some(mut inner) = text.as_deref().and_then(in_script) else { return outer };
    let (Launched { nodes, processes_per_node, environment, .. }, within) =
        (outer.launched, &mut inner.launched);
    within.nodes = nodes.or(within.nodes);
    within.processes_per_node = processes_per_node.or(within.processes_per_node);
    within.environment.splice(..0, environment);
    inner
}

/// The first training that a shell script starts, where anything here knows one of its commands. What its launcher does not say of nodes and
/// processes is what the script asks Slurm for.
pub fn in_script(text: &str) -> Option<Training> {
    let script = batch::lint::commands(text.as_bytes());
    let mut found = script.calls.iter().map(|words| Training::of(import::unwrap(words)));
    let mut found = found.find(Training::is_known)?;
    found.launched.nodes = found.launched.nodes.or(script.nodes);
    found.launched.processes_per_node = found.launched.processes_per_node.or(script.tasks_per_node);
    let remark = |names: &[String], said: &str| {
        let shown: Vec<String> = names.iter().take(MOST_NAMED).map(|name| format!("${name}")).collect();
        let more = names.len().saturating_sub(MOST_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| format!("{}{more}: {said}", shown.join(", ")))
    };
    let unset = remark(&script.unset, "the script is read as if nobody sets them");
    let open = remark(
        &script.open,
        "only a run of the script knows whether their values are replaced, so the last ones are taken; look whether the plan is the job",
    );
    (found.gpus_per_node, found.remarks) = (script.gpus_per_node, unset.into_iter().chain(open).collect());
    Some(found)
}

fn recover(launched: &Launched, recognised: &Recognised, variables: &Variables, machine: &Machine) -> Found {
    let mut remarks = Vec::new();
    let config = recognised.config().and_then(|path| match read(Path::new(path)) {
        Ok(text) => Some(text),
        Err(error) => {
            remarks.push(format!("the configuration can't be read: {error}: {path}"));
            None
        }
    });
    let (nodes, gpus_per_node) = shape(launched, variables, machine);
    let (gpu, of_gpu) = gpu(machine);
    let environment: Vec<(String, String)> = variables
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .chain(launched.environment.clone())
        .collect();
    let job = Job { gpu: &gpu, nodes, gpus_per_node, environment: &environment };
    let imported = frameworks::import_job(launched, recognised, config.as_deref(), &job);
    remarks.extend(imported.findings.iter().map(|finding| finding.message.clone()));
    if !imported.unknown.is_empty() {
        remarks.push(format!("options that nothing here knows: {}", imported.unknown.join(", ")));
    }
    let origin = if imported.file.is_some() { PlanOrigin::Recovered } else { PlanOrigin::None };
    // Which GPU a plan is for is nothing to say where there is none.
    remarks.splice(..0, of_gpu.filter(|_| imported.file.is_some()));
    Found { plan: imported.file, origin, framework: recognised.framework().to_owned(), remarks }
}

/// Nodes and GPUs of each: what a launcher on the command line says, else what one outside has set, else this machine.
fn shape(launched: &Launched, variables: &Variables, machine: &Machine) -> (u64, u64) {
    let number =
        |name: &str| variables.get(name).and_then(|value| value.parse::<u64>().ok()).filter(|&n| n > 0);
    let here = launched.processes_per_node.or(number("LOCAL_WORLD_SIZE"));
    let world = number("WORLD_SIZE");
    let nodes = launched
        .nodes
        .or(number("GROUP_WORLD_SIZE"))
        .or(number("SLURM_STEP_NUM_NODES"))
        .or(number("SLURM_NNODES"))
        .or(world.zip(here).map(|(world, here)| world.div_ceil(here)))
        .unwrap_or(1)
        .max(1);
    let tasks = number("SLURM_STEP_NUM_TASKS").filter(|&tasks| tasks > nodes);
    let per_node = here
        .or(world.map(|world| world.div_ceil(nodes)))
        .or(tasks.map(|tasks| tasks.div_ceil(nodes)))
        .or(Some(machine.gpus).filter(|&gpus| gpus > 0))
        .unwrap_or(1);
    (nodes, per_node.max(1))
}

/// The GPU that a plan is for, and what to say of that where nobody named it or it is not known.
fn gpu(machine: &Machine) -> (String, Option<String>) {
    let driver = &machine.gpu_name;
    let known = machine.gpu.clone().or_else(|| planner::cluster::gpu_of_driver(driver).map(str::to_owned));
    match known {
        Some(known) => (known, None),
        None if driver.is_empty() => (
            "cpu".to_owned(),
            Some("no GPU was found here, so the plan is for the CPU; name another with --gpu ID".to_owned()),
        ),
        None => (
            "h100-sxm".to_owned(),
            Some(format!(
                "{driver} is not in the catalogue, so the plan is for an h100-sxm; name another with --gpu ID"
            )),
        ),
    }
}

/// A file's text, bounded; a pipe or device is not waited for.
fn read(path: &Path) -> Result<String, String> {
    let sentence = |error: std::io::Error| error.to_string();
    let path: PathBuf = path.to_owned();
    let kind = std::fs::metadata(&path).map_err(sentence)?;
    if !kind.is_file() {
        return Err("it is no file".to_owned());
    }
    if kind.len() > MAX_CONFIG_BYTES {
        return Err(format!("it has {} bytes, and at most {MAX_CONFIG_BYTES} are read", kind.len()));
    }
    let mut bytes = Vec::new();
    File::open(&path).map_err(sentence)?.take(MAX_CONFIG_BYTES).read_to_end(&mut bytes).map_err(sentence)?;
    String::from_utf8(bytes).map_err(|_| "it is no text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_processes() {
        let check = |line: &str, set: &[(&str, &str)], gpus, expected| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let variables =
                set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let machine = Machine { gpus, ..Machine::default() };
            assert_eq!(shape(&import::unwrap(&words), &variables, &machine), expected, "{line} {set:?}");
        };
        check("python t.py", &[], 0, (1, 1));
        check("python t.py", &[], 8, (1, 8));
        check("torchrun --nproc_per_node 4 --nnodes 2 t.py", &[], 8, (2, 4));
        check("torchrun --nproc_per_node gpu t.py", &[("SLURM_NNODES", "4")], 8, (4, 8));
        check("python t.py", &[("SLURM_NNODES", "2"), ("SLURM_STEP_NUM_TASKS", "16")], 0, (2, 8));
        check("python t.py", &[("WORLD_SIZE", "16"), ("LOCAL_WORLD_SIZE", "8")], 0, (2, 8));
    }

    #[test]
    fn only_files_of_text_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.toml");
        std::fs::write(&path, [0xff, 0xfe]).expect("written");
        assert!(read(&path).is_err_and(|error| error.contains("no text")));
        assert!(read(folder.path()).is_err_and(|error| error.contains("no file")));
        assert!(read(Path::new("/dev/zero")).is_err_and(|error| error.contains("no file")));
        std::fs::File::create(&path).and_then(|file| file.set_len(MAX_CONFIG_BYTES + 1)).expect("made");
        assert!(read(&path).is_err_and(|error| error.contains("at most")));
    }

    #[test]
    fn a_megatron_job_has_a_plan() {
        let line = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 \
                    --seq-length 1024 --max-position-embeddings 1024 --global-batch-size 32 --bf16";
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let machine = Machine { gpu: Some("h100-sxm".into()), ..Machine::default() };
        let found = find(None, &words, &Variables::new(), &machine);
        assert_eq!((found.origin, found.framework.as_str()), (PlanOrigin::Recovered, "megatron"));
        assert_eq!(found.plan.expect("a plan").cluster.gpus_per_node, Some(8));
        let found = find(None, &["sleep".into(), "1".into()], &Variables::new(), &machine);
        assert_eq!((found.origin, found.plan), (PlanOrigin::None, None));
    }

    #[test]
    fn of_the_gpu_of_a_plan_nothing_is_said_where_there_is_none() {
        let train = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 \
                     --seq-length 1024 --max-position-embeddings 1024 --global-batch-size 32 --bf16";
        let encoder = "torchrun --nproc_per_node 8 pretrain_bert.py --num-layers 4";
        let unknown = Machine { gpu_name: "Model X".into(), ..Machine::default() };
        for (machine, said) in [(Machine::default(), "no GPU was found"), (unknown, "not in the catalogue")] {
            for (line, planned) in [(train, true), (encoder, false), ("echo hi", false)] {
                let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
                let found = find(None, &words, &Variables::new(), &machine);
                let is_said = found.remarks.iter().any(|remark| remark.contains(said));
                assert_eq!(
                    (found.plan.is_some(), is_said),
                    (planned, planned),
                    "{line}: {:?}",
                    found.remarks
                );
            }
        }
    }
}
