//! The gateway in use, which a reload of the settings replaces.

use std::sync::{Arc, PoisonError, RwLock};

use super::Gateway;

/// The models of the settings as they are now.
#[derive(Debug)]
pub struct ReloadableGateway(RwLock<Arc<Gateway>>);

impl ReloadableGateway {
    /// Begins with `gateway`.
    pub fn new(gateway: Gateway) -> Self {
        Self(RwLock::new(Arc::new(gateway)))
    }

    /// What answers requests that begin now.
    pub fn current(&self) -> Arc<Gateway> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Uses `gateway` from now on. Requests in progress end on the one before.
    pub fn replace(&self, gateway: Gateway) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(gateway);
    }
}
