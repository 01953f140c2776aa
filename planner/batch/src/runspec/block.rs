//! PEP 723: TOML in a comment block of a Python script.

use planner::finding::Finding;

/// The first `script` block of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its TOML, with the comment signs taken off.
    pub toml: String,
    /// The line of the file, counted from one, on which that TOML begins.
    pub first_line: usize,
}

impl Block {
    /// The line of the file, counted from one, that holds byte `at` of the TOML.
    pub(crate) fn file_line(&self, at: usize) -> usize {
        let before = self.toml.as_bytes().iter().take(at);
        self.first_line + before.filter(|byte| **byte == b'\n').count()
    }
}

/// Finds the first block that opens with `# /// script`, holds only comment lines, and closes with `# ///`. `path` is
/// for the message. Lines may end in CRLF.
///
/// # Errors
/// When there is none.
pub(crate) fn script_block(path: &str, text: &str) -> Result<Block, Box<Finding>> {
    let lines: Vec<&str> = text.lines().map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let mut unclosed = None;
    for (at, line) in lines.iter().enumerate() {
        // White space after the word is no part of it.
        if line.trim_end() != "# /// script" {
            continue;
        }
        let body = &lines[at + 1..];
        let comments = body.iter().take_while(|line| line.starts_with('#')).count();
        // As in the reference, the block ends at the first line that closes one.
        if let Some(end) = body[..comments].iter().position(|line| *line == "# ///") {
            let toml = body[..end].iter().map(|line| uncomment(line) + "\n").collect();
            return Ok(Block { toml, first_line: at + 2 });
        }
        unclosed.get_or_insert(at + 1);
    }
    let message = match unclosed {
        Some(line) => format!(
            "the block that opens with `# /// script` on line {line} is not closed: only lines that begin with # may \
             stand before its end, `# ///`: {path}"
        ),
        None => format!(
            "this script has no PEP 723 block; put one at its top that opens with `# /// script`, holds a \
             [tool.runspec] table in comments and closes with `# ///`: {path}"
        ),
    };
    Err(Box::new(Finding::error("script", path, message)))
}

fn uncomment(line: &str) -> String {
    match line.strip_prefix("# ") {
        Some(rest) => rest.to_owned(),
        None => line.trim_start_matches(['#', ' ']).to_owned(),
    }
}
