//! Functions of a module beside those that are like them.
//!
//! wasm-bindgen writes functions from the largest to the smallest. Where those with much in common stand side by side, as most of what was
//! compiled of one generic function does, gzip finds it: the page's module is 3.4 % smaller when it is sent than in the order of types, ends and
//! lengths, and in that it was 5 % smaller than as wasm-bindgen writes it.

use anyhow::{Context, Result, ensure};
use wasm_encoder::reencode::{Error, Reencode};
use wasm_encoder::{CodeSection, FunctionSection, Module, NameMap, NameSection};
use wasmparser::{CodeSectionReader, FunctionSectionReader, Name, Parser, Payload, TypeRef};

use crate::alike;

/// The module with its functions in that order. It does what it did.
pub fn ordered(module: &[u8]) -> Result<Vec<u8>> {
    let mut order = Order::of(module).context("reading its functions")?;
    let mut made = Module::new();
    order.parse_core_module(&mut made, Parser::new(0), module).context("putting its functions in order")?;
    Ok(made.finish())
}

/// An order of the functions that a module has itself.
struct Order {
    /// Functions before them, which it imports.
    imported: u32,
    /// Their places as they were, in the new order.
    from: Vec<usize>,
    /// The new place of each.
    to: Vec<u32>,
}

impl Order {
    fn of(module: &[u8]) -> Result<Order> {
        let (mut imported, mut types, mut bodies) = (0, Vec::new(), Vec::new());
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        imported += u32::from(matches!(import?.ty, TypeRef::Func(_) | TypeRef::FuncExact(_)));
                    }
                }
                Payload::FunctionSection(functions) => {
                    types = functions.into_iter().collect::<Result<_, _>>()?;
                }
                Payload::CodeSectionEntry(body) => bodies.push(body.as_bytes()),
                _ => {}
            }
        }
        ensure!(types.len() == bodies.len(), "{} functions have {} bodies", types.len(), bodies.len());
        let from = alike::order(&bodies);
        let mut to = vec![0; from.len()];
        for (place, &was) in (0..).zip(&from) {
            to[was] = place;
        }
        Ok(Order { imported, from, to })
    }
}

/// No error of its own.
type Done = Result<(), Error>;

impl Reencode for Order {
    type Error = std::convert::Infallible;

    fn function_index(&mut self, function: u32) -> Result<u32, Error> {
        let own = function.checked_sub(self.imported).and_then(|own| self.to.get(own as usize));
        Ok(own.map_or(function, |place| self.imported + place))
    }

    fn parse_function_section(&mut self, made: &mut FunctionSection, section: FunctionSectionReader) -> Done {
        let types = section.into_iter().collect::<Result<Vec<_>, _>>()?;
        for &was in &self.from {
            made.function(types[was]);
        }
        Ok(())
    }

    fn parse_code_section(&mut self, made: &mut CodeSection, section: CodeSectionReader) -> Done {
        let bodies = section.into_iter().collect::<Result<Vec<_>, _>>()?;
        for was in self.from.clone() {
            self.parse_function_body(made, bodies[was].clone())?;
        }
        Ok(())
    }

    /// Names stand in the order of what they name.
    fn parse_custom_name_subsection(&mut self, made: &mut NameSection, section: Name) -> Done {
        let Name::Function(names) = section else { return Ok(()) };
        let mut known = Vec::new();
        for name in names {
            let name = name?;
            known.push((self.function_index(name.index)?, name.name));
        }
        known.sort_unstable();
        let mut names = NameMap::new();
        for (function, name) in known {
            names.append(function, name);
        }
        made.functions(&names);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wasm_encoder::{
        ConstExpr, ElementSection, Elements, EntityType, ExportKind, ExportSection, Function,
        FunctionSection, ImportSection, StartSection, TableSection, TableType, TypeSection, ValType,
    };
    use wasmparser::{ElementItems, Operator, Validator};

    use super::*;

    /// Functions that give 5, 6 and 7, one that calls the second of them, and nothing, by name, start and table.
    fn module() -> Vec<u8> {
        let mut types = TypeSection::new();
        types.ty().function([], []);
        types.ty().function([], [ValType::I32]);
        let mut imports = ImportSection::new();
        imports.import("page", "imported", EntityType::Function(0));
        let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
        let mut add = |ty, write: &dyn Fn(&mut Function)| {
            functions.function(ty);
            let mut function = Function::new([]);
            write(&mut function);
            function.instructions().end();
            code.function(&function);
        };
        for number in [7, 6, 5] {
            add(1, &|function| {
                function.instructions().i32_const(number);
            });
        }
        add(0, &|function| {
            function.instructions().call(2).drop().call(0);
        });
        let mut tables = TableSection::new();
        let (element_type, minimum) = (wasm_encoder::RefType::FUNCREF, 2);
        tables.table(TableType { element_type, minimum, maximum: None, table64: false, shared: false });
        let mut exports = ExportSection::new();
        for (name, function) in [("seven", 1), ("six", 2), ("five", 3), ("calls", 4), ("imported", 0)] {
            exports.export(name, ExportKind::Func, function);
        }
        let mut elements = ElementSection::new();
        elements.active(None, &ConstExpr::i32_const(0), Elements::Functions([3, 0].as_slice().into()));
        let mut names = NameMap::new();
        for (function, name) in [(0, "imported"), (1, "seven"), (2, "six"), (3, "five"), (4, "calls")] {
            names.append(function, name);
        }
        let mut name_section = NameSection::new();
        name_section.functions(&names);
        let mut module = Module::new();
        module.section(&types).section(&imports).section(&functions).section(&tables).section(&exports);
        module
            .section(&StartSection { function_index: 4 })
            .section(&elements)
            .section(&code)
            .section(&name_section);
        module.finish()
    }

    /// What each function does, by the places at which functions stand; what names, exports, start and table say of them.
    fn told(module: &[u8]) -> (Vec<String>, Vec<String>) {
        Validator::new().validate_all(module).unwrap();
        let (mut does, mut said) = (vec!["imported".to_owned()], Vec::new());
        for payload in Parser::new(0).parse_all(module) {
            match payload.unwrap() {
                Payload::CodeSectionEntry(body) => {
                    let operators = body.get_operators_reader().unwrap().into_iter().map(Result::unwrap);
                    let words = operators.map(|operator| match operator {
                        Operator::I32Const { value } => value.to_string(),
                        Operator::Call { function_index } => format!("call {function_index}"),
                        _ => String::new(),
                    });
                    does.push(words.collect::<Vec<_>>().join(" "));
                }
                Payload::ExportSection(exports) => {
                    said.extend(
                        exports
                            .into_iter()
                            .map(Result::unwrap)
                            .map(|one| format!("{} {}", one.name, one.index)),
                    );
                }
                Payload::StartSection { func, .. } => said.push(format!("start {func}")),
                Payload::ElementSection(elements) => {
                    for element in elements {
                        let ElementItems::Functions(functions) = element.unwrap().items else { panic!() };
                        said.extend(
                            functions.into_iter().map(|function| format!("table {}", function.unwrap())),
                        );
                    }
                }
                Payload::CustomSection(section) => {
                    let wasmparser::KnownCustom::Name(names) = section.as_known() else { panic!() };
                    for names in names {
                        let Name::Function(names) = names.unwrap() else { panic!() };
                        said.extend(
                            names
                                .into_iter()
                                .map(Result::unwrap)
                                .map(|one| format!("{} {}", one.name, one.index)),
                        );
                    }
                }
                _ => {}
            }
        }
        (does, said)
    }

    #[test]
    fn functions_change_places_and_whoever_names_one_still_does() {
        let (does, said) = told(&module());
        assert_eq!(does, ["imported", "7 ", "6 ", "5 ", "call 2  call 0 "]);
        let all = ["seven 1", "six 2", "five 3", "calls 4", "imported 0", "start 4", "table 3", "table 0"];
        assert_eq!(said, [&all[..], &["imported 0", "seven 1", "six 2", "five 3", "calls 4"]].concat());

        // The longest is first now.
        let (does, said) = told(&ordered(&module()).unwrap());
        assert_eq!(does, ["imported", "call 3  call 0 ", "7 ", "6 ", "5 "]);
        let all = ["seven 2", "six 3", "five 4", "calls 1", "imported 0", "start 1", "table 4", "table 0"];
        assert_eq!(said, [&all[..], &["imported 0", "calls 1", "seven 2", "six 3", "five 4"]].concat());
    }

    #[test]
    fn what_is_no_module_is_an_error() {
        assert!(ordered(b"\0asm").is_err());
        assert!(ordered(b"\0asm\x01\0\0\0\x03\x02\x01").is_err());
    }
}
