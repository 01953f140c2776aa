//! The part of Trunk's `index.html` that this page uses: `link` elements marked with `data-trunk`.

use anyhow::{Context, Result, bail};

/// What a marked element asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Link {
    /// A style sheet, by its path from the checkout's root.
    Style {
        /// Path of the file.
        file: String,
    },
    /// A module of WebAssembly.
    Module {
        /// The program that cargo compiles.
        program: String,
        /// The profile that it is compiled by.
        profile: String,
        /// Whether the page starts it itself, by its name.
        worker: bool,
    },
}

/// `index.html`, cut at the marked elements.
#[derive(Debug)]
pub struct Index<'a> {
    /// The text before each marked element, and behind the last.
    between: Vec<&'a str>,
    /// The marked elements.
    pub links: Vec<Link>,
}

/// Where the page lies on its server.
const BASE: (&str, &str) = ("<base data-trunk-public-url />", "<base href=\"/\" />");

impl<'a> Index<'a> {
    /// Reads a page's text.
    ///
    /// # Errors
    /// When a marked element is none of those that are known.
    pub fn parse(text: &'a str) -> Result<Index<'a>> {
        let mut index = Index { between: Vec::new(), links: Vec::new() };
        let mut rest = text;
        while let Some(start) = rest.find("<link data-trunk ") {
            let (before, element) = rest.split_at(start);
            let end = element.find("/>").context("a <link data-trunk> is not closed by />")?;
            let (element, behind) = element.split_at(end + "/>".len());
            index.between.push(before);
            index.links.push(link(element).with_context(|| format!("the element {element}"))?);
            rest = behind;
        }
        index.between.push(rest);
        Ok(index)
    }

    /// The page's text with these elements in the places of the marked ones.
    pub fn with(&self, elements: &[String]) -> String {
        let elements = elements.iter().map(String::as_str).chain([""]);
        let text: String =
            self.between.iter().zip(elements).flat_map(|(&text, element)| [text, element]).collect();
        text.replace(BASE.0, BASE.1)
    }
}

fn link(element: &str) -> Result<Link> {
    let attribute = |name: &str| {
        let start = element.find(&format!(" {name}=\""))? + name.len() + 3;
        Some(element[start..].split('"').next().unwrap_or_default().to_owned())
    };
    let needed = |name: &str| attribute(name).with_context(|| format!("it has no attribute {name}"));
    match needed("rel")?.as_str() {
        "css" => Ok(Link::Style { file: needed("href")? }),
        "rust" => Ok(Link::Module {
            program: needed("data-bin")?,
            profile: attribute("data-cargo-profile").unwrap_or_else(|| "release".to_owned()),
            worker: attribute("data-type").is_some_and(|kind| kind == "worker"),
        }),
        other => bail!("rel is {other}; css and rust are known"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_replaced_where_they_stand() {
        let text = "<p>\n<base data-trunk-public-url />\n<link data-trunk rel=\"css\" href=\"a/b.css\" />\n<i>\n\
                    <link data-trunk rel=\"rust\" href=\"a/Cargo.toml\" data-bin=\"b\" data-type=\"worker\" />\n</p>";
        let index = Index::parse(text).unwrap();
        let module = Link::Module { program: "b".to_owned(), profile: "release".to_owned(), worker: true };
        assert_eq!(index.links, [Link::Style { file: "a/b.css".to_owned() }, module]);
        let made = index.with(&["<one>".to_owned(), String::new()]);
        assert_eq!(made, "<p>\n<base href=\"/\" />\n<one>\n<i>\n\n</p>");
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for (text, said) in [
            ("<link data-trunk rel=\"icon\" href=\"a\" />", "rel is icon"),
            ("<link data-trunk rel=\"rust\" />", "no attribute data-bin"),
            ("<link data-trunk href=\"a\" />", "no attribute rel"),
            ("<link data-trunk rel=\"css\" href=\"a\"", "not closed"),
        ] {
            let error = format!("{:#}", Index::parse(text).unwrap_err());
            assert!(error.contains(said), "{error}");
        }
    }
}
