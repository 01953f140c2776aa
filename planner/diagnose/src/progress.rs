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
    use super::is_step;

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
        for line in ["the loss of a friend", "ValueError: loss at step 3: Error", "weight loss epoch"] {
            assert!(!is_step(line), "{line}");
        }
    }
}
