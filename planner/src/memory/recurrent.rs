//! What stands in attention's place: state-space models and delta rules.

use crate::model::{CHUNK, Scan};

use super::parts::{LayerBytes, Saver};
use super::setting::PlanTerms;
use crate::units::Quantity;

/// What a recurrence keeps.
pub(super) fn scan(at: &PlanTerms<'_>, scan: &Scan) -> LayerBytes {
    let wide = |elements: u64| Quantity::from(elements);
    let operators = at.megatron() && at.plan.training.deterministic;
    let kept = scan.kept_of_operators.filter(|_| operators).unwrap_or(scan.kept);
    let states = 4 * at.full * wide(kept.of_chunk) / CHUNK;
    let split = ((at.size * wide(kept.split) + 4 * wide(kept.exact)) * at.full + states) / at.tp;
    let gated = at.size * at.full * wide(scan.gated) / at.tp;
    let read = at.widths.input(at.full * wide(scan.read) / at.tp);
    let mut bytes = LayerBytes::saved(Saver::Recurrence, split + at.size * at.full * wide(kept.whole));
    bytes.keep(Saver::Recurrence, gated + read, scan.gated > 0 && at.recomputes("gdn_norm_out"));
    bytes
}
