//! One transformer layer on the tape: what mixes tokens and a feed-forward part, each behind a norm, each added to the
//! residual stream.

use std::rc::Rc;

use anyhow::{Context, bail};
use planner::Plan;
use planner::model::{self, Attention, LayerKind, MixerRef};

use super::attention::Grouped;
use super::latent::Latent;
use super::mlp::Mlp;
use super::moe::Mixture;
use super::names::Names;
use super::norm::Norm;
use super::settings::{Pass, Settings};
use crate::collectives::Collectives;
use crate::tape::{Flow, Tape};

/// A layer's parts; either may be missing.
pub struct Layer {
    mixer: Option<Part<Mixer>>,
    feed: Option<Part<Feed>>,
}

/// What stands between a norm and the residual stream.
struct Part<T> {
    norm: Norm,
    inner: T,
    /// Norm of what is added.
    after: Option<Norm>,
}

enum Mixer {
    Grouped(Grouped),
    Latent(Latent),
}

enum Feed {
    Dense(Mlp),
    Experts(Mixture),
}

impl Layer {
    /// Finds the parts of a layer of this kind whose parameters' names start with `prefix`.
    ///
    /// # Errors
    /// When one is missing, or is one that the executor does not run.
    pub fn find(
        plan: &Plan,
        kind: LayerKind,
        names: &Names<'_>,
        prefix: &str,
        world: &dyn Collectives,
    ) -> anyhow::Result<Layer> {
        let architecture = &plan.model;
        let part = |name: &str| {
            let norm = Norm::of_stream(architecture, names, &format!("{prefix}.{name}.norm"))?;
            let after = architecture
                .post_norms
                .then(|| Norm::of_stream(architecture, names, &format!("{prefix}.{name}.post_norm")))
                .transpose()?;
            anyhow::Ok((norm, after))
        };
        let mixer = match architecture.mixer(kind) {
            None => None,
            Some(mixer) => {
                let (norm, after) = part("attention")?;
                let name = format!("{prefix}.attention");
                let inner = match mixer {
                    MixerRef::Attention(attention @ Attention::Gqa { .. }) => {
                        Mixer::Grouped(Grouped::find(plan, attention, names, &name, world)?)
                    }
                    MixerRef::Attention(attention @ Attention::Mla { .. }) => {
                        Mixer::Latent(Latent::find(plan, attention, names, &name)?)
                    }
                    _ => {
                        bail!("the executor does not run layers of {} yet", architecture.kind_in_words(kind))
                    }
                };
                Some(Part { norm, inner, after })
            }
        };
        let feed = match kind.mlp {
            model::Mlp::None => None,
            model::Mlp::Linear => bail!("the executor has no single matrix in the place of an MLP yet"),
            model::Mlp::Dense => {
                let (norm, after) = part("mlp")?;
                let inner = Feed::Dense(Mlp::find(plan, names, &format!("{prefix}.mlp"))?);
                Some(Part { norm, inner, after })
            }
            model::Mlp::Moe => {
                let (norm, after) = part("mlp")?;
                let moe = architecture.moe.as_ref().context("a layer of experts in a model without")?;
                let inner = Feed::Experts(Mixture::find(plan, moe, names, prefix, world)?);
                Some(Part { norm, inner, after })
            }
        };
        Ok(Layer { mixer, feed })
    }

    /// The residual stream behind the layer.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn forward<'a>(
        &'a self,
        tape: &mut Tape<'a>,
        settings: &'a Settings,
        pass: &Rc<Pass>,
        mut stream: Flow,
    ) -> anyhow::Result<Flow> {
        if let Some(Part { norm, inner, after }) = &self.mixer {
            // Norms that Megatron-Core fuses with the next matrix are not recomputed by themselves.
            let update = match inner {
                Mixer::Grouped(grouped) => {
                    let normed = norm.forward(tape, &stream)?;
                    grouped.forward(tape, settings, pass, normed)?
                }
                Mixer::Latent(latent) => {
                    let normed = norm.forward_again(tape, settings, &stream)?;
                    latent.forward(tape, settings, pass, normed)?
                }
            };
            stream = add(tape, stream, update, after.as_ref())?;
        }
        if let Some(Part { norm, inner, after }) = &self.feed {
            let update = inner.forward(tape, settings, pass, norm, &stream)?;
            stream = add(tape, stream, update, after.as_ref())?;
        }
        Ok(stream)
    }

    /// Ends a step: what follows the number of tokens moves.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn end_step(&self, world: &dyn Collectives) -> anyhow::Result<()> {
        match &self.feed {
            Some(Part { inner: Feed::Experts(mixture), .. }) => mixture.end_step(world),
            _ => Ok(()),
        }
    }
}

fn add(tape: &mut Tape<'_>, stream: Flow, update: Flow, after: Option<&Norm>) -> anyhow::Result<Flow> {
    match after {
        Some(norm) => {
            let normed = norm.forward(tape, &update)?;
            tape.add(&stream, &normed)
        }
        None => tape.add(&stream, &update),
    }
}

impl Feed {
    /// What is added to the residual stream. Recomputed with its norm, whose input is kept anyway.
    fn forward<'a>(
        &'a self,
        tape: &mut Tape<'a>,
        settings: &'a Settings,
        pass: &Rc<Pass>,
        norm: &'a Norm,
        stream: &Flow,
    ) -> anyhow::Result<Flow> {
        match self {
            Feed::Dense(mlp) => {
                let run = move |tape: &mut Tape<'a>, stream: &Flow| {
                    let normed = norm.forward(tape, stream)?;
                    mlp.partial(tape, settings, normed)
                };
                let partial = if settings.recompute.module("mlp") {
                    tape.checkpoint(&[stream], move |tape, inputs| run(tape, &inputs[0]))?
                } else {
                    run(tape, stream)?
                };
                mlp.finish(tape, settings, partial)
            }
            Feed::Experts(mixture) => {
                let pass = pass.clone();
                let run = move |tape: &mut Tape<'a>, stream: &Flow| {
                    let normed = norm.forward_again(tape, settings, stream)?;
                    mixture.forward(tape, settings, &pass, normed)
                };
                if settings.recompute.module("moe") {
                    tape.checkpoint(&[stream], move |tape, inputs| run(tape, &inputs[0]))
                } else {
                    run(tape, stream)
                }
            }
        }
    }
}
