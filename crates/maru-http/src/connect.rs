//! Opens TCP and TLS connections to an allowed URL.

use std::{
    fmt,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use hyper::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
    time,
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, RootCertStore, pki_types::ServerName},
};

use tower_service::Service;

use super::allowed_url::{AllowedUrl, UrlHost};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server may read nothing of a request. Without this, a server that answers
/// early and never reads the rest of a large request would hold its connection for ever.
const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The ALPN name of HTTP/2.
const H2_PROTOCOL: &[u8] = b"h2";

/// TLS settings of the client. The system's root certificates are loaded once, at the
/// first use.
#[derive(Clone, Default)]
pub struct ClientTls(Arc<OnceLock<Arc<ClientConfig>>>);

/// Opens connections to one origin, whatever URI hyper passes.
#[derive(Clone, Debug)]
pub(super) struct OriginConnector {
    target: Arc<AllowedUrl>,
    tls: ClientTls,
}

/// Why a connection could not be established.
#[derive(Debug, Error)]
#[error("{0}")]
pub(super) struct ConnectError(pub(super) String);

/// A TCP connection with or without TLS.
pub(super) enum MaybeTlsStream {
    Plain(StallGuardedTcp),
    Tls(Box<TlsStream<StallGuardedTcp>>),
}

type StallGuardedTcp = Pin<Box<TimeoutStream<TcpStream>>>;

impl OriginConnector {
    pub(super) fn new(target: AllowedUrl, tls: ClientTls) -> Self {
        let target = Arc::new(target);
        Self { target, tls }
    }

    pub(super) fn target(&self) -> &AllowedUrl {
        &self.target
    }

    async fn open_connection(self) -> Result<TokioIo<MaybeTlsStream>, ConnectError> {
        let connecting = connect_any_address(&self.target, &self.tls);
        let timed_out = |_| format!("no answer within {CONNECT_TIMEOUT:?}");
        let connected = time::timeout(CONNECT_TIMEOUT, connecting).await;
        let stream = connected.map_err(timed_out).flatten();
        stream.map(TokioIo::new).map_err(ConnectError)
    }
}

impl Service<Uri> for OriginConnector {
    type Response = TokioIo<MaybeTlsStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().open_connection())
    }
}

async fn connect_any_address(
    target: &AllowedUrl,
    tls: &ClientTls,
) -> Result<MaybeTlsStream, String> {
    let mut last_error = "its name has no address that maru may reach".to_owned();
    for address in resolve_addresses(target).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // With Nagle's algorithm a request would wait for the acknowledgement of
                // the previous one.
                stream
                    .set_nodelay(true)
                    .map_err(|error| error.to_string())?;
                let mut stream = TimeoutStream::new(stream);
                stream.set_write_timeout(Some(WRITE_STALL_TIMEOUT));
                return tls.handshake(Box::pin(stream), target).await;
            }
            Err(error) => last_error = error.kind().to_string(),
        }
    }
    Err(last_error)
}

async fn resolve_addresses(target: &AllowedUrl) -> Result<Vec<SocketAddr>, String> {
    match &target.host {
        UrlHost::Address(address) => Ok(vec![SocketAddr::new(*address, target.port)]),
        UrlHost::Name(name) => {
            let addresses = lookup_host((name.as_str(), target.port)).await;
            let addresses = addresses.map_err(|_| "its name is not known".to_owned())?;
            Ok(addresses
                .filter(|it| target.scope.contains(it.ip()))
                .collect())
        }
    }
}

impl ClientTls {
    #[cfg(test)]
    pub(super) fn with_roots(roots: RootCertStore) -> Self {
        Self(Arc::new(OnceLock::from(client_config(roots))))
    }

    async fn handshake(
        &self,
        stream: StallGuardedTcp,
        target: &AllowedUrl,
    ) -> Result<MaybeTlsStream, String> {
        if !target.is_https {
            return Ok(MaybeTlsStream::Plain(stream));
        }
        let name = match &target.host {
            UrlHost::Name(name) => {
                ServerName::try_from(name.clone()).map_err(|error| error.to_string())?
            }
            UrlHost::Address(address) => ServerName::from(*address),
        };
        let config = Arc::clone(self.0.get_or_init(load_client_config));
        let stream = TlsConnector::from(config).connect(name, stream).await;
        stream
            .map(|it| MaybeTlsStream::Tls(Box::new(it)))
            .map_err(|error| format!("the TLS handshake failed: {error}"))
    }
}

fn load_client_config() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    client_config(roots)
}

fn client_config(roots: RootCertStore) -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![H2_PROTOCOL.to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

impl Connection for MaybeTlsStream {
    /// Tells hyper whether the server chose HTTP/2.
    fn connected(&self) -> Connected {
        let is_h2 = match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(H2_PROTOCOL),
        };
        if is_h2 {
            Connected::new().negotiated_h2()
        } else {
            Connected::new()
        }
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ClientTls")
    }
}

impl AsyncRead for MaybeTlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for MaybeTlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }
}
