//! A connection to a server, whatever carries it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Error, channel, channel::Channel, http};
use crate::tool::ClientConnection;

/// An open connection; dropping it closes it.
#[derive(Debug)]
pub(super) enum Link {
    Channel(Arc<Channel>),
    Http(Arc<http::Link>),
}

/// A request in progress; dropping it cancels it.
#[derive(Debug)]
pub(super) enum Call {
    Channel(channel::Call),
    Http(Box<http::Call>),
}

/// What comes back on a request.
#[derive(Debug)]
pub(super) enum Received {
    /// The answer: a result, or an error as it was sent.
    Answer(Result<String, String>),
    /// A message on the way.
    Message(String),
}

/// A request to be sent.
pub(super) struct Ask<'a> {
    pub(super) method: &'static str,
    /// What the request is about: mirrored in a header since 2026-07-28.
    pub(super) name: Option<&'a str>,
    /// Further mirrored parameters.
    pub(super) mirrors: &'a [(String, String)],
    /// The parameters, given the id of the request.
    pub(super) params: &'a (dyn Fn(i64) -> String + Sync),
    /// The client connection behind it, which may be told and asked.
    pub(super) client: Option<ClientConnection>,
}

impl Link {
    /// Sends a request.
    pub(super) async fn start(&self, ask: &Ask<'_>) -> Result<Call, Error> {
        Ok(match self {
            Self::Channel(channel) => {
                Call::Channel(channel.start(ask.method, ask.params, ask.client).await?)
            }
            Self::Http(link) => Call::Http(Box::new(link.start(ask).await?)),
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
    pub(super) fn lose(&self, why: Error) {
        match self {
            Self::Channel(channel) => channel.lose(why),
            Self::Http(link) => link.lose(why),
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
    pub(super) fn why(&self) -> Error {
        match self {
            Self::Channel(channel) => channel.why(),
            Self::Http(link) => link.why(),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

impl Call {
    /// Says whether the server waits for the answer to a question of this call.
    pub(super) fn set_open_question(&self, is_open: bool) {
        let client = match self {
            Self::Channel(call) => call.client.as_ref(),
            Self::Http(call) => call.client.as_ref(),
        };
        if let Some(client) = client {
            client.set_open_question(is_open);
        }
    }

    /// The next message that belongs to it; its answer is the last. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Received, Error> {
        match self {
            Self::Channel(call) => call.next().await,
            Self::Http(call) => call.next().await,
        }
    }

    /// Answers a question of the server.
    pub(super) async fn answer(&self, text: String) -> Result<(), Error> {
        match self {
            Self::Channel(call) => call.answer(text).await,
            Self::Http(call) => call.answer(text).await,
        }
    }
}
