//! What is a secret in a script: by its name or how it begins (`planner::secrets`), as drawn by chance, or by its place in a URL.

use std::ops::Range;

use planner::secrets::{self, TOKEN_KINDS, begins_as_token, is_secret_word, may_name_secret};

/// What makes a key or a token somebody's, rather than a field's or a tokenizer's.
const OWNERS: [&str; 6] = ["API", "ACCESS", "AUTH", "PRIVATE", "HF", "WANDB"];
/// Whether a variable or an option holds a secret: by its name, by how its value begins, or by a password in a URL. A
/// variable that names a file holds none by its name.
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    names_secret(name, value) || begins_as_token(value) || has_password(value)
}

/// Whether the name says so. What names a file, or has one as its value, holds none.
fn names_secret(name: &str, value: &str) -> bool {
    !value.ends_with(".pem") && (secrets::names_secret(name) || (may_name_secret(name) && is_drawn(value)))
}

/// Whether an option of any program gives a secret away. Many have keys of records and tokens of vocabularies as values,
/// so those count where the name says whose they are, or the value looks drawn by chance.
pub(crate) fn is_secret_option(name: &str, value: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let is_owned = upper
        .split(|character: char| !character.is_ascii_alphanumeric())
        .any(|part| OWNERS.contains(&part) || is_secret_word(part));
    is_secret(name, value) && (is_owned || is_drawn(value))
}

/// Whether a value looks drawn by chance: letters and digits in one piece that is longer than words are, or a UUID.
fn is_drawn(value: &str) -> bool {
    let mixed = |text: &str| {
        text.bytes().any(|byte| byte.is_ascii_digit()) && text.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    let is_uuid = value.split('-').map(str::len).eq([8, 4, 4, 4, 12])
        && value.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    let mut runs = value.split(|character: char| !character.is_ascii_alphanumeric());
    (is_uuid && mixed(value)) || runs.any(|run| run.len() >= 16 && mixed(run))
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
        || parts().any(|part| TOKEN_KINDS.iter().any(|kind| part.starts_with(kind.prefix)) || by_chance(part))
}

fn has_password(text: &str) -> bool {
    passwords(text).next().is_some()
}

/// Where passwords of URLs stand in a text, by byte: `https://user:password@host`, or a token in the user's place. A
/// variable, a placeholder or stars in the place of one gives nothing away.
pub(crate) fn passwords(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    text.match_indices("://").filter_map(|(scheme, _)| {
        let named = text[..scheme].bytes().next_back().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let start = scheme + "://".len();
        let authority = text[start..].split(ends_authority).next().filter(|_| named)?;
        let (login, _) = authority.rsplit_once('@')?;
        match login.split_once(':') {
            Some((user, password)) if !stands_for_another(password) => {
                Some(start + user.len() + 1..start + login.len())
            }
            None if begins_as_token(login) => Some(start..start + login.len()),
            _ => None,
        }
    })
}

/// What ends the part of a URL that says who is asked, in a script or a file, too.
fn ends_authority(character: char) -> bool {
    character.is_whitespace() || matches!(character, '/' | '?' | '#' | '"' | '\'' | '`' | ')' | '|')
}

fn stands_for_another(password: &str) -> bool {
    let bare = password.trim_start_matches('\\');
    bare.is_empty()
        || bare.starts_with(['$', '{', '<', '['])
        || bare.bytes().all(|byte| b"*.xX%s".contains(&byte))
}

/// Whether one word of a command line gives a secret away: `TOKEN=value`, `--api-key=value`, a token as it stands, or a
/// password in a URL. A value that names a variable gives nothing away.
pub(crate) fn gives_secret(word: &str) -> bool {
    let (name, value) = word.split_once('=').unwrap_or(("", word));
    has_password(word) || (!value.is_empty() && !value.starts_with('$') && is_secret(name, value))
}

/// Whether an option such as `--hf-token` is followed by a secret.
fn takes_secret(option: &str) -> bool {
    option.starts_with('-') && !option.contains('=') && is_secret(option, "")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_give_secrets_away() {
        for secret in [
            "HF_TOKEN=abc",
            "--wandb-api-key=abc",
            "hf_abcdefghijklmnopqrst",
            "x=hf_abcdefghijklmnopqrst",
            "+logger.wandb.api_key=abc",
            "--apikey=abc",
            "--index-url=https://me:abc@host/simple",
            "https://me:abc@host/x?a=b",
        ] {
            assert!(gives_secret(secret), "{secret}");
        }
        for harmless in [
            "HF_TOKEN=$HF_TOKEN",
            "--tokenizer=gpt2",
            "--seq-length",
            "key",
            "train.py",
            "--moe-token-dispatcher-type=alltoall",
            "model.moe_token_dispatcher_type=alltoall",
        ] {
            assert!(!gives_secret(harmless), "{harmless}");
        }
        assert!(takes_secret("--hf-token") && !takes_secret("--tokenizer-type"));
    }

    /// What `lint` finds in a script, no script is written with; and logs are shown without it (`diagnose: redact::tests`).
    #[test]
    fn tokens_of_every_kind_are_refused_and_found() {
        for kind in &TOKEN_KINDS {
            let token = kind.example();
            assert!(is_secret("FOO", &token) && gives_secret(&token), "{token}");
            assert!(may_be_secret("FOO", kind.prefix), "{token}");
            let report =
                crate::lint::lint(format!("#!/bin/bash\n# {token}\nexport FOO={token}\n").as_bytes());
            let found = report.findings.iter().filter(|finding| finding.rule == "secret-value").count();
            assert_eq!(found, 2, "{token}");
        }
    }

    #[test]
    fn secrets() {
        assert!(is_secret("HF_TOKEN", ""));
        assert!(is_secret("HF_TOKEN_2", ""));
        assert!(is_secret("wandb_api_key", ""));
        assert!(is_secret("ANYTHING", "hf_abcdefghijklmnopqrst"));
        assert!(is_secret("WANDBKEY", "0123456789abcdef0123456789abcdef01234567"));
        assert!(!is_secret("RECIPE", "hf_llama3_8b_pretrain"));
        assert!(!is_secret("TOKENIZERS_PARALLELISM", "false"));
        assert!(!is_secret("KEYBOARD", "de"));
        assert!(!is_secret("HF_TOKEN_PATH", "/lustre/token"));
    }

    #[test]
    fn passwords_in_urls() {
        for (url, password) in [
            ("http://svc:Sup3rS3cret!@proxy.corp:8080", "Sup3rS3cret!"),
            ("https://svc:p@ss%2Fw:rd@host/x", "p@ss%2Fw:rd"),
            ("redis://:abc@host:6379/0", "abc"),
            ("see \"ftp://a:bc@d\" and more", "bc"),
            ("https://ghp_abcdefghijklmnopqrst@github.com/a/b", "ghp_abcdefghijklmnopqrst"),
        ] {
            let found: Vec<&str> = passwords(url).map(|place| &url[place]).collect();
            assert_eq!(found, [password], "{url}");
            assert!(is_secret("https_proxy", url), "{url}");
        }
        for harmless in [
            "http://host:8080",
            "git@github.com:a/b.git",
            "ssh://git@github.com:22/a/b",
            "http://${USER}:${PASS}@host",
            "http://$USER:\\$PASS@host:1",
            "https://<USER>:<PASSWORD>@host",
            "http://user:***@host",
            "http://user:@host",
            "http://host:8080/@scope/a:b@c",
            "docker://$oauthtoken@nvcr.io#nvidia/pytorch:26.01",
            "http://[::1]:80/a@b",
            "://a:b@c",
        ] {
            assert_eq!(passwords(harmless).next(), None, "{harmless}");
        }
    }

    #[test]
    fn options_of_any_program() {
        let key = "0123456789abcdef0123456789abcdef01234567";
        for (name, value) in [
            ("--wandb_key", key),
            ("--sort-key", key),
            ("--db-password", "hunter22"),
            ("--hf-token", "abcdefgh"),
            ("--client-secret", "abcdefgh"),
            ("logger.key", "550e8400-e29b-41d4-a716-446655440000"),
        ] {
            assert!(is_secret_option(name, value), "{name} {value}");
        }
        for (name, value) in [
            ("--text-key", "content"),
            ("--pad_token", "endoftext"),
            ("--image_key", "observation_images_0"),
            ("--dataset-key", "fineweb_edu_2024_10"),
            ("--commit", key),
            ("--monkey", "chimpanzee"),
        ] {
            assert!(!is_secret_option(name, value), "{name} {value}");
        }
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
}
