//! Keys of a configuration, and of the command line above it, that nothing reads: a misspelt one would else hold its default
//! without a word.

use serde_json::Value;

use super::settings::Settings;
use super::write::Notes;

/// Why a key is told that nothing else is said of.
const LEFT_OUT: &str = "no plan has it, and it is left out";
/// Keys that are told one by one.
const MOST_TOLD: usize = 16;

/// What is known of a framework's keys; a key stands for all below it.
pub(crate) struct Keys {
    /// Keys that are read: options of the table's rows, and those that are read apart from it.
    pub(crate) read: Vec<&'static str>,
    /// Keys of logs, paths, data and kernels, which say nothing that a plan has.
    pub(crate) silent: &'static [&'static str],
    /// Keys that are told with what they are taken for.
    pub(crate) told: &'static [(&'static str, &'static str)],
    /// Values that say what holds without them.
    pub(crate) usual: &'static [(&'static str, &'static str)],
}

/// A key that nothing reads, and its value.
pub(crate) type Unread = (String, String);

impl Keys {
    /// The keys of a tree, but for some sections, that nothing reads; of a section of which nothing is read, its own.
    pub(crate) fn of_tree(&self, tree: &Value, is_left_out: &dyn Fn(&str) -> bool) -> Vec<Unread> {
        let mut unread = Vec::new();
        for (name, value) in tree.as_object().into_iter().flatten() {
            if !is_left_out(name) {
                self.leaves(name.clone(), value, &mut unread);
            }
        }
        unread
    }

    /// The options `--section.name` of a command line that nothing reads.
    pub(crate) fn of_options(&self, settings: &Settings) -> Vec<Unread> {
        let options = settings.options().filter(|(name, _)| name.contains('.'));
        options.filter(|(path, value)| self.is_unread(path, value)).collect()
    }

    /// Whether nothing reads a key, and its value turns something on.
    pub(crate) fn is_unread(&self, path: &str, value: &str) -> bool {
        let is_usual = self.usual.iter().any(|(key, usual)| *key == path && *usual == value);
        if is_usual || is_off(&Value::from(value)) || ["false", "null"].contains(&value) {
            return false;
        }
        !self.is_known(path)
    }

    /// Says which keys nothing reads, each with the one that it may be meant as.
    pub(crate) fn tell(&self, unread: &[Unread], notes: &mut Notes) {
        for (path, value) in unread.iter().take(MOST_TOLD) {
            let why = match self.told.iter().find(|(key, _)| is_below(path, key)) {
                Some((_, why)) => (*why).to_owned(),
                None => match self.nearest(path) {
                    Some(known) => format!("{LEFT_OUT}; did you mean {known}?"),
                    None => LEFT_OUT.to_owned(),
                },
            };
            notes.warn("arguments", &format!("{path} {value}"), &why);
        }
        if let Some(more) = unread.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
            notes.warn("arguments", &format!("{more} keys more"), LEFT_OUT);
        }
    }

    fn is_known(&self, path: &str) -> bool {
        // Classes are what their sections are of, and are read where they say something.
        if path.ends_with("._target_") || self.read.iter().any(|known| is_below(path, known)) {
            return true;
        }
        // In a section that says nothing a plan has, a key may still be one that is read, misspelt.
        self.silent.iter().any(|known| is_below(path, known))
            && (self.silent.contains(&path) || self.nearest(path).is_none())
    }

    fn leaves(&self, path: String, value: &Value, unread: &mut Vec<Unread>) {
        let text = value.to_string().trim_matches('"').to_owned();
        let is_usual = self.usual.iter().any(|(key, usual)| *key == path && *usual == text);
        if is_off(value) || is_usual || self.read.iter().any(|known| is_below(&path, known)) {
            return;
        }
        let is_inside =
            |known: &&&str| known.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('.'));
        let is_split = self.read.iter().chain(self.silent).any(|known| is_inside(&known))
            || self.told.iter().any(|(key, _)| *key == path && key.contains('.'));
        match value.as_object() {
            Some(section) if is_split => {
                for (name, value) in section {
                    self.leaves(format!("{path}.{name}"), value, unread);
                }
            }
            _ if self.is_known(&path) => {}
            Some(_) => unread.push((path, "section".to_owned())),
            None => unread.push((path, text)),
        }
    }

    /// The key that is read and that this one is nearly.
    pub(crate) fn nearest(&self, path: &str) -> Option<&'static str> {
        nearest(path, self.read.iter().copied())
    }
}

/// The one of some names that another is nearly: a letter or a few more, less, or other, as many as its last word is long for.
pub(crate) fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let word = name.rsplit('.').next().unwrap_or(name);
    let most = match word.len() {
        0..4 => return None,
        4..8 => 1,
        8..16 => 2,
        _ => 3,
    };
    let near = known.filter(|known| known.len().abs_diff(name.len()) <= most);
    let (far, known) = near.map(|known| (strsim::levenshtein(name, known), known)).min()?;
    (far <= most).then_some(known)
}

pub(crate) fn is_below(path: &str, key: &str) -> bool {
    path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a value turns nothing on.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text.eq_ignore_ascii_case("none"),
        Value::Array(list) => list.is_empty(),
        Value::Object(section) => {
            ["enabled", "enable"].iter().any(|name| section.get(*name) == Some(&Value::Bool(false)))
                || section.values().all(is_off)
        }
        Value::Bool(true) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEYS: fn() -> Keys = || Keys {
        read: vec!["a.tensor_parallel_degree", "a.lr", "b.local_batch_size"],
        silent: &["b", "a.folder"],
        told: &[],
        usual: &[("a.method", "allgather")],
    };

    #[test]
    fn a_key_that_nothing_reads_is_found_wherever_it_is() {
        let tree = json!({
            "a": {"tensor_parallel_degre": 8, "lr": 1, "folder": "x", "method": "allgather", "off": false},
            "b": {"local_batch_sze": 4, "anything": 1},
            "c": {"x": 1, "y": 2}, "d": {"enable": false, "x": 1},
        });
        let unread = KEYS().of_tree(&tree, &|_| false);
        let paths: Vec<&str> = unread.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["a.tensor_parallel_degre", "b.local_batch_sze", "c"]);
        assert_eq!(KEYS().nearest("a.tensor_parallel_degre"), Some("a.tensor_parallel_degree"));
        assert_eq!(KEYS().nearest("b.local_batch_sze"), Some("b.local_batch_size"));
        assert_eq!(KEYS().nearest("a.no_such_thing"), None);
        let words = ["--a.no-such", "4", "--a.lr", "3", "--b.on", "--a.no_folder", "--c"];
        let settings = Settings::new(json!({}), &words.map(str::to_owned));
        assert_eq!(KEYS().of_options(&settings), [("a.no_such".to_owned(), "4".to_owned())]);
    }
}
