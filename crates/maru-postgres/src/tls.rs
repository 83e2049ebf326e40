//! TLS to a PostgreSQL server, with the options that libpq has.

use maru_runtime::files::check_regular_file;
use std::{
    future::Future,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{
    TlsConnector, client,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};

use crate::{
    Error,
    certificate_hash::tls_server_end_point,
    server_verifier::{permissive_verifier, pinned_or_issued_verifier},
};

/// The name of the protocol in the handshake, which servers want that take TLS from
/// the first byte.
const ALPN_PROTOCOL: &[u8] = b"postgresql";

/// Whether a connection is encrypted and what the server has to prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Never encrypted.
    Disable,
    /// Encrypted if the server offers it.
    Prefer,
    /// Encrypted; the certificate is verified only if root certificates are given.
    Require,
    /// Encrypted, with a certificate of a trusted authority.
    VerifyCa,
    /// Encrypted, with a certificate of a trusted authority for this host.
    VerifyFull,
}

/// Which authorities may issue the certificate of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootCertificates {
    /// Those that the system trusts.
    System,
    /// Those in a PEM file.
    File(PathBuf),
}

/// The TLS options of an address, as libpq names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `sslmode`
    pub mode: Option<TlsMode>,
    /// `sslrootcert`
    pub root_certificates: Option<RootCertificates>,
    /// `sslcert`
    pub client_certificate: Option<PathBuf>,
    /// `sslkey`
    pub client_key: Option<PathBuf>,
}

/// Makes TLS connections to one server.
#[derive(Clone, Debug)]
pub struct PostgresTls(Arc<ClientConfig>);

/// One TLS connection to be made.
#[derive(Debug)]
pub struct PostgresHandshake {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

/// A TLS connection.
#[derive(Debug)]
pub struct PostgresTlsStream<S>(client::TlsStream<S>);

impl TlsMode {
    /// The mode of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "disable" => Self::Disable,
            // libpq tries without TLS first, which no server needs.
            "prefer" | "allow" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }
}

impl RootCertificates {
    /// Reads `system` or the path of a file.
    pub fn parse(text: &str) -> Self {
        if text == "system" {
            Self::System
        } else {
            Self::File(text.into())
        }
    }
}

impl TlsOptions {
    /// The mode, if the other options go with it.
    pub(crate) fn checked_mode(&self) -> Result<TlsMode, Error> {
        let mode = self.effective_mode();
        match &self.root_certificates {
            Some(RootCertificates::System) if mode != TlsMode::VerifyFull => {
                return Err(Error::UnusedRootCertificate("verify-full"));
            }
            Some(_) if matches!(mode, TlsMode::Disable | TlsMode::Prefer) => {
                return Err(Error::UnusedRootCertificate(
                    "require, verify-ca or verify-full",
                ));
            }
            _ => (),
        }
        if self.client_certificate.is_some() == self.client_key.is_some() {
            Ok(mode)
        } else {
            Err(Error::IncompleteClientCertificate)
        }
    }

    /// Whether the server has to prove that it is the one that is meant.
    pub(crate) fn verifies(&self) -> bool {
        match self.effective_mode() {
            TlsMode::Disable | TlsMode::Prefer => false,
            TlsMode::Require => self.root_certificates.is_some(),
            TlsMode::VerifyCa | TlsMode::VerifyFull => true,
        }
    }

    fn effective_mode(&self) -> TlsMode {
        let default = match self.root_certificates {
            Some(RootCertificates::System) => TlsMode::VerifyFull,
            _ => TlsMode::Prefer,
        };
        self.mode.unwrap_or(default)
    }
}

impl PostgresTls {
    /// Reads the files that the options name.
    pub(crate) fn load(options: &TlsOptions) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions");
        let verifier = if options.verifies() {
            let roots = load_roots(options.root_certificates.as_ref())?;
            let checks_name = options.effective_mode() == TlsMode::VerifyFull;
            pinned_or_issued_verifier(roots, provider, checks_name)
        } else {
            permissive_verifier(provider)
        };
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match (&options.client_certificate, &options.client_key) {
            (Some(certificate), Some(key)) => {
                let chain = read_certificates("sslcert", certificate)?;
                let private_key = read_key(key)?;
                builder
                    .with_client_auth_cert(chain, private_key)
                    .map_err(|error| unusable("sslkey", key, &error))?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN_PROTOCOL.to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

fn load_roots(roots: Option<&RootCertificates>) -> Result<Vec<CertificateDer<'static>>, Error> {
    match roots {
        None | Some(RootCertificates::System) => Ok(rustls_native_certs::load_native_certs().certs),
        Some(RootCertificates::File(path)) => {
            let roots = read_certificates("sslrootcert", path)?;
            let mut store = RootCertStore::empty();
            for root in roots.iter().cloned() {
                store
                    .add(root)
                    .map_err(|error| unusable("sslrootcert", path, &error))?;
            }
            Ok(roots)
        }
    }
}

fn read_certificates(
    option: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    check_regular_file(path).map_err(|error| unusable(option, path, &error))?;
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(|found| found.collect::<Result<Vec<_>, _>>())
        .map_err(|error| unusable(option, path, &error))?;
    if certificates.is_empty() {
        Err(unusable(option, path, &"it has no PEM certificate"))
    } else {
        Ok(certificates)
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    check_regular_file(path).map_err(|error| unusable("sslkey", path, &error))?;
    PrivateKeyDer::from_pem_file(path).map_err(|error| unusable("sslkey", path, &error))
}

fn unusable(option: &'static str, path: &Path, reason: &impl ToString) -> Error {
    Error::Certificate {
        option,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

impl<S> MakeTlsConnect<S> for PostgresTls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = PostgresTlsStream<S>;
    type TlsConnect = PostgresHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<PostgresHandshake> {
        // The driver also asks for connections that have no host and no TLS.
        let host = if host.is_empty() { "localhost" } else { host };
        let server_name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(PostgresHandshake {
            config: Arc::clone(&self.0),
            server_name,
        })
    }
}

impl<S> TlsConnect<S> for PostgresHandshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = PostgresTlsStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<PostgresTlsStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connector = TlsConnector::from(self.config);
            let stream = connector.connect(self.server_name, stream).await?;
            Ok(PostgresTlsStream(stream))
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for PostgresTlsStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let (_, connection) = self.0.get_ref();
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        match certificate.and_then(|it| tls_server_end_point(it)) {
            Some(hash) => ChannelBinding::tls_server_end_point(hash),
            None => ChannelBinding::none(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for PostgresTlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PostgresTlsStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
