//! Connections to a hub over its local socket, TCP or TLS.

use maru_runtime::files::check_regular_file;
use std::{io, path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result, bail, ensure};
use maru_runtime::{ServerCertificate, ServerCertificateVerifier};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
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
        /// The certificate of the hub or of its issuer.
        certificate: PathBuf,
    },
}

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
            Self::LocalSocket(path) => Box::new(UnixStream::connect(path).await?),
            Self::Tcp { address } => Box::new(connect_tcp(address).await?),
            Self::Tls {
                address,
                certificate,
            } => {
                let trusted = read_certificates(certificate)?;
                let config = client_config(trusted)?;
                let stream = connect_tcp(address).await?;
                let name = ServerName::from(stream.peer_addr()?.ip());
                let connector = TlsConnector::from(Arc::new(config));
                Box::new(connector.connect(name, stream).await?)
            }
        })
    }
}

/// Connects, with a hint in the error if no hub listens there.
async fn connect_tcp(address: &str) -> Result<TcpStream> {
    match TcpStream::connect(address).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => bail!(
            "no hub listens on {address}; start one with: maru --listen {address}, or omit --listen to use the hub of the data directory"
        ),
        connected => Ok(connected?),
    }
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
