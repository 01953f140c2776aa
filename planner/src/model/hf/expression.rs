//! Expressions over the keys of a config.json, in which `families.txt` says what families call their sizes.
//!
//! A name is a role that was found before, `i` (the layer) or a key; a key that is absent or null makes everything that
//! hangs on it absent. `a|b` is the first that is there. `/` rounds down; `x<y`, `x=y` and `!x` are 1 or 0.
//! `if(c,a,b)`, `min(a,b)`, `max(a,b)`, `up(a,b)` (a to a multiple of b, rounded up), `has(key)`, `len(key)`,
//! `is(key,word)` (of a list its entry for the layer), `in(key,x)` (a list has x in it), `same(key,x)` (nothing else), `at(key,x)`
//! (its entry), `each(key,inner)` (what all objects in an object have for `inner`).

use serde_json::Value;

use super::reader::Reader;
use crate::units::decimal;

/// Deepest nesting of an expression.
const DEPTH: usize = 32;

/// What names stand for while an expression is read.
pub(super) struct Names<'a> {
    /// Roles that were found, by name.
    pub(super) roles: &'a [(&'static str, f64)],
    /// The layer, where one is meant.
    pub(super) layer: Option<u64>,
}

/// The value of an expression; none where a key that it needs is absent. `key` is the last key that was looked at.
pub(super) fn evaluate(reader: &mut Reader, names: &Names<'_>, text: &str, key: &mut String) -> Option<f64> {
    let mut parser = Parser { rest: text, reader, names, key, depth: 0 };
    parser.first_there()
}

struct Parser<'a, 'r> {
    rest: &'a str,
    reader: &'r mut Reader,
    names: &'r Names<'r>,
    key: &'r mut String,
    depth: usize,
}

impl<'a> Parser<'a, '_> {
    fn eat(&mut self, sign: char) -> bool {
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn first_there(&mut self) -> Option<f64> {
        let mut found = self.compared();
        while self.eat('|') {
            // What is not needed is not asked for: it would count as read.
            if found.is_some() {
                self.skip("|,");
            } else {
                found = self.compared();
            }
        }
        found
    }

    /// Goes on to the end of an alternative, or of an argument: to one of these signs outside of brackets.
    fn skip(&mut self, signs: &str) {
        let mut open = 0_i32;
        let end = self.rest.find(|sign: char| {
            open += i32::from(sign == '(') - i32::from(sign == ')');
            open < 0 || (open == 0 && signs.contains(sign))
        });
        self.rest = self.rest.get(end.unwrap_or(self.rest.len())..).unwrap_or_default();
    }

    fn compared(&mut self) -> Option<f64> {
        let one = self.sum();
        if self.eat('<') {
            let other = self.sum();
            return Some(f64::from(u8::from(one? < other?)));
        }
        if self.eat('=') {
            let other = self.sum();
            return Some(f64::from(u8::from(one? == other?)));
        }
        one
    }

    fn sum(&mut self) -> Option<f64> {
        let mut sum = self.product();
        loop {
            if self.eat('+') {
                let other = self.product();
                sum = sum.and_then(|sum| Some(sum + other?));
            } else if self.eat('-') {
                let other = self.product();
                sum = sum.and_then(|sum| Some((sum - other?).max(0.0)));
            } else {
                return sum;
            }
        }
    }

    fn product(&mut self) -> Option<f64> {
        let mut product = self.primary();
        loop {
            if self.eat('*') {
                let other = self.primary();
                product = product.and_then(|product| Some(product * other?));
            } else if self.eat('/') {
                let other = self.primary();
                product = product.and_then(|product| Some(libm::floor(product / other?.max(1.0))));
            } else if self.eat('%') {
                let other = self.primary();
                product = product.and_then(|product| Some(product % other?.max(1.0)));
            } else {
                return product;
            }
        }
    }

    fn primary(&mut self) -> Option<f64> {
        self.depth += 1;
        if self.depth > DEPTH {
            self.rest = "";
            return None;
        }
        let found = self.inner();
        self.depth -= 1;
        found
    }

    fn inner(&mut self) -> Option<f64> {
        if self.eat('!') {
            let value = self.primary();
            return value.map(|value| f64::from(u8::from(value == 0.0)));
        }
        if self.eat('(') {
            let value = self.first_there();
            self.eat(')');
            return value;
        }
        let word = self.word();
        if word.starts_with(|sign: char| sign.is_ascii_digit()) {
            return decimal(word);
        }
        if self.eat('(') {
            let value = self.function(word);
            self.eat(')');
            return value;
        }
        if word == "i" {
            return self.names.layer.map(|layer| layer as f64);
        }
        match self.names.roles.iter().find(|(role, _)| *role == word) {
            Some((_, value)) => Some(*value),
            None => self.number(word),
        }
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|sign: char| !(sign.is_ascii_alphanumeric() || matches!(sign, '_' | '.')));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn number(&mut self, key: &str) -> Option<f64> {
        key.clone_into(self.key);
        let value = self.value(key)?;
        let number = value.as_f64().or_else(|| value.as_bool().map(|flag| f64::from(u8::from(flag))));
        match number {
            Some(number) if number.is_finite() => Some(number),
            _ => {
                let top = key.split('.').next().unwrap_or(key);
                self.reader.wrong_type(top, "a number, or true or false");
                Some(1.0)
            }
        }
    }

    /// The value of a key, which may lie in another's object (`ffn_config.ffn_hidden_size`).
    fn value(&mut self, key: &str) -> Option<Value> {
        let mut parts = key.split('.');
        let mut value = self.reader.present(parts.next()?)?.clone();
        for part in parts {
            value = value.get(part).filter(|inner| !inner.is_null())?.clone();
        }
        Some(value)
    }

    fn function(&mut self, name: &str) -> Option<f64> {
        let flag = |flag: bool| Some(f64::from(u8::from(flag)));
        match name {
            "has" => {
                let key = self.word();
                flag(self.value(key).is_some())
            }
            "len" => {
                let key = self.word();
                self.value(key)?.as_array().map(|items| items.len() as f64)
            }
            "each" => {
                let key = self.word();
                self.eat(',');
                let inner = self.word();
                let value = self.value(key)?;
                let mut found =
                    value.as_object()?.values().map(|entry| entry.get(inner).and_then(Value::as_f64));
                let first = found.next()?;
                if found.any(|other| other != first) {
                    let message = format!(
                        "layers differ in `{inner}` of `{key}` from one another, which can't be planned"
                    );
                    self.reader.refuse(key, "parts of models that are not planned", message);
                }
                first
            }
            "is" => {
                let key = self.word();
                self.eat(',');
                let word = self.word();
                let value = self.value(key);
                let value = match &value {
                    // A list that is shorter than the model comes again.
                    Some(Value::Array(items)) => {
                        let layer = usize::try_from(self.names.layer?).ok()?;
                        items.get(layer.checked_rem(items.len())?)
                    }
                    other => other.as_ref(),
                };
                flag(value.and_then(Value::as_str) == Some(word))
            }
            "in" | "at" | "same" => {
                let key = self.word();
                self.eat(',');
                let wanted = self.first_there()?;
                let value = self.value(key)?;
                let numbers: Vec<f64> = value.as_array()?.iter().map(as_number).collect();
                match name {
                    "in" => flag(numbers.contains(&wanted)),
                    "same" => flag(numbers.iter().all(|&number| number == wanted)),
                    _ => numbers.get(wanted as usize).copied(),
                }
            }
            "if" => {
                // A switch that is absent is off.
                let on = self.first_there().is_some_and(|condition| condition != 0.0);
                self.eat(',');
                if on {
                    let chosen = self.first_there();
                    self.eat(',');
                    self.skip(",");
                    chosen
                } else {
                    self.skip(",");
                    self.eat(',');
                    self.first_there()
                }
            }
            _ => {
                let one = self.first_there();
                self.eat(',');
                let other = self.first_there();
                let (one, other) = (one?, other?);
                match name {
                    "min" => Some(one.min(other)),
                    "max" => Some(one.max(other)),
                    "up" => Some(libm::ceil(one / other.max(1.0)) * other),
                    _ => None,
                }
            }
        }
    }
}

/// A number of a list; what is none stands out as negative.
fn as_number(value: &Value) -> f64 {
    value.as_f64().or_else(|| value.as_bool().map(|flag| f64::from(u8::from(flag)))).unwrap_or(-1.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions_are_read_as_written() {
        let config = json!({
            "each": {"0": {"x": 2, "y": 1}, "1": {"x": 2, "y": 1}}, "a": 6, "b": 4, "yes": true, "no": null, "list": [1, 0, 3], "words": ["x", "y"], "word": "x", "in": {"c": 5},
        });
        let check = |text: &str, layer: Option<u64>, expected: Option<f64>| {
            let mut reader = Reader::new(config.as_object().unwrap().clone());
            let names = Names { roles: &[("hidden", 8.0)], layer };
            assert_eq!(evaluate(&mut reader, &names, text, &mut String::new()), expected, "{text}");
        };
        check("a+b*2", None, Some(14.0));
        check("(a+b)*2-hidden", None, Some(12.0));
        check("a/b", None, Some(1.0));
        check("a%b", None, Some(2.0));
        check("b-a", None, Some(0.0));
        check("no|absent|hidden/2", None, Some(4.0));
        check("absent*2|7", None, Some(7.0));
        check("absent+1", None, None);
        check("yes", None, Some(1.0));
        check("!yes", None, Some(0.0));
        check("a<b", None, Some(0.0));
        check("i<b", Some(3), Some(1.0));
        check("in.c", None, Some(5.0));
        check("at(list,i)", Some(2), Some(3.0));
        check("in(list,i)", Some(2), Some(0.0));
        check("is(words,y)", Some(1), Some(1.0));
        check("is(word,x)", None, Some(1.0));
        check("is(absent,x)", None, Some(0.0));
        check("if(has(no),a,max(a,up(9,4)))", None, Some(12.0));
        check("if(yes,(a|b),nothing)", None, Some(6.0));
        check("same(list,1)", None, Some(0.0));
        check("if(absent,(a|b),if(no,a,b))", None, Some(4.0));
        check("if(no,a|b,hidden)", None, Some(8.0));
        check("len(list)|2", None, Some(3.0));
        check("each(each,x)+each(each,y)", None, Some(3.0));
        check("each(each,z)|7", None, Some(7.0));
    }
}
