use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;

/// A tokenizer of single words, whose file says that texts are cut and padded.
fn vocabulary(folder: &Path, words: usize) -> Vocabulary {
    let mut vocab: serde_json::Map<String, Value> =
        (0..words - 2).map(|number| (format!("w{number}"), json!(number))).collect();
    vocab.insert("[UNK]".to_owned(), json!(words - 2));
    let special = json!({"id": words - 1, "content": "<eod>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    let tokenizer = json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "w0"},
        "added_tokens": [special],
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<eod>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<eod>": {"id": "<eod>", "ids": [words - 1], "tokens": ["<eod>"]}}
        },
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}
    });
    let path = folder.join("tokenizer.json");
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    Vocabulary::open(&path).unwrap()
}

struct Case {
    folder: tempfile::TempDir,
    vocabulary: Vocabulary,
}

impl Case {
    fn new(words: usize) -> Case {
        let folder = tempfile::tempdir().unwrap();
        let vocabulary = vocabulary(folder.path(), words);
        Case { folder, vocabulary }
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> Input {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        Input::File(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tokenize(&self, inputs: &[Input], change: impl Fn(&mut Tokenize<'_>)) -> anyhow::Result<Summary> {
        let to = self.path("out");
        let mut wanted = Tokenize {
            inputs,
            vocabulary: &self.vocabulary,
            to: &to,
            field: "text",
            end: None,
            special_tokens: false,
            skip_bad: false,
            threads: Some(3),
        };
        change(&mut wanted);
        tokenize(&wanted, |_| {})
    }

    fn outputs(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("out")).collect()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }
}

#[test]
fn files_are_megatrons_to_the_byte() {
    let case = Case::new(100);
    let lines = "\u{feff}{\"text\": \"w7 w1 w300\", \"more\": [1]}\r\n\n{\"text\": \"\"}\n{\"text\": \"w2\"}";
    let inputs = [case.file("one.jsonl", lines), case.file("two.txt", "w3 w4\nw5\n")];
    let summary = case.tokenize(&inputs, |wanted| wanted.end = Some(99)).unwrap();
    let expected = Summary { documents: 3, tokens: 10, largest: 99, bytes: 20, empty: 1, ..summary };
    assert_eq!(summary, expected);
    assert_eq!(summary.read, lines.len() as u64 + 9);
    let tokens: [u16; 10] = [7, 1, 98, 99, 2, 99, 3, 4, 5, 99];
    assert_eq!(case.read("out.bin"), tokens.map(u16::to_le_bytes).concat());
    let mut index = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0".to_vec();
    index.extend([4_i32, 2, 4].map(i32::to_le_bytes).concat());
    index.extend([0_i64, 8, 12, 0, 1, 2, 3].map(i64::to_le_bytes).concat());
    assert_eq!(case.read("out.idx"), index);
    assert_eq!(case.outputs().len(), 2, "{:?}", case.outputs());
}

#[test]
fn large_vocabularies_have_four_bytes() {
    for (words, code) in [(65_499, 8), (65_500, 4)] {
        let case = Case::new(words);
        let input = [case.file("in.jsonl", "{\"text\": \"w5 w65000\"}")];
        case.tokenize(&input, |wanted| wanted.special_tokens = true).unwrap();
        assert_eq!(case.read("out.idx")[17], code);
        let tokens = [words as u32 - 1, 5, 65_000];
        let expected = match code {
            8 => tokens.map(|token| (token as u16).to_le_bytes()).concat(),
            _ => tokens.map(u32::to_le_bytes).concat(),
        };
        assert_eq!(case.read("out.bin"), expected);
    }
}

const DOCUMENTS: usize = 1000;
/// Of an index.
const HEADER_BYTES: usize = 34;

#[test]
fn documents_stay_in_their_order_whatever_the_threads() {
    let case = Case::new(1000);
    let mut lines = String::new();
    for number in 0..DOCUMENTS as u32 {
        let length = 1 + number.wrapping_mul(2_654_435_761) % 60;
        let words: Vec<String> = (0..length).map(|at| format!("w{}", (number + at) % 900)).collect();
        lines += &(json!({"id": number, "body": words.join(" ")}).to_string() + "\n");
    }
    assert!(lines.len() > 20 * documents::BATCH);
    let inputs = [case.file("in.jsonl", &lines)];
    let mut files = Vec::new();
    for threads in [1, 2, 7] {
        let summary = case.tokenize(&inputs, |wanted| {
            (wanted.threads, wanted.field) = (Some(threads), "body");
        });
        assert_eq!(summary.unwrap().documents, DOCUMENTS as u64);
        files.push((case.read("out.bin"), case.read("out.idx")));
        std::fs::remove_file(case.path("out.bin")).unwrap();
        std::fs::remove_file(case.path("out.idx")).unwrap();
    }
    assert!(files.iter().all(|one| *one == files[0]));
    // The first token of each document says which it is.
    let (tokens, index) = &files[0];
    for number in 0..DOCUMENTS {
        let at = HEADER_BYTES + 4 * DOCUMENTS + 8 * number;
        let start = i64::from_le_bytes(index[at..at + 8].try_into().unwrap()) as usize;
        assert_eq!(u16::from_le_bytes([tokens[start], tokens[start + 1]]) as usize, number % 900);
    }
}

#[test]
fn what_is_no_document_is_named_or_skipped() {
    for (bad, expected) in [
        (&b"{\"text\": \"w1\""[..], "is no JSON"),
        (b"[1]", "is no JSON object"),
        (b"{\"body\": \"w1\"}", "there is no field \"text\" (it has body); --field names another"),
        (b"{\"text\": 5}", "the field \"text\" is a number, not a string"),
        (b"{\"text\": null}", "is null, not a string"),
        (b"{\"text\": \"\xff\"}", "is not UTF-8 from its byte 11 on"),
        (b"{\"text\": \"\\ud800\"}", "is no JSON"),
    ] {
        let case = Case::new(100);
        let lines = [b"{\"text\": \"w1\"}\n\n", bad, b"\n{\"text\": \"w2 w3\"}\n"].concat();
        let inputs = [case.file("in.jsonl", lines)];
        let error = format!("{:#}", case.tokenize(&inputs, |_| {}).unwrap_err());
        assert!(error.contains("in.jsonl, line 3: ") && error.contains(expected), "{expected}: {error}");
        assert_eq!(case.outputs(), Vec::<String>::new());
        let summary = case.tokenize(&inputs, |wanted| wanted.skip_bad = true).unwrap();
        assert_eq!((summary.documents, summary.tokens, summary.skipped), (2, 3, 1));
    }
    let case = Case::new(100);
    let inputs = [case.file("in.txt", b"w1\nw2\nw3 \xff w4")];
    let error = format!("{:#}", case.tokenize(&inputs, |_| {}).unwrap_err());
    assert!(error.contains("in.txt: the file is not UTF-8 in line 3, at its byte 10"), "{error}");
}

#[test]
fn what_is_in_the_way_is_said_and_nothing_is_left() {
    let case = Case::new(100);
    let good = case.file("in.jsonl", "{\"text\": \"w1\"}");
    let refused = |inputs: &[Input], to: &str, expected: &str| {
        let to = case.path(to);
        let error = case.tokenize(inputs, |_| {});
        let error = error.and_then(|_| {
            std::fs::remove_file(case.path("out.bin"))?;
            std::fs::remove_file(case.path("out.idx"))?;
            let wanted = Tokenize {
                inputs,
                vocabulary: &case.vocabulary,
                to: &to,
                field: "text",
                end: None,
                special_tokens: false,
                skip_bad: false,
                threads: None,
            };
            tokenize(&wanted, |_| {})
        });
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains(expected), "{expected}: {error}");
    };
    refused(&[Input::File(case.path("missing.jsonl"))], "out", "missing.jsonl can't be read");
    refused(&[good.clone(), Input::File(case.path(""))], "out", "is a folder; name the files in it");
    refused(&[case.file("empty.jsonl", "\n\n")], "out", "there is no document with a token");
    refused(std::slice::from_ref(&good), "", "is a folder; give the beginning of the files' names");
    case.file("taken", "");
    refused(std::slice::from_ref(&good), "taken/data", "making ");
    assert_eq!(case.outputs(), Vec::<String>::new());
    for taken in ["out.bin", "out.idx"] {
        std::fs::write(case.path(taken), "kept").unwrap();
        let error = case.tokenize(std::slice::from_ref(&good), |_| {}).unwrap_err().to_string();
        assert!(error.contains(taken) && error.contains("is there already"), "{error}");
        assert_eq!(case.outputs(), [taken]);
        std::fs::remove_file(case.path(taken)).unwrap();
    }
}

#[test]
fn tokens_are_found_by_number_and_text() {
    let case = Case::new(100);
    assert_eq!(case.vocabulary.token("99"), Ok(99));
    assert_eq!(case.vocabulary.token("<eod>"), Ok(99));
    assert_eq!(case.vocabulary.token("w3"), Ok(3));
    assert_eq!(case.vocabulary.token("100"), Err("100 is no token: the tokenizer's are 0 to 99".to_owned()));
    let error = case.vocabulary.token("</s>").unwrap_err();
    assert_eq!(error, "\"</s>\" is no token of the tokenizer; its special tokens are <eod>");
    for (content, expected) in [("{}", "is no tokenizer.json"), ("w1", "is no tokenizer.json")] {
        std::fs::write(case.path("other.json"), content).unwrap();
        let error = Vocabulary::open(&case.path("other.json")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(Vocabulary::open(case.folder.path()).is_ok());
    let error = Vocabulary::open(&case.path("nowhere")).unwrap_err().to_string();
    assert!(error.contains("give the model's tokenizer.json"), "{error}");
}
