//! Data sets of tokens as Megatron keeps them: `PREFIX.bin` and `PREFIX.idx`.

/// Whether a path is by its name a part of one, or the prefix that Megatron's preprocessing gives it.
pub(crate) fn is_megatron_data(path: &str) -> bool {
    [".bin", ".idx", "_text_document", "_text_sentence"].iter().any(|end| path.ends_with(end))
}
