//! Which layers of a chunk are recomputed, and which parts of a layer.

use std::ops::Range;

use planner::Plan;
use planner::settings::Granularity;

/// What a plan says about recomputation.
#[derive(Debug, Clone, Default)]
pub struct Recompute {
    whole_layers: Option<WholeLayers>,
    modules: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
enum WholeLayers {
    /// All layers, so many to a checkpoint.
    Uniform(usize),
    /// So many of the first layers of each chunk, each its own checkpoint.
    Block(usize),
}

impl Recompute {
    /// The plan's settings.
    pub fn of(plan: &Plan) -> Recompute {
        let training = &plan.training;
        let layers = usize::try_from(training.recompute_layers.unwrap_or(1)).unwrap_or(usize::MAX).max(1);
        match training.recompute {
            Granularity::None => Recompute::default(),
            Granularity::Selective => {
                Recompute { whole_layers: None, modules: training.recompute_modules.clone() }
            }
            Granularity::Full => {
                let block = plan.file.training.recompute.method.as_deref() == Some("block");
                let whole = if block { WholeLayers::Block(layers) } else { WholeLayers::Uniform(layers) };
                Recompute { whole_layers: Some(whole), modules: Vec::new() }
            }
        }
    }

    /// Whether a module of every layer is recomputed by itself.
    pub fn module(&self, name: &str) -> bool {
        self.modules.iter().any(|module| module == name)
    }

    /// The layers of a chunk of `layers` in groups, each with whether it is one checkpoint.
    pub fn groups(&self, layers: usize) -> Vec<(Range<usize>, bool)> {
        match self.whole_layers {
            None => vec![(0..layers, false)],
            Some(WholeLayers::Uniform(each)) => (0..layers.div_ceil(each))
                .map(|group| (group * each..layers.min(group.saturating_add(1).saturating_mul(each)), true))
                .collect(),
            Some(WholeLayers::Block(count)) => {
                let count = count.min(layers);
                (0..count).map(|layer| (layer..layer + 1, true)).chain([(count..layers, false)]).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(whole_layers: Option<WholeLayers>, layers: usize, expected: &[(Range<usize>, bool)]) {
        assert_eq!(Recompute { whole_layers, modules: Vec::new() }.groups(layers), expected);
    }

    #[test]
    fn layers_go_in_groups() {
        check(None, 3, &[(0..3, false)]);
        check(Some(WholeLayers::Uniform(2)), 5, &[(0..2, true), (2..4, true), (4..5, true)]);
        check(Some(WholeLayers::Uniform(9)), 2, &[(0..2, true)]);
        check(Some(WholeLayers::Block(2)), 3, &[(0..1, true), (1..2, true), (2..3, false)]);
        check(Some(WholeLayers::Block(9)), 1, &[(0..1, true), (1..1, false)]);
        check(Some(WholeLayers::Uniform(2)), 0, &[]);
    }
}
