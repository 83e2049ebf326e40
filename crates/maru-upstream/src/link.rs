//! A connection to a server over any transport.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Error, channel, channel::MessageChannel, http};
use maru_tools::ClientConnection;

/// An open link to a server; dropping it closes the connection.
#[derive(Debug)]
pub(super) enum UpstreamLink {
    Channel(Arc<MessageChannel>),
    Http(Arc<http::HttpLink>),
}

/// A request in progress on any transport; dropping it cancels the request.
#[derive(Debug)]
pub(super) enum UpstreamCall {
    Channel(channel::ChannelCall),
    Http(Box<http::HttpCall>),
}

/// A message that belongs to a request.
#[derive(Debug)]
pub(super) enum CallEvent {
    /// The response: the raw JSON of the result, or of the error.
    Answer(Result<String, String>),
    /// A notification or request that the server sends before its response.
    Message(String),
}

/// A request to send to a server.
pub(super) struct OutgoingRequest<'a> {
    pub(super) method: &'a str,
    /// The tool, prompt or resource of the request, repeated in a header since
    /// 2026-07-28.
    pub(super) target_name: Option<&'a str>,
    /// Parameters that are repeated in headers.
    pub(super) mirrored_params: &'a [(String, String)],
    /// Builds the parameters from the request id.
    pub(super) params: &'a (dyn Fn(i64) -> String + Sync),
    /// The client connection that the request is made for; it receives the notifications
    /// and requests of the call.
    pub(super) client: Option<ClientConnection>,
}

impl UpstreamLink {
    /// Sends a request and returns the call in progress.
    pub(super) async fn start_call(
        &self,
        request: &OutgoingRequest<'_>,
    ) -> Result<UpstreamCall, Error> {
        Ok(match self {
            Self::Channel(channel) => UpstreamCall::Channel(
                channel
                    .start_call(request.method, request.params, request.client)
                    .await?,
            ),
            Self::Http(link) => UpstreamCall::Http(Box::new(link.start_call(request).await?)),
        })
    }

    /// Sends a message that expects no response.
    pub(super) async fn send(&self, text: String) -> Result<(), Error> {
        match self {
            Self::Channel(channel) => channel.send(text).await,
            Self::Http(link) => link.send(text).await,
        }
    }

    /// Returns the token that is cancelled when the connection is lost.
    pub(super) fn lost_token(&self) -> &CancellationToken {
        match self {
            Self::Channel(channel) => &channel.lost,
            Self::Http(link) => &link.lost,
        }
    }

    /// Returns the token that is cancelled when the link is being closed.
    pub(super) fn closing(&self) -> &CancellationToken {
        match self {
            Self::Channel(channel) => &channel.closing,
            Self::Http(link) => &link.closing,
        }
    }

    /// Marks the connection as lost.
    pub(super) fn mark_lost(&self, error: Error) {
        match self {
            Self::Channel(channel) => channel.mark_lost(error),
            Self::Http(link) => link.mark_lost(error),
        }
    }

    /// Starts to close the connection.
    pub(super) fn close(&self) {
        match self {
            Self::Channel(channel) => channel.closing.cancel(),
            Self::Http(link) => link.close(),
        }
    }

    /// Returns why the connection was lost.
    pub(super) fn close_reason(&self) -> Error {
        match self {
            Self::Channel(channel) => channel.close_reason(),
            Self::Http(link) => link.close_reason(),
        }
    }
}

impl Drop for UpstreamLink {
    fn drop(&mut self) {
        self.close();
    }
}

impl UpstreamCall {
    /// Returns the next message of the call; the response comes last. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> Result<CallEvent, Error> {
        match self {
            Self::Channel(call) => call.next_event().await,
            Self::Http(call) => call.next_event().await,
        }
    }

    /// Replies to a request of the server.
    pub(super) async fn respond(&self, text: String) -> Result<(), Error> {
        match self {
            Self::Channel(call) => call.respond(text).await,
            Self::Http(call) => call.respond(text).await,
        }
    }
}
