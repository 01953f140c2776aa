use super::read::*;
use crate::import::Imported;
use crate::import::testing::{is_planned, job, words};
use planner::plan::Plan;
use serde_json::{Value, json};

const TOML: &str = r#"
    [model]
    name = "llama3"
    flavor = "8B"
    [training]
    local_batch_size = 1
    seq_len = 8192
    compile = false
    [parallelism]
    data_parallel_shard_degree = -1
    tensor_parallel_degree = 1
    [activation_checkpoint]
    mode = "selective"
    selective_ac_option = "op"
"#;

fn import(text: &str, options: &str) -> Imported {
    import_torchtitan_job(toml_tree(text).unwrap(), &words(options), &job(2))
}

#[track_caller]
fn check(options: &str, path: &str, expected: Value) {
    is_planned(import(TOML, options), path, &expected);
}

#[test]
fn a_configuration_is_a_plan_and_options_change_it() {
    check("", "/model/preset", json!("llama-3-8b"));
    check("", "/training/global_batch_size", json!(16));
    check(
        "--training.local_batch_size=2 --parallelism.tensor-parallel-degree 8",
        "/training/global_batch_size",
        json!(4),
    );
    check("--parallelism.tensor_parallel_degree 8", "/layout/tp", json!(8));
    check("--training.compile", "/layout/fsdp/compile", json!(true));
    check("--activation_checkpoint.mode full", "/training/recompute/granularity", json!("full"));
    check("--activation_checkpoint.mode none", "/training/recompute/granularity", json!("none"));
    check("--model.converters float8", "/training/dtype", json!("fp8_current"));
    check(
        "--model.converters float8 --float8.enable_fsdp_float8_all_gather",
        "/training/fp8_param_gather",
        json!(true),
    );
    check("--optimizer.beta1 0.8", "/training/optimizer/beta1", json!(0.8));
    check("--optimizer.beta2 0.99 --optimizer.name AdamW", "/training/optimizer/beta2", json!(0.99));
    check("--optimizer.eps 1e-6", "/training/optimizer/eps", json!(1e-6));
    check("--debug.deterministic", "/training/deterministic", json!(true));
    // What torchtitan does where nothing is said, and what is said of it.
    check("", "/run/lr_schedule", json!("linear"));
    check("", "/run/warmup_steps", json!(200));
    check("--lr_scheduler.warmup_steps 7", "/run/warmup_steps", json!(7));
    check("--lr_scheduler.decay_type cosine", "/run/lr_schedule", json!("cosine"));
    check("--lr_scheduler.decay_ratio 0", "/run/lr_schedule", json!("constant"));
    check("--optimizer.lr 1e-3 --lr_scheduler.min_lr_factor 0.1", "/run/min_lr", json!(1e-4));
    check("--debug.no-deterministic", "/training/deterministic", json!(false));
    check(
        "--model.name deepseek_v3 --model.flavor 16B --debug.moe_force_load_balance",
        "/training/moe/force_balance",
        json!(true),
    );
    check(
        "--model.flavor debugmodel --parallelism.pipeline_parallel_degree 2 --training.local_batch_size 2",
        "/training/micro_batch_size",
        json!(1),
    );
}

#[test]
fn what_is_not_planned_is_said() {
    let imported = import(TOML, "--model.flavor 9B");
    assert!(imported.findings[0].message.contains("9B"), "{:?}", imported.findings);
    let imported = import(TOML, "--optimizer.name Shampoo");
    assert!(imported.file.is_some() && imported.findings[0].message.contains("Adam"));
    assert!(toml_tree("[a").is_err_and(|error| error.contains("no TOML")));
    let imported = import(TOML, "--training.seq_len many");
    assert!(imported.findings[0].message.contains("`many`"), "{:?}", imported.findings);
}

#[test]
fn a_function_of_the_registry_is_a_plan() {
    let text = "def llama3_70b() -> Trainer.Config:\n    return Trainer.Config(\n        model_spec=model_registry(\"70B\"),\n        \
                training=TrainingConfig(local_batch_size=8, seq_len=8192),\n        \
                parallelism=ParallelismConfig(tensor_parallel_degree=8),\n        \
                activation_checkpoint=ActivationCheckpointConfig(mode=\"full\"),\n    )\n";
    let imported = import_torchtitan_job(python_tree(text, "llama3", "llama3_70b").unwrap(), &[], &job(8));
    let file = imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings));
    assert_eq!((file.model.preset.as_deref(), file.layout.tp), (Some("llama-3-70b"), Some(8)));
    assert_eq!(file.training.global_batch_size, Some(64));
    assert!(Plan::resolve(&file).plan.is_some());
}

#[test]
fn a_rate_that_no_plan_has_is_said() {
    for (options, schedule) in [
        ("--lr_scheduler.decay_ratio 0.1 --lr_scheduler.decay_type cosine", "constant"),
        ("--lr_scheduler.decay_type sqrt", "linear"),
    ] {
        let imported = import(TOML, options);
        assert!(
            imported.findings.iter().any(|finding| finding.field == "run.lr_schedule"),
            "{:?}",
            imported.findings
        );
        is_planned(imported, "/run/lr_schedule", &json!(schedule));
    }
}

#[test]
fn what_a_configuration_leaves_out_is_torchtitans_own() {
    let text =
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n";
    let imported = import_torchtitan_job(toml_tree(text).unwrap(), &[], &job(1));
    let run = imported.file.unwrap().run;
    assert_eq!((run.steps, run.lr, run.warmup_steps), (Some(10_000), Some(8e-4), Some(200)));
}

#[test]
fn a_file_of_another_program_is_no_configuration() {
    for text in [
        "[project]\nname = \"foo\"\n",
        "[model]\ndim = 8192\nn_layers = 80\nvocab_size = 128256\n[train]\nbatch_size = 1\n",
        "[model]\nhidden_size = 8192\nnum_layers = 80\n",
    ] {
        let error = toml_tree(text).unwrap_err();
        assert!(error.contains("no configuration of torchtitan"), "{text}: {error}");
    }
    assert!(toml_tree("[training]\nsteps = 3\n").is_ok());
}
