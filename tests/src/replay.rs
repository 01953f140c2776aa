//! Replays the corpus of a fuzz target: every file under `tests/corpus/TARGET` goes through the property that the target checks.
//! Packages whose properties these are include this file.

use std::path::Path;
use std::time::{Duration, Instant};

/// Longest that one file may take. A usual one takes milliseconds; this leaves room for a slow, busy machine.
const LONGEST: Duration = Duration::from_secs(20);

/// Every file of the target's corpus.
pub fn replay(target: &str, property: fn(&[u8])) {
    let of = |folder: &Path| folder.join("tests/corpus").join(target);
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(of);
    let folder = folders.find(|folder| folder.exists()).expect("the corpus of the target");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        // Shown when the property fails.
        println!("{}", file.display());
        let start = Instant::now();
        property(&bytes);
        assert!(start.elapsed() < LONGEST, "{} takes {:?}", file.display(), start.elapsed());
    }
}
