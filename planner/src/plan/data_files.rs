//! Files that a run's data are in.

use crate::wire::DataFile;

/// Files that every rank reads, as ranks see them.
pub fn data_files(data: &DataFile) -> Vec<String> {
    match data {
        DataFile::Synthetic => Vec::new(),
        DataFile::Text { path } | DataFile::Tokens { path, .. } => vec![path.clone()],
        DataFile::Megatron { path } => megatron_files(path).to_vec(),
        DataFile::Blend { parts } => parts.iter().flat_map(|part| data_files(&part.data)).collect(),
    }
}

/// Tokens and index of a Megatron data set, from its prefix or the name of either file.
pub fn megatron_files(path: &str) -> [String; 2] {
    let prefix = path.strip_suffix(".bin").or_else(|| path.strip_suffix(".idx")).unwrap_or(path);
    ["bin", "idx"].map(|ending| format!("{prefix}.{ending}"))
}
