//! Writing small messages in one piece.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What fits is copied, as most messages do: that costs less than writing two parts.
const SMALL: usize = 4096;

thread_local! {
    static WHOLE: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(SMALL));
}

/// A stream to which the parts of a small message are written together. Large ones
/// are not copied.
#[derive(Debug)]
pub struct Joined<S>(pub S);

impl<S: AsyncRead + Unpin> AsyncRead for Joined<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Joined<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.0);
        WHOLE.with_borrow_mut(|whole| {
            if join(parts, whole) {
                stream.poll_write(context, whole)
            } else {
                stream.poll_write_vectored(context, parts)
            }
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Puts the parts behind each other into `whole`, if they are small.
fn join(parts: &[IoSlice<'_>], whole: &mut Vec<u8>) -> bool {
    whole.clear();
    for part in parts {
        if whole.len() + part.len() > SMALL {
            return false;
        }
        whole.extend_from_slice(part);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_messages_are_copied() {
        let (head, body) = ([1; 100], [2; SMALL]);
        let mut whole = Vec::new();
        let fits = [IoSlice::new(&head), IoSlice::new(&body[..SMALL - 100])];
        assert!(join(&fits, &mut whole));
        assert_eq!((whole.len(), whole[99], whole[100]), (SMALL, 1, 2));
        let large = [IoSlice::new(&head), IoSlice::new(&body[..SMALL - 99])];
        assert!(!join(&large, &mut whole));
    }
}
