//! Numbers on the command line: `-3` is a number that is too small, not an option that nobody knows.

use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::Command;

/// Lets every option that takes a value take a negative number, so that what reads the value can say what is wrong with it.
pub fn negative_ones_are_values(command: Command) -> Command {
    let takes_a_value = |arg: &clap::Arg| arg.get_action().takes_values() && !arg.is_positional();
    command
        .mut_args(|arg| if takes_a_value(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(negative_ones_are_values)
}

/// Reads a size of a plan. What is 0 is left to the plan's rules, which have more to say.
///
/// # Errors
/// A sentence, where the text is no such number.
pub fn size<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "it must be a whole number of at least 1".to_owned())
}

/// Reads whole numbers of a range.
pub fn whole(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            match *most {
                u64::MAX => format!("it must be a whole number of at least {least}"),
                most => format!("it must be a whole number from {least} to {most}"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_a_range_are_refused_with_it() {
        let few = whole(1..=64);
        assert_eq!((few("1"), few("64")), (Ok(1), Ok(64)));
        for text in ["0", "65", "-3", "2.5", "", "x"] {
            assert_eq!(few(text), Err("it must be a whole number from 1 to 64".to_owned()), "{text}");
        }
        assert_eq!(whole(0..=u64::MAX)("-1"), Err("it must be a whole number of at least 0".to_owned()));
        assert_eq!((size::<u64>("0"), size::<usize>("8")), (Ok(0), Ok(8)));
        assert!(size::<u64>("-3").is_err_and(|message| message.contains("at least 1")));
    }
}
