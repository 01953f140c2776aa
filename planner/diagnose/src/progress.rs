//! Steps of training, by which a run that went on is told from one that ended.

/// Whether the line is a step's: a loss beside a step, iteration or epoch, or a progress bar of steps.
pub(super) fn is_step(line: &str) -> bool {
    let counts = || {
        line.contains("teration") || line.contains("step") || line.contains("Step") || line.contains("epoch")
    };
    let has_digit = || line.bytes().any(|byte| byte.is_ascii_digit());
    ((line.contains("loss") && counts())
        || line.contains("it/s]")
        || line.contains("s/it]")
        || line.contains("it/s,"))
        && has_digit()
        && !line.contains("Error")
}

/// The number of the step, where the line says it behind one of these words or as a part of all.
pub(super) fn number(line: &str) -> Option<u64> {
    let behind = |word: &str| {
        let (_, rest) = line.split_once(word)?;
        let rest = rest.trim_start_matches(['s', '\'', '"', ':', '=', ' ', '[', '#']);
        super::origin::long_digits(rest).map(|(number, _)| number)
    };
    let of_bar = || {
        let (before, _) = line.split_once('/')?;
        let digits = before.bytes().rev().take_while(u8::is_ascii_digit).count();
        before[before.len() - digits..].parse().ok()
    };
    ["teration", "global_step", "tep"].into_iter().find_map(behind).or_else(of_bar)
}

/// What Megatron says once a checkpoint is whole, also one that it saves beside the training.
pub(super) const SAVED: &str = "successfully saved checkpoint";

/// The iteration of a checkpoint that the line says is saved.
pub(super) fn saved(line: &str) -> Option<u64> {
    line.split_once(SAVED).and_then(|(_, rest)| number(rest))
}

/// Whether the line says that training came to its end.
pub(super) fn is_done(line: &str) -> bool {
    [
        "[after training is done]",
        "after training is done",
        "raining completed",
        "raining complete.",
        "raining finished",
        "`Trainer.fit` stopped: `max_",
        "'train_runtime':",
        "exiting program at iteration",
        "Finished training",
    ]
    .iter()
    .any(|words| line.contains(words))
}

#[cfg(test)]
mod tests {
    use super::{is_step, number, saved};

    #[test]
    fn steps() {
        for line in [
            " iteration       10/     100 | lm loss: 1.0E+01 |",
            "step:  1  loss:  8.1",
            "{'loss': 2.3, 'epoch': 0.1}",
            "Training epoch 0, iteration 5/19 | lr: 1e-5 | reduced_train_loss: 11.0",
            " 10%|#   | 10/100 [00:10<01:30, 1.00it/s]",
        ] {
            assert!(is_step(line), "{line}");
        }
        for (line, expected) in [
            (" iteration       10/     100 | lm loss: 1.0E+01 |", Some(10)),
            ("step:  1  loss:  8.1", Some(1)),
            ("Training epoch 0, iteration 5/19 | lr: 1e-5 | reduced_train_loss: 11.0", Some(5)),
            ("{'loss': 2.3, 'global_step': 40}", Some(40)),
            (" 10%|#   | 10/100 [00:10<01:30, 1.00it/s]", Some(10)),
            ("{'loss': 2.3, 'epoch': 0.1}", None),
        ] {
            assert_eq!(number(line), expected, "{line}");
        }
        for (line, expected) in [
            ("  successfully saved checkpoint from iteration     102 to /c [ t 1/2, p 1/1 ]", Some(102)),
            ("  successfully saved checkpoint at iteration       7 to /iter_9/c", Some(7)),
            ("saving checkpoint at iteration     102 to /c in torch_dist format", None),
        ] {
            assert_eq!(saved(line), expected, "{line}");
        }
        for line in ["the loss of a friend", "ValueError: loss at step 3: Error", "weight loss epoch"] {
            assert!(!is_step(line), "{line}");
        }
    }
}
