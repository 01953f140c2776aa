//! A candidate in numbers, and what was found of it.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::json::by_field::by_field;
use crate::wire::Objective;

/// A candidate: values of the axes, and indices into its subspace's lists. Ordered by them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Candidate {
    /// The subspace.
    pub subspace: u32,
    /// Tensor parallel.
    pub tp: u32,
    /// Context parallel.
    pub cp: u32,
    /// Expert parallel.
    pub ep: u32,
    /// Expert tensor parallel.
    pub etp: u32,
    /// Sequence parallel.
    pub sp: bool,
    /// Which number of stages.
    pub stages: u16,
    /// Which pipeline of that number.
    pub pipe: u16,
    /// Replicas of FSDP runtimes.
    pub replicas: u32,
    /// Sequences of a micro batch.
    pub micro_batch: u32,
    /// Which set is recomputed.
    pub recompute: u16,
}

by_field! { open Candidate { subspace, tp, cp, ep, etp, sp, stages, pipe, replicas, micro_batch, recompute; } }

/// A candidate with its step by the closed form and its fullest rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// Which.
    pub candidate: Candidate,
    /// Seconds of a step.
    #[serde(with = "exact")]
    pub seconds: f64,
    /// Bytes that its fullest rank takes.
    pub peak_bytes: u64,
}

/// Share of a step that the time model can't tell apart.
pub const ALIKE: f64 = 0.02;

/// What an objective looks at beside a candidate itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Terms {
    /// GPUs.
    #[serde(with = "exact")]
    pub gpus: f64,
    /// Price of a GPU for an hour.
    #[serde(with = "exact")]
    pub price: f64,
    /// Bytes of a GPU.
    #[serde(with = "exact")]
    pub capacity: f64,
    /// Longest step that meets the deadline; infinite without one.
    #[serde(with = "exact")]
    pub deadline: f64,
}

/// How good a candidate is: less is better, number by number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Key([f64; 3]);

impl Key {
    /// Of a step of so many seconds, with so many bytes on the fullest rank.
    pub(super) fn of(objective: Objective, terms: &Terms, seconds: f64, peak_bytes: u64) -> Key {
        let (peak, cost) = (peak_bytes as f64, seconds * terms.gpus * terms.price);
        Key(match objective {
            Objective::Fastest => [seconds, peak, 0.0],
            Objective::Cheapest => [cost, seconds, peak],
            Objective::FewestGpus => [terms.gpus, seconds, peak],
            Objective::MostHeadroom => [peak - terms.capacity, seconds, 0.0],
            Objective::Deadline if seconds <= terms.deadline => [0.0, cost, seconds],
            Objective::Deadline => [1.0, seconds, cost],
        })
    }

    /// Whether the time model can't tell it from the best: then the simplest stands first.
    #[inline]
    pub(super) fn is_like(&self, best: &Key, objective: Objective) -> bool {
        let within = |place: usize| self.0[place] <= best.0[place] * (1.0 + ALIKE);
        match objective {
            Objective::Fastest | Objective::Cheapest => within(0),
            Objective::FewestGpus | Objective::Deadline => self.0[0] == best.0[0] && within(1),
            // Memory is not a matter of the time model.
            Objective::MostHeadroom => false,
        }
    }

    /// Whether it comes after another. Nearly all do by their first number, so that is looked at alone.
    #[inline]
    pub(super) fn is_behind(&self, other: &Key) -> bool {
        self.0[0] > other.0[0] || self.compare(other).is_gt()
    }

    /// Which of two comes first.
    pub(super) fn compare(&self, other: &Key) -> Ordering {
        let pairs = self.0.iter().zip(&other.0);
        pairs.map(|(one, other)| one.total_cmp(other)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

/// The same where there may be none.
pub(super) mod exact_if_any {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes the number's bits in hex, or nothing.
    pub(crate) fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::exact::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads it.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| super::exact::read(&text).map_err(D::Error::custom)).transpose()
    }
}

/// Numbers as text: what is read is what was written, to the last bit.
pub(super) mod exact {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes the number's bits in hex.
    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:x}", value.to_bits()))
    }

    /// Reads it.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        read(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }

    /// The number of which a text is the bits.
    pub(super) fn read(text: &str) -> Result<f64, String> {
        let bits = u64::from_str_radix(text, 16);
        bits.map(f64::from_bits).map_err(|_| format!("`{text}` is not the bits of a number"))
    }
}
