//! Totals of released models against the same models of Hugging Face's transformers.

use serde_json::Value;

use crate::model::{check_model, count, import_hf};

#[test]
fn totals_are_those_of_transformers() {
    let data: Value = serde_json::from_str(include_str!("../../../tests/data/hf_totals.json")).unwrap();
    let rows = data["rows"].as_array().unwrap();
    assert!(rows.len() >= 40, "{}", rows.len());
    let mut wrong = Vec::new();
    for row in rows {
        let imported = import_hf(row["config"].as_object().unwrap());
        let Some(architecture) = imported.architecture else {
            wrong.push(format!("{}: {:?}", row["name"], imported.findings));
            continue;
        };
        assert_eq!(check_model(&architecture), [], "{}", row["name"]);
        let total = count(&architecture).0;
        if Some(total) != row["total"].as_u64() {
            wrong.push(format!("{}: {total}, and it should be {}", row["name"], row["total"]));
        }
        // The same from a round trip through a plan file.
        let json = serde_json::to_string(&architecture).unwrap();
        assert_eq!(serde_json::from_str::<crate::model::Architecture>(&json).unwrap(), architecture);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
