//! The plan as options of a framework, as words of the shell.

use batch::launch::Writer;

use crate::Table;

/// The plan as options of a framework and words of the shell, empty for an option that stands alone; what they do not say
/// becomes notes and findings. `seed` is the option that elements of a job array count on from.
pub(crate) fn options_of(writer: &mut Writer<'_>, table: Table, seed: &str) -> Vec<(&'static str, String)> {
    let written = table.write(writer.plan);
    for missing in written.missing {
        writer.cannot(missing.field, missing.value, missing.what);
    }
    let mut found = Vec::with_capacity(written.options.len());
    for (row, word) in written.options {
        let words: Vec<&str> = match row.kind.is_several() {
            true => word.split(' ').collect(),
            false => vec![&word],
        };
        let word = match row.option == seed {
            true => writer.seed(),
            false if row.kind.is_alone() => String::new(),
            false => {
                let words = words.iter().map(|word| writer.word(row.field, word));
                words.collect::<Vec<_>>().join(" ")
            }
        };
        found.push((row.option, word));
    }
    found
}
