//! Writing small messages in one piece.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What fits is copied, as most messages do: that costs less than writing two parts.
const SMALL: usize = 4096;

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
        let mut whole = [0; SMALL];
        match join(parts, &mut whole) {
            Some(joined) => Pin::new(&mut self.0).poll_write(context, joined),
            None => Pin::new(&mut self.0).poll_write_vectored(context, parts),
        }
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

/// The parts behind each other in `whole`, if they fit.
fn join<'a>(parts: &[IoSlice<'_>], whole: &'a mut [u8; SMALL]) -> Option<&'a [u8]> {
    let mut end = 0;
    for part in parts {
        whole.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    Some(&whole[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_messages_are_copied() {
        let (head, body) = ([1; 100], [2; SMALL]);
        let mut whole = [0; SMALL];
        let fits = [IoSlice::new(&head), IoSlice::new(&body[..SMALL - 100])];
        let joined = join(&fits, &mut whole).unwrap();
        assert_eq!((joined.len(), joined[99], joined[100]), (SMALL, 1, 2));
        let large = [IoSlice::new(&head), IoSlice::new(&body[..SMALL - 99])];
        assert_eq!(join(&large, &mut whole), None);
    }
}
