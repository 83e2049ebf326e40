//! TLS verifiers that differ only in which certificates they accept.

use std::{fmt, sync::Arc};

use tokio_rustls::rustls::{
    DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// The certificate that a server presents in the handshake.
#[derive(Debug)]
pub struct ServerCertificate<'a> {
    /// The certificate of the server itself.
    pub end_entity: &'a CertificateDer<'a>,
    /// The name or address that the client connects to.
    pub server_name: &'a ServerName<'a>,
    intermediates: &'a [CertificateDer<'a>],
    ocsp_response: &'a [u8],
    now: UnixTime,
}

/// A verifier that accepts the certificates for which `accepts` returns `Ok`. The signature
/// of the handshake is always verified, so the server has the key of the certificate.
pub struct ServerCertificateVerifier<F> {
    accepts: F,
    provider: Arc<CryptoProvider>,
}

impl ServerCertificate<'_> {
    /// Checks chain, dates and name, as for a public web site.
    pub fn verify_chain_and_name(&self, verifier: &WebPkiServerVerifier) -> Result<(), Error> {
        let (certificate, chain) = (self.end_entity, self.intermediates);
        verifier
            .verify_server_cert(
                certificate,
                chain,
                self.server_name,
                self.ocsp_response,
                self.now,
            )
            .map(|_| ())
    }
}

impl<F> ServerCertificateVerifier<F>
where
    F: Fn(&ServerCertificate<'_>) -> Result<(), Error> + Send + Sync,
{
    /// A verifier with the signature algorithms of `provider`.
    pub fn new(provider: Arc<CryptoProvider>, accepts: F) -> Arc<Self> {
        Arc::new(Self { accepts, provider })
    }
}

impl<F> fmt::Debug for ServerCertificateVerifier<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ServerCertificateVerifier")
    }
}

impl<F> ServerCertVerifier for ServerCertificateVerifier<F>
where
    F: Fn(&ServerCertificate<'_>) -> Result<(), Error> + Send + Sync,
{
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        (self.accepts)(&ServerCertificate {
            end_entity,
            server_name,
            intermediates,
            ocsp_response,
            now,
        })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
