//! Plans that are run to measure a machine: each makes another part of it weigh.

use serde_json::json;

use crate::json::read_value;
use crate::wire::PlanFile;

/// A plan to run for a calibration.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// What it measures, in words.
    pub name: &'static str,
    /// The plan.
    pub file: PlanFile,
}

/// Steps of a probe. The later half counts: as routers learn, products of experts take sizes for which kernels must first
/// be made, and caches warm.
const STEPS: u64 = 16;

/// Sizes of a probe's model.
struct Sizes {
    layers: u64,
    hidden: u64,
    ffn: u64,
    heads: u64,
    vocabulary: u64,
    experts: u64,
}

const USUAL: Sizes = Sizes { layers: 4, hidden: 128, ffn: 512, heads: 2, vocabulary: 1024, experts: 0 };

/// Probes for a machine that starts up to `ranks` ranks of this GPU (or `cpu`): GEMMs, attention, what streams through
/// memory, the host's launches, experts, the optimizer, and with several ranks the links between them. On a GPU sizes
/// are larger, so that kernels and not launches take the time where they should.
pub fn probes(gpu: &str, ranks: u64) -> Vec<Probe> {
    let scale = if gpu == "cpu" { 1 } else { 8 };
    let wide = Sizes { layers: 2, hidden: 256, ffn: 2048, ..USUAL };
    let deep = Sizes { layers: 24, hidden: 32, ffn: 64, vocabulary: 256, ..USUAL };
    let thin = Sizes { layers: 16, hidden: 64, ffn: 128, vocabulary: 256, ..USUAL };
    let output = Sizes { layers: 1, vocabulary: 16_384, ..USUAL };
    let heads = Sizes { layers: 3, hidden: 256, ffn: 256, heads: 16, ..USUAL };
    let narrow = Sizes { layers: 2, hidden: 64, ffn: 1024, ..USUAL };
    let short = Sizes { layers: 2, hidden: 160, ffn: 320, heads: 4, vocabulary: 2048, ..USUAL };
    let mixed = Sizes { experts: 8, ffn: 128, ..USUAL };
    let few = Sizes { layers: 2, hidden: 192, ffn: 256, heads: 4, experts: 4, ..USUAL };
    let many = Sizes { layers: 2, ffn: 64, heads: 4, experts: 24, ..USUAL };
    let one = |name, sizes: &Sizes, seq, micro, batch| {
        probe(name, gpu, scale, sizes, 1, [1, 1, 1], [seq, micro, batch])
    };
    // At least two make each part weigh, so that none is known from one alone.
    let mut found = vec![
        one("GEMMs of a wide MLP", &wide, 64, 2, 4),
        one("attention over long sequences", &USUAL, 512, 1, 2),
        one("launches: many thin layers", &deep, 16, 1, 4),
        one("output layer and loss", &output, 64, 2, 4),
        one("optimizer: one short micro batch", &wide, 16, 1, 1),
        one("experts", &mixed, 64, 2, 4),
        one("a plain model", &USUAL, 64, 4, 8),
        one("experts, short micro batches", &mixed, 16, 1, 4),
        one("a wide MLP, long micro batches", &wide, 128, 2, 4),
        one("launches: thin layers, one micro batch", &thin, 32, 1, 1),
        one("attention of many heads", &heads, 48, 2, 6),
        one("many experts", &many, 32, 2, 4),
        one("a narrow model, long micro batches", &narrow, 160, 4, 8),
        one("few experts, long micro batches", &few, 160, 1, 3),
        one("many short micro batches", &short, 24, 1, 12),
    ];
    if ranks >= 2 {
        found.push(probe("two replicas", gpu, scale, &wide, 2, [1, 1, 1], [32, 1, 2]));
        found.push(probe("two replicas of a plain model", gpu, scale, &USUAL, 2, [1, 1, 1], [64, 2, 4]));
        found.push(probe("tensor parallel over two", gpu, scale, &USUAL, 2, [2, 1, 1], [64, 2, 4]));
        found.push(probe("two pipeline stages", gpu, scale, &USUAL, 2, [1, 2, 1], [64, 2, 8]));
        found.push(probe(
            "two pipeline stages, few micro batches",
            gpu,
            scale,
            &USUAL,
            2,
            [1, 2, 1],
            [64, 2, 4],
        ));
        found.push(probe("experts over two", gpu, scale, &mixed, 2, [1, 1, 2], [64, 2, 4]));
    }
    if ranks >= 4 {
        found.push(probe("four replicas", gpu, scale, &wide, 4, [1, 1, 1], [32, 1, 1]));
        found.push(probe("four pipeline stages", gpu, scale, &USUAL, 4, [1, 4, 1], [64, 1, 8]));
        found.push(probe(
            "tensor parallel and replicas, two each",
            gpu,
            scale,
            &USUAL,
            4,
            [2, 1, 1],
            [64, 2, 8],
        ));
    }
    found
}

/// Ten shapes of one rank that no probe has, to see how far a calibration by probes carries.
pub fn unseen(gpu: &str) -> Vec<Probe> {
    let scale = if gpu == "cpu" { 1 } else { 8 };
    let sizes = |layers, hidden, ffn, vocabulary, experts| Sizes {
        layers,
        hidden,
        ffn,
        heads: hidden / 32,
        vocabulary,
        experts,
    };
    [
        ("unseen: a small model", sizes(3, 96, 256, 2048, 0), [48, 2, 6]),
        ("unseen: narrow and deep", sizes(12, 64, 192, 512, 0), [32, 2, 4]),
        ("unseen: wide and shallow", sizes(1, 384, 1536, 1024, 0), [64, 2, 4]),
        ("unseen: a middling sequence", sizes(4, 160, 512, 1024, 0), [256, 1, 3]),
        ("unseen: a large micro batch", sizes(2, 192, 640, 1024, 0), [64, 6, 6]),
        ("unseen: many micro batches", sizes(2, 128, 384, 2048, 0), [32, 1, 16]),
        ("unseen: many words", sizes(2, 128, 384, 8192, 0), [96, 1, 2]),
        ("unseen: six layers", sizes(6, 192, 768, 4096, 0), [96, 2, 4]),
        ("unseen: few experts", sizes(3, 128, 192, 1024, 4), [96, 2, 4]),
        ("unseen: more experts", sizes(2, 96, 96, 1024, 16), [64, 4, 8]),
    ]
    .map(|(name, sizes, batch)| probe(name, gpu, scale, &sizes, 1, [1, 1, 1], batch))
    .into()
}

/// Width of a head. On a GPU heads are as wide as models have them: its attention kernels take no head over 256.
fn head_dim(sizes: &Sizes, scale: u64) -> u64 {
    let width = sizes.hidden / sizes.heads;
    if scale == 1 { width } else { (4 * width).min(128) }
}

fn probe(
    name: &'static str,
    gpu: &str,
    scale: u64,
    sizes: &Sizes,
    ranks: u64,
    [tp, pp, ep]: [u64; 3],
    [seq_len, micro, batch]: [u64; 3],
) -> Probe {
    let hidden = sizes.hidden * scale;
    let head_dim = head_dim(sizes, scale);
    let heads = hidden / head_dim;
    let mut config = json!({
        "model_type": if sizes.experts > 0 { "qwen3_moe" } else { "llama" },
        "hidden_size": hidden, "intermediate_size": sizes.ffn * scale, "num_hidden_layers": sizes.layers,
        "num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": head_dim,
        "vocab_size": sizes.vocabulary * scale, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false, "attention_bias": false,
    });
    if let (Some(config), true) = (config.as_object_mut(), sizes.experts > 0) {
        let experts = json!({
            "num_experts": sizes.experts, "num_experts_per_tok": 2, "moe_intermediate_size": sizes.ffn * scale,
            "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": true, "router_aux_loss_coef": 0.001,
        });
        config.extend(experts.as_object().cloned().unwrap_or_default());
    }
    let file = json!({
        "version": 1, "name": name, "model": {"hf_config": config}, "runtime": "native",
        "cluster": {"gpu": gpu, "nodes": 1, "gpus_per_node": ranks},
        "layout": {"tp": tp, "pp": pp, "ep": ep},
        "training": {"seq_len": seq_len * scale, "micro_batch_size": micro, "global_batch_size": batch * ranks / tp / pp},
        "run": {"steps": STEPS},
    });
    // Written here, so it reads: a test resolves every probe.
    Probe { name, file: read_value(file).unwrap_or_default() }
}
