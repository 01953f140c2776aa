//! nanotron's sweep over layouts on H100 (the Ultra-Scale Playbook's).

use super::Case;
use super::row::{Dense, Row, inputs};
use crate::accuracy::nanotron::{self, Stage};
use crate::layout::Chunk;
use crate::time::{ModelShape, StageClass, Stages};

/// All-gather bandwidth of the run's own test, Gbit/s, that parts the two states of the network, by nodes: rows lie
/// on one of two curves (215 to 228 and 40 to 170 at few nodes, 44 and 6 at 64).
const HEALTHY: &[(u64, f64)] = &[(2, 190.0), (4, 150.0), (8, 95.0), (16, 55.0), (32, 32.0), (64, 17.0)];

pub(super) fn case(row: &Row) -> Result<Option<Case>, String> {
    let (Some(tokens), "Success") = (row.real("tokens_per_s_per_gpu"), row.text("status")) else {
        return Ok(None);
    };
    let (nodes, heads) = (row.need("nodes")?, row.need("num_heads")?);
    let hidden = row.need("hidden_size")?;
    let model = Dense {
        layers: row.need("num_layers")?,
        hidden,
        heads,
        kv_heads: row.number("num_kv_heads").unwrap_or(heads),
        head_dim: hidden / heads,
        ffn: row.need("interm_dim")?,
        vocabulary: row.need("vocab_size")?,
        gated: true,
        tied: row.flag("tie_word_embeddings"),
    }
    .architecture();
    let (dp, tp, pp) = (row.need("dp")?, row.need("tp")?, row.need("pp")?);
    let world = dp * tp * pp;
    let threshold = HEALTHY.iter().find(|(known, _)| *known == nodes).map(|known| known.1);
    let slow = threshold.is_some_and(|least| row.real("allgather_gbps").is_some_and(|found| found < least));
    let profile = if slow { "nanotron-2024-slow-network" } else { "nanotron-2024" };
    let mut inputs = inputs(&model, "H100", profile, world)?;
    (inputs.tp, inputs.pp) = (tp, pp);
    (inputs.mbs, inputs.seq_len) = (row.need("mbs")?, row.need("seq_len")?);
    inputs.gbs = inputs.mbs * row.need("batch_accum")? * dp;
    inputs.gradient_bytes = if row.flag("accumulate_grad_in_fp32") { 4.0 } else { 2.0 };
    inputs.distributed = row.number("zero_stage") == Some(1);
    inputs.fused_loss = false;
    let seconds = (inputs.gbs * inputs.seq_len) as f64 / (tokens * world as f64);
    let family = format!("nanotron-{}B", row.real("num_params_B").unwrap_or(0.0));
    let cut = nanotron::stages(row.fields())?;
    let mut case = row.placed_case(inputs, &family, seconds, |shape, _| placed(shape, &cut))?;
    case.printed_tokens = true;
    if pp > 1 && !row.flag("after_pp_fix") {
        case.excluded = Some("measured before the framework's pipeline fix");
    }
    Ok(Some(case))
}

/// Stages that hold what the framework put on each of them.
fn placed(shape: &ModelShape, cut: &[Stage]) -> Stages {
    let mut first = 0;
    let classes = cut.iter().map(|stage| {
        let layers = first..first + stage.layers;
        first = layers.end;
        let chunk = Chunk { embedding: stage.embedding, layers, mtp: false, loss: stage.head };
        StageClass::of_chunks(shape, &[chunk])
    });
    Stages { classes: classes.collect(), spread: false }
}
