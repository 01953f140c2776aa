//! A preset by the name that a model has on Hugging Face.

use super::presets;

/// Models with the architecture of another, which stands in the catalogue.
const SAME: [(&str, &str); 4] = [
    ("deepseek-r1", "deepseek-v3"),
    ("deepseek-r1-zero", "deepseek-v3"),
    ("deepseek-r1-0528", "deepseek-v3"),
    ("deepseek-v3.1", "deepseek-v3"),
];

/// Id of the preset of a model such as `meta-llama/Llama-3.1-8B-Instruct`: the same architecture, whatever it was
/// trained for; none for one that is not in the catalogue.
pub fn preset_of_hub(name: &str) -> Option<&'static str> {
    let wanted = plain(name);
    presets()
        .iter()
        .find(|preset| {
            let of_hub =
                preset.source.rsplit_once(" of ").and_then(|(_, rest)| rest.split_whitespace().next());
            preset.id == wanted || of_hub.is_some_and(|name| plain(name) == wanted)
        })
        .map(|preset| preset.id.as_str())
}

/// A model's name without its owner and without what does not change the architecture.
fn plain(name: &str) -> String {
    let name = name.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let mut name = name.strip_prefix("meta-").unwrap_or(&name);
    let suffixes = [
        "-instruct",
        "-base",
        "-chat",
        "-hf",
        "-bf16",
        "-fp8",
        "-nvfp4",
        "-pt",
        "-it",
        "-v0.1",
        "-v0.2",
        "-v0.3",
        "-0324",
        "-2507",
    ];
    while let Some(shorter) = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)) {
        name = shorter;
    }
    let same = SAME.iter().find(|(other, _)| *other == name);
    same.map_or(name, |(_, preset)| preset).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_hub() {
        let check = |name: &str, id: Option<&str>| assert_eq!(preset_of_hub(name), id, "{name}");
        check("meta-llama/Llama-3.1-8B-Instruct", Some("llama-3-8b"));
        check("meta-llama/Meta-Llama-3-8B", Some("llama-3-8b"));
        check("meta-llama/Llama-3.2-1B", Some("llama-3.2-1b"));
        check("Qwen/Qwen3-30B-A3B", Some("qwen3-30b-a3b"));
        check("deepseek-ai/DeepSeek-V3-Base", Some("deepseek-v3"));
        check("openai/gpt-oss-20b", Some("gpt-oss-20b"));
        check("deepseek-ai/DeepSeek-R1", Some("deepseek-v3"));
        check("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", None);
        check("./checkpoints/mine", None);
        check("", None);
    }
}
