//! The start on a container's torch.

use super::*;

const PROJECT: &str = r#"
[project]
name = "stage"
version = "1.2"
requires-python = ">=3.12"
description = "a \"quoted\" one"
dependencies = ["torch>=2.10", "x[a]>=1; sys_platform == 'linux'", "a\\b"]
[project.optional-dependencies]
tensorrt = ["tensorrt>=10"]
[build-system]
requires = ["hatchling"]
[tool.uv]
override-dependencies = ["transformers>=5"]
exclude-dependencies = ["transformer-engine", "triton"]
[tool.uv.extra-build-dependencies]
flash-attn = ["torch"]
[tool.uv.sources]
sibling = { path = "../sibling", editable = true }
rooted = { path = "/opt/rooted" }
listed = [{ path = "./wheels/x.whl", marker = "sys_platform == 'linux'" }, { index = "i" }]
remote = { git = "https://example.org/x", rev = "abc" }
[[tool.uv.index]]
name = "i"
url = "https://example.org/simple"
explicit = true
[[tool.uv.index]]
name = "j"
url = "https://example.org/other"
[tool.other]
x = 1
"#;

#[test]
fn what_the_temporary_project_keeps() {
    let stage = read_stage("pyproject.toml", PROJECT).expect("a stage");
    let text = container_project(&stage, "/repo/stages/one", &[]).expect("a project");
    insta::assert_snapshot!(text);
    // Read again, it says the same and is excluded the same.
    let again = read_stage("pyproject.toml", &text).expect("a stage");
    assert_eq!(container_project(&again, "/elsewhere", &[]).expect("a project"), text);
}

#[test]
fn a_stage_lists_its_own_exclusions() {
    let text =
        "[project]\nname = \"s\"\n[tool.nemotron]\ncontainer-exclude-dependencies = [\"torch\", \"torch\"]\n";
    let stage = read_stage("pyproject.toml", text).expect("a stage");
    let project = container_project(&stage, "/s", &[]).expect("a project");
    assert!(project.contains("exclude-dependencies = [\"torch\"]"), "{project}");
    assert_eq!(read_stage("p", "[project]\nname = \"s\"").expect("a stage").excluded, DEFAULT_EXCLUDED);
}

#[test]
fn the_steps() {
    let extras = words("tensorrt");
    let pre = launcher_arguments(Launch::Torchrun, &Processes::Count(2)).expect("arguments");
    let run = Plain {
        python: "ignored",
        repo: Repo::Package("/repo"),
        pre_script: &pre,
        script: "/repo/stage/train.py",
        config: Some("/c.yaml"),
        passthrough: &words("a=b"),
        verbatim: None,
    };
    let (steps, start) = container_steps(&InContainer {
        uv: "uv",
        interpreter: "/usr/bin/python3",
        environment: "/e/venv",
        project: "/e/project",
        extras: &extras,
        run,
    });
    let lines: Vec<String> = steps.iter().map(|step| step.command.join(" ")).collect();
    assert_eq!(
        lines,
        [
            "uv venv --python /usr/bin/python3 --system-site-packages --seed /e/venv",
            "uv sync --active --project /e/project --extra tensorrt",
            "uv pip install --no-deps /repo",
        ]
    );
    assert_eq!(steps[1].folder.as_deref(), Some("/e/project"));
    assert_eq!(
        start.command.join(" "),
        "/e/venv/bin/python -m torch.distributed.run --nproc_per_node=2 /repo/stage/train.py --config /c.yaml a=b"
    );
    for step in steps[1..].iter().chain([&start]) {
        assert_eq!(step.set["VIRTUAL_ENV"], "/e/venv");
        assert_eq!(step.set["UV_PROJECT_ENVIRONMENT"], "/e/venv");
        assert_eq!(step.prepend["PATH"], "/e/venv/bin");
    }
}

#[test]
fn projects_that_are_refused() {
    for (text, expected) in [
        ("[project]\noptional-dependencies = 3", "it must be a table"),
        ("[project.optional-dependencies]\nx = \"y\"", "it must be a list of strings"),
        ("[tool.nemotron]\nentry-point = 3", "tool.nemotron.entry-point is 3 (integer); it must be a string"),
        ("[tool.nemotron]\ncontainer-exclude-dependencies = \"torch\"", "it must be a list of strings"),
        ("[project", "this is not TOML at line 1"),
    ] {
        let finding = read_stage("pyproject.toml", text).expect_err("an error");
        assert!(finding.message.contains(expected), "{}", finding.message);
    }
}
