//! Finding the lines worth reading: all anchors of all patterns in one automaton, one step for each byte.

use std::sync::LazyLock;

use aho_corasick::automaton::{Automaton, OverlappingState};
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, Input, MatchKind};

use super::causes::{self, Cause, Sign};
use super::pattern::Pattern;
use super::restart;

/// What lines are read for besides the signs of causes.
const READ_FOR: [&str; 30] = [
    // Exceptions, whose class may be anybody's.
    "Error:",
    "Exception:",
    "AssertionError",
    "NotImplementedError",
    "KeyboardInterrupt",
    "StopIteration",
    "RayTaskError(",
    "Traceback (most recent call last)",
    super::ignored::HEADS[0],
    super::ignored::HEADS[1],
    super::ignored::CHAINS[0],
    super::ignored::CHAINS[1],
    // Launchers' own accounts.
    "Root Cause (first observed failure)",
    "rank      :",
    "exitcode  :",
    "host      :",
    "error_file:",
    "srun: error: ",
    "noticed that process rank",
    "Xid (PCI:",
    "NVRM: Xid",
    "last enqueued work:",
    "last enqueued NCCL work:",
    "Last enqueued NCCL work:",
    super::progress::SAVED,
    // Ends of attempts, and Shardplan's own word on a rank.
    " steps are saved in ",
    "will restart worker group",
    " was ended by signal ",
    " exited with code ",
    super::book::LAST_WORD,
];

/// One sign, ready to be looked for.
pub(super) struct Ready {
    /// Index of its cause.
    pub(super) cause: u16,
    /// The sign.
    pub(super) sign: &'static Sign,
    /// Its pattern, cut.
    pub(super) pattern: Pattern,
}

/// All that is looked for.
pub(super) struct Scanner {
    /// Causes in their order.
    pub(super) causes: Vec<&'static Cause>,
    /// All signs.
    signs: Vec<Ready>,
    /// Anchors by their number in `all`, each with the signs that it stands for.
    signs_of: Vec<Vec<u16>>,
    /// Anchors that make a line worth reading.
    gate: DFA,
    /// Every anchor.
    all: DFA,
    /// Texts of `gate`.
    gate_texts: Vec<&'static str>,
}

/// Built on first use, in a few milliseconds.
pub(super) static SCANNER: LazyLock<Scanner> = LazyLock::new(Scanner::new);

impl Scanner {
    fn new() -> Scanner {
        let causes: Vec<&'static Cause> = causes::all().collect();
        let mut signs = Vec::new();
        let mut anchors: Vec<&'static str> = Vec::new();
        let mut signs_of: Vec<Vec<u16>> = Vec::new();
        let mut gate_texts: Vec<&'static str> = READ_FOR.into_iter().chain(restart::anchors()).collect();
        for (number, cause) in causes.iter().enumerate() {
            for sign in cause.signs {
                let pattern = Pattern::new(sign.pattern);
                let anchor = pattern.anchor();
                let place = anchors.iter().position(|known| *known == anchor).unwrap_or_else(|| {
                    anchors.push(anchor);
                    signs_of.push(Vec::new());
                    anchors.len() - 1
                });
                signs_of[place].push(signs.len() as u16);
                signs.push(Ready { cause: number as u16, sign, pattern });
                // What only counts in an exception's text is on a line that an exception's name has found.
                if !sign.raised && !gate_texts.contains(&anchor) {
                    gate_texts.push(anchor);
                }
            }
        }
        // An anchor that holds another one finds no line that the other does not.
        let gate_texts: Vec<&'static str> = gate_texts
            .iter()
            .filter(|text| !gate_texts.iter().any(|other| other != *text && text.contains(other)))
            .copied()
            .collect();
        let build = |texts: &[&str]| {
            DFA::builder()
                .match_kind(MatchKind::Standard)
                .prefilter(false)
                .build(texts)
                // Fails beyond 2^31 states; these are some thousand, and a test builds them.
                .expect("a few hundred short texts make an automaton")
        };
        Scanner { gate: build(&gate_texts), all: build(&anchors), causes, signs, signs_of, gate_texts }
    }

    /// The end of the first anchor in `text` at or behind `from`.
    pub(super) fn next(&self, text: &[u8], from: usize) -> Option<std::ops::Range<usize>> {
        let input = Input::new(text).range(from..).anchored(Anchored::No).earliest(true);
        // Searching without anchoring is what the automaton was built for, so it can't refuse.
        self.gate.try_find(&input).ok().flatten().map(|found| found.range())
    }

    /// The signs whose anchors are in a line, in the order of the tables.
    pub(super) fn signs_in(&self, line: &str) -> Vec<&Ready> {
        let mut found: Vec<u16> = Vec::new();
        let input = Input::new(line);
        let mut state = OverlappingState::start();
        let mut seen = vec![false; self.signs_of.len()];
        while self.all.try_find_overlapping(&input, &mut state).is_ok() {
            let Some(hit) = state.get_match() else { break };
            let place = hit.pattern().as_usize();
            if !std::mem::replace(&mut seen[place], true) {
                found.extend_from_slice(&self.signs_of[place]);
            }
        }
        found.sort_unstable();
        found.iter().map(|&sign| &self.signs[usize::from(sign)]).collect()
    }

    /// The literal texts that lines are found by.
    pub(super) fn texts(&self) -> &[&'static str] {
        &self.gate_texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_order() {
        let scanner = Scanner::new();
        let mut ids: Vec<&str> = scanner.causes.iter().map(|cause| cause.id).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "an id is used twice");
        for cause in &scanner.causes {
            assert!(!cause.signs.is_empty() && !cause.next.is_empty(), "{}", cause.id);
            for sign in cause.signs {
                let anchor = Pattern::new(sign.pattern).anchor();
                assert!(anchor.len() >= 4, "`{}` has no text to be found by", sign.pattern);
            }
        }
    }

    #[test]
    fn no_step_removes_what_was_trained() {
        let of_causes = causes::all().flat_map(|cause| cause.next.iter().copied());
        let of_xids = (0..200).flat_map(|number| crate::xid::known(number).action.steps().iter().copied());
        for step in of_causes.chain(of_xids) {
            let removes = ["rm -", "remov", "delet", "wipe", "empty"].iter().any(|word| step.contains(word));
            let is_trained =
                ["checkpoint", "nemo_experiments", "--save", "--load"].iter().any(|word| step.contains(word));
            assert!(!step.contains("rm -r"), "{step}");
            assert!(!(removes && is_trained), "{step}");
        }
    }

    #[test]
    fn lines_of_healthy_runs_are_not_read() {
        let scanner = Scanner::new();
        for line in [
            " [2026-11-21 12:00:00] iteration       10/     100 | consumed samples:         2560 | elapsed time per iteration (ms): \
             1234.5 | learning rate: 1.0E-04 | global batch size:   256 | lm loss: 1.0E+01 | loss scale: 1.0 | grad norm: 1.2 | \
             number of skipped iterations:   0 | number of nan iterations:   0 |",
            "node01:1:2 [0] NCCL INFO Channel 00/16 : 0[0] -> 1[1] via P2P/CUMEM",
            "  moe_router_topk ................................. 8",
            "  overlap_param_gather ............................ True",
            "[titan] 2026-11-21 12:00:00,000 - root - INFO - step:  1  loss:  8.1  grad_norm:  2.3  memory:  1.0GiB(1.2%)  tps: 1,000",
            "{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 1e-4, 'epoch': 0.1}",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        ] {
            assert_eq!(scanner.next(line.as_bytes(), 0), None, "{line}");
        }
    }
}
