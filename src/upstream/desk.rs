//! Calls of clients that are in progress on one connection, and which of them a
//! message belongs to that does not say so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::AHashMap;
use tokio::sync::mpsc;

/// Messages of one call that wait to be read; more are dropped.
const SIDE: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Desk(Mutex<AHashMap<i64, Seat>>);

#[derive(Debug)]
struct Seat {
    side: mpsc::Sender<String>,
    owner: Arc<str>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Taken,
    /// No client waits for anything.
    Nobody,
    /// It could belong to several clients, and must not reach the wrong one.
    Unclear,
}

impl Desk {
    /// Notes that the call `id` of `owner` is in progress.
    pub(super) fn sit(&self, id: i64, owner: &Arc<str>) -> mpsc::Receiver<String> {
        let (side, messages) = mpsc::channel(SIDE);
        let owner = Arc::clone(owner);
        self.lock().insert(id, Seat { side, owner });
        messages
    }

    /// The call is over.
    pub(super) fn leave(&self, id: i64) {
        self.lock().remove(&id);
    }

    /// Gives a message to the call it names.
    pub(super) fn give_to(&self, id: i64, text: &str) {
        if let Some(seat) = self.lock().get(&id) {
            // Too many to tell of each.
            let _ = seat.side.try_send(text.to_owned());
        }
    }

    /// Gives a message to the call it must belong to: the newest, if all calls
    /// in progress are of one client.
    pub(super) fn give(&self, text: &str) -> Given {
        let seats = self.lock();
        let Some((_, newest)) = seats.iter().max_by_key(|(id, _)| **id) else {
            return Given::Nobody;
        };
        if seats.values().any(|it| it.owner != newest.owner) {
            return Given::Unclear;
        }
        match newest.side.try_send(text.to_owned()) {
            Ok(()) => Given::Taken,
            Err(_full_or_gone) => Given::Unclear,
        }
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, AHashMap<i64, Seat>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_without_a_name_never_reaches_another_client() {
        let desk = Desk::default();
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        assert_eq!(desk.give("x"), Given::Nobody);
        let mut first = desk.sit(1, &one);
        let mut second = desk.sit(2, &one);
        assert_eq!(desk.give("x"), Given::Taken);
        assert_eq!(
            (first.try_recv().ok(), second.try_recv().ok()),
            (None, Some("x".to_owned()))
        );
        let mut third = desk.sit(3, &other);
        assert_eq!(desk.give("y"), Given::Unclear);
        assert!(
            first.try_recv().is_err() && second.try_recv().is_err() && third.try_recv().is_err()
        );
        desk.leave(3);
        assert_eq!(desk.give("z"), Given::Taken);
    }
}
