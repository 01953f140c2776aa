use super::*;
use crate::plan::Plan;

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
