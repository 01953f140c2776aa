//! Megatron's indexed data set: `PREFIX.bin` has the tokens of all documents, `PREFIX.idx` where each begins (Megatron-Core
//! `datasets/indexed_dataset.py`).
//!
//! Both are written under other names in the same folder, and get their own when they are whole and on the disk, the index last:
//! without it no reader takes the tokens for a data set.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use planner::plan::megatron_index::{COUNTS, HEADER, INT32, MAGIC, UINT16, VERSION};
use tempfile::NamedTempFile;

/// Writes a data set.
pub(crate) struct Writer {
    tokens: BufWriter<NamedTempFile>,
    index: BufWriter<NamedTempFile>,
    /// What they will be called.
    names: [PathBuf; 2],
    narrow: bool,
    documents: u64,
    bytes: u64,
}

/// The names of both files.
fn names(to: &Path) -> [PathBuf; 2] {
    ["bin", "idx"].map(|ending| {
        let mut name = OsString::from(to);
        name.push(".");
        name.push(ending);
        PathBuf::from(name)
    })
}

/// What is said of a file that a disk refuses.
fn writing(name: &Path) -> String {
    format!("writing {}", name.display())
}

impl Writer {
    pub(crate) fn new(to: &Path, narrow: bool) -> anyhow::Result<Writer> {
        ensure!(
            to.file_name().is_some() && !to.is_dir(),
            "{} is a folder; give the beginning of the files' names, such as {}",
            to.display(),
            to.join("data").display()
        );
        let begin = |name: &PathBuf| -> anyhow::Result<BufWriter<NamedTempFile>> {
            ensure!(!name.exists(), "{} is there already; name others, or remove it", name.display());
            let folder = match name.parent() {
                Some(folder) if folder != Path::new("") => folder,
                _ => Path::new("."),
            };
            std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
            let mut part = name.file_name().unwrap_or_default().to_owned();
            part.push(".part-");
            let file = tempfile::Builder::new()
                .prefix(&part)
                // As the process makes its files.
                .permissions(std::fs::Permissions::from_mode(0o666))
                .tempfile_in(folder)
                .with_context(|| format!("writing beside {}", name.display()))?;
            Ok(BufWriter::with_capacity(1 << 20, file))
        };
        let names = names(to);
        let (tokens, mut index) = (begin(&names[0])?, begin(&names[1])?);
        index.write_all(&header(narrow, 0)).with_context(|| writing(&names[1]))?;
        Ok(Writer { tokens, index, names, narrow, documents: 0, bytes: 0 })
    }

    /// Writes a document.
    pub(crate) fn document(&mut self, tokens: &[u32]) -> anyhow::Result<()> {
        let length = i32::try_from(tokens.len()).context("a document has more than 2^31 tokens")?;
        let failed = || writing(&self.names[0]);
        for token in tokens {
            if self.narrow {
                let token =
                    u16::try_from(*token).with_context(|| format!("token {token} has no two bytes"))?;
                self.tokens.write_all(&token.to_le_bytes()).with_context(failed)?;
            } else {
                let token = i32::try_from(*token).with_context(|| format!("token {token} is none"))?;
                self.tokens.write_all(&token.to_le_bytes()).with_context(failed)?;
            }
        }
        self.index.write_all(&length.to_le_bytes()).with_context(|| writing(&self.names[1]))?;
        self.documents += 1;
        self.bytes += self.size() * tokens.len() as u64;
        Ok(())
    }

    /// Bytes of a token.
    fn size(&self) -> u64 {
        if self.narrow { 2 } else { 4 }
    }

    /// Gives both files their names; the bytes of the tokens.
    pub(crate) fn finish(mut self) -> anyhow::Result<u64> {
        self.tokens.flush().with_context(|| writing(&self.names[0]))?;
        self.starts_and_ends().with_context(|| writing(&self.names[1]))?;
        for (file, name) in [self.tokens, self.index].into_iter().zip(&self.names) {
            let failed = || writing(name);
            let file = file.into_inner().map_err(io::IntoInnerError::into_error).with_context(failed)?;
            file.as_file().sync_all().with_context(failed)?;
            file.persist_noclobber(name).map_err(|error| error.error).with_context(failed)?;
        }
        let folder = self.names[0].parent().filter(|folder| *folder != Path::new(""));
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(self.bytes)
    }

    /// Writes behind the lengths where each document starts, and after how many sequences it ends, and what the header counts.
    fn starts_and_ends(&mut self) -> io::Result<()> {
        self.index.flush()?;
        let mut lengths = BufReader::with_capacity(1 << 20, self.index.get_ref().reopen()?);
        lengths.seek(SeekFrom::Start(HEADER))?;
        let (mut start, mut length, size) = (0, [0; 4], self.size() as i64);
        for _ in 0..self.documents {
            self.index.write_all(&i64::to_le_bytes(start))?;
            lengths.read_exact(&mut length)?;
            start += i64::from(i32::from_le_bytes(length)) * size;
        }
        // A document is one sequence.
        for end in 0..=self.documents {
            self.index.write_all(&end.to_le_bytes())?;
        }
        self.index.flush()?;
        let (header, counts) = (header(self.narrow, self.documents), COUNTS[0]);
        self.index.get_ref().as_file().write_all_at(&header[counts as usize..], counts)
    }
}

fn header(narrow: bool, documents: u64) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(VERSION.to_le_bytes());
    header.push(if narrow { UINT16 } else { INT32 });
    header.extend(documents.to_le_bytes());
    header.extend((documents + 1).to_le_bytes());
    header
}
