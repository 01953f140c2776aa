//! Answers of plans, in files: in full, as one JSON object of a line, or as digests.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::digest::{self, Line};

/// Writes the answers of all plans in full, in their order.
pub fn write(path: &Path, lines: &[Line]) -> Result<()> {
    let file = File::create(path).with_context(|| format!("can't make {}", path.display()))?;
    let mut out = BufWriter::new(file);
    for (_, line) in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    eprintln!("{} plans recorded in {}", lines.len(), path.display());
    Ok(())
}

/// Holds answers against the digests that are committed. Says whether they are equal.
#[expect(clippy::print_stdout, reason = "the differences are this program's data")]
pub fn hold(lines: &[Line]) -> bool {
    match digest::hold(lines) {
        Ok(()) => println!("{} plans are answered as recorded", lines.len()),
        Err(ref difference) => {
            println!("{difference}");
            return false;
        }
    }
    true
}
