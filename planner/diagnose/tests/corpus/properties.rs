//! What holds for any bytes: the fuzz target and the replay of its corpus both include this file.

/// A log is diagnosed, and says the same in whatever pieces it comes.
pub fn diagnose(bytes: &[u8]) {
    let answer = |piece: usize| {
        let mut diagnosis = diagnose::Diagnosis::new(None);
        diagnosis.file("log");
        for piece in bytes.chunks(piece) {
            diagnosis.feed(piece);
        }
        diagnosis.finish()
    };
    // The first bytes choose the size of the pieces.
    let size = bytes.iter().take(2).fold(1, |size, byte| size * 16 + usize::from(*byte));
    let whole = answer(bytes.len().max(1));
    assert_eq!(answer(size), whole);
    assert_eq!(whole.found, !whole.verdicts.is_empty());
    assert!(whole.found || !whole.notes.is_empty());
    assert_eq!(whole.looked_at.bytes, bytes.len() as u64);
    let written = serde_json::to_string(&whole).expect("an answer is JSON");
    let again: diagnose::Answer = serde_json::from_str(&written).expect("our own answer is read");
    assert_eq!(whole, again);
}
