//! Rules by their examples in docs/lint.md, scripts as they are found, our own, and what nobody meant to be a script.

// Tests read files; planner itself does not.
#![allow(clippy::disallowed_methods)]

use std::path::Path;

use super::mending_tests::mends;
use super::*;

/// Names of the rules that a script breaks; what its findings offer instead mends them.
fn broken(text: &str) -> Vec<&'static str> {
    mends(text.as_bytes());
    let id = |finding: &Finding| rules().iter().find(|rule| rule.id == finding.rule).map(|rule| rule.id);
    let mut rules: Vec<&str> = lint(text.as_bytes()).findings.iter().filter_map(id).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// A script of these lines breaks these rules, in any order.
#[track_caller]
pub(super) fn check(text: &str, expected: &[&str]) {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(broken(text), expected, "{}", readable(&lint(text.as_bytes()), "script"));
}

/// A job of two nodes with eight GPUs each, and this many tasks on a node.
pub(super) fn job(tasks: u64, body: &str) -> String {
    format!(
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node={tasks}\n#SBATCH --gpus-per-node=8\n{body}\n"
    )
}

/// Rule, how its text begins, and its two examples, as docs/lint.md has them.
pub(super) fn documented() -> Vec<(String, String, Vec<u8>, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lint.md");
    let document = std::fs::read_to_string(path).unwrap();
    let mut found = Vec::new();
    for section in document.split("\n### `").skip(1) {
        let (rule, text) = section.split_once('`').unwrap();
        let severity = text.trim_start().split(':').next().unwrap().to_owned();
        let mut examples = text.split("```bash\n").skip(1).map(|part| part.split("```").next().unwrap());
        let (bad, good) = (examples.next().unwrap(), examples.next().unwrap());
        found.push((rule.to_owned(), severity, example(rule, bad, true), example(rule, good, false)));
    }
    found
}

fn example(rule: &str, text: &str, bad: bool) -> Vec<u8> {
    let mut text = text.replace('\u{240d}', "\r").replace('\u{2400}', "\0");
    let stands_alone = bad && matches!(rule, "no-shebang" | "empty-script");
    if !text.starts_with("#!") && !stands_alone {
        text.insert_str(0, "#!/bin/bash\n");
    }
    if bad && rule == "script-too-large" {
        text.push_str(&"# padding\n".repeat(500_000));
    }
    text.into_bytes()
}

#[test]
fn every_rule_is_documented_and_its_examples_hold() {
    let documented = documented();
    let names: Vec<&str> = documented.iter().map(|(rule, ..)| rule.as_str()).collect();
    let known: Vec<&str> = rules().iter().map(|rule| rule.id).collect();
    assert_eq!(names, known);
    for (rule, severity, bad, good) in &documented {
        let entry = table::find(rule).unwrap();
        let word = match entry.severity {
            Severity::Error => "Error",
            Severity::Warning => "Warning",
            Severity::Info => "Remark",
        };
        assert_eq!(severity, word, "{rule}");
        let found = lint(bad);
        let text = readable(&found, rule);
        assert!(!found.findings.is_empty(), "{rule}: nothing was found in its first example");
        assert!(found.findings.iter().all(|finding| finding.rule == *rule), "{text}");
        let found = lint(good);
        assert!(found.findings.is_empty(), "{rule}, second example: {}", readable(&found, rule));
    }
}

/// sbatch takes a script whose first line is all that it has, and refuses white space.
#[test]
fn an_interpreter_alone_is_a_script() {
    for text in ["#!/bin/bash\n", "#!/bin/bash", "#!/bin/bash\n#SBATCH --nodes=1\n"] {
        check(text, &[]);
    }
    for text in ["", "\n\n", "   \n"] {
        check(text, &["empty-script"]);
    }
    assert!(table::find("empty-script").unwrap().why.contains("white space"));
}

#[test]
fn the_document_says_why() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lint.md");
    let document = std::fs::read_to_string(path).unwrap();
    for rule in rules() {
        assert!(document.contains(rule.why), "{}: {}", rule.id, rule.why);
    }
}

/// A template of the shape that guides show: a command in double quotes, a step that prepares, a step that trains.
const GUIDE: &str = r#"#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1   # the launcher starts the rest
#SBATCH --gpus-per-node=8
#SBATCH --time=00:30:00
#SBATCH --output=train_%j.log
#SBATCH --exclusive

IMAGE=/lustre/images/train.sqsh
MOUNTS=/lustre:/lustre
LOGDIR=/lustre/logs/first
WORKDIR=/lustre/code
export UV_CACHE_DIR=/lustre/uv

BODY="
export HF_TOKEN=$HF_TOKEN && \
mkdir -p $LOGDIR && \
cd $WORKDIR && \
uv sync && \
uv run --no-sync python -m torch.distributed.run \
  --nproc_per_node=8 \
  --nnodes=\${SLURM_JOB_NUM_NODES} \
  --node_rank=\${SLURM_NODEID} \
  train.py
"

echo \"Job \$SLURM_JOB_ID\"

srun --mpi=pmix -N 1 --ntasks=1 --container-image="$IMAGE" --container-mounts="$MOUNTS" --no-container-mount-home \
  bash -c "cd $WORKDIR && uv sync"

srun --mpi=pmix --container-image="$IMAGE" --container-mounts="$MOUNTS" --no-container-mount-home \
  bash -c "$BODY" 2>&1 | tee "$LOGDIR/train_${SLURM_JOB_ID}.log"

grep -E "iteration" "$LOGDIR/train_${SLURM_JOB_ID}.log" | head -25
"#;

#[test]
fn a_template_of_a_guide() {
    check(
        GUIDE,
        &[
            "no-endpoint",
            "escape-outside-string",
            "mkdir-in-task",
            "sync-in-every-task",
            "secret-expanded",
            "pipe-hides-exit",
            "failure-not-checked",
            "footer-hides-exit",
        ],
    );
    let report = lint(GUIDE.as_bytes());
    insta::assert_snapshot!("guide", readable(&report, "guide.sbatch"));
    insta::assert_snapshot!("guide_json", serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn a_guide_with_eight_tasks_of_eight_processes() {
    let text = GUIDE.replace("--ntasks-per-node=1 ", "--ntasks-per-node=8 ");
    assert!(broken(&text).contains(&"double-spawn"));
    let text = GUIDE.replace("\\${SLURM_NODEID}", "${SLURM_NODEID}");
    let report = lint(text.as_bytes());
    let found = report.findings.iter().find(|finding| finding.rule == "expanded-on-batch-host").unwrap();
    assert_eq!((found.line, found.column), (23, 15));
    assert_eq!(found.replacement.as_deref(), Some("  --node_rank=\\${SLURM_NODEID} \\"));
}

#[test]
fn names_are_followed_through_variables_and_lists() {
    // By a variable, by a list, by a list that grew.
    check(
        &job(
            1,
            "export MASTER_ADDR=a MASTER_PORT=15000\nRANK_OF_NODE=$SLURM_NODEID\nARGS=(--nnodes 2 --nproc_per_node=8 --master_addr $MASTER_ADDR)\nARGS+=(--node_rank $RANK_OF_NODE)\nsrun torchrun \"${ARGS[@]}\" train.py",
        ),
        &["expanded-on-batch-host"],
    );
    check(
        &job(
            8,
            "GPUS=8\nNODES=$SLURM_NNODES\nLAUNCH=\"torchrun --nproc_per_node $GPUS --nnodes $NODES --rdzv_endpoint h:1024\"\nsrun $LAUNCH train.py",
        ),
        &["double-spawn"],
    );
    check(
        &job(
            8,
            "WORLD=$((SLURM_NNODES * 8))\nTP=3\nsrun python pretrain_gpt.py --world $WORLD --tensor-model-parallel-size $TP",
        ),
        &["parallel-sizes"],
    );
    // What a branch says may not be what runs.
    check(
        &job(
            8,
            "if [ -n \"$BIG\" ]; then TP=3; fi\nsrun python pretrain_gpt.py --tensor-model-parallel-size $TP",
        ),
        &[],
    );
    // A default counts: it is what runs unless somebody says otherwise.
    check(
        &job(8, "TP=${TP:-3}\nsrun python pretrain_gpt.py --tensor-model-parallel-size $TP"),
        &["parallel-sizes"],
    );
}

#[test]
fn strings_that_are_scripts() {
    // Handed over as arguments, shifted, and run.
    check(
        &job(8, "srun bash -c 'cd \"$1\" && shift && exec \"$@\"' bash /lustre/code uv run python train.py"),
        &["sync-in-every-task"],
    );
    check(
        &job(
            8,
            "srun bash -c 'cd \"$1\" && shift && exec \"$@\"' bash /lustre/code uv run --no-sync python train.py",
        ),
        &[],
    );
    // eval, twice nested, and a here-document that becomes a script.
    check(&job(8, "eval \"srun --export=A=1 python train.py\""), &["export-drops-environment"]);
    check(&job(8, "srun bash -c \"bash -c 'uv sync'\""), &["sync-in-every-task"]);
    check(
        &job(1, "cat > run.sh <<EOF\n#!/bin/bash\necho $SLURM_NODEID\nEOF\nsrun bash run.sh"),
        &["expanded-on-batch-host"],
    );
    check(&job(1, "cat > run.sh <<'EOF'\n#!/bin/bash\necho $SLURM_NODEID\nEOF\nsrun bash run.sh"), &[]);
}

#[test]
fn a_rank_that_the_batch_script_sets_is_that_of_its_first_task() {
    let rule = &["expanded-on-batch-host"][..];
    let set = "export MASTER_ADDR=a MASTER_PORT=15000\n";
    check(&job(8, &format!("{set}export RANK=$SLURM_PROCID\nsrun python train.py")), rule);
    check(&job(8, &format!("{set}export LOCAL_RANK=${{SLURM_LOCALID}}\nsrun python train.py")), rule);
    check(&job(8, &format!("{set}RANK=$SLURM_PROCID srun python train.py")), rule);
    check(&job(8, &format!("{set}srun --export=ALL,RANK=$SLURM_PROCID python train.py")), rule);
    let by_node = "srun bash -c 'torchrun --nnodes=2 --node_rank=$NODE_RANK --nproc_per_node=8 --master_addr=$MASTER_ADDR train.py'";
    check(&job(1, &format!("{set}export NODE_RANK=$SLURM_NODEID\n{by_node}")), rule);
    // Where a task sets it, where nobody else is, where it is kept to the script, and where it is another name.
    let own = "srun bash -c 'export RANK=$SLURM_PROCID; python train.py'";
    check(&job(8, &format!("{set}export RANK=$SLURM_PROCID\n{own}")), &[]);
    check(&job(8, &format!("{set}export RANK=$SLURM_PROCID\nsrun -N 1 -n 1 python prepare.py")), &[]);
    check(&job(8, &format!("{set}export FIRST=$SLURMD_NODENAME\nsrun python train.py")), &[]);
}

#[test]
fn a_step_that_tasks_start_is_started_by_each() {
    let rule = &["double-spawn"][..];
    check(&job(8, "srun --container-image=a.sqsh bash -c 'srun python train.py'"), rule);
    check(&job(1, "srun bash -c \"srun hostname\""), rule);
    check(&job(8, "srun bash -c 'if [ $SLURM_PROCID = 0 ]; then srun hostname; fi'"), &[]);
    check(&job(8, "srun -N 1 -n 1 bash -c 'srun hostname'"), &[]);
}

#[test]
fn components_have_counts_of_their_own() {
    let job = |second: &str, body: &str| {
        format!(
            "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n\
             #SBATCH hetjob\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n{second}{body}\n"
        )
    };
    check(&job("", "srun --het-group=0-1 python train.py"), &[]);
    // Within one component a value said twice is lost.
    check(&job("#SBATCH --nodes=3\n", "srun --het-group=0-1 python train.py"), &["directive-repeated"]);
    // One task is one task, on whichever component.
    check(&job("", "srun -N 1 --ntasks=1 uv sync"), &[]);
    check(&job("", "srun -N 1 --ntasks=1 --het-group 1 uv sync"), &[]);
    // The first component has eight, the second two, and both have more than one.
    for groups in ["", "--het-group=0 ", "--het-group=1 ", "--het-group=0-1 ", "--het-group=0,1 "] {
        check(&job("", &format!("srun {groups}uv sync")), &["sync-in-every-task"]);
    }
    check(&job("", "srun --het-group=1 --nodes=1 uv sync"), &[]);
    // On both components it is one task on each, which is two.
    check(&job("", "srun --het-group=0,1 --ntasks=1 uv sync"), &["sync-in-every-task"]);
}

#[test]
fn guards_and_locks() {
    for guarded in [
        "if [ \"$SLURM_LOCALID\" = 0 ]; then uv sync; fi",
        "[ \"$SLURM_PROCID\" -ne 0 ] || uv sync",
        "test $SLURM_LOCALID -eq 0 && uv sync",
        "if ((SLURM_LOCALID == 0)) && [ $LOCAL_RANK = 0 ]; then pip install x; fi",
        "case $SLURM_PROCID in 0) uv sync ;; esac",
        "flock /tmp/lock uv sync",
    ] {
        check(&job(8, &format!("srun bash -c '{guarded}'")), &[]);
    }
}

#[test]
fn secrets_are_found_and_never_repeated() {
    let token = format!("{}{}", "hf_", "AbCdEf0123456789AbCdEf0123456789");
    let key = "0123456789abcdef0123456789abcdef01234567";
    let text = job(
        8,
        &format!(
            "# {token}\nexport HF_TOKEN={token}\nexport WANDB_API_KEY='{key}'\nwandb login {key}\nsrun python train.py --api {token} --output=/tmp/{key}"
        ),
    );
    let report = lint(text.as_bytes());
    assert_eq!(broken(&text), ["secret-value"]);
    assert!(report.findings.len() >= 5, "{}", readable(&report, "x"));
    for said in [readable(&report, "x"), serde_json::to_string(&report).unwrap()] {
        assert!(!said.contains(&token[3..]) && !said.contains(key), "{said}");
    }
    // In URLs, and as values of options, behind a sign or as the next word.
    for secret in [
        "export https_proxy=http://svc:Sup3rS3cret@proxy:8080".to_owned(),
        "curl -x \"http://svc:Sup3rS3cret!@proxy:8080\" https://host".to_owned(),
        "uv sync --index-url=https://svc:Sup3rS3cret@pypi.corp/simple".to_owned(),
        format!("srun python train.py --wandb_key={key}"),
        format!("srun python train.py --wandb_key {key}"),
        format!("srun python train.py logger.wandb.key='{key}'"),
        "python fetch.py --password Sup3rS3cret".to_owned(),
    ] {
        let report = lint(job(8, &secret).as_bytes());
        let rules: Vec<&str> = report.findings.iter().map(|finding| finding.rule.as_ref()).collect();
        assert_eq!(rules.iter().filter(|rule| **rule == "secret-value").count(), 1, "{secret}: {rules:?}");
        let said = readable(&report, "x");
        assert!(!said.contains(key) && !said.contains("S3cret"), "{said}");
    }
    // Names, placeholders, files and checks are none.
    for harmless in [
        "export https_proxy=http://host:8080",
        "export https_proxy=\"http://${USER}:${PASS}@host:8080\"",
        "# export https_proxy=http://user:password@host:8080",
        "git clone git@github.com:a/b.git",
        "srun python train.py --text-key=content1 --pad_token endoftext",
        "python train.py --wandb_key \"$WANDB_KEY\" --hf-token=$HF_TOKEN",
        "srun python train.py --commit=0123456789abcdef0123456789abcdef01234567",
        "export HF_TOKEN=${HF_TOKEN}",
        "export HF_TOKEN='<TOKEN>'",
        "export HF_TOKEN_PATH=/lustre/token",
        ": \"${HF_TOKEN:?}\"",
        "export WANDB_API_KEY=your_key_here",
        "export TOKENIZER=hf_tokenizer",
        "STAGE=data7\nexport MANIFEST_KEY=\"ultra3-${STAGE}\"",
        "srun python train.py > hf_ds_gpt2_base_n16_2021_07.txt",
    ] {
        let rules = broken(&job(8, harmless));
        assert!(!rules.iter().any(|rule| rule.starts_with("secret")), "{harmless}: {rules:?}");
    }
}

#[test]
fn tests_of_values_that_may_be_empty() {
    for (test, expected) in [
        ("[ $RESUME = yes ]", Some("too few words")),
        ("[ -n $RESUME ]", Some("[ -n ] is true")),
        ("[ ! -f $RESUME ]", Some("[ -f ] is true")),
        ("[ -z $RESUME ]", None),
        ("[ ! -z $RESUME ]", None),
        ("[ -n \"$RESUME\" ]", None),
    ] {
        let report =
            lint(job(8, &format!("if {test}; then touch resume; fi\nsrun python train.py")).as_bytes());
        let said = report.findings.iter().find(|finding| finding.rule == "unquoted-test");
        match expected {
            Some(part) => assert!(said.is_some_and(|said| said.message.contains(part)), "{test}: {report:?}"),
            None => assert_eq!(said, None, "{test}"),
        }
    }
}

#[test]
fn a_script_in_a_here_document_is_another_one() {
    let inner = "#SBATCH --nodes=2\n#SBATCH --time=never";
    for (script, expected) in [
        (format!("sbatch <<EOF\n#!/bin/bash\n{inner}\nsrun hostname\nEOF\n"), &[][..]),
        (format!("cat > job <<'EOT'\n{inner}\nEOT\nsbatch job\n"), &[]),
        (format!("cat <<EOF\nhello\nEOF\n{inner}\nsrun hostname\n"), &["directive-after-command"]),
    ] {
        let rules: Vec<&str> = broken(&format!("#!/bin/bash\n{script}"))
            .into_iter()
            .filter(|rule| rule.starts_with("directive"))
            .collect();
        assert_eq!(rules, expected, "{script}");
    }
}

#[test]
fn what_a_requeue_takes_away() {
    let requeued = |body: &str| job(8, &format!("#SBATCH --requeue\n#SBATCH --open-mode=append\n{body}"));
    // Folders that the script itself saves into, before the run and not after it.
    let run = "srun python train.py --output_dir /lustre/runs/a --resume_from_checkpoint latest";
    check(&job(8, &format!("rm -rf /lustre/runs/a\n{run}")), &["removes-checkpoints"]);
    check(&job(8, &format!("OUT=/lustre/runs\nrm -rf \"$OUT/a\"/*\n{run}")), &["removes-checkpoints"]);
    check(&job(8, &format!("set -e\nrm -rf /lustre/runs/b\n{run}")), &[]);
    check(&job(8, &format!("set -e\n{run}\nrm -rf /lustre/runs/a")), &[]);
    check(&job(8, &format!("rsync -a --delete /tmp/x/ /lustre/ckpt/\n{run}")), &["removes-checkpoints"]);
    check(&job(8, &format!("rsync -a /tmp/x/ /lustre/ckpt/\n{run}")), &[]);
    // A path of which nothing may be left.
    for bad in
        ["rm -rf $CKPT_DIR/*", "rm -rf \"$A$B\"/", "find \"$A/\" -delete", "rsync -a --delete /tmp/x/ $A/"]
    {
        check(&job(8, &format!("set -e\n{bad}\n{run}")), &["removes-root"]);
    }
    let report = lint(job(8, &format!("set -e\nrm -rf $CKPT_DIR/*\n{run}")).as_bytes());
    let said = &report.findings[0].message;
    assert!(said.contains("CKPT_DIR is set nowhere") && said.contains("$CKPT_DIR/* is /*"), "{said}");
    for good in [
        "A=/lustre/a\nrm -rf $A/*",
        "set -u\nrm -rf $A/*",
        "rm -rf ${A:?}/*",
        ": \"${A:?}\"\nrm -rf $A/*",
        "if [ -n \"$A\" ]; then rm -rf \"$A\"/*; fi",
        "rm -rf $HOME/*",
        "rm -rf $A/x",
        "source site.sh\nrm -rf $A/*",
        "A=$1\nrm -rf $A/*",
    ] {
        let rules = broken(&job(8, &format!("{good}\n{run}")));
        assert!(!rules.contains(&"removes-root"), "{good}: {rules:?}");
    }
    // Logs.
    check(
        &requeued("set -o pipefail\nsrun python train.py 2>&1 | tee /lustre/logs/train.log"),
        &["requeue-truncates-log"],
    );
    check(&requeued("set -o pipefail\nsrun python train.py 2>&1 | tee -a /lustre/logs/train.log"), &[]);
    check(&requeued("srun python train.py > /lustre/logs/train.log 2>&1"), &["requeue-truncates-log"]);
    check(&requeued("srun python train.py > \"/lustre/logs/${SLURM_RESTART_COUNT:-0}.log\" 2>&1"), &[]);
    check(&job(8, "srun python train.py > /lustre/logs/train.log 2>&1"), &[]);
    // Trainers that begin anew.
    let megatron = "srun python pretrain_gpt.py --save /lustre/a --save-interval 100";
    check(&requeued(megatron), &["requeue-without-load"]);
    check(&requeued(&format!("{megatron} --load=/lustre/a")), &[]);
    check(&requeued(&format!("ARGS=(--load /lustre/a)\n{megatron} \"${{ARGS[@]}}\"")), &[]);
    check(&requeued(&format!("{megatron} $ARGS_OF_THE_SITE")), &[]);
    check(&job(8, megatron), &[]);
    // Trainers that are told to write over their folder.
    let hf = "srun python run_clm.py --output_dir /lustre/a";
    check(&job(8, &format!("{hf} --overwrite_output_dir True")), &["overwrites-output"]);
    for harmless in [
        "--overwrite_output_dir False",
        "--overwrite_output_dir=false",
        "--overwrite_output_dir --resume_from_checkpoint x",
    ] {
        check(&job(8, &format!("{hf} {harmless}")), &[]);
    }
    check(&job(8, "CMD=\"run.py --overwrite_output_dir\"\necho $CMD\nsrun python train.py"), &[]);
}

#[test]
fn hosts_that_come_to_nothing() {
    let run = |address: &str| {
        job(
            1,
            &format!(
                "export MASTER_PORT=\"$((15000 + SLURM_JOB_ID % 10000))\"\n{address}\nexport MASTER_ADDR\nsrun bash -c 'python -m torch.distributed.run --nnodes=2 --nproc_per_node=8 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT train.py'"
            ),
        )
    };
    let hosts = "scontrol show hostnames \"$SLURM_JOB_NODELIST\"";
    for bad in [
        "MASTER_ADDR=\"${HEAD:-localhost}\"".to_owned(),
        format!("MASTER_ADDR=$({hosts} | sed -n 1p || echo 127.0.0.1)"),
        "MASTER_ADDR=$(hostname -i)".to_owned(),
        format!(
            "HEAD=$({hosts} | sed -n 1p)\nMASTER_ADDR=$(srun --nodes=1 --ntasks=1 -w \"$HEAD\" hostname --ip-address)"
        ),
    ] {
        assert!(broken(&run(&bad)).contains(&"silent-loopback"), "{bad}: {:?}", broken(&run(&bad)));
    }
    for good in [
        format!("MASTER_ADDR=$({hosts} | sed -n 1p)"),
        format!("MASTER_ADDR=\"${{MASTER_ADDR:-$({hosts} | sed -n 1p)}}\""),
        // Of a variable of Slurm's the default never comes about.
        "MASTER_ADDR=\"${SLURM_FIRST_HOST:-localhost}\"".to_owned(),
        format!("MASTER_ADDR=$({hosts} | sed -n 1p)\necho \"on $(hostname -s) and not localhost\""),
    ] {
        assert!(!broken(&run(&good)).contains(&"silent-loopback"), "{good}");
    }
    // On one node a machine's own name is right.
    let one = "#!/bin/bash\n#SBATCH --nodes=1\nMASTER_ADDR=${MASTER_ADDR:-localhost} srun --export=ALL python train.py\n";
    assert!(!broken(one).contains(&"silent-loopback"));
}

#[test]
fn what_a_container_sees() {
    let run = |flags: &str, command: &str| {
        job(8, &format!("srun --container-image=/lustre/x.sqsh {flags} {command}"))
    };
    for (flags, command, expected) in [
        ("--container-mounts=/lustre/code:/code", "python /code/t.py --data /lustre/data", true),
        ("--container-mounts=/lustre/code:/code", "python /lustre/code/t.py", true),
        ("--container-mounts=/lustre/code:/code", "bash -c 'cd /gpfs/a && python t.py'", true),
        ("--container-mounts=/lustre:/lustre", "python /lustre/code/t.py --data=/lustre/data", false),
        (
            "--container-mounts=/lustre/code:/code",
            "python /code/t.py --tmp /tmp/x --in /opt/y --of /workspace/z",
            false,
        ),
        // What is mounted is not known, or the site mounts more by itself.
        ("--container-mounts=$MOUNTS_OF_THE_SITE", "python /lustre/code/t.py", false),
        ("--container-mounts=/home/me/code:/code", "python /home/me/other.py", false),
        ("", "python /lustre/code/t.py", false),
        ("--container-mounts=$DATA:$DATA", "python t.py --data $DATA/train", false),
    ] {
        let rules = broken(&run(flags, command));
        assert_eq!(rules.contains(&"path-not-mounted"), expected, "{flags} {command}: {rules:?}");
    }
    let two = |first: &str, mounts: &str| {
        let container = format!("--container-image=/lustre/x.sqsh {mounts}");
        job(
            8,
            &format!(
                "export UV_CACHE_DIR=/lustre/uv\nset -e\nsrun -N 1 --ntasks=1 {container} {first}\nsrun {container} python train.py"
            ),
        )
    };
    let mounts = "--container-mounts=/lustre:/lustre";
    for (first, mounts, expected) in [
        ("pip install einops", mounts, true),
        ("bash -c 'cd /opt/Megatron-Bridge && uv sync'", mounts, true),
        ("bash -c 'cd /lustre/code && uv sync'", mounts, false),
        ("bash -c 'cd /opt/x && uv sync && uv run --no-sync python prepare.py'", mounts, false),
        ("pip install --target /lustre/packages einops", mounts, false),
        ("bash -c '. /lustre/venv/bin/activate && pip install einops'", mounts, false),
        ("pip install einops", "--container-name=mine", false),
        ("bash -c 'pip install einops && python prepare.py'", mounts, false),
    ] {
        let rules = broken(&two(first, mounts));
        assert_eq!(rules.contains(&"environment-thrown-away"), expected, "{first} {mounts}: {rules:?}");
    }
}

#[test]
fn sizes_that_a_recipe_gives_are_not_guessed() {
    let sizes = "train.micro_batch_size=4 train.global_batch_size=32";
    let layout = "model.tensor_model_parallel_size=1 model.pipeline_model_parallel_size=1 model.context_parallel_size=1";
    for (words, expected) in [(sizes.to_owned(), false), (format!("{sizes} {layout}"), true)] {
        let script = job(8, &format!("srun python scripts/training/run_recipe.py --recipe some {words}"));
        assert_eq!(broken(&script).contains(&"batch-size"), expected, "{words}");
    }
}
