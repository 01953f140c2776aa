//! Connections whose other end has not shown the token. Whoever reaches the port can open any number of them and say nothing, or little:
//! so few are open at once, and where one more comes the one that has been there longest goes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Connections without the token that are open at once. A page takes a few, for a moment.
const MOST_STRANGERS: usize = 128;

/// Those who have not shown the token, in the order in which they came.
#[derive(Default)]
pub struct Door {
    strangers: Mutex<VecDeque<Arc<watch::Sender<bool>>>>,
}

/// One connection without the token: the one who serves it has it, until it ends or shows the token.
pub struct Stranger {
    door: Arc<Door>,
    goes: Arc<watch::Sender<bool>>,
}

impl Door {
    fn strangers(&self) -> MutexGuard<'_, VecDeque<Arc<watch::Sender<bool>>>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more, for which the oldest may have to go.
    pub fn enter(self: &Arc<Self>) -> Arc<Stranger> {
        let goes = Arc::new(watch::Sender::new(false));
        let mut strangers = self.strangers();
        if strangers.len() >= MOST_STRANGERS
            && let Some(oldest) = strangers.pop_front()
        {
            oldest.send_replace(true);
        }
        strangers.push_back(goes.clone());
        drop(strangers);
        Arc::new(Stranger { door: self.clone(), goes })
    }
}

impl Stranger {
    /// Waits until it must go.
    pub async fn must_go(&self) {
        // The sender lives as long as this.
        let _ = self.goes.subscribe().wait_for(|goes| *goes).await;
    }

    /// It has shown the token, or has ended.
    pub fn leaves(&self) {
        self.door.strangers().retain(|other| !Arc::ptr_eq(other, &self.goes));
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.leaves();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_and_who_has_shown_the_token_stays() {
        let door = Arc::new(Door::default());
        let goes = |stranger: &Stranger| *stranger.goes.borrow();
        let page = door.enter();
        page.leaves();
        let mut strangers: Vec<_> = (0..MOST_STRANGERS).map(|_| door.enter()).collect();
        assert!(!strangers.iter().any(|stranger| goes(stranger)));
        strangers.push(door.enter());
        strangers.push(door.enter());
        let gone: Vec<usize> = (0..strangers.len()).filter(|&index| goes(&strangers[index])).collect();
        assert_eq!(gone, [0, 1]);
        assert!(!goes(&page));
        strangers.clear();
        assert_eq!(door.strangers().len(), 0);
    }
}
