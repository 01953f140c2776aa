//! A table as text: a file of comma-separated values, or what spreadsheets take from the clipboard.

use std::fmt::{Display, Write};

/// Rows of cells, written one after the other.
pub struct Sheet {
    text: String,
    separator: char,
}

impl Sheet {
    /// Of comma-separated values.
    pub fn csv() -> Sheet {
        Sheet { text: String::new(), separator: ',' }
    }

    /// For the clipboard.
    pub fn pasted() -> Sheet {
        Sheet { text: String::new(), separator: '\t' }
    }

    /// A row.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        for (place, cell) in cells.iter().enumerate() {
            if place > 0 {
                self.text.push(self.separator);
            }
            let start = self.text.len();
            // Writing to a String can't fail.
            let _ = write!(self.text, "{cell}");
            let written = &self.text[start..];
            if written.contains([self.separator, '"', '\n', '\r']) {
                let quoted = format!("\"{}\"", written.replace('"', "\"\""));
                self.text.replace_range(start.., &quoted);
            }
        }
        self.text.push('\n');
    }

    /// What was written.
    pub fn text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_cell_is_quoted() {
        let mut sheet = Sheet::csv();
        sheet.row(&[&"a", &1.5, &"TP 2, \"all\""]);
        sheet.row(&[&"", &"two\nlines"]);
        assert_eq!(sheet.text(), "a,1.5,\"TP 2, \"\"all\"\"\"\n,\"two\nlines\"\n");
        let mut sheet = Sheet::pasted();
        sheet.row(&[&"a, b", &"c\td"]);
        assert_eq!(sheet.text(), "a, b\t\"c\td\"\n");
    }
}
