//! `shardplan plan`, and open fields in every command.

use serde_json::{Value, json};

use crate::support::Workshop;

#[test]
fn a_model_and_a_cluster_give_a_plan_file_that_fits() {
    let shop = Workshop::new();
    let path = shop.path("plan.json").display().to_string();
    let asked =
        ["plan", "--model", "qwen3-8b", "--gpu", "h100-sxm", "--nodes", "1", "--tp", "2", "--out", &path];
    let answer = shop.ask(&asked);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(
        answer.stderr.contains("fits:") && answer.stderr.contains("next: shardplan estimate"),
        "{answer:?}"
    );
    let file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(file["layout"]["tp"], json!(2));
    assert_eq!(file["software"]["framework"], json!("bridge 26.08"));
    let estimate = shop.ask(&["estimate", &path, "--json"]);
    let estimate: Value = serde_json::from_str(&estimate.stdout).unwrap();
    assert_eq!(estimate["memory"]["verdict"], json!("fits"));

    // The same without a file in between.
    let direct = shop.ask(&[
        "estimate", "--model", "qwen3-8b", "--gpu", "h100-sxm", "--nodes", "1", "--tp", "2", "--json",
    ]);
    let direct: Value = serde_json::from_str(&direct.stdout).unwrap();
    assert_eq!(direct["plan"]["layout"], estimate["plan"]["layout"]);
    assert_eq!(direct["memory"], estimate["memory"]);
    let chosen = direct["chosen"].as_array().unwrap();
    assert!(chosen.iter().any(|one| one["field"] == json!("layout.pp")), "{chosen:?}");
}

#[test]
fn a_deadline_that_is_missed_is_no_and_memory_that_is_not_known_is_not_said_to_fit() {
    let shop = Workshop::new();
    let late = |days: &str| {
        let named = ["plan", "--model", "qwen3-8b", "--gpu", "h100-sxm", "--nodes", "1", "--tp", "2"];
        let tokens =
            ["--set", "training.train_tokens=1e9", "--objective", "deadline", "--deadline-days", days];
        shop.ask(&[&named[..], &tokens].concat())
    };
    let answer = late("0.001");
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(
        answer.stderr.contains("too late: ") && answer.stderr.contains("deadline is 0.001"),
        "{answer:?}"
    );
    assert!(answer.stderr.contains("training.global_batch_size 1024: assumed"), "{answer:?}");
    let answer = late("1000");
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(!answer.stderr.contains("too late"), "{answer:?}");
    let cpu =
        shop.ask(&["plan", "--model", "qwen3-8b", "--gpu", "cpu", "--nodes", "1", "--gpus-per-node", "1"]);
    assert!(
        cpu.stderr.contains("not known whether it fits: ") && !cpu.stderr.contains("\nfits: "),
        "{cpu:?}"
    );
}

#[test]
fn nodes_of_a_gpu_that_is_named_are_as_it_has_them() {
    let shop = Workshop::new();
    let plan = |more: &[&str]| -> Value {
        let named = ["plan", "--model", "qwen3-8b", "--gpu", "gb200", "--nodes", "2"];
        let answer = shop.ask(&[&named, more].concat());
        serde_json::from_str(&answer.stdout).unwrap_or_else(|_| panic!("{answer:?}"))
    };
    assert_eq!(plan(&[])["cluster"]["gpus_per_node"], json!(4));
    assert_eq!(plan(&["--gpus-per-node", "2"])["cluster"]["gpus_per_node"], json!(2));
    let torchtitan = plan(&["--framework", "torchtitan 0.3"]);
    assert_eq!(torchtitan["software"]["framework"], json!("torchtitan 0.3"));
    assert_eq!(torchtitan["runtime"], json!("fsdp2"));
}

#[test]
fn a_config_json_and_a_job_file_are_models_too() {
    let shop = Workshop::new();
    let config = shop.path("config.json");
    std::fs::write(
        &config,
        json!({"model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8,
            "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000})
        .to_string(),
    )
    .unwrap();
    let job = shop.path("train.sh");
    std::fs::write(
        &job,
        "#!/bin/bash\nset -e\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024 \\\n --num-attention-heads 16 \
         --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 4 --global-batch-size 64 --tensor-model-parallel-size 8\n",
    )
    .unwrap();
    for model in [config.display().to_string(), job.display().to_string()] {
        let answer = shop.ask(&["plan", "--model", &model, "--gpu", "h100-sxm"]);
        assert_eq!(answer.code, Some(0), "{model}: {answer:?}");
        let file: Value = serde_json::from_str(&answer.stdout).unwrap();
        assert!(file["layout"]["tp"].is_number(), "{file}");
        // In the place of a plan file it is told how it is named.
        for command in ["plan", "estimate", "search"] {
            let answer = shop.ask(&[command, &model]);
            assert_eq!(answer.code, Some(2), "{command} {model}: {answer:?}");
            assert!(answer.stderr.contains(&format!("--model {model}")), "{command}: {answer:?}");
        }
    }
}

#[test]
fn objectives_take_the_words_that_plan_files_take() {
    let shop = Workshop::new();
    let of = |words: &[&str]| {
        let cluster =
            ["--model", "qwen3-8b", "--gpu", "h100-sxm", "--nodes", "2", "--global-batch-size", "16"];
        shop.ask(&[&["plan"], &cluster[..], &["--objective"], words].concat())
    };
    let fewest = of(&["fewest-gpus"]);
    assert_eq!((of(&["fewest"]).stdout, fewest.code), (fewest.stdout.clone(), Some(0)));
    let file: Value = serde_json::from_str(&fewest.stdout).unwrap();
    assert_eq!(file["cluster"]["nodes"], json!(1));
    let wrong = of(&["prettiest"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("fewest_gpus"), "{wrong:?}");
}

#[test]
fn why_not_is_answered_where_nothing_is_valid_or_fits() {
    let shop = Workshop::new();
    let of = |model: &str, why: &str| {
        shop.ask(&[
            "search",
            "--model",
            model,
            "--gpu",
            "h100-sxm",
            "--global-batch-size",
            "16",
            "--why",
            why,
        ])
    };
    for (model, why, code, words) in [
        ("qwen3-8b", "tp=8,pp=8", 0, "contradict each other"),
        ("qwen3-8b", "tp=8", 0, "longer than the best's"),
        ("llama-3-70b", "tp=8", 1, "nothing fits, whatever is chosen"),
        ("qwen3-8b", "dispatch=flex", 2, "`dispatcher`"),
    ] {
        let answer = of(model, why);
        assert_eq!(answer.code, Some(code), "{model} {why}: {answer:?}");
        let said = format!("{}{}", answer.stdout, answer.stderr);
        assert!(said.contains(words), "{model} {why}: {said}");
    }
}

#[test]
fn what_is_missing_or_contradicts_is_said() {
    let shop = Workshop::new();
    for (arguments, code, word) in [
        (&["plan"][..], 2, "--model"),
        (&["plan", "--model", "qwen3-8b"], 2, "--gpu"),
        (&["plan", "--model", "qwen4-8b", "--gpu", "h100-sxm"], 1, "qwen3-8b"),
        (
            &["plan", "--model", "qwen3-8b", "--gpu", "h100-sxm", "--tp", "8", "--pp", "8"],
            1,
            "layout.tp left open",
        ),
        (&["plan", "--model", "qwen3-8b", "--gpu", "h100-sxm", "--choose", "tpp"], 1, "`tpp`"),
        (&["plan", "--model", "qwen3-8b", "--gpu", "h100-sxm", "--set", "layout.tp"], 2, "field=value"),
        (
            &[
                "plan",
                "--model",
                "deepseek-v3",
                "--gpu",
                "h100-sxm",
                "--set",
                "training.global_batch_size=64",
            ],
            1,
            "would help",
        ),
    ] {
        let answer = shop.ask(arguments);
        assert_eq!(answer.code, Some(code), "{arguments:?}: {answer:?}");
        assert!(answer.stderr.contains(word), "{arguments:?}: {answer:?}");
    }
}

#[test]
fn a_folder_s_weights_are_held_against_its_config() {
    let shop = Workshop::new();
    let folder = shop.path("model");
    std::fs::create_dir(&folder).unwrap();
    let config = json!({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
        "vocab_size": 1000, "tie_word_embeddings": true, "torch_dtype": "bfloat16"});
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let file = folder.join("model.safetensors");
    let check = |content: &[u8], length: u64, expected: &str| {
        std::fs::write(&file, content).unwrap();
        // Of a file of any size the header alone is read.
        std::fs::File::options().write(true).open(&file).unwrap().set_len(length).unwrap();
        let model = folder.display().to_string();
        let answer = shop.ask(&[
            "plan",
            "--model",
            &model,
            "--gpu",
            "h100-sxm",
            "--nodes",
            "1",
            "--gpus-per-node",
            "1",
        ]);
        assert_eq!(answer.code, Some(0), "{answer:?}");
        assert!(answer.stderr.contains(expected), "{expected}: {answer:?}");
    };
    let header = json!({"model.layers.0.mlp.up_proj.weight": {"dtype": "BF16", "shape": [128, 64], "data_offsets": [0, 16384]}}).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    check(&bytes, 2 << 30, "weights differ: layer 0 has 8192 parameters in the files, and 41088 are planned");
    check(&bytes, bytes.len() as u64 + 8, "ends at byte 16384 of the data, and the file has 8");
    check(&u64::MAX.to_le_bytes(), 2 << 30, "it is likely of another kind");
}

#[test]
fn a_search_of_a_chosen_plan_says_where_that_plan_stands() {
    let shop = Workshop::new();
    let path = shop.path("plan.json").display().to_string();
    for (model, gpu, nodes) in [("llama-3-8b", "h100-sxm", "1"), ("gpt-oss-20b", "a100-40gb-sxm", "3")] {
        let chosen = shop.ask(&["plan", "--model", model, "--gpu", gpu, "--nodes", nodes, "--out", &path]);
        assert_eq!(chosen.code, Some(0), "{chosen:?}");
        let searched = shop.ask(&["search", &path]);
        let (_, own) = searched.stdout.split_once("the file's ").expect("where the plan stands");
        // Nothing that a search of layouts finds is better by more than the time model can tell.
        let slower = own.split_once(" % slower").map_or(0.0, |(before, _)| {
            before.rsplit(' ').next().and_then(|percent| percent.parse::<f64>().ok()).expect("per cent")
        });
        assert!(own.trim_start().starts_with("row ") && slower <= 2.0, "{own}");
        let told: serde_json::Value = shop.ask(&["search", &path, "--json"]).json();
        let place = format!("row {}", told["own"]["place"]);
        assert!(own.trim_start().starts_with(&place), "{place}: {own}");
        let told: serde_json::Value = shop.ask(&["search", &path, "--json", "--fix", "tp=8"]).json();
        let (own, first) = (&told["own"], &told["rows"][0]);
        assert!(own["place"].is_null() && own["verdict"] == "fits", "{own}");
        let behind = own["step_seconds"].as_f64().unwrap() / first["step_seconds"].as_f64().unwrap() - 1.0;
        assert!((own["behind"].as_f64().unwrap() - behind).abs() < 1e-9, "{own}");
    }
    // What says no layout has no place among layouts.
    let bare = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}});
    std::fs::write(&path, bare.to_string()).unwrap();
    let searched = shop.ask(&["search", &path]);
    assert!(!searched.stdout.contains("the file's "), "{searched:?}");
}
