//! Settings of a job: a configuration as a tree, and what its command line puts in place of it.

use serde_json::Value;

use super::Arguments;
use super::interpolate::{Unresolved, resolve};
use crate::number::plain_digits;

/// A tree of sections, with dotted options above it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    tree: Value,
    arguments: Arguments,
    unresolved: Vec<Unresolved>,
}

impl Settings {
    /// Settings of a tree and the words of a command line, where `--section.name value` counts more. References of the
    /// tree to other keys are put in place.
    pub(crate) fn new(tree: Value, words: &[String]) -> Settings {
        let arguments = Arguments::of_words(words.iter().map(String::as_str));
        let given = |path: &str| arguments.word(&path.replace('_', "-"));
        let (tree, unresolved) = resolve(&tree, &given);
        let unresolved =
            unresolved.into_iter().filter(|unresolved| given(&unresolved.path).is_none()).collect();
        Settings { tree, arguments, unresolved }
    }

    /// Values of some sections whose references could not be put in place, and are taken for absent.
    pub(crate) fn unresolved<'a>(&'a self, sections: &'a [&str]) -> impl Iterator<Item = &'a Unresolved> {
        self.unresolved
            .iter()
            .filter(|unresolved| unresolved.path.split('.').next().is_some_and(|top| sections.contains(&top)))
    }

    /// The value at a dotted path, as text; none where it is absent, null or `none`.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.word(path).filter(|text| !text.eq_ignore_ascii_case("none") && text != "null")
    }

    /// The value at a dotted path, as text, `none` among others; none where it is absent or null.
    pub(crate) fn word(&self, path: &str) -> Option<String> {
        let text = match self.arguments.values(&path.replace('_', "-")) {
            Some(values) => values.first().cloned().unwrap_or_else(|| "true".to_owned()),
            None if self.arguments.has(&negated(path)) => "false".to_owned(),
            None => match self.value(path)? {
                Value::String(text) => text.clone(),
                Value::Null => return None,
                other => other.to_string(),
            },
        };
        (!text.is_empty()).then_some(text)
    }

    /// The first of several paths that says something.
    pub(crate) fn first(&self, paths: &[&str]) -> Option<String> {
        paths.iter().find_map(|path| self.text(path))
    }

    /// Options of the command line as paths, with their values; of one that turns something off, what that is.
    pub(crate) fn options(&self) -> impl Iterator<Item = (String, String)> {
        self.arguments.names().map(|name| {
            let path = name.replace('-', "_");
            let value = self.arguments.word(name).unwrap_or_else(|| "true".to_owned());
            match path.rsplit_once(".no_") {
                Some((section, off)) if self.arguments.flag(name) && value == "true" => {
                    (format!("{section}.{off}"), "false".to_owned())
                }
                _ => (path, value),
            }
        })
    }

    /// The tree, without what the command line puts above it.
    pub(crate) fn tree(&self) -> &Value {
        &self.tree
    }

    /// What the tree has at a path.
    pub(crate) fn value(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.tree, |tree, name| tree.get(name))
    }

    /// A whole number of at least 1; -1 and 0, which mean that the framework chooses, are none.
    ///
    /// # Errors
    /// When it is no number.
    pub(crate) fn size(&self, path: &str) -> Result<Option<u64>, String> {
        Ok(self.whole(path)?.filter(|number| *number >= 1))
    }

    /// A whole number; one below 0, which means that the framework chooses, is none.
    ///
    /// # Errors
    /// When it is no number.
    pub(crate) fn whole(&self, path: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.text(path) else { return Ok(None) };
        let digits = plain_digits(&text);
        if let Ok(number) = digits.parse() {
            return Ok(Some(number));
        }
        match digits.parse::<f64>() {
            Ok(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                Ok((number >= 0.0).then_some(number as u64))
            }
            _ => Err(format!("{path} is `{text}`, which is not a whole number")),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn real(&self, path: &str) -> Result<Option<f64>, String> {
        let Some(text) = self.text(path) else { return Ok(None) };
        match plain_digits(&text).parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(format!("{path} is `{text}`, which is not a number")),
        }
    }

    /// A yes or no; absent is no.
    pub(crate) fn flag(&self, path: &str) -> bool {
        self.text(path).is_some_and(|text| matches!(text.to_ascii_lowercase().as_str(), "true" | "1" | "yes"))
    }
}

/// `--section.no-name` turns `section.name` off.
fn negated(path: &str) -> String {
    let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
    format!("{section}.no-{name}").replace('_', "-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_count_more_than_the_tree() {
        let words: Vec<String> = ["t.py", "--a.seq-len", "8", "--a.on", "--b.no_off"]
            .iter()
            .map(|word| (*word).to_owned())
            .collect();
        let tree =
            json!({"a": {"seq_len": 4, "on": false, "n": -1, "x": "none", "y": 2.5}, "b": {"off": true}});
        let settings = Settings::new(tree, &words);
        assert_eq!(settings.size("a.seq_len"), Ok(Some(8)));
        let large = Settings::new(json!({}), &["--a.n".to_owned(), "10_000".to_owned()]);
        assert_eq!((large.whole("a.n"), large.real("a.n")), (Ok(Some(10_000)), Ok(Some(10_000.0))));
        assert_eq!(settings.size("a.n"), Ok(None));
        assert!(settings.size("a.y").is_err());
        assert_eq!(settings.text("a.x"), None);
        assert!(settings.flag("a.on") && !settings.flag("b.off") && !settings.flag("c.d"));
        assert_eq!(settings.first(&["c.d", "a.y"]).as_deref(), Some("2.5"));
    }
}
