//! Locks between several `cargo xtask` on one machine, which share one cache.

use std::fs::{File, TryLockError};
use std::path::Path;

use anyhow::{Context, Result};

use crate::console;

/// A lock that is held until it is dropped, or until the process ends however it ends.
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, waiting for whoever holds it.
    pub fn acquire(path: &Path) -> Result<Lock> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .with_context(|| format!("cannot open the lock file {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                console::notice(format_args!(
                    "    waiting for another cargo xtask, which holds {}",
                    path.display()
                ));
                file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        Ok(Lock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_waits_for_the_first() {
        let path = std::env::temp_dir().join(format!("xtask-lock-{}", std::process::id()));
        let first = Lock::acquire(&path).unwrap();
        let second = std::thread::spawn({
            let path = path.clone();
            move || {
                let _second = Lock::acquire(&path).unwrap();
                std::time::Instant::now()
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(200));
        let released = std::time::Instant::now();
        drop(first);
        assert!(second.join().unwrap() >= released);
        std::fs::remove_file(&path).unwrap();
    }
}
