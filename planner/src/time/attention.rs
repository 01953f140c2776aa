//! Seconds of what mixes tokens, beside its projections.

use super::collectives::GroupSize;
use super::constants::ConstantRole;
use super::layer::{ComputeOptions, LayerSplit};
use super::machine::Machine;
use super::parts::Both;
use crate::model::{Core, Scan};
use crate::settings::CpKind;

/// Backward of a fused kernel: five products for two, at this share of the forward's rate (study, 1.2).
const BACKWARD_FLOPS: f64 = 2.5;
const BACKWARD_SHARE: f64 = 0.8;
/// Bytes that unfused attention moves for each score, forward and backward: scores, mask, softmax, dropout.
const SCORE_BYTES: [f64; 2] = [13.0, 17.0];
/// What it moves further where softmax is no kernel: to fp32, scaled, masked, softmax, and back.
const SINGLE_SCORE_BYTES: [f64; 2] = [28.0, 34.0];
/// Sequences times heads of a rank that a block of Megatron-LM's softmax kernel takes at once: where they are no multiple of it, softmax
/// runs operation by operation (`is_kernel_available` of `fusions/fused_softmax.py`, `custom_kernel_constraint` in 2021).
const SOFTMAX_BLOCK: f64 = 4.0;
/// Rate of attention in 8 bits over 16: FlashAttention-3's abstract states 1.2 against 0.74 PFLOP/s on an H100.
const LOW_ATTENTION: f64 = 1.6;
/// Multiplications up to which libtorch does not ask oneDNN for a product (`mkldnn_gemm_min_size`).
const LEAST_PRODUCT: f64 = 16.0 * 16.0 * 16.0;
/// Queries of one head that `few_heads` counts as a head: kernels give each multiprocessor a head's block of queries, so it is blocks
/// of which few heads of a short sequence have too few.
const HEAD: f64 = 4096.0;
/// Head width from which kernels reach their rate.
const WIDE_HEAD: f64 = 128.0;

/// Blocks of queries in the backward of libtorch's CPU kernel (`cpu_flash_attention_backward`), of all heads: what it
/// multiplies for each takes as long however narrow the head, but for products so small that it makes them itself.
fn blocks(split: &LayerSplit, heads: f64, dim: f64) -> f64 {
    let tokens = split.seq_len / split.cp;
    let rows: f64 = match tokens {
        many if many >= 768.0 => 256.0,
        some if some >= 192.0 => 64.0,
        _ => 32.0,
    };
    let least = rows.min(tokens);
    if least * least * dim <= LEAST_PRODUCT {
        return 0.0;
    }
    split.mbs * heads * (tokens / rows).ceil() * (rows / 64.0).max(1.0)
}

/// Whether a kernel takes the softmax of unfused attention.
pub(super) fn fits_softmax(split: &LayerSplit, core: &Core) -> bool {
    (split.mbs * core.heads as f64 / split.tp) % SOFTMAX_BLOCK == 0.0
}

/// Recurrence of a micro batch on one rank.
pub(super) fn scanned(machine: &Machine, split: &LayerSplit, scan: &Scan) -> Both {
    let mut both = Both::default();
    let tokens = split.gathered_tokens();
    let rate = machine.peak * machine.of(ConstantRole::Scan);
    both.forward.attention = tokens * scan.flops / split.tp / rate;
    both.backward.attention = BACKWARD_FLOPS * both.forward.attention;
    let channels =
        tokens * scan.channels as f64 / split.tp * machine.of(ConstantRole::Traffic) / machine.memory;
    both.forward.memory = scan.traffic[0] * channels;
    both.backward.memory = scan.traffic[1] * channels;
    both
}

/// Attention of a micro batch on one rank, with its context-parallel communication.
pub(super) fn attended(machine: &Machine, split: &LayerSplit, core: &Core, options: &ComputeOptions) -> Both {
    let mut both = Both::default();
    let sizes = [core.heads, core.kv_heads, core.query_dim, core.value_dim].map(|size| size as f64);
    let [heads, _, query_dim, value_dim] = sizes;
    let local = heads / split.tp;
    // All pairs of tokens, of which a causal mask leaves half; context parallelism balances the halves.
    let pairs = split.mbs * split.seq_len * split.seq_len / split.cp * local;
    let flops = pairs * (query_dim + value_dim);
    let narrow = (query_dim.max(value_dim) / WIDE_HEAD).min(1.0).sqrt();
    if options.unfused {
        // Full squares: a mask saves nothing.
        let rate = machine.peak * machine.of(ConstantRole::Bmm) * narrow;
        let more = f64::from(u8::from(!machine.same_thread && !fits_softmax(split, core)));
        let bytes = [0, 1].map(|pass| SCORE_BYTES[pass] + more * SINGLE_SCORE_BYTES[pass]);
        both.forward.attention = 2.0 * flops / rate + bytes[0] * pairs / machine.memory;
        both.backward.attention = 4.0 * flops / rate + bytes[1] * pairs / machine.memory;
        let block = machine.of(ConstantRole::HostBlock);
        if block > 0.0 {
            both.backward.attention += block * blocks(split, local, query_dim.max(value_dim));
        }
    } else {
        // Tiles across the diagonal, prologue and epilogue weigh less the more keys a query meets at a time: in a ring, one
        // rank's.
        let keys = match split.cp_kind {
            CpKind::P2p => split.seq_len / split.cp,
            CpKind::A2a | CpKind::A2aP2p | CpKind::AllGather => split.seq_len,
        };
        let blocks = local * split.gathered_tokens() / HEAD;
        let few = (1.0 + machine.of(ConstantRole::FewHeads) / blocks)
            * (1.0 + machine.of(ConstantRole::ShortSequence) / keys);
        let faster = if options.low_attention { LOW_ATTENTION } else { 1.0 };
        let rate = machine.peak * faster * machine.of(ConstantRole::Attention) * narrow / few;
        // A fused kernel leaves out what a window or a chunk does.
        let flops = flops * core.span.seen(split.seq_len) / (split.seq_len / 2.0).max(1.0);
        both.forward.attention = flops / rate;
        both.backward.attention = BACKWARD_FLOPS * flops / (rate * BACKWARD_SHARE);
    }
    context(machine, split, sizes, &mut both);
    both
}

fn context(machine: &Machine, split: &LayerSplit, sizes: [f64; 4], both: &mut Both) {
    let [heads, kv_heads, query_dim, value_dim] = sizes;
    let group: GroupSize = split.cp_group;
    if group.size <= 1.0 {
        return;
    }
    let tokens = split.gathered_tokens();
    let keys = 2.0 * tokens * (kv_heads / split.tp).max(1.0) * (query_dim + value_dim);
    let queries = 2.0 * tokens * heads / split.tp * (query_dim + value_dim);
    match split.cp_kind {
        CpKind::A2a | CpKind::A2aP2p => {
            // Queries, keys, values and output go to their heads and back.
            let each = (queries + keys) / 4.0;
            both.forward.cp = 4.0 * machine.all_to_all(group, each);
            both.backward.cp = both.forward.cp;
        }
        CpKind::AllGather => {
            both.forward.cp = machine.gather(group, keys * group.size);
            both.backward.cp = 2.0 * both.forward.cp;
        }
        CpKind::P2p => {
            let ring = machine.gather(group, keys * group.size);
            both.forward.cp = machine.of(ConstantRole::ExposedCp) * ring;
            both.backward.cp = 2.0 * both.forward.cp;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    /// Seconds of attention in a step of as many sequences, whatever ranks hold of each.
    fn attention(seq_len: u64, cp: u64, kind: &str) -> f64 {
        let plan = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 1},
                          "layout": {"cp": cp, "cp_kind": kind},
                          "training": {"seq_len": seq_len, "micro_batch_size": 1, "global_batch_size": 8}});
        let file = crate::parse::parse_plan(&plan.to_string()).expect("a plan");
        crate::answer::estimate(&file).time.expect("seconds").breakdown.attention
    }

    /// Seconds of a layer's attention with 4 heads on a rank over an eighth of those with all 32.
    fn few_heads(seq_len: u64, mbs: u64) -> f64 {
        let [few, all] = [8, 1].map(|tp| {
            let plan = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 1},
                              "layout": {"tp": tp},
                              "training": {"seq_len": seq_len, "micro_batch_size": mbs, "global_batch_size": 8 * mbs}});
            let file = crate::parse::parse_plan(&plan.to_string()).expect("a plan");
            let plan = crate::plan::Plan::resolve(&file).plan.expect("a valid plan");
            let setup = crate::time::from_plan::setup(&plan).expect("numbers");
            let machine = setup.machine(&crate::time::constants::table().values());
            let core = setup.shape.kinds[0].core.expect("attention");
            super::attended(&machine, &setup.split, &core, &setup.options).forward.attention
        });
        8.0 * few / all
    }

    #[test]
    fn few_heads_of_long_sequences_fill_a_gpu() {
        let [short, batched, long] =
            [(4096, 1), (4096, 4), (65_536, 1)].map(|(seq, mbs)| few_heads(seq, mbs));
        assert!(short > 1.1 && batched < 1.05 && long < 1.02, "{short}, {batched}, {long}");
        assert!(long > 1.0 && batched > long, "{short}, {batched}, {long}");
    }

    #[test]
    fn a_ring_costs_more_the_shorter_its_parts_are() {
        let whole = attention(4096, 1, "p2p");
        let [two, four, eight] = [2, 4, 8].map(|cp| attention(4096, cp, "p2p"));
        assert!(whole < two && two < four && four < eight, "{whole}, {two}, {four}, {eight}");
        assert!(eight > 1.5 * whole, "{eight}, {whole}");
        // Long parts are as good as whole sequences. After an all-to-all sequences are whole, and what 4 heads of 32 lose is left.
        assert!(attention(131_072, 8, "p2p") < 1.1 * attention(131_072, 1, "p2p"));
        let by_heads = attention(4096, 8, "a2a") / whole;
        assert!(by_heads < 1.01 * few_heads(4096, 1), "{by_heads}");
        assert!(attention(131_072, 8, "a2a") < 1.01 * attention(131_072, 1, "a2a"));
    }
}
