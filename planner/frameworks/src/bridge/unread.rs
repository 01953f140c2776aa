//! Overrides of Megatron Bridge that nothing reads.

use super::rows::table;
use crate::import::unread::{Keys, Unread};
use crate::import::write::Notes;

/// Keys that are read apart from the table's rows, or by a row beside its own.
const READ: &[&str] = &[
    "mixed_precision",
    "model.cross_entropy_fusion_impl",
    "model.fine_grained_activation_offloading",
    "model.recompute_granularity",
    "model.wgrad_deferral_limit",
    "peft",
];
/// Keys of logs, paths, data, checkpoints, ends and kernels, which say nothing that a plan has.
const SILENT: &[&str] = &[
    "checkpoint",
    "dataset",
    "ddp.average_in_collective",
    "ddp.check_for_nan_in_grad",
    "dist.distributed_timeout_minutes",
    "dist.distributed_timeout_seconds_after_init",
    "env_vars",
    "ft",
    "inprocess_restart",
    "logger",
    "model.bf16",
    "model.bos_token_id",
    "model.calculate_per_token_loss",
    "model.eos_token_id",
    "model.make_vocab_size_divisible_by",
    "model.params_dtype",
    "model.pipeline_dtype",
    "model.qkv_format",
    "model.variable_seq_lengths",
    "nvrx_straggler",
    "optimizer.bf16",
    "profiling",
    "rerun_state_machine",
    "rng.te_rng_tracker",
    "scheduler.lr_wsd_decay_iters",
    "straggler",
    "tensor_inspect",
    "tokenizer",
    "train.eval_interval",
    "train.eval_iters",
    "train.exit_duration_in_mins",
    "train.exit_interval",
    "train.exit_signal",
    "train.exit_signal_handler",
    "train.exit_signal_handler_for_dataloader",
    "train.manual_gc",
    "train.manual_gc_eval",
    "train.manual_gc_interval",
    "validation",
];
const OF_MODEL: &str = "the plan's length of sequences is model.seq_length, which is not set to this";

/// Says which overrides of a command line its plan has not. `said` knows the value of one.
pub(super) fn tell(words: &[String], said: &dyn Fn(&str) -> Option<String>, notes: &mut Notes) {
    let options = table().rows().map(|row| row.option).filter(|option| !option.is_empty());
    let keys =
        Keys { read: options.chain(READ.iter().copied()).collect(), silent: SILENT, told: &[], usual: &[] };
    let is_key = |key: &str| {
        key.starts_with(|first: char| first.is_ascii_lowercase())
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte))
    };
    let mut unread: Vec<Unread> = Vec::new();
    for word in words {
        let Some((key, _)) = word.trim_start_matches('+').split_once('=') else { continue };
        // The last of several counts.
        let is_new = unread.iter().all(|(known, _)| known != key);
        if is_key(key)
            && is_new
            && let Some(value) = said(key).filter(|value| keys.is_unread(key, value))
        {
            unread.push((key.to_owned(), value));
        }
    }
    keys.tell(&unread, notes);
    let (of_data, of_model) = (said("dataset.seq_length"), said("model.seq_length"));
    if let Some(length) = of_data.filter(|length| of_model.as_ref() != Some(length)) {
        notes.warn("training.seq_len", &format!("dataset.seq_length {length}"), OF_MODEL);
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::import_bridge_job;
    use crate::import::testing::{job, words};

    #[test]
    fn overrides_that_nothing_reads_are_named() {
        let told = |overrides: &str| -> Vec<String> {
            let words = words(&format!(
                "run_recipe.py --recipe deepseek_v3_pretrain_1024gpu_h100_bf16_config {overrides}"
            ));
            let found = import_bridge_job(&words, &job(128)).findings;
            found.into_iter().map(|finding| finding.message).collect()
        };
        let found = told("model.tensor_model_parallel_sze=4");
        assert!(found[0].contains("did you mean model.tensor_model_parallel_size?"), "{found:?}");
        assert!(
            told("++model.num_layers=4 model.num_layers=8")[0].starts_with("model.num_layers 8: no plan")
        );
        assert!(told("dataset.seq_length=99")[0].contains("model.seq_length"));
        let silent =
            "dataset.seq_length=99 model.seq_length=99 checkpoint.save=/c logger.log_interval=1 model.x=null";
        assert_eq!(told(silent), [""; 0]);
    }
}
