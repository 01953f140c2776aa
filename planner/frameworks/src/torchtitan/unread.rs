//! Keys of torchtitan's configurations that nothing reads.

use serde_json::Value;

use super::python::CALLED;
use super::rows::table;
use crate::import::settings::Settings;
use crate::import::unread::Keys;
use crate::import::write::Notes;
use planner::software::Framework;

/// Keys that are read apart from the table's rows, in the names of all versions.
const READ: &[&str] = &[
    "activation_checkpoint.mode",
    "activation_checkpoint.selective_ac_option",
    "float8.enable_fsdp_float8_all_gather",
    "job.config_file",
    "lr_scheduler.decay_ratio",
    "lr_scheduler.decay_type",
    "lr_scheduler.lr_min",
    "lr_scheduler.min_lr_factor",
    "lr_scheduler.warmup_steps",
    "model.converters",
    "model.flavor",
    "model.name",
    "model_converters.converters",
    "optimizer.lr",
    "optimizer.name",
    "parallelism.num_pp_microbatches",
    "parallelism.pipeline_parallel_first_stage_less_layers",
    "parallelism.pipeline_parallel_last_stage_less_layers",
    "parallelism.pipeline_parallel_layers_per_stage",
    "parallelism.pipeline_parallel_microbatch_size",
    "quantize.linear.float8.enable_fsdp_float8_all_gather",
    "training.batch_size",
    "training.compile",
    "training.global_batch_size",
    "training.local_batch_size",
    "training.max_context_length",
    "training.num_tokens_per_microbatch_per_dp_rank",
    "training.num_tokens_per_train_step",
    "training.seq_len",
];
/// Keys of logs, paths, data, checkpoints and kernels, which say nothing that a plan has.
const SILENT: &[&str] = &[
    "activation_checkpoint.debug",
    "activation_checkpoint.determinism_check",
    "activation_checkpoint.preserve_rng_state",
    "activation_checkpoint.visualize_memory_budget_pareto",
    "checkpoint",
    "comm",
    "compile.backend",
    "dataloader",
    "debug.deterministic_warn_only",
    "debug.enable_structured_logging",
    "debug.print_config",
    "debug.save_config_file",
    "debug.seed",
    "experimental.custom_args_module",
    "experimental.custom_import",
    "experimental.custom_model_path",
    "float8.precompute_float8_dynamic_scale_for_fsdp",
    "hf_assets_path",
    "job",
    "logging",
    "memory_estimation",
    "metrics",
    "model.hf_assets_path",
    "model.print_after_conversion",
    "model.tokenizer_path",
    "model_spec",
    "optimizer.implementation",
    "parallelism.spmd_backend",
    "profiler",
    "profiling",
    "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp",
    "tokenizer",
    "training.data_parallel_type",
    "training.dataloader",
    "training.dataset",
    "training.dataset_path",
    "training.gc_debug",
    "training.gc_freq",
    "validation",
    "validator",
];
/// Values that say what holds without them.
const USUAL: &[(&str, &str)] = &[
    ("compile.components", r#"["model","loss"]"#),
    ("float8.filter_fqns", r#"["output"]"#),
    ("lr_scheduler.total_steps", "-1"),
    ("parallelism.context_parallel_load_balancer", "headtail"),
    ("parallelism.context_parallel_rotate_method", "allgather"),
    ("parallelism.expert_parallel_comm_backend", "standard"),
    ("quantize.linear.float8.filter_fqns", r#"["output"]"#),
    ("training.mixed_precision_reduce", "float32"),
];

/// Says which keys of a job its plan has not.
pub(super) fn tell(settings: &Settings, version: Framework, notes: &mut Notes) {
    let options = table(version).rows().map(|row| row.option).filter(|option| !option.is_empty());
    let keys =
        Keys { read: options.chain(READ.iter().copied()).collect(), silent: SILENT, told: &[], usual: USUAL };
    let plain = without_classes(settings.tree());
    let mut unread = keys.of_tree(&plain, &|_| false);
    let options = keys.of_options(settings);
    unread.retain(|(path, _)| options.iter().all(|(option, _)| option != path));
    unread.extend(options);
    // Names that were experimental once are read as such.
    unread.retain(|(path, value)| {
        let name = path.strip_prefix("experimental.").map(|name| format!("parallelism.{name}"));
        name.is_none_or(|name| keys.is_unread(&name, value))
    });
    keys.tell(&unread, notes);
}

/// A tree without the names of the classes that a configuration in Python makes of its sections.
fn without_classes(tree: &Value) -> Value {
    match tree {
        Value::Object(section) => {
            let inside = section.iter().filter(|(name, _)| *name != CALLED && name.parse::<u64>().is_err());
            Value::Object(inside.map(|(name, value)| (name.clone(), without_classes(value))).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::{import_torchtitan_job, toml_tree};
    use crate::import::testing::{job, words};

    fn told(text: &str, options: &str) -> Vec<String> {
        let tree = toml_tree(text).expect("a configuration");
        let imported = import_torchtitan_job(tree, &words(options), &job(1));
        assert!(imported.file.is_some(), "{:?}", imported.findings);
        imported.findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn keys_that_nothing_reads_are_named() {
        let text = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\ntensor_parallel_degre = 8\n\
                    [training]\nglobl_batch_size = 512\nseq_len = 4096\n";
        let found = told(text, "torchtitan.train");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("did you mean parallelism.tensor_parallel_degree?"), "{found:?}");
        assert!(found[1].contains("did you mean training.global_batch_size?"), "{found:?}");
        let found = told(
            "",
            "torchtitan.train --parallelism.no_such_thing 4 --optimizer.early-step-in-backward --lora.rank 8 --job.config_file a.toml",
        );
        let named = |key: &str| found.iter().any(|message| message.starts_with(key));
        for key in ["parallelism.no_such_thing 4", "optimizer.early_step_in_backward true", "lora.rank 8"] {
            assert!(named(key), "{key}: {found:?}");
        }
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn what_changes_no_plan_is_not_told() {
        let text = "[metrics]\nlog_freq = 1\n[checkpoint]\nenable = true\ninterval = 500\n[training]\ndataset = \"c4\"\n\
                    [parallelism]\ncontext_parallel_rotate_method = \"allgather\"\n[experimental]\npipeline_parallel_degree = 1\n\
                    [optimizer]\nearly_step_in_backward = false\n";
        assert_eq!(told(text, "torchtitan.train --profiling.enable_profiling"), [""; 0]);
    }
}
