//! What ranks do on GPUs, on GPUs of host memory (tests/fake_gpu): the same training as on the CPU, nothing read or written
//! that no event orders, and no byte leaked.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::harness::{PATIENCE, Run, Start, free_port, set, tiny};
use crate::parity::{self, STEPS, same};

fn compile(command: &mut Command) {
    let done = command.output().expect("a compiler, which building this program needed too");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The library with GPUs, CUDA's runtime and NCCL, compiled once.
fn library() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let torch = Path::new(env!("TORCH_HOME"));
        let made = |name: &str| {
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.{name}", std::process::id()))
        };
        let (streams, library) = (made("fake_streams.o"), made("libfake_gpu.so"));
        compile(
            Command::new("cc")
                .args(["-c", "-fPIC", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-o"])
                .args([&streams, &tests.join("fake_nccl/fake_nccl.c")]),
        );
        compile(
            Command::new("c++")
                .args(["-shared", "-fPIC", "-O0", "-std=c++17", "-pthread", "-Wall", "-Wextra", "-isystem"])
                .arg(torch.join("include"))
                .args([&tests.join("fake_gpu/fake_gpu.cpp"), &streams])
                .arg("-L")
                .arg(torch.join("lib"))
                // First of all libraries of a rank, but behind these.
                .args(["-ltorch_cpu", "-lc10", "-o"])
                .arg(&library),
        );
        library.to_str().unwrap().to_owned()
    })
}

/// Starts a rank for each GPU.
fn start(plan: &Value, arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let mut run = Run::prepare(plan);
    let (log, library) = (run.folder().join("calls").to_str().unwrap().to_owned(), library());
    let mut all = vec!["--device", "cuda", "--nccl-library", library];
    all.extend(arguments);
    let mut given =
        vec![("LD_PRELOAD", library), ("FAKE_NCCL_LOG", log.as_str()), ("FAKE_NCCL_DELAYS", "300")];
    given.extend(variables);
    let (world, port) = (plan["cluster"]["gpus_per_node"].as_u64().unwrap(), free_port());
    for rank in 0..world {
        let start =
            Start { rank, world, port, arguments: &all, program: None, plan: None, variables: &given };
        run.start_rank(&start);
    }
    run
}

/// A plan of `world` ranks on GPUs against one process on the CPU.
#[track_caller]
fn check(world: u64, tp: u64, change: impl Fn(&mut Value), layout: impl Fn(&mut Value)) {
    let mut one = tiny(1, 1);
    change(&mut one);
    let mut many = tiny(world, tp);
    change(&mut many);
    layout(&mut many);
    let one = parity::on_one_process(&one);
    let mut run = start(&many, &["--dump"], &[]);
    run.succeed();
    parity::compare(one.get().expect("it was made"), &run, world, STEPS);
}

fn with(path: &'static str, value: impl Into<Value> + Clone) -> impl Fn(&mut Value) {
    move |plan| set(plan, path, value.clone())
}

/// Experts with a bias that follows their tokens, and a loss on how these are spread.
fn experts(balance: &str) -> impl Fn(&mut Value) {
    let routing =
        json!({"score": "sigmoid", "bias_update_rate": 0.01, "balance": balance, "aux_coefficient": 0.01});
    let moe = json!({
        "experts": 8, "top_k": 2, "ffn_hidden_size": 24, "router_bias_buffer": 8, "routing": routing
    });
    move |plan| set(plan, "model.architecture.moe", moe.clone())
}

#[test]
fn one_gpu_trains_what_a_cpu_trains() {
    check(1, 1, same, same);
    check(1, 1, experts("global_aux_loss"), same);
}

#[test]
fn replicas_and_slices() {
    check(2, 1, same, same);
    check(2, 2, same, same);
    check(2, 1, same, with("layout.cp", 2));
}

#[test]
fn pipelines() {
    check(2, 1, same, with("layout.pp", 2));
    check(2, 1, with("model.architecture.num_layers", 4), |plan| {
        set(plan, "layout.pp", 2);
        set(plan, "layout.vpp", 2);
        set(plan, "layout.schedule", "zbv");
    });
}

#[test]
fn experts_on_other_ranks() {
    check(2, 1, experts("aux_loss"), with("layout.ep", 2));
}

#[test]
fn shards() {
    check(2, 1, same, with("runtime", "fsdp2"));
}

#[test]
fn a_forgotten_event_is_found() {
    let mut plan = tiny(2, 1);
    set(&mut plan, "layout.pp", 2);
    for forgets in ["default", "side"] {
        let mut run = start(&plan, &["--timeout-s", "10"], &[("FAKE_GPU_FORGETS", forgets)]);
        let finished = run.finish(PATIENCE);
        assert!(
            finished.iter().any(|rank| !rank.success && rank.stderr.contains("as no event is between them")),
            "{forgets}: {finished:?}"
        );
    }
}
