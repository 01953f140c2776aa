//! The tables of values: other words between spaces, by what they mean. Signs and capitals make no difference.

use super::Kind;
use super::Word::{Is, Says};
use crate::software::Product;

/// What is to be written where DeepSpeed stands.
pub(in super::super) const DEEPSPEED: &str = "DeepSpeed is not planned; the same split is runtime megatron with training.optimizer.distributed true (ZeRO 1), runtime megatron_fsdp with layout.fsdp.strategy optim_grads (ZeRO 2), runtime fsdp2, or megatron_fsdp with layout.fsdp.strategy optim_grads_params (ZeRO 3)";
const TRAINER: &str =
    "it runs on others; write fsdp2 for PyTorch's fully_shard, megatron for Megatron-Core, or megatron_fsdp";
const DDP: &str = "write megatron with training.optimizer.distributed false: whole copies of the model, gradients summed by all-reduce";
const EIGHT_BIT: &str = "write adam with training.optimizer.precision_aware true, and exp_avg_dtype and exp_avg_sq_dtype fp8; optimizers quantized by blocks are not planned";
const OTHER_OPTIMIZER: &str =
    "planned are adam (AdamW too), sgd and muon; write the one that keeps as many values of each parameter";
const FP8: &str = "write the recipe: fp8_delayed, fp8_current (a scale per tensor), fp8_blockwise or mxfp8";
const QUANTIZED: &str = "training in whole numbers is not planned; write bf16, or one of fp8_delayed, fp8_current, fp8_blockwise, mxfp8, nvfp4";

/// Frameworks by other names, between spaces.
pub(super) const FRAMEWORKS: &[(&str, Product)] = &[
    ("megatron-bridge nemo-megatron-bridge", Product::Bridge),
    ("megatron megatron-core mcore mlm", Product::MegatronLm),
    ("nemo-automodel", Product::Automodel),
    ("nemo2 nemo-2.0", Product::Nemo),
    ("titan", Product::Torchtitan),
    ("shardplan", Product::Worker),
];

/// Values of every kind.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        fields: &["runtime"],
        takes: &["megatron", "fsdp2", "megatron_fsdp", "native"],
        words: &[
            ("megatron-lm megatron-core mcore mlm bridge megatron-bridge", Is("megatron")),
            ("fsdp torch_fsdp2 pytorch_fsdp2 fully_shard torchtitan", Is("fsdp2")),
            ("hsdp", Says("write fsdp2 with layout.dp_replicate, the number of replicas")),
            ("mfsdp", Is("megatron_fsdp")),
            ("shardplan", Is("native")),
            (
                "fsdp1",
                Says("FSDP1's flat parameters are not planned; write fsdp2, which splits each parameter"),
            ),
            ("automodel", Says("write fsdp2, its default, or megatron_fsdp")),
            ("nemo", Says("write megatron for Megatron Bridge and NeMo 2, or fsdp2 for NeMo Automodel")),
            ("deepspeed megatron-deepspeed zero zero1 zero2 zero3", Says(DEEPSPEED)),
            ("ddp", Says(DDP)),
            ("accelerate huggingface transformers lightning axolotl trl pytorch torch", Says(TRAINER)),
            (
                "colossalai",
                Says("Colossal-AI is not planned; megatron has the same tensor and pipeline parallelism"),
            ),
            (
                "nanotron",
                Says(
                    "write megatron, and software.profile nanotron-2024, which counts its memory and its step",
                ),
            ),
            ("maxtext jax", Says("programs of JAX are not planned; fsdp2 splits as they do over one axis")),
        ],
    },
    Kind {
        fields: &["software.framework"],
        // A framework and its version: `FRAMEWORKS` knows other words for them.
        takes: &[],
        words: &[
            ("deepspeed megatron-deepspeed", Says(DEEPSPEED)),
            (
                "accelerate huggingface transformers lightning axolotl trl pytorch torch",
                Says(
                    "its recipes are not known; leave it out and write runtime fsdp2, or name megatron-lm, bridge, nemo, automodel or torchtitan",
                ),
            ),
        ],
    },
    Kind {
        fields: &["objective"],
        takes: &["fastest", "cheapest", "fewest_gpus", "most_headroom", "deadline"],
        words: &[
            ("speed fast throughput performance time mfu", Is("fastest")),
            ("cost cheap price money min_cost lowest_cost", Is("cheapest")),
            ("gpus fewest min_gpus fewest_nodes smallest", Is("fewest_gpus")),
            ("memory headroom roomiest most_memory min_memory safest", Is("most_headroom")),
        ],
    },
    Kind {
        fields: &["training.dtype"],
        takes: &[
            "bf16",
            "fp16",
            "fp32",
            "fp64",
            "fp8_delayed",
            "fp8_current",
            "fp8_blockwise",
            "mxfp8",
            "nvfp4",
        ],
        words: &[
            ("bfloat16 torch.bfloat16 bf16-mixed bfloat16_mixed bf16/fp32", Is("bf16")),
            ("float16 torch.float16 half fp16-mixed 16-mixed", Is("fp16")),
            ("float32 torch.float32 float single 32 32-true", Is("fp32")),
            ("float64 torch.float64 double", Is("fp64")),
            ("fp8_tensorwise fp8_current_scaling", Is("fp8_current")),
            ("fp8_delayed_scaling", Is("fp8_delayed")),
            ("fp8_block", Is("fp8_blockwise")),
            ("16", Says("write bf16 or fp16")),
            ("no", Says("write fp32 for training without mixed precision")),
            ("tf32", Says("tf32 is how fp32 matrices may be multiplied; write fp32")),
            ("fp8 float8 fp8_e4m3 fp8-hybrid fp8-mixed", Says(FP8)),
            ("fp4", Says("write nvfp4")),
            ("mxfp4", Says("training in mxfp4 is not planned; write nvfp4")),
            ("int8 int4 nf4", Says(QUANTIZED)),
            ("mixed", Says("write bf16 or fp16: masters of both are fp32 by default")),
            ("auto", Says("leave it out for bf16")),
        ],
    },
    Kind {
        fields: &[
            "training.grad_dtype",
            "training.optimizer.master_dtype",
            "training.optimizer.exp_avg_dtype",
            "training.optimizer.exp_avg_sq_dtype",
            "layout.fsdp.sharded_dtype",
            "layout.fsdp.reduce_dtype",
            "layout.fsdp.output_dtype",
            "layout.fsdp.loss_dtype",
        ],
        takes: &["bf16", "fp16", "fp32", "fp64", "fp8"],
        words: &[
            ("bfloat16 torch.bfloat16", Is("bf16")),
            ("float16 torch.float16 half", Is("fp16")),
            ("float32 torch.float32 float", Is("fp32")),
            ("float64 torch.float64 double", Is("fp64")),
            ("float8", Is("fp8")),
        ],
    },
    Kind {
        fields: &["training.optimizer.kind"],
        takes: &["adam", "sgd", "muon"],
        words: &[
            // The plan's Adam has decoupled weight decay, and AdamW as much state.
            (
                "adamw torch.optim.adamw torch.optim.adam adamw_torch adamw_torch_fused fused_adam fused_adamw distributed_adam",
                Is("adam"),
            ),
            ("sgd_momentum torch.optim.sgd", Is("sgd")),
            ("torch.optim.muon", Is("muon")),
            ("adamw_8bit adamw_bnb_8bit adam8bit paged_adamw_8bit", Says(EIGHT_BIT)),
            (
                "paged_adamw",
                Says("write adam with training.optimizer.offload_fraction, the part on the host"),
            ),
            (
                "cpu_adam deepspeedcpuadam",
                Says("write adam with training.optimizer.offload_fraction 1 for state on the host"),
            ),
            ("lion", Says("Lion is not planned; sgd keeps one value of each parameter as well")),
            ("adafactor lamb sophia shampoo soap adagrad", Says(OTHER_OPTIMIZER)),
        ],
    },
    Kind {
        fields: &["training.recompute.granularity"],
        takes: &["none", "selective", "full"],
        words: &[
            ("all whole full_ac", Is("full")),
            ("off no false disabled", Is("none")),
            ("selective_ac", Is("selective")),
            ("on", Says("write full or selective")),
            ("memory_budget", Says("torch.compile's memory budget is not planned; write full or selective")),
        ],
    },
    Kind {
        fields: &["layout.schedule"],
        takes: &["1f1b", "interleaved", "gpipe", "zb-h1", "zbv"],
        words: &[
            ("one_f_one_b", Is("1f1b")),
            ("interleaved_1f1b interleaved1f1b", Is("interleaved")),
            ("afab", Is("gpipe")),
            ("zero_bubble_h1", Is("zb-h1")),
            ("zbvzerobubble", Is("zbv")),
            ("zero_bubble", Says("write zb-h1 for one chunk a stage, or zbv for two")),
            ("interleavedzerobubble", Says("write zbv, the zero-bubble schedule of two chunks a stage")),
            (
                "dualpipe",
                Says(
                    "DualPipe is not planned; write interleaved with training.overlap.ep for all-to-all behind another micro batch, or zbv",
                ),
            ),
            ("dualpipev", Says("DualPipeV is not planned; write zbv, which places chunks in the same way")),
            ("chimera", Says("it is not planned; write 1f1b, interleaved, gpipe, zb-h1 or zbv")),
        ],
    },
    Kind {
        fields: &["layout.cp_kind"],
        takes: &["p2p", "a2a", "all_gather", "a2a+p2p"],
        words: &[("ring ring_attention", Is("p2p")), ("ulysses alltoall", Is("a2a"))],
    },
    Kind {
        fields: &["training.moe.dispatcher"],
        takes: &["alltoall", "allgather", "flex"],
        words: &[("a2a all_to_all_single", Is("alltoall"))],
    },
    Kind { fields: &["training.moe.backend"], takes: &["deepep", "hybridep"], words: &[] },
    Kind {
        fields: &["training.attention_backend"],
        takes: &["auto", "flash", "fused", "unfused"],
        words: &[
            ("flash_attention flash_attention_2 flash_attention_3 flash_attn", Is("flash")),
            ("cudnn", Is("fused")),
            ("eager local", Is("unfused")),
            (
                "sdpa",
                Says(
                    "PyTorch chooses a kernel by itself there; write flash, fused (cuDNN's) or unfused, or leave it out",
                ),
            ),
            (
                "flex_attention",
                Says("compiled kernels are not planned by themselves; write flash, which saves as much"),
            ),
        ],
    },
    Kind {
        fields: &["training.cross_entropy"],
        takes: &["unfused", "native", "te"],
        words: &[
            ("transformer_engine", Is("te")),
            ("fused", Says("write native, Megatron's own kernel, or te")),
            ("liger", Says("fused linear cross-entropy is not planned; write te, which works in place")),
        ],
    },
    Kind {
        fields: &["training.cuda_graphs"],
        takes: &["none", "scoped", "iteration"],
        words: &[
            ("false off no", Is("none")),
            ("full_iteration full", Is("iteration")),
            (
                "true on",
                Says(
                    "write iteration for a whole step, or scoped with the modules in training.cuda_graph_modules",
                ),
            ),
        ],
    },
    Kind {
        fields: &["training.implementation"],
        takes: &["transformer_engine", "local"],
        words: &[("te", Is("transformer_engine"))],
    },
    Kind { fields: &["training.recompute.method"], takes: &["uniform", "block"], words: &[] },
    Kind {
        fields: &["layout.fsdp.strategy"],
        takes: &["no_shard", "optim", "optim_grads", "optim_grads_params"],
        words: &[
            // Megatron-FSDP's own levels, which it takes as numbers.
            ("full_shard zero3 3", Is("optim_grads_params")),
            ("zero2 2", Is("optim_grads")),
            ("zero1 1", Is("optim")),
            ("ddp 0", Is("no_shard")),
            (
                "shard_grad_op",
                Says(
                    "write optim_grads under megatron_fsdp, or layout.fsdp.reshard_after_forward never under fsdp2",
                ),
            ),
            (
                "hybrid_shard hsdp",
                Says("write optim_grads_params with layout.dp_replicate, the number of replicas"),
            ),
        ],
    },
    Kind {
        fields: &["layout.fsdp.offload"],
        takes: &["none", "cpu"],
        words: &[("host true", Is("cpu")), ("false", Is("none"))],
    },
    Kind {
        fields: &["run.lr_schedule"],
        takes: &["constant", "linear", "cosine"],
        words: &[
            ("constant_with_warmup", Is("constant")),
            ("cosine_with_warmup", Is("cosine")),
            ("linear_with_warmup", Is("linear")),
            ("wsd", Says("a rate that stays and then falls is not run; write constant, linear or cosine")),
        ],
    },
];
