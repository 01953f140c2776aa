//! Decimal numbers as people write them.

/// Powers of ten that a float holds without rounding.
const EXACT: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// The number that a text is, such as `0.1`, `-3e-4` or `+.5`; none where it is no finite number.
///
/// It is the float next to the text for up to 15 digits with an exponent of up to 22, and within a few of its last bits elsewhere. The
/// standard library's reader is exact everywhere, by tables and code that are a hundredth of what a browser is sent.
pub fn decimal(text: &str) -> Option<f64> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i16>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let (mut number, mut exponent) = (0_u64, i64::from(exponent));
    for (place, digit) in whole.bytes().chain(part.bytes()).enumerate() {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        let is_part = place >= whole.len();
        match number.checked_mul(10).and_then(|number| number.checked_add(digit)) {
            Some(longer) => {
                number = longer;
                exponent -= i64::from(is_part);
            }
            // What more digits say is less than the last bit.
            None => exponent += i64::from(!is_part),
        }
    }
    let mut value = number as f64;
    while exponent != 0 && value != 0.0 && value.is_finite() {
        let step = usize::try_from(exponent.unsigned_abs()).unwrap_or(usize::MAX).min(EXACT.len() - 1);
        let power = EXACT.get(step)?;
        if exponent > 0 {
            (value, exponent) = (value * power, exponent - step as i64);
        } else {
            (value, exponent) = (value / power, exponent + step as i64);
        }
    }
    value.is_finite().then_some(sign * value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for text in
            ["0", "-0", "1", "+2", "0.1", ".5", "5.", "3e-4", "1E22", "1e-22", "123456.789e3", "000001.50"]
        {
            assert_eq!(decimal(text), Some(text.parse().unwrap()), "{text}");
        }
        for text in [
            "", "+", "-", ".", "e5", "1e", "1e1.5", "1 ", "0x1", "1,5", "--1", "inf", "nan", "1e309",
            "1e99999", "١",
        ] {
            assert_eq!(decimal(text), None, "{text}");
        }
        assert_eq!(decimal("1e-400"), Some(0.0));
        assert_eq!(decimal("0e999"), Some(0.0));
    }

    proptest! {
        #[test]
        fn fifteen_digits_are_exact(number in 0..1_000_000_000_000_000_u64, exponent in -22..=22_i32) {
            let text = format!("{number}e{exponent}");
            prop_assert_eq!(decimal(&text), Some(text.parse().unwrap()));
        }

        #[test]
        fn other_numbers_are_close(value in proptest::num::f64::NORMAL) {
            let read = decimal(&format!("{value:e}")).unwrap();
            prop_assert!((read / value - 1.0).abs() < 1e-14, "{} for {}", read, value);
        }

        #[test]
        fn any_text_is_a_finite_number_or_none(text in "\\PC{0,12}") {
            prop_assert!(decimal(&text).is_none_or(f64::is_finite));
        }
    }
}
