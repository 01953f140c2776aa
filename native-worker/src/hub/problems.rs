//! What this machine lacks to run plans. Finding out starts Python and the rank binary, so it is remembered a while.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::probe;

/// How long an answer holds: somebody who installs torch reloads the page.
const HOLDS: Duration = Duration::from_secs(20);

/// An answer, and when it was found.
type Answer = (Instant, Vec<String>);

/// The question and its last answer.
#[derive(Clone)]
pub struct Problems {
    rank_binary: Option<PathBuf>,
    torch_python: Option<PathBuf>,
    last: Arc<Mutex<Option<Answer>>>,
}

impl Problems {
    /// Nothing is asked yet.
    pub fn new(rank_binary: Option<PathBuf>, torch_python: Option<PathBuf>) -> Self {
        Problems { rank_binary, torch_python, last: Arc::default() }
    }

    /// Absent parts as sentences.
    pub async fn get(&self) -> Vec<String> {
        let asked = self.clone();
        tokio::task::spawn_blocking(move || asked.ask()).await.unwrap_or_default()
    }

    fn ask(&self) -> Vec<String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, problems)) = last.as_ref()
            && at.elapsed() < HOLDS
        {
            return problems.clone();
        }
        let torch = probe::find_torch(self.torch_python.as_deref());
        let rank = probe::find_rank(self.rank_binary.as_deref(), torch.as_ref().ok());
        let problems: Vec<String> = [torch.err(), rank.err()].into_iter().flatten().collect();
        *last = Some((Instant::now(), problems.clone()));
        problems
    }
}
