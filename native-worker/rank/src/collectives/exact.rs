//! Sums of fp64 numbers without rounding, so that it makes no difference in which order they are added: on their way up the tree
//! that is the order of hosts.

/// Words of a sum: 2,098 bits hold every fp64 number as a whole number of the smallest, and the others the sign and what carries
/// over from as many numbers as anybody adds.
const WORDS: usize = 34;

/// Bytes of a sum on its way.
pub const SUM_BYTES: usize = 8 * (WORDS + 1);

/// Bits of the fraction that an fp64 number is written with.
const FRACTION: u32 = 52;

/// What was added that is no number of this kind.
const NOT_A_NUMBER: u64 = 1;
const INFINITE: u64 = 2;
const MINUS_INFINITE: u64 = 4;

/// A sum of fp64 numbers, exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExactSum {
    /// How often the smallest fp64 number is in it, in two's complement, the lowest word first.
    words: [u64; WORDS],
    /// Flags of what is not finite in it.
    others: u64,
}

impl ExactSum {
    /// A sum of one number.
    pub fn of(number: f64) -> ExactSum {
        let mut sum = ExactSum { words: [0; WORDS], others: 0 };
        if !number.is_finite() {
            sum.others = match number {
                _ if number.is_nan() => NOT_A_NUMBER,
                _ if number > 0.0 => INFINITE,
                _ => MINUS_INFINITE,
            };
            return sum;
        }
        let bits = number.abs().to_bits();
        let (exponent, fraction) = (bits >> FRACTION, bits & ((1 << FRACTION) - 1));
        // Below the least exponent there is no leading one.
        let (place, digits) = match exponent {
            0 => (0, fraction),
            exponent => (exponent - 1, fraction | 1 << FRACTION),
        };
        let wide = u128::from(digits) << (place % 64);
        let first = (place / 64) as usize;
        for (word, part) in sum.words.iter_mut().skip(first).zip([wide as u64, (wide >> 64) as u64]) {
            *word = part;
        }
        if number.is_sign_negative() {
            sum.words = negated(sum.words);
        }
        sum
    }

    /// Adds another sum.
    pub fn add(&mut self, other: &ExactSum) {
        let mut carry = false;
        for (word, added) in self.words.iter_mut().zip(other.words) {
            let (sum, first) = word.overflowing_add(added);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*word, carry) = (sum, first || second);
        }
        self.others |= other.others;
    }

    /// The fp64 number next to it, of two the even one; not a number, or infinite, where a number in it was.
    pub fn rounded(&self) -> f64 {
        match self.others {
            0 => {}
            INFINITE => return f64::INFINITY,
            MINUS_INFINITE => return f64::NEG_INFINITY,
            _ => return f64::NAN,
        }
        let negative = self.words[WORDS - 1] >> 63 == 1;
        let size = magnitude(if negative { negated(self.words) } else { self.words });
        if negative { -size } else { size }
    }

    /// As it goes over a link.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + use<> {
        self.words.into_iter().chain([self.others]).flat_map(u64::to_le_bytes)
    }

    /// What came over a link: `SUM_BYTES`, of which missing ones are 0.
    pub fn read(bytes: &[u8]) -> ExactSum {
        let mut numbers = bytes.chunks_exact(8).map(|chunk| {
            let mut array = [0; 8];
            array.copy_from_slice(chunk);
            u64::from_le_bytes(array)
        });
        let words = std::array::from_fn(|_| numbers.next().unwrap_or(0));
        ExactSum { words, others: numbers.next().unwrap_or(0) }
    }
}

fn negated(words: [u64; WORDS]) -> [u64; WORDS] {
    let mut carry = true;
    words.map(|word| {
        let (sum, over) = (!word).overflowing_add(u64::from(carry));
        carry = over;
        sum
    })
}

/// The fp64 number next to so many of the smallest.
fn magnitude(words: [u64; WORDS]) -> f64 {
    let Some(top) = words.iter().rposition(|&word| word != 0) else { return 0.0 };
    let highest = 64 * top as u32 + words[top].ilog2();
    // Up to here the bits of a number are those of the whole number.
    let Some(dropped) = highest.checked_sub(FRACTION).filter(|&dropped| dropped > 0) else {
        return f64::from_bits(words[0]);
    };
    let (word, shift) = ((dropped / 64) as usize, dropped % 64);
    let above = words.get(word + 1).copied().unwrap_or(0);
    let digits = ((u128::from(above) << 64 | u128::from(words[word])) >> shift) as u64;
    let bit = |number: u32| words[(number / 64) as usize] >> (number % 64) & 1 == 1;
    let half = bit(dropped - 1);
    let below = dropped - 1;
    let (whole, rest) = ((below / 64) as usize, below % 64);
    let more = words[..whole].iter().any(|&word| word != 0) || words[whole] & ((1 << rest) - 1) != 0;
    let up = half && (more || digits & 1 == 1);
    // A carry out of the fraction is one more in the exponent, as it should be.
    let bits = (u64::from(dropped) << FRACTION) + digits + u64::from(up);
    if bits >= f64::INFINITY.to_bits() { f64::INFINITY } else { f64::from_bits(bits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(numbers: &[f64]) -> f64 {
        let mut all = ExactSum::of(0.0);
        numbers.iter().for_each(|&number| all.add(&ExactSum::of(number)));
        all.rounded()
    }

    /// Numbers of all sizes, from a seed.
    fn number(seed: u64) -> f64 {
        let bits = crate::state::init::mix(seed);
        let number = f64::from_bits(bits);
        if number.is_finite() { number } else { f64::from_bits(bits & !(1 << 62)) }
    }

    #[test]
    fn one_number_is_itself() {
        let named = [0.0, 1.0, -1.5, f64::MIN_POSITIVE, f64::MAX, -f64::MAX, f64::from_bits(1), 4.0 / 3.0];
        let any = (0..20_000).map(number);
        for number in named.into_iter().chain(any) {
            assert_eq!(sum(&[number]), number);
        }
        assert_eq!(sum(&[]), 0.0);
    }

    #[test]
    fn two_numbers_add_up_as_the_processor_adds_them() {
        for seed in 0..20_000 {
            let (one, other) = (number(2 * seed), number(2 * seed + 1));
            assert_eq!(sum(&[one, other]), one + other, "{one:e} and {other:e}");
            // Close to each other, too, where digits go over and cancel.
            let close = -one * (1.0 + (other.to_bits() % 1000) as f64 * f64::EPSILON);
            assert_eq!(sum(&[one, close]), one + close, "{one:e} and {close:e}");
        }
        // Halves go to the even neighbour, and what is beyond the largest is infinite.
        let ulp = f64::EPSILON;
        assert_eq!(sum(&[1.0, ulp / 2.0]), 1.0);
        assert_eq!(sum(&[1.0 + ulp, ulp / 2.0]), 1.0 + 2.0 * ulp);
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
        assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
    }

    #[test]
    fn nothing_is_lost_in_any_order() {
        // By the processor, from left to right, it would be 0.
        assert_eq!(sum(&[1e308, 1.0, 1e-300, -1e308, -1.0]), 1e-300);
        let mut numbers: Vec<f64> = (0..2048).map(number).collect();
        let before = sum(&numbers);
        numbers.reverse();
        assert_eq!(sum(&numbers), before);
        let (left, right) = numbers.split_at(700);
        let mut parts = [left, right].map(|part| {
            part.iter().fold(ExactSum::of(0.0), |mut all, &number| {
                all.add(&ExactSum::of(number));
                all
            })
        });
        let sent: Vec<u8> = parts[1].bytes().collect();
        assert_eq!(sent.len(), SUM_BYTES);
        parts[0].add(&ExactSum::read(&sent));
        assert_eq!(parts[0].rounded(), before);
    }

    #[test]
    fn what_is_no_number_stays_so() {
        assert!(sum(&[1.0, f64::NAN, 2.0]).is_nan());
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert_eq!(sum(&[f64::INFINITY, 1.0, f64::INFINITY]), f64::INFINITY);
        assert_eq!(sum(&[-1.0, f64::NEG_INFINITY]), f64::NEG_INFINITY);
    }
}
