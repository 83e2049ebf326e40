//! A connection to a server, whatever carries it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Error, channel, channel::MessageChannel, http};
use crate::tools::ClientConnection;

/// An open connection; dropping it closes it.
#[derive(Debug)]
pub(super) enum UpstreamLink {
    Channel(Arc<MessageChannel>),
    Http(Arc<http::HttpLink>),
}

/// A request in progress; dropping it cancels it.
#[derive(Debug)]
pub(super) enum UpstreamCall {
    Channel(channel::ChannelCall),
    Http(Box<http::HttpCall>),
}

/// What comes back on a request.
#[derive(Debug)]
pub(super) enum CallEvent {
    /// The answer: a result, or an error as it was sent.
    Answer(Result<String, String>),
    /// A message on the way.
    Message(String),
}

/// A request to be sent.
pub(super) struct OutgoingRequest<'a> {
    pub(super) method: &'static str,
    /// What the request is about: mirrored in a header since 2026-07-28.
    pub(super) target_name: Option<&'a str>,
    /// Further mirrored parameters.
    pub(super) mirrored_params: &'a [(String, String)],
    /// The parameters, given the id of the request.
    pub(super) params: &'a (dyn Fn(i64) -> String + Sync),
    /// The client connection behind it, which may be told and asked.
    pub(super) client: Option<ClientConnection>,
}

impl UpstreamLink {
    /// Sends a request.
    pub(super) async fn start_call(
        &self,
        ask: &OutgoingRequest<'_>,
    ) -> Result<UpstreamCall, Error> {
        Ok(match self {
            Self::Channel(channel) => UpstreamCall::Channel(
                channel
                    .start_call(ask.method, ask.params, ask.client)
                    .await?,
            ),
            Self::Http(link) => UpstreamCall::Http(Box::new(link.start_call(ask).await?)),
        })
    }

    /// Sends a message that wants no answer.
    pub(super) async fn send(&self, text: String) -> Result<(), Error> {
        match self {
            Self::Channel(channel) => channel.send(text).await,
            Self::Http(link) => link.send(text).await,
        }
    }

    /// Cancelled when the other side is gone.
    pub(super) fn lost(&self) -> &CancellationToken {
        match self {
            Self::Channel(channel) => &channel.lost,
            Self::Http(link) => &link.lost,
        }
    }

    /// Cancelled when nobody needs it any more.
    pub(super) fn closing(&self) -> &CancellationToken {
        match self {
            Self::Channel(channel) => &channel.closing,
            Self::Http(link) => &link.closing,
        }
    }

    /// The other side turned out to be gone.
    pub(super) fn mark_lost(&self, why: Error) {
        match self {
            Self::Channel(channel) => channel.mark_lost(why),
            Self::Http(link) => link.mark_lost(why),
        }
    }

    /// Nobody needs it any more.
    pub(super) fn close(&self) {
        match self {
            Self::Channel(channel) => channel.closing.cancel(),
            Self::Http(link) => link.close(),
        }
    }

    /// Why the other side is gone.
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
    /// The next message that belongs to it; its answer is the last. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> Result<CallEvent, Error> {
        match self {
            Self::Channel(call) => call.next_event().await,
            Self::Http(call) => call.next_event().await,
        }
    }

    /// Answers a question of the server.
    pub(super) async fn respond(&self, text: String) -> Result<(), Error> {
        match self {
            Self::Channel(call) => call.respond(text).await,
            Self::Http(call) => call.respond(text).await,
        }
    }
}
