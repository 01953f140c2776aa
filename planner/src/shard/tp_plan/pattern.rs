//! Module patterns: dotted paths in which each name may hold `*` and `?`, as parallelize_module reads them.

/// Whether `pattern` matches the path of a module, name by name.
pub fn matches(pattern: &str, path: &str) -> bool {
    let mut names = path.split('.');
    let mut wanted = pattern.split('.');
    loop {
        match (wanted.next(), names.next()) {
            (None, None) => return true,
            (Some(wanted), Some(name)) if glob(wanted.as_bytes(), name.as_bytes()) => {}
            _ => return false,
        }
    }
}

/// Whether a text is of a pattern in which `*` is any run of characters and `?` any one.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let (mut star, mut mark) = (None, 0);
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some(at);
                mark = from;
                at += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == text[from] => {
                at += 1;
                from += 1;
            }
            _ => match star {
                // The last star takes one character more.
                Some(place) => {
                    at = place + 1;
                    mark += 1;
                    from = mark;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&rest| rest == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn names_match_one_by_one() {
        for (pattern, path, expected) in [
            ("model.layers.*.self_attn.q_proj", "model.layers.11.self_attn.q_proj", true),
            ("model.layers.*.self_attn.q_proj", "model.layers.self_attn.q_proj", false),
            ("model.layers.*.self_attn.*_proj", "model.layers.0.self_attn.k_proj", true),
            ("model.layers.?.mlp", "model.layers.10.mlp", false),
            ("lm_head", "lm_head", true),
            ("lm_head", "model.lm_head", false),
            ("*", "lm_head", true),
            ("*a*b", "xaybzab", true),
            ("*a*b", "xaybza", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
