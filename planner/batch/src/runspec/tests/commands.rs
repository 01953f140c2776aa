//! Commands, token by token, and the five of the embedding recipe.

use super::*;

fn run<'a>(pre_script: &'a [String], extras: &'a [String], repo: Repo<'a>) -> UvRun<'a> {
    UvRun {
        uv: "/bin/uv",
        stage: "/repo/stage",
        repo,
        extra_with: &[],
        extras,
        pre_script,
        script: "/repo/stage/scripts/train.py",
        config: Some("/tmp/train.yaml"),
        passthrough: &[],
        verbatim: None,
        no_sync: false,
    }
}

#[test]
fn the_order_of_tokens() {
    let (extra_with, passthrough) = (words("pandas rich>=13"), words("lr=1e-4 --debug --config-x"));
    let extras = words("tensorrt cu129");
    let command = uv_run(&UvRun {
        extra_with: &extra_with,
        passthrough: &passthrough,
        ..run(&[], &extras, Repo::Package("/repo"))
    });
    assert_eq!(
        command.command,
        words(
            "/bin/uv run --with /repo --with pandas --with rich>=13 --project /repo/stage --extra tensorrt --extra cu129 \
             python /repo/stage/scripts/train.py --config /tmp/train.yaml lr=1e-4 --debug --config-x"
        )
    );
    assert_eq!(command.unset, ["VIRTUAL_ENV"]);
    assert!(command.set.is_empty() && command.prepend.is_empty());
}

#[test]
fn source_path_mode() {
    let command = uv_run(&run(&[], &[], Repo::SourcePath("/repo")));
    assert!(!command.command.contains(&"--with".to_owned()));
    assert_eq!(command.prepend["PYTHONPATH"], "/repo/src");
}

#[track_caller]
fn check_launch(header: &str, nproc: Option<&str>, expected: &str) {
    let spec = spec(&format!("[tool.runspec]\nschema = 1\n{header}"));
    let used = settings(&spec, None, true).expect("settings");
    let processes = nproc.map_or(used.processes, |text| Processes::parse(text).expect("processes"));
    let pre = launcher_arguments(spec.launch, &processes).expect("arguments");
    assert_eq!(pre.join(" "), expected);
}

#[test]
fn launchers() {
    let torchrun = |n: &str| format!("-m torch.distributed.run --nproc_per_node={n}");
    check_launch("run.launch = \"torchrun\"\nresources.gpus_per_node = \"gpu\"", None, &torchrun("gpu"));
    check_launch("run.launch = \"torchrun\"\nresources.gpus_per_node = 1", None, &torchrun("1"));
    check_launch("run.launch = \"torchrun\"\nresources.gpus_per_node = 1", Some("gpu"), &torchrun("gpu"));
    check_launch("resources.gpus_per_node = 0", None, &torchrun("1"));
    check_launch("resources.gpus_per_node = 4", Some("auto"), &torchrun("auto"));
    check_launch("run.launch = \"direct\"", None, "");
    check_launch("run.launch = \"python\"", Some("4"), "");
}

#[test]
fn ray_is_refused_by_name() {
    let finding = launcher_arguments(Launch::Ray, &Processes::Count(8)).expect_err("a refusal");
    assert!(finding.message.starts_with("this script's launch is ray"), "{}", finding.message);
}

#[test]
fn numbers_of_processes() {
    for good in ["1", "8", "gpu", "cpu", "xpu", "auto"] {
        assert_eq!(Processes::parse(good).expect("processes").word(), good);
    }
    for bad in ["0", "-1", "", "all", "1025", "1e3", "8 "] {
        assert!(Processes::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn direct_runs_python_with_its_extras() {
    let extras = words("tensorrt");
    let command = uv_run(&run(&[], &extras, Repo::None)).command.join(" ");
    assert_eq!(
        command,
        "/bin/uv run --project /repo/stage --extra tensorrt python /repo/stage/scripts/train.py --config \
         /tmp/train.yaml"
    );
}

#[test]
fn a_command_of_the_scripts_own_is_taken_as_it_stands() {
    let spaced = UvRun {
        script: "/a b/{config}.py",
        verbatim: Some("python {script} {config} {other} && echo ${HOME}"),
        ..run(&[], &[], Repo::None)
    };
    let command = uv_run(&spaced).command;
    assert_eq!(command[..4], words("/bin/uv run --project /repo/stage"));
    let quoted = crate::shell::quoted("/a b/{config}.py").expect("a word");
    assert_eq!(
        command[4..],
        ["bash", "-c", &format!("python {quoted} /tmp/train.yaml {{other}} && echo ${{HOME}}")]
    );
}

#[test]
fn without_uv() {
    let pre = launcher_arguments(Launch::Torchrun, &Processes::Count(1)).expect("arguments");
    let command = plain(&Plain {
        python: "python3",
        repo: Repo::Package("/repo"),
        pre_script: &pre,
        script: "/s.py",
        config: None,
        passthrough: &[],
        verbatim: None,
    });
    assert_eq!(command.command, words("python3 -m torch.distributed.run --nproc_per_node=1 /s.py"));
    assert_eq!(command.prepend["PYTHONPATH"], "/repo/src");
}

#[test]
fn an_environment_that_several_share() {
    let extras = words("cu129");
    let several = UvRun { no_sync: true, ..run(&[], &extras, Repo::None) };
    assert_eq!(sync(&several).command.join(" "), "/bin/uv sync --project /repo/stage --extra cu129");
    assert!(uv_run(&several).command.contains(&"--no-sync".to_owned()));
}

#[test]
fn lines_for_people_hold_no_secret() {
    let line = shell_line(&words(
        "uv run x.py --token=hf_abcdefghijklmnopqrst hf_abcdefghijklmnopqrst api.key=1 --api-key 1 --key --a a=b",
    ));
    assert_eq!(
        line,
        "uv run x.py '--token=<SECRET>' '<SECRET>' 'api.key=<SECRET>' --api-key '<SECRET>' --key --a a=b"
    );
    assert_eq!(shell_line(&["a b".into(), "it's".into(), "x\ny".into()]), "'a b' \"it's\" $'x\\ny'");
    let mut invocation = Invocation::default();
    invocation.set.insert("WANDB_API_KEY".into(), "k".into());
    assert_eq!(invocation.shown().set["WANDB_API_KEY"], "<SECRET>");
}

/// A stage of the recipe: header, project, configuration; and the command that it gives.
#[track_caller]
fn check_stage(name: &str, launch: &str, project: &str, config: &str, arguments: &str, expected: &str) {
    let spec = spec(&format!(
        "[tool.runspec]\nname = \"embed/{name}\"\n[tool.runspec.run]\nlaunch = \"{launch}\"\n\
         [tool.runspec.resources]\ngpus_per_node = \"gpu\""
    ));
    let stage = read_stage("pyproject.toml", project).expect("a stage");
    let passthrough = words(arguments);
    let extras = switched_extras(&stage, &passthrough, config);
    let used = settings(&spec, None, true).expect("settings");
    let pre = launcher_arguments(spec.launch, &used.processes).expect("arguments");
    let (folder, script) = (format!("/r/{name}"), format!("/r/{name}/{name}.py"));
    let command = uv_run(&UvRun {
        uv: "uv",
        stage: &folder,
        repo: Repo::Package("/r"),
        extra_with: &[],
        extras: &extras,
        pre_script: &pre,
        script: &script,
        config: Some("/c.yaml"),
        passthrough: &passthrough,
        verbatim: None,
        no_sync: false,
    });
    assert_eq!(shell_line(&command.command), expected);
}

const EXPORT: &str =
    "[project]\nname = \"export\"\n[project.optional-dependencies]\ntensorrt = [\"tensorrt\"]\n";

#[test]
fn the_five_commands_of_the_embedding_recipe() {
    let plain = "[project]\nname = \"p\"\n";
    let run = |name: &str, middle: &str| {
        format!("uv run --with /r --project /r/{name} {middle} /r/{name}/{name}.py --config /c.yaml")
    };
    check_stage("sdg", "direct", plain, "", "", &run("sdg", "python"));
    check_stage("prep", "direct", plain, "", "", &run("prep", "python"));
    let torchrun = "-m torch.distributed.run --nproc_per_node=gpu";
    check_stage("finetune", "torchrun", plain, "", "lr=1e-5", &(run("finetune", torchrun) + " lr=1e-5"));
    check_stage("eval", "direct", plain, "", "", &run("eval", "python"));
    check_stage("export", "direct", EXPORT, "export_to_trt: false\n", "", &run("export", "python"));
    let with_extra = run("export", "--extra tensorrt python");
    check_stage("export", "direct", EXPORT, "export_to_trt: true # engine\n", "", &with_extra);
    check_stage("export", "direct", EXPORT, "", "export_to_trt=true", &(with_extra + " export_to_trt=true"));
}

#[test]
fn switches_of_extras() {
    let stage = read_stage("pyproject.toml", EXPORT).expect("a stage");
    let on = |arguments: &str, config: &str| !switched_extras(&stage, &words(arguments), config).is_empty();
    assert!(on("--export_to_trt=True", "") && on("--export_to_trt true", "") && on("--export_to_trt", ""));
    assert!(on("", "{\n  \"export_to_trt\": true,\n}"));
    assert!(!on("export_to_trt=false", "export_to_trt: true"), "an argument is before the file");
    assert!(!on("", "other:\n  export_to_trt: true\n") && !on("", "# export_to_trt: true\n"));
    let without = read_stage("pyproject.toml", "[project]\nname = \"p\"").expect("a stage");
    assert!(switched_extras(&without, &words("export_to_trt=true"), "").is_empty());
}

#[test]
fn configurations() {
    let with = spec("[tool.runspec]\n[tool.runspec.config]\ndefault = \"base\"");
    let bare = spec("[tool.runspec]\nschema = 1");
    let files = words("base.yaml big.yml notes.txt default.json");
    let find = |spec: &Runspec, named: Option<&str>| {
        config_file(spec, named, "/s/config", &files, |path| path == "/elsewhere/x.yaml")
    };
    let file = |path: &str| Ok(ConfigFile::File(path.to_owned()));
    assert_eq!(find(&with, None), file("/s/config/base.yaml"));
    assert_eq!(find(&with, Some("big")), file("/s/config/big.yml"));
    assert_eq!(find(&with, Some("big.yml")), file("/s/config/big.yml"));
    assert_eq!(find(&with, Some("/elsewhere/x.yaml")), file("/elsewhere/x.yaml"));
    assert_eq!(find(&bare, None), Ok(ConfigFile::Absent));
    let finding = find(&with, Some("bug")).expect_err("an error");
    assert_eq!(finding.message, "there is no configuration bug; in /s/config there are: base, big");
    assert_eq!(finding.nearest[0], "big");
}
