//! A tensor as `torch.save` writes it: a zip file of a pickle and the elements, nothing compressed.

use std::io::{self, Write};

use super::pickle::Pickle;

/// Types of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    F64,
    F32,
    F16,
    Bf16,
    I64,
}

impl Type {
    /// Its name in torch.
    pub(super) fn name(self) -> &'static str {
        match self {
            Type::F64 => "float64",
            Type::F32 => "float32",
            Type::F16 => "float16",
            Type::Bf16 => "bfloat16",
            Type::I64 => "int64",
        }
    }

    /// The class of its storage in torch.
    fn storage(self) -> &'static str {
        match self {
            Type::F64 => "DoubleStorage",
            Type::F32 => "FloatStorage",
            Type::F16 => "HalfStorage",
            Type::Bf16 => "BFloat16Storage",
            Type::I64 => "LongStorage",
        }
    }
}

/// Writes a tensor; how many bytes that are.
///
/// # Errors
/// When the disk refuses, or it has more than a zip file without extensions can (4 GiB).
pub(super) fn write(out: &mut impl Write, dtype: Type, shape: &[u64], bytes: &[u8]) -> io::Result<u64> {
    let mut archive = Archive { out, at: 0, entries: Vec::new() };
    archive.entry("archive/data.pkl", &pickled(dtype, shape))?;
    archive.entry("archive/byteorder", b"little")?;
    archive.entry("archive/data/0", bytes)?;
    archive.entry("archive/version", b"3\n")?;
    archive.finish()
}

/// What says of the elements which tensor they are.
fn pickled(dtype: Type, shape: &[u64]) -> Vec<u8> {
    let elements: u64 = shape.iter().product();
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    let mut pickle = Pickle::new();
    pickle.global("torch._utils", "_rebuild_tensor_v2").tuple(|pickle| {
        pickle.tuple(|pickle| {
            pickle.text("storage").global("torch", dtype.storage()).text("0").text("cpu").number(elements);
        });
        pickle.persistent().number(0).numbers(shape).numbers(&strides).no();
        pickle.global("collections", "OrderedDict").tuple(|_| {}).call();
    });
    pickle.call();
    pickle.finish()
}

struct Archive<'a, W> {
    out: &'a mut W,
    at: u64,
    /// What the directory says of each file that was written.
    entries: Vec<Vec<u8>>,
}

/// Version 2.0 of the format, nothing compressed, at the first moment that it knows (0:00, 1 January 1980).
const COMMON: [u8; 10] = [20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];

impl<W: Write> Archive<'_, W> {
    fn entry(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let size = small(content.len() as u64)?;
        let mut about = COMMON.to_vec();
        about.extend(crc32fast::hash(content).to_le_bytes());
        about.extend(size.to_le_bytes());
        about.extend(size.to_le_bytes());
        about.extend((name.len() as u16).to_le_bytes());
        // No further fields.
        about.extend([0; 2]);
        let mut entry = b"PK\x01\x02\x14\x00".to_vec();
        entry.extend(&about);
        // No comment, the first disk, no attributes.
        entry.extend([0; 10]);
        entry.extend(small(self.at)?.to_le_bytes());
        entry.extend(name.as_bytes());
        self.entries.push(entry);
        self.put(b"PK\x03\x04")?;
        self.put(&about)?;
        self.put(name.as_bytes())?;
        self.put(content)
    }

    fn finish(mut self) -> io::Result<u64> {
        let (start, entries) = (small(self.at)?, std::mem::take(&mut self.entries));
        let directory = entries.concat();
        self.put(&directory)?;
        let count = (entries.len() as u16).to_le_bytes();
        self.put(b"PK\x05\x06\0\0\0\0")?;
        self.put(&count)?;
        self.put(&count)?;
        self.put(&(directory.len() as u32).to_le_bytes())?;
        self.put(&start.to_le_bytes())?;
        self.put(&[0; 2])?;
        Ok(self.at)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

fn small(number: u64) -> io::Result<u32> {
    u32::try_from(number).map_err(|_| io::Error::other("a part of a tensor has more than 4 GiB"))
}
