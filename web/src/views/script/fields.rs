//! Values of the site that are typed or chosen, and where they stand.

use batch::launch::{Body, Container, Environment, GpuRequest, Profile, Site, Task, command_line, words};

use super::variables;

/// One value of the site.
#[derive(Clone, Copy)]
pub struct Field {
    /// Its name in the site file.
    pub name: &'static str,
    /// What a person calls it.
    pub label: &'static str,
    /// What stands in an empty box, or what an empty choice means.
    pub hint: &'static str,
    /// Values to choose from; none to type one.
    pub choices: &'static [&'static str],
    /// Its value as text.
    pub read: fn(&Site) -> String,
    /// Puts a text in its place; an empty one takes the value away.
    pub write: fn(&mut Site, &str),
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn said(value: Option<bool>) -> String {
    value.map_or("", |on| if on { "yes" } else { "no" }).to_owned()
}

macro_rules! text {
    ($name:ident, $label:literal, $hint:literal) => {
        Field {
            name: stringify!($name),
            label: $label,
            hint: $hint,
            choices: &[],
            read: |site| site.$name.clone().unwrap_or_default(),
            write: |site, text| site.$name = given(text),
        }
    };
}

macro_rules! items {
    ($name:ident, $label:literal, $hint:literal) => {
        Field {
            name: stringify!($name),
            label: $label,
            hint: $hint,
            choices: &[],
            read: |site| site.$name.join(", "),
            write: |site, text| site.$name = list(text),
        }
    };
}

macro_rules! yes_or_no {
    ($name:ident, $label:literal, $hint:literal) => {
        Field {
            name: stringify!($name),
            label: $label,
            hint: $hint,
            choices: &["yes", "no"],
            read: |site| said(site.$name),
            write: |site, text| site.$name = switch(text),
        }
    };
}

macro_rules! words {
    ($name:ident, $label:literal, $hint:literal) => {
        Field {
            name: stringify!($name),
            label: $label,
            hint: $hint,
            choices: &[],
            read: |site| command_line(&site.$name),
            write: |site, text| site.$name = words(text),
        }
    };
}

macro_rules! yes {
    ($name:ident, $label:literal, $hint:literal) => {
        Field {
            name: stringify!($name),
            label: $label,
            hint: $hint,
            choices: &["yes"],
            read: |site| if site.$name { "yes" } else { "" }.to_owned(),
            write: |site, text| site.$name = text == "yes",
        }
    };
}

macro_rules! number {
    ($name:ident, $label:literal, $hint:literal) => {
        Field {
            name: stringify!($name),
            label: $label,
            hint: $hint,
            choices: &[],
            read: |site| site.$name.map(|value| value.to_string()).unwrap_or_default(),
            write: |site, text| site.$name = text.parse().ok(),
        }
    };
}

/// What nearly every script needs.
pub const USUAL: &[Field] = &[
    text!(account, "Account", ""),
    text!(partition, "Partition", "batch"),
    text!(time, "Time limit", "00:30:00"),
    text!(shared_dir, "Shared folder", "/shared/me/shardplan"),
    text!(image, "Container image", ""),
    items!(mounts, "Mounts", "/shared:/shared"),
];

/// What a body needs.
pub const fn of_body(body: Body, task: Task) -> &'static [Field] {
    const WORKDIR: Field = text!(workdir, "Starts in", "folder of the code");
    const PRETRAINED: Field = text!(pretrained, "Checkpoint to begin with", "none");
    const FURTHER: Field = words!(extra_args, "Further arguments", "--log-interval 10");
    const TRUST: Field = yes!(trust_remote_code, "Code of the model's authors", "is not run");
    match (body, task) {
        (Body::Worker, _) => &[
            text!(rank_binary, "shardplan-rank", "as the nodes see it"),
            text!(torch_lib, "Folder of libtorch", "as the nodes see it"),
        ],
        (Body::Bridge, Task::Train) => &[
            text!(workdir, "Megatron Bridge", "/opt/Megatron-Bridge"),
            text!(recipe, "Recipe", ""),
            text!(data_path, "Tokenized data", "the recipe's"),
            text!(tokenizer, "Tokenizer", "the recipe's"),
            PRETRAINED,
            FURTHER,
        ],
        (Body::Bridge, _) => &[
            text!(workdir, "Megatron Bridge", "/opt/Megatron-Bridge"),
            text!(hf_model, "Model on Hugging Face", "org/model"),
            TRUST,
            FURTHER,
        ],
        (Body::Mlm, _) => &[
            WORKDIR,
            text!(megatron_lm, "Megatron-LM in it", "3rdparty/Megatron-LM"),
            text!(data_path, "Tokenized data", "mock data"),
            text!(tokenizer, "Tokenizer", "none"),
            PRETRAINED,
            TRUST,
            FURTHER,
        ],
        (Body::Automodel, _) => &[
            text!(workdir, "Automodel", "/opt/Automodel"),
            text!(config, "Recipe file", "recipe.yaml"),
            text!(tokenizer, "Tokenizer", "the recipe's"),
            FURTHER,
        ],
        (Body::Torchtitan, _) => &[
            WORKDIR,
            text!(titan_module, "Module", "llama3"),
            text!(titan_config, "Configuration", "llama3_8b"),
            text!(data_path, "Folder of the data set", "the configuration's"),
            text!(tokenizer, "Folder of the tokenizer", "the configuration's"),
            PRETRAINED,
            FURTHER,
        ],
        (Body::Command, _) => &[WORKDIR],
    }
}

/// Habits of the cluster.
pub const CLUSTER: &[Field] = &[
    Field {
        name: "profile",
        label: "Profile",
        hint: "none",
        choices: &["nemo-runspec"],
        read: |site| site.profile.map_or("", Profile::name).to_owned(),
        write: |site, text| {
            site.profile = Profile::ALL.into_iter().find(|profile| profile.name() == text);
        },
    },
    Field {
        name: "gpus",
        label: "GPUs asked by",
        hint: "gpus-per-node",
        choices: &["gres", "none"],
        read: |site| {
            if site.gpus == GpuRequest::GpusPerNode { String::new() } else { site.gpus.name().to_owned() }
        },
        write: |site, text| {
            site.gpus = match text {
                "gres" => GpuRequest::Gres,
                "none" => GpuRequest::Nothing,
                _ => GpuRequest::GpusPerNode,
            };
        },
    },
    text!(gpu_type, "Type of GPU", "any"),
    text!(qos, "QOS", ""),
    text!(reservation, "Reservation", ""),
    text!(constraint, "Constraint", ""),
    text!(exclude, "Nodes left out", ""),
    text!(failed_nodes, "Nodes with failed GPUs", "node3,node[7-8]"),
    text!(dependency, "Waits for", "afterok:123"),
    text!(mem, "Memory of a node", "as the cluster is set"),
    number!(cpus_per_task, "Cores of a task", "as the cluster is set"),
    number!(ntasks_per_node, "Tasks of a node", "by the mode"),
    yes_or_no!(exclusive, "Whole nodes", "yes"),
    yes_or_no!(segment, "NVLink segments", "yes"),
    text!(mpi, "MPI plugin", "by the body"),
    yes_or_no!(requeue, "Requeue", "yes for trainings"),
    Field {
        name: "retries",
        label: "Tries after a failure",
        hint: "0",
        choices: &[],
        read: |site| if site.retries == 0 { String::new() } else { site.retries.to_string() },
        write: |site, text| site.retries = text.parse().unwrap_or(0),
    },
    text!(signal, "Signal before the end", "TERM, where it is handled"),
    number!(save_every, "Steps between saves", "about half an hour"),
];

/// Containers, environments, variables.
pub const SOFTWARE: &[Field] = &[
    Field {
        name: "container",
        label: "Container by",
        hint: "pyxis, where there is an image",
        choices: &["pyxis", "apptainer", "none"],
        read: |site| site.container.map_or("", Container::name).to_owned(),
        write: |site, text| {
            site.container = [Container::Pyxis, Container::Apptainer, Container::None]
                .into_iter()
                .find(|kind| kind.name() == text);
        },
    },
    yes!(container_writable, "Container writable", "no"),
    Field {
        name: "environment",
        label: "Python environment",
        hint: "by image and body",
        choices: &["shared", "node-local", "none"],
        read: |site| site.environment.map_or("", Environment::name).to_owned(),
        write: |site, text| {
            site.environment = [Environment::Shared, Environment::NodeLocal, Environment::None]
                .into_iter()
                .find(|kind| kind.name() == text);
        },
    },
    items!(modules, "Modules", "cuda/12.9"),
    Field {
        name: "env",
        label: "Variables",
        hint: "NAME=value, NAME=value",
        choices: &[],
        read: |site| variables::write(&site.env),
        write: |site, text| site.env = variables::read(text),
    },
    items!(required_env, "Must be exported", "HF_TOKEN"),
    text!(secrets_file, "File of secrets", ""),
    text!(hf_home, "Hugging Face cache", "in the shared folder"),
    text!(uv_cache_dir, "uv cache", "in the shared folder"),
    text!(nemo_home, "NeMo home", "in the shared folder"),
    yes!(numa_bind, "Bound by numactl", "no"),
    yes_or_no!(measure, "Measured beside the plan", "yes, where shardplan is at hand"),
    Field {
        name: "prologue",
        label: "Commands before it",
        hint: "source /opt/env.sh; ulimit -n 65536",
        choices: &[],
        read: |site| site.prologue.join("; "),
        write: |site, text| site.prologue = given(text).into_iter().collect(),
    },
];
