//! Training settings that take less memory than another value of theirs.

use serde_json::Value;

use super::{Ladder, Step};
use crate::plan::Plan;
use crate::settings::Strategy;
use crate::settings::{AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, Implementation};
use crate::units::Dtype;
use crate::wire::{PlanFile, Setting};

/// Those of a plan that are set otherwise.
pub(super) fn ladders(plan: &Plan) -> Vec<Ladder> {
    let mut ladders = vec![micro_batch(plan)];
    ladders.extend(optimizer(plan));
    ladders.extend(kernels(plan));
    if plan.model.moe.is_some() {
        ladders.extend(experts(plan));
    }
    if plan.runtime.facts().shards_parameters {
        ladders.extend(fsdp(plan));
    }
    ladders
}

fn micro_batch(plan: &Plan) -> Ladder {
    let at = plan.training.micro_batch_size;
    let halves = [2u64, 4, 8, 16, 32, 64].into_iter().filter(|&factor| at.is_multiple_of(factor));
    let step = |factor: u64| {
        let size = at / factor;
        Step::new(format!("Micro batches of {size} instead of {at}"), move |file| {
            file.training.micro_batch_size = Some(size);
        })
    };
    Ladder::new(halves.map(step).collect())
}

/// A change where its condition holds.
fn when(ladders: &mut Vec<Ladder>, holds: bool, title: &str, edit: impl Fn(&mut PlanFile) + 'static) {
    if holds {
        ladders.push(Ladder::one(title, edit));
    }
}

fn optimizer(plan: &Plan) -> Vec<Ladder> {
    let (training, mut ladders) = (&plan.training, Vec::new());
    let optimizer = &training.optimizer;
    when(&mut ladders, !optimizer.distributed, "Split the optimizer's state over data parallelism", |file| {
        file.training.optimizer.distributed = Some(true);
    });
    when(&mut ladders, optimizer.instances > 1, "One set of optimizer state in all", |file| {
        file.training.optimizer.instances = Some(1);
    });
    if optimizer.exp_avg_dtype == Dtype::Fp32 || optimizer.exp_avg_sq_dtype == Dtype::Fp32 {
        ladders.push(
            Ladder::one("Moments in bf16, by the precision-aware optimizer", |file| {
                let optimizer = &mut file.training.optimizer;
                optimizer.precision_aware = Some(true);
                optimizer.exp_avg_dtype = Some(Dtype::Bf16);
                optimizer.exp_avg_sq_dtype = Some(Dtype::Bf16);
            })
            .changes_training(),
        );
    }
    if training.grad_dtype == Dtype::Fp32 && training.dtype == Dtype::Bf16 {
        ladders.push(
            Ladder::one("Gradients summed in bf16", |file| file.training.grad_dtype = Some(Dtype::Bf16))
                .changes_training(),
        );
    }
    let shares = [0.25, 0.5, 0.75, 1.0].into_iter().filter(|&share| share > optimizer.offload_fraction);
    let step = |share: f64| {
        Step::new(
            format!(
                "{:.0} % of the optimizer's state on the host, by the precision-aware optimizer",
                100.0 * share
            ),
            move |file| {
                file.training.optimizer.offload_fraction = Some(share);
                file.training.optimizer.precision_aware = Some(true);
            },
        )
    };
    ladders.push(
        Ladder::new(shares.map(step).collect())
            .note("the optimizer's arithmetic on the host is not in the step's seconds"),
    );
    when(&mut ladders, !training.fp8_param_gather, "Parameters gathered and kept in 8 bits", |file| {
        file.training.fp8_param_gather = Some(true);
    });
    ladders
}

fn kernels(plan: &Plan) -> Vec<Ladder> {
    let (training, mut ladders) = (&plan.training, Vec::new());
    when(&mut ladders, training.cross_entropy == CrossEntropy::Unfused, "A fused loss", |file| {
        file.training.cross_entropy = Some(CrossEntropy::Native);
    });
    let unfused = training.attention_backend == AttentionBackend::Unfused;
    when(&mut ladders, unfused, "Attention without scores in memory", |file| {
        file.training.attention_backend = Some(AttentionBackend::Auto);
    });
    let local = training.implementation == Implementation::Local;
    when(&mut ladders, local, "Layers of TransformerEngine", |file| {
        file.training.implementation = Some(Implementation::TransformerEngine);
    });
    when(&mut ladders, training.attention_mask, "No attention mask from the data", |file| {
        file.training.attention_mask = Some(false);
    });
    when(&mut ladders, training.cuda_graphs != CudaGraphs::None, "No CUDA graphs", |file| {
        file.training.cuda_graphs = Some(CudaGraphs::None);
        file.training.cuda_graph_modules = None;
    });
    when(&mut ladders, !plan.software.expandable_segments, "An allocator that grows its segments", |file| {
        file.software.expandable_segments = Some(true);
    });
    ladders
}

fn experts(plan: &Plan) -> Vec<Ladder> {
    let (moe, mut ladders) = (&plan.training.moe, Vec::new());
    when(&mut ladders, moe.dispatcher == Dispatcher::AllGather, "Tokens by all-to-all", |file| {
        file.training.moe.dispatcher = Some(Dispatcher::AllToAll);
    });
    when(&mut ladders, !moe.fused_activation, "The experts' activation fused", |file| {
        file.training.moe.fused_activation = Some(true);
    });
    when(&mut ladders, !moe.permute_fusion, "Sorting of tokens fused", |file| {
        file.training.moe.permute_fusion = Some(true);
    });
    when(&mut ladders, !moe.grouped_gemm, "Experts as one grouped GEMM", |file| {
        file.training.moe.grouped_gemm = Some(true);
    });
    when(&mut ladders, moe.shared_expert_overlap, "Shared experts after the routed ones", |file| {
        file.training.moe.shared_expert_overlap = Some(false);
    });
    when(&mut ladders, moe.pad_to_capacity, "No padding to the experts' capacity", |file| {
        file.training.moe.pad_to_capacity = Some(false);
    });
    if moe.capacity_factor.is_none_or(|factor| factor > 1.0) {
        ladders.push(
            Ladder::one("At most the mean number of tokens to an expert (capacity factor 1)", |file| {
                file.training.moe.capacity_factor = Some(1.0);
            })
            .changes_training()
            .note("tokens beyond the capacity are dropped"),
        );
    }
    ladders
}

fn fsdp(plan: &Plan) -> Vec<Ladder> {
    let (fsdp, mut ladders) = (&plan.layout.fsdp, Vec::new());
    let higher = [Strategy::Optim, Strategy::OptimGrads, Strategy::OptimGradsParams];
    let step = |strategy: Strategy| {
        Step::new(format!("Sharding strategy {}", strategy.name()), move |file| {
            file.layout.fsdp.strategy = Some(strategy.name().to_owned());
        })
    };
    ladders.push(Ladder::new(higher.into_iter().filter(|&level| level > fsdp.strategy).map(step).collect()));
    ladders.push(Ladder::one("Parameters given back after forward", |file| {
        file.layout.fsdp.reshard_after_forward = Some(Value::from("always"));
    }));
    let outer = plan.layout.dp_replicate > 1 && !fsdp.outer_optim;
    when(&mut ladders, outer, "Optimizer state split over the outer group too", |file| {
        file.layout.fsdp.outer_strategy = Some("optim".to_owned());
    });
    when(&mut ladders, fsdp.nccl_ub || fsdp.double_buffer, "No persistent double buffer", |file| {
        file.layout.fsdp.double_buffer = Some(false);
        file.layout.fsdp.nccl_ub = Some(false);
    });
    when(&mut ladders, fsdp.keeps_logits, "Logits not held through backward", |file| {
        file.layout.fsdp.keeps_logits = Some(false);
    });
    when(&mut ladders, fsdp.sync_last, "Gradients reduced after every micro batch", |file| {
        file.layout.fsdp.gradient_sync = Some("every".to_owned());
    });
    when(&mut ladders, !fsdp.outer_apart, "Embedding and output layer as units of their own", |file| {
        file.layout.fsdp.outer_units = Some("apart".to_owned());
    });
    if !fsdp.offload && Setting::is_read("layout.fsdp.offload", plan.runtime.facts()) {
        ladders.push(
            Ladder::one("Shards and optimizer state on the host", |file| {
                file.layout.fsdp.offload = Some("cpu".to_owned());
            })
            .note("the optimizer's arithmetic on the host is not in the step's seconds"),
        );
    }
    ladders
}
