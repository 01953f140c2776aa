//! The block at the top of a script.

use super::*;

#[track_caller]
fn check_error(text: &str, expected: &[&str]) {
    let finding = parse("/a/train.py", text).expect_err("an error");
    for part in expected {
        assert!(finding.message.contains(part), "{part:?} is not in {:?}", finding.message);
    }
}

#[test]
fn defaults_are_the_formats() {
    insta::assert_json_snapshot!(spec("[tool.runspec]\nschema = 1"), @r#"
    {
      "schema": "1",
      "docs": "",
      "name": "",
      "image": null,
      "setup": "",
      "launch": "torchrun",
      "cmd": null,
      "workdir": null,
      "config_dir": "./config",
      "config_default": "default",
      "config_format": "omegaconf",
      "has_config": false,
      "nodes": 1,
      "gpus_per_node": 8,
      "env": {}
    }
    "#);
}

#[test]
fn everything_can_be_said() {
    let text = r#"
[tool.runspec]
schema = "2"
docs = "spec.md"
name = "embed/finetune"
image = "registry/image:26.06"
setup = "  as it comes\n"
unknown = true

[tool.runspec.run]
launch = "python"
cmd = "python {script} --config {config}"
workdir = "/opt/code"

[tool.runspec.config]
dir = "./conf"
default = "small"
format = "json"

[tool.runspec.resources]
nodes = 2
gpus_per_node = "gpu"

[tool.runspec.env]
OMP_NUM_THREADS = "4"
"#;
    let spec = spec(text);
    assert_eq!(
        (spec.schema.as_str(), spec.setup.as_str(), spec.launch),
        ("2", "as it comes", Launch::Direct)
    );
    assert_eq!((spec.nodes, spec.gpus_per_node), (2, Gpus::ALL));
    assert_eq!((spec.config_default.as_str(), spec.config_format), ("small", ConfigFormat::Json));
    assert_eq!(spec.env["OMP_NUM_THREADS"], "4");
    assert!(spec.has_config && spec.workdir.as_deref() == Some("/opt/code"));
}

#[test]
fn comment_signs_are_taken_off() {
    let text = "# /// script\n# [tool.runspec]\n#\n#name = 'x'\n#  setup = 'y'\n# ///\n";
    let block = crate::runspec::block::script_block("s", text).expect("a block");
    assert_eq!(block.toml, "[tool.runspec]\n\nname = 'x'\n setup = 'y'\n");
    assert_eq!((block.first_line, block.file_line(0), block.file_line(15)), (2, 2, 3));
}

#[test]
fn lines_may_end_as_on_windows() {
    let text = script("[tool.runspec]\nname = \"x\"").replace('\n', "\r\n");
    assert_eq!(parse("s", &text).expect("a runspec").name, "x");
}

#[test]
fn the_first_closed_block_wins() {
    let two = script("[tool.runspec]\nname = 'a'") + &script("[tool.runspec]\nname = 'b'");
    assert_eq!(parse("s", &two).expect("a runspec").name, "a");
    let broken = "# /// script\n# [tool.runspec]\nx = 1\n".to_owned() + &script("[tool.runspec]\nname = 'b'");
    assert_eq!(parse("s", &broken).expect("a runspec").name, "b");
}

#[test]
fn what_is_no_block() {
    for text in
        ["", "print(1)\n", "#/// script\n# ///\n", " # /// script\n # ///\n", "# /// pyproject\n# ///\n"]
    {
        check_error(text, &["has no PEP 723 block", "/a/train.py"]);
    }
    check_error("x\n# /// script\n# [tool.runspec]\nprint(1)\n", &["on line 2 is not closed"]);
}

#[test]
fn a_block_without_the_table_has_a_message_of_its_own() {
    for toml in ["dependencies = []", "[tool.other]\nx = 1", "[tool.runspec]", "tool = {}"] {
        check_error(&script(toml), &["no [tool.runspec] table", "/a/train.py"]);
    }
}

#[test]
fn broken_toml_is_found_on_the_files_line() {
    check_error(&script("[tool.runspec]\nname = \nschema = 1"), &["line 4", "/a/train.py"]);
    check_error(&script("[tool.runspec]\nname = 'a'\nname = 'b'"), &["line 5"]);
}

#[test]
fn values_of_the_wrong_kind() {
    let header = "[tool.runspec]\nschema = 1\n";
    for (toml, expected) in [
        ("name = 3", "runspec.name is 3 (integer); it must be a string"),
        ("run = 3", "runspec.run is 3 (integer); it must be a table"),
        (
            "run.launch = \"mpirun\"",
            "runspec.run.launch is \"mpirun\", and must be one of: torchrun, ray, direct",
        ),
        ("config.format = \"ini\"", "must be one of: omegaconf, yaml, json"),
        ("resources.nodes = 0", "runspec.resources.nodes is 0 (integer); it must be a whole number from 1"),
        ("resources.nodes = 1.5", "it must be a whole number"),
        ("resources.gpus_per_node = -1", "it must be a whole number from 0"),
        ("resources.gpus_per_node = \"all\"", "or \"gpu\" for all"),
        ("resources.gpus_per_node = true", "it must be a whole number"),
        ("env = []", "it must be a table of strings"),
        ("env.A = []", "runspec.env.A is a list of 0 (array); it must be a string"),
        ("env.\"A B\" = \"x\"", "the name of a variable"),
    ] {
        check_error(&script(&format!("{header}{toml}")), &[expected]);
    }
}

#[test]
fn startup_commands_stand_in_a_group_and_stop_at_the_first_failure() {
    assert_eq!(crate::shell::startup_block(&[], "run"), "run");
    assert_eq!(crate::shell::startup_block(&["a".into(), "b".into()], "run"), "{ a && b; } && run");
}

proptest::proptest! {
    #[test]
    fn no_text_is_too_much(text in ".{0,200}", toml in ".{0,200}") {
        let _ = parse("s", &text);
        let _ = parse("s", &script(&toml));
        let _ = profile("env.toml", &toml, &text);
        let _ = read_stage("pyproject.toml", &toml);
        let _ = locked_mismatch("uv.lock", &toml);
        let _ = detect(|_| Some(text.clone()));
        let _ = (crate::runspec::torch::cuda_major(&text), DriverVersion::parse(&text));
    }
}
