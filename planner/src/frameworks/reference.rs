//! The reference of options: what the rows say, for people.

use std::fmt::Write;

use super::{Holds, Kind, Table, automodel, bridge, torchtitan};
use crate::plan::Framework;
use crate::wire::Runtime;

/// What an option takes, in words.
fn takes(kind: &Kind) -> String {
    match kind {
        Kind::Number => "whole number".to_owned(),
        Kind::Real => "number".to_owned(),
        Kind::Switch => "true, false".to_owned(),
        Kind::Opposite => "true, false: the opposite".to_owned(),
        Kind::Words { known, .. } => {
            let words = known.iter().filter(|(word, _)| !word.is_empty());
            words.map(|(word, own)| format!("`{word}`: {own}")).collect::<Vec<_>>().join(", ")
        }
        Kind::Read(kind) => format!("{}; read, not written", takes(kind)),
        Kind::Follows(_) => "follows from others".to_owned(),
        Kind::Says(_) => "what can't be said of it is told".to_owned(),
        Kind::Partly(kind) => format!("{}; of others nothing is said", takes(kind)),
        Kind::Own { .. } => "together with others".to_owned(),
    }
}

fn of(out: &mut String, title: &str, table: &Table) {
    // Writing to a String does not fail.
    let _ =
        write!(out, "\n## {title}\n\n| option | field of a plan | takes | read in |\n|---|---|---|---|\n");
    for row in table.rows() {
        let _ = writeln!(out, "| `{}` | {} | {} | {} |", row.option, row.field, takes(&row.kind), row.source);
    }
    let _ = write!(out, "\n| field without an option | said | why | read in |\n|---|---|---|---|\n");
    for gap in table.gaps() {
        let said = match gap.holds {
            Holds::Elsewhere => "always".to_owned(),
            Holds::Files => "where it is set to anything but its default".to_owned(),
            Holds::Only(value) => format!("unless {value}"),
            Holds::Where(_) => "where it matters".to_owned(),
            Holds::Nothing => "never".to_owned(),
        };
        let _ = writeln!(out, "| {} | {said} | {} | {} |", gap.field, gap.what, gap.source);
    }
}

/// All frameworks whose options are rows, as a document.
pub fn reference() -> String {
    let mut out = String::from(
        "# Options of frameworks\n\n\
         Which option of a framework each field of a plan is, and which fields it has no option for. Made from the rows in \
         `planner/src/frameworks` by\n`SHARDPLAN_WRITE=1 cargo test --package planner --test frameworks`; a test holds it against \
         them.\nMegatron-LM's are in docs/megatron-options.md.\n",
    );
    of(&mut out, "NeMo Automodel 0.7, FSDP2", &automodel::table(Runtime::Fsdp2));
    of(&mut out, "NeMo Automodel 0.7, Megatron-FSDP", &automodel::table(Runtime::MegatronFsdp));
    of(&mut out, "Megatron Bridge 0.6", &bridge::table());
    for version in [Framework::Torchtitan03, Framework::Torchtitan02, Framework::TorchtitanMain] {
        of(&mut out, version.name(), &torchtitan::table(version));
    }
    out
}
