//! A credential as it is in the store.

use hyper::header::HeaderValue;
use maru_oauth::{AuthorizationServer, ClientIdentity, ScopeSet, TokenSet};
use maru_runtime::clock;
use maru_store::ServerCredentialRow;
use serde::{Deserialize, Serialize};

/// A stored credential in memory, with the row that it was read from.
pub(super) struct LoadedCredential {
    pub(super) row: ServerCredentialRow,
    pub(super) stored: StoredCredential,
    pub(super) header: Option<HeaderValue>,
}

/// A credential in the store.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StoredCredential {
    /// The server that the tokens may be sent to.
    pub(crate) server_url: String,
    pub(crate) resource: Option<String>,
    pub(crate) issuer: AuthorizationServer,
    pub(crate) client: ClientIdentity,
    /// The redirect URI that the client was registered with.
    pub(crate) redirect_uri: String,
    /// The scopes that were requested.
    pub(crate) requested: ScopeSet,
    pub(crate) tokens: Option<TokenSet>,
}

impl LoadedCredential {
    /// Parses a row; `None` if its tokens are for another address, or are sealed with
    /// another key.
    pub(super) fn parse(row: ServerCredentialRow, server_url: &str) -> Option<Self> {
        let stored: StoredCredential = serde_json::from_str(&row.data).ok()?;
        if stored.server_url != server_url {
            return None;
        }
        let header = stored.tokens.as_ref().and_then(|it| {
            let mut header = HeaderValue::from_str(&format!("Bearer {}", it.access_token)).ok()?;
            header.set_sensitive(true);
            Some(header)
        });
        Some(Self {
            row,
            stored,
            header,
        })
    }

    pub(super) fn is_due(&self) -> bool {
        let tokens = self.stored.tokens.as_ref();
        let renew_at = tokens.and_then(TokenSet::renew_at);
        renew_at.is_some_and(|it| clock::now_ms() >= it)
    }
}

pub(super) fn to_data(stored: &StoredCredential) -> String {
    serde_json::to_string(stored).expect("a credential is written as JSON")
}
