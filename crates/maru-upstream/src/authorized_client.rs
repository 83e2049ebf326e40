//! Requests to a remote server with the credential that maru has for it.

use std::sync::Arc;

use hyper::{
    StatusCode,
    header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE},
};
use maru_http::{AllowedUrl, HttpClient, HttpRequest, HttpResponse};
use maru_oauth::Challenge;

use super::{Error, credential::Credential};

/// An HTTP client of a server that adds the token and renews it.
#[derive(Clone, Debug)]
pub(super) struct AuthorizedClient {
    client: Arc<HttpClient>,
    /// Absent for servers where maru does not sign in.
    credential: Option<Arc<Credential>>,
}

impl AuthorizedClient {
    pub(super) fn new(client: Arc<HttpClient>, credential: Option<Arc<Credential>>) -> Self {
        Self { client, credential }
    }

    /// Returns the URL of the server.
    pub(super) fn target(&self) -> &AllowedUrl {
        self.client.target()
    }

    /// Sends a request and waits for the head of its response. If the server refuses the
    /// token, the request is sent once more with a new one.
    pub(super) async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, Error> {
        match &self.credential {
            None => Ok(self.client.send(request).await?),
            // Boxed, because this case would enlarge the future of every call.
            Some(credential) => Box::pin(self.send_authorized(request, credential)).await,
        }
    }

    async fn send_authorized(
        &self,
        request: &HttpRequest<'_>,
        credential: &Arc<Credential>,
    ) -> Result<HttpResponse, Error> {
        let token = credential.authorization().await?;
        let response = self.send_with(request, token.as_ref()).await?;
        if response.status != StatusCode::UNAUTHORIZED {
            return check_scope(response, credential).await;
        }
        let challenge = challenge_of(&response);
        drop(response);
        let renewed = credential
            .on_unauthorized(token.as_ref(), challenge)
            .await?;
        let response = self.send_with(request, Some(&renewed)).await?;
        if response.status == StatusCode::UNAUTHORIZED {
            return Err(credential.on_new_token_refused(challenge_of(&response)));
        }
        check_scope(response, credential).await
    }

    async fn send_with(
        &self,
        request: &HttpRequest<'_>,
        token: Option<&HeaderValue>,
    ) -> Result<HttpResponse, Error> {
        let mut extra_headers = request.extra_headers.to_vec();
        extra_headers.extend(token.map(|it| (AUTHORIZATION, it.clone())));
        let request = HttpRequest {
            extra_headers: &extra_headers,
            ..*request
        };
        Ok(self.client.send(&request).await?)
    }
}

/// Finds out whether a request was refused because the token lacks a scope.
async fn check_scope(
    response: HttpResponse,
    credential: &Arc<Credential>,
) -> Result<HttpResponse, Error> {
    if response.status != StatusCode::FORBIDDEN {
        return Ok(response);
    }
    let challenge = challenge_of(&response);
    if challenge.is_insufficient_scope() {
        return Err(credential.on_insufficient_scope(challenge).await);
    }
    Ok(response)
}

/// A server that knows several schemes may send a header for each.
fn challenge_of(response: &HttpResponse) -> Challenge {
    let headers: Vec<&str> = response.headers(&WWW_AUTHENTICATE).collect();
    Challenge::parse(&headers.join(", "))
}
