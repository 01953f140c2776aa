//! Text that may be shown: bounded, without control characters, without secrets.

use planner::secrets::{TOKEN_KINDS, TokenKind, names_secret};

/// Longest text of one line of evidence, in characters.
const LONGEST: usize = 320;

/// What stands for a secret.
const GONE: &str = "[redacted]";

/// The line as it may be shown.
pub(super) fn shown(line: &str) -> String {
    let clean: String = line
        .trim()
        .chars()
        .take(LONGEST * 4)
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    let safe = without_secrets(&clean);
    if safe.chars().count() <= LONGEST {
        return safe;
    }
    safe.chars().take(LONGEST).collect::<String>() + "..."
}

/// The text without what looks like a secret.
fn without_secrets(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut hide_next = false;
    // A name in quotes has its colon behind the quote.
    let mut named = false;
    for word in text.split_inclusive([' ', ',', ';', '"', '\'', '(', ')', '[', ']', '<', '>']) {
        let end = word.trim_end_matches([' ', ',', ';', '"', '\'', '(', ')', '[', ']', '<', '>']).len();
        let (body, after) = word.split_at(end);
        if body.is_empty() {
            out.push_str(after);
            continue;
        }
        if hide_next {
            out.push_str(GONE);
            hide_next = is_scheme(body);
        } else if named && matches!(body, ":" | "=") {
            out.push_str(body);
            hide_next = true;
        } else {
            let (shown, next) = safe_word(body);
            out.push_str(&shown);
            hide_next = next;
        }
        named = is_secret_name(body);
        out.push_str(after);
    }
    out
}

fn is_scheme(word: &str) -> bool {
    matches!(word.to_ascii_lowercase().as_str(), "bearer" | "basic" | "token")
}

/// A word as it may be shown, and whether the next one is a secret.
fn safe_word(word: &str) -> (String, bool) {
    if let Some(place) = word.find(['=', ':'])
        && is_secret_name(&word[..place])
    {
        let value = &word[place + 1..];
        return match value {
            "" => (word.to_owned(), true),
            _ => (format!("{}{GONE}", &word[..=place]), is_scheme(value)),
        };
    }
    if is_secret_name(word.trim_start_matches('-')) && word.starts_with("--") {
        return (word.to_owned(), true);
    }
    if word.eq_ignore_ascii_case("bearer") {
        return (word.to_owned(), true);
    }
    // user:password@host
    if let Some((scheme, rest)) = word.split_once("://")
        && let authority = rest.split('/').next().unwrap_or(rest)
        && let Some((login, _)) = authority.rsplit_once('@')
        && login.contains(':')
    {
        return (format!("{scheme}://{GONE}{}", &rest[login.len()..]), false);
    }
    let value = word.rsplit(['=', '/']).next().unwrap_or(word);
    for kind in &TOKEN_KINDS {
        if let Some(place) = value.find(kind.prefix)
            && (place == 0 || !value.as_bytes()[place - 1].is_ascii_alphanumeric())
            && is_token(kind, &value[place + kind.prefix.len()..])
        {
            let before = word.len() - value.len() + place;
            return (format!("{}{GONE}", &word[..before]), false);
        }
    }
    // Keys of Weights & Biases have forty hexadecimal digits; so have commits, and hiding those does no harm.
    if value.len() == 40 && value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return (format!("{}{GONE}", &word[..word.len() - value.len()]), false);
    }
    (word.to_owned(), false)
}

/// Whether what stands behind a name is a secret. Behind the bare word, logs have keys of dictionaries: "missing key: lm_head.weight".
fn is_secret_name(name: &str) -> bool {
    let bare = name.trim_matches(|character: char| !character.is_ascii_alphanumeric());
    bare.eq_ignore_ascii_case("authorization") || (names_secret(bare) && !bare.eq_ignore_ascii_case("key"))
}

/// Whether this can be the rest of a token: it goes on as one, or has a run of letters and digits that is longer than words are.
fn is_token(kind: &TokenKind, rest: &str) -> bool {
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    let token = &rest[..rest.bytes().take_while(is_of_token).count()];
    kind.is_whole(token) || token.split(['_', '-', '.']).any(|run| run.len() >= 14)
}

#[cfg(test)]
mod tests {
    use super::{TOKEN_KINDS, shown};

    #[test]
    fn secrets_are_gone() {
        for line in [
            "export HF_TOKEN=hf_abcdefghijklmnopqrst and",
            "token hf_abcdefghijklmnopqrst",
            "Authorization: Bearer abcdefghijklmnopqrst",
            "--api-key abcdefghijklmnopqrst",
            "{\"api_key\": \"abcdefghijklmnopqrst\"}",
            "https://me:abcdefghijklmnopqrst@host/x",
            "https://me:x@abcdefghijklmnopqrst@host/x",
            "WANDB_API_KEY: abcdefghijklmnopqrst",
            "git clone https://x/ghp_abcdefghijklmnopqrst",
            "SSH_KEY=abcdefghijklmnopqrst",
            "export PRIVATE_KEY=abcdefghijklmnopqrst",
            "{'WANDB_KEY': 'abcdefghijklmnopqrst'}",
            "SECRET_KEY: abcdefghijklmnopqrst",
            "ENCRYPTION_KEY=abcdefghijklmnopqrst",
        ] {
            let text = shown(line);
            assert!(!text.contains("abcdefghijklmnopqrst"), "{text}");
            assert!(text.contains("[redacted]"), "{text}");
        }
    }

    /// As `lint` finds all of them and `script` refuses them (`batch: lint::rules::secrets`).
    #[test]
    fn tokens_of_every_kind_are_gone() {
        for kind in &TOKEN_KINDS {
            let token = kind.example();
            for line in
                [token.clone(), format!("value {token}"), format!("FOO=\"{token}\""), format!("a/{token}")]
            {
                let text = shown(&line);
                assert!(!text.contains(&token[kind.prefix.len()..]), "{line}: {text}");
            }
        }
    }

    #[test]
    fn the_rest_stays() {
        for line in [
            "Missing key: lm_head.weight",
            "KeyError: 'optimizer.key'",
            "ValueError: x=3",
            "task-1 failed",
            "sk-1",
            "the token is missing",
            "tokenizer: gpt2",
            "hf_hub_download",
        ] {
            assert_eq!(shown(line), line);
        }
        assert_eq!(shown("a\u{1b}[2Jb\tc"), "a [2Jb c");
        assert!(shown(&"x".repeat(10_000)).chars().count() < 330);
    }
}
