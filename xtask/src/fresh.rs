//! Whether what was built is newer than what it was built from.
//!
//! cargo knows this of its own products. Trunk does not: it writes the page anew each time, whereupon the worker,
//! which carries the page, would be built anew as well.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

/// A file that is written when a build is done, and is as old as that build.
pub struct Stamp {
    path: PathBuf,
}

impl Stamp {
    /// The stamp at a path, written or not.
    pub fn at(path: PathBuf) -> Stamp {
        Stamp { path }
    }

    /// Whether a product is as this stamp's build left it, and nothing of its inputs (files, and folders with all in
    /// them) is newer. What can't be read counts as newer.
    pub fn is_fresh(&self, product: &Path, inputs: &[PathBuf]) -> bool {
        let (Some(stamp), Some(product)) = (changed(&self.path), changed(product)) else { return false };
        product <= stamp && inputs.iter().all(|input| newest(input).is_some_and(|input| input <= stamp))
    }

    /// Writes the stamp, with the time at which the build that is now done was started: what was edited while it ran
    /// is newer.
    pub fn write(&self, started: SystemTime, product: &Path) -> Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let file = std::fs::File::create(&self.path)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        // The product is set back to the same moment, so that a later build by hand is seen.
        file.set_modified(started)?;
        std::fs::File::options().append(true).open(product)?.set_modified(started)?;
        Ok(())
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// When a file, or a folder or anything in it, was last changed. A folder changes when something in it is removed.
fn newest(path: &Path) -> Option<SystemTime> {
    let mut newest = changed(path)?;
    if path.is_dir() {
        for entry in std::fs::read_dir(path).ok()? {
            newest = newest.max(self::newest(&entry.ok()?.path())?);
        }
    }
    Some(newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_newer_input_or_product_is_noticed() {
        let folder = std::env::temp_dir().join(format!("xtask-fresh-{}", std::process::id()));
        let inputs = folder.join("inputs");
        std::fs::create_dir_all(inputs.join("deep")).unwrap();
        let (source, product) = (inputs.join("deep").join("source"), folder.join("product"));
        std::fs::write(&source, "").unwrap();
        std::fs::write(&product, "").unwrap();
        let stamp = Stamp::at(folder.join("stamp"));
        let fresh = || stamp.is_fresh(&product, std::slice::from_ref(&inputs));
        assert!(!fresh(), "nothing was built yet");

        let built = SystemTime::now() + Duration::from_secs(10);
        stamp.write(built, &product).unwrap();
        assert!(fresh());

        let touch = |path: &Path, time: SystemTime| {
            std::fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
        };
        touch(&source, built + Duration::from_secs(1));
        assert!(!fresh(), "a source is newer");
        touch(&source, built);
        assert!(fresh());
        touch(&product, built + Duration::from_secs(1));
        assert!(!fresh(), "somebody else has built the product");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
