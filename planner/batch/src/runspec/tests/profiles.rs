//! `env.toml`, and what a run uses in the end.

use super::*;

const FILE: &str = r#"
[base]
executor = "slurm"
account = "team"
time = "01:00:00"
[base.env_vars]
A = "1"
B = "2"

[cluster]
extends = "base"
partition = "both"
batch_partition = "batch"
container = "old:1"
nodes = 4
[cluster.env_vars]
B = "3"

[here]
nproc_per_node = "gpu"
startup_commands = ["module load cuda", "nvidia-smi"]

[a]
extends = "b"
[b]
extends = "a"
[lost]
extends = "nowhere"
[self]
extends = "self"

[wandb]
project = "x"
"#;

fn get(name: &str) -> Result<LaidProfile, Box<planner::Finding>> {
    profile("env.toml", FILE, name)
}

fn used(toml: &str, name: Option<&str>) -> Settings {
    let profile = name.map(|name| get(name).expect("a profile"));
    settings(&spec(toml), profile.as_ref(), true).expect("settings")
}

#[track_caller]
fn check_error(name: &str, expected: &str) {
    let finding = get(name).expect_err("an error");
    assert_eq!(finding.message, expected);
}

const NAMES: &str = "it has: a, b, base, cluster, here, lost, self: env.toml";

#[test]
fn profiles_that_are_not_there() {
    check_error("clutser", &format!("there is no profile clutser; {NAMES}"));
    check_error("wandb", &format!("there is no profile wandb; {NAMES}"));
    check_error("lost", &format!("profile lost extends nowhere, which is not there; {NAMES}"));
    assert_eq!(get("clutser").expect_err("an error").nearest[0], "cluster");
    let empty = profile("env.toml", "", "x").expect_err("an error");
    assert_eq!(empty.message, "there is no profile x; it has none: env.toml");
}

#[test]
fn circles() {
    let circle = |text: &str| format!("profiles extend one another in a circle, {text}; {NAMES}");
    check_error("a", &circle("a -> b -> a"));
    check_error("self", &circle("self -> self"));
}

#[test]
fn children_win_and_tables_are_merged() {
    let found = used("[tool.runspec]\nschema = 1", Some("cluster"));
    assert_eq!(found.executor, Executor::Slurm);
    assert_eq!(
        found.env.into_iter().collect::<Vec<_>>(),
        [("A".into(), "1".into()), ("B".into(), "3".into())]
    );
    assert_eq!(
        (found.slurm.account.as_deref(), found.slurm.time.as_deref()),
        (Some("team"), Some("01:00:00"))
    );
    assert_eq!(found.slurm.partition.as_deref(), Some("batch"));
}

#[test]
fn a_job_that_somebody_waits_for_goes_elsewhere() {
    let profile = get("cluster").expect("a profile");
    let found = settings(&spec("[tool.runspec]\nschema = 1"), Some(&profile), false).expect("settings");
    assert_eq!(found.slurm.partition.as_deref(), Some("both"));
}

#[test]
fn profile_before_header_before_defaults() {
    let header = "[tool.runspec]\nimage = \"new:2\"\nresources.nodes = 2\nresources.gpus_per_node = 4";
    let alone = used(header, None);
    assert_eq!((alone.nodes, alone.gpus_per_node), (2, Some(Gpus::Count(4))));
    assert_eq!(alone.image.as_deref(), Some("new:2"));
    assert_eq!(alone.processes, Processes::Count(4));
    let with = used(header, Some("cluster"));
    assert_eq!((with.nodes, with.gpus_per_node), (4, Some(Gpus::Count(4))));
    assert_eq!(with.image.as_deref(), Some("old:1"));
    let here = used(header, Some("here"));
    assert_eq!(here.processes, Processes::Each("gpu".into()));
    assert_eq!(here.startup_commands, ["module load cuda", "nvidia-smi"]);
}

#[test]
fn container_image_is_before_its_old_name() {
    let text = "[x]\ncontainer = \"old\"\ncontainer_image = \"new\"";
    let profile = profile("env.toml", text, "x").expect("a profile");
    let found = settings(&spec("[tool.runspec]\nimage = \"own\""), Some(&profile), true).expect("settings");
    assert_eq!(found.image.as_deref(), Some("new"));
}

#[test]
fn slurm_defaults_are_those_of_the_executor() {
    let text =
        "[x]\nexecutor = \"slurm\"\nremote_job_dir = \"/shared/me\"\nmounts = [\"/a:/b\"]\ncontainer = \"i\"";
    let profile = profile("env.toml", text, "x").expect("a profile");
    let found = settings(&spec("[tool.runspec]\nschema = 1"), Some(&profile), true).expect("settings").slurm;
    assert_eq!(
        (found.time.as_deref(), found.ntasks_per_node, found.exclusive),
        (Some("04:00:00"), Some(8), false)
    );
    assert_eq!(found.mounts, ["/a:/b", "/lustre:/lustre", "/shared/me/ray_temp:/ray-cluster"]);
}

#[test]
fn values_of_profiles_that_are_refused() {
    for (text, expected) in [
        (
            "executor = \"lsf\"",
            "profile.executor is \"lsf\", and must be one of: local, docker, slurm, dgxcloud, lepton",
        ),
        (
            "executor = \"docker\"",
            "profile.executor is docker, which is not started from here; local and slurm are",
        ),
        (
            "startup_commands = \"ls\"",
            "profile.startup_commands is \"ls\" (string); it must be a list of strings",
        ),
        (
            "startup_commands = [\"ls\", 3]",
            "profile.startup_commands is 3 (integer); it must be a list of strings, and one of its entries is not",
        ),
        (
            "nodes = \"many\"",
            "profile.nodes is \"many\" (string); it must be a whole number from 1 to 100000",
        ),
        (
            "nproc_per_node = \"all\"",
            "the number of processes is \"all\", and must be from 1 to 1024 or one of: gpu, cpu, xpu, auto",
        ),
        (
            "account = \"${oc.env:USER}\"",
            "account of profile or header holds a ${...} reference, which is not resolved here; write the value itself",
        ),
        ("extends = 3", "x.extends is 3 (integer); it must be a profile's name"),
    ] {
        let found = profile("env.toml", &format!("[x]\n{text}"), "x")
            .and_then(|profile| settings(&spec("[tool.runspec]\nschema = 1"), Some(&profile), true));
        assert_eq!(found.expect_err("an error").message, expected);
    }
}
