//! What a module and the JavaScript around it call each other's functions, in few letters.
//!
//! wasm-bindgen's names are long and end in sixteen digits that nothing makes smaller, in the module and in its JavaScript: of the page
//! 8 KB once compressed, two thirds of a hundredth.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{ExportSection, ImportSection, Module};
use wasmparser::{Export, Imports, Parser, Payload};

/// What names begin with that wasm-bindgen made, and nobody outside uses.
const MADE: [&str; 3] = ["__wbg_", "__wbindgen_", "wasm_bindgen__"];

/// A module and its JavaScript with short names where both use a long one. They do what they did.
pub fn short(module: &[u8], script: &str) -> Result<(Vec<u8>, String)> {
    let words: HashSet<&str> = words(script).map(|(_, word)| word).collect();
    let mut free = (0..).map(|number| format!("${number:x}")).filter(|name| !words.contains(name.as_str()));
    let mut short = HashMap::new();
    let shared = shared(module).context("reading what it imports and exports")?;
    for long in shared.into_iter().filter(|long| words.contains(long)) {
        if !short.contains_key(long)
            && let Some(name) = free.next()
        {
            short.insert(long, name);
        }
    }
    let mut made = Module::new();
    let mut names = Names(&short);
    names.parse_core_module(&mut made, Parser::new(0), module).context("giving it short names")?;
    Ok((made.finish(), with(script, &short)))
}

/// Names of a module's imports and exports that wasm-bindgen made.
fn shared(module: &[u8]) -> Result<Vec<&str>> {
    let mut names = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    names.push(import?.name);
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    names.push(export?.name);
                }
            }
            _ => {}
        }
    }
    names.retain(|name| MADE.iter().any(|begins| name.starts_with(begins)));
    Ok(names)
}

/// Words of a script, with where they begin: what stands between other signs than letters, digits, `_` and `$`.
fn words(script: &str) -> impl Iterator<Item = (usize, &str)> {
    let of_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
    script.split(move |letter| !of_word(letter)).filter(|word| !word.is_empty()).map(|word| {
        let begins = word.as_ptr() as usize - script.as_ptr() as usize;
        (begins, word)
    })
}

/// A script with other words in place of these.
fn with(script: &str, others: &HashMap<&str, String>) -> String {
    let mut made = String::with_capacity(script.len());
    let mut end = 0;
    for (begins, word) in words(script) {
        if let Some(other) = others.get(word) {
            made.push_str(&script[end..begins]);
            made.push_str(other);
            end = begins + word.len();
        }
    }
    made.push_str(&script[end..]);
    made
}

/// Short names by long ones.
struct Names<'a>(&'a HashMap<&'a str, String>);

impl Names<'_> {
    fn of<'a>(&'a self, long: &'a str) -> &'a str {
        self.0.get(long).map_or(long, String::as_str)
    }
}

/// No error of its own.
type Done = Result<(), Error>;

impl Reencode for Names<'_> {
    type Error = std::convert::Infallible;

    fn parse_imports(&mut self, made: &mut ImportSection, imports: Imports) -> Done {
        let Imports::Single(_, import) = imports else { return utils::parse_imports(self, made, imports) };
        let kind = self.entity_type(import.ty)?;
        made.import(import.module, self.of(import.name), kind);
        Ok(())
    }

    fn parse_export(&mut self, made: &mut ExportSection, export: Export) -> Done {
        let kind = self.export_kind(export.kind)?;
        let index = self.external_index(export.kind, export.index)?;
        made.export(self.of(export.name), kind, index);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wasm_encoder::{
        CodeSection, EntityType, ExportKind, Function, FunctionSection, Instruction, TypeSection,
    };

    use super::*;

    /// Imports two functions, and exports one that calls the second, by two names.
    fn module() -> Vec<u8> {
        let mut types = TypeSection::new();
        types.ty().function([], []);
        let mut imports = ImportSection::new();
        imports.import("./page_bg.js", "__wbg_log_0123456789abcdef", EntityType::Function(0));
        imports.import("./page_bg.js", "__wbg_at_fedcba9876543210", EntityType::Function(0));
        let mut functions = FunctionSection::new();
        functions.function(0);
        let mut exports = ExportSection::new();
        exports.export("__wbindgen_start", ExportKind::Func, 2).export("answer", ExportKind::Func, 2);
        let mut code = CodeSection::new();
        let mut body = Function::new([]);
        body.instruction(&Instruction::Call(1)).instruction(&Instruction::End);
        code.function(&body);
        let mut module = Module::new();
        module.section(&types).section(&imports).section(&functions).section(&exports).section(&code);
        module.finish()
    }

    fn names(module: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        for payload in Parser::new(0).parse_all(module) {
            match payload.unwrap() {
                Payload::ImportSection(imports) => {
                    names.extend(imports.into_imports().map(|import| import.unwrap().name.to_owned()));
                }
                Payload::ExportSection(exports) => {
                    names.extend(exports.into_iter().map(|export| export.unwrap().name.to_owned()));
                }
                _ => {}
            }
        }
        names
    }

    #[test]
    fn both_sides_call_a_function_by_the_same_short_name() {
        let script = "const $1 = '\u{e9}'; x = { __wbg_log_0123456789abcdef: (a) => a.__wbg_ptr,\n\
            __wbg_at_fedcba9876543210() {} }; wasm.__wbindgen_start(); wasm.answer(); of__wbindgen_start;";
        let (module, script) = short(&module(), script).unwrap();
        assert_eq!(names(&module), ["$0", "$2", "$3", "answer"]);
        let expected = "const $1 = '\u{e9}'; x = { $0: (a) => a.__wbg_ptr,\n\
            $2() {} }; wasm.$3(); wasm.answer(); of__wbindgen_start;";
        assert_eq!(script, expected);
        wasmparser::Validator::new().validate_all(&module).unwrap();
    }

    #[test]
    fn a_name_that_one_side_alone_has_stays() {
        let (same, script) = short(&module(), "wasm.other();").unwrap();
        assert_eq!(names(&same), names(&module()));
        assert_eq!(script, "wasm.other();");
        assert!(short(b"text", "").is_err());
    }
}
