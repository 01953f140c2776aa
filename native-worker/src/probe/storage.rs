//! Filesystems: which one a folder lies on, and whether other nodes see it.

use std::path::{Path, PathBuf};

/// A mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub place: PathBuf,
    /// Its kind, such as `nfs4`.
    pub kind: String,
}

/// What a filesystem's kind says of who sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Other machines too.
    Shared,
    /// This machine only, also after a restart.
    Local,
    /// This machine only, in its memory.
    Memory,
    /// It does not say: a container's own layers may lie anywhere.
    Unknown,
}

/// Kinds of network and cluster filesystems.
const SHARED: [&str; 22] = [
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "beegfs_nodev",
    "ceph",
    "fuse.ceph",
    "wekafs",
    "panfs",
    "pvfs2",
    "orangefs",
    "glusterfs",
    "fuse.glusterfs",
    "cifs",
    "smb3",
    "afs",
    "9p",
    "virtiofs",
    "fuse.sshfs",
    "vastnfs",
    "fuse.juicefs",
];

impl Mount {
    /// Who sees it.
    pub fn reach(&self) -> Reach {
        match self.kind.as_str() {
            kind if SHARED.contains(&kind) => Reach::Shared,
            "tmpfs" | "ramfs" => Reach::Memory,
            "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "zfs" | "f2fs" | "bcachefs" => Reach::Local,
            _ => Reach::Unknown,
        }
    }
}

/// The mounts that `/proc/self/mounts` (`text`) lists, in its order.
pub fn mounts(text: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let mut fields = line.split(' ');
        let (_, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Mount { place: PathBuf::from(unescaped(place)), kind: kind.to_owned() })
    };
    text.lines().filter_map(mount).collect()
}

/// The kernel writes blanks as three octal digits.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

/// The filesystem that holds `path`: the deepest place above it, and of several at one place the last.
pub fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let depth = |mount: &&Mount| mount.place.components().count();
    mounts.iter().filter(|mount| path.starts_with(&mount.place)).max_by_key(depth)
}

/// Who sees the filesystem that holds a folder of this machine.
pub fn reach(folder: &Path) -> Reach {
    let text = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = mounts(&text);
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    mount_of(&mounts, &whole).map_or(Reach::Unknown, Mount::reach)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "overlay / overlay rw 0 0\nproc /proc proc rw 0 0\n/dev/sda1 /scratch ext4 rw 0 0\n\
        server:/home /home nfs4 rw 0 0\no2ib:/fs /lustre/my\\040fs lustre rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n\
        tmpfs /home/me/ram tmpfs rw 0 0\nbroken\n";

    #[track_caller]
    fn check(path: &str, expected: Reach) {
        let mounts = mounts(MOUNTS);
        assert_eq!(mount_of(&mounts, Path::new(path)).expect("a mount").reach(), expected, "{path}");
    }

    #[test]
    fn the_deepest_mount_holds_a_path() {
        check("/home/me/.cache", Reach::Shared);
        check("/home/me/ram/x", Reach::Memory);
        check("/lustre/my fs/hf", Reach::Shared);
        check("/scratch", Reach::Local);
        check("/scratchy", Reach::Unknown);
        check("/opt", Reach::Unknown);
    }
}
