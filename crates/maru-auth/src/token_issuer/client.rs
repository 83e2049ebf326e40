//! Clients of maru's authorization server: the metadata by which they register (RFC 7591),
//! or which they publish under their id (Client ID Metadata Documents). Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    form::FormFields,
    redirect_uri::{check_redirect_uri, is_registered, redirect_host},
};

const MAX_REDIRECTS: usize = 10;
const MAX_NAME_CHARS: usize = 80;

/// How a client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthentication {
    /// It does not: a public client.
    None,
    /// Id and secret in the `Authorization` header.
    ClientSecretBasic,
    /// Id and secret in the form.
    ClientSecretPost,
}

/// A client of maru's authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthClient {
    /// The client id; a URL for clients that publish their metadata.
    pub id: String,
    /// What it says of itself.
    pub metadata: ClientMetadata,
}

/// What a client says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientMetadata {
    /// Its name, without characters that could deceive.
    pub name: String,
    /// Where it may have people sent to.
    pub redirect_uris: Vec<String>,
    /// How it authenticates.
    pub authentication: ClientAuthentication,
}

impl OAuthClient {
    /// Whether the redirect of a request is the client's own. Until that is known, an error
    /// must not be sent there.
    pub fn has_redirect(&self, query: &FormFields) -> bool {
        let requested = query.get("redirect_uri");
        requested.is_some_and(|it| is_registered(&self.metadata.redirect_uris, it))
    }
}

/// Metadata that is refused, with the error code of RFC 7591.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataError {
    /// The error code.
    pub code: &'static str,
    /// What is wrong.
    pub description: &'static str,
}

impl ClientAuthentication {
    /// All methods, as the metadata of the server lists them.
    pub(super) const ALL: [Self; 3] = [Self::None, Self::ClientSecretPost, Self::ClientSecretBasic];

    /// The name of the method.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ClientSecretBasic => "client_secret_basic",
            Self::ClientSecretPost => "client_secret_post",
        }
    }
}

impl ClientMetadata {
    /// Parses the metadata of a client that registers.
    pub(super) fn parse_registration(metadata: &Value) -> Result<Self, MetadataError> {
        let method = match metadata["token_endpoint_auth_method"].as_str() {
            // The default of RFC 7591.
            None => ClientAuthentication::ClientSecretBasic,
            Some(name) => ClientAuthentication::ALL
                .into_iter()
                .find(|it| it.as_str() == name)
                .ok_or(invalid(
                    "use none, client_secret_post or client_secret_basic",
                ))?,
        };
        Self::parse(metadata, method)
    }

    /// Parses the document that a client publishes at `url`, which is its id.
    pub(super) fn parse_document(document: &Value, url: &str) -> Result<Self, MetadataError> {
        if document["client_id"] != url {
            return Err(invalid("the document names another client_id"));
        }
        if document.get("client_secret").is_some() {
            return Err(invalid("the document has a secret"));
        }
        match document["token_endpoint_auth_method"].as_str() {
            None | Some("none") => Self::parse(document, ClientAuthentication::None),
            Some(_) => Err(invalid("clients with a document use the method none")),
        }
    }

    fn parse(
        metadata: &Value,
        authentication: ClientAuthentication,
    ) -> Result<Self, MetadataError> {
        let refused = |description| MetadataError {
            code: "invalid_redirect_uri",
            description,
        };
        let listed = metadata["redirect_uris"].as_array();
        let listed = listed.filter(|it| (1..=MAX_REDIRECTS).contains(&it.len()));
        let listed = listed.ok_or(refused("redirect_uris must list one to ten URIs"))?;
        let mut redirect_uris = Vec::new();
        for uri in listed {
            let uri = uri
                .as_str()
                .ok_or(refused("a redirect URI is not a text"))?;
            check_redirect_uri(uri).map_err(refused)?;
            redirect_uris.push(uri.to_owned());
        }
        let includes = |list: &Value, wanted: &str| {
            list.is_null()
                || list
                    .as_array()
                    .is_some_and(|it| it.iter().any(|it| it == wanted))
        };
        if !includes(&metadata["grant_types"], "authorization_code")
            || !includes(&metadata["response_types"], "code")
        {
            return Err(invalid(
                "maru offers the authorization_code grant with code",
            ));
        }
        let name = metadata["client_name"].as_str().map(readable_name);
        let name = name.filter(|it| !it.is_empty());
        Ok(Self {
            name: name.unwrap_or_else(|| redirect_host(&redirect_uris[0]).to_owned()),
            redirect_uris,
            authentication,
        })
    }

    /// What the response to a registration repeats.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "client_name": self.name,
            "redirect_uris": self.redirect_uris,
            "token_endpoint_auth_method": self.authentication.as_str(),
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        })
    }
}

fn invalid(description: &'static str) -> MetadataError {
    MetadataError {
        code: "invalid_client_metadata",
        description,
    }
}

/// A name without control characters and marks that change the direction of a text.
fn readable_name(name: &str) -> String {
    let deceives = |it: &char| {
        it.is_control()
            || matches!(it, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let kept: String = name
        .chars()
        .filter(|it| !deceives(it))
        .take(MAX_NAME_CHARS)
        .collect();
    kept.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registration_is_checked_and_its_name_cannot_deceive() {
        let parse = |changes: Value| {
            let mut metadata = json!({"redirect_uris": ["https://a.example/cb"]});
            let members = metadata.as_object_mut().unwrap();
            members.extend(changes.as_object().unwrap().clone());
            ClientMetadata::parse_registration(&metadata)
        };
        let plain = parse(json!({})).unwrap();
        assert_eq!(plain.name, "a.example");
        assert_eq!(
            plain.authentication,
            ClientAuthentication::ClientSecretBasic
        );
        let named =
            parse(json!({"client_name": " A\u{202e}b\n", "token_endpoint_auth_method": "none"}));
        assert_eq!(named.unwrap().name, "Ab");
        for (bad, code) in [
            (json!({"redirect_uris": []}), "invalid_redirect_uri"),
            (
                json!({"redirect_uris": "https://a.example"}),
                "invalid_redirect_uri",
            ),
            (json!({"redirect_uris": [1]}), "invalid_redirect_uri"),
            (
                json!({"redirect_uris": ["javascript:x"]}),
                "invalid_redirect_uri",
            ),
            (
                json!({"redirect_uris": vec!["https://a.example"; 11]}),
                "invalid_redirect_uri",
            ),
            (
                json!({"token_endpoint_auth_method": "private_key_jwt"}),
                "invalid_client_metadata",
            ),
            (
                json!({"grant_types": ["client_credentials"]}),
                "invalid_client_metadata",
            ),
            (
                json!({"response_types": ["token"]}),
                "invalid_client_metadata",
            ),
        ] {
            assert_eq!(parse(bad.clone()).unwrap_err().code, code, "{bad}");
        }
    }

    #[test]
    fn document_must_be_that_of_its_address_and_without_a_secret() {
        let url = "https://a.example/client.json";
        let parse = |changes: Value| {
            let mut document = json!({"client_id": url, "redirect_uris": ["https://a.example/cb"]});
            let members = document.as_object_mut().unwrap();
            members.extend(changes.as_object().unwrap().clone());
            ClientMetadata::parse_document(&document, url)
        };
        assert!(parse(json!({})).is_ok());
        for bad in [
            json!({"client_id": "https://b.example/client.json"}),
            json!({"client_id": null}),
            json!({"client_secret": "x"}),
            json!({"token_endpoint_auth_method": "client_secret_basic"}),
        ] {
            assert!(parse(bad.clone()).is_err(), "{bad}");
        }
    }
}
