//! Scripts of every body, run: with stand-ins for uv and python that write down how they were called.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use batch::launch::{Body, Container, Environment, Mode, Task};
use serde_json::json;
use system_tests::programs::system_program;
use system_tests::slurm::stubs::Call;
use system_tests::slurm::{GPUS_PER_NODE, HALVES, NODES, succeeded};
use system_tests::wait::LONG;

use super::stand_ins::{Job, RANKS, calls_of, ranks};

/// The port of 1-18: 15000 and the last four digits of the job's number.
fn port_of(job: &str) -> Result<String> {
    let number: u64 = job.parse()?;
    Ok((15_000 + number % 10_000).to_string())
}

#[tokio::test]
async fn every_body_runs_with_one_process_for_each_gpu_in_both_modes() -> Result<()> {
    let scripts: [(Body, &[&str]); 5] = [
        (Body::Bridge, &["scripts/training/run_recipe.py", "--recipe", "some_recipe"]),
        (Body::Mlm, &[]),
        (Body::Automodel, &[]),
        (Body::Torchtitan, &["-m", "torchtitan.train", "--module", "llama3"]),
        (Body::Command, &["train.py", "--steps", "3"]),
    ];
    for (body, words) in scripts {
        for mode in [Mode::Srun, Mode::Torchrun] {
            let name = format!("{}-{}", mode.name(), body.name());
            let mut job = Job::new(&name, mode, body)?;
            job.site.environment = Some(Environment::Shared);
            if body == Body::Command {
                job.options.command = ["python", "train.py", "--steps", "3"].map(str::to_owned).to_vec();
            }
            let calls = check(&job, words).await.with_context(|| name.clone())?;
            if body == Body::Mlm {
                megatron_lm(&job, &calls).with_context(|| name.clone())?;
            }
        }
    }
    Ok(())
}

/// Megatron-LM reads no variable of Slurm's, lies under a folder with a blank in its name, and wants its own settings.
fn megatron_lm(job: &Job, calls: &[Call]) -> Result<()> {
    let folder = format!("{}/3rdparty/Megatron-LM", job.site.workdir.as_deref().unwrap_or_default());
    for (rank, call) in ranks(calls, job.options.mode == Mode::Torchrun)?.into_iter().enumerate() {
        ensure!(call.arguments[0] == format!("{folder}/pretrain_gpt.py"), "{:?}", call.arguments);
        let path = call.variable("PYTHONPATH");
        ensure!(path.split(':').next() == Some(&*folder), "PYTHONPATH is {path:?}");
        for (name, value) in [
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", (rank % 2).to_string()),
            ("WORLD_SIZE", RANKS.to_string()),
            ("CUDA_DEVICE_MAX_CONNECTIONS", "1".to_owned()),
            ("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "1".to_owned()),
            ("NCCL_NVLS_ENABLE", "0".to_owned()),
        ] {
            ensure!(call.variable(name) == value, "rank {rank}: {name} is {:?}", call.variable(name));
        }
        let words = call.arguments.join(" ");
        for option in ["--tensor-model-parallel-size 2", "--train-iters 5", "--mock-data", "--seed 1234"] {
            ensure!(words.contains(option), "{option} is not in {words}");
        }
    }
    Ok(())
}

/// Runs a job of two phases and gives its calls.
async fn check(job: &Job, words: &[&str]) -> Result<Vec<Call>> {
    let torchrun = job.options.mode == Mode::Torchrun;
    let (number, calls) = job.completed().await?;
    let found = ranks(&calls, torchrun)?;
    let workdir = job.site.workdir.as_deref().unwrap_or_default();
    for call in &found {
        ensure!(call.folder == workdir, "a rank started in {}", call.folder);
        ensure!(
            call.arguments.starts_with(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()),
            "{:?}",
            call.arguments
        );
        ensure!(call.arguments == found[0].arguments, "ranks differ: {:?}", call.arguments);
        ensure!(
            call.variable("MASTER_ADDR") == NODES[0],
            "MASTER_ADDR is {:?}",
            call.variable("MASTER_ADDR")
        );
        ensure!(
            call.variable("MASTER_PORT") == port_of(&number)?,
            "MASTER_PORT is {:?}",
            call.variable("MASTER_PORT")
        );
        for cache in ["HF_HOME", "UV_CACHE_DIR", "NEMO_HOME"] {
            ensure!(
                call.variable(cache).starts_with(&job.folder.display().to_string()),
                "{cache} is {:?}",
                call.variable(cache)
            );
        }
    }
    // Phase 1: one sync, before anything else. Phase 2: none.
    let syncs = calls_of(&calls, "uv", &["sync"]);
    ensure!(syncs.len() == 1, "{} syncs", syncs.len());
    ensure!(
        calls[0].arguments == ["sync"] && calls[0].folder == workdir,
        "the first call is {:?}",
        calls[0].arguments
    );
    let runs = calls_of(&calls, "uv", &["run", "--no-sync", "python"]);
    let launchers = calls_of(&calls, "python", &["-m", "torch.distributed.run"]);
    if torchrun {
        ensure!(
            (runs.len(), launchers.len()) == (2, 2),
            "{} runs, {} launchers",
            runs.len(),
            launchers.len()
        );
        for launcher in launchers {
            let node = NODES.iter().position(|node| *node == launcher.host).context("an unknown node")?;
            let expected = [
                "-m".to_owned(),
                "torch.distributed.run".to_owned(),
                format!("--nproc_per_node={GPUS_PER_NODE}"),
                "--nnodes=2".to_owned(),
                format!("--node_rank={node}"),
                format!("--master_addr={}", NODES[0]),
                format!("--master_port={}", port_of(&number)?),
            ];
            ensure!(launcher.arguments.starts_with(&expected), "{:?}", launcher.arguments);
        }
    } else {
        ensure!((runs.len() as u64, launchers.len()) == (RANKS, 0), "{} runs", runs.len());
    }
    // Losses are shown again where a launcher's log hides them among others.
    let shows = job.printed().contains("Losses:");
    ensure!(shows == (torchrun && matches!(job.options.body, Body::Bridge | Body::Mlm)), "{}", job.printed());
    Ok(calls)
}

#[tokio::test]
async fn conversion_and_generation_take_the_layout_alone() -> Result<()> {
    for (task, script) in [
        (Task::Convert, "examples/conversion/hf_megatron_roundtrip_multi_gpu.py"),
        (Task::Generate, "examples/conversion/hf_to_megatron_generate_text.py"),
    ] {
        let mut job = Job::new(task.name(), Mode::Srun, Body::Bridge)?;
        job.options.task = task;
        let (_, calls) = job.completed().await?;
        for call in ranks(&calls, false)? {
            ensure!(call.arguments[0] == script, "{:?}", call.arguments);
            let words = call.arguments.join(" ");
            ensure!(words.contains("--tp 2 --pp 1 --ep 1 --etp"), "{words}");
            ensure!(call.arguments.iter().any(|word| word == "MiniMaxAI/MiniMax-M2"), "{words}");
            // One word, blanks and all.
            let asks = call.arguments.iter().any(|word| word == "What is AI?");
            ensure!(asks == (task == Task::Generate), "{:?}", call.arguments);
        }
        ensure!(calls_of(&calls, "uv", &["sync"]).len() == 1, "{} calls", calls.len());
    }
    Ok(())
}

/// The steps, each in the shell where it belongs: salloc's own, and then the one that it opens.
#[tokio::test]
async fn steps_of_an_interactive_allocation_run_as_they_are_pasted() -> Result<()> {
    for (body, task) in [(Body::Bridge, Task::Generate), (Body::Mlm, Task::Train)] {
        let mut job = Job::new(&format!("salloc-{}", body.name()), Mode::Salloc, body)?;
        job.options.task = task;
        let text = job.script()?;
        let (first, rest) = text.split_once("\n# Step 2").context("no step 2")?;
        // Step 3 wants a terminal, which a test has not; that apart it runs as it is.
        ensure!(rest.matches(" --pty ").count() == 1, "{rest}");
        let looks = |line: &str| match line.trim() {
            "bash" => "  bash <<< hostname".to_owned(),
            _ => line.to_owned(),
        };
        let rest: Vec<String> = rest.replace(" --pty ", " ").lines().map(looks).collect();
        std::fs::write(job.folder.join("rest.sh"), format!("# Step 2{}\n", rest.join("\n")))?;
        let steps = job.folder.join("steps.sh");
        std::fs::write(&steps, format!("{} \\\n  bash rest.sh\n", first.trim_end()))?;
        let mut bash = job.slurm.unlimited("timeout")?;
        let folder = format!("--chdir={}", job.folder.display());
        bash.arg(LONG.as_secs().to_string()).arg(system_program("env")?).args([&folder, "bash"]).arg(&steps);
        job.stubs.on_path_of(&mut bash);
        let output = bash.output()?;
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{said}");
        ensure!(said.lines().any(|line| line == NODES[0]), "step 3 is not on the first node: {said}");
        let calls = job.stubs.calls()?;
        let found = ranks(&calls, false)?;
        ensure!(found.iter().all(|call| call.variable("MASTER_ADDR") == NODES[0]), "{:?}", found[0]);
        ensure!(calls_of(&calls, "uv", &["sync"]).len() == 1 && calls[0].arguments == ["sync"], "{calls:?}");
    }
    Ok(())
}

#[tokio::test]
async fn apptainer_is_given_image_and_mounts_and_runs_what_the_task_is() -> Result<()> {
    for mode in [Mode::Srun, Mode::Torchrun] {
        let mut job = Job::new(&format!("apptainer-{}", mode.name()), mode, Body::Bridge)?;
        let shared = job.folder.display().to_string();
        let (image, mounts) =
            (format!("{shared}/an image.sif"), format!("{shared}/work dir:/opt/Megatron-Bridge"));
        job.site.container = Some(Container::Apptainer);
        job.site.image = Some(image.clone());
        job.site.mounts = vec![format!("{shared}:{shared}"), mounts];
        let (_, calls) = job.completed().await?;
        ranks(&calls, mode == Mode::Torchrun)?;
        let contained = calls_of(&calls, "apptainer", &[]);
        let tasks = if mode == Mode::Torchrun { NODES.len() } else { RANKS as usize };
        ensure!(contained.len() == tasks, "{} containers", contained.len());
        for call in contained {
            let expected = ["exec", "--nv", "--bind", &job.site.mounts.join(","), &image, "bash", "-c"];
            ensure!(call.arguments.starts_with(&expected.map(str::to_owned)), "{:?}", call.arguments);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_job_that_fails_is_queued_again_as_often_as_the_site_says() -> Result<()> {
    let mut job = Job::new("retries", Mode::Srun, Body::Torchtitan)?;
    job.site.retries = 1;
    job.variables.push(("STUB_FAIL", "2"));
    let (number, state, code) = job.run().await?;
    ensure!(state == "FAILED" && code == "7:0", "{state} {code}: {}", job.printed());
    ensure!(job.slurm.job_field(&number, "Restarts")? == "1", "{}", job.printed());
    let calls = job.stubs.calls()?;
    let attempts = calls.iter().filter(|call| call.variable("SLURM_PROCID") == "2").count();
    ensure!(attempts == 2, "rank 2 was started {attempts} times: {}", job.printed());
    // The second attempt writes behind the first one's log.
    ensure!(job.printed().matches("sacct -j").count() == 2, "{}", job.printed());
    Ok(())
}

#[tokio::test]
async fn a_node_local_environment_is_synced_once_on_each_node_before_its_ranks_start() -> Result<()> {
    let mut job = Job::new("node-local", Mode::Srun, Body::Torchtitan)?;
    job.site.environment = Some(Environment::NodeLocal);
    let (_, calls) = job.completed().await?;
    ranks(&calls, false)?;
    let position = |program: &str, host: &str, word: &str| {
        calls
            .iter()
            .position(|call| call.program == program && call.host == host && call.arguments[0] == word)
    };
    let syncs = calls_of(&calls, "uv", &["sync"]);
    ensure!(syncs.len() == NODES.len(), "{} syncs", syncs.len());
    for node in NODES {
        let (sync, run) = (position("uv", node, "sync"), position("uv", node, "run"));
        ensure!(sync.is_some() && sync < run, "on {node} the sync is call {sync:?}, the first run {run:?}");
    }
    Ok(())
}

#[tokio::test]
async fn container_flags_reach_the_step_and_an_image_that_has_all_gets_no_other() -> Result<()> {
    let mut job = Job::new("pyxis", Mode::Srun, Body::Bridge)?;
    let shared = job.folder.display().to_string();
    job.site.container = Some(Container::Pyxis);
    job.site.image = Some(format!("{shared}/megatron-bridge.sqsh"));
    job.site.mounts = vec![format!("{shared}:{shared}"), format!("{shared}/work dir:/opt/Megatron-Bridge")];
    job.site.mpi = Some("pmix".into());
    let (number, calls) = job.completed().await?;
    ranks(&calls, false)?;
    ensure!(calls_of(&calls, "uv", &[]).is_empty(), "something is synced: {calls:?}");
    for (step, tasks) in [("0", RANKS as usize), ("1", 0)] {
        let options = job.slurm.container_options(&number, step)?;
        ensure!(options.len() == tasks, "step {step} has {} tasks with containers", options.len());
        for task in options {
            let value =
                |name: &str| task.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
            ensure!(value("container-image") == job.site.image, "{task:?}");
            ensure!(value("container-mounts").as_deref() == Some(&job.site.mounts.join(",")), "{task:?}");
            ensure!(value("no-container-mount-home").is_some(), "{task:?}");
        }
    }
    let batch = job.slurm.container_options(&number, "batch")?;
    ensure!(batch.iter().all(Vec::is_empty), "the batch script itself is in a container: {batch:?}");
    Ok(())
}

/// What a step writes into its container is gone with the step, as pyxis does it: only a sync in the container that trains
/// is of use.
#[tokio::test]
async fn an_environment_is_synced_on_each_node_in_the_container_that_trains() -> Result<()> {
    for mode in [Mode::Srun, Mode::Torchrun] {
        let mut job = Job::new(&format!("throwaway-{}", mode.name()), mode, Body::Mlm)?;
        job.site.container = Some(Container::Pyxis);
        // It has no Megatron-LM, so it is synced though the site says nothing of it.
        job.site.image = Some("nvcr.io#nvidia/pytorch:26.06-py3".into());
        let image: &'static str = Box::leak(job.slurm.image().display().to_string().into_boxed_str());
        job.variables.push(("STUB_ENVIRONMENT", image));
        let (number, calls) = job.completed().await?;
        ranks(&calls, mode == Mode::Torchrun)?;
        let synced: Vec<&str> =
            calls_of(&calls, "uv", &["sync"]).iter().map(|call| call.host.as_str()).collect();
        ensure!(NODES.iter().all(|node| synced.contains(node)) && synced.len() == NODES.len(), "{synced:?}");
        let options = job.slurm.container_options(&number, "0")?;
        let writable =
            |task: &Vec<(String, String)>| task.iter().any(|(name, _)| name == "container-writable");
        ensure!(options.iter().all(writable), "{options:?}");
        ensure!(std::fs::read_dir(job.slurm.image())?.next().is_none(), "the container outlived its step");
    }
    // What a site asks for is written, and said to be of no use.
    let mut job = Job::new("throwaway-shared", Mode::Srun, Body::Mlm)?;
    job.site.container = Some(Container::Pyxis);
    job.site.image = Some("nvcr.io#nvidia/nemo:26.08".into());
    job.site.environment = Some(Environment::Shared);
    let image: &'static str = Box::leak(job.slurm.image().display().to_string().into_boxed_str());
    job.variables.push(("STUB_ENVIRONMENT", image));
    let (_, state, _) = job.run().await?;
    ensure!(state == "FAILED" && job.printed().contains("ModuleNotFoundError"), "{state}: {}", job.printed());
    Ok(())
}

#[tokio::test]
async fn ranks_are_bound_to_the_memory_next_to_their_gpu_in_both_modes() -> Result<()> {
    for (mode, body) in
        [(Mode::Srun, Body::Bridge), (Mode::Torchrun, Body::Torchtitan), (Mode::Torchrun, Body::Command)]
    {
        let mut job = Job::new(&format!("numa-{}-{}", mode.name(), body.name()), mode, body)?;
        job.site.numa_bind = true;
        job.options.command = ["python", "train.py", "a b", "$X"].map(str::to_owned).to_vec();
        let (_, calls) = job.completed().await?;
        for call in ranks(&calls, mode == Mode::Torchrun)? {
            if body == Body::Command {
                ensure!(call.arguments == ["train.py", "a b", "$X"], "{:?}", call.arguments);
            }
        }
        let mut bound: Vec<(&str, &str)> = calls_of(&calls, "numactl", &[])
            .iter()
            .map(|call| (call.host.as_str(), call.arguments[1].as_str()))
            .collect();
        bound.sort_unstable();
        let expected: Vec<(&str, &str)> =
            NODES.iter().flat_map(|node| [(*node, "--membind=0"), (*node, "--membind=1")]).collect();
        ensure!(bound == expected, "{bound:?}");
    }
    Ok(())
}

#[tokio::test]
async fn no_word_of_a_command_or_value_of_the_site_is_ever_executed() -> Result<()> {
    let hostile = [
        "a b",
        "$(touch pwned)",
        "`touch pwned`",
        "\"; touch pwned; \"",
        "'; touch pwned; '",
        "#x",
        "*",
        "${HOME}",
        "$HOME",
        "\\",
        "a\\nb",
        "!!",
        "~",
        "-x",
        "&",
        "|touch pwned",
        ">pwned",
        "ü",
        "%j",
        "{a,b}",
    ];
    for mode in [Mode::Srun, Mode::Torchrun] {
        let mut job = Job::new(&format!("hostile-{}", mode.name()), mode, Body::Command)?;
        job.site.environment = Some(Environment::Shared);
        job.options.command =
            ["python", "train.py"].iter().chain(&hostile).map(|word| (*word).to_owned()).collect();
        for (number, value) in hostile.iter().enumerate() {
            job.site.env.insert(format!("HOSTILE_{number}"), (*value).to_owned());
        }
        let (_, calls) = job.completed().await?;
        for call in ranks(&calls, mode == Mode::Torchrun)? {
            ensure!(call.arguments[1..] == hostile, "{:?}", call.arguments);
            for (number, value) in hostile.iter().enumerate() {
                let seen = call.variable(&format!("HOSTILE_{number}"));
                ensure!(seen == *value, "HOSTILE_{number} is {seen:?} instead of {value:?}");
            }
        }
        let find = succeeded(Command::new("find").arg(&job.folder).args(["-name", "pwned"]))?;
        ensure!(find.is_empty(), "{} ran: {find}", mode.name());
    }
    Ok(())
}

#[tokio::test]
async fn elements_of_an_array_have_logs_and_seeds_of_their_own() -> Result<()> {
    let mut job = Job::new("array", Mode::Srun, Body::Bridge)?;
    job.options.array = Some("0-1".into());
    let number = job.submit()?;
    for element in 0..2 {
        let (state, code) = job.slurm.finished(&format!("{number}_{element}"), LONG).await?;
        ensure!(state == "COMPLETED", "element {element}: {state} {code}: {}", job.printed());
        let log = format!("{number}_{element}.log");
        let logs: Vec<String> = std::fs::read_dir(job.folder.join("logs"))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        ensure!(logs.iter().any(|name| name.ends_with(&log)), "{logs:?} has no {log}");
    }
    let calls = job.stubs.calls()?;
    let mut seeds: Vec<&String> = calls
        .iter()
        .filter(|call| call.program == "python" && call.variable("SLURM_PROCID") == "0")
        .filter_map(|call| call.arguments.iter().find(|word| word.starts_with("rng.seed=")))
        .collect();
    seeds.sort();
    ensure!(seeds == ["rng.seed=1234", "rng.seed=1235"], "{seeds:?}");
    for call in calls.iter().filter(|call| call.program == "python") {
        // Each element has a number of its own besides, which its ranks' port comes from.
        let port = port_of(call.variable("SLURM_JOB_ID"))?;
        ensure!(call.variable("MASTER_PORT") == port, "{} instead of {port}", call.variable("MASTER_PORT"));
        let element = call.variable("SLURM_ARRAY_TASK_ID");
        let runs = job.folder.join("runs");
        let save = format!("checkpoint.save='{}/shardplan-{number}_{element}/checkpoints'", runs.display());
        ensure!(call.arguments.contains(&save), "{save} is not in {:?}", call.arguments);
    }
    Ok(())
}

#[tokio::test]
async fn components_of_a_heterogeneous_job_are_one_world() -> Result<()> {
    let mut job = Job::new("het", Mode::Srun, Body::Torchtitan)?;
    job.options.het = Some(format!("1:{},1:{}", HALVES[0], HALVES[1]));
    let (number, calls) = job.completed().await?;
    for call in ranks(&calls, false)? {
        for (name, value) in [("MASTER_ADDR", NODES[0]), ("MASTER_PORT", &port_of(&number)?)] {
            ensure!(call.variable(name) == value, "{name} is {:?}", call.variable(name));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_node_that_lost_a_gpu_runs_fewer_ranks_of_one_world() -> Result<()> {
    let mut job = Job::new("reduced", Mode::Srun, Body::Mlm)?;
    job.failed = json!([{"node": 1, "gpu": 0}]);
    job.site.failed_nodes = Some(NODES[1].into());
    let (number, calls) = job.completed().await?;
    let mut found = calls_of(&calls, "python", &[]);
    found.sort_by_key(|call| call.variable("RANK").to_owned());
    ensure!(found.len() as u64 == RANKS - 1, "{} training processes", found.len());
    // The node with fewer GPUs comes first, whatever its name.
    let places = [(NODES[1], "0"), (NODES[0], "0"), (NODES[0], "1")];
    for (number_of_rank, (call, (node, local))) in found.iter().zip(places).enumerate() {
        for (name, value) in [
            ("RANK", number_of_rank.to_string()),
            ("WORLD_SIZE", (RANKS - 1).to_string()),
            ("LOCAL_RANK", local.to_owned()),
            ("SLURMD_NODENAME", node.to_owned()),
            ("MASTER_ADDR", NODES[1].to_owned()),
            ("MASTER_PORT", port_of(&number)?),
        ] {
            ensure!(
                call.variable(name) == value,
                "{name} of rank {number_of_rank} is {:?}",
                call.variable(name)
            );
        }
        let sizes = ["--nonuniform-tp-domain-sizes", "1", "2"].map(str::to_owned);
        ensure!(call.arguments.windows(3).any(|words| words == sizes), "{:?}", call.arguments);
    }
    Ok(())
}

#[tokio::test]
async fn a_failing_first_phase_ends_the_job_with_its_code_and_nothing_trains() -> Result<()> {
    for mode in [Mode::Srun, Mode::Torchrun] {
        let mut job = Job::new(&format!("no-sync-{}", mode.name()), mode, Body::Bridge)?;
        job.variables.push(("STUB_FAIL", "sync"));
        let (_, state, code) = job.run().await?;
        ensure!(state == "FAILED" && code == "3:0", "{state} {code}: {}", job.printed());
        let calls = job.stubs.calls()?;
        ensure!(calls.len() == 1, "{} calls after a failed sync", calls.len());
    }
    Ok(())
}

#[tokio::test]
async fn a_failing_rank_fails_the_job_and_the_others_with_it() -> Result<()> {
    for mode in [Mode::Srun, Mode::Torchrun] {
        let mut job = Job::new(&format!("bad-rank-{}", mode.name()), mode, Body::Torchtitan)?;
        job.variables.extend([("STUB_FAIL", "3"), ("STUB_SECONDS", "600")]);
        let (_, state, code) = job.run().await?;
        ensure!(state == "FAILED" && code == "7:0", "{state} {code}: {}", job.printed());
    }
    Ok(())
}

#[tokio::test]
async fn without_the_folder_of_its_log_slurm_fails_a_job_before_its_first_line() -> Result<()> {
    let job = Job::new("no-logs", Mode::Srun, Body::Bridge)?;
    std::fs::remove_dir(job.folder.join("logs"))?;
    let (_, state, code) = job.run().await?;
    ensure!(state == "FAILED" && code != "0:0", "{state} {code}");
    ensure!(job.stubs.calls()?.is_empty(), "something ran");
    // Which is why the script says so in its head.
    let wanted = format!("# Before sbatch: mkdir -p {}/logs", job.folder.display());
    ensure!(job.script()?.contains(&wanted), "the script does not say {wanted:?}");
    Ok(())
}
