//! Which branches of a script are read, and what is said of the variables that decide them.

/// The options of the training that a script starts, by what its branches leave.
fn trains(script: &str) -> String {
    let found = super::commands(script.as_bytes());
    let call = found.calls.iter().find(|call| call.first().is_some_and(|word| word == "train"));
    call.map(|call| call[1..].join(" ")).unwrap_or_default()
}

#[test]
fn branches_that_a_shell_takes_are_followed() {
    for (script, expected) in [
        // Conditions on what the script itself says.
        ("A=7\nif [[ ${A} == 7 ]]; then B=1\nelif [[ ${A} == 8 ]]; then B=2\nelse B=3\nfi\ntrain $B", "1"),
        ("A=8\nif [ $A = 7 ]; then B=1; elif [ \"$A\" = 8 ]; then B=2; else B=3; fi\ntrain $B", "2"),
        ("A=9\nif test $A -lt 8; then B=1; elif [ $A -ge 10 ]; then B=2; else B=3; fi\ntrain $B", "3"),
        ("A=x\nL=(a)\nif [[ $A == y ]]; then L+=(b); fi\ntrain ${L[@]}", "a"),
        ("A=x\nif ! [ $A = x ]; then B=1; else B=2; fi; train $B", "2"),
        ("A=x\nif [[ $A == x && $A != y ]]; then B=1; else B=2; fi; train $B", "1"),
        ("A=x\nif [ $A = y ] || [ $A = x ]; then B=1; else B=2; fi; train $B", "1"),
        ("A=moe-8b\nif [[ $A == moe* ]]; then B=1; else B=2; fi; train $B", "1"),
        ("A=1\nif [ $A = 1 ]; then if [ $A = 2 ]; then B=1; else B=2; fi; else B=3; fi; train $B", "2"),
        // Patterns.
        ("A=small\ncase $A in\n small) B=1 ;;\n large|huge) B=2 ;;\n *) B=3 ;;\nesac\ntrain $B", "1"),
        ("A=huge\ncase \"$A\" in small) B=1;; large|huge) B=2;; *) B=3;; esac\ntrain $B", "2"),
        ("A=tiny\ncase $A in small) B=1;; t*y) B=2;; *) B=3;; esac\ntrain $B", "2"),
        // Lists.
        ("A=x\nB=1\n[ $A = y ] && B=2\ntrain $B", "1"),
        ("A=x\nB=1\n[ $A = y ] || B=2\ntrain $B", "2"),
        ("A=x\nB=1\n[[ $A == y ]] && { B=2; }\ntrain $B", "1"),
        ("A=x\nB=1\n[ $A = y ] && B=2 || B=3\ntrain $B", "3"),
        // Nobody sets these where the script is submitted as it stands.
        ("if [ -z \"$A\" ]; then B=1; else B=2; fi\ntrain $B", "1"),
        ("B=1\nif [ -n \"$1\" ]; then B=$1; fi\ntrain $B", "1"),
        ("A=${A:-squad}\ncase $A in squad) B=1;; *) B=2;; esac\ntrain $B", "1"),
        // What only a machine knows: all are walked, and an argument is no reason to forget what is said.
        ("if [ -f here ]; then B=1; fi\ntrain $B", "1"),
        ("B=1\nwhile [ $# -gt 0 ]; do case $1 in --b) B=$2; shift 2;; esac; done\ntrain $B", "1"),
        ("B=4\nif [ -d /data ]; then B=$C; fi\ntrain $B", "4"),
        ("if [[ $SLURM_NNODES -gt 1 ]]; then train a; else train b; fi", "a"),
    ] {
        assert_eq!(trains(script), expected, "{script}");
    }
    let found = super::commands(
        b"#SBATCH --nodes=4\nB=1\nif [ -f here ]; then B=2; fi\n[ $X = y ] && B=3\ntrain $B $SLURM_NNODES",
    );
    assert_eq!((found.open, found.unset, found.nodes), (vec!["B".to_owned()], vec!["X".to_owned()], Some(4)));
    assert_eq!(found.calls.last().map(|call| call.join(" ")).as_deref(), Some("train 2 4"));
}

#[test]
fn what_the_script_or_the_shell_sets_is_not_said_to_be_unset() {
    // However a script sets it, and wherever.
    for set in [
        "N=$(ls)",
        "N=$(ls)\nN=${N%/x}",
        "N=4\nN=${N#*/}",
        "read -r N < file",
        "while read -r N; do :; done < file",
        "for N in *; do :; done",
        "for ((N = 0; N < 3; N++)); do :; done",
        "((N = 3))",
        "M=$((N += 1))",
        "let N=3",
        "printf -v N %s \"$(ls)\"",
        "mapfile -t N < file",
        "f() { local N; N=\"$(ls)\"; }",
    ] {
        let found = super::commands(format!("{set}\nif [ -n \"$N\" ]; then B=1; fi\ntrain $B").as_bytes());
        assert!(found.unset.is_empty(), "{set}: {:?}", found.unset);
        assert_eq!(found.calls.last().map(|call| call.join(" ")).as_deref(), Some("train 1"), "{set}");
    }
    // A function runs later, and a loop again.
    for script in [
        "f() { if [ -n \"$N\" ]; then train; fi; }\nN=$(ls)\nf",
        "for i in 1 2; do if [ -n \"$N\" ]; then train; fi; N=1; done",
    ] {
        let found = super::commands(script.as_bytes());
        assert!(found.unset.is_empty() && found.calls.iter().any(|call| call == &["train"]), "{script}");
    }
    for name in [
        "PIPESTATUS[0]",
        "BASH_SOURCE[0]",
        "RANDOM",
        "SECONDS",
        "PPID",
        "UID",
        "FUNCNAME",
        "OPTARG",
        "REPLY",
        "IFS",
    ] {
        let found = super::commands(format!("s=${{{name}}}\nif [ \"$s\" = 1 ]; then train; fi").as_bytes());
        assert!(found.unset.is_empty() && found.calls.iter().any(|call| call == &["train"]), "{name}");
    }
    // The default that an expansion assigns holds behind it.
    assert_eq!(trains(": \"${B:=5}\"\nif [ $B = 5 ]; then C=1; else C=2; fi\ntrain $C"), "1");
    // What is set behind a question alone is not there when it is asked, and what nobody sets is named.
    assert_eq!(trains("if [ -z \"$B\" ]; then B=1; fi\ntrain $B"), "1");
    assert_eq!(super::commands(b"if [ -z \"${X%y}\" ]; then train; fi").unset, ["X"]);
}
