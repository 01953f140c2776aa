use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::rows::{NOT_COUNTED, PARTS, REFUSED, is_hybrid};
use super::*;
use crate::import::{Arguments, Imported, Job};
use crate::{Effect, Kind, Row};
use planner::plan::Plan;

/// What a command line of a model of four layers and these options becomes.
fn import(options: &str) -> Imported {
    let words = "pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 --global-batch-size 32 --bf16";
    let environment = [("CUBLAS_WORKSPACE_CONFIG".to_owned(), ":4096:8".to_owned())];
    let job = Job { gpu: "h100-sxm", nodes: 1, gpus_per_node: 8, environment: &environment };
    import_megatron_job(Arguments::of_words(words.split(' ').chain(options.split_whitespace())), &job)
}

#[track_caller]
fn check(options: &str, path: &str, expected: Value) {
    let imported = import(options);
    let file = imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings));
    assert_eq!(imported.unknown, Vec::<String>::new());
    let resolved = Plan::resolve(&file);
    assert!(resolved.plan.is_some(), "{:?}", resolved.findings);
    let value = serde_json::to_value(&file).unwrap();
    assert_eq!(value.pointer(path), Some(&expected), "{options}: {path}");
}

#[test]
fn options_become_fields() {
    check("", "/software/cublas_workspace_bytes", json!(32 << 20));
    check("", "/model/architecture/vocab_size", json!(50_257));
    check("", "/model/architecture/ffn_hidden_size", json!(2048));
    check("--swiglu", "/model/architecture/ffn_hidden_size", json!(1344));
    check("--tensor-model-parallel-size=2 --sequence-parallel", "/layout/sp", json!(true));
    check("--sequence-parallel", "/layout/sp", json!(false));
    check(
        "--num-experts 8 --tensor-model-parallel-size 2 --sequence-parallel --disable-bias-linear",
        "/layout/etp",
        json!(2),
    );
    check("--num-experts 8", "/training/moe/dispatcher", json!("allgather"));
    check("--fp16", "/training/dtype", json!("bf16"));
    check("--fp8-format hybrid --fp8-recipe tensorwise", "/training/dtype", json!("fp8_current"));
    check("--attention-dropout 0", "/training/attention_dropout", json!(0.0));
    check(
        "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1",
        "/layout/vpp",
        json!(2),
    );
    check("--recompute-activations", "/training/recompute/modules", json!(["core_attn"]));
    check("--quick-geglu", "/model/architecture/activation", json!("quick_gelu"));
    let gpt_oss = "--quick-geglu --glu-linear-offset 1.0 --activation-func-clamp-value 7";
    check(gpt_oss, "/model/architecture/activation", json!("gpt_oss"));
    check(gpt_oss, "/model/architecture/activation_limit", json!(7.0));
    // Of a gate that is another one they are parts that are named.
    check(
        "--swiglu --activation-func-clamp-value 7",
        "/model/architecture/parts/activation-func-clamp-value",
        json!("7"),
    );
    for every in ["2", "([0,1])*2"] {
        let options = format!(
            "--position-embedding-type rope --no-rope-freq {every} --window-size (63,0) --window-attn-skip-freq 4"
        );
        check(&options, "/model/architecture/attention/scores", json!({"window": 64}));
        let other = "/model/architecture/other_mixers/0/attention/scores";
        check(&options, other, json!({"window": 64, "positions": "none"}));
        check(&options, "/model/architecture/other_mixers/1/attention/scores", json!({"positions": "none"}));
        check(&options, "/model/architecture/pattern/2/mixer", json!(0));
    }
}

/// A small model of a plan, with what a test makes of it.
fn model(preset: &str, change: impl FnOnce(&mut Value)) -> Plan {
    let preset = planner::model::presets().iter().find(|known| known.id == preset).unwrap();
    let mut config = Value::Object(preset.hf_config.clone().unwrap());
    config["rope_scaling"] = Value::Null;
    change(&mut config);
    let file =
        json!({"version": 1, "model": {"hf_config": config}, "cluster": {"gpu": "h100-sxm", "nodes": 1}});
    let resolved = Plan::resolve(&planner::parse_plan(&file.to_string()).unwrap());
    resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
}

/// The options of positions that a plan is written with, and why its scaling is not.
fn positions(plan: &Plan) -> (String, Option<&'static str>) {
    let written = table().write(plan);
    let of = |name: &str| {
        ["rope", "rotary", "yarn", "mscale", "position-embedding"].iter().any(|word| name.contains(word))
            && !["rotary-base", "rotary-percent", "max-position-embeddings"].contains(&name)
    };
    let words = written.options.iter().filter(|(row, _)| of(row.option));
    let words: Vec<String> =
        words.map(|(row, word)| format!("--{} {word}", row.option).trim_end().to_owned()).collect();
    let why = written.missing.iter().find(|missing| missing.field == "model.rope_scaling");
    (words.join(" "), why.map(|missing| missing.what))
}

#[test]
fn scaled_angles_are_written_as_they_are_read() {
    let check = |preset: &str, scaling: Value, expected: &str| {
        let plan = model(preset, |config| config["rope_scaling"] = scaling);
        let (words, why) = positions(&plan);
        assert_eq!((words.as_str(), why), (expected, None));
        let latent = if preset.starts_with("deepseek") { " --multi-latent-attention" } else { "" };
        let imported = import(&format!("{words}{latent}"));
        let file = imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings));
        let read = file.model.architecture.unwrap();
        assert_eq!(read.rope_scaling, plan.model.rope_scaling, "{words}");
        assert!(read.parts.is_empty(), "{:?}", read.parts);
    };
    check("llama-3-8b", Value::Null, "--position-embedding-type rope");
    check(
        "llama-3-8b",
        json!({"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
        "--position-embedding-type rope --use-rope-scaling --rope-scaling-factor 32",
    );
    check(
        "llama-3-8b",
        json!({"type": "linear", "factor": 4.0}),
        "--position-embedding-type rope --rotary-seq-len-interpolation-factor 4",
    );
    check(
        "qwen3-8b",
        json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "beta_fast": 32, "beta_slow": 1, "truncate": false}),
        "--position-embedding-type yarn --rotary-scaling-factor 4 --yarn-original-max-position-embeddings 32768 --yarn-beta-fast 32 --yarn-beta-slow 1 --mscale 1 --mscale-all-dim 0 --no-yarn-correction-range-round-to-int",
    );
    // Latent attention scales its angles and scores unless it is told not to.
    check(
        "deepseek-v2-lite",
        Value::Null,
        "--position-embedding-type rope --rope-type rope --no-rope-fusion --rotary-scaling-factor 1",
    );
    check(
        "deepseek-v2-lite",
        json!({"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707}),
        "--position-embedding-type rope --rope-type yarn --rotary-scaling-factor 40 --mscale 0.707 --mscale-all-dim 0.707",
    );
}

#[test]
fn scaled_angles_of_a_job_are_written_as_it_has_them() {
    let latent = "--multi-latent-attention --position-embedding-type rope";
    let yarn = "--position-embedding-type yarn --rotary-scaling-factor 4 --yarn-original-max-position-embeddings 2048 --yarn-beta-fast 16 --yarn-beta-slow 2";
    let check = |options: &str, expected: &str| {
        let imported = import(options);
        let file = imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings));
        let (words, why) = positions(&Plan::resolve(&file).plan.unwrap());
        assert_eq!((words.as_str(), why), (expected, None), "{options}");
    };
    // What its defaults are is said.
    let scaled = "--position-embedding-type rope --rope-type yarn --rotary-scaling-factor";
    check(latent, &format!("{scaled} 40 --mscale 1 --mscale-all-dim 0"));
    for numbers in [
        "--mscale 0.5 --mscale-all-dim 0",
        "--mscale 0.5 --mscale-all-dim 0.25",
        "--mscale 0 --mscale-all-dim 1",
    ] {
        check(&format!("{latent} --rotary-scaling-factor 8 {numbers}"), &format!("{scaled} 8 {numbers}"));
        check(&format!("{yarn} {numbers}"), &format!("{yarn} {numbers}"));
    }
    check(
        &format!("{latent} --rope-type rope"),
        "--position-embedding-type rope --rope-type rope --no-rope-fusion --rotary-scaling-factor 1",
    );
}

#[test]
fn scaled_angles_without_options_are_said() {
    let check = |preset: &str, scaling: Value, expected: &str| {
        let (_, why) = positions(&model(preset, |config| config["rope_scaling"] = scaling));
        assert!(why.is_some_and(|why| why.contains(expected)), "{why:?}");
    };
    check(
        "llama-3-8b",
        json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 4096}),
        "starts from 8,192 tokens",
    );
    check("llama-3-8b", json!({"type": "linear", "factor": 2.5}), "whole number");
    check("llama-3-8b", json!({"type": "dynamic", "factor": 2.0}), "by YaRN, by Llama 3's rule");
    check(
        "qwen3-8b",
        json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "attention_factor": 1.5}),
        "follows from the rule",
    );
    check(
        "deepseek-v2-lite",
        json!({"type": "yarn", "factor": 32, "original_max_position_embeddings": 4096, "beta_fast": 1, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1}),
        "bounds of 32 and 1",
    );
    check(
        "deepseek-v2-lite",
        json!({"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 0, "mscale_all_dim": 0.5}),
        "follows from the rule",
    );
}

#[test]
fn what_is_not_known_is_named() {
    let imported = import("--frobnicate 3 --log-interval 1");
    assert_eq!(imported.unknown, ["frobnicate"]);
    let imported = import("--export-kd-teacher-load x");
    assert!(imported.file.is_none());
    assert!(imported.findings[0].message.contains("teacher"), "{:?}", imported.findings);
    let imported = import("--num-layers many");
    assert!(imported.findings[0].message.contains("`many`"), "{:?}", imported.findings);
    let imported = import("--fp32-residual-connection");
    assert!(imported.findings[0].message.contains("not modelled"), "{:?}", imported.findings);
}

#[test]
fn a_hybrid_pattern_is_layers_stages_and_modules() {
    let options = "--hybrid-layer-pattern M-M*|ME-*/*E --pipeline-model-parallel-size 2 --num-experts 4 --mtp-num-layers 1 --disable-bias-linear";
    check(options, "/layout/pipeline_layout", json!("Et*4|t*4mL"));
    check(options, "/model/architecture/num_layers", json!(8));
}

#[test]
fn options_that_no_usual_job_has_become_fields() {
    let delta = "--experimental-attention-variant gated_delta_net --linear-attention-freq 4 --linear-num-value-heads 8 --linear-num-key-heads 4";
    check(delta, "/model/architecture/other_mixers/0/delta_net/value_heads", json!(8));
    check(
        &format!("{delta} --disable-bias-linear --num-experts 8"),
        "/model/architecture/pattern",
        json!([{"count": 3, "mixer": 1, "mlp": "moe"}, {"count": 1, "mixer": 0, "mlp": "moe"}]),
    );
    check(
        &delta.replace("4 --linear-num-v", "[1]*3+[0]*1 --linear-num-v"),
        "/model/architecture/num_layers",
        json!(4),
    );
    check("--deterministic-mode", "/training/deterministic", json!(true));
    check("--no-masked-softmax-fusion", "/training/fused_softmax", json!(false));
    check(
        "--pipeline-model-parallel-size 2 --defer-embedding-wgrad-compute --wgrad-deferral-limit 2",
        "/training/deferred_head_gradients",
        json!(2),
    );
    check(
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --tensor-model-parallel-size 2 --distribute-saved-activations",
        "/training/recompute/distribute_saved_activations",
        json!(true),
    );
    check(
        "--moe-layer-recompute --num-experts 8 --disable-bias-linear",
        "/training/recompute/modules",
        json!(["moe"]),
    );
    let experts = "--swiglu --num-experts 8 --disable-bias-linear";
    check(experts, "/training/moe/fused_activation", json!(true));
    for option in ["--no-bias-swiglu-fusion", "--use-te-activation-func", "--moe-mlp-glu-interleave-size 32"]
    {
        check(&format!("{experts} {option}"), "/training/moe/fused_activation", json!(false));
    }
    check("--tokenizer-type Llama2Tokenizer", "/model/architecture/vocab_size", json!(32_000));
    check(
        "--tokenizer-type GPTSentencePieceTokenizer --tokenizer-model data/nemotron_2_256k.model",
        "/model/architecture/vocab_size",
        json!(256_000),
    );
    check("--no-pad-vocab-size", "/layout/vocab_divisible_by", json!(1));
    let fsdp = "--use-megatron-fsdp --suggested-communication-unit-size 40000000 --keep-fp8-transpose-cache --use-nccl-ub";
    check(fsdp, "/layout/fsdp/communication_unit", json!(40_000_000));
    check(fsdp, "/layout/fsdp/keep_fp8_transpose", json!(true));
    check(fsdp, "/layout/fsdp/double_buffer", json!(true));
}

/// Every option that its parser was recorded to take has an effect, and is read so.
#[test]
fn every_option_is_read_as_its_row_says() {
    let takes: BTreeMap<String, String> =
        serde_json::from_str(include_str!("../../tests/options/megatron-lm-0.19.json")).unwrap();
    let mut seen = BTreeSet::new();
    for name in takes.keys() {
        let effect = effect_of(name).unwrap_or_else(|| panic!("{name} is not known"));
        let imported = import(&format!("--{name}"));
        let said = |what: &str| imported.findings.iter().any(|finding| finding.message.contains(what));
        assert_eq!(said("is not modelled"), matches!(effect, Effect::NotCounted(_)), "{name}");
        assert_eq!(said(&format!("--{name}: ")), matches!(effect, Effect::Refused(_)), "{name}");
        assert_eq!(imported.unknown, Vec::<String>::new(), "{name}");
        assert!(effect != Effect::OfField && !effect.why().is_empty(), "{name}: {effect:?}");
        seen.insert(effect.name());
    }
    // Which option has which is in docs/megatron-options.md, which a test holds.
    assert_eq!(seen, BTreeSet::from(["counted", "no bytes", "not counted", "refused"]));
}

/// What is newer than the release is in no row that is written, and only there said to be so.
#[test]
fn lengths_in_samples_are_steps_of_the_batch() {
    check("--train-samples 1000000", "/run/steps", json!(31_250));
    check("--train-samples 100000 --lr-decay-samples 64000", "/run/lr_decay_steps", json!(2000));
    check("--train-samples 100000 --lr-warmup-samples 3201", "/run/warmup_steps", json!(100));
    // Of the falling rate's steps, which are the run's where nothing else is said.
    check("--train-iters 500 --lr-warmup-fraction 0.1", "/run/warmup_steps", json!(50));
    check("--train-iters 500 --lr-decay-iters 200 --lr-warmup-fraction 0.1", "/run/warmup_steps", json!(20));
    check(
        "--train-samples 32000 --lr-decay-samples 6400 --lr-warmup-fraction .05",
        "/run/warmup_steps",
        json!(10),
    );
    let file = serde_json::to_value(import("--train-samples 8").file.unwrap()).unwrap();
    assert_eq!(file.pointer("/run/steps"), Some(&Value::Null), "{file}");
    let ramped = import("--train-samples 1000000 --rampup-batch-size 16 16 5859375");
    assert!(
        ramped.findings.iter().any(|finding| finding.message.contains("rampup-batch-size")),
        "{:?}",
        ramped.findings
    );
}

#[test]
fn numbers_have_underscores_as_pythons_do() {
    check("--train-samples 1_000_000", "/run/steps", json!(31_250));
    check("--train-samples 100_000 --lr-decay-samples 64_000", "/run/lr_decay_steps", json!(2000));
    check("--train-iters 1_000 --lr-warmup-samples 3_200", "/run/warmup_steps", json!(100));
    check("--ffn-hidden-size 1_024", "/model/architecture/ffn_hidden_size", json!(1024));
    check("--rotary-base 500_000", "/model/architecture/rope_theta", json!(500_000.0));
}

#[test]
fn numbers_of_the_run_that_are_none_are_said() {
    for option in ["train-samples", "lr-decay-samples", "lr-warmup-fraction", "train-iters", "lr", "seed"] {
        let imported = import(&format!("--{option} $MANY"));
        assert!(imported.file.is_some(), "{:?}", imported.findings);
        let said = imported.findings.iter().filter(|finding| finding.message.contains("`$MANY`")).count();
        assert_eq!(said, 1, "{option}: {:?}", imported.findings);
    }
}

#[test]
fn a_schedule_of_batches_ends_with_its_last() {
    for schedule in ["0:768 10B:1_536", "10B:1536,0:768", "0:768 2.5T:1.536K"] {
        check(&format!("--step-batch-size-schedule {schedule}"), "/training/global_batch_size", json!(1536));
    }
    check("--step-batch-size-schedule 0:16 1M:64 --train-samples 6400", "/run/steps", json!(100));
    let said = |options: &str, expected: &str| {
        let findings = import(options).findings;
        assert!(findings.iter().any(|finding| finding.message.contains(expected)), "{findings:?}");
    };
    said("--step-batch-size-schedule 0:16", "the schedule's last batch");
    said("--step-batch-size-schedule 16", "not THRESHOLD:BATCH");
}

#[test]
fn losses_of_experts_that_no_plan_has_are_said() {
    let said = |word: &str| {
        let options =
            format!("--disable-bias-linear --num-experts 8 --moe-router-load-balancing-type {word}");
        import(&options).findings.iter().any(|finding| finding.message.contains("planned as"))
    };
    assert!(said("sinkhorn") && said("seq_aux_loss global_aux_loss"));
    assert!(!said("none") && !said("global_aux_loss"));
}

#[test]
fn a_tokenizer_of_numbers_has_the_words_that_it_is_told() {
    let words = "/model/architecture/vocab_size";
    check("--tokenizer-type NullTokenizer --vocab-size 131_072", words, json!(131_072));
    check("--tokenizer-type NullTokenizer --vocab-size 1000 --null-tokenizer-eod-id 999", words, json!(1000));
    check("--tokenizer-type NullMultimodalTokenizer --vocab-size 1000", words, json!(1001));
}

#[test]
fn heads_that_nothing_rotates_may_be_odd() {
    for positions in ["learned_absolute", "alibi", "none"] {
        let options = format!("--kv-channels 65 --position-embedding-type {positions}");
        check(&options, "/model/architecture/attention/head_dim", json!(65));
    }
    let rotated = import("--kv-channels 65 --position-embedding-type rope").file.unwrap();
    assert!(Plan::resolve(&rotated).plan.is_none());
}

#[test]
fn scales_of_losses_are_those_of_fp16() {
    let scale = |options: &str| {
        let file = serde_json::to_value(import(options).file.unwrap()).unwrap();
        file.pointer("/training/loss_scale").cloned()
    };
    assert_eq!(scale(""), None);
    assert_eq!(scale("--loss-scale-window 500"), None);
    assert_eq!(scale("--fp16 --loss-scale-window 500").unwrap()["window"], json!(500));
}

/// A row that is written is an option that the parser takes: one that it has not would end the job at its start.
#[test]
fn what_is_written_is_an_option_of_the_parser() {
    let takes: BTreeMap<String, String> =
        serde_json::from_str(include_str!("../../tests/options/megatron-lm-0.19.json")).unwrap();
    // Variables of the environment stand in the same table.
    let is_option = |row: &Row| row.option.starts_with(|first: char| first.is_ascii_lowercase());
    let is_written =
        |row: &&Row| is_option(row) && !matches!(row.kind, Kind::Read(_) | Kind::Asked(_) | Kind::Says(_));
    for row in table().rows().filter(is_written) {
        assert!(takes.contains_key(row.option), "{} is no option", row.option);
    }
}

#[test]
fn versions_are_those_of_the_parser() {
    let takes: BTreeMap<String, String> =
        serde_json::from_str(include_str!("../../tests/options/megatron-lm-0.19.json")).unwrap();
    let rows = table().rows().chain(REFUSED).chain(NOT_COUNTED).chain(PARTS);
    for row in rows.filter(|row| !row.option.is_empty()) {
        let newer = takes.get(row.option).is_some_and(|takes| takes == "not there yet");
        assert_eq!(newer, !row.versions.is_empty(), "{}", row.option);
    }
}

#[test]
fn a_command_line_of_megatron_keeps_what_it_computes_beside() {
    let parts = |options: &str| {
        let line = format!(
            "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 256 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 1 --swiglu --position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 {options}"
        );
        let job = Job { gpu: "h100-sxm", nodes: 1, gpus_per_node: 1, environment: &[] };
        let arguments = Arguments::of_words(line.split_whitespace());
        let imported = import_megatron_job(arguments, &job);
        let file = imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings));
        let plan = Plan::resolve(&file).plan.unwrap();
        let limits = planner::rules::executor_limits(&plan).into_iter().map(|finding| finding.message);
        limits.collect::<Vec<_>>().join("; ")
    };
    assert_eq!(parts("--moe-z-loss-coeff 0"), "");
    assert_eq!(parts("--num-experts 4 --moe-z-loss-coeff 1e-3"), "");
    for (options, name) in [
        ("--softmax-scale 0.5", "does not run `softmax-scale`"),
        ("--num-experts 4 --moe-input-jitter-eps 0.01", "does not run `moe-input-jitter-eps`"),
    ] {
        assert!(parts(options).contains(name), "{options}: {}", parts(options));
    }
    for read in
        ["--window-size (31,0)", "--window-size (31,0) --window-attn-skip-freq 2", "--use-rope-scaling"]
    {
        assert_eq!(parts(read), "");
    }
}

/// Layers, stages and prediction modules of a hybrid are what its job reads.
#[test]
fn a_hybrid_is_written_as_it_is_read() {
    let (mut checked, mut with_modules) = (0, 0);
    for preset in ["nemotron-h-8b", "nemotron-3-nano", "nemotron-3-super"] {
        for layout in [
            json!({}),
            json!({"pp": 2}),
            json!({"pp": 4}),
            json!({"pp": 2, "vpp": 2}),
            json!({"tp": 2, "pp": 4, "vpp": 2}),
        ] {
            let modules = u64::from(preset == "nemotron-3-super");
            let file = json!({"version": 1, "model": {"preset": preset}, "layout": layout,
                              "cluster": {"gpu": "b200", "nodes": 4},
                              "training": {"global_batch_size": 128, "mtp_layers": modules}});
            let Some(plan) = Plan::resolve(&planner::parse_plan(&file.to_string()).unwrap()).plan else {
                continue;
            };
            let written = table().write(&plan);
            assert!(
                written.missing.iter().all(|missing| missing.field != "model.pattern"),
                "{preset} {layout}"
            );
            let mut words = vec!["pretrain_hybrid.py".to_owned()];
            for (row, word) in &written.options {
                words.push(format!("--{}", row.option));
                words.extend(word.split(' ').filter(|word| !word.is_empty()).map(str::to_owned));
            }
            let job = Job { gpu: "b200", nodes: 4, gpus_per_node: 8, environment: &[] };
            let imported = import_megatron_job(Arguments::of_words(words.iter().map(String::as_str)), &job);
            let read = Plan::resolve(&imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings)));
            let read = read.plan.unwrap_or_else(|| panic!("{preset} {layout}: {:?}", read.findings));
            let kinds = |plan: &Plan| -> Vec<_> {
                (0..plan.model.num_layers)
                    .map(|layer| plan.model.kind_in_words(plan.model.layer_kind(layer)))
                    .collect()
            };
            assert_eq!(kinds(&read), kinds(&plan), "{preset} {layout}");
            with_modules += u32::from(plan.model.mtp_layers > 0);
            if plan.model.mtp_layers > 0 {
                let modules = |plan: &Plan| -> Vec<_> {
                    let kinds = plan.model.mtp_kinds().into_iter();
                    kinds.map(|kind| plan.model.kind_in_words(kind)).collect()
                };
                assert_eq!(modules(&read), modules(&plan), "{preset} {layout}");
            }
            let stages = |plan: &Plan| -> Vec<_> {
                let chunks = |stage| {
                    planner::layout::chunks_of_stage(&plan.layout, plan.model.num_layers, stage).unwrap()
                };
                (0..plan.layout.pp).flat_map(chunks).map(|chunk| chunk.layers).collect()
            };
            assert_eq!(stages(&read), stages(&plan), "{preset} {layout}");
            assert_eq!(read.model.mtp_layers, plan.model.mtp_layers, "{preset} {layout}");
            let bytes = |plan: &Plan| {
                planner::memory::answer(plan).rank_classes.iter().map(|class| class.weights_bytes).max()
            };
            assert_eq!(bytes(&read), bytes(&plan), "{preset} {layout}");
            checked += 1;
        }
    }
    assert!(checked > 8 && with_modules > 1, "{checked}, {with_modules}");
    // Delta nets in the place of attention are the other entry point's.
    let plan = model("qwen3-next-80b-a3b", |_| ());
    assert!(!is_hybrid(&plan));
    let written = table().write(&plan);
    assert!(written.missing.iter().all(|missing| missing.field != "model.pattern"), "{:?}", written.missing);
    let of = |option: &str| {
        written.options.iter().find(|(row, _)| row.option == option).map(|(_, word)| word.as_str())
    };
    assert_eq!(of("experimental-attention-variant"), Some("gated_delta_net"));
    let frequency = of("linear-attention-freq").expect("layers");
    assert!(frequency.starts_with("([1]*3+[0]*1+[1]*3+"), "{frequency}");
    assert_eq!((of("linear-num-value-heads"), of("linear-num-key-heads")), (Some("32"), Some("16")));
}
