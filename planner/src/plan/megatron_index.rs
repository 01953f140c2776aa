//! The index of a Megatron data set (Megatron-Core `datasets/indexed_dataset.py`), as it is written and read: magic, version, type of
//! tokens, how many sequences, how many ends of documents; then the sequences' lengths, where they begin, and the ends.

/// What an index begins with.
pub const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
/// Its version, which stands behind that.
pub const VERSION: u64 = 1;
/// Where the type of tokens stands.
pub const TYPE: u64 = MAGIC.len() as u64 + 8;
/// Where the counts stand, of sequences and of ends of documents.
pub const COUNTS: [u64; 2] = [TYPE + 1, TYPE + 1 + 8];
/// Bytes before the lengths.
pub const HEADER: u64 = COUNTS[1] + 8;
/// Codes of types that tokens have.
pub const UINT8: u8 = 1;
/// Four bytes with a sign.
pub const INT32: u8 = 4;
/// Eight with a sign.
pub const INT64: u8 = 5;
/// Two without.
pub const UINT16: u8 = 8;
