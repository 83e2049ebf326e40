//! The documents in which a server and its authorization server describe themselves:
//! where they are, and whether they may be believed. Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Error,
    scope::ScopeSet,
    web_url::{is_same_origin, is_secure_url, split_url},
};

const RESOURCE_DOCUMENT: &str = "the protected resource metadata";
const ISSUER_DOCUMENT: &str = "the metadata of the authorization server";

/// What a server says about itself (RFC 9728).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceMetadata {
    /// The identifier of the resource, exactly as published.
    pub resource: String,
    /// The issuer that signs people in.
    pub issuer: String,
    /// The scopes that the resource supports.
    pub scopes: Option<ScopeSet>,
}

/// What an authorization server says about itself (RFC 8414).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationServer {
    /// The issuer identifier.
    pub issuer: String,
    /// Where people sign in; absent where only programs do.
    pub authorization_endpoint: Option<String>,
    /// Where tokens are issued.
    pub token_endpoint: String,
    /// Where clients register, if they may.
    pub registration_endpoint: Option<String>,
    /// Where tokens are revoked, if they can be.
    pub revocation_endpoint: Option<String>,
    /// Where its public keys are, if it publishes them.
    #[serde(default)]
    pub jwks_uri: Option<String>,
    /// The scopes that it supports.
    pub scopes: ScopeSet,
    /// How clients may authenticate at the token endpoint; absent means
    /// `client_secret_basic`.
    pub auth_methods: Option<Vec<String>>,
    /// Whether a client may be named by the URL of its metadata document.
    pub supports_client_documents: bool,
    /// Whether each redirect names the issuer (RFC 9207).
    pub sends_issuer: bool,
    /// Whether it checks proof keys by S256.
    pub supports_s256: bool,
}

impl ResourceMetadata {
    /// Returns where the metadata of `server_url` may be, in the order to try: the
    /// challenge's own address, then the well-known ones for the path and for the root.
    pub(super) fn locations(server_url: &str, challenged: Option<&str>) -> Vec<String> {
        let Some((origin, path)) = split_url(server_url) else {
            return Vec::new();
        };
        // A document elsewhere could not speak for this server.
        if let Some(challenged) = challenged.filter(|it| is_same_origin(it, server_url)) {
            return vec![challenged.to_owned()];
        }
        let root = format!("{origin}/.well-known/oauth-protected-resource");
        if path.is_empty() {
            vec![root]
        } else {
            vec![format!("{root}{path}"), root]
        }
    }

    /// Parses the document and checks that it describes the server at `server_url`.
    pub(super) fn parse(document: &Value, server_url: &str) -> Result<Self, Error> {
        let invalid = |reason: &str| Error::invalid(RESOURCE_DOCUMENT, reason);
        let resource = document["resource"]
            .as_str()
            .ok_or_else(|| invalid("it names no resource"))?;
        if !is_resource_of(resource, server_url) {
            return Err(invalid("it describes another resource than this server"));
        }
        let issuers = document["authorization_servers"].as_array();
        let issuer = issuers
            .and_then(|it| it.first()?.as_str())
            .ok_or_else(|| invalid("it names no authorization server"))?;
        if !is_secure_url(issuer) {
            return Err(invalid("its authorization server is not reached by https"));
        }
        Ok(Self {
            resource: resource.to_owned(),
            issuer: issuer.to_owned(),
            scopes: scope_list(&document["scopes_supported"]),
        })
    }
}

impl AuthorizationServer {
    /// Returns where the metadata of `issuer` may be, in the order that MCP prescribes.
    pub(super) fn locations(issuer: &str) -> Vec<String> {
        let Some((origin, path)) = split_url(issuer) else {
            return Vec::new();
        };
        let mut locations = vec![
            format!("{origin}/.well-known/oauth-authorization-server{path}"),
            format!("{origin}/.well-known/openid-configuration{path}"),
        ];
        if !path.is_empty() {
            locations.push(format!("{origin}{path}/.well-known/openid-configuration"));
        }
        locations
    }

    /// Parses the document and checks that `issuer` wrote it.
    pub(super) fn parse(document: &Value, issuer: &str) -> Result<Self, Error> {
        let invalid = |reason: String| Error::invalid(ISSUER_DOCUMENT, reason);
        let named = document["issuer"].as_str().unwrap_or_default();
        // Some servers write their issuer with a slash at the end that it does not have.
        if named.strip_suffix('/').unwrap_or(named) != issuer.strip_suffix('/').unwrap_or(issuer) {
            return Err(invalid("it is that of another issuer".to_owned()));
        }
        let endpoint = |name: &str| match document[name].as_str() {
            None => Ok(None),
            Some(url) if is_secure_url(url) && !url.contains('#') => Ok(Some(url.to_owned())),
            Some(_) => Err(invalid(format!("its {name} is not reached by https"))),
        };
        let texts = |name: &str| -> Option<Vec<String>> {
            let list = document[name].as_array()?.iter().take(100);
            Some(
                list.filter_map(|it| it.as_str().map(str::to_owned))
                    .collect(),
            )
        };
        let is_true = |name: &str| document[name] == true;
        Ok(Self {
            issuer: named.to_owned(),
            authorization_endpoint: endpoint("authorization_endpoint")?,
            token_endpoint: endpoint("token_endpoint")?
                .ok_or_else(|| invalid("it names no token_endpoint".to_owned()))?,
            registration_endpoint: endpoint("registration_endpoint")?,
            revocation_endpoint: endpoint("revocation_endpoint")?,
            jwks_uri: endpoint("jwks_uri")?,
            scopes: scope_list(&document["scopes_supported"]).unwrap_or_default(),
            auth_methods: texts("token_endpoint_auth_methods_supported"),
            supports_client_documents: is_true("client_id_metadata_document_supported"),
            sends_issuer: is_true("authorization_response_iss_parameter_supported"),
            supports_s256: texts("code_challenge_methods_supported")
                .is_some_and(|it| it.iter().any(|method| method == "S256")),
        })
    }

    /// The endpoints that servers of 2025-03-26 without metadata have.
    pub(super) fn default_of(origin: &str) -> Self {
        Self {
            issuer: origin.to_owned(),
            authorization_endpoint: Some(format!("{origin}/authorize")),
            token_endpoint: format!("{origin}/token"),
            registration_endpoint: Some(format!("{origin}/register")),
            revocation_endpoint: None,
            jwks_uri: None,
            scopes: ScopeSet::default(),
            auth_methods: None,
            supports_client_documents: false,
            sends_issuer: false,
            supports_s256: true,
        }
    }

    /// Whether a client may authenticate by this method.
    pub(super) fn accepts(&self, method: &str) -> bool {
        match &self.auth_methods {
            Some(all) => all.iter().any(|it| it == method),
            None => method == "client_secret_basic",
        }
    }
}

/// Whether `resource` is the server, or the part of its origin that contains it.
fn is_resource_of(resource: &str, server_url: &str) -> bool {
    let (Some((origin, path)), Some((server_origin, server_path))) =
        (split_url(resource), split_url(server_url))
    else {
        return false;
    };
    let inside = server_path.strip_prefix(path);
    origin == server_origin
        && !resource.contains('#')
        && inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn scope_list(list: &Value) -> Option<ScopeSet> {
    let list = list.as_array()?;
    Some(list.iter().filter_map(Value::as_str).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resource_metadata_is_looked_for_at_the_path_then_at_the_root() {
        let check = |url: &str, challenged: Option<&str>, expected: &[&str]| {
            assert_eq!(ResourceMetadata::locations(url, challenged), expected);
        };
        let (path, root) = (
            "https://a.example/.well-known/oauth-protected-resource/x/mcp",
            "https://a.example/.well-known/oauth-protected-resource",
        );
        check("https://a.example/x/mcp?y=1", None, &[path, root]);
        check("https://a.example/", None, &[root]);
        check(
            "https://a.example/mcp",
            Some("https://a.example/m"),
            &["https://a.example/m"],
        );
        let elsewhere = Some("https://evil.example/m");
        check("https://a.example/x/mcp", elsewhere, &[path, root]);
        let downgraded = Some("http://a.example/m");
        check("https://a.example/x/mcp", downgraded, &[path, root]);
    }

    #[test]
    fn issuer_metadata_is_looked_for_in_the_order_of_the_specification() {
        assert_eq!(
            AuthorizationServer::locations("https://a.example/tenant"),
            [
                "https://a.example/.well-known/oauth-authorization-server/tenant",
                "https://a.example/.well-known/openid-configuration/tenant",
                "https://a.example/tenant/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            AuthorizationServer::locations("https://a.example/"),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration",
            ]
        );
    }

    #[test]
    fn resource_is_the_server_or_contains_it() {
        let check = |resource: &str, good: bool| {
            let document =
                json!({"resource": resource, "authorization_servers": ["https://i.example"]});
            let parsed = ResourceMetadata::parse(&document, "https://a.example/x/mcp");
            assert_eq!(parsed.is_ok(), good, "{resource}");
        };
        for good in [
            "https://a.example/x/mcp",
            "https://A.example:443/x",
            "https://a.example",
            "https://a.example/",
        ] {
            check(good, true);
        }
        for bad in [
            "https://evil.example/x/mcp",
            "http://a.example/x/mcp",
            "https://a.example/x/m",
            "https://a.example/x/mcp/deeper",
            "https://a.example.evil.example/",
            "https://a.example@evil.example/",
            "https://a.example/x/mcp#f",
            "https://a.example:8443/x/mcp",
            "",
        ] {
            check(bad, false);
        }
    }

    #[test]
    fn hostile_documents_are_refused() {
        let resource = |members: Value| {
            let mut document = json!({"resource": "https://a.example", "authorization_servers": ["https://i.example"]});
            document
                .as_object_mut()
                .unwrap()
                .extend(members.as_object().unwrap().clone());
            ResourceMetadata::parse(&document, "https://a.example").is_err()
        };
        assert!(resource(json!({"authorization_servers": []})));
        assert!(resource(
            json!({"authorization_servers": "https://i.example"})
        ));
        assert!(resource(
            json!({"authorization_servers": ["http://i.example"]})
        ));
        assert!(resource(
            json!({"authorization_servers": ["javascript:alert(1)"]})
        ));
        assert!(resource(json!({"resource": 1})));
        assert!(!resource(json!({})));
        let issuer = |members: Value| {
            let mut document =
                json!({"issuer": "https://i.example", "token_endpoint": "https://i.example/t"});
            document
                .as_object_mut()
                .unwrap()
                .extend(members.as_object().unwrap().clone());
            AuthorizationServer::parse(&document, "https://i.example").is_err()
        };
        assert!(issuer(json!({"issuer": "https://evil.example"})));
        assert!(issuer(json!({"issuer": "https://i.example/x"})));
        assert!(issuer(json!({"issuer": null})));
        assert!(issuer(json!({"token_endpoint": null})));
        assert!(issuer(json!({"token_endpoint": "http://i.example/t"})));
        assert!(issuer(
            json!({"authorization_endpoint": "javascript:alert(1)"})
        ));
        assert!(issuer(
            json!({"authorization_endpoint": "https://i.example/a#x"})
        ));
        assert!(issuer(json!({"revocation_endpoint": "http://10.0.0.1/"})));
        assert!(!issuer(json!({"issuer": "https://i.example/"})));
        assert!(!issuer(json!({})));
    }
}
