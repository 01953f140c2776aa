use proptest::prelude::*;

use super::testing::{check, read};
use super::{Lines, Reader, formats};

#[test]
fn every_framework_has_a_name_of_its_own_and_a_marker() {
    let mut names: Vec<&str> = formats::NAMED.iter().map(|table| table[0].framework).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), formats::NAMED.len());
    assert!(names.len() >= 12, "{names:?}");
    for format in formats::NAMED.iter().copied().flatten() {
        assert!(format.anchor.len() >= 2 && !format.fields.is_empty(), "{format:?}");
    }
}

#[test]
fn launchers_may_label_lines() {
    let line = "step: 3  loss: 2.5  memory: 1.00GiB(1%)  tps: 10";
    let expected =
        |rank: &str| format!("torchtitan {rank}step 3 loss 2.5 tokens/s/gpu 10 reserved 1073741824");
    for (label, rank) in [
        ("", ""),
        ("0: ", "rank 0 "),
        ("13: ", "rank 13 "),
        ("[default1]:", ""),
        ("[rank2]:", "rank 2 "),
        ("\u{1b}[36m[rank2]:\u{1b}[0m ", "rank 2 "),
        ("[1,5]<stdout>:", "rank 5 "),
    ] {
        check(&[&format!("{label}{line}")], &[&expected(rank)]);
    }
}

#[test]
fn halves_of_lines_give_no_values() {
    // One rank's line ran into another's.
    check(
        &["step: 3  loss: 2.[rank1]:step: 3  loss: 2.5  memory: 1.00GiB(1%)"],
        &["torchtitan step 3 loss 2.5 reserved 1073741824"],
    );
    check(&["E+01 | grad norm: 1.0 |", " iteration 7/", "elapsed time per iteration (ms): 12"], &[]);
}

#[test]
fn a_named_framework_silences_the_guess() {
    let titan = "step: 3  loss: 2.5  memory: 1.00GiB(1%)";
    assert_eq!(read(&["step 1 loss 3", titan, "step 9 loss 3"]).len(), 2);
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_give_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..400), cut in 0usize..400) {
        let whole = iterations(&[&bytes]);
        let cut = cut.min(bytes.len());
        prop_assert_eq!(whole, iterations(&[&bytes[..cut], &bytes[cut..]]));
    }

    #[test]
    fn any_words_of_the_formats_give_no_panic(words in proptest::collection::vec(words(), 0..12)) {
        iterations(&[words.concat().as_bytes()]);
    }
}

fn words() -> impl Strategy<Value = String> {
    let known: Vec<&'static str> = formats::NAMED
        .iter()
        .copied()
        .flatten()
        .flat_map(|format| {
            format
                .fields
                .iter()
                .map(|field| field.key)
                .chain([format.anchor])
                .chain(format.also.iter().copied())
        })
        .collect();
    prop_oneof![
        proptest::sample::select(known).prop_map(str::to_owned),
        "[-+0-9.,eENnaif]{1,12}",
        "[ |/:,\u{1b}\\[\\]rank\n\ré]{1,4}",
    ]
}

fn iterations(pieces: &[&[u8]]) -> Vec<String> {
    let (mut lines, mut reader, mut found) = (Lines::default(), Reader::default(), Vec::new());
    let mut take = |iteration| found.push(format!("{iteration:?}"));
    for piece in pieces {
        lines.push(piece, |line| reader.line(line, &mut take));
    }
    lines.finish(|line| reader.line(line, &mut take));
    reader.settle(&mut take);
    found
}
