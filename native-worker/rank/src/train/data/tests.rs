use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use planner::wire::{DataPart, TokenType};

use super::*;

#[test]
fn synthetic_samples_follow_the_rule_most_of_the_time() {
    let data = Data::open(&DataFile::Synthetic, 7, 100, 64).unwrap();
    let tokens = data.sample(3, 1000).unwrap();
    assert_eq!(tokens.len(), 1001);
    assert!(tokens.iter().all(|&token| (0..100).contains(&token)));
    let kept = tokens.windows(2).filter(|pair| pair[1] == (5 * pair[0] + 7) % 100).count();
    assert!((900..1000).contains(&kept), "{kept}");
    assert_eq!(tokens, data.sample(3, 1000).unwrap());
    assert_ne!(tokens, data.sample(4, 1000).unwrap());
}

fn text(content: &[u8], vocabulary: u64, sequence: u64) -> anyhow::Result<Vec<i64>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    Data::open(&DataFile::Text { path }, 7, vocabulary, sequence)?.sample(0, sequence)
}

#[test]
fn text_is_bytes() {
    let tokens = text(b"abcdefghij", 256, 4).unwrap();
    assert_eq!(tokens.len(), 5);
    assert!(tokens.windows(2).all(|pair| pair[1] == pair[0] + 1), "{tokens:?}");
}

#[test]
fn bad_text_is_named() {
    let error = text(&[200; 10], 128, 4).unwrap_err().to_string();
    assert!(error.contains("token 200") && error.contains("vocabulary of 128"), "{error}");
    let error = text(b"abcd", 256, 4).unwrap_err().to_string();
    assert!(error.contains("has 4 tokens") && error.contains("needs 5"), "{error}");
    let missing = Data::open(&DataFile::Text { path: "/nowhere/text".to_owned() }, 7, 256, 4);
    assert!(missing.err().unwrap().to_string().contains("/nowhere/text"));
}

/// `count` tokens of two bytes, each its own number.
fn numbered(folder: &Path, name: &str, first: u16, count: u16) -> PathBuf {
    let path = folder.join(name);
    let bytes: Vec<u8> = (first..first + count).flat_map(u16::to_le_bytes).collect();
    std::fs::write(&path, bytes).unwrap();
    path
}

fn of_file(path: &Path) -> DataFile {
    DataFile::Tokens { path: path.display().to_string(), dtype: TokenType::Uint16 }
}

#[test]
fn an_epoch_has_each_window_once_and_the_next_another_order() {
    let folder = tempfile::tempdir().unwrap();
    // Ten windows of 8 tokens and the one behind; three tokens are left over.
    let path = numbered(folder.path(), "tokens", 0, 84);
    let data = Data::open(&of_file(&path), 7, 1000, 8).unwrap();
    let firsts = |epoch: u64| -> Vec<i64> {
        (0..10).map(|place| data.sample(10 * epoch + place, 8).unwrap()[0]).collect()
    };
    let mut sorted = firsts(0);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..10).map(|window| 8 * window).collect::<Vec<_>>());
    assert_ne!(firsts(0), firsts(1));
    assert_ne!(firsts(0), (0..10).map(|window| 8 * window).collect::<Vec<_>>());
}

/// An index as Megatron-Core writes it.
fn index(lengths: &[i32], code: u8, each: i64) -> Vec<u8> {
    let mut bytes = b"MMIDIDX\0\0".to_vec();
    bytes.extend(1_u64.to_le_bytes());
    bytes.push(code);
    bytes.extend((lengths.len() as u64).to_le_bytes());
    bytes.extend((lengths.len() as u64 + 1).to_le_bytes());
    lengths.iter().for_each(|length| bytes.extend(length.to_le_bytes()));
    let mut start = 0_i64;
    for length in lengths {
        bytes.extend(start.to_le_bytes());
        start += i64::from(*length) * each;
    }
    (0..=lengths.len() as i64).for_each(|document| bytes.extend(document.to_le_bytes()));
    bytes
}

#[test]
fn megatrons_data_sets_are_read_and_lies_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = numbered(folder.path(), "set.bin", 0, 40);
    let prefix = folder.path().join("set").display().to_string();
    let write = |bytes: &[u8]| std::fs::write(folder.path().join("set.idx"), bytes).unwrap();
    let opened = |path: &str| Data::open(&DataFile::Megatron { path: path.to_owned() }, 7, 1000, 8);
    write(&index(&[10, 20, 10], 8, 2));
    for path in [prefix.clone(), format!("{prefix}.bin"), format!("{prefix}.idx")] {
        let data = opened(&path).unwrap();
        assert_eq!(
            data.sample(0, 8).unwrap(),
            Data::open(&of_file(&tokens), 7, 1000, 8).unwrap().sample(0, 8).unwrap()
        );
    }
    let good = index(&[10, 20, 10], 8, 2);
    let mut lying = good.clone();
    lying[18] = 200;
    for (bytes, expected) in [
        (index(&[10, 20, 9], 8, 2), "not of one data set"),
        (index(&[10, 20, 10], 4, 4), "not of one data set"),
        (index(&[10, 20, 10], 7, 4), "which are no tokens"),
        (index(&[], 8, 2), "has no documents"),
        (good[..30].to_vec(), "cut short"),
        (good[..good.len() - 1].to_vec(), "does not fit its"),
        (lying, "does not fit its"),
        (b"PK\x03\x04 something else entirely".to_vec(), "does not begin with MMIDIDX"),
    ] {
        write(&bytes);
        let error = format!("{:#}", opened(&prefix).err().unwrap());
        assert!(error.contains(expected) && error.contains("set.idx"), "{expected}: {error}");
    }
    std::fs::remove_file(tokens).unwrap();
    write(&good);
    assert!(format!("{:#}", opened(&prefix).err().unwrap()).contains("set.bin"));
}

#[test]
fn a_blend_takes_its_shares_and_each_sources_sequences_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let part = |name: &str, first, weight| DataPart {
        weight,
        data: of_file(&numbered(folder.path(), name, first, 81)),
    };
    let parts = vec![part("one", 0, 3.0), part("two", 1000, 1.0)];
    let blend = DataFile::Blend { parts: parts.clone() };
    let data = Data::open(&blend, 7, 2000, 8).unwrap();
    let mut counts = BTreeMap::new();
    for number in 0..8000 {
        let source = data.sample(number, 8).unwrap()[0] / 1000;
        *counts.entry(source).or_insert(0) += 1;
    }
    assert!((5800..6200).contains(&counts[&0]) && counts.len() == 2, "{counts:?}");
    // Within a block each source's sequences are all different, and the next block goes on behind them.
    let Data::Blend(blend) = &data else { panic!("no blend") };
    let places = |block: u64| {
        let mut found: Vec<u64> = (0..1 << 16)
            .map(|place| blend.place((block << 16) + place))
            .filter(|(part, _)| std::ptr::eq(*part, blend.place(0).0))
            .map(|(_, index)| index)
            .collect();
        found.sort_unstable();
        found
    };
    let (first, second) = (places(0), places(1));
    let share = first.len() as u64;
    assert_eq!(first, (0..share).collect::<Vec<_>>());
    assert_eq!(second, (share..2 * share).collect::<Vec<_>>());
    for weight in [0.0, -1.0, f64::NAN, 1e-9] {
        let parts = vec![parts[0].clone(), DataPart { weight, ..parts[1].clone() }];
        let error = Data::open(&DataFile::Blend { parts }, 7, 2000, 8).err().unwrap().to_string();
        assert!(error.contains("run.data.parts[1].weight"), "{error}");
    }
    assert!(Data::open(&DataFile::Blend { parts: Vec::new() }, 7, 2000, 8).is_err());
}

#[test]
fn an_index_says_which_token_ends_documents() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, documents: &[&[u16]]| {
        let bytes: Vec<u8> = documents.concat().into_iter().flat_map(u16::to_le_bytes).collect();
        std::fs::write(folder.path().join(format!("{name}.bin")), bytes).unwrap();
        let lengths: Vec<i32> = documents.iter().map(|document| document.len() as i32).collect();
        std::fs::write(folder.path().join(format!("{name}.idx")), index(&lengths, 8, 2)).unwrap();
        DataFile::Megatron { path: folder.path().join(name).display().to_string() }
    };
    let asked = planner::plan::Documents { reset_positions: true, ..Default::default() };
    let end = |data: &DataFile| Ends::of(data, asked).map(|ends| ends.unwrap().token);
    let good = write("good", &[&[5, 6, 2], &[2], &[], &[7, 2]]);
    assert_eq!(end(&good).unwrap(), 2);
    // Many documents, and a late one that ends otherwise.
    let many: Vec<&[u16]> = vec![&[4, 2]; 5000];
    assert_eq!(end(&write("many", &many)).unwrap(), 2);
    let bad: [(&str, &[&[u16]], &str); 3] = [
        ("different", &[&[5, 2], &[6, 3]], "different tokens (2 and 3)"),
        ("within", &[&[5, 2], &[2, 6, 2]], "document 1"),
        ("empty", &[&[], &[]], "no document with a token"),
    ];
    for (name, documents, why) in bad {
        let error = end(&write(name, documents)).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("run.documents.eod_token"), "{error}");
    }
    let known = planner::plan::Documents { eod_token: Some(9), ..asked };
    assert_eq!(Ends::of(&good, known).unwrap().unwrap().token, 9);
    assert!(Ends::of(&good, planner::plan::Documents::default()).unwrap().is_none());
    let part = |data: DataFile| DataPart { weight: 1.0, data };
    let other = write("other", &[&[5, 3]]);
    let same = DataFile::Blend { parts: vec![part(good.clone()), part(good.clone())] };
    assert_eq!(end(&same).unwrap(), 2);
    let error = end(&DataFile::Blend { parts: vec![part(good), part(other)] }).unwrap_err().to_string();
    assert!(error.contains("run.data.parts[0] end with token 2") && error.contains("[1] with 3"), "{error}");
}
