//! What is made of documents' ends, where a plan file says something of it.

use super::filler::Filler;
use crate::finding::Finding;
use crate::plan::Documents;
use crate::wire::DocumentsFile;

const EOD: &str = "run.documents.eod_token";
const RULE: &str = "documents packed into sequences";

/// Nothing is filled where nothing is said.
pub(super) fn fill_documents(fill: &mut Filler<'_>, words: u64, file: &mut DocumentsFile) -> Documents {
    if *file == DocumentsFile::default() {
        return Documents::default();
    }
    let documents = Documents {
        reset_positions: fill.usual("run.documents.reset_positions", &mut file.reset_positions),
        reset_attention: fill.usual("run.documents.reset_attention", &mut file.reset_attention),
        mask_eod_loss: fill.usual("run.documents.mask_eod_loss", &mut file.mask_eod_loss),
        eod_token: file.eod_token,
    };
    if let Some(token) = documents.eod_token {
        if token >= words {
            let message = format!(
                "{EOD} is {token}, and the model knows the words 0 to {}; give the token that the tokenizer puts behind a document",
                words.saturating_sub(1)
            );
            fill.findings.push(Finding::error(EOD, token, message).rule(RULE));
        } else if !documents.matter() {
            let message = "nothing is made of the ends of documents; set reset_positions, reset_attention or mask_eod_loss beside it";
            fill.findings.push(Finding::warning(EOD, token, message).rule(RULE));
        }
    }
    documents
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::parse::parse_plan;
    use crate::plan::Plan;
    use crate::rules::executor_limits;

    fn plan(run: &Value) -> Plan {
        let file = json!({
            "version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "cpu", "gpus_per_node": 1},
            "runtime": "native", "run": run,
        });
        Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap()
    }

    fn refused(run: &Value) -> Vec<(String, String)> {
        let limits = executor_limits(&plan(run));
        limits.into_iter().map(|limit| (limit.field, limit.message)).collect()
    }

    #[test]
    fn what_ends_a_document_must_be_known() {
        let resets = json!({"reset_positions": true});
        let of = |data: Value, documents: &Value| refused(&json!({"data": data, "documents": documents}));
        let text = json!({"kind": "text", "path": "a"});
        let megatron = json!({"kind": "megatron", "path": "b"});
        let blend = |other: &Value| json!({"kind": "blend", "parts": [{"weight": 1, "data": megatron}, {"weight": 1, "data": other}]});
        let known = json!({"mask_eod_loss": true, "eod_token": 0});
        for (data, documents, why) in [
            (json!({"kind": "synthetic"}), &resets, "made-up sequences"),
            (json!({"kind": "synthetic"}), &known, "made-up sequences"),
            (text.clone(), &resets, "run.documents.eod_token"),
            (blend(&text), &resets, "run.documents.eod_token"),
        ] {
            let found = of(data.clone(), documents);
            assert!(
                found.iter().any(|(field, said)| field == "run.data" && said.contains(why)),
                "{data}: {found:?}"
            );
        }
        for (data, documents) in [
            (text.clone(), &known),
            (megatron.clone(), &resets),
            (blend(&text), &known),
            (json!({"kind": "synthetic"}), &json!({})),
            (text, &json!({"reset_positions": false})),
        ] {
            assert_eq!(of(data, documents), []);
        }
        let held_out =
            json!({"data": megatron, "evaluation": {"data": {"kind": "synthetic"}}, "documents": resets});
        assert_eq!(refused(&held_out)[0].0, "run.evaluation.data");
    }

    #[test]
    fn a_token_that_is_no_word_or_of_no_use_is_said() {
        let findings = |documents: Value| {
            let file = json!({
                "version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100"}, "run": {"documents": documents},
            });
            let findings = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).findings;
            findings
                .into_iter()
                .filter(|finding| finding.field == EOD)
                .map(|finding| finding.message)
                .collect::<Vec<_>>()
        };
        let beyond = findings(json!({"reset_positions": true, "eod_token": 128_256}));
        assert!(beyond.len() == 1 && beyond[0].contains("words 0 to 128255"), "{beyond:?}");
        assert_eq!(findings(json!({"reset_positions": true, "eod_token": 128_255})), Vec::<String>::new());
        let unused = findings(json!({"eod_token": 1}));
        assert!(unused.len() == 1 && unused[0].contains("nothing is made"), "{unused:?}");
    }
}
