//! Hosts that an admin allowed while the hub runs.

use std::sync::{Arc, PoisonError, RwLock};

/// Hosts that may be reached beside those of the settings. Every clone of a policy has the
/// same ones.
#[derive(Clone, Debug, Default)]
pub struct AddedHosts(Arc<RwLock<Vec<String>>>);

impl AddedHosts {
    /// Allows these and no others.
    pub fn replace(&self, hosts: Vec<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = hosts;
    }

    /// All of them.
    pub fn list(&self) -> Vec<String> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn contains(&self, host: &str) -> bool {
        let hosts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        hosts.iter().any(|it| it.eq_ignore_ascii_case(host))
    }
}
