//! Bytes into lines of bounded length.

/// The longest line that is looked at, in bytes; what is longer is cut there.
pub const MAX_LINE_BYTES: usize = 16 * 1024;

/// Cuts a stream of bytes into lines, in linear time and bounded memory. A carriage return ends a line too: progress
/// bars are written over themselves.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// The beginning of a line whose end has not come.
    open: Vec<u8>,
    /// Nothing is taken until the next line begins: bytes were lost.
    skipping: bool,
}

impl Lines {
    /// Takes what came, and gives each whole line to `line`, without its end. Empty lines are left out.
    pub fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r') {
            let (piece, after) = (&rest[..end], &rest[end + 1..]);
            rest = after;
            if std::mem::take(&mut self.skipping) {
                self.open.clear();
            } else if self.open.is_empty() {
                give(piece, &mut line);
            } else {
                self.keep(piece);
                give(&self.open, &mut line);
                self.open.clear();
            }
        }
        if !self.skipping {
            self.keep(rest);
        }
    }

    /// Gives the last line, where it has no end.
    pub fn finish(&mut self, mut line: impl FnMut(&[u8])) {
        give(&self.open, &mut line);
        self.open.clear();
    }

    /// Some bytes were lost here: the line that they stood in is left out.
    pub fn lost(&mut self) {
        self.open.clear();
        self.skipping = true;
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = MAX_LINE_BYTES.saturating_sub(self.open.len());
        self.open.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

fn give(piece: &[u8], line: &mut impl FnMut(&[u8])) {
    let cut = &piece[..piece.len().min(MAX_LINE_BYTES)];
    if !cut.is_empty() {
        line(cut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&str], expected: &[&str]) {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        let mut take = |line: &[u8]| found.push(String::from_utf8_lossy(line).into_owned());
        pieces.iter().for_each(|piece| lines.push(piece.as_bytes(), &mut take));
        lines.finish(&mut take);
        assert_eq!(found, expected, "{pieces:?}");
    }

    #[test]
    fn lines_end_with_either() {
        check(&["one\ntw", "o\r\n\nthree"], &["one", "two", "three"]);
        check(&[" 10%\r 20%\r", " 30%\n"], &[" 10%", " 20%", " 30%"]);
        check(&["", "\n\n"], &[]);
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_is_whole() {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for _ in 0..64 {
            lines.push(&vec![b'x'; MAX_LINE_BYTES / 4], |line| found.push(line.len()));
        }
        assert!(lines.open.capacity() <= 2 * MAX_LINE_BYTES);
        lines.push(b"y\nnext\n", |line| found.push(line.len()));
        assert_eq!(found, [MAX_LINE_BYTES, 4]);
    }

    #[test]
    fn after_a_loss_the_next_whole_line_counts() {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        let mut take = |line: &[u8]| found.push(String::from_utf8_lossy(line).into_owned());
        lines.push(b"loss: 1", &mut take);
        lines.lost();
        lines.push(b"2.5 step: 9\nstep: 10\n", &mut take);
        assert_eq!(found, ["step: 10"]);
    }
}
