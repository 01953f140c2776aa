//! Options on which no byte of a GPU depends, and why, while a decoder is trained.

use crate::Family;

/// Families of them, by what they are about.
#[rustfmt::skip]
pub(super) const WITHOUT_EFFECT: &[Family] = &[
    Family {
        why: "how checkpoints are written and read",
        trains: false,
        names: &[
            "ckpt-*", "dist-ckpt-*", "save-*", "load-*", "no-save*", "no-load*", "no-ckpt*",
            "async-ckpt-*", "disable-ckpt-*", "non-persistent*", "object-storage*", "use-checkpoint*",
            "auto-detect-ckpt-format", "async-save", "async-strategy", "save", "load", "finetune",
            "override-ckpt-iteration", "use-dist-ckpt", "use-persistent-ckpt-worker", "verify-integrity",
            "persistent-save-interval", "pretrained-checkpoint",
            "distrib-optim-fully-reshardable-mem-efficient", "disable-strict-fsdp-dtensor-load",
            "no-strict-fsdp-dtensor-load", "use-mp-args-from-checkpoint-args", "enable-msc", "disable-msc",
            "replication", "replication-factor", "replication-jump", "override-opt-param-scheduler",
            "disable-save-tokenizer-assets", "refit-method",
        ],
    },
    Family {
        why: "what is printed, timed and recorded",
        trains: false,
        names: &[
            "log-*", "logging-*", "no-log*", "one-logger*", "no-one-logger*", "tensorboard*", "wandb*",
            "otel-*", "timing*", "profile", "profile-*", "nsys-*", "pytorch-profiler*",
            "use-pytorch-profiler", "memory-snapshot*", "run-workload*", "record-memory*", "record-shapes",
            "nvtx-ranges", "moe-per-layer-logging*", "moe-routing-trace-*", "flight-recorder-*",
            "disable-flight-recorder*", "no-flight-recorder*", "dump-*", "config-logger-dir", "app-tag*",
            "disable-log-loss-scale-to-tensorboard", "no-barrier-with-level-1-timing",
        ],
    },
    Family {
        why: "what is watched, and what becomes of a run that fails",
        trains: false,
        names: &[
            "error-injection*", "inprocess-*", "rerun-*", "result-*", "straggler*",
            "disable-straggler-on-startup", "nvidia-resiliency*", "ft-*", "enable-ft*", "calc-ft*",
            "check-weight-hash*", "check-for-large-grads", "check-for-nan-in-loss-and-grad",
            "check-for-spiky-loss", "adlr-autoresume",
            "adlr-autoresume-interval", "gpu-sniff-test-interval", "distributed-timeout-minutes",
            "distributed-timeout-seconds-after-init", "distribute-timeout", "max-tokens-to-oom",
        ],
    },
    Family {
        why: "what is read, and how it becomes tokens",
        trains: false,
        names: &[
            "data-cache*", "data-path*", "data-args*", "dataloader-*", "dataset-*", "fim-*", "per-split*",
            "train-data*", "valid-data*", "test-data*", "tokenizer-*", "merge-file", "vocab-file",
            "vocab-extra-ids", "null-tokenizer-pad-id", "tiktoken-num-special-tokens", "tiktoken-pattern",
            "tiktoken-special-tokens", "mock-data", "split", "num-workers", "num-dataset-builder-threads",
            "no-mmap-bin-files", "no-data-sharding", "mid-level-dataset-surplus",
            "allow-ambiguous-pad-tokens",
            "chat-template", "sft", "sft-tokenizer-prompt-format", "per-dataset-sequences-path",
            "create-attention-mask-in-dataloader", "multiple-validation-sets", "validation-set-names",
            "trust-remote-code", "use-gigatoken", "use-tokenizer-model-from-checkpoint-args",
            "disable-use-tokenizer-model-from-checkpoint-args",
            "no-use-tokenizer-model-from-checkpoint-args",
            "disable-tokenizer-sentencepiece-ignore-extra-whitespaces",
            "no-tokenizer-sentencepiece-ignore-extra-whitespaces",
        ],
    },
    Family {
        why: "how long a run is, and when it stops or skips",
        trains: false,
        names: &[
            "exit-*", "train-iters*", "train-samples*", "skip-*", "iterations-to-skip",
            "ramp-up-batch-size",
            "decrease-batch-size-if-needed", "phase-transition-iterations", "train-sync*", "test-mode",
        ],
    },
    Family {
        why: "a number of the schedule of learning rate or weight decay",
        trains: true,
        names: &[
            "lr*", "decoupled-*", "start-weight-decay", "end-weight-decay", "weight-decay-incr-style",
            "no-weight-decay-cond-type", "warmup", "apply-wd-to-qk-layernorm", "head-lr-mult",
        ],
    },
    Family {
        why: "a number of the optimizer's step; an optimizer of which no state is planned",
        trains: true,
        names: &[
            "adam-*", "lion-*", "muon-*", "adaptive-muon*", "soap-*", "sgd-momentum", "mup-*",
        ],
    },
    Family {
        why: "scales of a loss, kept as single numbers",
        trains: true,
        names: &[
            "calculate-per-token-loss", "fp16-lm-cross-entropy", "moe-aux-loss*",
            "mtp-loss*", "mtp-detach*",
        ],
    },
    Family {
        why: "which numbers the parameters begin with",
        trains: true,
        names: &[
            "init-method-std", "init-method-xavier-uniform", "embedding-init-method-std",
            "perform-initialization", "no-initialization", "use-cpu-initialization",
            "data-parallel-random-init", "lazy-mpu-init",
        ],
    },
    Family {
        why: "random numbers",
        trains: false,
        names: &[
            "te-*", "use-te-rng-tracker",
        ],
    },
    Family {
        why: "evaluation, which holds no more than a step",
        trains: false,
        names: &[
            "eval-*", "full-validation", "start-eval-at-iter",
        ],
    },
    Family {
        why: "nothing of a training: inference, evaluation by questions, reinforcement learning",
        trains: false,
        names: &[
            "inference-*", "rl-*", "grpo-*", "langrl-*", "mamba-inference*", "decode-only*",
            "flash-decode", "enable-chunked-prefill", "mlp-chunks-for-prefill", "num-speculative-tokens",
            "nccl-all-reduce-for-prefill", "use-legacy-static-engine",
            "use-same-sampling-seed-across-dp-ranks", "cache-mla-latents",
            "moe-pad-experts-for-cuda-graph-inference", "symmetric-ar-type",
        ],
    },
    Family {
        why: "nothing of a decoder: vision, BERT, T5, retrieval",
        trains: false,
        names: &[
            "retro-*", "bert-*", "biencoder-*", "ict-*", "indexer-*", "retriever*", "dino-*", "swin-*",
            "vision-*", "wid-*", "num-channels*", "num-classes*", "patch-dim*", "img-w", "mask-factor",
            "mask-prob", "mask-type", "classes-fraction", "data-per-class-fraction", "iter-per-epoch",
            "sample-rate", "query-in-block-prob", "short-seq-prob", "use-one-sent-docs", "block-data-path",
            "embedding-path", "evidence-data-path", "titles-data-path", "output-bert-embeddings",
            "decoder-seq-length", "relative-attention-*", "onnx-safe", "mrope-section",
        ],
    },
    Family {
        why: "distillation: counted, or refused, by what it loads",
        trains: false,
        names: &[
            "export-kd-*", "logits-load-*", "logits-save-*", "export-te-mcore-model",
            "export-force-local-attention", "export-default-te-spec", "export-model-type",
        ],
    },
    Family {
        why: "another option turns it on, and is refused or not counted",
        trains: false,
        names: &[
            "dsa-*", "disable-dsa-*", "no-dsa-*", "mhc-*", "gtp-*", "gtp-remat*", "gdp-*",
            "moe-upcycling*", "min-offloaded-tensor-size", "delay-offload-until-cuda-graph",
            "cpu-offloading-retain-pinned-cpu-buffers", "torch-fsdp2-no-reshard-after-forward",
            "use-fsdp2-reshard", "kitchen-attention-backend",
        ],
    },
    Family {
        why: "how positions are computed, with no weights",
        trains: true,
        names: &[
            "rope-scaling-factor", "rope-type", "rotary-interleaved", "rotary-scaling-factor", "mscale",
            "mscale-all-dim", "yarn-beta-fast", "yarn-beta-slow", "yarn-original-max-position-embeddings",
            "yarn-correction-range-round-to-int", "no-yarn-correction-range-round-to-int",
            "original-max-position-embeddings", "beta-fast", "beta-slow", "rope-freq",
        ],
    },
    Family {
        why: "how a router chooses, with no more tensors",
        trains: true,
        names: &[
            "moe-router-*", "moe-router-fusion*", "moe-token-drop-policy*", "moe-enable-routing-replay",
        ],
    },
    Family {
        why: "how tokens are sent, in buffers that torch does not hold or that the dispatcher has in any case",
        trains: false,
        names: &[
            "moe-deepep-num-sms*", "moe-hybridep-*", "moe-flex-dispatcher-num-sms*",
            "moe-permute-fusion-into-hybridep", "moe-ncclep-zero-copy",
        ],
    },
    Family {
        why: "one kernel in place of several, or the same tensors in another order",
        trains: true,
        names: &[
            "no-bias-dropout-fusion", "no-bias-gelu-fusion", "no-persist-layer-norm",
            "no-gradient-reduce-div-fusion", "masked-softmax-fusion", "fused-residual-rmsnorm",
            "mla-down-proj-fusion", "moe-shared-expert-glu-interleave-size", "moe-single-grouped-bias",
            "moe-single-grouped-weight", "moe-use-grouped-tensor", "openai-gelu",
            "clone-scatter-output-in-embedding", "flash-attention-version", "batch-invariant-backend",
            "batch-invariant-mode", "disable-bf16-reduced-precision-matmul", "attention-softmax-in-fp32",
            "apply-query-key-layer-scaling", "mamba-training-ssm-states-dtype", "apply-layernorm-1p",
            "layernorm-zero-centered-gamma",
        ],
    },
    Family {
        why: "a number of the recipe of 8 bits",
        trains: true,
        names: &[
            "fp8-amax-compute-algo", "fp8-amax-history-len", "fp8-interval", "fp8-margin", "fp8-wgrad",
        ],
    },
    Family {
        why: "a number of clipped queries and keys",
        trains: true,
        names: &[
            "qk-clip-alpha", "qk-clip-threshold",
        ],
    },
    Family {
        why: "how and when something is sent, in buffers that are there in any case",
        trains: false,
        names: &[
            "tp-comm-*", "disable-tp-comm-*", "no-tp-comm-*", "ddp-average-in-collective",
            "ddp-bucket-size", "ddp-num-buckets", "ddp-pad-buckets-for-high-nccl-busbw",
            "align-param-gather", "no-align-param-gather", "disable-align-grad-reduce",
            "no-align-grad-reduce", "overlap-param-gather-with-optimizer-step",
            "overlap-p2p-communication-warmup-flush", "overlap-p2p-comm-warmup-flush", "batch-p2p-comm",
            "use-ring-exchange-p2p", "ep-overlap-early-attn-memory-release",
            "no-async-tensor-model-parallel-allreduce",
            "no-use-layer-wise-param-layout", "create-all-gather-group", "enable-full-sharding-in-hsdp",
            "fsdp-manual-registration", "megatron-fsdp-version",
        ],
    },
    Family {
        why: "communicators and their streams",
        trains: false,
        names: &[
            "distributed-backend", "pipeline-model-parallel-comm-backend", "nccl-communicator-config-path",
            "nccl-ub", "use-sharp", "sharp-enabled-group", "disable-symmetric-registration",
            "enable-gloo-process-groups", "disable-gloo-process-groups", "high-priority-stream-groups",
            "high-priority-a2a-comm-stream", "fake-process-group", "local-rank", "world-size",
        ],
    },
    Family {
        why: "memory of the host, or how it is copied",
        trains: false,
        names: &[
            "pin-cpu-grads", "pin-cpu-params", "no-pin-cpu-grads", "no-pin-cpu-params",
            "overlap-cpu-optimizer-d2h-h2d", "use-torch-optimizer-for-cpu-offload", "manual-gc*",
            "disable-manual-gc-eval", "no-manual-gc-eval", "empty-unused-memory-level",
        ],
    },
    Family {
        why: "how graphs are captured, not what",
        trains: false,
        names: &[
            "cuda-graph-warmup-steps", "cuda-graph-use-single-mempool", "cuda-graph-retain-backward-graph",
            "optimizer-cuda-graph",
        ],
    },
    Family {
        why: "nothing without another option, which says how much",
        trains: false,
        names: &[
            "recompute-*", "is-hybrid-model",
        ],
    },
    Family {
        why: "an older option, which does nothing now",
        trains: false,
        names: &[
            "batch-size", "checkpoint-activations", "model-parallel-size", "use-mcore-models",
            "use-legacy-models", "enable-experimental",
        ],
    },
];
