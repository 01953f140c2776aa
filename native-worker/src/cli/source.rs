//! Where a command's plan comes from: a plan file, or a model and a cluster by name, whose layout is then chosen.

use std::path::{Path, PathBuf};

use frameworks::import::{self, Job};
use planner::parse::with_words;
use planner::runtime::Runtime;
use planner::search::{Choice, Search, SearchAnswer};
use planner::software::{Named, Product, with_usual_framework};
use planner::wire::{Choose, Chosen, PlanFile};
use serde_json::{Value, json};

use super::numbers::size;
use super::{input, search::find, weights};
use crate::report::{Failure, notice};
use crate::wrap::{Training, in_script};

/// What a plan is made of
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Source {
    /// Plan file, or - for standard input; without one, --model and --gpu say what is planned
    pub plan: Option<PathBuf>,
    /// Model: a preset such as llama-3-70b, a config.json, a model's folder, or a framework's job file
    ///
    /// Whatever is not said beside it is chosen: the fastest valid plan that fits.
    #[arg(long, help_heading = "Instead of a plan file")]
    model: Option<String>,
    /// GPU, such as h100-sxm, h100 or the name that its driver gives it
    #[arg(long, help_heading = "Instead of a plan file")]
    gpu: Option<String>,
    /// Nodes
    #[arg(long, value_name = "N", value_parser = size::<u64>, help_heading = "Instead of a plan file")]
    nodes: Option<u64>,
    /// GPUs of a node
    #[arg(long, value_name = "N", value_parser = size::<u64>, help_heading = "Instead of a plan file")]
    gpus_per_node: Option<u64>,
    /// Runtime: megatron, fsdp2, megatron_fsdp or native
    #[arg(long, help_heading = "Instead of a plan file")]
    runtime: Option<String>,
    /// Framework that trains, such as "bridge 26.08", torchtitan, automodel or megatron-lm
    #[arg(long, help_heading = "Instead of a plan file")]
    framework: Option<String>,
    /// Precision, such as bf16 or fp8_blockwise
    #[arg(long, help_heading = "Instead of a plan file")]
    precision: Option<String>,
    /// Tokens of a sequence
    #[arg(long, value_name = "N", value_parser = size::<u64>, help_heading = "Instead of a plan file")]
    seq_len: Option<u64>,
    /// Sequences of a step
    #[arg(long, value_name = "N", value_parser = size::<u64>, alias = "gbs", help_heading = "Instead of a plan file")]
    global_batch_size: Option<u64>,
    /// Sequences of a micro batch
    #[arg(long, value_name = "N", value_parser = size::<u64>, alias = "mbs", help_heading = "Held in the plan")]
    micro_batch_size: Option<u64>,
    /// Tensor parallel
    #[arg(long, value_name = "N", value_parser = size::<u64>, help_heading = "Held in the plan")]
    tp: Option<u64>,
    /// Context parallel
    #[arg(long, value_name = "N", value_parser = size::<u64>, help_heading = "Held in the plan")]
    cp: Option<u64>,
    /// Pipeline stages
    #[arg(long, value_name = "N", value_parser = size::<u64>, help_heading = "Held in the plan")]
    pp: Option<u64>,
    /// Model chunks of a stage
    #[arg(long, value_name = "N", value_parser = size::<u64>, help_heading = "Held in the plan")]
    vpp: Option<u64>,
    /// Expert parallel
    #[arg(long, value_name = "N", value_parser = size::<u64>, help_heading = "Held in the plan")]
    ep: Option<u64>,
    /// Expert tensor parallel
    #[arg(long, value_name = "N", value_parser = size::<u64>, help_heading = "Held in the plan")]
    etp: Option<u64>,
    /// Any other field of the plan file, such as training.optimizer.kind=muon
    #[arg(long, value_name = "FIELD=VALUE", help_heading = "Held in the plan")]
    set: Vec<String>,
}

/// A plan file, and what was chosen on the way to it.
#[derive(Debug, Clone, Default)]
pub struct Sourced {
    /// The plan with nothing open.
    pub file: PlanFile,
    /// Fields that were chosen.
    pub chosen: Vec<Chosen>,
    /// Paths of what was assumed before anything was chosen.
    pub assumed: Vec<String>,
    /// The search that chose, where one did.
    pub answer: Option<SearchAnswer>,
}

/// Whether the plan is for CPUs.
fn is_host(file: &PlanFile) -> bool {
    planner::cluster::is_cpu(&file.cluster.gpu)
}

impl Source {
    /// The plan, with whatever it leaves open chosen.
    ///
    /// # Errors
    /// When it can't be read, or nothing that is valid was found.
    pub fn plan(&self) -> anyhow::Result<Sourced> {
        self.plan_for(None)
    }

    /// The same, for a framework that a model by name is trained with where it is not said.
    ///
    /// # Errors
    /// When it can't be read, or nothing that is valid was found.
    pub fn plan_for(&self, product: Option<Product>) -> anyhow::Result<Sourced> {
        let sourced = chosen(&self.file_for(product)?)?;
        for one in &sourced.chosen {
            notice(&format!("chosen {}: {}; {}", one.field, one.value, one.why));
        }
        for note in sourced.answer.iter().flat_map(|answer| &answer.notes) {
            notice(&format!("note: {note}"));
        }
        Ok(sourced)
    }

    /// Whether a plan file or a model is named.
    pub fn names_a_plan(&self) -> bool {
        self.plan.is_some() || self.model.is_some()
    }

    /// A plan with what is said beside it; none where nothing is.
    ///
    /// # Errors
    /// When what is said can't be read.
    pub fn changed(&self, plan: &PlanFile) -> anyhow::Result<Option<PlanFile>> {
        let held = self.held()?;
        if held.is_empty() {
            return Ok(None);
        }
        Ok(Some(with_words(plan, &held).map_err(Failure::Findings)?))
    }

    /// The plan file as it is said, open fields left open.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn file(&self) -> anyhow::Result<PlanFile> {
        self.file_for(None)
    }

    fn file_for(&self, product: Option<Product>) -> anyhow::Result<PlanFile> {
        // A job is of the framework that it starts; a model by name is trained by the usual one, as `plan` writes it.
        let (mut file, usual) = match (&self.plan, &self.model) {
            (Some(path), None) => {
                refuse_other_than_plan(path)?;
                (input::read_plan(path)?, false)
            }
            (None, Some(model)) => self.named(model)?,
            (Some(path), Some(_)) => {
                return Err(Failure::usage(format!(
                    "give the plan file {} or --model, not both",
                    path.display()
                )));
            }
            (None, None) => {
                return Err(Failure::usage(
                    "give a plan file, or --model and --gpu, such as --model llama-3-70b --gpu h100-sxm --nodes 4",
                ));
            }
        };
        let mut held = self.held()?;
        let said = |field: &str| held.iter().any(|(path, _)| path == field);
        // Who says both is told where they don't go together.
        let both = said("software.framework") && said("runtime");
        if usual && !said("software.framework") && !said("runtime") {
            let newest = product.map(|product| Named::newest(product).text());
            held.extend(newest.map(|name| ("software.framework".to_owned(), name.into())));
        }
        if !held.is_empty() {
            file = with_words(&file, &held).map_err(Failure::Findings)?;
        }
        if usual && file.software.framework.is_none() {
            // Beside a runtime that is said, where it trains with that.
            let trains = |product: &Product| product.runtimes().contains(&file.runtime.unwrap_or_default());
            file.software.framework = product.filter(trains).map(|product| Named::newest(product).text());
        }
        if usual && file.runtime.is_none() && is_host(&file) {
            // No framework's recipe is for CPUs; the worker runs there.
            file.runtime = Some(Runtime::OF_WORKER);
        }
        Ok(if usual && !both { with_usual_framework(&file) } else { file })
    }

    /// A file of a model by name, with everything open, and whether no framework's job says how it is trained.
    fn named(&self, model: &str) -> anyhow::Result<(PlanFile, bool)> {
        let Some(gpu) = &self.gpu else {
            return Err(Failure::usage("--model needs --gpu, such as --gpu h100-sxm".to_owned()));
        };
        let (mut file, usual) = match model_of(model, self)? {
            Model::Value(value) => {
                let file = json!({"version": 1, "model": value, "cluster": {"gpu": gpu}});
                (planner::parse_plan(&file.to_string()).map_err(Failure::Findings)?, true)
            }
            Model::Job(file) => (*file, false),
        };
        if file.cluster.gpus_per_node.is_none() {
            // Whoever names a GPU and nodes means nodes as it has them.
            file.cluster.gpus_per_node =
                planner::cluster::gpu(&file.cluster.gpu).and_then(|gpu| gpu.node_gpus);
        }
        file.choose = Some(Choose::all());
        Ok((file, usual))
    }

    /// Fields that options say.
    fn held(&self) -> anyhow::Result<Vec<(String, Value)>> {
        let mut held: Vec<(String, Value)> = Vec::new();
        let numbers = [
            ("cluster.nodes", self.nodes),
            ("cluster.gpus_per_node", self.gpus_per_node),
            ("training.seq_len", self.seq_len),
            ("training.global_batch_size", self.global_batch_size),
            ("training.micro_batch_size", self.micro_batch_size),
            ("layout.tp", self.tp),
            ("layout.cp", self.cp),
            ("layout.pp", self.pp),
            ("layout.vpp", self.vpp),
            ("layout.ep", self.ep),
            ("layout.etp", self.etp),
        ];
        let words = [
            ("cluster.gpu", &self.gpu),
            ("software.framework", &self.framework),
            ("runtime", &self.runtime),
            ("training.dtype", &self.precision),
        ];
        held.extend(numbers.into_iter().filter_map(|(path, value)| Some((path.to_owned(), value?.into()))));
        held.extend(
            words.into_iter().filter_map(|(path, word)| Some((path.to_owned(), word.as_deref()?.into()))),
        );
        for text in &self.set {
            let (path, value) = text
                .split_once('=')
                .ok_or_else(|| Failure::usage(format!("--set {text}: it must be of the form field=value")))?;
            // What is no JSON is a word.
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            held.push((path.trim().to_owned(), value));
        }
        Ok(held)
    }
}

/// The plan file at a path (`-` is standard input), with everything that it leaves open chosen.
///
/// # Errors
/// When it can't be read, or nothing that is valid was found.
pub fn read(path: &Path) -> anyhow::Result<PlanFile> {
    Ok(chosen(&input::read_plan(path)?)?.file)
}

/// A plan file with everything that it leaves open chosen.
///
/// # Errors
/// Findings, where the search has something against the file, or nothing is valid.
pub fn chosen(file: &PlanFile) -> anyhow::Result<Sourced> {
    let Some(choice) = Choice::of(file).map_err(Failure::Findings)? else {
        return Ok(Sourced { file: file.clone(), ..Sourced::default() });
    };
    let search = Search::new(&choice.request).map_err(Failure::Findings)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (answer, _) = find(&search, threads.clamp(1, 1024));
    let Some(chosen) = choice.plan(&answer) else {
        let relief = answer.relief.as_ref();
        let findings = relief.map(|relief| relief.findings(false)).unwrap_or_default();
        return Err(Failure::Findings(findings).into());
    };
    Ok(Sourced {
        file: chosen,
        chosen: answer.chosen.clone(),
        assumed: choice.assumed.clone(),
        answer: Some(answer),
    })
}

/// What is no plan file and stands in its place, and how it is named: a folder, a job, a model's config.
fn refuse_other_than_plan(path: &Path) -> anyhow::Result<()> {
    let of_name = |name: &str| path.file_name().is_some_and(|own| own == name);
    let is_json = path.extension().is_some_and(|end| end == "json");
    let is_other =
        || Ok::<bool, anyhow::Error>(!input::read_text(path, "the plan file")?.trim_start().starts_with('{'));
    let named = path != Path::new("-") && path.exists();
    if named && (path.is_dir() || of_name("config.json") || (!is_json && path.is_file() && is_other()?)) {
        return Err(Failure::usage(format!(
            "{0} is no plan file, which is one JSON object: a model's folder or config.json, or a framework's job, is named as --model {0} --gpu h100-sxm",
            path.display()
        )));
    }
    Ok(())
}

/// What a word for a model stands for.
enum Model {
    /// `model` of a plan file.
    Value(Value),
    /// A framework's job, its layout left open.
    Job(Box<PlanFile>),
}

/// The configuration that a job's script names: from where this is asked, or beside the script.
fn beside(script: &Path, config: &str) -> anyhow::Result<String> {
    let config = Path::new(config);
    let from_script = script.parent().map(|folder| folder.join(config)).filter(|path| path.exists());
    let path =
        if config.exists() { config.to_owned() } else { from_script.unwrap_or_else(|| config.to_owned()) };
    input::read_text(&path, "the configuration that the job names")
}

/// Reads a preset's name, a config.json, a model's folder or a job file.
fn model_of(model: &str, source: &Source) -> anyhow::Result<Model> {
    let path = Path::new(model);
    if !path.exists() {
        let files = ["json", "yaml", "yml", "toml", "sh", "sbatch", "slurm"];
        let ends = path.extension().and_then(|name| name.to_str()).is_some_and(|name| files.contains(&name));
        if ends || path.is_absolute() || path.starts_with(".") || path.starts_with("..") {
            let message = format!("there is no file or folder {model}, which --model names");
            return Err(Failure::of_named(path, message));
        }
        return Ok(Model::Value(json!({"preset": model})));
    }
    let folder = path.is_dir();
    let path = if folder { path.join("config.json") } else { path.to_owned() };
    let extension = path.extension().and_then(|name| name.to_str()).unwrap_or_default();
    if extension == "json" {
        let config = input::read_json(&path)?;
        // A plan file's model, or the config itself.
        return Ok(Model::Value(match (config.get("version"), config.get("model")) {
            (Some(_), Some(model)) => model.clone(),
            _ => {
                if folder {
                    weights::compare(path.parent().unwrap_or(&path), &config);
                }
                json!({"hf_config": config})
            }
        }));
    }
    let text = input::read_text(&path, "the model or job file")?;
    let name = path.display().to_string();
    let of_words = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Some(Training::of(import::unwrap(&words))).filter(Training::is_known)
    };
    let (training, config) = match extension {
        "toml" => (of_words(&["torchrun", "-m", "torchtitan.train", "--job.config_file", &name]), Some(text)),
        "yaml" | "yml" => (of_words(&["automodel", &name]), Some(text)),
        _ => {
            let training = in_script(&text);
            let config = training.as_ref().and_then(|training| training.recognised.config());
            let config = config.map(|config| beside(&path, config)).transpose()?;
            (training, config)
        }
    };
    let gpu = source.gpu.clone().unwrap_or_default();
    if let Some(Training { launched, recognised, gpus_per_node, remarks }) = training {
        let starts = launched.processes_per_node.filter(|&processes| processes > 1);
        let (of_job, on_node) = (launched.nodes, gpus_per_node.or(starts));
        let nodes = source.nodes.or(of_job).unwrap_or(1);
        let gpus_per_node = source.gpus_per_node.or(on_node).unwrap_or(8);
        let job = Job { gpu: &gpu, nodes, gpus_per_node, environment: &[] };
        remarks.iter().for_each(|remark| notice(&format!("{name}: {remark}")));
        let imported = frameworks::import_job(&launched, &recognised, config.as_deref(), &job);
        let Some(mut file) = imported.file else { return Err(Failure::Findings(imported.findings).into()) };
        for finding in &imported.findings {
            notice(&format!("{}: {}", finding.field, finding.message));
        }
        if !imported.unknown.is_empty() {
            notice(&format!("{name}: options that nothing here knows: {}", imported.unknown.join(", ")));
        }
        let is_of_job =
            source.nodes.is_none() && of_job.is_some() || source.gpus_per_node.is_none() && on_node.is_some();
        if is_of_job {
            notice(&format!(
                "{name}: planned for the {nodes} nodes of {gpus_per_node} GPUs that it starts on; --nodes and --gpus-per-node say others"
            ));
        }
        notice(&format!(
            "{name}: its model and how it is trained are taken; parallelism, micro batch and recomputation are chosen anew. \
             `shardplan wrap --dry-run -- COMMAND` makes the plan of the job as it is"
        ));
        // How that job was split is what is asked for.
        file.layout = planner::wire::LayoutFile { fsdp: file.layout.fsdp, ..Default::default() };
        file.training.micro_batch_size = None;
        file.training.recompute = Default::default();
        return Ok(Model::Job(Box::new(file)));
    }
    Err(Failure::usage(format!(
        "{name} is no config.json, and no job of Megatron-LM, Megatron Bridge, torchtitan or NeMo Automodel was found in it"
    )))
}
