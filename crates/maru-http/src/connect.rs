//! Making a connection to a judged address.

use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
    time,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, RootCertStore, pki_types::ServerName},
};

use super::{
    Error,
    allowed_url::{AllowedUrl, UrlHost},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How secure connections are made; the system's certificates are read once.
#[derive(Clone, Default)]
pub struct ClientTls(Arc<OnceLock<Arc<ClientConfig>>>);

/// A connection, encrypted or not.
pub(super) enum MaybeTlsStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects to `target` within ten seconds.
pub(super) async fn open_connection(
    target: &AllowedUrl,
    tls: &ClientTls,
) -> Result<MaybeTlsStream, Error> {
    let unreachable = |why: String| Error::Unreachable {
        place: target.authority(),
        why,
    };
    match time::timeout(CONNECT_TIMEOUT, connect_any_address(target, tls)).await {
        Ok(done) => done.map_err(unreachable),
        Err(_) => Err(unreachable(format!("no answer within {CONNECT_TIMEOUT:?}"))),
    }
}

async fn connect_any_address(
    target: &AllowedUrl,
    tls: &ClientTls,
) -> Result<MaybeTlsStream, String> {
    let mut last = "its name has no address that maru may reach".to_owned();
    for address in resolve_addresses(target).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Without it a request waits for the acknowledgement of the one before.
                stream
                    .set_nodelay(true)
                    .map_err(|error| error.to_string())?;
                return tls.handshake(stream, target).await;
            }
            Err(error) => last = error.kind().to_string(),
        }
    }
    Err(last)
}

async fn resolve_addresses(target: &AllowedUrl) -> Result<Vec<SocketAddr>, String> {
    match &target.host {
        UrlHost::Address(address) => Ok(vec![SocketAddr::new(*address, target.port)]),
        UrlHost::Name(name) => {
            let found = lookup_host((name.as_str(), target.port)).await;
            let found = found.map_err(|_| "its name is not known".to_owned())?;
            Ok(found.filter(|it| target.scope.contains(it.ip())).collect())
        }
    }
}

impl ClientTls {
    async fn handshake(
        &self,
        stream: TcpStream,
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
            .map_err(|error| format!("no secure connection: {error}"))
    }
}

fn load_client_config() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(
        ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth(),
    )
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tls")
    }
}

impl AsyncRead for MaybeTlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, into),
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
        matches!(self, Self::Plain(_))
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
