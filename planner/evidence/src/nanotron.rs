//! Hugging Face's nanotron on H100 (the sweep of the Ultra-Scale Playbook): which runs fit, and the static state.
//!
//! nanotron is no runtime of plans, so its rules stand here and nowhere else. From its source (January 2025; files under
//! `src/nanotron`):
//! - bf16 weights; fp32 gradients in one buffer; torch's DDP keeps buckets of two bytes besides (`optim`, `trainer.py`)
//! - fp32 master weights and two moments, split over data parallelism under ZeRO-1 (`optim/zero.py`), where two bytes
//!   more per weight, and two per weight of a rank's slice, stay allocated
//! - two persistent buffers for gathered inputs, forward and backward (`parallel/tensor_parallel/functional.py`)
//! - blocks go to stages by cumulated cost, a layer 4 h h + 3 f h, the output layer V h (`models/base.py`)
//! - 1F1B; flash attention on contiguous copies; gate and up projection in one matrix, activated by separate operators
//! - the loss keeps fp32 logits and their softmax
//!
//! `mem_alloc` is what is allocated when a step is logged by the first stage: static state and the persistent buffers.
//! What the sweep does not say is whether gathered inputs were kept for backward; the upper end of the range keeps them.

use serde_json::{Map, Value};

use super::runs::Row;
use super::{Dataset, Scores};
use planner::cluster::gpu;
use planner::memory::{CONTEXT_BYTES, RESERVED_OVER_ALLOCATED, RESERVED_OVER_ALLOCATED_MAX};

const GIB: f64 = (1u64 << 30) as f64;
/// Bytes of a weight and of its fp32 gradient.
const WEIGHT_AND_GRADIENT: u64 = 2 + 4;
/// Bytes of a weight's place in DDP's buckets.
const BUCKET: u64 = 2;
/// Bytes that stay allocated for a weight under ZeRO-1 beside weight, gradient, bucket and states, whole and once more
/// for the slice that a rank updates.
const ZERO_COPY: u64 = 2;
/// Bytes of master weight and moments.
const STATES: u64 = 12;
/// cuBLAS workspaces on Hopper: 32 MiB for the main thread's handle and for autograd's.
const WORKSPACES: u64 = 2 * (32 << 20);
/// Bytes of fp32 logits and their softmax.
const LOSS: u64 = 8;
/// Bytes besides where nothing is freed in time: logits, their gradient and its contiguous copy, in bf16.
const LOSS_COPIES: u64 = 6;

/// A run's sizes.
struct Run {
    hidden: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    ffn: u64,
    vocabulary: u64,
    tied: bool,
    seq_len: u64,
    batch: u64,
    microbatches: u64,
    dp: u64,
    pp: u64,
    tp: u64,
    zero: bool,
    /// Whether a stage ends with the block that reaches its share, or with the one that goes beyond it: nanotron
    /// changed that during the sweep.
    ends_at_share: bool,
}

/// What a stage holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stage {
    pub embedding: bool,
    pub layers: u64,
    pub head: bool,
}

/// The stages of a row's run, as nanotron cuts them.
///
/// # Errors
/// The field that the row lacks.
pub(super) fn stages(row: &Map<String, Value>) -> Result<Vec<Stage>, String> {
    Ok(Run::of(&Row(row))?.stages())
}

pub(super) fn score(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    let mut fits = Verdicts::default();
    let mut statics = Scores::default();
    for row in rows(name, text)? {
        let row = Row(&row);
        let status = row.text("status");
        let run = match Run::of(&row) {
            Ok(run) => run,
            Err(reason) => {
                fits.scores.unmapped(row.text("name"), &reason);
                continue;
            }
        };
        match status {
            "Success" | "OOM" => fits.count(&row, &run, status == "OOM"),
            _ => fits.scores.excluded += 1,
        }
        match row.real("mem_alloc_gb").filter(|&gib| status == "Success" && gib > 0.0) {
            Some(gib) => {
                let stage = run.stages().first().copied().unwrap_or_default();
                let predicted = (run.static_bytes(&stage) + run.persistent()) as f64;
                statics.row(row.text("name"), predicted, gib * GIB);
            }
            None => statics.excluded += 1,
        }
    }
    Ok(vec![fits.into_dataset(name), statics.into_dataset(name, "static_bytes")])
}

/// Columns then rows.
fn rows(name: &str, text: &str) -> Result<Vec<Map<String, Value>>, String> {
    let wrong = || format!("{name}.json is not a file of nanotron runs: it has no columns and rows");
    let file: Value = serde_json::from_str(text).map_err(|error| format!("{name}.json: {error}"))?;
    let columns = file.get("columns").and_then(Value::as_array).ok_or_else(wrong)?;
    let rows = file.get("rows").and_then(Value::as_array).ok_or_else(wrong)?;
    let named = |row: &Value| -> Option<Map<String, Value>> {
        let named = columns.iter().zip(row.as_array()?);
        Some(named.map(|(key, value)| (key.as_str().unwrap_or_default().to_owned(), value.clone())).collect())
    };
    rows.iter().map(|row| named(row).ok_or_else(wrong)).collect()
}

/// Predictions against what became of a run.
#[derive(Default)]
struct Verdicts {
    scores: Scores,
    died: [u64; 2],
    lived: [u64; 2],
    died_but_fits: u64,
}

impl Verdicts {
    fn count(&mut self, row: &Row<'_>, run: &Run, died: bool) {
        let capacity = gpu("h100-sxm").and_then(|gpu| gpu.capacity_bytes).unwrap_or(u64::MAX);
        let (central, high) = run.device_bytes();
        let too_much = central > capacity;
        let counts = if died { &mut self.died } else { &mut self.lived };
        counts[usize::from(too_much == died)] += 1;
        // 0 for a run that was called right, 1 for one that was not.
        self.scores.errors.push(if too_much == died { 0.0 } else { 1.0 });
        self.scores.equal += u64::from(too_much == died);
        if died && high <= capacity {
            self.died_but_fits += 1;
        }
        if too_much != died {
            self.scores.notes.push(format!(
                "{}: {} with {:.1} GiB predicted, at most {:.1}",
                row.text("name"),
                if died { "died" } else { "lived" },
                central as f64 / GIB,
                high as f64 / GIB
            ));
        }
    }

    fn into_dataset(mut self, name: &str) -> Dataset {
        let share = |[wrong, right]: [u64; 2]| right as f64 / (wrong + right).max(1) as f64;
        let balanced = (share(self.died) + share(self.lived)) / 2.0;
        self.scores.notes.push(format!("runs that died with verdict fits: {}", self.died_but_fits));
        let mut dataset = self.scores.into_dataset(name, "fits");
        dataset.median_abs_err = 1.0 - balanced;
        dataset
    }
}

impl Run {
    fn of(row: &Row<'_>) -> Result<Run, String> {
        let layers = row.need("num_layers")?;
        let hidden = row.need("hidden_size")?;
        let heads = row.need("num_heads")?;
        Ok(Run {
            hidden,
            layers,
            heads,
            // Only rows that lived say; grouped heads are named where they were used.
            kv_heads: row.size("num_kv_heads").unwrap_or(if row.text("name").contains("gqa8") {
                8
            } else {
                heads
            }),
            // Of the two sizes whose rows may lack it.
            ffn: row.size("interm_dim").unwrap_or(if hidden == 16_384 { 53_248 } else { 28_672 }),
            vocabulary: row.need("vocab_size")?,
            // The two small models share the embedding.
            tied: row.0.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(hidden <= 3072),
            seq_len: row.need("seq_len")?,
            batch: row.need("mbs")?,
            microbatches: row.need("batch_accum")?,
            dp: row.need("dp")?,
            pp: row.need("pp")?.max(1),
            tp: row.need("tp")?.max(1),
            zero: row.need("zero_stage")? > 0,
            ends_at_share: row.flag("after_pp_fix"),
        })
    }

    /// Tokens of a micro batch, over the whole tensor-parallel group.
    fn tokens(&self) -> u64 {
        self.seq_len * self.batch
    }

    /// Blocks in order go to a stage until their cost reaches the stage's share.
    fn stages(&self) -> Vec<Stage> {
        let layer = 4 * self.hidden * self.hidden + 3 * self.ffn * self.hidden;
        let head = self.vocabulary * self.hidden;
        let total = u128::from(self.layers * layer + head);
        let mut found = vec![Stage::default(); self.pp as usize];
        let (mut at, mut cost) = (0usize, 0u128);
        let mut place = |price: u64, put: &mut dyn FnMut(&mut Stage)| {
            put(&mut found[at]);
            cost += u128::from(price);
            let share = total * (at as u128 + 1);
            let reached = cost * u128::from(self.pp);
            let full = reached > share || (self.ends_at_share && reached == share);
            if full && at + 1 < self.pp as usize {
                at += 1;
            }
        };
        place(0, &mut |stage| stage.embedding = true);
        for _ in 0..self.layers {
            place(layer, &mut |stage| stage.layers += 1);
        }
        place(head, &mut |stage| stage.head = true);
        if self.ends_at_share {
            // 1F1B counts its first micro batches from the last stage, which must have the loss.
            let last = found.len() - 1;
            for (at, stage) in found.iter_mut().enumerate() {
                stage.head = at == last;
            }
        }
        found
    }

    fn static_bytes(&self, stage: &Stage) -> u64 {
        let (hidden, width) = (self.hidden, self.hidden / self.heads);
        let attention = 2 * hidden * hidden + 2 * self.kv_heads * width * hidden;
        let layer = (attention + 3 * self.ffn * hidden) / self.tp + 2 * hidden;
        let table = self.vocabulary * hidden / self.tp;
        let own_head = stage.head && !(self.tied && stage.embedding);
        let weights = stage.layers * layer + table * (u64::from(stage.embedding) + u64::from(own_head));
        let several = self.dp > 1;
        let each = WEIGHT_AND_GRADIENT + if several { BUCKET } else { 0 };
        let copies = if self.zero && several { ZERO_COPY } else { 0 };
        let split = if self.zero { self.dp.max(1) } else { 1 };
        weights * (each + copies) + weights * (STATES + copies) / split
    }

    /// Workspaces, and buffers of gathered inputs and gathered gradients.
    fn persistent(&self) -> u64 {
        WORKSPACES + if self.tp > 1 { 2 * 2 * self.tokens() * self.hidden } else { 0 }
    }

    /// Peak of the stage that needs the most, with gathered inputs kept or gathered again.
    fn allocated(&self, keeps_gathered: bool, loss: u64) -> u64 {
        let (tokens, hidden, tp) = (self.tokens(), self.hidden, self.tp);
        let local = tokens / tp;
        let width = hidden / self.heads;
        let gathered = if keeps_gathered && tp > 1 { 2 * (tokens - local) * hidden } else { 0 };
        // Norms; queries, keys, values; output and its transposed copy; statistics; gate, up, activated gate, product.
        let layer = 8 * local * hidden
            + 8 * local
            + 2 * tokens * (self.heads + 2 * self.kv_heads) * width / tp
            + 4 * tokens * hidden / tp
            + 4 * tokens * self.heads / tp
            + 8 * tokens * self.ffn / tp
            + 2 * gathered;
        // Gradients of gate and up projection, and of the gathered input.
        let backward = 4 * tokens * self.ffn / tp + 2 * tokens * hidden;
        let of = |(number, stage): (usize, &Stage)| {
            let live = self.microbatches.min(self.pp - number as u64);
            let head = 4 * local * hidden + tokens * self.vocabulary / tp * loss + gathered;
            let extra = if stage.head { head.max(backward) } else { backward };
            self.static_bytes(stage) + self.persistent() + live * stage.layers * layer + extra
        };
        self.stages().iter().enumerate().map(of).max().unwrap_or(0)
    }

    /// Central value and upper end of what a run takes from its GPU.
    fn device_bytes(&self) -> (u64, u64) {
        let ratio =
            |bytes: u64, (over, under): (u64, u64)| (bytes as f64 * over as f64 / under as f64) as u64;
        let central = ratio(self.allocated(false, LOSS), RESERVED_OVER_ALLOCATED) + CONTEXT_BYTES;
        let most = self.allocated(true, LOSS + LOSS_COPIES);
        (central, ratio(most, RESERVED_OVER_ALLOCATED_MAX) + 2 * CONTEXT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_by_cost() {
        let mut run = Run {
            hidden: 2048,
            layers: 16,
            heads: 32,
            kv_heads: 32,
            ffn: 8192,
            vocabulary: 131_072,
            tied: true,
            seq_len: 4096,
            batch: 1,
            microbatches: 16,
            dp: 1,
            pp: 4,
            tp: 1,
            zero: false,
            ends_at_share: true,
        };
        let layers = |run: &Run| run.stages().iter().map(|stage| stage.layers).collect::<Vec<u64>>();
        // The output layer costs as much as four of the sixteen layers.
        assert_eq!(layers(&run), [5, 5, 5, 1]);
        assert!(run.stages()[0].embedding && run.stages()[3].head);
        run.ends_at_share = false;
        assert_eq!(layers(&run), [6, 5, 5, 0]);
        // 18 bytes a weight without data parallelism, and norms.
        let first = Stage { embedding: true, layers: 0, head: false };
        assert_eq!(run.static_bytes(&first), 18 * 131_072 * 2048);
    }
}
