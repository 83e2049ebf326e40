//! Finds the authorization server of a server.

use super::{
    Challenge, Error, OAuthHttp,
    metadata::{AuthorizationServer, ResourceMetadata},
    scope::ScopeSet,
    web_url::split_url,
};

/// A server's authorization server, and what the server says it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// The identifier of the server for `resource` parameters (RFC 8707); absent for
    /// servers of 2025-03-26, which publish none.
    pub resource: Option<String>,
    /// The scopes that the server supports.
    pub scopes: Option<ScopeSet>,
    /// The authorization server.
    pub issuer: AuthorizationServer,
}

impl Discovery {
    /// Finds the authorization server of the server at `server_url`, which answered with
    /// `challenge`.
    pub async fn run(
        http: &OAuthHttp,
        server_url: &str,
        challenge: &Challenge,
    ) -> Result<Self, Error> {
        let what = "the protected resource metadata";
        let challenged = challenge.resource_metadata.as_deref();
        for location in ResourceMetadata::locations(server_url, challenged) {
            if let Some(document) = http.get_document(what, &location).await? {
                let resource = ResourceMetadata::parse(&document, server_url)?;
                let issuer = find_authorization_server(http, &resource.issuer).await?;
                return Ok(Self {
                    resource: Some(resource.resource),
                    scopes: resource.scopes,
                    issuer,
                });
            }
        }
        Self::without_resource_metadata(http, server_url).await
    }

    /// The discovery of 2025-03-26, in which the server's own origin is the issuer.
    async fn without_resource_metadata(http: &OAuthHttp, server_url: &str) -> Result<Self, Error> {
        let (origin, _) = split_url(server_url)
            .ok_or_else(|| Error::invalid("the server's address", "it is not an HTTP URL"))?;
        let issuer = find_issuer(http, &origin).await?;
        Ok(Self {
            resource: None,
            scopes: None,
            issuer: issuer.unwrap_or_else(|| AuthorizationServer::default_of(&origin)),
        })
    }
}

/// Reads the metadata of an issuer that must publish it.
pub async fn find_authorization_server(
    http: &OAuthHttp,
    issuer: &str,
) -> Result<AuthorizationServer, Error> {
    let found = find_issuer(http, issuer).await?;
    found.ok_or_else(|| Error::invalid("the authorization server", "it publishes no metadata"))
}

/// Reads the metadata of `issuer`; `None` if it publishes none.
async fn find_issuer(http: &OAuthHttp, issuer: &str) -> Result<Option<AuthorizationServer>, Error> {
    let what = "the metadata of the authorization server";
    for location in AuthorizationServer::locations(issuer) {
        if let Some(document) = http.get_document(what, &location).await? {
            return AuthorizationServer::parse(&document, issuer).map(Some);
        }
    }
    Ok(None)
}
