//! Whether the database can be reached: logged once when it cannot, and once when it
//! can again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tracing::{error, info};

use super::{DatabaseError, Error};

/// Where the database is, and whether it answered last.
#[derive(Debug)]
pub(super) struct StoreAvailability {
    /// The file, or the host, port and database; never a password.
    place: String,
    is_down: AtomicBool,
}

impl StoreAvailability {
    pub(super) fn new(place: String) -> Self {
        Self {
            place,
            is_down: AtomicBool::new(false),
        }
    }

    /// The database answered, be it with an error.
    pub(super) fn record_answer(&self) {
        // Most answers find it up, and a load is cheaper than a swap.
        if self.is_down.load(Relaxed) && self.is_down.swap(false, Relaxed) {
            info!("the store {} is back", self.place);
        }
    }

    /// What a failed statement means; none if the database was reached.
    pub(super) fn record_failure(&self, cause: &DatabaseError) -> Option<Error> {
        let DatabaseError::Unreachable(why) = cause else {
            self.record_answer();
            return None;
        };
        let error = Error::Down {
            place: self.place.clone(),
            why: why.clone(),
        };
        if !self.is_down.swap(true, Relaxed) {
            error!("{error}");
        }
        Some(error)
    }
}
