//! One transformer layer on the tape: what mixes tokens and a feed-forward part, each behind a norm, added to the residual
//! stream one after the other or together.

use std::rc::Rc;

use anyhow::{Context, bail};
use planner::Plan;
use planner::model::{self, Attention, Branches, LayerKind, MixerRef};

use super::attention::Grouped;
use super::functions::multiplied;
use super::latent::Latent;
use super::linear::Linear;
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
    branches: Branches,
    /// What either gives is multiplied by.
    multiplier: f64,
}

/// What stands between a norm and the residual stream.
struct Part<T> {
    /// Norm of what it is given; none where that is the stream itself, or what the other part was given.
    norm: Option<Norm>,
    inner: T,
    /// Norm of what is added.
    after: Option<Norm>,
}

enum Mixer {
    Grouped(Grouped),
    Latent(Latent),
    Linear(Linear),
}

enum Feed {
    Dense(Mlp),
    Linear(Linear),
    Experts(Box<Mixture>),
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
        let one_norm = architecture.branches == Branches::OneNorm && kind.mixer.is_some();
        let part = |name: &str| {
            let before = !(architecture.no_pre_norms || one_norm && name == "mlp");
            let norm = before
                .then(|| Norm::of_stream(architecture, names, &format!("{prefix}.{name}.norm")))
                .transpose()?;
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
                    MixerRef::Linear => Mixer::Linear(Linear::find(names, &name)?),
                    _ => {
                        bail!("the executor does not run layers of {} yet", architecture.kind_in_words(kind))
                    }
                };
                Some(Part { norm, inner, after })
            }
        };
        let feed = match kind.mlp {
            model::Mlp::None => None,
            model::Mlp::Linear => {
                let (norm, after) = part("mlp")?;
                let inner = Feed::Linear(Linear::find(names, &format!("{prefix}.mlp"))?);
                Some(Part { norm, inner, after })
            }
            model::Mlp::Dense => {
                let (norm, after) = part("mlp")?;
                let inner = Feed::Dense(Mlp::find(plan, names, &format!("{prefix}.mlp"))?);
                Some(Part { norm, inner, after })
            }
            model::Mlp::Moe => {
                let (norm, after) = part("mlp")?;
                let moe = architecture.moe.as_ref().context("a layer of experts in a model without")?;
                let inner = Feed::Experts(Box::new(Mixture::find(plan, moe, names, prefix, world)?));
                Some(Part { norm, inner, after })
            }
        };
        Ok(Layer {
            mixer,
            feed,
            branches: architecture.branches,
            multiplier: architecture.residual_multiplier,
        })
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
        if let (Some(mixer), Some(feed), Branches::SideBySide | Branches::OneNorm) =
            (&self.mixer, &self.feed, self.branches)
        {
            let normed = mixer.normed(tape, settings, &stream)?;
            let shared = (self.branches == Branches::OneNorm).then(|| normed.another());
            let update = mixer.inner.forward(tape, settings, pass, normed)?;
            let beside = feed.inner.forward(
                tape,
                settings,
                pass,
                feed.norm.as_ref(),
                shared.as_ref().unwrap_or(&stream),
            )?;
            drop(shared);
            stream = self.add(tape, stream, update, mixer.after.as_ref())?;
            return self.add(tape, stream, beside, feed.after.as_ref());
        }
        if let Some(mixer) = &self.mixer {
            let normed = mixer.normed(tape, settings, &stream)?;
            let update = mixer.inner.forward(tape, settings, pass, normed)?;
            stream = self.add(tape, stream, update, mixer.after.as_ref())?;
        }
        if let Some(Part { norm, inner, after }) = &self.feed {
            let update = inner.forward(tape, settings, pass, norm.as_ref(), &stream)?;
            stream = self.add(tape, stream, update, after.as_ref())?;
        }
        Ok(stream)
    }

    fn add(
        &self,
        tape: &mut Tape<'_>,
        stream: Flow,
        mut update: Flow,
        after: Option<&Norm>,
    ) -> anyhow::Result<Flow> {
        if let Some(norm) = after {
            update = norm.forward(tape, &update)?;
        }
        let update = multiplied(tape, update, self.multiplier)?;
        tape.add(&stream, &update)
    }

    /// Its experts, where it has some.
    pub fn mixture(&self) -> Option<&Mixture> {
        match &self.feed {
            Some(Part { inner: Feed::Experts(mixture), .. }) => Some(mixture),
            _ => None,
        }
    }
}

impl Part<Mixer> {
    /// What it is given. Norms that Megatron-Core fuses with the next matrix are not recomputed by themselves.
    fn normed(&self, tape: &mut Tape<'_>, settings: &Settings, stream: &Flow) -> anyhow::Result<Flow> {
        match (&self.norm, &self.inner) {
            (None, _) => Ok(stream.another()),
            (Some(norm), Mixer::Grouped(_) | Mixer::Linear(_)) => norm.forward(tape, stream),
            (Some(norm), Mixer::Latent(_)) => norm.forward_again(tape, settings, stream),
        }
    }
}

impl Mixer {
    fn forward<'a>(
        &'a self,
        tape: &mut Tape<'a>,
        settings: &'a Settings,
        pass: &Rc<Pass>,
        normed: Flow,
    ) -> anyhow::Result<Flow> {
        match self {
            Mixer::Grouped(grouped) => grouped.forward(tape, settings, pass, normed),
            Mixer::Latent(latent) => latent.forward(tape, settings, pass, normed),
            Mixer::Linear(linear) => linear.forward(tape, settings, normed),
        }
    }
}

impl Feed {
    /// What is added to the residual stream. Recomputed with its norm, whose input is kept anyway.
    fn forward<'a>(
        &'a self,
        tape: &mut Tape<'a>,
        settings: &'a Settings,
        pass: &Rc<Pass>,
        norm: Option<&'a Norm>,
        stream: &Flow,
    ) -> anyhow::Result<Flow> {
        match self {
            Feed::Dense(mlp) => {
                let run = move |tape: &mut Tape<'a>, stream: &Flow| {
                    let normed = match norm {
                        Some(norm) => norm.forward(tape, stream)?,
                        None => stream.another(),
                    };
                    mlp.partial(tape, settings, normed)
                };
                let partial = if settings.recompute.module("mlp") {
                    tape.checkpoint(&[stream], move |tape, inputs| run(tape, &inputs[0]))?
                } else {
                    run(tape, stream)?
                };
                mlp.finish(tape, settings, partial)
            }
            Feed::Linear(linear) => {
                let normed = match norm {
                    Some(norm) => norm.forward(tape, stream)?,
                    None => stream.another(),
                };
                linear.forward(tape, settings, normed)
            }
            Feed::Experts(mixture) => {
                let pass = pass.clone();
                let run = move |tape: &mut Tape<'a>, stream: &Flow| {
                    let normed = match norm {
                        Some(norm) => norm.forward_again(tape, settings, stream)?,
                        None => stream.another(),
                    };
                    mixture.forward(tape, settings, &pass, stream, normed)
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
