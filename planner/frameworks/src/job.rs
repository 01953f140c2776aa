//! Which framework a command line runs, and its plan.

use serde_json::Value;

use crate::import::{Arguments, Imported, Job, Launched, yaml};
use crate::{automodel, bridge, megatron_lm, torchtitan};
use planner::finding::Finding;

/// A framework whose jobs become plans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recognised {
    /// Megatron-LM: everything is on the command line.
    Megatron,
    /// torchtitan with a TOML file.
    TorchtitanFile {
        /// The file.
        path: String,
    },
    /// torchtitan with a function of a model's registry.
    TorchtitanFunction {
        /// The registry, as it lies in torchtitan's sources.
        path: String,
        /// The model, such as `llama3`.
        module: String,
        /// The function.
        function: String,
    },
    /// NeMo Automodel with a recipe.
    Automodel {
        /// The recipe.
        path: String,
    },
    /// Megatron Bridge with a recipe: the rest is on the command line.
    Bridge,
    /// A framework's script in which the place of its configuration is still to be filled.
    Unnamed {
        /// The framework.
        framework: &'static str,
        /// What stands there, such as `<CONFIG.yaml>`.
        placeholder: String,
    },
    /// Nothing that is known here.
    Unknown,
}

impl Recognised {
    /// The framework's name in records.
    pub fn framework(&self) -> &'static str {
        match self {
            Recognised::Megatron => "megatron",
            Recognised::TorchtitanFile { .. } | Recognised::TorchtitanFunction { .. } => "torchtitan",
            Recognised::Automodel { .. } => "automodel",
            Recognised::Bridge => "bridge",
            Recognised::Unnamed { framework, .. } => framework,
            Recognised::Unknown => "unknown",
        }
    }

    /// The file that the plan also needs, as the command line names it or as the framework has it.
    pub fn config(&self) -> Option<&str> {
        match self {
            Recognised::TorchtitanFile { path }
            | Recognised::TorchtitanFunction { path, .. }
            | Recognised::Automodel { path } => Some(path),
            Recognised::Megatron | Recognised::Bridge | Recognised::Unnamed { .. } | Recognised::Unknown => {
                None
            }
        }
    }
}

/// Recognises a job by its program and options.
pub fn recognise(launched: &Launched) -> Recognised {
    let options = Arguments::of_words(launched.words.iter().map(String::as_str));
    if options.has("num-attention-heads") && options.has("hidden-size") {
        return Recognised::Megatron;
    }
    let program = launched.words.first().map_or("", String::as_str);
    if program.ends_with("run_recipe.py") && options.has("recipe") {
        return Recognised::Bridge;
    }
    let titan = program.starts_with("torchtitan") || program.ends_with("torchtitan/train.py");
    if let Some(path) = options.word("job.config-file").filter(|path| !is_placeholder(path)) {
        return Recognised::TorchtitanFile { path };
    }
    let module = options.word("module").filter(|module| is_name(module));
    let function = options.word("config");
    if let (true, Some(module), Some(function)) =
        (titan, module, function.as_ref().filter(|name| is_name(name)))
    {
        let path = format!("torchtitan/models/{module}/config_registry.py");
        return Recognised::TorchtitanFunction { path, module, function: function.clone() };
    }
    let is_recipe = |word: &&String| word.ends_with(".yaml") || word.ends_with(".yml");
    let short = launched.words.iter().position(|word| word == "-c").and_then(|at| launched.words.get(at + 1));
    let recipe = function.as_ref().or(short).filter(is_recipe);
    let is_automodel = program.ends_with("automodel") || program.starts_with("nemo_automodel.");
    let alone = || launched.words.iter().skip(1).find(is_recipe).filter(|_| is_automodel);
    if let Some(path) = recipe.or_else(alone) {
        return Recognised::Automodel { path: path.clone() };
    }
    // As scripts are written for which no configuration was named yet.
    let unnamed = |framework| {
        let left = launched.words.iter().skip(1).find(|word| is_placeholder(word))?;
        Some(Recognised::Unnamed { framework, placeholder: left.clone() })
    };
    match (titan, is_automodel) {
        (true, _) => unnamed("torchtitan"),
        (_, true) => unnamed("automodel"),
        _ => None,
    }
    .unwrap_or(Recognised::Unknown)
}

/// Whether a word is the place of one that is still to be written, such as `<CONFIG.yaml>`.
fn is_placeholder(word: &str) -> bool {
    word.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).is_some_and(|name| !name.is_empty())
}

/// Whether a word can be the name of a Python module or function, so that no path is made of anything else.
fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The plan of a recognised job; `config` is the text of [`Recognised::config`].
pub fn import_job(
    launched: &Launched,
    recognised: &Recognised,
    config: Option<&str>,
    job: &Job<'_>,
) -> Imported {
    let words = &launched.words;
    let tree = |read: &dyn Fn(&str) -> Result<Value, String>| match (config, recognised.config()) {
        (Some(text), Some(path)) => read(text).map_err(|error| format!("{path}: {error}")),
        (_, path) => Err(format!(
            "the plan stands in {}, which was not read; name the model by shardplan plan --model, or a plan by shardplan wrap --plan FILE",
            path.unwrap_or_default()
        )),
    };
    let titan = |tree: Result<Value, String>| match tree {
        Ok(tree) => torchtitan::import_torchtitan_job(tree, words, job),
        Err(message) => unread(message),
    };
    match recognised {
        Recognised::Megatron => megatron_lm::import_megatron_command(words, job),
        Recognised::TorchtitanFile { .. } => titan(tree(&torchtitan::toml_tree)),
        Recognised::TorchtitanFunction { module, function, .. } => {
            titan(tree(&|text| torchtitan::python_tree(text, module, function)))
        }
        Recognised::Automodel { .. } => match tree(&yaml::read) {
            Ok(tree) => automodel::import_automodel_job(tree, words, job),
            Err(message) => unread(message),
        },
        Recognised::Bridge => bridge::import_bridge_job(words, job),
        Recognised::Unnamed { framework, placeholder } => unread(format!(
            "{placeholder} stands where this script of {framework} is to name its configuration, in which the model is: write its name there, or \
             name the model by shardplan plan --model"
        )),
        Recognised::Unknown => unread(
            "no framework that is known here was recognised in the command line; name the model by shardplan plan --model, or a plan by shardplan wrap --plan FILE".to_owned(),
        ),
    }
}

/// A job of which there is no plan, by what stands in the way.
fn unread(message: String) -> Imported {
    Imported {
        file: None,
        findings: vec![Finding::error("arguments", Value::Null, message).rule("jobs that become plans")],
        unknown: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_recognised() {
        let check = |line: &str, framework: &str, config: Option<&str>| {
            let words = shlex::split(line).unwrap();
            let found = recognise(&crate::import::unwrap(&words));
            assert_eq!((found.framework(), found.config()), (framework, config), "{line}");
        };
        check(
            "torchrun --nproc_per_node 8 pretrain_gpt.py --hidden-size 8 --num-attention-heads 2",
            "megatron",
            None,
        );
        check(
            "torchrun -m torchtitan.train --job.config_file a/b.toml --training.steps 3",
            "torchtitan",
            Some("a/b.toml"),
        );
        check("torchrun -m torchtitan.train --job.config-file=c.toml", "torchtitan", Some("c.toml"));
        check(
            "torchrun -m torchtitan.train --module llama3 --config llama3_8b",
            "torchtitan",
            Some("torchtitan/models/llama3/config_registry.py"),
        );
        check("torchrun -m torchtitan.train --module ../../etc --config x", "unknown", None);
        check(
            "torchrun --nproc-per-node=8 recipes/finetune.py --config a.yaml --x 1",
            "automodel",
            Some("a.yaml"),
        );
        check("automodel finetune llm -c b.yaml", "automodel", Some("b.yaml"));
        check("automodel c.yaml --nproc-per-node 8", "automodel", Some("c.yaml"));
        check("srun python -m nemo_automodel.cli.app d.yaml --x 1", "automodel", Some("d.yaml"));
        check("python train.py --config c.json", "unknown", None);
        check(
            "torchrun scripts/training/run_recipe.py --recipe llama3_8b train.train_iters=3",
            "bridge",
            None,
        );
        check("sleep 1", "unknown", None);
        // Our own scripts without a configuration.
        check(
            "torchrun -m torchtitan.train --module '<TITAN_MODULE>' --config '<TITAN_CONFIG>'",
            "torchtitan",
            None,
        );
        check("torchrun -m torchtitan.train --job.config_file '<TITAN_CONFIG>'", "torchtitan", None);
        check("srun python -m nemo_automodel.cli.app '<CONFIG.yaml>' --x 1", "automodel", None);
    }

    #[test]
    fn what_is_no_job_is_an_error_with_a_rule() {
        for line in [
            "sleep 1",
            "python -m nemo_automodel.cli.app '<CONFIG.yaml>'",
            "torchrun -m torchtitan.train --job.config_file a.toml",
        ] {
            let launched = crate::import::unwrap(&shlex::split(line).unwrap());
            let found = import_job(&launched, &recognise(&launched), None, &crate::import::testing::job(1));
            let first = &found.findings[0];
            assert_eq!(first.severity, planner::Severity::Error, "{first:?}");
            assert!(!first.rule.is_empty() && found.file.is_none(), "{first:?}");
        }
    }

    #[test]
    fn a_program_of_another_model_is_refused_by_its_name() {
        let planned = |program: &str| {
            let line = format!(
                "torchrun {program} --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --vocab-size 256"
            );
            let launched = crate::import::unwrap(&shlex::split(&line).unwrap());
            import_job(&launched, &recognise(&launched), None, &crate::import::testing::job(1))
        };
        assert!(planned("pretrain_gpt.py").file.is_some());
        for program in ["pretrain_bert.py", "examples/multimodal/train.py"] {
            let found = planned(program);
            assert_eq!(found.file, None, "{program}");
            assert!(found.findings[0].message.starts_with(program), "{:?}", found.findings);
        }
    }
}
