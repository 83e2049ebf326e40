//! Tracks whether the database is reachable, and logs each outage and recovery once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tracing::{error, info};

use super::{DatabaseError, Error};

/// Whether the database answered the last statement.
#[derive(Debug)]
pub(super) struct StoreAvailability {
    /// The file, or the host, port and database; never a password.
    location: String,
    is_down: AtomicBool,
}

impl StoreAvailability {
    pub(super) fn new(location: String) -> Self {
        Self {
            location,
            is_down: AtomicBool::new(false),
        }
    }

    /// Records that the database answered, even with an error.
    pub(super) fn record_success(&self) {
        if self.is_down.swap(false, Relaxed) {
            info!("the store {} is back", self.location);
        }
    }

    /// Returns [`Error::Down`] if the database was unreachable.
    pub(super) fn record_failure(&self, cause: &DatabaseError) -> Option<Error> {
        let DatabaseError::Unreachable(reason) = cause else {
            self.record_success();
            return None;
        };
        let error = Error::Down {
            location: self.location.clone(),
            reason: reason.clone(),
        };
        if !self.is_down.swap(true, Relaxed) {
            error!("{error}");
        }
        Some(error)
    }
}
