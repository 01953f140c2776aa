//! `shardplan lint`: what it prints, and how it ends.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::Workshop;

const BAD: &str = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n#SBATCH --time=2h\n\
    export HF_TOKEN=hf_abcdefghijklmnop0123456789\n\
    srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_endpoint=host:15000 train.py | tee log\n";

#[test]
fn findings_for_people() {
    let shop = Workshop::new();
    shop.write("job.sbatch", BAD);
    let answer = shop.ask(&["lint", "job.sbatch"]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert_eq!(answer.stderr, "");
    assert!(!answer.stdout.contains("klmnop0123"), "{answer:?}");
    insta::assert_snapshot!("lint", answer.stdout);
}

#[test]
fn findings_for_programs_are_the_planners() {
    let shop = Workshop::new();
    shop.write("job.sbatch", BAD);
    let answer = shop.ask(&["lint", "job.sbatch", "--json"]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let report = batch::lint::lint(BAD.as_bytes());
    assert_eq!(answer.stdout, serde_json::to_string_pretty(&report).expect("JSON") + "\n");
}

#[test]
fn a_clean_script_and_a_remark_are_yes() {
    let shop = Workshop::new();
    for (text, remarks) in [
        ("#!/bin/bash\n#SBATCH --nodes=1\nsrun hostname\n", "0 remarks"),
        ("#!/bin/bash\n#SBATCH --account=<ACCOUNT>\nsrun hostname\n", "1 remark"),
    ] {
        shop.write("job.sbatch", text);
        let answer = shop.ask(&["lint", "job.sbatch"]);
        assert_eq!(answer.code, Some(0), "{answer:?}");
        assert!(
            answer.stdout.ends_with(&format!("job.sbatch: 0 errors, 0 warnings, {remarks}\n")),
            "{answer:?}"
        );
    }
}

#[test]
fn standard_input_of_any_bytes() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shardplan"))
        .args(["lint", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("shardplan starts");
    child.stdin.take().expect("a pipe").write_all(b"\xff\0\x1b[2J$(").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.contains("standard input: 3 errors"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
}

#[test]
fn what_script_writes_is_clean() {
    let shop = Workshop::new();
    let written = shop.ask(&["script", "tiny.json"]);
    shop.write("own.sbatch", &written.stdout);
    let answer = shop.ask(&["lint", "own.sbatch"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
}
