//! The built `shardplan-rank`, run as processes on this machine.

mod activations;
mod attention;
mod checkpoints;
mod dcp;
mod documents;
mod evaluation;
mod expert_activations;
mod experts;
mod failures;
mod families;
mod half;
mod harness;
mod kept;
mod kills;
mod layouts;
mod life;
mod memory;
mod nccl;
mod nonuniform;
mod optimizers;
mod parity;
mod pipeline;
mod pretrained;
mod reference;
mod survive;
mod transformers;
