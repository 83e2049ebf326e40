//! The gateway in use, which a reload of the settings replaces.

use std::sync::{Arc, PoisonError, RwLock};

use super::Gateway;

/// The gateway for the current settings.
#[derive(Debug)]
pub struct ReloadableGateway(RwLock<Arc<Gateway>>);

impl ReloadableGateway {
    /// Begins with `gateway`.
    pub fn new(gateway: Gateway) -> Self {
        Self(RwLock::new(Arc::new(gateway)))
    }

    /// The gateway for new requests.
    pub fn current(&self) -> Arc<Gateway> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the gateway. Requests in progress finish on the old one.
    pub fn replace(&self, gateway: Gateway) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(gateway);
    }
}
