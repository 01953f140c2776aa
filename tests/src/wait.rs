//! Waiting for something to become true, with a limit and with what was seen last in the error.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long what takes moments may take on a machine that does much else, before it counts as hung.
pub const SOON: Duration = Duration::from_secs(60);
/// The same of what takes a while: runs, jobs, what a page computes.
pub const LONG: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(50);

/// What an attempt came to.
pub enum Attempt<T> {
    /// It is there.
    Ready(T),
    /// Not yet; what was seen instead.
    NotYet(String),
}

/// Tries until it is ready. An attempt that fails ends the wait.
pub async fn until<T, F>(what: &str, limit: Duration, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Attempt<T>>>,
{
    let start = Instant::now();
    loop {
        match attempt().await? {
            Attempt::Ready(value) => return Ok(value),
            Attempt::NotYet(seen) if start.elapsed() > limit => {
                bail!("after {} s still not {what}; seen last: {seen}", limit.as_secs())
            }
            Attempt::NotYet(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
