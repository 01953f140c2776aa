//! Which values of a setting make sense in a plan, as its row says it, and how large the amounts of a plan are that rows name.

use crate::finding::divisors;
use crate::rules::shape::Shape;
use crate::units::common_divisor;
use crate::wire::{Amount, Setting, Values};

/// How many multiples are looked at on either side of a value, and to which multiples of multiples it is rounded besides.
const STEPS: u64 = 4;
const DOUBLINGS: u32 = 6;
/// How many numbers are looked at on either side of a value that may be any between two amounts.
const WINDOW: u64 = 1024;

impl Shape<'_> {
    /// The sizes of an axis that make sense, in rising order; none for what is no axis.
    pub(crate) fn sizes(&self, axis: &str) -> Vec<u64> {
        let Some(setting) = Setting::at_path(axis) else { return Vec::new() };
        let mut sizes = self.values(setting.values, 1);
        sizes.retain(|&size| setting.has(size));
        sizes
    }

    /// Whole numbers that a row names for a setting that stands at `at`; none where it names none.
    pub(crate) fn values(&self, values: Values, at: u64) -> Vec<u64> {
        let amount = |amount: Amount| self.amount(amount);
        match values {
            Values::Any | Values::Scale => Vec::new(),
            Values::Divisors(of) => amount(of).map_or_else(Vec::new, divisors),
            Values::Multiples(of, most) => {
                let at = most.and_then(amount).map_or(at, |most| at.min(most));
                multiples(amount(of).unwrap_or(1), at)
            }
            Values::Between(least, most) => {
                let (least, most) = (amount(least).unwrap_or(0), amount(most).unwrap_or(0));
                let at = at.min(most).max(least);
                let from = at.saturating_sub(WINDOW).max(least);
                (from..=at.saturating_add(WINDOW).min(most)).collect()
            }
            Values::Chunks => match (self.layout.splitter, self.architecture.num_layers) {
                // Where nobody says how layers are split, embedding and loss may have a chunk of their own.
                (Some(_), layers) => (1..=layers.saturating_add(2) / self.layout.pp.max(1)).collect(),
                (None, layers) => divisors(layers),
            },
            Values::NoneOr(of) => amount(of).into_iter().chain([0]).collect(),
            Values::Near => {
                let near = at.saturating_sub(STEPS)..=at.saturating_add(STEPS);
                let halves = (1..=3).map(|power| at >> power);
                let doubles = (1..=3).filter_map(|power| at.checked_mul(1 << power));
                near.chain(halves).chain(doubles).filter(|&value| value > 0).collect()
            }
        }
    }

    /// How large an amount is; none where a plan has no such thing, or its axes do not go together.
    fn amount(&self, amount: Amount) -> Option<u64> {
        let (layout, architecture) = (&self.layout, self.architecture);
        let experts = architecture.moe.as_ref();
        Some(match amount {
            Amount::World => self.world,
            Amount::LayersButOne => architecture.num_layers.saturating_sub(1),
            Amount::LayersOfStage => architecture.num_layers / layout.pp.max(1),
            Amount::Experts => experts.map_or(1, |moe| moe.experts),
            Amount::PartsOfExpert => common_divisor(experts?.ffn_hidden_size, self.world),
            Amount::Replicas => self.dp()?,
            Amount::DataRanks => self.dp()?.checked_mul(layout.cp)?,
            Amount::ShardingRanks => self.sharding_ranks()?,
            Amount::Stages => layout.pp,
            Amount::MicroBatches => self.microbatches()?,
            Amount::GlobalBatch => self.global_batch_size,
            Amount::SequencesAtOnce => self.dp()?.checked_mul(self.micro_batch_size)?,
            Amount::PartsOfSequence => {
                let chunks = if layout.cp > 1 { layout.cp.checked_mul(2)? } else { 1 };
                let ranks = if layout.sp { layout.tp.max(1).checked_mul(layout.cp.max(1))? } else { 1 };
                chunks.checked_mul(ranks / common_divisor(chunks, ranks).max(1))?
            }
            Amount::Positions => architecture.learned_positions?,
        })
    }
}

/// Multiples of a unit near a value, and the nearest ones of twice the unit, of four times, and so on: two axes may cut it.
fn multiples(unit: u64, at: u64) -> Vec<u64> {
    let unit = unit.max(1);
    let count = at / unit;
    let near = count.saturating_sub(STEPS)..=count.saturating_add(STEPS);
    let rounded = (1..=DOUBLINGS).flat_map(|power| {
        let down = count >> power << power;
        [down, down.saturating_add(1 << power)]
    });
    near.chain(rounded).filter_map(|count| count.checked_mul(unit)).filter(|&value| value > 0).collect()
}
