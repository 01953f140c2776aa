//! Programs of Megatron-LM that train something else than one decoder, or nothing, whatever their options are.

use crate::import::WITH_ENCODER;

const VISION: &str = "vision models are not planned";
const SEVERAL: &str = "models that are made of several are not planned";

/// Words in the name of such a program, and what it trains.
const OTHER: &[(&str, &str)] = &[
    ("bert", WITH_ENCODER),
    ("biencoder", WITH_ENCODER),
    ("ict", WITH_ENCODER),
    ("realm", WITH_ENCODER),
    ("retro", WITH_ENCODER),
    ("t5", WITH_ENCODER),
    ("dino", VISION),
    ("inpaint", VISION),
    ("llava", VISION),
    ("multimodal", VISION),
    ("vision", VISION),
    ("vlm", VISION),
    ("mimo", SEVERAL),
];

const GENERATES: &str = "this is a run of inference, and training is planned";
const CONVERTS: &str = "this converts or tests a model, and training is planned";
const TASK: &str = "what is done with a trained model on a task is not planned: plan its training";

/// Words in the name of a program that trains nothing, unless it says that it trains.
const WITHOUT_TRAINING: &[(&str, &str)] = &[
    ("eval", GENERATES),
    ("evaluate", GENERATES),
    ("evaluation", GENERATES),
    ("generate", GENERATES),
    ("generation", GENERATES),
    ("inference", GENERATES),
    ("mmlu", GENERATES),
    ("serve", GENERATES),
    ("server", GENERATES),
    ("checkpoint", CONVERTS),
    ("convert", CONVERTS),
    ("converter", CONVERTS),
    ("export", CONVERTS),
    ("extract", CONVERTS),
    ("prune", CONVERTS),
    ("quantize", CONVERTS),
    ("validate", CONVERTS),
    ("verify", CONVERTS),
];
/// Words in a name that say that a program trains.
const TRAINS: [&str; 4] = ["finetune", "pretrain", "train", "training"];
/// Folders whose `main.py` and other programs do something with a trained model: `tasks/main.py`, `tasks/msdp/main.py`.
const TASKS: [&str; 2] = ["tasks", "msdp"];

/// Why nothing is planned of a program; none where nothing speaks against it. `pretrain_bert.py` says by its own name what it
/// trains, `multimodal/train.py` by the name of its folder.
pub(super) fn refused(program: &str) -> Option<&'static str> {
    // A module has points where a path has slashes.
    let path = program.strip_suffix(".py").map_or_else(|| program.replace('.', "/"), str::to_owned);
    let mut names = path.rsplit('/');
    let name = names.next()?.to_ascii_lowercase();
    let of = |name: &str| {
        name.split(['_', '-'])
            .find_map(|word| OTHER.iter().find(|(other, _)| *other == word))
            .map(|other| other.1)
    };
    let folder = names.next().unwrap_or_default().to_ascii_lowercase();
    let name = name.strip_suffix(".py").unwrap_or(&name);
    let words = || name.split(['_', '-']);
    // One that names what it trains may lie in any folder.
    let is_named = name.starts_with("pretrain_");
    let by_folder = || of(&folder).filter(|_| !is_named);
    let idle = || {
        if words().any(|word| TRAINS.contains(&word)) {
            return None;
        }
        let word = words().find_map(|word| WITHOUT_TRAINING.iter().find(|(other, _)| *other == word));
        word.map(|word| word.1).or_else(|| TASKS.contains(&folder.as_str()).then_some(TASK))
    };
    of(name).or_else(by_folder).or_else(idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_say_what_they_train() {
        for program in [
            "pretrain_bert.py",
            "/opt/megatron-lm/examples/t5/pretrain_t5.py",
            "pretrain_ict.py",
            "pretrain_vision_classify.py",
            "pretrain_vision_dino",
            "pretrain_vlm.py",
            "${SOURCE}/examples/multimodal/train.py",
            "examples.mimo.train",
            "pretrain_retro.py",
            "tools/bert_embedding/run.py",
            // What is no training.
            "tasks/msdp/main.py",
            "${SOURCE}/tasks/main.py",
            "examples/detxoify_lm/generate_samples_gpt.py",
            "../../tools/run_hybrid_text_generation_server.py",
            "run_mamba_text_generation_server_completions.py",
            "tools/text_generation_cli.py",
            "examples/inference/advanced/gpt_dynamic_inference.py",
            "examples.inference.offline_inference",
            "examples/post_training/modelopt/quantize.py",
            "tools/checkpoint/convert.py",
        ] {
            assert!(refused(program).is_some(), "{program}");
        }
        for program in [
            "pretrain_gpt.py",
            "vision/pretrain_gpt.py",
            "pretrain_hybrid",
            "train.py",
            "rl/train_rl.py",
            "examples/detxoify_lm/finetune_gpt.py",
            "train_and_eval.py",
            "inference/train.py",
            "tasks/pretrain_gpt.py",
            "",
        ] {
            assert_eq!(refused(program), None, "{program}");
        }
    }
}
