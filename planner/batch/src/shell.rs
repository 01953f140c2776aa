//! The two kinds of quoting: an allow-list for what Slurm reads, shell quotes for the rest.
//! Beside it: what is a secret, which neither may hold.

mod secrets;

pub(crate) use secrets::{gives_secret, is_secret, is_secret_option, may_be_secret, passwords, with_secrets};

/// Whether Slurm reads `value` as it stands: it knows neither quotes nor escapes, and a line break would start
/// another directive.
pub(crate) fn is_directive_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && !value.starts_with('-')
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._/@:+,=%-".contains(&byte))
}

/// Whether `value` is a time limit, M, M:S, H:M:S, D-H, D-H:M or D-H:M:S, or says that there is none.
pub(crate) fn is_time_limit(value: &str) -> bool {
    let is_number =
        |part: &str| (1..=6).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    // No limit.
    if value == "-1" || ["UNLIMITED", "INFINITE"].iter().any(|word| word.eq_ignore_ascii_case(value)) {
        return true;
    }
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

/// Whether `value` numbers a job array: numbers and ranges upwards with steps, and how many run at once.
pub fn is_array(value: &str) -> bool {
    let digits = |text: &str| (1..=7).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let read = |text: &str| text.parse::<u32>().ok().filter(|_| digits(text));
    let number = |text: &str| read(text).is_some();
    let some = |text: &str| read(text).is_some_and(|number| number > 0);
    let (list, at_once) = value.split_once('%').map_or((value, None), |(list, most)| (list, Some(most)));
    let item = |text: &str| {
        let (range, step) = text.split_once(':').map_or((text, None), |(range, step)| (range, Some(step)));
        match range.split_once('-') {
            Some((first, last)) => {
                let upwards = read(first).zip(read(last)).is_some_and(|(first, last)| first <= last);
                upwards && step.is_none_or(some)
            }
            None => number(range) && step.is_none(),
        }
    };
    value.len() <= 256 && at_once.is_none_or(some) && list.split(',').all(item)
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
        for good in
            ["30", "30:00", "00:30:00", "1-12", "1-12:30", "1-12:30:00", "UNLIMITED", "infinite", "-1"]
        {
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
        for none in ["soon", "UNLIMITED", "infinite", "-1"] {
            assert_eq!(limit_seconds(none), None, "{none}");
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
    fn arrays_signals_and_components() {
        for good in ["0", "0-3", "1,3,5", "0-15:4", "0-7%2"] {
            assert!(is_array(good), "{good}");
        }
        for bad in ["", "a", "0-", "1:2", "0-3%", "0-3\n", "$(x)", "-1", "5-1", "0-3:0", "0-3%0"] {
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
    fn names_for_jobs() {
        assert_eq!(job_name("MiniMax-M2 on 64 x H100"), "minimax-m2-on-64-x-h100");
        assert_eq!(job_name("$(rm -rf ~)\n"), "rm-rf");
        assert_eq!(job_name("\u{1f600}"), "shardplan");
    }
}
