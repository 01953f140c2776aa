//! How files of a run's folder are made and opened.
//!
//! Runs lie on filesystems that many people share. So what is made is for its owner alone (folders of mode 0700, files
//! of 0600), and what is opened must be the caller's own plain file in the caller's own folder: no link leads elsewhere,
//! no pipe or device holds a reader up, and nothing that somebody else has put there is believed.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open as open_at_path, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::geteuid;

/// Permission bits by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// Permission bits of others than the owner.
pub(crate) const OTHERS: u32 = 0o077;

/// Makes a run's folder, for its owner alone.
///
/// # Errors
/// When something of this name is there, or the system refuses.
pub fn make(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}

/// Opens a file of a run's folder for reading.
///
/// # Errors
/// `NotFound` when it is not there; a sentence when file or folder is not the caller's own, or no plain file.
pub fn open(path: &Path) -> io::Result<File> {
    Ok(open_as(path, OFlag::O_RDONLY)?.0)
}

/// Opens a file of a run's folder for reading and appending, and makes it if it is not there.
///
/// # Errors
/// As [`open`].
pub fn append(path: &Path) -> io::Result<File> {
    let (file, stat) = open_as(path, OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_CREAT)?;
    if stat.st_mode & OTHERS != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Writes a file of a run's folder, so that a reader never sees half of it. A link under its name is replaced, not
/// followed.
///
/// # Errors
/// When the folder is not the caller's own, or the disk refuses.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = parent(path);
    check(folder)?;
    // Made with mode 0600.
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Whether a run's folder is a folder of the caller's own, and no link to one.
///
/// # Errors
/// A sentence when it is not.
pub fn check(folder: &Path) -> io::Result<()> {
    open_folder(folder).map(|_| ())
}

/// The same, and nobody else may write into it.
///
/// # Errors
/// A sentence when it is not.
pub fn check_private(folder: &Path) -> io::Result<()> {
    private(folder, &fstat(open_folder(folder)?)?)
}

/// Whether what a file of a run's folder says may be acted on: nobody but the caller can have written it.
///
/// # Errors
/// A sentence when it may not.
pub fn check_written_by_us(path: &Path) -> io::Result<()> {
    check_private(parent(path))?;
    private(path, &open_as(path, OFlag::O_RDONLY)?.1)
}

pub(crate) fn private(path: &Path, stat: &FileStat) -> io::Result<()> {
    let mode = stat.st_mode & 0o7777;
    if mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    Err(refused(format!(
        "others may write into {} (mode {mode:o}), so what stands in it is not believed; make it yours alone with \
         `chmod go-rwx`",
        path.display()
    )))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// A folder's descriptor. What is opened by it can't be led elsewhere by a link that somebody puts in the folder's
/// place meanwhile.
pub(crate) fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = open_at_path(folder, flags, Mode::empty()).map_err(|error| match error {
        // Linux says "no folder" of a link, too.
        Errno::ENOTDIR | Errno::ELOOP => refused(format!(
            "{} is {}, and a run's folder must be a folder itself",
            folder.display(),
            if folder.is_symlink() { "a symbolic link" } else { "no folder" }
        )),
        error => error.into(),
    })?;
    ours(folder, &fstat(&opened)?, geteuid().as_raw())?;
    Ok(opened)
}

fn open_as(path: &Path, how: OFlag) -> io::Result<(File, FileStat)> {
    let folder = open_folder(parent(path))?;
    let name = path.file_name().unwrap_or(OsStr::new("."));
    open_in(folder.as_fd(), path, name, how)
}

pub(crate) fn open_in(
    folder: impl AsFd,
    path: &Path,
    name: &OsStr,
    how: OFlag,
) -> io::Result<(File, FileStat)> {
    // A pipe without a writer would hold its reader up.
    let flags = how | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let opened =
        openat(folder, name, flags, Mode::from_bits_truncate(0o600)).map_err(|error| match error {
            Errno::ELOOP => refused(format!("{} is a symbolic link, which is not followed", path.display())),
            Errno::ENXIO | Errno::ENODEV => refused(format!("{} is no plain file", path.display())),
            error => error.into(),
        })?;
    let stat = fstat(&opened)?;
    if kind(&stat) != SFlag::S_IFREG {
        return Err(refused(format!("{} is {}, no plain file", path.display(), kind_name(kind(&stat)))));
    }
    ours(path, &stat, geteuid().as_raw())?;
    if stat.st_nlink > 1 && name != OsStr::new(crate::KEY) {
        return Err(refused(format!(
            "{} has {} names (hard links), so it may belong elsewhere; make a copy of its own with `cp`",
            path.display(),
            stat.st_nlink
        )));
    }
    Ok((opened.into(), stat))
}

/// Whether something belongs to `user`.
fn ours(path: &Path, stat: &FileStat, user: u32) -> io::Result<()> {
    if stat.st_uid == user {
        return Ok(());
    }
    Err(refused(format!(
        "{} belongs to user {}, not to you (user {user}); what others have recorded is looked at by them, or as a copy",
        path.display(),
        stat.st_uid
    )))
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn kind_name(kind: SFlag) -> &'static str {
    match kind {
        SFlag::S_IFDIR => "a folder",
        SFlag::S_IFIFO => "a named pipe",
        SFlag::S_IFCHR | SFlag::S_IFBLK => "a device",
        SFlag::S_IFSOCK => "a socket",
        _ => "of another kind",
    }
}

pub(crate) fn refused(sentence: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, sentence)
}

#[cfg(test)]
mod tests;
