//! What this machine lacks to run plans. Finding out starts Python and the rank binary, so it is remembered a while.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::Settings;
use crate::probe;
use crate::process;

/// How long an answer holds: somebody who installs torch reloads the page.
const HOLDS: Duration = Duration::from_secs(20);

/// An answer, and when it was found.
type Answer = (Instant, Vec<String>);

/// The question and its last answer.
#[derive(Clone)]
pub struct Problems {
    rank_binary: Option<PathBuf>,
    torch_python: Option<PathBuf>,
    preparing: Option<PathBuf>,
    last: Arc<Mutex<Option<Answer>>>,
}

impl Problems {
    /// Nothing is asked yet.
    pub fn new(settings: &Settings) -> Self {
        Problems {
            rank_binary: settings.rank_binary.clone(),
            torch_python: settings.torch_python.clone(),
            preparing: settings.preparing.clone(),
            last: Arc::default(),
        }
    }

    /// Absent parts as sentences, and whether that will change by itself.
    pub async fn get(&self) -> (Vec<String>, bool) {
        let asked = self.clone();
        tokio::task::spawn_blocking(move || asked.ask()).await.unwrap_or_default()
    }

    fn ask(&self) -> (Vec<String>, bool) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sentence) = self.preparing.as_deref().and_then(preparation) {
            // What was found before is out of date when this is done.
            *last = None;
            return (vec![sentence], true);
        }
        if let Some((at, problems)) = last.as_ref()
            && at.elapsed() < HOLDS
        {
            return (problems.clone(), false);
        }
        let torch = probe::find_torch(self.torch_python.as_deref());
        let rank = probe::find_rank(self.rank_binary.as_deref(), torch.as_ref().ok());
        let problems: Vec<String> = [torch.err(), rank.err()].into_iter().flatten().collect();
        *last = Some((Instant::now(), problems.clone()));
        (problems, false)
    }
}

/// What a preparation says of itself: in its first line the process that is at it, or nothing when it failed, and then what
/// it does, or why it failed. None when there is none.
fn preparation(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let (pid, words) = text.split_once('\n')?;
    let words = words.trim();
    if pid.is_empty() {
        return Some(format!(
            "The worker could not be made: {words}. Planning goes on without it; cargo xtask run tries again"
        ));
    }
    if !pid.parse().is_ok_and(process::is_at_work) {
        return Some(format!(
            "The worker is not there: {words} was cut off. cargo xtask run goes on from there"
        ));
    }
    let since = std::fs::metadata(file).and_then(|facts| facts.modified()).ok()?;
    let minutes = SystemTime::now().duration_since(since).unwrap_or_default().as_secs() / 60;
    let long = match minutes {
        0 => String::new(),
        1 => ", for a minute now".to_owned(),
        minutes => format!(", for {minutes} minutes now"),
    };
    Some(format!("The worker is being made: {words}{long}. Runs can be started when it is there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preparation_says_how_it_stands() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("preparing");
        assert_eq!(preparation(&file), None);
        let said = |text: &str| {
            std::fs::write(&file, text).expect("written");
            preparation(&file).expect("a sentence")
        };
        let here = format!("{}\nbuilding shardplan-rank\n", std::process::id());
        assert_eq!(
            said(&here),
            "The worker is being made: building shardplan-rank. Runs can be started when it is there"
        );
        assert!(said("4194305\ninstalling torch").contains("installing torch was cut off"));
        assert!(said("\nno room on the disk").contains("could not be made: no room on the disk. Planning"));
    }
}
