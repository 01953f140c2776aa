//! Whether a plan fits for sure, or only just: the room of a GPU, and what of it must stay free.

use serde::{Deserialize, Serialize};

use crate::finding::clip;
use crate::memory::MOST_OVER_PEAK;
use crate::units::decimal;

/// How well a plan fits. Plans that fit stand before tight ones, but those that are over twice as fast as whatever fits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FitGroup {
    /// The upper end of its likely range is within the GPU's memory, and the margin stays free beside its peak.
    #[default]
    Fits,
    /// Only its peak is within the GPU's memory.
    Tight,
}

impl FitGroup {
    /// Both, in their order.
    pub const ALL: [FitGroup; 2] = [FitGroup::Fits, FitGroup::Tight];
}

/// What must stay free of a GPU's memory beside the peak that is predicted of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Margin {
    /// So many bytes.
    Bytes(u64),
    /// A share of the memory, below 1.
    Share(f64),
}

/// Units of a margin.
const UNITS: [(&str, f64); 6] = [
    ("GiB", (1u64 << 30) as f64),
    ("MiB", (1u64 << 20) as f64),
    ("GB", 1e9),
    ("MB", 1e6),
    ("B", 1.0),
    ("", 1.0),
];

impl Margin {
    /// Reads `4GiB`, `512 MiB`, `4GB`, `5%`, or bytes as a plain number.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Margin, String> {
        let wrong = || {
            format!(
                "a margin is bytes or a share of the GPU's memory, such as 4GiB, 512MiB or 5%, and this is `{}`",
                clip(text)
            )
        };
        let number = |text: &str| decimal(text.trim()).filter(|number| *number >= 0.0).ok_or_else(wrong);
        let text = text.trim();
        if let Some(percent) = text.strip_suffix('%') {
            let share = number(percent)? / 100.0;
            return if share < 1.0 { Ok(Margin::Share(share)) } else { Err(wrong()) };
        }
        let ends = |unit: &str| {
            let at = text.len().checked_sub(unit.len())?;
            text.get(at..)?.eq_ignore_ascii_case(unit).then(|| text.get(..at)).flatten()
        };
        let found = UNITS.iter().find_map(|(unit, bytes)| Some((ends(unit)?, bytes)));
        let (count, bytes) = found.ok_or_else(wrong)?;
        // What is more than any GPU has is refused with the GPU; a cast of a float saturates.
        Ok(Margin::Bytes((number(count)? * bytes) as u64))
    }

    /// Bytes of a GPU with so much memory.
    pub fn bytes(self, capacity: u64) -> u64 {
        match self {
            Margin::Bytes(bytes) => bytes,
            Margin::Share(share) => (capacity as f64 * share) as u64,
        }
    }

    /// In words, such as `4.00 GiB` or `5 %`.
    pub fn in_words(self) -> String {
        match self {
            Margin::Bytes(bytes) => crate::units::Bytes(bytes).in_words(),
            Margin::Share(share) => format!("{} %", (share * 1e4).round() / 100.0),
        }
    }
}

/// The memory of a GPU as a search looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bytes of the GPU.
    pub capacity: u64,
    /// Of peaks, the most that leaves the margin free.
    roomy: u64,
    /// Of peaks, the most whose likely range is within the memory whatever plan it is.
    sure: u64,
}

impl Room {
    /// Of a GPU of which torch sees so many bytes; without bounds where that is not known.
    pub(crate) fn of(capacity: Option<u64>, margin: Option<Margin>) -> Room {
        let Some(capacity) = capacity else {
            return Room { capacity: u64::MAX, roomy: u64::MAX, sure: u64::MAX };
        };
        let roomy = capacity.saturating_sub(margin.map_or(0, |margin| margin.bytes(capacity)));
        Room { capacity, roomy, sure: roomy.min(capacity / MOST_OVER_PEAK) }
    }

    /// The group of a plan with this peak; none where it does not fit. The upper end of its likely range is only asked for
    /// where it matters.
    #[inline]
    pub(crate) fn group(&self, peak_bytes: u64, high: impl FnOnce() -> u64) -> Option<FitGroup> {
        if peak_bytes <= self.sure {
            return Some(FitGroup::Fits);
        }
        if peak_bytes > self.capacity {
            return None;
        }
        let fits = peak_bytes <= self.roomy && high() <= self.capacity;
        Some(if fits { FitGroup::Fits } else { FitGroup::Tight })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_bytes_or_a_share() {
        let check = |text: &str, expected: Margin| assert_eq!(Margin::parse(text), Ok(expected), "{text}");
        check("4GiB", Margin::Bytes(4 << 30));
        check(" 1.5 gib ", Margin::Bytes(3 << 29));
        check("512MiB", Margin::Bytes(512 << 20));
        check("2GB", Margin::Bytes(2_000_000_000));
        check("0", Margin::Bytes(0));
        check("1000000 B", Margin::Bytes(1_000_000));
        check("5%", Margin::Share(0.05));
        check("0.5 %", Margin::Share(0.005));
        for wrong in ["", "much", "-1GiB", "100%", "NaN", "4 GiB free", "inf", "4KiB", "ü"] {
            let said = Margin::parse(wrong).unwrap_err();
            assert!(said.contains("4GiB") && said.contains(wrong), "{said}");
        }
    }

    #[test]
    fn a_group_is_by_peak_upper_end_and_margin() {
        let check = |margin: Option<Margin>, peak: u64, high: u64, expected: Option<FitGroup>| {
            assert_eq!(
                Room::of(Some(100), margin).group(peak, || high),
                expected,
                "{margin:?} {peak} {high}"
            );
        };
        check(None, 100, 100, Some(FitGroup::Fits));
        check(None, 90, 101, Some(FitGroup::Tight));
        check(None, 101, 110, None);
        check(Some(Margin::Bytes(10)), 90, 95, Some(FitGroup::Fits));
        check(Some(Margin::Bytes(10)), 91, 95, Some(FitGroup::Tight));
        check(Some(Margin::Share(0.6)), 45, 50, Some(FitGroup::Tight));
        check(Some(Margin::Bytes(0)), 90, 101, Some(FitGroup::Tight));
        assert_eq!(Room::of(None, None).group(u64::MAX, || u64::MAX), Some(FitGroup::Fits));
    }
}
