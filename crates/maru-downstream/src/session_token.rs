//! Session ids that any hub of a store can read: sealed, with what a hub needs to go on.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use maru_auth::Principal;
use maru_protocol::ProtocolVersion;
use maru_store::SecretSealer;
use maru_tools::{Caller, CatalogScope};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// What a session id is bound to when it is sealed.
const SEAL_CONTEXT: &str = "session";
/// How long other hubs take over a session after it was opened.
pub(super) const TOKEN_LIFETIME_MS: i64 = 86_400_000;
/// Longer capabilities are cut down to their names, because headers are short.
const MAX_CAPABILITIES_BYTES: usize = 1024;
const MAX_CAPABILITIES: usize = 16;
const MAX_CAPABILITY_NAME_BYTES: usize = 40;

/// The content of a session id.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionToken {
    /// The hub that opened the session.
    #[serde(rename = "h")]
    pub(super) hub: String,
    /// When it did, in milliseconds since the Unix epoch.
    #[serde(rename = "t")]
    pub(super) opened_at: i64,
    /// The client; absent for HTTP+SSE, whose sessions cannot leave their hub.
    #[serde(rename = "c")]
    pub(super) client: Option<TokenClient>,
    /// The hash of the principal, whose allowed tools may be too many for a header.
    #[serde(rename = "p")]
    principal: String,
    /// The part of the catalog that the session sees, if not all of it.
    #[serde(rename = "s")]
    scope: Option<String>,
}

/// The client of a session, as it described itself.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TokenClient {
    #[serde(rename = "v")]
    version: String,
    #[serde(rename = "c")]
    pub(super) capabilities: Value,
    #[serde(rename = "l")]
    pub(super) label: Option<String>,
}

impl SessionToken {
    pub(super) fn new(
        hub: String,
        opened_at: i64,
        caller: &Caller,
        client: Option<TokenClient>,
    ) -> Self {
        Self {
            hub,
            opened_at,
            client,
            principal: identity_hash(&caller.principal),
            scope: scope_name(&caller.scope),
        }
    }

    /// The session id.
    pub(super) fn seal(&self, sealer: &SecretSealer) -> String {
        let text = serde_json::to_vec(self).expect("our own values are JSON");
        BASE64_URL_SAFE_NO_PAD.encode(sealer.seal_bytes(SEAL_CONTEXT, &text))
    }

    /// The content of an id that is genuine and not too old.
    pub(super) fn open(sealer: &SecretSealer, id: &str, now: i64) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(id).ok()?;
        let text = sealer.open_bytes(SEAL_CONTEXT, bytes)?;
        let token: Self = serde_json::from_slice(&text).ok()?;
        (now < token.opened_at.saturating_add(TOKEN_LIFETIME_MS)).then_some(token)
    }

    /// Whether the session belongs to this principal.
    pub(super) fn belongs_to(&self, principal: &Principal) -> bool {
        self.principal == identity_hash(principal)
    }

    /// Whether the session belongs to this caller and sees the same part of the catalog.
    pub(super) fn matches(&self, caller: &Caller) -> bool {
        self.belongs_to(&caller.principal) && self.scope == scope_name(&caller.scope)
    }
}

impl TokenClient {
    pub(super) fn new(
        version: ProtocolVersion,
        capabilities: &Value,
        label: Option<String>,
    ) -> Self {
        Self {
            version: version.as_str().to_owned(),
            capabilities: shorten(capabilities),
            label,
        }
    }

    pub(super) fn version(&self) -> Option<ProtocolVersion> {
        ProtocolVersion::parse(&self.version)
    }
}

/// The hash of what makes two principals the same one.
fn identity_hash(principal: &Principal) -> String {
    let mut record = principal.to_json();
    if let Some(members) = record.as_object_mut() {
        // A refreshed token has other claims.
        members.remove("claims");
        members.retain(|_, value| !value.is_null());
    }
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(record.to_string()))
}

/// The name of a scope: of a server, or `toolset:` and the name of a toolset.
pub(super) fn scope_name(scope: &CatalogScope) -> Option<String> {
    match scope {
        CatalogScope::All => None,
        CatalogScope::Server(name) => Some(name.to_string()),
        CatalogScope::Toolset(name) => Some(format!("{TOOLSET_MARK}{name}")),
    }
}

/// The scope of this name.
pub(super) fn scope_of_name(name: Option<&str>) -> CatalogScope {
    match name.map(|it| (it, it.strip_prefix(TOOLSET_MARK))) {
        None => CatalogScope::All,
        Some((_, Some(toolset))) => CatalogScope::Toolset(toolset.into()),
        Some((server, None)) => CatalogScope::Server(server.into()),
    }
}

/// Comes before the name of a toolset. No server's name has a colon.
const TOOLSET_MARK: &str = "toolset:";

/// Capabilities that fit into a header: whole, or at least which ones there are.
fn shorten(capabilities: &Value) -> Value {
    if capabilities.to_string().len() <= MAX_CAPABILITIES_BYTES {
        return capabilities.clone();
    }
    let names = capabilities.as_object().into_iter().flat_map(Map::keys);
    let names = names.filter(|it| it.len() <= MAX_CAPABILITY_NAME_BYTES);
    let short = names.map(|it| (it.clone(), Value::Object(Map::new())));
    short.take(MAX_CAPABILITIES).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(capabilities: &Value) -> SessionToken {
        let caller = Caller::new(Principal::local(), CatalogScope::All);
        let client = TokenClient::new(ProtocolVersion::V2025_06_18, capabilities, None);
        SessionToken::new("hub".into(), 1000, &caller, Some(client))
    }

    #[test]
    fn token_opens_with_the_shared_key_for_a_day() {
        let sealer = SecretSealer::new(&[1; 32]);
        let token = token(&json!({"elicitation": {}}));
        let id = token.seal(&sealer);
        assert_ne!(id, token.seal(&sealer), "two sessions have two ids");
        assert!(id.bytes().all(|it| it.is_ascii_graphic()), "{id}");
        let open = |sealer, id: &str, now| SessionToken::open(sealer, id, now);
        assert_eq!(open(&sealer, &id, 2000).as_ref(), Some(&token));
        assert_eq!(open(&sealer, &id, 1000 + TOKEN_LIFETIME_MS), None);
        let foreign = SecretSealer::new(&[2; 32]);
        assert_eq!(open(&foreign, &id, 2000), None);
        for broken in ["", "AAAA", &id[..id.len() - 4], &format!("{id}AAAA")] {
            assert_eq!(open(&sealer, broken, 2000), None, "{broken}");
        }
    }

    #[test]
    fn token_is_for_its_caller_only() {
        let of = |scope| Caller::new(Principal::local(), scope);
        let token = token(&json!({}));
        assert!(token.matches(&of(CatalogScope::All)));
        assert!(!token.matches(&of(CatalogScope::Server("fx".into()))));
        assert!(!token.matches(&of(CatalogScope::Toolset("fx".into()))));
        for scope in [
            CatalogScope::All,
            CatalogScope::Server("fx".into()),
            CatalogScope::Toolset("fx".into()),
        ] {
            assert_eq!(scope_of_name(scope_name(&scope).as_deref()), scope);
        }
        let mut admin = Principal::local().to_json();
        admin["role"] = json!("admin");
        let admin = Principal::from_json(&admin).unwrap();
        assert!(!token.belongs_to(&admin));
    }

    #[test]
    fn id_stays_short_whatever_the_principal_may_call() {
        let mut record = Principal::local().to_json();
        let tools = (0..1000).map(|number| format!("server{number}.{}", "x".repeat(60)));
        record["limits"] = json!({
            "tools": tools.collect::<Vec<_>>(),
            "toolsOnly": false,
        });
        let caller = Caller::new(Principal::from_json(&record).unwrap(), CatalogScope::All);
        let token = SessionToken::new("hub".into(), 1000, &caller, None);
        assert!(token.seal(&SecretSealer::new(&[1; 32])).len() < 400);
        assert!(token.matches(&caller));
        record["limits"]["tools"][999] = json!("another");
        let other = Principal::from_json(&record).unwrap();
        assert!(!token.belongs_to(&other));
    }

    #[test]
    fn id_stays_short_whatever_the_client_declares() {
        let sealer = SecretSealer::new(&[1; 32]);
        let long = "x".repeat(5000);
        let mut capabilities = json!({"elicitation": {"form": long}, "sampling": {}});
        let client = token(&capabilities).client.unwrap();
        let short = json!({"elicitation": {}, "sampling": {}});
        assert_eq!(client.capabilities, short);
        for number in 0..500 {
            capabilities[format!("{number}{}", "y".repeat(30))] = json!({});
        }
        assert!(token(&capabilities).seal(&sealer).len() < 2000);
    }
}
