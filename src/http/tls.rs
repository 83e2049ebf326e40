//! The certificate that maru shows, read again when its file changes.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};
use tokio::{fs, time};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::TlsSettings;

/// How often the files are looked at.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// What encrypts connections. A certificate that cannot be used never replaces one
/// that can.
#[derive(Debug)]
pub struct TlsCertificates(Mutex<CurrentCertificate>);

#[derive(Debug)]
struct CurrentCertificate {
    settings: TlsSettings,
    acceptor: Option<PreparedAcceptor>,
}

/// An acceptor made from the settings, not yet in use.
#[derive(Clone)]
pub struct PreparedAcceptor(TlsAcceptor);

impl std::fmt::Debug for PreparedAcceptor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Acceptor")
    }
}

/// What tells that a file is another one: when it was written, and its size.
type FileStamps = [Option<(SystemTime, u64)>; 2];

impl TlsCertificates {
    /// Reads the certificate and key of the settings, if they name any.
    pub fn load(settings: &TlsSettings) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Mutex::new(CurrentCertificate {
            acceptor: acceptor(settings)?,
            settings: settings.clone(),
        }))))
    }

    /// What encrypts the next connection; `None` where nothing is encrypted.
    pub(super) fn load_acceptor(&self) -> Option<TlsAcceptor> {
        self.lock().acceptor.as_ref().map(|it| it.0.clone())
    }

    /// Uses a certificate that was read with [`acceptor`] from these settings.
    pub fn replace(&self, settings: &TlsSettings, acceptor: Option<PreparedAcceptor>) {
        *self.lock() = CurrentCertificate {
            settings: settings.clone(),
            acceptor,
        };
    }

    /// Reads the files again whenever they change, until `stop`.
    pub async fn watch_files(self: Arc<Self>, stop: CancellationToken) {
        let mut seen = self.file_stamps().await;
        while time::timeout(FILE_CHECK_INTERVAL, stop.cancelled())
            .await
            .is_err()
        {
            let now = self.file_stamps().await;
            if now == seen {
                continue;
            }
            seen = now;
            let settings = self.lock().settings.clone();
            match acceptor(&settings) {
                Ok(Some(acceptor)) => {
                    self.replace(&settings, Some(acceptor));
                    info!("the certificate has changed; new connections get the new one");
                }
                Ok(None) => (),
                Err(why) => warn!(
                    "the certificate has changed and cannot be used; the old one is kept: {why:#}"
                ),
            }
        }
    }

    async fn file_stamps(&self) -> FileStamps {
        let settings = self.lock().settings.clone();
        let mut stamp = [None; 2];
        let files = [settings.certificate, settings.key];
        for (at, path) in files.into_iter().flatten().enumerate() {
            let meta = fs::metadata(path).await.ok();
            stamp[at] = meta.and_then(|it| Some((it.modified().ok()?, it.len())));
        }
        stamp
    }

    fn lock(&self) -> MutexGuard<'_, CurrentCertificate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What encrypts connections; `None` where nothing is asked for.
pub fn acceptor(tls: &TlsSettings) -> Result<Option<PreparedAcceptor>> {
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else {
        return Ok(None);
    };
    let chain = read_chain(certificate)
        .with_context(|| format!("tls.certificate: cannot use {}", certificate.display()))?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("tls.key: cannot use {}", key.display()))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .context("tls.key: it does not fit tls.certificate")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(PreparedAcceptor(TlsAcceptor::from(Arc::new(config)))))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
    anyhow::ensure!(!chain.is_empty(), "there is no certificate in it");
    Ok(chain)
}
