//! Programs of Megatron-LM that train something else than one decoder, whatever their options are.

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
    // One that names what it trains may lie in any folder.
    let is_named = name.starts_with("pretrain_");
    of(&name).or_else(|| of(&names.next().filter(|_| !is_named)?.to_ascii_lowercase()))
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
        ] {
            assert!(refused(program).is_some(), "{program}");
        }
        for program in
            ["pretrain_gpt.py", "vision/pretrain_gpt.py", "pretrain_hybrid", "train.py", "rl/train_rl.py", ""]
        {
            assert_eq!(refused(program), None, "{program}");
        }
    }
}
