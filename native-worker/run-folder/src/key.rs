//! The run's key, by which its ranks know each other.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::fstat;

use crate::own::{OTHERS, open_folder, open_in, private, refused};

/// Name of its file in the run's folder.
pub const KEY: &str = "key";

/// Bytes of a key.
const BYTES: usize = 32;

/// A run's key: random, in a file that its owner alone can read. It is made once, so that a job that is queued again
/// has the same, and no node looks at one that another has replaced.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(..)")
    }
}

impl Key {
    /// A key as it is, for tests.
    pub const fn from_bytes(bytes: [u8; BYTES]) -> Key {
        Key(bytes)
    }

    /// Its bytes.
    pub const fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// The key of the run in `folder`. Who comes first makes it, and all others find that one.
    ///
    /// # Errors
    /// A sentence when folder or file could be another's, or the system gives no random bytes.
    pub fn of_run(folder: &Path) -> io::Result<Key> {
        match Key::read(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Key::make(folder)?;
                Key::read(folder)
            }
            read => read,
        }
    }

    /// Makes the key, unless another process has just done so.
    fn make(folder: &Path) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes)
            .map_err(|error| refused(format!("the system gives no random bytes: {error}")))?;
        let mut file = tempfile::Builder::new().prefix(".key-").tempfile_in(folder)?;
        writeln!(file, "{}", hex::encode(bytes))?;
        // Before it has its name: another node might find it empty.
        file.as_file().sync_all()?;
        match file.persist_noclobber(folder.join(KEY)) {
            Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
            _ => Ok(()),
        }
    }

    fn read(folder: &Path) -> io::Result<Key> {
        let opened = open_folder(folder)?;
        private(folder, &fstat(&opened)?)?;
        let path = folder.join(KEY);
        // It may have two names for a moment, while it is made. Nobody else can have given it one in this folder.
        let (file, stat) = open_in(opened.as_fd(), &path, OsStr::new(KEY), OFlag::O_RDONLY)?;
        let mode = stat.st_mode & 0o7777;
        if mode & OTHERS != 0 {
            return Err(refused(format!(
                "the run's key {} can be read or written by others (mode {mode:o}), so it proves nothing; remove it and \
                 start again, on a filesystem that keeps permissions",
                path.display()
            )));
        }
        let mut text = String::new();
        file.take(1024).read_to_string(&mut text)?;
        let mut key = [0; BYTES];
        hex::decode_to_slice(text.trim(), &mut key).map_err(|_| {
            refused(format!(
                "{} is not a key of {BYTES} bytes in hex; remove it and start again",
                path.display()
            ))
        })?;
        Ok(Key(key))
    }
}
