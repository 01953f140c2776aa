//! OmegaConf's references between keys of a configuration, `${section.name}`, put in place.
//!
//! The grammar is omry/omegaconf's (`docs/source/grammar.rst`, 2.3): a path from the top, or with leading dots from the
//! section that the reference stands in; `[0]` and `.0` for entries of a list; `\${` for the characters themselves. What
//! a resolver such as `oc.env` would give is known on the machine of the run only.

use serde_json::Value;

/// References behind references.
const DEEPEST: usize = 16;
/// References that are followed in one configuration.
const MOST: usize = 4096;

/// A value that could not be worked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unresolved {
    /// Its dotted path.
    pub path: String,
    /// What stands there.
    pub text: String,
    /// Why, as a clause.
    pub why: String,
}

/// The tree with its references put in place. `given` is what a command line puts above a path. What can't be worked out
/// is null, and told.
pub(super) fn resolve(tree: &Value, given: &dyn Fn(&str) -> Option<String>) -> (Value, Vec<Unresolved>) {
    let mut resolver = Resolver { tree, given, left: MOST };
    let mut unresolved = Vec::new();
    let resolved = resolver.copy(tree, &mut Vec::new(), &mut unresolved);
    (resolved, unresolved)
}

struct Resolver<'a> {
    tree: &'a Value,
    given: &'a dyn Fn(&str) -> Option<String>,
    left: usize,
}

impl Resolver<'_> {
    fn copy(&mut self, value: &Value, path: &mut Vec<String>, unresolved: &mut Vec<Unresolved>) -> Value {
        let mut inner = |resolver: &mut Self, name: String, value: &Value| {
            path.push(name);
            let value = resolver.copy(value, path, unresolved);
            path.pop();
            value
        };
        match value {
            Value::Object(map) => {
                map.iter().map(|(name, value)| (name.clone(), inner(self, name.clone(), value))).collect()
            }
            Value::Array(list) => {
                list.iter().enumerate().map(|(at, value)| inner(self, at.to_string(), value)).collect()
            }
            Value::String(text) if text.contains("${") => match self.text(text, path, 0) {
                Ok(value) => value,
                Err(why) => {
                    unresolved.push(Unresolved { path: path.join("."), text: text.clone(), why });
                    Value::Null
                }
            },
            other => other.clone(),
        }
    }

    /// A text with references; one that is nothing but a reference keeps the type of what it refers to.
    fn text(&mut self, text: &str, path: &[String], depth: usize) -> Result<Value, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, behind) = (&rest[..at], &rest[at + 2..]);
            if let Some(before) = before.strip_suffix('\\') {
                out.push_str(before);
                out.push_str("${");
                rest = behind;
                continue;
            }
            out.push_str(before);
            let end = behind.find('}').ok_or("it has no closing brace")?;
            let value = self.reference(behind[..end].trim(), path, depth)?;
            rest = &behind[end + 1..];
            if out.is_empty() && rest.is_empty() {
                return Ok(value);
            }
            match value {
                Value::String(value) => out.push_str(&value),
                Value::Object(_) | Value::Array(_) => return Err("it puts a section into a text".to_owned()),
                other => out.push_str(&other.to_string()),
            }
        }
        out.push_str(rest);
        Ok(Value::String(out))
    }

    fn reference(&mut self, inside: &str, path: &[String], depth: usize) -> Result<Value, String> {
        if inside.contains("${") {
            return Err("a reference inside a reference is not read".to_owned());
        }
        if let Some((resolver, argument)) = inside.split_once(':') {
            let argument = argument.split(',').next().unwrap_or_default().trim();
            return Err(match resolver.trim() {
                "oc.env" => format!(
                    "it is the environment variable {argument} of the run, which is not known here; give the value \
                     on the command line"
                ),
                other => format!(
                    "what the resolver {other} gives is not known here; give the value on the command line"
                ),
            });
        }
        if depth >= DEEPEST || self.left == 0 {
            return Err("its references go in a circle, or are too many".to_owned());
        }
        self.left -= 1;
        let target = absolute(inside, path).ok_or("it refers to nothing above the top")?;
        let dotted = target.join(".");
        if let Some(given) = (self.given)(&dotted) {
            return Ok(serde_json::from_str(&given).unwrap_or(Value::String(given)));
        }
        let found = target.iter().try_fold(self.tree, |tree, name| match tree {
            Value::Array(list) => list.get(name.parse::<usize>().ok()?),
            other => other.get(name),
        });
        match found {
            None => Err(format!("there is no key {dotted}")),
            Some(Value::String(text)) if text.contains("${") => {
                let text = text.clone();
                self.text(&text, &target, depth + 1)
            }
            // References of a section's own stay what they are: they are put in place where the section stands.
            Some(Value::Object(_) | Value::Array(_)) if path.starts_with(&target) => {
                Err("it refers to what it stands in".to_owned())
            }
            Some(value) => Ok(value.clone()),
        }
    }
}

/// The path that a reference means, seen from the value at `path`.
fn absolute(reference: &str, path: &[String]) -> Option<Vec<String>> {
    let dots = reference.bytes().take_while(|&byte| byte == b'.').count();
    let mut target: Vec<String> = match dots {
        0 => Vec::new(),
        up => path.get(..path.len().checked_sub(up)?)?.to_vec(),
    };
    let names = reference[dots..].split(['.', '[', ']']).map(str::trim).filter(|name| !name.is_empty());
    target.extend(names.map(str::to_owned));
    (!target.is_empty()).then_some(target)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn both(tree: Value) -> (Value, Vec<Unresolved>) {
        resolve(&tree, &|path| (path == "given").then(|| "7".to_owned()))
    }

    #[track_caller]
    fn check(tree: Value, path: &str, expected: Value) {
        let (resolved, unresolved) = both(tree);
        assert_eq!(resolved.pointer(path), Some(&expected), "{unresolved:?}");
        assert!(unresolved.is_empty(), "{unresolved:?}");
    }

    #[track_caller]
    fn refused(tree: Value, path: &str, why: &str) {
        let (resolved, unresolved) = both(tree);
        let first = unresolved.first().expect("something is not resolved");
        assert!(first.path == path && first.why.contains(why), "{unresolved:?}");
        assert_eq!(resolved.pointer(&format!("/{}", path.replace('.', "/"))), Some(&Value::Null));
    }

    #[test]
    fn references_are_put_in_place() {
        check(json!({"a": {"b": 4}, "c": "${a.b}"}), "/c", json!(4));
        check(json!({"a": "${b}", "b": "${c}", "c": true}), "/a", json!(true));
        check(json!({"d": {"x": 2, "y": "${.x}", "z": {"w": "${..x}"}}}), "/d/y", json!(2));
        check(json!({"d": {"x": 2, "z": {"w": "${..x}"}}}), "/d/z/w", json!(2));
        check(json!({"n": "llama", "s": 8, "p": "/m/${n}-${s}b"}), "/p", json!("/m/llama-8b"));
        check(json!({"l": [1, 2], "x": "${l[1]}"}), "/x", json!(2));
        check(json!({"x": "\\${literal}"}), "/x", json!("${literal}"));
        check(json!({"x": "${given}"}), "/x", json!(7));
        check(json!({"a": {"b": 1}, "x": "${a}"}), "/x/b", json!(1));
    }

    #[test]
    fn what_is_not_known_is_told() {
        refused(json!({"x": "${oc.env:SEQ_LEN}"}), "x", "environment variable SEQ_LEN");
        refused(json!({"x": "${oc.env:SEQ_LEN, 8}"}), "x", "environment variable SEQ_LEN");
        refused(json!({"a": {"x": "${now:%H}"}}), "a.x", "resolver now");
        refused(json!({"x": "${y}"}), "x", "no key y");
        refused(json!({"x": "${x}"}), "x", "in a circle");
        refused(json!({"x": "${y}", "y": "${x}"}), "x", "in a circle");
        refused(json!({"x": "${a.${b}}", "b": "c"}), "x", "inside a reference");
        refused(json!({"x": "${a"}), "x", "closing brace");
        refused(json!({"x": "p-${a}", "a": {"b": 1}}), "x", "section into a text");
        refused(json!({"a": {"x": "${a}"}}), "a.x", "what it stands in");
        refused(json!({"x": "${..y}"}), "x", "above the top");
    }
}
