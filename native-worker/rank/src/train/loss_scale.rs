//! What losses are multiplied by in fp16, and how that follows what overflows.

use planner::plan::LossScale;
use planner::wire::LossScaleState;

/// The scale of a training, step by step.
#[derive(Debug, Clone)]
pub struct Scaler {
    rule: Option<LossScale>,
    state: LossScaleState,
}

impl Scaler {
    /// By the plan's rule, from its beginning or from what a checkpoint says; without a rule nothing is scaled.
    pub fn new(rule: Option<LossScale>, before: Option<LossScaleState>) -> Scaler {
        let (scale, overflows_left) = match rule {
            None => (1.0, 0),
            Some(LossScale::Fixed(scale)) => (scale, 0),
            Some(LossScale::Dynamic { initial, hysteresis, .. }) => (initial, hysteresis),
        };
        let first = LossScaleState { scale, clean_steps: 0, overflows_left };
        let follows = matches!(rule, Some(LossScale::Dynamic { .. }));
        Scaler { rule, state: before.filter(|_| follows).unwrap_or(first) }
    }

    /// What the losses of the next step are multiplied by.
    pub fn scale(&self) -> f64 {
        self.state.scale
    }

    /// Whether gradients may overflow without an end to the training.
    pub fn scales(&self) -> bool {
        self.rule.is_some()
    }

    /// What a checkpoint must keep of it.
    pub fn state(&self) -> Option<LossScaleState> {
        matches!(self.rule, Some(LossScale::Dynamic { .. })).then_some(self.state)
    }

    /// Takes note of a step; whether the next one has another chance, which is not so where gradients overflowed and the scale
    /// can't get smaller.
    pub fn note(&mut self, overflowed: bool) -> bool {
        let Some(LossScale::Dynamic { min, window, hysteresis, .. }) = self.rule else { return !overflowed };
        let state = &mut self.state;
        if !overflowed {
            state.clean_steps += 1;
            if state.clean_steps >= window {
                *state =
                    LossScaleState { scale: state.scale * 2.0, clean_steps: 0, overflows_left: hysteresis };
            }
            return true;
        }
        let least = state.scale <= min;
        state.clean_steps = 0;
        state.overflows_left = state.overflows_left.saturating_sub(1);
        if state.overflows_left == 0 {
            state.scale = (state.scale / 2.0).max(min);
        }
        !(least && state.overflows_left == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: LossScale = LossScale::Dynamic { initial: 8.0, min: 2.0, window: 3, hysteresis: 2 };

    #[test]
    fn it_halves_after_overflows_and_doubles_after_a_while_without() {
        let mut scaler = Scaler::new(Some(RULE), None);
        let mut scales = Vec::new();
        for overflowed in [true, true, true, false, false, false, true, true] {
            assert!(scaler.note(overflowed));
            scales.push(scaler.scale());
        }
        assert_eq!(scales, [8.0, 4.0, 2.0, 2.0, 2.0, 4.0, 4.0, 2.0]);
        assert!(!scaler.note(true), "there is no smaller scale");
    }

    #[test]
    fn a_checkpoint_goes_on_where_it_was() {
        let mut scaler = Scaler::new(Some(RULE), None);
        scaler.note(true);
        let mut other = Scaler::new(Some(RULE), scaler.state());
        assert!(scaler.note(true) && other.note(true));
        assert_eq!(scaler.scale(), other.scale());
        assert_eq!(Scaler::new(None, scaler.state()).scale(), 1.0);
        assert_eq!(Scaler::new(Some(LossScale::Fixed(16.0)), scaler.state()).scale(), 16.0);
    }

    #[test]
    fn with_a_fixed_scale_an_overflow_has_no_second_chance() {
        let mut scaler = Scaler::new(Some(LossScale::Fixed(16.0)), None);
        assert!(scaler.note(false) && !scaler.note(true));
    }
}
