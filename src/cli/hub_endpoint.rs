//! Connections to a hub over its local socket, TCP or TLS.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use maru_runtime::files::check_regular_file;
use maru_runtime::{ServerCertificate, ServerCertificateVerifier};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        client::WebPkiServerVerifier,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

/// The endpoint of a hub.
#[derive(Debug)]
pub(super) enum HubEndpoint {
    /// The socket in its data directory, which works wherever the hub listens.
    LocalSocket(PathBuf),
    Tcp {
        address: String,
    },
    Tls {
        address: String,
        /// The certificate of the hub or of its issuer, if it is known.
        certificate: Option<PathBuf>,
    },
}

/// The longest time that a connection to a hub may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a hub.
pub(super) trait HubStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> HubStream for T {}

impl HubEndpoint {
    /// The value of the `Host` header.
    pub(super) fn host_header(&self) -> &str {
        match self {
            Self::LocalSocket(_) => "localhost",
            Self::Tcp { address } | Self::Tls { address, .. } => address,
        }
    }

    /// Opens a connection. The caller sets the deadline.
    pub(super) async fn connect(&self) -> Result<Box<dyn HubStream>> {
        Ok(match self {
            Self::LocalSocket(path) => {
                #[cfg(unix)]
                let connected = tokio::net::UnixStream::connect(path).await;
                #[cfg(not(unix))]
                let connected: io::Result<TcpStream> = Err(io::ErrorKind::Unsupported.into());
                Box::new(connected.with_context(|| format!("its socket is {}", path.display()))?)
            }
            Self::Tcp { address } => Box::new(connect_tcp(address).await?),
            Self::Tls {
                address,
                certificate,
            } => {
                let trusted = certificate.as_ref().map(read_certificates).transpose()?;
                let config = client_config(trusted.unwrap_or_default())?;
                let stream = connect_tcp(address).await?;
                let name = server_name(address, &stream)?;
                let connector = TlsConnector::from(Arc::new(config));
                let connected = connector.connect(name, stream).await;
                Box::new(connected.context("its certificate or its TLS is not accepted; SSL_CERT_FILE can name the certificate to trust")?)
            }
        })
    }
}

/// The name that the certificate must be issued for.
fn server_name(address: &str, stream: &TcpStream) -> Result<ServerName<'static>> {
    let (host, _) = address.rsplit_once(':').unwrap_or((address, ""));
    match ServerName::try_from(host.to_owned()) {
        Ok(name @ ServerName::DnsName(_)) => Ok(name),
        _ => Ok(ServerName::from(stream.peer_addr()?.ip())),
    }
}

/// Connects, with an error that says what to do.
async fn connect_tcp(address: &str) -> Result<TcpStream> {
    let connecting = time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address));
    let Ok(connected) = connecting.await else {
        bail!(
            "{address} did not answer within {CONNECT_TIMEOUT:?}; check the address and the network"
        );
    };
    connected.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => anyhow!(
            "no hub listens on {address}; start one with: maru --listen {address}, or omit --listen and --hub to use the hub of the data directory"
        ),
        _ => anyhow!("{error}; check the address and the network"),
    })
}

fn read_certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>> {
    let read = || -> Result<Vec<_>> {
        check_regular_file(path)?;
        let certificates: Vec<_> =
            CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
        ensure!(!certificates.is_empty(), "the file contains no certificate");
        Ok(certificates)
    };
    read().with_context(|| format!("tls.certificate: cannot use {}", path.display()))
}

/// Accepts exactly the certificate that the settings name, whatever host name it has,
/// because the command line connects by address and the certificate is often self-signed.
/// Any other certificate must be issued for that address by a trusted authority.
fn client_config(trusted: Vec<CertificateDer<'static>>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(trusted.iter().cloned());
    let builder = ClientConfig::builder();
    let provider = Arc::clone(builder.crypto_provider());
    let web_pki = WebPkiServerVerifier::builder(Arc::new(roots)).build()?;
    let verifier =
        ServerCertificateVerifier::new(provider, move |presented: &ServerCertificate<'_>| {
            if trusted.first() == Some(presented.end_entity) {
                return Ok(());
            }
            presented.verify_chain_and_name(&web_pki)
        });
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}
