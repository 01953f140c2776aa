//! Whatever is given in place of a script: long, deep, or no script at all.

use proptest::prelude::*;

use super::*;

#[test]
fn long_and_deep_scripts() {
    let deep = |open: &str, times: usize| format!("#!/bin/bash\n{}", open.repeat(times));
    for text in [
        deep("$(", 10000),
        deep("${a:-", 10000),
        deep("`\\`", 5000),
        deep("((", 10000),
        deep("( ", 10000),
        deep("if ", 10000),
        deep("case x in y) ", 5000),
        deep("\"$(\"", 5000),
        deep("cat <<E\n", 5000),
        deep("a|", 20000),
        deep("a=$a$a\n", 2000),
        deep("a=(\"${a[@]}\" \"${a[@]}\" x)\n", 1000),
        deep("bash -c 'bash -c \"srun x\"'\n", 1000),
        deep("srun torchrun --nnodes=2 x\n", 2000),
        deep("export A_VARIABLE=$A_VARIABEL\n", 5000),
        deep("#SBATCH --time=1h --x=1\n", 5000),
        deep("HF_TOKEN=abcdefgh1234\n", 2000),
        deep("<(", 10000),
        deep("f() { ", 5000),
        deep("[[ a && ", 5000),
        deep("x=", 20000),
        deep("cat > f <<E\n$SLURM_PROCID\nE\nsrun f\n", 3000),
        deep("#SBATCH --nodes=2\n", 1) + &"cp /a /tmp/a\nsrun -N 2 x /tmp/a\n".repeat(3000),
        deep("export CUDA_VISIBLE_DEVICES=0\nsrun python x\n", 3000),
        deep("echo $SLURM_JOB_IDS $SLURM_NODE_ID\n", 5000),
        deep("#SBATCH --mem=1X --hint=a --nodelist=a[1-2],b\n", 5000),
    ] {
        let report = lint(text.as_bytes());
        assert!(report.findings.len() < 2_000);
        commands(text.as_bytes());
    }
}

/// Rules ask for a command's program at each of its words.
#[test]
fn the_words_of_a_command_are_gone_through_once_for_its_program() {
    let searches = |words: usize| {
        let sets: String = (0..words).map(|word| format!("A{word}=$X ")).collect();
        let before = facts::counted::SEARCHES.get();
        lint(format!("#!/bin/bash\nenv {sets}srun python x.py $HF_TOKEN\n").as_bytes());
        facts::counted::SEARCHES.get() - before
    };
    assert!(searches(10) > 0);
    assert_eq!(searches(10), searches(1000));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        whole(&bytes);
    }

    #[test]
    fn any_pieces_of_scripts_are_taken(pieces in proptest::collection::vec(0..PIECES.len(), 0..60)) {
        let text: String = pieces.into_iter().map(|index| PIECES[index]).collect();
        whole(text.as_bytes());
    }
}

/// Pieces that scripts are made of.
const PIECES: &[&str] = &[
    "#!/bin/bash\n",
    "#SBATCH --nodes=2\n",
    "#SBATCH --ntasks-per-node=8\n",
    "#SBATCH ",
    "--time=",
    "srun ",
    "bash -c ",
    "torchrun ",
    "--nnodes=2 ",
    "--nproc_per_node ",
    "\"",
    "'",
    "`",
    "$",
    "$(",
    "${",
    "}",
    ")",
    "(",
    "((",
    "))",
    "$((",
    "\\",
    "\n",
    "\r\n",
    " ",
    "\t",
    "X",
    "X=",
    "X+=(",
    "[@]",
    ":-",
    ":+",
    "if ",
    "then ",
    "fi\n",
    "for x in ",
    "do ",
    "done\n",
    "case ",
    " in ",
    "esac",
    ";;",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "<<EOF\n",
    "EOF\n",
    "<<'E'\n",
    "<",
    ">",
    ">>",
    "<(",
    "set -euo pipefail\n",
    "export ",
    "eval ",
    "shift ",
    "\"$@\"",
    "$1",
    "SLURM_NODEID",
    "$SLURM_PROCID",
    "\\$SLURM_NODEID",
    "uv sync ",
    "tee ",
    "mkdir -p ",
    "trap 'x' USR1\n",
    "wait\n",
    "[[ ",
    " ]]",
    "[ ",
    "[ X = X ] ",
    "[[ $X != x* ]] ",
    "! ",
    "else ",
    "elif ",
    "*) ",
    "x|y) ",
    "ä",
    "\u{2013}",
    "\0",
    "hf_abcdefghij0123456789",
    "function f ",
    "f() {",
    "# ",
    "--tensor-model-parallel-size 3 ",
];

/// A report is whole: places are in the script, texts are there, counts agree, and the readable form can be made.
fn whole(bytes: &[u8]) {
    let report = lint(bytes);
    let source = String::from_utf8_lossy(bytes);
    let lines = source.split('\n').count() as u64;
    for finding in &report.findings {
        assert!(finding.line >= 1 && finding.line <= lines, "{finding:?}");
        assert!(finding.column >= 1 && finding.width >= 1, "{finding:?}");
        assert!(!finding.message.is_empty() && !finding.fix.is_empty() && !finding.why.is_empty());
        assert!(!finding.excerpt.contains(char::is_control));
    }
    assert!(!readable(&report, "x").is_empty());
    assert_eq!(report, lint(bytes));
    // A shell takes no more than all of a script.
    let Commands { calls, .. } = commands(bytes);
    assert!(calls.len() <= bytes.len() + 1, "{calls:?}");
}
