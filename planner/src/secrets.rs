//! What is a secret: by its name, and by how it begins. Scripts refuse secrets, `lint` finds them and what is shown of logs has none.

use std::ops::Range;

/// What may follow the beginning of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Letters and digits in one piece: names of files, recipes and variables begin alike.
    Piece,
    /// Parts with `-` and `_` between them.
    Parts,
    /// Three parts with points between them, of which the first two are JSON: other JSON in base 64 begins alike.
    Jwt,
}

/// Tokens of one kind.
#[derive(Debug)]
pub struct TokenKind {
    /// How they begin.
    pub prefix: &'static str,
    /// How many characters follow at least.
    pub least: usize,
    /// Whose they are.
    pub owner: &'static str,
    rest: Rest,
}

const fn kind(prefix: &'static str, least: usize, owner: &'static str, rest: Rest) -> TokenKind {
    TokenKind { prefix, least, owner, rest }
}

/// Tokens of services that training scripts talk to.
pub const TOKEN_KINDS: [TokenKind; 18] = [
    kind("hf_", 20, "Hugging Face", Rest::Piece),
    kind("ghp_", 30, "GitHub", Rest::Parts),
    kind("gho_", 30, "GitHub", Rest::Parts),
    kind("ghu_", 30, "GitHub", Rest::Parts),
    kind("ghs_", 30, "GitHub", Rest::Parts),
    kind("ghr_", 30, "GitHub", Rest::Parts),
    kind("github_pat_", 30, "GitHub", Rest::Parts),
    kind("glpat-", 16, "GitLab", Rest::Parts),
    kind("nvapi-", 30, "NVIDIA", Rest::Parts),
    kind("sk-", 30, "OpenAI or the like", Rest::Parts),
    kind("xoxb-", 20, "Slack", Rest::Parts),
    kind("xoxp-", 20, "Slack", Rest::Parts),
    kind("AKIA", 16, "AWS", Rest::Piece),
    kind("ASIA", 16, "AWS", Rest::Piece),
    kind("npm_", 30, "npm", Rest::Piece),
    // What all of them begin with, which packages of that name do not.
    kind("pypi-AgE", 30, "PyPI", Rest::Parts),
    kind("eyJ", 20, "whoever signed it (a JWT)", Rest::Jwt),
    kind("dckr_pat_", 20, "Docker", Rest::Parts),
];

/// Characters behind a prefix from which on a value that is one word counts as a token, whatever the service makes: half of one is
/// not for a script either.
const LEAST_OF_A_VALUE: usize = 12;
/// No token of one word is longer.
const MOST: usize = 300;

impl TokenKind {
    /// Whether tokens of this kind have such a rest, whole or not.
    fn may_have(&self, rest: &str) -> bool {
        match self.rest {
            Rest::Piece => rest.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            Rest::Parts => true,
            Rest::Jwt => rest.split_once(".eyJ").is_some_and(|(head, _)| head.bytes().all(is_of_word)),
        }
    }

    /// Whether a text that begins with the prefix goes on as a whole token does, which words of a script and of a log do not.
    pub fn is_whole(&self, rest: &str) -> bool {
        rest.len() >= self.least
            && self.may_have(rest)
            && rest.bytes().any(|byte| byte.is_ascii_digit())
            && rest.bytes().any(|byte| byte.is_ascii_alphabetic())
            && !rest.contains("--")
    }

    /// The shortest token of this kind, for tests of whoever finds tokens.
    pub fn example(&self) -> String {
        let mut rest: String = "123456789012-abcdefABCDEFghijklmn0pqrst".chars().take(self.least).collect();
        match self.rest {
            Rest::Piece => rest = rest.replace('-', "x"),
            Rest::Parts => {}
            Rest::Jwt => rest.replace_range(8..12, ".eyJ"),
        }
        self.prefix.to_owned() + &rest
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Whether a value begins as a token does.
pub fn begins_as_token(value: &str) -> bool {
    TOKEN_KINDS.iter().any(|kind| {
        let rest = value.strip_prefix(kind.prefix);
        rest.is_some_and(|rest| rest.len() >= LEAST_OF_A_VALUE && kind.may_have(rest))
    })
}

/// Whole tokens, wherever they stand in a text, by byte.
pub fn tokens(text: &str) -> impl Iterator<Item = (Range<usize>, &'static TokenKind)> + '_ {
    let end_of = |start: usize, also: fn(u8) -> bool| {
        let more = text.bytes().skip(start).take_while(|&byte| is_of_word(byte) || also(byte)).count();
        start + more
    };
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < text.len() {
            let start = at + text.bytes().skip(at).take_while(|&byte| !is_of_word(byte)).count();
            at = end_of(start, |_| false);
            let found = TOKEN_KINDS.iter().find_map(|kind| {
                // Most words are none, and are looked at once.
                text.get(start..at)?.strip_prefix(kind.prefix)?;
                let is_jwt = kind.rest == Rest::Jwt;
                let end = if is_jwt { end_of(start, |byte| byte == b'.') } else { at };
                let word = text.get(start..end)?;
                let is_short = is_jwt || word.len() <= MOST;
                (is_short && kind.is_whole(&word[kind.prefix.len()..])).then_some((start..end, kind))
            });
            if let Some((place, kind)) = found {
                at = place.end;
                return Some((place, kind));
            }
        }
        None
    })
}

/// Words that names of secrets have, wherever they stand in the name.
const WORDS: [&str; 5] = ["SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "APIKEY"];

/// Parts of a name, without the numbers that tell several apart.
fn parts(upper: &str) -> impl DoubleEndedIterator<Item = &str> {
    let all = upper.split(|character: char| !character.is_ascii_alphanumeric());
    all.filter(|part| !part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a part of a name says by itself that a secret is behind it.
pub fn is_secret_word(upper: &str) -> bool {
    WORDS.iter().any(|word| upper.ends_with(word))
}

/// Whether a name says where a secret is, and is none itself.
pub fn names_place(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    matches!(parts(&upper).next_back(), Some("FILE" | "PATH" | "DIR"))
}

/// Whether a variable, an option or a field of this name holds a secret. In front of other words keys and tokens are something else: a
/// type of tokens, an id of keys.
pub fn names_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let last = parts(&upper).next_back().unwrap_or_default();
    !names_place(name) && (parts(&upper).any(is_secret_word) || last == "KEY" || last.ends_with("TOKEN"))
}

/// Whether a part of a name ends as names of secrets do. It takes a value that looks like one to be one.
pub fn may_name_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    !names_place(name) && parts(&upper).any(|part| part.ends_with("KEY") || part.ends_with("TOKEN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in [
            "HF_TOKEN",
            "hf_token_2",
            "HFTOKEN",
            "wandb-api-key",
            "WANDB_KEY",
            "SSH_KEY",
            "PRIVATE_KEY",
            "SECRET_KEY",
            "ENCRYPTION_KEY",
            "SECRET_NAME_2",
            "--db-password",
            "'aws_secret_access_key'",
            "${DB_PASSWD}",
        ] {
            assert!(names_secret(name), "{name}");
        }
        for name in [
            "HF_TOKEN_PATH",
            "SECRET_FILE",
            "KEYBOARD",
            "tokenizer",
            "monkey",
            "TOKENIZERS_PARALLELISM",
            "moe_token_dispatcher_type",
            "KeyError",
            "",
        ] {
            assert!(!names_secret(name), "{name}");
        }
    }

    #[test]
    fn tokens_stand_anywhere_and_words_are_none() {
        let found = |text: &str| {
            tokens(text).map(|(place, kind)| (text[place].to_owned(), kind.owner)).collect::<Vec<_>>()
        };
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P";
        let text = format!(
            "a=xoxb-123456789012-abcdefABCDEF, \"{jwt}\" é hf_abcdefghij0123456789;AKIA0123456789ABCDEF"
        );
        let names: Vec<_> = found(&text).into_iter().map(|(_, owner)| owner).collect();
        assert_eq!(names, ["Slack", "whoever signed it (a JWT)", "Hugging Face", "AWS"]);
        assert_eq!(found(&text)[1].0, jwt);
        for text in [
            "--world_info=eyJsb2NhbGhvc3QiOiBbMCwgMSwgMiwgMywgNCwgNSwgNiwgN119",
            "hf_llama3_8b_pretrain_with_long_name",
            "pypi-mirror-of-the-company-0123456789abcdef",
            "npm_config_cache_0123456789_abcdefghijklmnop",
        ] {
            assert_eq!(found(text), [], "{text}");
            assert!(!begins_as_token(text), "{text}");
        }
    }
}
