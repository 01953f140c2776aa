//! What is made, what is opened, and what is not.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;
use crate::{KEY, Key};

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A run's folder in a folder of runs, with a log.
fn run() -> (tempfile::TempDir, PathBuf) {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().join("one");
    make(&folder).unwrap();
    append(&folder.join("rank-00000.log")).unwrap().write_all(b"line\n").unwrap();
    (runs, folder)
}

#[test]
fn what_is_made_is_for_its_owner_alone() {
    let (_runs, folder) = run();
    replace(&folder.join("run.json"), "{}\n").unwrap();
    Key::of_run(&folder).unwrap();
    assert_eq!(mode(&folder), 0o700);
    for file in ["rank-00000.log", "run.json", KEY] {
        assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
    }
    // A log of an earlier version becomes so when it goes on.
    set_mode(&folder.join("rank-00000.log"), 0o644);
    append(&folder.join("rank-00000.log")).unwrap();
    assert_eq!(mode(&folder.join("rank-00000.log")), 0o600);
}

#[test]
fn the_own_plain_file_is_opened_and_an_absent_one_is_absent() {
    let (_runs, folder) = run();
    assert_eq!(io::read_to_string(open(&folder.join("rank-00000.log")).unwrap()).unwrap(), "line\n");
    assert_eq!(open(&folder.join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(open(&folder.join("none/none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    // Readable by others, as earlier versions made them, is no reason to refuse.
    set_mode(&folder.join("rank-00000.log"), 0o644);
    set_mode(&folder, 0o755);
    open(&folder.join("rank-00000.log")).unwrap();
    check_written_by_us(&folder.join("rank-00000.log")).unwrap();
}

#[test]
fn links_pipes_devices_and_folders_are_refused_at_once() {
    let (runs, folder) = run();
    let log = folder.join("rank-00000.log");
    symlink(&log, folder.join("link")).unwrap();
    symlink("/nowhere", folder.join("dangling")).unwrap();
    nix::unistd::mkfifo(&folder.join("pipe"), Mode::from_bits_truncate(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
    std::fs::create_dir(folder.join("folder")).unwrap();
    for (name, expected) in [
        ("link", "symbolic link"),
        ("dangling", "symbolic link"),
        ("pipe", "a named pipe"),
        ("socket", "no plain file"),
        ("folder", "a folder, no plain file"),
    ] {
        let said = open(&folder.join(name)).unwrap_err().to_string();
        assert!(said.contains(expected) && said.contains(name), "{said}");
        if name != "folder" {
            append(&folder.join(name)).unwrap_err();
        }
    }
    assert!(!Path::new("/nowhere").exists());
    std::fs::hard_link(&log, runs.path().join("elsewhere")).unwrap();
    let said = open(&log).unwrap_err().to_string();
    assert!(said.contains("2 names (hard links)"), "{said}");
    // A device that everybody may open, in a folder that is not.
    let said = open(Path::new("/dev/null")).unwrap_err().to_string();
    assert!(said.contains("device") || said.contains("belongs to user"), "{said}");
}

#[test]
fn a_folder_that_is_a_link_is_refused() {
    let (runs, folder) = run();
    let link = runs.path().join("two");
    symlink(&folder, &link).unwrap();
    for said in [
        open(&link.join("rank-00000.log")).unwrap_err(),
        append(&link.join("rank-00001.log")).unwrap_err(),
        replace(&link.join("control"), "stop\n").unwrap_err(),
        check(&link).unwrap_err(),
        Key::of_run(&link).unwrap_err(),
    ] {
        assert!(said.to_string().contains("two is a symbolic link"), "{said}");
    }
    assert!(!folder.join("control").exists() && !folder.join("rank-00001.log").exists());
    assert!(check(&folder.join("rank-00000.log")).unwrap_err().to_string().contains("is no folder"));
}

#[test]
fn what_belongs_to_another_is_refused() {
    let (_runs, folder) = run();
    let file = open(&folder.join("rank-00000.log")).unwrap();
    let stat = fstat(&file).unwrap();
    ours(&folder, &stat, stat.st_uid).unwrap();
    let said = ours(&folder, &stat, stat.st_uid + 1).unwrap_err().to_string();
    assert!(said.contains(&format!("belongs to user {}, not to you", stat.st_uid)), "{said}");
    if geteuid().is_root() {
        // Only the administrator can give a file away.
        let log = folder.join("rank-00000.log");
        std::os::unix::fs::chown(&log, Some(12345), None).unwrap();
        assert!(open(&log).unwrap_err().to_string().contains("belongs to user 12345"));
        assert!(append(&log).is_err());
        std::os::unix::fs::chown(&log, Some(0), None).unwrap();
        std::os::unix::fs::chown(&folder, Some(12345), None).unwrap();
        for said in [open(&log).unwrap_err(), check(&folder).unwrap_err(), Key::of_run(&folder).unwrap_err()]
        {
            assert!(said.to_string().contains("belongs to user 12345"), "{said}");
        }
    }
}

#[test]
fn all_ranks_find_one_key_whoever_makes_it() {
    let (_runs, folder) = run();
    let keys: Vec<Key> = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..16).map(|_| scope.spawn(|| Key::of_run(&folder).unwrap())).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]));
    assert_ne!(keys[0].bytes(), &[0; BYTES_OF_A_KEY]);
    assert_eq!(format!("{:?}", keys[0]), "Key(..)");
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the log and the key: {left:?}");
    let (_other_runs, other) = run();
    assert_ne!(Key::of_run(&other).unwrap(), keys[0]);
}

#[test]
fn what_others_can_have_written_is_not_acted_on() {
    let (_runs, folder) = run();
    let file = folder.join("run.json");
    replace(&file, "{}\n").unwrap();
    check_written_by_us(&file).unwrap();
    for (path, bad, good) in
        [(&file, 0o620, 0o600), (&file, 0o602, 0o644), (&folder, 0o730, 0o700), (&folder, 0o777, 0o755)]
    {
        set_mode(path, bad);
        let said = check_written_by_us(&file).unwrap_err().to_string();
        assert!(said.contains("others may write into") && said.contains(&format!("{bad:o}")), "{said}");
        set_mode(path, good);
        check_written_by_us(&file).unwrap();
    }
}

const BYTES_OF_A_KEY: usize = 32;

#[test]
fn a_key_that_others_may_know_is_none() {
    let (_runs, folder) = run();
    Key::of_run(&folder).unwrap();
    let key = folder.join(KEY);
    for bad in [0o640, 0o604, 0o620] {
        set_mode(&key, bad);
        let said = Key::of_run(&folder).unwrap_err().to_string();
        assert!(said.contains("by others") && said.contains(&format!("{bad:o}")), "{said}");
    }
    set_mode(&key, 0o600);
    set_mode(&folder, 0o770);
    let said = Key::of_run(&folder).unwrap_err().to_string();
    assert!(said.contains("others may write into") && said.contains("chmod go-rwx"), "{said}");
    set_mode(&folder, 0o700);
    for text in ["", "key\n", &"0".repeat(63)] {
        std::fs::write(&key, text).unwrap();
        let said = Key::of_run(&folder).unwrap_err().to_string();
        assert!(said.contains("is not a key of 32 bytes"), "{said}");
    }
    std::fs::remove_file(&key).unwrap();
    symlink("/etc/hostname", &key).unwrap();
    assert!(Key::of_run(&folder).unwrap_err().to_string().contains("symbolic link"));
}
