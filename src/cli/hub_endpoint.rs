//! The way to a hub: its local socket, TCP or TLS.

use std::{fmt, io, path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    },
};

/// Where a hub is reached.
#[derive(Debug)]
pub(super) enum HubEndpoint {
    /// The socket in its data directory, which does not depend on where it listens.
    LocalSocket(PathBuf),
    Tcp {
        address: String,
    },
    Tls {
        address: String,
        /// The certificate of the hub, or of who issued it.
        certificate: PathBuf,
    },
}

/// A connection to a hub.
pub(super) trait HubStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> HubStream for T {}

impl HubEndpoint {
    /// What the hub is called in requests.
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

/// Connects, or says what to do where nobody listens.
async fn connect_tcp(address: &str) -> Result<TcpStream> {
    match TcpStream::connect(address).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => bail!(
            "no hub listens on {address}; start one with: maru --listen {address}, or leave out --listen to ask the hub of the data directory"
        ),
        connected => Ok(connected?),
    }
}

fn read_certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>> {
    let read = || -> Result<Vec<_>> {
        let found: Vec<_> = CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
        ensure!(!found.is_empty(), "there is no certificate in it");
        Ok(found)
    };
    read().with_context(|| format!("tls.certificate: cannot use {}", path.display()))
}

fn client_config(trusted: Vec<CertificateDer<'static>>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(trusted.iter().cloned());
    let issued = WebPkiServerVerifier::builder(Arc::new(roots)).build()?;
    let verifier = HubCertificateVerifier { trusted, issued };
    Ok(ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

/// Accepts the very certificate that the settings name, whatever name it is for: a
/// hub is reached by its address here, and its certificate is often self-signed.
/// Any other must be issued for that address by someone who is trusted.
struct HubCertificateVerifier {
    trusted: Vec<CertificateDer<'static>>,
    issued: Arc<WebPkiServerVerifier>,
}

impl fmt::Debug for HubCertificateVerifier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("HubCertificateVerifier")
    }
}

impl ServerCertVerifier for HubCertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.trusted.first() == Some(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        self.issued
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.issued
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.issued
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}
