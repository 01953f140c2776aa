//! The reference of options: what the rows say, for people.

use std::fmt::Write;

use std::collections::BTreeMap;

use super::{Effect, Holds, Kind, Source, Table, automodel, bridge, megatron_lm, torchtitan};
use planner::runtime::Runtime;
use planner::software::Framework;

/// What an option takes, in words.
fn takes(kind: &Kind) -> String {
    match kind {
        Kind::Number => "whole number".to_owned(),
        Kind::Real => "number".to_owned(),
        Kind::Switch => "true, false".to_owned(),
        Kind::Opposite => "true, false: the opposite".to_owned(),
        Kind::Flag => "nothing: it is there where this is true".to_owned(),
        Kind::FlagOff => "nothing: it is there where this is false".to_owned(),
        Kind::Alone { .. } => "nothing: together with others".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::List => "names".to_owned(),
        Kind::Several(kind) => format!("names, {}", takes(kind)),
        Kind::Asked(_) => "read together with others, not written".to_owned(),
        Kind::Beside(_, kind) => format!("{}; beside others only", takes(kind)),
        Kind::AtLeast(least, kind) => format!("{}, from {least}", takes(kind)),
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
    let _ = write!(out, "\n## {title}\n\n");
    // Where all follows from fields nothing more is to be told of bytes.
    let told = table.rows().any(|row| row.effect != Effect::OfField);
    let (name, line) = if told { (" left out | bytes |", "---|---|") } else { ("", "") };
    let _ = write!(out, "| option | field of a plan | takes |{name} read in |\n|---|---|---|{line}---|\n");
    for row in table.rows() {
        let _ = write!(out, "| `{}` | {} | {} |", row.option, row.field, takes(&row.kind));
        if told {
            let bytes = if row.effect == Effect::OfField { "" } else { row.effect.name() };
            let usual = row.usual.unwrap_or_default();
            let _ = write!(
                out,
                " {usual} | {bytes}{}{} |",
                if bytes.is_empty() { "" } else { ": " },
                row.effect.why()
            );
        }
        let _ = writeln!(out, " {} |", row.source);
    }
    let _ = write!(out, "\n| field without an option | said | why | read in |\n|---|---|---|---|\n");
    for gap in table.gaps().copied().chain(table.unread()) {
        let said = match gap.holds {
            Holds::Elsewhere => "always".to_owned(),
            Holds::Files => "where it is set to anything but its default".to_owned(),
            Holds::Only(value) => format!("unless {value}"),
            Holds::Where(_) => "where it matters".to_owned(),
            Holds::Nothing => "never".to_owned(),
            Holds::Idle(_) => "never, where this is so".to_owned(),
        };
        let source = match gap.source {
            Source::Read(file) => file,
            Source::Own => "Shardplan's own",
            Source::Unread => "not read yet",
        };
        let _ = writeln!(out, "| {} | {said} | {} | {source} |", gap.field, gap.what);
    }
}

/// All frameworks whose options are rows, as a document.
pub fn reference() -> String {
    let mut out = String::from(
        "# Options of frameworks\n\n\
         Which option of a framework each field of a plan is, and which fields it has no option for. Made from the rows in \
         `planner/frameworks/src` by\n`SHARDPLAN_WRITE=1 cargo test --package planner --test frameworks`; a test holds it against \
         them.\ndocs/megatron-options.md has every option of Megatron-LM, those of no field too.\n",
    );
    of(&mut out, "NeMo Automodel 0.7, FSDP2", &automodel::table(Runtime::Fsdp2));
    of(&mut out, "NeMo Automodel 0.7, Megatron-FSDP", &automodel::table(Runtime::MegatronFsdp));
    of(&mut out, "Megatron-LM core_v0.19", &megatron_lm::table());
    of(&mut out, "Megatron Bridge 0.6", &bridge::table());
    for version in [Framework::Torchtitan03, Framework::Torchtitan02, Framework::TorchtitanMain] {
        of(&mut out, version.name(), &torchtitan::table(version));
    }
    out
}

/// Every option of Megatron-LM's parser with what follows from it, as a document; `takes` is what the parser takes after each.
pub fn megatron_options(takes: &BTreeMap<String, String>) -> String {
    let mut out = String::from(
        "# Megatron-LM's options\n\n\
         Every option of Megatron-LM d98e8a64ddf3, 2026-08-22 (`megatron/training/arguments.py` and the dataclasses that it makes options of), and\n\
         what becomes of it. *counted*: bytes follow it. *no bytes*: it changes none on a GPU while a decoder is trained, for the reason beside it.\n\
         *not counted*: it changes bytes in a way that is not computed; the answer says so in a warning. *refused*: the job is no plan, and the\n\
         error says why. An option that is not here is named in the answer, and `cargo xtask accuracy` leaves its row out and names it.\n\n\
         Made from the rows in `planner/frameworks/src/megatron_lm`, as docs/options.md is, which has the field of a plan that an option is and the\n\
         variables of a job that are read. Other variables that test cases set (`CUDA_DEVICE_MAX_CONNECTIONS`, `NCCL_*`, `TORCH_NCCL_*`,\n\
         `NVTE_*_SM_MARGIN`, `NVTE_NORM_*_USE_CUDNN`, `NVTE_ALLOW_NONDETERMINISTIC_ALGO`, `MAMBA_DETERMINISTIC`) change nothing that torch's\n\
         allocator counts.\n\n\
         *takes* is what the parser of core_v0.19.0 (5be9626709af, 2026-08-19), the newest release then, takes after the option's name, as\n\
         `planner/frameworks/tests/options/megatron-lm-0.19.json` records it. A test holds every option that a script has against it.\n\n\
         Test cases whose programs train something else (BERT, T5, LLaVA, MIMO), distil, sample or learn by reinforcement are named as not planned,\n\
         as is torch's FSDP2 under Megatron-LM.\n\n\
         | option | bytes | how, or why none | takes |\n|---|---|---|---|\n",
    );
    for (option, takes) in takes {
        let (name, why) = match megatron_lm::effect_of(option) {
            Some(effect) => (effect.name(), effect.why()),
            None => ("not known", ""),
        };
        // Writing to a String does not fail.
        let _ = writeln!(out, "| {option} | {name} | {why} | {takes} |");
    }
    out
}
