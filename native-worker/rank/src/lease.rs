//! What a rank does when the launcher that started it is gone: nobody would stop it any more, or tell how it ended.
//!
//! The launcher holds the other end of the rank's standard input, which ends with it, however it ends. Then all ranks end
//! after the step that they are in; one that does not come so far in time ends itself. Under Slurm nobody gives a rank a
//! launcher: there slurmstepd ends what a job leaves behind.

use std::io::{ErrorKind, Read};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

/// The launcher that is gone.
static GONE: OnceLock<u32> = OnceLock::new();
/// A step is being trained, which is worth a while.
static TRAINING: AtomicBool = AtomicBool::new(false);

/// What is trained is being saved, which is worth more.
static SAVING: AtomicBool = AtomicBool::new(false);
/// How long that may take.
const TO_SAVE: Duration = Duration::from_secs(1800);

/// Marks that what was trained is being saved, until it is dropped.
pub struct Saving(());

/// Notes that what was trained is being saved: a rank without a launcher may end that first.
pub fn saving() -> Saving {
    SAVING.store(true, Ordering::Relaxed);
    Saving(())
}

impl Drop for Saving {
    fn drop(&mut self) {
        SAVING.store(false, Ordering::Relaxed);
    }
}

/// Watches process `launcher`, which holds the other end of standard input. Once it is gone, a rank that trains has `lease`
/// to come to the end of its step before `give_up` is called with the reason.
///
/// # Errors
/// When the system gives no thread.
pub fn watch(
    launcher: u32,
    lease: Duration,
    give_up: impl FnOnce(&str) + Send + 'static,
) -> anyhow::Result<()> {
    let wait = move || {
        until_end(std::io::stdin());
        let _ = GONE.set(launcher);
        if TRAINING.load(Ordering::Relaxed) {
            std::thread::sleep(lease);
            let until = Instant::now() + TO_SAVE;
            while SAVING.load(Ordering::Relaxed) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(100));
            }
            give_up(&format!(
                "{}, and this rank did not come to the end of a step within {} s",
                sentence(launcher),
                lease.as_secs_f64()
            ));
        } else {
            give_up(&format!("{}, and this rank had not begun to train", sentence(launcher)));
        }
    };
    std::thread::Builder::new().name("lease".to_owned()).spawn(wait).context("watching the launcher")?;
    Ok(())
}

/// Notes that the first step begins.
pub fn training() {
    TRAINING.store(true, Ordering::Relaxed);
}

/// The launcher that is gone, if this rank knows of it.
pub fn gone() -> Option<u32> {
    GONE.get().copied()
}

/// That a launcher is gone, as the beginning of a sentence.
pub fn sentence(launcher: u32) -> String {
    format!("the launcher (process {launcher}) is gone: it was killed or crashed")
}

/// Reads until nobody can write any more.
fn until_end(mut stream: impl Read) {
    let mut said = [0; 64];
    loop {
        match stream.read(&mut said) {
            Ok(0) => return,
            Err(error) if error.kind() != ErrorKind::Interrupted => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::until_end;

    #[test]
    fn a_pipe_ends_with_its_last_writer() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let other = writer.try_clone().unwrap();
        let waiting = std::thread::spawn(move || until_end(reader));
        writer.write_all(b"words that mean nothing").unwrap();
        drop(writer);
        assert!(!waiting.is_finished());
        drop(other);
        waiting.join().unwrap();
    }
}
