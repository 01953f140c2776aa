//! Megatron's indexed data set: `PREFIX.bin` has the tokens of all documents one after the other, `PREFIX.idx` where each begins
//! (Megatron-Core `datasets/indexed_dataset.py`).
//!
//! The tokens are read as one stream, as its pretraining does with documents; of the index that needs the type, and that its
//! ends are those of the file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, bail, ensure};

use super::tokens::{Limits, TokenFile, Width};

/// What an index begins with.
const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
/// The version that is read.
const VERSION: u64 = 1;
/// Bytes before the lengths of documents: magic, version, type, count of sequences, count of document ends.
const HEADER: u64 = 9 + 8 + 1 + 8 + 8;

/// The type of a code in an index.
fn width(code: u8) -> anyhow::Result<Width> {
    Ok(match code {
        1 => Width::U8,
        4 => Width::I32,
        5 => Width::I64,
        8 => Width::U16,
        _ => bail!("its tokens are of type {code}, which are no tokens (1, 4, 5 and 8 are)"),
    })
}

/// Opens the data set of a prefix, or of the name of either file.
///
/// # Errors
/// When either file can't be read, or the index is not that of the tokens.
pub fn open(path: &str, key: u64, limits: Limits) -> anyhow::Result<TokenFile> {
    let prefix = path.strip_suffix(".bin").or_else(|| path.strip_suffix(".idx")).unwrap_or(path);
    let (tokens, index) = (format!("{prefix}.bin"), format!("{prefix}.idx"));
    let width = check(&index, &tokens).with_context(|| format!("the index {index:?}"))?;
    TokenFile::open(&tokens, width, key, limits)
}

fn number<const N: usize>(file: &File, at: u64) -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at).context("it is cut short")?;
    Ok(bytes)
}

/// Holds the index against the file of tokens; the type of these.
fn check(index: &str, tokens: &str) -> anyhow::Result<Width> {
    let file =
        File::open(index).context("can't be opened; run.data.path is the common prefix of .bin and .idx")?;
    ensure!(number::<9>(&file, 0)? == *MAGIC, "is no index of Megatron's: it does not begin with MMIDIDX");
    let version = u64::from_le_bytes(number(&file, 9)?);
    ensure!(version == VERSION, "is of version {version}, and {VERSION} is read");
    let width = width(number::<1>(&file, 17)?[0])?;
    let sequences = u64::from_le_bytes(number(&file, 18)?);
    let documents = u64::from_le_bytes(number(&file, 26)?);
    ensure!(sequences > 0, "has no documents");
    // Lengths of four bytes, starts of eight, and where documents end, of eight.
    let wanted = sequences
        .checked_mul(12)
        .zip(documents.checked_mul(8))
        .and_then(|(sequences, documents)| sequences.checked_add(documents)?.checked_add(HEADER));
    let length = file.metadata()?.len();
    ensure!(
        wanted == Some(length),
        "says {sequences} sequences and {documents} documents, which does not fit its {length} bytes"
    );
    let first = i64::from_le_bytes(number(&file, HEADER + 4 * sequences)?);
    let last = i64::from_le_bytes(number(&file, HEADER + 4 * sequences + 8 * (sequences - 1))?);
    let last_length = i32::from_le_bytes(number(&file, HEADER + 4 * (sequences - 1))?);
    let bytes =
        std::fs::metadata(tokens).with_context(|| format!("has no tokens beside it ({tokens:?})"))?.len();
    let end = i64::from(last_length)
        .checked_mul(width.bytes() as i64)
        .and_then(|length| length.checked_add(last))
        .and_then(|end| u64::try_from(end).ok());
    ensure!(
        first == 0 && end == Some(bytes),
        "says that its tokens are the bytes {first} to {} of {tokens:?}, which has {bytes}: they are not of one data set",
        end.map_or_else(|| "beyond all numbers".to_owned(), |end| end.to_string())
    );
    Ok(width)
}
