//! Names and shapes of the parameters of config.json files, for `tests/python/weight_map.py`: a JSON list of names and
//! configs on standard input, the same with the parameters on standard output.

use std::io::{Read, Write};

use planner::model::{import_hf, weights::map::whole_parameters};
use serde_json::{Map, Value, json};

fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("standard input is text");
    let models: Vec<(String, Map<String, Value>)> = serde_json::from_str(&text).expect("names and configs");
    let mut found = Vec::new();
    for (name, config) in models {
        let imported = import_hf(&config);
        let model = imported.architecture.unwrap_or_else(|| panic!("{name}: {:?}", imported.findings));
        found.push(json!([name, config, whole_parameters(&model).expect("few enough")]));
    }
    writeln!(std::io::stdout(), "{}", Value::Array(found)).expect("standard output takes it");
}
