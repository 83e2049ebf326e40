//! The certificate that maru shows.

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, Result};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use crate::config::Tls;

/// What encrypts connections; `None` where nothing is asked for.
pub fn acceptor(tls: &Tls) -> Result<Option<TlsAcceptor>> {
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else {
        return Ok(None);
    };
    let chain = chain(certificate)
        .with_context(|| format!("tls.certificate: cannot use {}", certificate.display()))?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("tls.key: cannot use {}", key.display()))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .context("tls.key: it does not fit tls.certificate")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
    anyhow::ensure!(!chain.is_empty(), "there is no certificate in it");
    Ok(chain)
}
