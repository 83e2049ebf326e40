//! Which certificates of a server are accepted, by `sslmode`.

use std::sync::Arc;

use maru_runtime::{ServerCertificate, ServerCertificateVerifier};
use tokio_rustls::rustls::{
    CertificateError, Error, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier, verify_server_name},
    crypto::CryptoProvider,
    pki_types::CertificateDer,
    server::ParsedCertificate,
};

/// Accepts every certificate, for `sslmode` `prefer` and `require`.
pub(super) fn permissive_verifier(provider: Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
    ServerCertificateVerifier::new(provider, |_| Ok(()))
}

/// Accepts certificates that one of `roots` issued, or that are one of `roots` themselves.
pub(super) fn pinned_or_issued_verifier(
    roots: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
    checks_name: bool,
) -> Arc<dyn ServerCertVerifier> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().cloned());
    let issued =
        WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(&provider));
    // Fails if no certificate authority is trusted.
    let issued = issued.build().ok();
    ServerCertificateVerifier::new(provider, move |presented: &ServerCertificate<'_>| {
        let Some(issued) = &issued else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        match presented.verify_chain_and_name(issued) {
            // The chain is verified before the name is.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !checks_name => Ok(()),
            Err(Error::InvalidCertificate(error))
                if !is_outdated(&error) && roots.contains(presented.end_entity) =>
            {
                if checks_name {
                    let certificate = ParsedCertificate::try_from(presented.end_entity)?;
                    verify_server_name(&certificate, presented.server_name)?;
                }
                Ok(())
            }
            verified => verified,
        }
    })
}

/// Whether a certificate is refused even if it is trusted itself. Such a certificate needs
/// no issuer; its dates are checked before its chain.
fn is_outdated(error: &CertificateError) -> bool {
    matches!(
        error,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
            | CertificateError::BadEncoding
    )
}
