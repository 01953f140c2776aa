//! Units as types: what is a byte count can't be added to a time.

mod decimal;
mod quantity;

use serde::{Deserialize, Serialize};

pub use decimal::decimal;
pub use quantity::Quantity;

/// A number of bytes. GiB (base 1024) is made only where a person reads it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// This count in GiB (1024-based), for display.
    pub fn gib(self) -> f64 {
        self.0 as f64 / (1u64 << 30) as f64
    }

    /// This count in GB (1000-based), for display next to vendors' figures.
    pub fn gb(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// This count in the largest unit of base 1024 in which it is 1 or more, with that unit's name: nothing is shown as none.
    pub fn scaled(self) -> (f64, &'static str) {
        self.in_largest([(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")])
    }

    /// The same in units of base 1000.
    pub(crate) fn scaled_by_1000(self) -> (f64, &'static str) {
        self.in_largest([(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")])
    }

    fn in_largest(self, units: [(u64, &'static str); 3]) -> (f64, &'static str) {
        let found = units.into_iter().find(|(unit, _)| self.0 >= *unit);
        found.map_or((self.0 as f64, "B"), |(unit, name)| (self.0 as f64 / unit as f64, name))
    }

    /// In words of base 1024 with two decimals, such as `79.11 GiB` and `1.50 KiB`.
    pub fn in_words(self) -> String {
        with_unit(self.scaled())
    }

    /// Both in words of base 1024, with as many decimals as tell them apart, two at least.
    pub fn apart(self, other: Bytes) -> [String; 2] {
        told_apart(self != other, |decimals| [self, other].map(|one| with_decimals(one.scaled(), decimals)))
    }

    /// In words of base 1000, such as `12.35 GB`.
    pub fn in_words_by_1000(self) -> String {
        with_unit(self.scaled_by_1000())
    }

    /// Two figures of GiB without the unit, with as many decimals as tell them apart, two at least.
    pub fn gib_figures_apart(self, other: Bytes) -> [String; 2] {
        told_apart(self != other, |decimals| [self, other].map(|one| one.gib_figure(decimals)))
    }

    /// GiB without the unit, for columns that have it at their head: with so many decimals, and below a tenth with as many as
    /// three digits need.
    pub fn gib_figure(self, decimals: usize) -> String {
        figure(self.gib(), decimals)
    }

    /// The same in GB.
    pub fn gb_figure(self, decimals: usize) -> String {
        figure(self.gb(), decimals)
    }
}

fn figure(value: f64, mut decimals: usize) -> String {
    if value > 0.0 && value < 0.1 {
        decimals = 3;
        let mut least = 0.1;
        while value < least {
            (least, decimals) = (least / 10.0, decimals + 1);
        }
    }
    format!("{value:.decimals$}")
}

impl std::ops::Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(items: I) -> Bytes {
        items.fold(Bytes(0), |total, item| total + item)
    }
}

fn with_unit(scaled: (f64, &str)) -> String {
    with_decimals(scaled, 2)
}

fn with_decimals((value, unit): (f64, &str), decimals: usize) -> String {
    match unit {
        "B" => format!("{value} B"),
        _ => format!("{value:.decimals$} {unit}"),
    }
}

/// Two texts with two decimals, or where they should differ and don't with as many more as it takes.
fn told_apart(differ: bool, written: impl Fn(usize) -> [String; 2]) -> [String; 2] {
    /// A byte of a GiB.
    const MOST: usize = 10;
    let texts = (2..=MOST).map(&written).find(|[one, other]| !differ || one != other);
    texts.unwrap_or_else(|| written(MOST))
}

/// A number as options and settings write it: whole ones as such, and others as short as they can be read back.
pub fn number(value: f64) -> String {
    // Rust writes the shortest digits that give the same value back, without an exponent.
    format!("{value}")
}

/// The text with a capital first letter. Only ASCII has one: tables of all letters' capitals would be a part of the page.
pub fn capital(text: &str) -> String {
    let mut text = text.to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

/// A count with thousands separators.
pub fn thousands(count: u64) -> String {
    group_digits(&count.to_string())
}

/// A count with thousands separators, and what is counted: `1 rank`, `1,024 ranks`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{} {}", thousands(count), plural(count, noun))
}

/// What so many of something are called: `rank` and `batch` for 1, `ranks` and `batches` for any other number.
pub fn plural(count: u64, noun: &str) -> String {
    let ending = match count {
        1 => "",
        _ if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{noun}{ending}")
}

/// The digits of a whole number, which may have a minus before them, with thousands separators.
pub fn group_digits(number: &str) -> String {
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("-", digits));
    let mut grouped = String::with_capacity(number.len() + digits.len() / 3);
    grouped.push_str(sign);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    Fp16,
    /// IEEE single precision.
    Fp32,
    /// IEEE double precision.
    Fp64,
    /// An 8-bit float: moments of a precision-aware optimizer, quantized weights.
    Fp8,
}

impl Dtype {
    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            Dtype::Fp8 => 1,
            Dtype::Bf16 | Dtype::Fp16 => 2,
            Dtype::Fp32 => 4,
            Dtype::Fp64 => 8,
        }
    }

    /// The type of what a training in this one keeps and sums up exactly: fp64 of fp64, else fp32.
    pub const fn exact(self) -> Dtype {
        match self {
            Dtype::Fp64 => Dtype::Fp64,
            Dtype::Fp8 | Dtype::Bf16 | Dtype::Fp16 | Dtype::Fp32 => Dtype::Fp32,
        }
    }

    /// The name used in plan files.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::Fp16 => "fp16",
            Dtype::Fp32 => "fp32",
            Dtype::Fp64 => "fp64",
            Dtype::Fp8 => "fp8",
        }
    }
}

/// A recipe that runs GEMMs in 8 or 4 bits; weights, gradients and what stands between GEMMs keep their types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LowPrecision {
    /// 8 bits, a scale per tensor from past maxima.
    Fp8Delayed,
    /// 8 bits, a scale per tensor from the tensor itself.
    Fp8Current,
    /// 8 bits, a scale per 128 values of activations and per 128 x 128 of weights.
    Fp8Blockwise,
    /// 8 bits, a scale of 8 bits per 32 values.
    Mxfp8,
    /// 4 bits, a scale of 8 bits per 16 values.
    Nvfp4,
}

impl LowPrecision {
    /// The name used in plan files.
    pub const fn name(self) -> &'static str {
        match self {
            LowPrecision::Fp8Delayed => "fp8_delayed",
            LowPrecision::Fp8Current => "fp8_current",
            LowPrecision::Fp8Blockwise => "fp8_blockwise",
            LowPrecision::Mxfp8 => "mxfp8",
            LowPrecision::Nvfp4 => "nvfp4",
        }
    }

    /// Bits of a value.
    pub const fn bits(self) -> u64 {
        match self {
            LowPrecision::Nvfp4 => 4,
            _ => 8,
        }
    }
}

/// The largest number that divides both; the other one where one of them is 0.
pub fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

/// The middle of some numbers; the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        return values.get(middle).copied();
    }
    Some((values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0)
}

/// Tokens a second over steps of so many tokens that took so long; none where nothing is said of either.
pub fn tokens_per_second(tokens: f64, seconds: f64) -> Option<f64> {
    (tokens > 0.0 && seconds > 0.0).then(|| tokens / seconds)
}

#[cfg(test)]
mod tests {
    use super::{Bytes, counted, group_digits, median, plural, thousands, tokens_per_second};

    #[test]
    fn bytes_are_shown_in_a_unit_that_has_digits() {
        let check = |bytes: u64, of_1024: &str, of_1000: &str| {
            assert_eq!(
                (Bytes(bytes).in_words().as_str(), Bytes(bytes).in_words_by_1000().as_str()),
                (of_1024, of_1000)
            );
        };
        check(0, "0 B", "0 B");
        check(999, "999 B", "999 B");
        check(1536, "1.50 KiB", "1.54 kB");
        check(800_000, "781.25 KiB", "800.00 kB");
        check(1 << 29, "512.00 MiB", "536.87 MB");
        check(80 << 30, "80.00 GiB", "85.90 GB");
        // Whatever is there has digits under a heading, too.
        for shift in 0..50 {
            let figure = Bytes(5 << shift).gib_figure(2);
            let digits = figure.trim_start_matches(['0', '.']).len();
            assert!(digits >= 2, "{figure}");
        }
        assert_eq!(Bytes(2_000_000).gb_figure(2), "0.00200");
        assert_eq!(
            (Bytes(0).gib_figure(2), Bytes(80 << 30).gib_figure(1)),
            ("0.00".to_owned(), "80.0".to_owned())
        );
    }

    #[test]
    fn two_counts_that_differ_are_told_apart() {
        let check = |one: u64, other: u64, expected: [&str; 2]| {
            assert_eq!(Bytes(one).apart(Bytes(other)), expected);
        };
        let all = 80 << 30;
        check(all, 79 << 30, ["80.00 GiB", "79.00 GiB"]);
        check(all + (30 << 10), all, ["80.00003 GiB", "80.00000 GiB"]);
        check(all, all, ["80.00 GiB", "80.00 GiB"]);
        check(all + 1, all, ["80.000000001 GiB", "80.000000000 GiB"]);
        check(3, 2, ["3 B", "2 B"]);
        assert_eq!(Bytes(all + (1 << 20)).gib_figures_apart(Bytes(all)), ["80.001", "80.000"]);
    }

    #[test]
    fn a_median_is_the_middle() {
        let of = |values: &[f64]| median(values.to_vec());
        assert_eq!((of(&[]), of(&[2.0]), of(&[3.0, 1.0])), (None, Some(2.0), Some(2.0)));
        assert_eq!((of(&[9.0, 1.0, 2.0]), of(&[9.0, 1.0, 2.0, 3.0])), (Some(2.0), Some(2.5)));
    }

    #[test]
    fn one_is_no_plural() {
        let said = [0, 1, 2, 1024].map(|count| counted(count, "rank"));
        assert_eq!(said, ["0 ranks", "1 rank", "2 ranks", "1,024 ranks"]);
        assert_eq!([1, 8].map(|count| plural(count, "micro batch")), ["micro batch", "micro batches"]);
    }

    #[test]
    fn digits_stand_in_groups_of_three() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (228_689_748_992, "228,689,748,992")]
        {
            assert_eq!(thousands(number), text);
        }
        assert_eq!((group_digits("-1561"), group_digits("-156")), ("-1,561".to_owned(), "-156".to_owned()));
    }

    #[test]
    fn a_rate_needs_tokens_and_time() {
        assert_eq!(tokens_per_second(4096.0, 2.0), Some(2048.0));
        for (tokens, seconds) in [(0.0, 2.0), (4096.0, 0.0), (4096.0, -1.0), (f64::NAN, 1.0), (1.0, f64::NAN)]
        {
            assert_eq!(tokens_per_second(tokens, seconds), None, "{tokens} {seconds}");
        }
    }
}
