//! What a header names, what versions allow, how many processes are started, and what makes an environment.

use super::*;
use crate::runspec::here::{Devices, Wanted, processes_here};
use crate::runspec::requirement::{allows, requirement_of};
use crate::runspec::spec::USUAL_GPUS;

fn read(toml: &str) -> Header {
    header("train.py", &script(toml)).expect("a header")
}

#[test]
fn a_header_may_say_anything_or_nothing() {
    let none = header("train.py", "print(1)\n").expect("a script");
    assert!(!none.has_runspec && none.packages.is_none() && !none.spec.says_gpus);
    assert_eq!(none.spec.launch, Launch::Torchrun);
    let listed = read("requires-python = \">=3.12\"\ndependencies = [\"numpy\"]");
    assert!(!listed.has_runspec);
    let packages = listed.packages.expect("packages");
    assert_eq!((packages.dependencies.as_slice(), packages.has_uv), (&["numpy".to_owned()][..], false));
    assert_eq!(packages.stage.requires_python(), Some(">=3.12"));
    assert_eq!(packages.stage.dependencies(), ["numpy"]);
    // An empty list is a list: an environment with nothing in it.
    assert!(read("dependencies = []").packages.is_some());
    assert!(read("[tool.runspec]\nname = \"x\"").packages.is_none());
    let pinned = read("dependencies = [\"torch\"]\n[tool.uv.sources]\ntorch = {index = \"pytorch-cu129\"}");
    assert_eq!(pinned.packages.expect("packages").stage.torch_index.as_deref(), Some("pytorch-cu129"));
    for wrong in [
        "dependencies = \"numpy\"",
        "dependencies = [1]",
        "dependencies = []\nrequires-python = 3",
        "dependencies = []\ntool.uv = 1",
    ] {
        assert!(header("train.py", &script(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn versions_that_are_allowed() {
    for (versions, version, expected) in [
        ("", "2.11.0+cu130", true),
        (">=2.4", "2.11.0+cu130", true),
        (">=2.4,<2.8", "2.11.0", false),
        ("<2.8", "2.7.1+cu128", true),
        ("==2.6", "2.6.0+cu124", true),
        ("==2.6.0", "2.6.1", false),
        ("==2.6.*", "2.6.1", true),
        ("!=2.6.*", "2.6.1", false),
        ("==2.6.0+cu124", "2.6.0+cu126", false),
        ("==2.6.0+cu124", "2.6.0+cu124", true),
        ("~=2.6", "2.11.0", true),
        ("~=2.6.1", "2.7.0", false),
        (">2.6", "2.6.0", false),
        ("<=2.6", "2.6.0a0+git1", true),
        (">=3.10,<3.11", "3.11.7", false),
        ("@ https://host/torch.whl", "2.11.0", false),
        ("newest please", "2.11.0", true),
    ] {
        assert_eq!(allows(versions, version), expected, "{version} of {versions}");
    }
}

#[test]
fn requirements_are_found_by_name() {
    let list: Vec<String> =
        ["torch_geometric>=2", "Torch [opt] >=2.4 ; sys_platform == 'linux'", "accelerate"]
            .map(str::to_owned)
            .to_vec();
    assert_eq!(requirement_of(&list, "torch"), Some(">=2.4"));
    assert_eq!(requirement_of(&list, "accelerate"), Some(""));
    assert_eq!(requirement_of(&list, "numpy"), None);
    assert_eq!(requirement_of(&["torch(>=2)".to_owned()], "torch"), Some(">=2"));
    assert_eq!(requirement_of(&["torch @ file:///t.whl".to_owned()], "torch"), Some("@ file:///t.whl"));
}

#[test]
fn processes_are_for_what_is_here() {
    let check = |asked: Option<&str>, wanted: Wanted, devices, expected: &str, part: &str| {
        let asked = asked.map(|text| Processes::parse(text).expect("processes"));
        let (found, findings) = processes_here(asked.as_ref(), wanted, devices);
        let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(found.word(), expected, "{asked:?} {wanted:?} {devices:?}");
        assert_eq!(messages.is_empty(), part.is_empty(), "{messages:?}");
        assert!(messages.iter().all(|message| message.contains(part)), "{messages:?}");
    };
    let two = Wanted::Said(Gpus::Count(2));
    check(None, two, Devices::Gpus(8), "2", "");
    check(
        None,
        two,
        Devices::Gpus(1),
        "1",
        "for 2 GPUs a node, and 1 is visible here: one process is started",
    );
    check(None, two, Devices::None, "2", "no GPU is visible here: 2 processes are started on the CPU");
    check(None, Wanted::Said(Gpus::Count(1)), Devices::None, "1", "");
    check(None, Wanted::Said(Gpus::Count(0)), Devices::None, "1", "");
    check(None, Wanted::Said(Gpus::ALL), Devices::Gpus(4), "gpu", "");
    check(None, Wanted::Said(Gpus::ALL), Devices::None, "1", "one process is started on the CPU");
    check(None, Wanted::Open, Devices::Gpus(4), "gpu", "");
    check(None, Wanted::Open, Devices::Named("xpu"), "xpu", "");
    check(None, Wanted::Open, Devices::None, "1", "--nproc N starts more");
    // What a header does not say is eight, whatever is here, and nobody is said to have written it.
    let eight = Wanted::Usual(USUAL_GPUS);
    let usual = "for 8 GPUs a node, as a runspec is that says no number, and ";
    check(None, eight, Devices::Gpus(8), "8", "");
    check(None, eight, Devices::Gpus(16), "8", "");
    check(None, eight, Devices::Gpus(4), "4", &format!("{usual}4 are visible here: 4 processes are started"));
    check(
        None,
        eight,
        Devices::None,
        "8",
        &format!("{usual}no GPU is visible here: 8 processes are started"),
    );
    check(None, eight, Devices::Named("xpu"), "xpu", "");
    check(Some("3"), eight, Devices::None, "3", "");
    for (wanted, field) in [(Wanted::Said(Gpus::ALL), "resources.gpus_per_node"), (Wanted::Open, "nproc")] {
        let (_, findings) = processes_here(None, wanted, Devices::None);
        assert_eq!(findings[0].field, field, "{findings:?}");
    }
    check(Some("3"), two, Devices::None, "3", "");
    check(Some("3"), two, Devices::Gpus(2), "3", "3 processes, and 2 GPUs are visible");
    check(Some("gpu"), two, Devices::None, "gpu", "so it will refuse");
}

#[test]
fn what_makes_an_environment() {
    let packages = read("requires-python = \">=3.11\"\ndependencies = [\"numpy\", \"--evil\"]")
        .packages
        .expect("packages");
    let with = words("rich");
    let from = PackagesFrom::Header { script: "/s/t.py", packages: &packages, is_locked: false };
    let made_of = Installation {
        from,
        with: &with,
        repository: Some("/repo"),
        python: None,
        backend: true,
        excluded: &[],
    };
    let lines = |made_of: &Installation<'_>| -> Vec<String> {
        installation("uv", "/e", made_of).iter().map(|step| step.command.join(" ")).collect()
    };
    assert_eq!(
        lines(&made_of),
        [
            "uv venv --python >=3.11 /e",
            "uv pip install --torch-backend auto -- numpy --evil rich",
            "uv pip install --no-deps -- /repo",
        ]
    );
    let locked = Installation {
        from: PackagesFrom::Header { script: "/s/t.py", packages: &packages, is_locked: true },
        backend: false,
        ..made_of
    };
    assert_eq!(lines(&locked)[1], "uv sync --active --script /s/t.py");
    let extras = words("cu129");
    let of_stage = Installation {
        from: PackagesFrom::Stage { folder: "/s", extras: &extras },
        backend: false,
        ..made_of
    };
    assert_eq!(lines(&of_stage)[1], "uv sync --active --project /s --extra cu129");
    // In a batch job a name that a shell would read is quoted, and nothing of the container is installed again.
    let odd = words("a;b");
    let excluded = words("torch");
    let commands = batch_commands(&Installation { with: &odd, excluded: &excluded, ..of_stage })
        .expect("commands")
        .join("\n");
    assert!(
        commands.contains("-r /s/pyproject.toml --extra cu129 &&") && commands.contains("-- 'a;b' &&"),
        "{commands}"
    );
    assert!(commands.contains("printf '%s\\n' torch > shardplan-excluded.txt"), "{commands}");
    let broken = ["a\nb".to_owned()];
    assert!(batch_commands(&Installation { with: &broken, ..of_stage }).is_none());
}
