//! The two kinds of quoting: an allow-list for what Slurm reads, shell quotes for the rest.

/// Parts of a variable's name that say that its value is a secret.
const SECRET_WORDS: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// How tokens of services that training scripts talk to begin.
const SECRET_PREFIXES: [&str; 7] = ["hf_", "nvapi-", "ghp_", "github_pat_", "sk-", "AKIA", "glpat-"];

/// Whether Slurm reads `value` as it stands: it knows neither quotes nor escapes, and a line break would start
/// another directive.
pub fn is_directive_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && !value.starts_with('-')
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._/@:+,=%-".contains(&byte))
}

/// Whether `value` is a time limit: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.
pub fn is_time_limit(value: &str) -> bool {
    let is_number =
        |part: &str| (1..=6).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let (days, clock) = match value.split_once('-') {
        Some((days, clock)) => (Some(days), clock),
        None => (None, value),
    };
    days.is_none_or(is_number) && clock.split(':').count() <= 3 && clock.split(':').all(is_number)
}

/// Whether `name` can be a variable of the shell.
pub fn is_variable(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether a variable holds a secret, by its name or by how its value begins.
pub fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.split('_').any(|part| part == *word))
        || SECRET_PREFIXES.iter().any(|prefix| value.starts_with(prefix) && value.len() >= prefix.len() + 12)
}

/// `value` as one word of the shell; none when it holds a control character.
pub fn quoted(value: &str) -> Option<String> {
    if value.chars().any(char::is_control) {
        return None;
    }
    shlex::try_quote(value).ok().map(std::borrow::Cow::into_owned)
}

/// `text` for a comment: nothing in it can end the line.
pub fn comment(text: &str) -> String {
    text.chars()
        .map(|character| if matches!(character, ' '..='~') { character } else { '?' })
        .take(200)
        .collect()
}

/// A job's name from a plan's name.
pub fn job_name(name: &str) -> String {
    let mut out = String::new();
    for character in name.chars() {
        let kept = character.to_ascii_lowercase();
        if kept.is_ascii_alphanumeric() || kept == '.' || kept == '_' {
            out.push(kept);
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
        if out.len() == 48 {
            break;
        }
    }
    let name = out.trim_matches(['-', '.']);
    if name.is_empty() { "shardplan".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits() {
        for good in ["30", "30:00", "00:30:00", "1-12", "1-12:30", "1-12:30:00"] {
            assert!(is_time_limit(good), "{good}");
        }
        for bad in ["", "1h", "1:2:3:4", "-5", "1-", "00:30:00 ", "1--2", "1-2-3", "99999999"] {
            assert!(!is_time_limit(bad), "{bad}");
        }
    }

    #[test]
    fn directive_values() {
        for good in ["batch", "gpu:8", "/lustre/a_b/logs/x_%j.log", "team@a,b"] {
            assert!(is_directive_value(good), "{good}");
        }
        for bad in ["", "a b", "-x", "a\nb", "$(x)", "a#b", "a'b", "a\\b", "ä"] {
            assert!(!is_directive_value(bad), "{bad}");
        }
    }

    #[test]
    fn secrets() {
        assert!(is_secret("HF_TOKEN", ""));
        assert!(is_secret("wandb_api_key", ""));
        assert!(is_secret("ANYTHING", "hf_abcdefghijklmnopqrst"));
        assert!(!is_secret("TOKENIZERS_PARALLELISM", "false"));
        assert!(!is_secret("KEYBOARD", "de"));
    }

    #[test]
    fn names_for_jobs() {
        assert_eq!(job_name("MiniMax-M2 on 64 x H100"), "minimax-m2-on-64-x-h100");
        assert_eq!(job_name("$(rm -rf ~)\n"), "rm-rf");
        assert_eq!(job_name("\u{1f600}"), "shardplan");
    }
}
