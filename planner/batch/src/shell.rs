//! The two kinds of quoting: an allow-list for what Slurm reads, shell quotes for the rest.

/// Parts of a variable's name that say that its value is a secret.
const SECRET_WORDS: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// How tokens of services that training scripts talk to begin.
const SECRET_PREFIXES: [&str; 7] = ["hf_", "nvapi-", "ghp_", "github_pat_", "sk-", "AKIA", "glpat-"];

/// Whether Slurm reads `value` as it stands: it knows neither quotes nor escapes, and a line break would start
/// another directive.
pub(crate) fn is_directive_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && !value.starts_with('-')
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._/@:+,=%-".contains(&byte))
}

/// Whether `value` is a time limit: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.
pub(crate) fn is_time_limit(value: &str) -> bool {
    let is_number =
        |part: &str| (1..=6).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let (days, clock) = match value.split_once('-') {
        Some((days, clock)) => (Some(days), clock),
        None => (None, value),
    };
    days.is_none_or(is_number) && clock.split(':').count() <= 3 && clock.split(':').all(is_number)
}

/// Seconds of a time limit; none where it is none.
pub(crate) fn limit_seconds(value: &str) -> Option<u64> {
    if !is_time_limit(value) {
        return None;
    }
    let (days, clock) = match value.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, value),
    };
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let seconds = match (value.contains('-'), parts.as_slice()) {
        (true, [hours]) => hours * 3600,
        (true, [hours, minutes]) => hours * 3600 + minutes * 60,
        (false, [minutes]) => minutes * 60,
        (false, [minutes, seconds]) => minutes * 60 + seconds,
        (_, [hours, minutes, seconds]) => hours * 3600 + minutes * 60 + seconds,
        _ => return None,
    };
    Some(days * 86400 + seconds)
}

/// Whether `name` can be a variable of the shell.
pub fn is_variable(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether a variable holds a secret, by its name or by how its value begins.
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.split('_').any(|part| part == *word))
        || SECRET_PREFIXES
            .iter()
            .any(|prefix| value.strip_prefix(prefix).is_some_and(|rest| is_token(prefix, rest)))
}

/// Whether a variable may hold a secret: it is known to, begins like one that is not whole yet, or has a part that looks
/// drawn by chance. For places where leaving a harmless value out does no harm.
pub(crate) fn may_be_secret(name: &str, value: &str) -> bool {
    let by_chance = |part: &str| {
        part.len() > 16
            && part.bytes().any(|byte| byte.is_ascii_digit())
            && part.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    let parts =
        || value.split(|character: char| !character.is_ascii_alphanumeric() && !"_-".contains(character));
    is_secret(name, value)
        || parts()
            .any(|part| SECRET_PREFIXES.iter().any(|prefix| part.starts_with(prefix)) || by_chance(part))
}

fn is_token(prefix: &str, rest: &str) -> bool {
    rest.len() >= 12 && may_follow(prefix, rest)
}

/// Whether a service makes tokens of this prefix and this rest: some are of one part, and names of files and recipes
/// begin with `hf_`, too.
pub(crate) fn may_follow(prefix: &str, rest: &str) -> bool {
    !matches!(prefix, "hf_" | "AKIA") || rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether one word of a command line gives a secret away: `TOKEN=value`, `--api-key=value`, or a token as it stands.
/// A value that names a variable gives nothing away.
pub(crate) fn gives_secret(word: &str) -> bool {
    let (name, value) = word.split_once('=').unwrap_or(("", word));
    let name = name.trim_start_matches('-').replace(['-', '.'], "_");
    !value.is_empty() && !value.starts_with('$') && is_secret(&name, value)
}

/// Whether an option such as `--hf-token` is followed by a secret.
pub(crate) fn takes_secret(option: &str) -> bool {
    option.starts_with('-')
        && !option.contains('=')
        && is_secret(&option.trim_start_matches('-').replace(['-', '.'], "_"), "")
}

/// Words of a command line, each with whether it gives a secret away, by itself or behind an option that takes one.
pub(crate) fn with_secrets<'a>(
    words: impl IntoIterator<Item = &'a str>,
) -> impl Iterator<Item = (&'a str, bool)> {
    let mut after_secret = false;
    words.into_iter().map(move |word| {
        let gives = gives_secret(word) || (after_secret && !word.starts_with(['-', '$']));
        after_secret = takes_secret(word);
        (word, gives)
    })
}

/// Longest value that a script holds, in bytes.
const LONGEST: usize = 4096;

/// `value` as one word of the shell; none when it holds a control character, turns the direction of text, or is too
/// long.
pub fn quoted(value: &str) -> Option<String> {
    let turns = |character: char| matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if value.len() > LONGEST || value.chars().any(|character| character.is_control() || turns(character)) {
        return None;
    }
    shlex::try_quote(value).ok().map(std::borrow::Cow::into_owned)
}

/// Whether `value` numbers a job array: numbers and ranges with steps, and how many run at once.
pub fn is_array(value: &str) -> bool {
    let number = |text: &str| (1..=7).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let (list, at_once) = value.split_once('%').map_or((value, None), |(list, most)| (list, Some(most)));
    let item = |text: &str| {
        let (range, step) = text.split_once(':').map_or((text, None), |(range, step)| (range, Some(step)));
        match range.split_once('-') {
            Some((first, last)) => number(first) && number(last) && step.is_none_or(number),
            None => number(range) && step.is_none(),
        }
    };
    value.len() <= 256 && at_once.is_none_or(number) && list.split(',').all(item)
}

/// Whether `value` is a signal before the time limit: `USR1@180`, `B:TERM@60`, or without seconds.
pub fn is_signal(value: &str) -> bool {
    let value = value.strip_prefix("B:").unwrap_or(value);
    let (name, seconds) = value.split_once('@').map_or((value, None), |(name, rest)| (name, Some(rest)));
    (1..=12).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        && seconds.is_none_or(|text| {
            (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// Components of a heterogeneous job: nodes and, after a colon, their partition; none when it is no such list.
pub fn components(value: &str) -> Option<Vec<(u64, Option<String>)>> {
    let component = |text: &str| {
        let (nodes, partition) =
            text.split_once(':').map_or((text, None), |(nodes, rest)| (nodes, Some(rest)));
        let nodes = nodes.parse::<u64>().ok().filter(|nodes| *nodes > 0)?;
        partition.is_none_or(is_directive_value).then(|| (nodes, partition.map(str::to_owned)))
    };
    value.split(',').map(component).collect::<Option<Vec<_>>>().filter(|list| (2..=16).contains(&list.len()))
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

/// Startup commands before `command`, as one line of the shell: the first that fails ends it.
pub fn startup_block(startup: &[String], command: &str) -> String {
    if startup.is_empty() {
        return command.to_owned();
    }
    format!("{{ {}; }} && {command}", startup.join(" && "))
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
        for (text, seconds) in
            [("30", 1800), ("30:30", 1830), ("1:00:00", 3600), ("1-0", 86400), ("1-12:30", 131_400)]
        {
            assert_eq!(limit_seconds(text), Some(seconds), "{text}");
        }
        assert_eq!(limit_seconds("soon"), None);
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
    fn arrays_signals_and_components() {
        for good in ["0", "0-3", "1,3,5", "0-15:4", "0-7%2"] {
            assert!(is_array(good), "{good}");
        }
        for bad in ["", "a", "0-", "1:2", "0-3%", "0-3\n", "$(x)", "-1"] {
            assert!(!is_array(bad), "{bad}");
        }
        for good in ["USR1@180", "TERM", "B:USR1@300", "10@60"] {
            assert!(is_signal(good), "{good}");
        }
        for bad in ["", "usr1", "USR1@", "USR1@x", "B:", "USR1@180 "] {
            assert!(!is_signal(bad), "{bad}");
        }
        assert_eq!(components("2:left,6"), Some(vec![(2, Some("left".to_owned())), (6, None)]));
        for bad in ["", "8", "0,8", "2:,6", "2:a b,6", "x,y"] {
            assert_eq!(components(bad), None, "{bad}");
        }
    }

    #[test]
    fn words_that_give_secrets_away() {
        for secret in
            ["HF_TOKEN=abc", "--wandb-api-key=abc", "hf_abcdefghijklmnopqrst", "x=hf_abcdefghijklmnopqrst"]
        {
            assert!(gives_secret(secret), "{secret}");
        }
        for harmless in ["HF_TOKEN=$HF_TOKEN", "--tokenizer=gpt2", "--seq-length", "key", "train.py"] {
            assert!(!gives_secret(harmless), "{harmless}");
        }
        assert!(takes_secret("--hf-token") && !takes_secret("--tokenizer-type"));
    }

    #[test]
    fn secrets() {
        assert!(is_secret("HF_TOKEN", ""));
        assert!(is_secret("wandb_api_key", ""));
        assert!(is_secret("ANYTHING", "hf_abcdefghijklmnopqrst"));
        assert!(!is_secret("RECIPE", "hf_llama3_8b_pretrain"));
        assert!(!is_secret("TOKENIZERS_PARALLELISM", "false"));
        assert!(!is_secret("KEYBOARD", "de"));
    }

    #[test]
    fn what_may_be_a_secret_is_not_kept() {
        for (name, value) in [
            ("HF_TOKEN", ""),
            ("ANYTHING", "hf_ab"),
            ("WANDB", "0123456789abcdef0123456789abcdef01234567"),
            ("PROXY", "http://user:q8sT7vQz1LpX0aYw9@proxy:3128"),
            ("HEADER", "Bearer sk-abc"),
        ] {
            assert!(may_be_secret(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("NCCL_IB_HCA", "mlx5_0,mlx5_1,mlx5_10"),
            ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
            ("NCCL_TOPO_FILE", "/opt/microsoft/ndv5-topo.xml"),
            ("UCX_TLS", "rc,sm,cuda_copy"),
            ("TOKENIZERS_PARALLELISM", "false"),
        ] {
            assert!(!may_be_secret(name, value), "{name}={value}");
        }
    }

    #[test]
    fn names_for_jobs() {
        assert_eq!(job_name("MiniMax-M2 on 64 x H100"), "minimax-m2-on-64-x-h100");
        assert_eq!(job_name("$(rm -rf ~)\n"), "rm-rf");
        assert_eq!(job_name("\u{1f600}"), "shardplan");
    }
}
