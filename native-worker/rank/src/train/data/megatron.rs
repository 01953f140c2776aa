//! Megatron's indexed data set: `PREFIX.bin` has the tokens of all documents one after the other, `PREFIX.idx` where each begins
//! (Megatron-Core `datasets/indexed_dataset.py`).
//!
//! The tokens are read as one stream, as its pretraining does with documents; of the index that needs the type, and that its
//! ends are those of the file. Where a plan keeps documents apart, the index says which token stands at their ends: from there on
//! tokens alone say where a document ends, as in that pretraining.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, bail, ensure};
use planner::plan::megatron_files;
use planner::plan::megatron_index::{COUNTS, HEADER, INT32, INT64, MAGIC, TYPE, UINT8, UINT16, VERSION};

use super::tokens::{Limits, TokenFile, Width};

/// The type of a code in an index.
fn width(code: u8) -> anyhow::Result<Width> {
    Ok(match code {
        UINT8 => Width::U8,
        INT32 => Width::I32,
        INT64 => Width::I64,
        UINT16 => Width::U16,
        _ => bail!("its tokens are of type {code}, which are no tokens (1, 4, 5 and 8 are)"),
    })
}

/// Documents of an index that are looked at for the token that ends them, from its beginning and evenly over the rest.
const LOOKED_AT: u64 = 500;
/// Tokens before its end that are looked at of each.
const LOOKED_BACK: u64 = 4096;

/// Opens the data set of a prefix, or of the name of either file.
///
/// # Errors
/// When either file can't be read, or the index is not that of the tokens.
pub fn open(path: &str, key: u64, limits: Limits) -> anyhow::Result<TokenFile> {
    let [tokens, index] = megatron_files(path);
    let width = check(&index, &tokens).with_context(|| format!("the index {index:?}"))?;
    TokenFile::open(&tokens, width, key, limits)
}

/// The token that the documents of a data set end with: the same in each, and nowhere else in them.
///
/// # Errors
/// When a file can't be read, or there is no such token.
pub fn end_of_documents(path: &str) -> anyhow::Result<i64> {
    let [tokens, index] = megatron_files(path);
    let width = check(&index, &tokens).with_context(|| format!("the index {index:?}"))?;
    let file = File::open(&index).with_context(|| format!("the index {index:?} can't be opened"))?;
    let tokens_file = File::open(&tokens).with_context(|| format!("{tokens:?} can't be opened"))?;
    let failed = || format!("reading the ends of documents of {index:?}");
    let sequences = u64::from_le_bytes(number(&file, COUNTS[0]).with_context(failed)?);
    let ends = u64::from_le_bytes(number(&file, COUNTS[1]).with_context(failed)?);
    // Where documents begin among the sequences: one more than there are documents.
    let documents = ends.saturating_sub(1);
    let sequence_of = |document: u64| -> anyhow::Result<u64> {
        let at = HEADER + 12 * sequences + 8 * document;
        let sequence = i64::from_le_bytes(number(&file, at).with_context(failed)?);
        let sequence = u64::try_from(sequence).ok().filter(|&sequence| sequence <= sequences);
        sequence
            .with_context(|| format!("the index {index:?} has a document beyond its {sequences} sequences"))
    };
    // First byte of a sequence, and of the one behind it.
    let bytes_of = |sequence: u64| -> anyhow::Result<[u64; 2]> {
        let length = i32::from_le_bytes(number(&file, HEADER + 4 * sequence).with_context(failed)?);
        let start =
            i64::from_le_bytes(number(&file, HEADER + 4 * sequences + 8 * sequence).with_context(failed)?);
        let both = u64::try_from(length).ok().zip(u64::try_from(start).ok());
        let both = both.and_then(|(length, start)| {
            Some([start, start.checked_add(length.checked_mul(width.bytes())?)?])
        });
        both.with_context(|| format!("the index {index:?} has a sequence of {length} tokens at byte {start}"))
    };
    let mut known: Option<i64> = None;
    let even = (documents / LOOKED_AT).max(1);
    let looked_at =
        (0..documents.min(LOOKED_AT)).chain((LOOKED_AT..documents).step_by(usize::try_from(even)?));
    for document in looked_at {
        let (first, behind) = (sequence_of(document)?, sequence_of(document + 1)?);
        if behind <= first {
            continue;
        }
        let [start, _] = bytes_of(first)?;
        let [_, end] = bytes_of(behind - 1)?;
        let start = start.max(end.saturating_sub(LOOKED_BACK * width.bytes()));
        if end <= start {
            continue;
        }
        let mut bytes = vec![0; usize::try_from(end - start)?];
        tokens_file
            .read_exact_at(&mut bytes, start)
            .with_context(|| format!("reading {tokens:?} at byte {start}"))?;
        let read = width.read(&bytes);
        let Some((&last, within)) = read.split_last() else { continue };
        let token = *known.get_or_insert(last);
        ensure!(
            last == token,
            "documents of {tokens:?} end with different tokens ({token} and {last}), so none of them ends a document; tokenize them \
             with --append-eod, or say which token does as run.documents.eod_token"
        );
        ensure!(
            !within.contains(&token),
            "document {document} of {tokens:?} ends with token {token}, which stands within it too, so it may be none that ends a \
             document; tokenize with --append-eod, or say which token does as run.documents.eod_token"
        );
    }
    known.with_context(|| {
        format!(
            "{tokens:?} has no document with a token; say which token ends one as run.documents.eod_token"
        )
    })
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
    let version = u64::from_le_bytes(number(&file, MAGIC.len() as u64)?);
    ensure!(version == VERSION, "is of version {version}, and {VERSION} is read");
    let width = width(number::<1>(&file, TYPE)?[0])?;
    let sequences = u64::from_le_bytes(number(&file, COUNTS[0])?);
    let documents = u64::from_le_bytes(number(&file, COUNTS[1])?);
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
