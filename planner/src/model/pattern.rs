//! Which layer is of which kind: a short list of runs that is repeated over the layers.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Architecture, Attention, MixerRef};

/// A layer's feed-forward part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mlp {
    /// A dense MLP.
    Dense,
    /// Router and experts; dense in a model without experts.
    #[default]
    Moe,
    /// One square matrix (Nemotron-NAS).
    Linear,
    /// None.
    None,
}

/// Layers of one kind in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerRun {
    /// How many.
    #[serde(default = "one")]
    pub count: u64,
    /// What mixes tokens: 0 the architecture's `attention`, n the n-th of `other_mixers`, null nothing.
    #[serde(default = "attention")]
    pub mixer: Option<u64>,
    /// The feed-forward part.
    #[serde(default)]
    pub mlp: Mlp,
    /// Width of the dense MLP, where it is not the architecture's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ffn: Option<u64>,
    /// Whether nothing norms what its mixers are given, whatever the architecture says (ModernBERT's first layer).
    #[serde(default, skip_serializing_if = "super::no")]
    pub unnormed: bool,
}

impl LayerRun {
    /// Whether its layers are of this kind.
    fn run_of(&self, kind: LayerKind) -> bool {
        LayerRun { count: self.count, ..kind.run() } == *self
    }
}

fn one() -> u64 {
    1
}

fn attention() -> Option<u64> {
    Some(0)
}

/// What a layer consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerKind {
    /// What mixes tokens, by the numbers of `LayerRun::mixer`.
    pub mixer: Option<u64>,
    /// The feed-forward part.
    pub mlp: Mlp,
    /// Width of the dense MLP, where it is not the architecture's.
    pub ffn: Option<u64>,
    /// Whether nothing norms what its mixer is given.
    pub unnormed: bool,
}

impl LayerKind {
    /// Attention and a dense MLP.
    pub const DENSE: LayerKind = LayerKind::new(Some(0), Mlp::Dense);
    /// Attention and experts.
    pub const MOE: LayerKind = LayerKind::new(Some(0), Mlp::Moe);

    /// A mixer and a feed-forward part of the usual width.
    pub const fn new(mixer: Option<u64>, mlp: Mlp) -> LayerKind {
        LayerKind { mixer, mlp, ffn: None, unnormed: false }
    }

    /// A run of one.
    pub fn run(self) -> LayerRun {
        LayerRun { count: 1, mixer: self.mixer, mlp: self.mlp, ffn: self.ffn, unnormed: self.unnormed }
    }
}

/// Kinds of layers in order as the shortest list of runs: repeats of the whole are folded, then neighbours joined.
/// Empty when all are the usual kind, attention with experts.
pub fn fold(kinds: &[LayerKind]) -> Vec<LayerRun> {
    if kinds.iter().all(|kind| *kind == LayerKind::MOE) {
        return Vec::new();
    }
    let period = (1..=kinds.len())
        .find(|&period| kinds.iter().zip(&kinds[period..]).all(|(one, next)| one == next))
        .unwrap_or(0);
    let mut runs: Vec<LayerRun> = Vec::new();
    for kind in &kinds[..period] {
        match runs.last_mut() {
            Some(last) if last.run_of(*kind) => last.count += 1,
            _ => runs.push(kind.run()),
        }
    }
    runs
}

impl Architecture {
    /// What `layer` (from 0) consists of.
    pub fn layer_kind(&self, layer: u64) -> LayerKind {
        self.kind_in(&self.pattern, layer)
    }

    /// Kinds of the layers of a multi-token-prediction module: the last layer's, unless it is said.
    pub fn mtp_kinds(&self) -> Vec<LayerKind> {
        match self.mtp_pattern.iter().map(|run| run.count).sum() {
            0 => vec![self.layer_kind(self.num_layers.saturating_sub(1))],
            layers => (0..layers).map(|layer| self.kind_in(&self.mtp_pattern, layer)).collect(),
        }
    }

    fn kind_in(&self, pattern: &[LayerRun], layer: u64) -> LayerKind {
        let period: u64 = pattern.iter().map(|run| run.count).sum();
        let mut place = layer.checked_rem(period).unwrap_or(0);
        let mut kind = LayerKind::MOE;
        for run in pattern {
            kind = LayerKind { mixer: run.mixer, mlp: run.mlp, ffn: run.ffn, unnormed: run.unnormed };
            match place.checked_sub(run.count) {
                Some(rest) => place = rest,
                None => break,
            }
        }
        if kind.mlp == Mlp::Moe && self.moe.is_none() {
            kind.mlp = Mlp::Dense;
        }
        kind
    }

    /// Kinds of the layers of a range with the number of each, without going through them one by one; a kind may come
    /// several times.
    pub(crate) fn kinds_in(&self, layers: Range<u64>) -> impl Iterator<Item = (LayerKind, u64)> + '_ {
        let period: u64 = self.pattern.iter().map(|run| run.count).sum();
        let usual = period == 0;
        let all = layers.end.saturating_sub(layers.start);
        let plain = self.layer_kind(layers.start);
        // Within the first period no whole ones are counted, and nothing after the range is looked at.
        let once = layers.end <= period;
        let mut start = 0;
        let runs = self
            .pattern
            .iter()
            .filter(move |_| !usual)
            .map(move |run| {
                let from = start;
                start += run.count;
                (run, from)
            })
            .take_while(move |(_, from)| !once || *from < layers.end)
            .map(move |(run, from)| {
                // Layers below `end` that are in this run, in whole periods and in the last one.
                let before = |end: u64| match once {
                    true => end.saturating_sub(from).min(run.count),
                    false => (end / period) * run.count + (end % period).saturating_sub(from).min(run.count),
                };
                (run, before(layers.end.max(layers.start)) - before(layers.start))
            })
            .filter(|(_, count)| *count > 0)
            .map(|(run, count)| (self.kind_of_run(run), count));
        usual.then_some((plain, all)).into_iter().chain(runs).filter(|(_, count)| *count > 0)
    }

    fn kind_of_run(&self, run: &LayerRun) -> LayerKind {
        let mlp = if run.mlp == Mlp::Moe && self.moe.is_none() { Mlp::Dense } else { run.mlp };
        LayerKind { mixer: run.mixer, mlp, ffn: run.ffn, unnormed: run.unnormed }
    }

    /// Every kind of layer that the model has, with the number of its layers, in order of appearance.
    pub fn layer_kinds(&self) -> Vec<(LayerKind, u64)> {
        let mut kinds: Vec<(LayerKind, u64)> = Vec::new();
        for kind in (0..self.num_layers).map(|layer| self.layer_kind(layer)) {
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, count)) => *count += 1,
                None => kinds.push((kind, 1)),
            }
        }
        kinds
    }

    /// Whether some layer has this feed-forward part.
    pub(crate) fn has_mlp(&self, mlp: Mlp) -> bool {
        let usual = |mlp| if mlp == Mlp::Moe && self.moe.is_none() { Mlp::Dense } else { mlp };
        match self.pattern.as_slice() {
            [] => usual(Mlp::Moe) == mlp,
            runs => runs.iter().any(|run| usual(run.mlp) == mlp),
        }
    }

    /// Width of the dense MLP of layers of `kind`.
    pub fn ffn(&self, kind: LayerKind) -> u64 {
        kind.ffn.unwrap_or(self.ffn_hidden_size)
    }

    /// Widths of dense MLPs that some layer has, each once.
    pub(crate) fn dense_widths(&self) -> Vec<u64> {
        let mut widths: Vec<u64> = match self.pattern.as_slice() {
            [] => self.has_mlp(Mlp::Dense).then_some(self.ffn_hidden_size).into_iter().collect(),
            runs => {
                let kinds = runs.iter().map(|run| self.kind_of_run(run));
                kinds.filter(|kind| kind.mlp == Mlp::Dense).map(|kind| self.ffn(kind)).collect()
            }
        };
        widths.sort_unstable();
        widths.dedup();
        widths
    }

    /// What mixes tokens in layers of `kind`; none where nothing does.
    pub fn mixer(&self, kind: LayerKind) -> Option<MixerRef<'_>> {
        match kind.mixer? {
            0 => Some(MixerRef::Attention(&self.attention)),
            other => self.other_mixers.get(usize::try_from(other - 1).ok()?).map(|mixer| mixer.as_ref()),
        }
    }

    /// A kind of layer in words, such as `gated delta net and experts`.
    pub fn kind_in_words(&self, kind: LayerKind) -> String {
        let mixer = self.mixer(kind).map(|mixer| match mixer {
            MixerRef::Attention(attention) if kind.mixer == Some(0) => attention.name(),
            MixerRef::Attention(Attention::Shared { compressed: Some(_), .. }) => {
                "attention to compressed keys"
            }
            MixerRef::Attention(attention) if attention.scores().window.is_some() => "attention in a window",
            MixerRef::Attention(attention) if attention.scores().chunk.is_some() => "attention in chunks",
            MixerRef::Attention(_) => "attention of another shape",
            other => other.name(),
        });
        let mlp = match kind.mlp {
            Mlp::Dense => Some("dense MLP"),
            Mlp::Moe => Some("experts"),
            Mlp::Linear => Some("one matrix as MLP"),
            Mlp::None => None,
        };
        let width = kind.ffn.map(|width| format!(" of width {width}")).unwrap_or_default();
        match mixer.into_iter().chain(mlp).collect::<Vec<_>>().join(" and ") {
            nothing if nothing.is_empty() => "nothing".to_owned(),
            words => words + &width,
        }
    }

    /// Every mixer that some layer has.
    pub fn mixers(&self) -> Vec<MixerRef<'_>> {
        // A pattern has hundreds of runs and a handful of mixers.
        let has = |number: &u64| match self.pattern.as_slice() {
            [] => *number == 0,
            runs => runs.iter().any(|run| run.mixer == Some(*number)),
        };
        let numbers = (0..=self.other_mixers.len() as u64).filter(has);
        numbers.filter_map(|number| self.mixer(LayerKind::new(Some(number), Mlp::None))).collect()
    }
}
