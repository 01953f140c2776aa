//! How good predictions are on rows that their constants had not seen, as `cargo xtask accuracy` and `cargo xtask fit` print it.

use evidence::step_time::Group;

/// A line for each group of rows; those that likely ranges are derived from have a star.
#[expect(clippy::print_stdout, reason = "the table is what both commands are asked for")]
pub fn print(groups: &[Group]) {
    println!(
        "\n{:<32} {:<26} {:<14} {:>4} {:>9} {:>9} {:>9} {:>9}",
        "unseen", "told", "left out", "n", "median", "p90", "in range", "half"
    );
    for group in groups {
        let (dataset, told, left_out) = group.of;
        println!(
            "{:<32} {:<26} {:<14} {:>4} {:>8.2}% {:>8.2}% {:>8.1}% {:>8.1}%{}",
            dataset,
            told,
            left_out.name(),
            group.n,
            100.0 * group.errors[0],
            100.0 * group.errors[1],
            100.0 * group.within as f64 / group.n as f64,
            100.0 * group.half_width,
            if group.counts { " *" } else { "" }
        );
    }
}
