//! `shardplan launch --slurm`: the same start as a batch script.

use crate::launch::Bench;

#[test]
fn the_same_header_becomes_a_batch_script() {
    let bench = Bench::new(
        "[tool.runspec]\nname = \"embed/finetune\"\n[tool.runspec.resources]\nnodes = 2\ngpus_per_node = 4\n\
         [tool.runspec.env]\nA = \"b c\"\nWANDB_API_KEY = \"abc\"",
    );
    bench.0.write(
        "env.toml",
        "[x]\nexecutor = \"slurm\"\naccount = \"team\"\nbatch_partition = \"long\"\npartition = \"short\"\n\
         startup_commands = [\"module load cuda\", \"export B=1\"]\n",
    );
    bench.0.write("site.toml", "shared_dir = \"/shared\"\npartition = \"mine\"\n");
    let answer = bench.ask(&["repo/stage", "--profile", "x", "--slurm", "site.toml", "--", "lr=1e-5"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let script = bench.said(&answer.stdout);
    for expected in [
        "#SBATCH --account=team",
        "#SBATCH --partition=mine",
        "#SBATCH --nodes=2",
        "#SBATCH --time=04:00:00",
        "export A='b c'",
        "WORKDIR=DIR/repo/stage",
        "DIR/repo/stage/train.py",
        "lr=1e-5",
        "torch.distributed.run",
        "WANDB_API_KEY",
        "  '{ module load cuda && export B=1 && export PATH=",
        r#"    eval \"\$startup\" || exit \"\$?\""#,
    ] {
        assert!(script.contains(expected), "{expected:?} is not in {script}");
    }
    assert!(!script.contains("abc"), "a secret got in: {script}");
    assert!(answer.stderr.contains("WANDB_API_KEY holds a secret"), "{answer:?}");
    // The stage's environment is made by the job, with the repository in it.
    for expected in [
        "uv sync --active --project DIR/repo/stage",
        "uv pip install --no-deps -- DIR/repo",
        "export VIRTUAL_ENV=\"$ENVIRONMENT\"",
        "export PATH=\"$VIRTUAL_ENV/bin:$PATH\"",
    ] {
        assert!(script.contains(expected), "{expected:?} is not in {script}");
    }
    bench.script("ray.py", "[tool.runspec]\nrun.launch = \"ray\"");
    bench.refused(&["ray.py", "--slurm", "site.toml"], 1, "this script's launch is ray");
}

#[test]
fn a_batch_script_honours_what_is_asked_or_says_what_to_do() {
    let bench = Bench::new("[tool.runspec]\nname = \"t\"");
    bench.0.write("site.toml", "shared_dir = \"/shared\"\n");
    bench.0.write("image.toml", "shared_dir = \"/shared\"\nimage = \"/shared/x.sqsh\"\n");
    bench.0.write("bare.toml", "shared_dir = \"/shared\"\nenvironment = \"none\"\n");
    bench.0.write("own.py", "# /// script\n# dependencies = [\"numpy\"]\n# ///\n");
    bench.0.write("plain.py", "print(1)\n");
    let written = |arguments: &[&str]| {
        let answer = bench.ask(arguments);
        assert_eq!(answer.code, Some(0), "{answer:?}");
        (bench.said(&answer.stdout), bench.said(&answer.stderr))
    };
    let (script, _) = written(&[
        "repo/stage",
        "--slurm",
        "site.toml",
        "--extra",
        "cu129",
        "--with",
        "rich",
        "--source-path",
    ]);
    assert!(
        script.contains("uv sync --active --project DIR/repo/stage --extra cu129 && uv pip install -- rich"),
        "{script}"
    );
    assert!(
        script.contains("export '\"'\"'PYTHONPATH=") || script.contains("export PYTHONPATH=DIR/repo/src"),
        "{script}"
    );
    let (script, said) = written(&["own.py", "--slurm", "site.toml"]);
    assert!(script.contains("uv pip install --torch-backend auto -- numpy torch"), "{script}");
    assert!(said.contains("has no [tool.runspec]"), "{said}");
    let (script, said) = written(&["own.py", "--slurm", "image.toml"]);
    assert!(script.contains("uv venv --python python3 --clear --system-site-packages"), "{script}");
    assert!(
        script.contains("--excludes shardplan-excluded.txt -- numpy") && !script.contains("-- numpy torch"),
        "{script}"
    );
    assert!(said.contains("on top of the Python of its image"), "{said}");
    let (script, _) = written(&["plain.py", "--slurm", "bare.toml"]);
    assert!(!script.contains("VIRTUAL_ENV"), "{script}");
    bench.refused(&["own.py", "--slurm", "bare.toml", "--with", "rich"], 1, "the site's environment is none");
    bench.refused(
        &["own.py", "--slurm", "site.toml", "--extra", "x"],
        1,
        "no pyproject.toml that declares it",
    );
    bench.script("cmd.py", "[tool.runspec.run]\ncmd = \"python -u {script} go\"");
    let (script, said) = written(&["cmd.py", "--slurm", "site.toml"]);
    assert!(
        script.contains("bash -c 'python -u DIR/cmd.py go'") && said.contains("once for each GPU"),
        "{script}"
    );
    bench.script("own_launcher.py", "[tool.runspec.run]\ncmd = \"torchrun {script}\"");
    bench.refused(&["own_launcher.py", "--slurm", "site.toml"], 1, "starts its processes by torchrun");
}
