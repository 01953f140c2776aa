//! Tokens of the next steps, read by a thread while a step runs.
//!
//! The thread hands over numbers: tensors live and die on the rank's own thread, whose bytes are counted. What was read ahead
//! is nobody's state: a run that goes on reads it again, from the number of sequences that its checkpoint has.

use std::ops::RangeInclusive;
use std::sync::mpsc::{Receiver, sync_channel};

use anyhow::{Context, ensure};

/// Steps that wait to be taken; the thread holds one more in its hands.
const WAITING: usize = 2;

/// What was read for a step.
pub struct StepTokens {
    /// Tokens of each micro batch: of one sequence after the other, with the token behind it.
    pub microbatches: Vec<Vec<i64>>,
    /// Predictions that count, over these: the model's own, then those of each module that predicts.
    pub counted: Vec<u64>,
}

/// Reads steps one after the other, ahead of who asks for them.
pub struct ReadAhead {
    steps: Receiver<(u64, anyhow::Result<StepTokens>)>,
}

impl ReadAhead {
    /// Starts to read these steps by `read`. It ends behind the last, behind the first that fails, or when nobody asks any more.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        steps: RangeInclusive<u64>,
        mut read: impl FnMut(u64) -> anyhow::Result<StepTokens> + Send + 'static,
    ) -> anyhow::Result<ReadAhead> {
        let (hand_over, taken) = sync_channel(WAITING);
        let run = move || {
            for step in steps {
                let result = read(step);
                let failed = result.is_err();
                if hand_over.send((step, result)).is_err() || failed {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("reader".to_owned());
        thread.spawn(run).context("starting the thread that reads data")?;
        Ok(ReadAhead { steps: taken })
    }

    /// What was read for `step`, which must be the next.
    ///
    /// # Errors
    /// When it could not be read, or another step is the next.
    pub fn take(&self, step: u64) -> anyhow::Result<StepTokens> {
        let next = self.steps.recv();
        let (read, result) = next.with_context(|| format!("nothing is read for step {step} any more"))?;
        ensure!(read == step, "step {step} wants its data, and that of step {read} is the next");
        result
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::bail;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn tokens_of(step: u64) -> StepTokens {
        StepTokens { microbatches: vec![vec![step as i64]], counted: vec![1] }
    }

    #[test]
    fn steps_are_read_before_anybody_asks_in_their_order_and_not_without_end() {
        let (note, noted) = sync_channel(32);
        let reader = ReadAhead::start(4..=20, move |step| {
            note.send(step).unwrap();
            Ok(tokens_of(step))
        })
        .unwrap();
        // Those that wait and the one in its hands, though nobody has asked for any.
        let began: Vec<u64> = (0..=WAITING).map(|_| noted.recv_timeout(PATIENCE).unwrap()).collect();
        assert_eq!(began, [4, 5, 6]);
        assert!(noted.try_recv().is_err());
        for step in 4..=20 {
            assert_eq!(reader.take(step).unwrap().microbatches, [[step as i64]]);
            // Each that is taken makes room for one.
            if step + (WAITING as u64) < 20 {
                assert_eq!(noted.recv_timeout(PATIENCE).unwrap(), step + WAITING as u64 + 1);
            }
            assert!(noted.try_recv().is_err());
        }
        assert!(reader.take(21).is_err());
    }

    #[test]
    fn what_can_not_be_read_is_said_at_its_step() {
        let reader =
            ReadAhead::start(
                1..=9,
                |step| if step == 3 { bail!("the disk is gone") } else { Ok(tokens_of(step)) },
            );
        let reader = reader.unwrap();
        assert!(reader.take(1).is_ok() && reader.take(2).is_ok());
        assert_eq!(reader.take(3).err().unwrap().to_string(), "the disk is gone");
        assert!(reader.take(4).is_err());
    }

    #[test]
    fn another_step_than_the_next_is_refused() {
        let reader = ReadAhead::start(1..=9, |step| Ok(tokens_of(step))).unwrap();
        assert!(reader.take(2).err().unwrap().to_string().contains("step 1 is the next"));
    }

    #[test]
    fn the_thread_ends_when_nobody_asks_any_more() {
        let (alive, gone) = sync_channel::<()>(1);
        let reader = ReadAhead::start(1..=u64::MAX, move |step| {
            let _ = &alive;
            Ok(tokens_of(step))
        });
        drop(reader);
        assert!(
            gone.recv_timeout(PATIENCE)
                .is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Disconnected)
        );
    }
}
