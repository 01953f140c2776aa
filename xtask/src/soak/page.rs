//! That Trunk's page of `index.html` is ours, and that a program with the page in it serves it: `trunk build` compiles for
//! minutes, which the test command has not.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use crate::console::{notice, timed};
use crate::place::Place;
use crate::test::Surroundings;
use crate::{build, process, tools};

/// Builds the page both ways, compares them, and tests each in a browser; whether they are the same, small enough, and work.
pub fn run(place: &Place) -> Result<bool> {
    tools::wasm_target(place)?;
    let by_trunk = place.root.join("target").join("trunk-dist");
    timed("building the page by Trunk", || {
        process::run(build::trunk(place, "build")?.arg("--dist").arg(&by_trunk))
    })?;
    let surroundings = Surroundings::find(place)?;
    let built = build::page(place, build::Build::Full)?;
    let within = build::page_size(place, built);
    if let Err(error) = &within {
        notice(format_args!("error: {error:#}"));
    }
    build::worker(place, build::Build::Full)?;
    let ours = place.root.join("dist");
    let (trunks, own) = (shape(&by_trunk)?, shape(&ours)?);
    let same = trunks == own;
    if !same {
        notice(format_args!("the pages differ\nTrunk's: {trunks:#?}\nours: {own:#?}"));
    }
    let tested = surroundings.test(place, "browser", Some(&by_trunk), &[])?;
    let built_in = surroundings.test(place, "browser", None, &["plan::"])?;
    Ok(same && within.is_ok() && tested.failed == 0 && built_in.failed == 0)
}

/// What a page is made of, whoever made it: names of files without their hashes, and the tags of its first file without hashes,
/// digests of integrity and blanks.
fn shape(folder: &Path) -> Result<(BTreeSet<String>, Vec<String>)> {
    let read = || -> std::io::Result<_> {
        let names =
            std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names = names.collect::<std::io::Result<Vec<String>>>()?;
        Ok((names, std::fs::read_to_string(folder.join("index.html"))?))
    };
    let (names, index) = read().with_context(|| format!("cannot read {}", folder.display()))?;
    Ok((names.iter().map(|name| plain(name)).collect(), tags(&index)))
}

/// A text without the hashes in its file names.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('-') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let digits = after[1..].bytes().take_while(|byte| byte.is_ascii_hexdigit()).count();
        // A word of sixteen hexadecimal digits is a hash; the page has no other.
        rest = if digits == 16 { &after[17..] } else { &after[1..] };
        if digits != 16 {
            out.push('-');
        }
    }
    out + rest
}

/// The tags of a page in order, attributes sorted.
fn tags(index: &str) -> Vec<String> {
    let index = plain(index);
    let tag = |text: &str| {
        let text = text.split('>').next()?.trim().trim_end_matches('/');
        let mut words: Vec<&str> =
            text.split_whitespace().filter(|word| !word.starts_with("integrity=")).collect();
        words.get_mut(1..)?.sort_unstable();
        (!text.starts_with("!--")).then(|| words.join(" "))
    };
    index.split('<').skip(1).filter_map(tag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_blanks_and_order_do_not_count() {
        assert_eq!(plain("page-0123456789abcdef_bg.wasm"), "page_bg.wasm");
        assert_eq!(plain("a-b.js"), "a-b.js");
        let one = "<link rel=\"x\" href=\"/page-0123456789abcdef.css\" integrity=\"sha384-AB\"/>\n<body>";
        let other = "<link  href=\"/page-fedcba9876543210.css\" rel=\"x\" /><!-- words --><body>";
        assert_eq!(tags(one), tags(other));
        assert_ne!(tags(one), tags("<body>"));
    }
}
