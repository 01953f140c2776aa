//! Times in log lines, as far as lines of one run can be put in order by them.
//!
//! Zones are not looked at: the programs of one run share one. A time without a year (glog's `E1121 12:33:44`, syslog's
//! `Nov 21 12:33:44`) is compared by month and day.

use std::cmp::Ordering;

/// A time of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    year: Option<u32>,
    month: u32,
    day: u32,
    milliseconds: u64,
}

impl Stamp {
    /// Earlier first; years count where both have one.
    pub(super) fn order(self, other: Stamp) -> Ordering {
        let years = match (self.year, other.year) {
            (Some(one), Some(two)) => one.cmp(&two),
            _ => Ordering::Equal,
        };
        let rest = |stamp: Stamp| (stamp.month, stamp.day, stamp.milliseconds);
        years.then(rest(self).cmp(&rest(other)))
    }

    /// Seconds from this one to a later one of the same month; none when that can't be said.
    pub(super) fn seconds_until(self, later: Stamp) -> Option<u64> {
        if self.month != later.month || later.order(self) == Ordering::Less {
            return None;
        }
        let days = u64::from(later.day.checked_sub(self.day)?);
        (days * 86_400_000 + later.milliseconds).checked_sub(self.milliseconds).map(|passed| passed / 1000)
    }

    /// As people write it, to the second.
    pub(super) fn shown(self) -> String {
        let seconds = self.milliseconds / 1000;
        let time = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        match self.year {
            Some(year) => format!("{year}-{:02}-{:02} {time}", self.month, self.day),
            None => format!("{:02}-{:02} {time}", self.month, self.day),
        }
    }
}

/// The bytes of a line in which a time is looked for.
const REACH: usize = 400;

/// The first time in a line.
pub(super) fn stamp_in(line: &str) -> Option<Stamp> {
    let bytes = line.as_bytes();
    let bytes = &bytes[..bytes.len().min(REACH)];
    let mut from = 2;
    loop {
        let place = from + bytes.get(from..)?.iter().position(|&byte| byte == b':')?;
        if let Some(stamp) = stamp_at(bytes, place) {
            return Some(stamp);
        }
        from = place + 1;
    }
}

/// The time whose first colon is at `colon`.
fn stamp_at(bytes: &[u8], colon: usize) -> Option<Stamp> {
    let (hours, minutes) = (number(bytes, colon.checked_sub(2)?, 2)?, number(bytes, colon + 1, 2)?);
    if *bytes.get(colon + 3)? != b':' {
        return None;
    }
    let seconds = number(bytes, colon + 4, 2)?;
    if hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let mut milliseconds = 0;
    if matches!(bytes.get(colon + 6), Some(b'.' | b',')) {
        let digits = bytes[colon + 7..].iter().take_while(|byte| byte.is_ascii_digit()).count().min(3);
        if digits > 0 {
            let scale = [0, 100, 10, 1][digits];
            milliseconds = number(bytes, colon + 7, digits)? * scale;
        }
    }
    let end = colon.checked_sub(3)?;
    if !matches!(bytes[end], b' ' | b'T' | b'_') {
        return None;
    }
    let (year, month, day) = iso(bytes, end).or_else(|| glog(bytes, end)).or_else(|| syslog(bytes, end))?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let milliseconds = u64::from(hours * 3600 + minutes * 60 + seconds) * 1000 + u64::from(milliseconds);
    Some(Stamp { year, month, day, milliseconds })
}

/// `2026-11-21` before `end`.
fn iso(bytes: &[u8], end: usize) -> Option<(Option<u32>, u32, u32)> {
    let start = end.checked_sub(10)?;
    let dashes = [bytes[start + 4], bytes[start + 7]];
    (dashes == [b'-'; 2] || dashes == [b'/'; 2]).then_some(())?;
    Some((Some(number(bytes, start, 4)?), number(bytes, start + 5, 2)?, number(bytes, start + 8, 2)?))
}

/// `E1121` before `end`, or `E304`, as torch writes the fourth of March.
fn glog(bytes: &[u8], end: usize) -> Option<(Option<u32>, u32, u32)> {
    let of = |digits: usize| {
        let start = end.checked_sub(digits + 3)?;
        matches!(bytes[start], b'E' | b'W' | b'I' | b'F' | b'C' | b'V' | b'D').then_some(())?;
        Some((None, number(bytes, start + 1, digits)?, number(bytes, start + 1 + digits, 2)?))
    };
    of(2).or_else(|| of(1))
}

/// `Nov 21` or `Nov  1` before `end`.
fn syslog(bytes: &[u8], end: usize) -> Option<(Option<u32>, u32, u32)> {
    const MONTHS: [&[u8; 3]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let start = end.checked_sub(6)?;
    let month = MONTHS.iter().position(|name| bytes[start..].starts_with(&name[..]))?;
    let day = match bytes[start + 4] {
        b' ' => number(bytes, start + 5, 1)?,
        _ => number(bytes, start + 4, 2)?,
    };
    Some((None, month as u32 + 1, day))
}

fn number(bytes: &[u8], start: usize, digits: usize) -> Option<u32> {
    bytes
        .get(start..start + digits)?
        .iter()
        .try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + u32::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::stamp_in;

    fn check(line: &str, expected: Option<&str>) {
        assert_eq!(stamp_in(line).map(super::Stamp::shown).as_deref(), expected, "{line}");
    }

    #[test]
    fn times_are_found() {
        check("2026-11-21 12:33:44,123 INFO x", Some("2026-11-21 12:33:44"));
        check("[2026-11-21T12:33:44.5Z] x", Some("2026-11-21 12:33:44"));
        check("  time      : 2026-11-21_12:33:44", Some("2026-11-21 12:33:44"));
        check("[rank1]:[E1121 12:33:44.123456789 ProcessGroupNCCL.cpp:616]", Some("11-21 12:33:44"));
        check("[rank5]:[E304 10:20:00.123456789 ProcessGroupNCCL.cpp:1854]", Some("03-04 10:20:00"));
        check("Nov  1 02:03:04 node01 kernel: x", Some("11-01 02:03:04"));
        check("2026/11/21 12:33:44 x", Some("2026-11-21 12:33:44"));
        for no in ["12:33:44", "a:b:c", "", ":::", "2026-13-21 12:33:44", "2026-11-21 25:33:44", "x 1:2"] {
            check(no, None);
        }
    }

    #[test]
    fn seconds_pass() {
        let at = |text| stamp_in(text).expect("a time");
        assert_eq!(at("2026-11-21 23:59:59").seconds_until(at("Nov 22 00:00:09")), Some(10));
        assert_eq!(at("2026-11-21 12:00:01").seconds_until(at("2026-11-21 12:00:00")), None);
    }
}
