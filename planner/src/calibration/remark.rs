//! A word on a measured step, and on a measured peak of memory, that its prediction did not foresee.

use crate::finding::Finding;
use crate::units::Bytes;

/// A step as it was measured and as it was predicted, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepBeside {
    /// What a step took.
    pub measured: f64,
    /// What it was predicted to take.
    pub predicted: f64,
    /// Within which nine of ten steps are.
    pub likely: [f64; 2],
    /// Whether ranks computed on the CPU.
    pub on_cpu: bool,
}

impl StepBeside {
    /// What to look at where the measured step is outside the likely range; none within it, and none of figures that are no
    /// seconds.
    pub fn finding(self) -> Option<Finding> {
        let StepBeside { measured, predicted, likely: [low, high], on_cpu } = self;
        let are_seconds = [measured, predicted].iter().all(|seconds| seconds.is_finite() && *seconds > 0.0);
        if !are_seconds || (low..=high).contains(&measured) {
            return None;
        }
        let [took, said, low, high] = [measured, predicted, low, high].map(seconds);
        let range = format!("{said} s predicted, {low} to {high} likely");
        let message = if measured > predicted {
            let waits = match on_cpu {
                true => {
                    "more ranks than cores, other programs on the machine (`top`), memory that is swapped"
                }
                false => {
                    "other programs on the GPUs (`nvidia-smi`), clocks and power (`nvidia-smi -q -d PERFORMANCE`), the network between \
                     nodes, storage that data is read from, ranks that share a GPU"
                }
            };
            format!(
                "a step took {took} s, {} times what was expected ({range}): look for {waits}; the page's Timeline draws the run's steps \
                 below the predicted ones. Where nothing is wrong, `shardplan calibrate` fits the prediction to this machine",
                times(measured / predicted)
            )
        } else {
            format!(
                "a step took {took} s, 1/{} of what was expected ({range}): this machine is faster than its constants say, or the run did \
                 less than the plan (look at what its log says of settings that are not followed); `shardplan calibrate` fits the \
                 prediction to this machine",
                times(predicted / measured)
            )
        };
        Some(Finding::warning("", measured, message))
    }
}

/// The most that the fullest rank had allocated, as it was measured and as it was predicted, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeakBeside {
    /// Allocated at most.
    pub measured: u64,
    /// What a rank was predicted to take from its device at most; on a GPU that is more than is allocated.
    pub predicted: u64,
    /// Within which nine of ten are.
    pub likely: [u64; 2],
    /// Whether ranks computed on the CPU, where what is taken is what is allocated.
    pub on_cpu: bool,
}

/// How far beyond the likely range a peak is worth a word: of a small run it is a few kilobytes wide.
const BEYOND: f64 = 0.05;

impl PeakBeside {
    /// What to look at where the peak is well outside the likely range; none within it, and none where nothing was measured.
    pub fn finding(self) -> Option<Finding> {
        let PeakBeside { measured, predicted, likely: [low, high], on_cpu } = self;
        let is_below = on_cpu && (measured as f64) < low as f64 * (1.0 - BEYOND);
        let is_above = measured as f64 > high as f64 * (1.0 + BEYOND);
        if measured == 0 || predicted == 0 || !(is_above || is_below) {
            return None;
        }
        let [had, said, low, high] = [measured, predicted, low, high].map(|bytes| Bytes(bytes).in_words());
        let why = match is_below {
            true => {
                "the run did less than the plan (look at what its log says of settings that are not followed)"
            }
            false => {
                "tokens that a router sends to few experts, settings that are not followed (the run's log names them), or a part that \
                 is not counted; the page's Run tab has predicted and measured by category"
            }
        };
        let message = format!(
            "the fullest rank had {had} allocated, which was not expected ({said} predicted, {low} to {high} likely): {why}"
        );
        Some(Finding::warning("", measured, message))
    }
}

/// Four digits after the point where there are few before it.
fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{value:.5}") } else { format!("{value:.3}") }
}

fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2}") } else { format!("{ratio:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(measured: f64) -> Option<String> {
        let beside = StepBeside { measured, predicted: 0.1, likely: [0.07, 0.14], on_cpu: true };
        beside.finding().map(|finding| finding.message)
    }

    #[test]
    fn a_step_outside_its_likely_range_has_both_figures_and_what_to_look_at() {
        for within in [0.07, 0.1, 0.14] {
            assert_eq!(of(within), None);
        }
        for (outside, words) in [(1.4, "14 times"), (0.15, "1.50 times"), (0.06, "1/1.67"), (0.001, "1/100")]
        {
            let message = of(outside).expect("a finding");
            assert!(message.contains(words), "{message}");
            assert!(
                message.contains(&seconds(outside)) && message.contains("0.10000 s predicted"),
                "{message}"
            );
            assert!(message.contains("shardplan calibrate"), "{message}");
        }
        for nonsense in [0.0, f64::NAN, f64::INFINITY] {
            assert_eq!(of(nonsense), None);
        }
    }

    #[test]
    fn a_peak_outside_its_likely_range_is_told() {
        let of = |measured, on_cpu| {
            PeakBeside { measured, predicted: 100 << 20, likely: [90 << 20, 120 << 20], on_cpu }.finding()
        };
        for on_cpu in [true, false] {
            assert_eq!(of(100 << 20, on_cpu), None);
            assert_eq!(of(0, on_cpu), None);
            assert_eq!(of(121 << 20, on_cpu), None);
            let above = of(130 << 20, on_cpu).expect("a finding").message;
            assert!(above.contains("130.00 MiB") && above.contains("90.00 MiB to 120.00 MiB"), "{above}");
        }
        // What a GPU's allocator holds beyond what is allocated is in the prediction.
        assert_eq!(of(80 << 20, false), None);
        assert!(of(80 << 20, true).is_some_and(|finding| finding.message.contains("did less")));
    }

    #[test]
    fn what_to_look_at_is_of_the_device() {
        let beside = StepBeside { measured: 2.0, predicted: 1.0, likely: [0.9, 1.1], on_cpu: false };
        let on_gpu = beside.finding().expect("a finding").message;
        assert!(on_gpu.contains("nvidia-smi"), "{on_gpu}");
        let on_cpu = StepBeside { on_cpu: true, ..beside }.finding().expect("a finding").message;
        assert!(!on_cpu.contains("nvidia-smi") && on_cpu.contains("cores"), "{on_cpu}");
    }
}
