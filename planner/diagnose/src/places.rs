//! Where things happen, as texts of Slurm, of drivers and of ranks name it.

use super::origin;

/// Node and GPU that a text names.
pub(super) fn in_text(text: &str) -> (Option<String>, Option<String>) {
    let word = |before: &str| {
        let (_, rest) = text.split_once(before)?;
        let name: String = rest
            .chars()
            .take_while(|letter| letter.is_ascii_alphanumeric() || "-._".contains(*letter))
            .take(80)
            .collect();
        let name = name.trim_end_matches('.').to_owned();
        name.bytes().any(|byte| byte.is_ascii_alphanumeric()).then_some(name)
    };
    let is_step = text.contains("CANCELLED") || text.contains("REQUEUED");
    let node = is_step
        .then(|| word(" ON "))
        .flatten()
        .or_else(|| word("Node failure on "))
        .or_else(|| word(", node: "))
        .or_else(|| word(", node "))
        .or_else(|| word("slurmstepd-"))
        .or_else(|| {
            let (_, rest) = text.split_once("srun: error: ")?;
            let (name, rest) = rest.split_once(": ")?;
            let is_name = rest.starts_with("task")
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            is_name.then(|| name.to_owned())
        });
    let number = |before: &str| {
        let (_, rest) = text.split_once(before)?;
        origin::digits(rest).map(|(number, _)| number.to_string())
    };
    (node, number("Device: ").or_else(|| number(", device ")))
}
