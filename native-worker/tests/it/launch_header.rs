//! `shardplan launch` of scripts whose header says what they need.

use crate::launch::{Bench, HEADER, with_torch};
use crate::support::Answer;

#[test]
fn uv_makes_what_a_header_names() {
    let bench = Bench::new(HEADER);
    let write = |path: &str, text: &str| bench.0.write(path, text);
    // A header's packages are its script's alone, also below a project.
    write(
        "repo/stage/own.py",
        "# /// script\n# requires-python = \">=3.10\"\n# dependencies = [\"numpy\", \"-e x\"]\n# ///\n",
    );
    let steps = |answer: &Answer| -> String {
        let lines = answer.stderr.lines().filter(|line| line.starts_with('+'));
        let text = bench.said(&lines.collect::<Vec<_>>().join("\n"));
        let name =
            text.split("launch/").nth(1).and_then(|rest| rest.get(..16)).unwrap_or_default().to_owned();
        if name.is_empty() { text } else { text.replace(&name, "DIGEST") }
    };
    let answer = bench.ask(&["repo/stage/own.py", "--with", "rich", "--", "x"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    insta::assert_snapshot!(steps(&answer), @r"
    + DIR/bin/uv venv --python '>=3.10' DIR/cache/launch/DIGEST/venv
    + DIR/bin/uv pip install --torch-backend auto -- numpy '-e x' rich torch
    + DIR/cache/launch/DIGEST/venv/bin/python -m torch.distributed.run --nproc_per_node=1 DIR/repo/stage/own.py x
    ");
    assert!(
        answer.stderr.contains("torch is installed beside the packages of this script's header"),
        "{answer:?}"
    );
    let again = bench.ask(&["repo/stage/own.py", "--with", "rich", "--", "x"]);
    assert!(!again.stderr.contains("uv venv"), "what is ready is not made again: {again:?}");
    // On a torch that is there, the rest is put on top of it; one that the header does not take is not used.
    insta::assert_snapshot!(steps(&with_torch(&bench, &["repo/stage/own.py"])), @r"
    + DIR/bin/uv venv --python DIR/bin/python3 --system-site-packages --seed DIR/cache/launch/DIGEST/venv
    + DIR/bin/uv sync --active --project DIR/cache/launch/DIGEST/project
    + DIR/cache/launch/DIGEST/venv/bin/python -m torch.distributed.run --nproc_per_node=1 DIR/repo/stage/own.py
    ");
    write(
        "pinned.py",
        "# /// script\n# dependencies = [\"torch>=2.4,<2.6\"]\n# [tool.runspec]\n# run.launch = \"direct\"\n# ///\n",
    );
    let answer = with_torch(&bench, &["pinned.py"]);
    assert!(
        answer.stderr.contains("torch 2.10.0 of DIR").eq(&false)
            && answer.stderr.contains("is not the torch >=2.4,<2.6"),
        "{answer:?}"
    );
    assert!(answer.stderr.contains("uv pip install --torch-backend auto -- 'torch>=2.4,<2.6'"), "{answer:?}");
    // Settings of uv and a lock are uv's own to read.
    write(
        "settled.py",
        "# /// script\n# dependencies = [\"x\"]\n# [tool.uv.sources]\n# x = {path = \"x\"}\n# [tool.runspec]\n# run.launch = \"direct\"\n# ///\n",
    );
    let answer = bench.ask(&["settled.py"]);
    assert!(bench.said(&answer.stderr).contains("uv sync --active --script DIR/settled.py"), "{answer:?}");
    // Who names the stage has its packages, and those of the header on top.
    let answer = bench.ask(&["repo/stage/own.py", "--stage", "repo/stage"]);
    let expected = "uv run --with DIR/repo --with numpy --with -e x --project DIR/repo/stage";
    assert!(bench.said(&answer.stdout).contains(expected), "{answer:?}");
}

#[test]
fn what_a_header_says_and_a_start_here_does_not_do_is_said() {
    let bench = Bench::new(HEADER);
    bench.script(
        "far.py",
        "[tool.runspec]\nimage = \"nvcr.io/x:1\"\nsetup = \"bring coffee\"\nrun.launch = \"direct\"\n[tool.runspec.resources]\nnodes = 2",
    );
    let answer = bench.ask(&["far.py"]);
    for expected in
        ["for 2 nodes, and is started on this one alone", "container image nvcr.io/x:1", "bring coffee"]
    {
        assert!(answer.stderr.contains(expected), "{expected:?} is not in {answer:?}");
    }
    bench.script("own.py", "[tool.runspec.run]\ncmd = \"python {script}\"");
    bench.refused(&["own.py", "--", "x"], 1, "arguments after -- have no place in it");
}
