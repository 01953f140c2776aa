//! How long is waited for another thread that asks a disk, a driver or another machine: not for long where these hang, and
//! longer where it only waits for a processor on a machine that does much else, for then it gets there.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How often is looked.
const MOMENT: Duration = Duration::from_millis(5);
/// How long is waited for one that computes without end.
const AT_MOST: Duration = Duration::from_secs(60);

/// A thread of this process that others wait for.
#[derive(Debug, Default)]
pub struct Awaited(OnceLock<Option<PathBuf>>);

impl Awaited {
    /// Says that it is the calling thread.
    pub fn is_this(&self) {
        let link = std::fs::read_link("/proc/thread-self").ok();
        let _ = self.0.set(link.map(|thread| Path::new("/proc").join(thread).join("stat")));
    }

    /// Whether it waits for something else than a processor, as far as the system says.
    fn sleeps(&self) -> bool {
        // It has not come so far as to say who it is.
        let Some(path) = self.0.get() else { return false };
        let stat = path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        // The name before, in parentheses, may have any characters.
        let state = stat.as_ref().and_then(|stat| stat.rsplit_once(") ")).map(|(_, rest)| rest);
        state.is_none_or(|state| !state.starts_with(['R', 'T']))
    }
}

/// What is left of the patience with a thread.
#[derive(Debug)]
pub struct Patience<'a> {
    thread: &'a Awaited,
    left: Duration,
    begun: Instant,
}

impl<'a> Patience<'a> {
    /// Waits for `thread` while it sleeps no longer than `limit`, looked at every [`Self::moment`].
    pub fn new(limit: Duration, thread: &'a Awaited) -> Patience<'a> {
        Patience { thread, left: limit, begun: Instant::now() }
    }

    /// How long to wait before it is asked again.
    pub fn moment(&self) -> Duration {
        MOMENT.min(self.left)
    }

    /// Whether nothing is left of it, after another moment.
    pub fn is_over(&mut self) -> bool {
        if self.thread.sleeps() {
            // Not what the clock says: whoever waits here may have waited for a processor as well.
            self.left = self.left.saturating_sub(MOMENT);
        }
        self.left.is_zero() || self.begun.elapsed() >= AT_MOST
    }
}
