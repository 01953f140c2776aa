//! How much a browser is sent, as the hub sends it (gzip), held against `web/size.toml`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::compress::SUFFIX;
use crate::notice;

/// The file of what may be sent, in the checkout.
pub const LIMITS: &str = "web/size.toml";

/// Bytes that two moments of a visit have cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sent {
    /// When the first plan is answered: the page itself.
    first_answer: u64,
    /// When a plan was searched: the searcher besides.
    first_search: u64,
}

/// Prints what the files of a page weigh, and says whether that is within what the profile may have sent, or what is over.
///
/// # Errors
/// When the page or the limits can't be read.
pub fn check(root: &Path, page: &Path, profile: &str) -> Result<Result<(), String>> {
    let mut sent = Sent { first_answer: 0, first_search: 0 };
    let mut names: Vec<String> = std::fs::read_dir(page)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<_>>()?;
    names.retain(|name| !name.ends_with(SUFFIX));
    names.sort();
    let mut table = String::new();
    for name in &names {
        let bytes = std::fs::read(page.join(name))?;
        let beside = page.join(format!("{name}{SUFFIX}"));
        let small = if beside.exists() { std::fs::metadata(beside)?.len() } else { compressed(&bytes)? };
        let own = own_module(name);
        if own.is_none() {
            sent.first_answer += small;
        }
        if own.is_none_or(|module| module == "searcher") {
            sent.first_search += small;
        }
        let _ = writeln!(table, "{:>10} {small:>10}  {name}", bytes.len());
    }
    let _ = writeln!(
        table,
        "to the first answer {}, to the first search {} (bytes, gzip)",
        sent.first_answer, sent.first_search
    );
    notice(&format!("     bytes       gzip\n{}", table.trim_end()));
    let path = root.join(LIMITS);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(within(sent, limits(&text, profile)?).map_err(|over| format!("{profile} of {LIMITS}: {over}")))
}

fn within(sent: Sent, limits: Sent) -> Result<(), String> {
    for (what, sent, limit) in [
        ("first_answer", sent.first_answer, limits.first_answer),
        ("first_search", sent.first_search, limits.first_search),
    ] {
        if sent > limit {
            return Err(format!("{what}: {sent} bytes are sent, and at most {limit} may be"));
        }
    }
    Ok(())
}

/// The module that a file belongs to when the page brings it only when it is wanted; those have no hash in their names.
fn own_module(name: &str) -> Option<&str> {
    let stem = name.strip_suffix("_bg.wasm").or_else(|| name.strip_suffix(".js"))?;
    (!stem.contains('-')).then_some(stem)
}

fn compressed(bytes: &[u8]) -> Result<u64> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.len() as u64)
}

/// The limits of a profile: lines `first_answer = N` and `first_search = N` below `[profile]`.
fn limits(text: &str, profile: &str) -> Result<Sent> {
    let below =
        text.split_once(&format!("[{profile}]\n")).with_context(|| format!("{LIMITS} has no [{profile}]"))?.1;
    let below = below.split("\n[").next().unwrap_or_default();
    let of = |name: &str| {
        let line = below.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('='));
        let number = line.and_then(|value| value.trim().replace('_', "").parse().ok());
        number.with_context(|| format!("{LIMITS}: [{profile}] has no {name} = BYTES"))
    };
    Ok(Sent { first_answer: of("first_answer")?, first_search: of("first_search")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Words\n[a]\nfirst_answer = 1_000\nfirst_search = 2000\n\n[b]\nfirst_answer = 5\n";

    #[test]
    fn limits_are_read_by_profile() {
        assert_eq!(limits(TEXT, "a").unwrap(), Sent { first_answer: 1000, first_search: 2000 });
        assert!(limits(TEXT, "b").unwrap_err().to_string().contains("no first_search"));
        assert!(limits(TEXT, "c").is_err());
    }

    #[test]
    fn what_is_over_its_limit_is_named() {
        let limits = Sent { first_answer: 10, first_search: 20 };
        assert!(within(limits, limits).is_ok());
        let error = within(Sent { first_answer: 10, first_search: 21 }, limits).unwrap_err();
        assert_eq!(error, "first_search: 21 bytes are sent, and at most 20 may be");
    }

    #[test]
    fn modules_of_their_own_have_no_hash() {
        assert_eq!(own_module("searcher_bg.wasm"), Some("searcher"));
        assert_eq!(own_module("texts.js"), Some("texts"));
        assert_eq!(own_module("page-0123456789abcdef_bg.wasm"), None);
        assert_eq!(own_module("index.html"), None);
    }
}
